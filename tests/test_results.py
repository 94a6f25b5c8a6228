"""Results show themselves in a notebook: text always, a page in a frame of its own, a picture."""

from __future__ import annotations

from dataclasses import dataclass

import gpt_cli
from gpt_cli.errors import EnvironmentFailure
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


def test_a_page_is_made_once_and_left_out_where_it_is_too_large_or_memory_too_small() -> None:
    made: list[str] = []

    @dataclass(frozen=True)
    class Counted(Page):
        size: int = 0
        known: bool = False

        def page_bytes(self) -> int:
            return self.size if self.known else 0

        def as_page(self) -> str:
            made.append(self.text)
            if not self.size:
                raise EnvironmentFailure("memory", "there is too little of it")
            return "x" * self.size

    assert "text/html" in Counted(size=8_000_000)._repr_mimebundle_()
    assert len(made) == 1
    kinds = ["image/png", "text/plain"]
    assert [*Counted(size=8_000_001)._repr_mimebundle_()] == kinds
    assert len(made) == 2
    assert [*Counted(size=8_000_001, known=True)._repr_mimebundle_()] == kinds
    assert len(made) == 2, "its size was known before it was made"
    assert [*Counted(size=0)._repr_mimebundle_()] == kinds


def test_what_has_no_page_is_the_text_of_the_command() -> None:
    assert gpt_cli.info("smoke")._repr_mimebundle_() == {"text/plain": gpt_cli.info("smoke").as_text()}
    assert gpt_cli.info("smoke").as_text().splitlines()[1].split() == ["parameters", "59,072"]
