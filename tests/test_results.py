"""Results show themselves in a notebook: text always, a page in a frame of its own, a picture."""

from __future__ import annotations

from dataclasses import dataclass

import gpt_cli
from gpt_cli.results import WIDTH, Result


@dataclass(frozen=True)
class Page(Result):
    text: str = "two <words>"

    def as_text(self, width: int = WIDTH) -> str:
        return self.text

    def as_page(self) -> str:
        return f'<p title="a&b">{self.text}</p>'

    def as_picture(self) -> bytes:
        return b"PNG"


def test_a_page_is_framed_and_stays_apart_from_the_notebook() -> None:
    found = Page()._repr_mimebundle_()
    assert list(found) == ["text/html", "image/png", "text/plain"]
    assert str(found["text/html"]).startswith(
        '<iframe srcdoc="&lt;p title=&quot;a&amp;b&quot;&gt;two &lt;words&gt;&lt;/p&gt;" style="width: 100%'
    )
    assert 'sandbox="allow-scripts' in str(found["text/html"])
    assert (found["image/png"], found["text/plain"]) == (b"PNG", "two <words>")


def test_what_has_no_page_is_the_text_of_the_command() -> None:
    assert gpt_cli.info("smoke")._repr_mimebundle_() == {"text/plain": gpt_cli.info("smoke").as_text()}
    assert gpt_cli.info("smoke").as_text().splitlines()[1].split() == ["parameters", "59,072"]
