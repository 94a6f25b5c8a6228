"""Results show themselves in a notebook: text always, a page in a frame of its own, a picture."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gpt_cli
from gpt_cli.common.results import WIDTH, Result
from gpt_cli.errors import EnvironmentFailure


@dataclass(frozen=True)
class Page(Result):
    text: str = "two <words>"

    def as_text(self, width: int = WIDTH) -> str:
        return self.text

    def as_page(self) -> str:
        return f'<p title="a&b">{self.text}</p>'

    def as_picture(self, kind: str = "png") -> bytes:
        return b"PNG"


def test_a_page_is_framed_and_stays_apart_from_the_notebook() -> None:
    found = Page()._repr_mimebundle_()
    assert list(found) == ["text/html", "image/png", "text/plain"]
    page = str(found["text/html"])
    assert page.startswith('<iframe srcdoc="&lt;p title=&quot;a&amp;b&quot;&gt;two &lt;words&gt;&lt;/p&gt;" style=')
    assert 'sandbox="allow-scripts' in page
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


@dataclass(frozen=True)
class Table(Result):
    cell: str = ""
    size: int = 2

    def parts(self) -> list[Any]:
        rows = [(f"{number:,}.5 kB", self.cell or "word") for number in range(self.size)]
        return ["above", [("size", "name"), *rows]]


def test_a_table_is_html_with_numbers_to_the_right() -> None:
    found = Table()._repr_mimebundle_()
    assert found["text/plain"] == "above\nsize    name\n0.5 kB  word\n1.5 kB  word"
    page = str(found["text/html"])
    assert page.startswith("<p>above</p><table ")
    assert re.findall("text-align: (left|right)", page) == ["right", "left"] * 3
    assert page.count("<th ") == 2
    assert not re.search(r"src|href|url|http|script|#[0-9a-f]{6}", page), "it asks for nothing, and has no own colour"


def test_a_table_is_inert_to_hostile_names() -> None:
    page = str(Table('<img src=x onerror="alert(1)">\x1b[31m\u202e&')._repr_mimebundle_()["text/html"])
    assert "<img" not in page
    assert "&lt;img src=x onerror=&quot;alert(1)&quot;&gt;\\x1b[31m\\u202e&amp;" in page


def test_a_long_table_says_how_much_of_it_is_left_out() -> None:
    page = str(Table(size=1_501)._repr_mimebundle_()["text/html"])
    assert page.count("<tr>") == 501
    assert "<p>1,001 more rows are not shown</p>" in page


def test_a_picture_stands_above_its_table() -> None:
    @dataclass(frozen=True)
    class Both(Table):
        def as_picture(self, kind: str = "png") -> bytes:
            return b"PNG"

    found = Both()._repr_mimebundle_()
    assert list(found) == ["text/html", "image/png", "text/plain"]
    start = '<img src="data:image/png;base64,UE5H" alt="" style="max-width: 100%"><p>above'
    assert str(found["text/html"]).startswith(start)


def test_what_has_no_page_is_the_text_of_the_command() -> None:
    found = gpt_cli.configs.check("smoke")
    assert found._repr_mimebundle_() == {"text/plain": found.as_text()}
    assert gpt_cli.info("smoke").as_text().splitlines()[1].split() == ["parameters", "59,072"]


def test_a_repr_is_a_line_with_the_key_figures() -> None:
    assert repr(gpt_cli.info("smoke")) == "Info(vocab_size=512, parameters=59072, tokens_per_parameter=3.32626)"
    assert repr(gpt_cli.data.list()) == "Corpora(corpora=[9 items])"

    @dataclass(frozen=True)
    class Found(Result):
        weights: Any
        path: Path
        empty: tuple[str, ...] = ()
        hidden: str = field(default="x", repr=False)
        text: str = "a\nb" * 30
        losses: tuple[float, ...] = (1.23456789, 2)

    arrays = {"weights": np.zeros((2, 3), np.float32), "scores": torch.zeros(4)}
    assert repr(Found(arrays, Path("runs/x"))) == (
        'Found(weights={weights: float32[2, 3], scores: float32[4]}, path="runs/x", '
        'text="a\\nba\\nba\\nba\\nba\\nba\\nba\\nba\\nba\\nba\\nb…", losses=[1.23457, 2])'
    )
    assert str(Table()) == Table().as_text(), "print shows the text as before"


def test_what_a_result_has_is_an_attribute_and_its_repr_is_short(smoke_run: Path, tmp_path: Path) -> None:
    ended = gpt_cli.train("smoke", out=tmp_path / "short", max_steps=1, settings=["tokenizer.kind=byte"]).finish()
    assert ended.validation_loss == ended.as_dict()["validation_loss"]
    found = [
        gpt_cli.sample("The", max_new_tokens=9, num_samples=9),
        gpt_cli.attention("The value of the value"),
        gpt_cli.heads("one two one two", query=-1),
        gpt_cli.evaluate(per_token=True),
        gpt_cli.explain("The value"),
        gpt_cli.tokens("The value " * 99),
        gpt_cli.report(),
        *gpt_cli.report().runs,
        gpt_cli.runs(),
        *gpt_cli.runs().runs,
        ended,
        gpt_cli.info("runs/smoke"),
        gpt_cli.lens("The value of"),
        gpt_cli.data.stats("python-docs", config="smoke"),
        gpt_cli.data.list(),
        gpt_cli.configs.check("smoke"),
        gpt_cli.configs.settings(),
        gpt_cli.configs.show("smoke"),
    ]
    for each in found:
        line = repr(each)
        assert line.startswith(f"{type(each).__name__}("), line
        assert len(line) < 300, line
        assert "\n" not in line
        assert each.as_dict().keys() <= set(dir(each)), line
        assert all(hasattr(each, name) for name in each.as_dict()), line
    with pytest.raises(AttributeError, match="'Finished' object has no attribute 'validation_los'"):
        _ = ended.validation_los
    assert "stages={weights: float32[2, 2, " in repr(found[1])
