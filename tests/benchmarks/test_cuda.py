from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from support.helpers import CORPUS_TEXT

from benchmarks import cuda as module
from benchmarks.cuda_commands import largest_difference
from benchmarks.cuda_parts import PARTS, Scale
from gpt_cli.sampling.fast.c_library import library

# roof is measured, memory fails, training goes on for too long; each call leaves a line
ANSWERING = """
import sys, time
part = sys.argv[sys.argv.index("--part") + 1]
print(part, file=open("calls", "a"))
print("something else")
print('{"what": "of %s", "value": 1234.56, "unit": "m"}' % part, flush=True)
if part == "memory":
    sys.exit("RuntimeError: too small")
time.sleep(60 * (part == "training"))
"""


@pytest.fixture
def text(here: Path) -> str:
    (here / "text.txt").write_text(CORPUS_TEXT)
    return "text.txt"


def figures(name: str, scale: Scale) -> dict[str, float | str]:
    return {figure.what: figure.value for figure in PARTS[name].measure(scale)}


def test_parts_give_their_figures_at_small_scale(text: str) -> None:
    scale = Scale(torch.device("cpu"), text, small=True)
    numbers = [*figures("roof", scale).values(), *figures("decoding", scale).values()]
    assert len(numbers) == 3 + 4 + (2 if library() else 0)  # and compiled code for one sequence
    assert all(isinstance(number, float) and number > 0 for number in numbers)
    assert figures("memory", scale)["4 sequences, measured"] == "torch reports no peak"
    found = figures("training", scale)
    assert found["4 sequences, float32, eager, graph"] == "cpu has no graphs"
    found = figures("nanogpt", scale)
    assert found["after steps"] == 4
    assert 3 < float(found["best loss, eager"]) < 8


def test_what_fails_is_reported_and_tried_again(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "COMMAND", (sys.executable, "-S", "-c", ANSWERING))
    only = [word for name in ("roof", "memory", "training") for word in ("--only", name)]
    monkeypatch.setattr(sys, "argv", ["cuda", "--device", "cpu", "--data", "text.txt", "--budget", "5", *only])
    for _ in range(2):
        assert module.main() == 1
        out = capsys.readouterr().out
        assert "of roof  1,235 m\n" in out
        assert "memory failed: RuntimeError: too small\n" in out
        assert "of training  1,235 m\n" in out
        assert "\ntraining failed: its " in out
        assert out.endswith("failed: memory, training; the same command tries them again\n")
    assert Path("calls").read_text().split() == ["roof", "memory", "training", "memory", "training"]
    found = json.loads(Path("bench-cuda.json").read_text())["parts"]
    assert found["roof"]["figures"] == [{"what": "of roof", "value": 1234.56, "unit": "m"}]
    assert [name for name, part in found.items() if part["error"]] == ["memory", "training"]


def test_the_largest_difference_of_two_answers_is_that_of_their_numbers() -> None:
    one = {"device": "cpu", "rows": [{"loss": 2.0, "token": "a"}, {"loss": 0.5, "token": "b"}]}
    other = {"device": "cuda", "rows": [{"loss": 2.02, "token": "a"}, {"loss": 0.501, "token": "b"}]}
    assert largest_difference(one, other) == pytest.approx(0.01)
    assert largest_difference(one, one) == 0
    with pytest.raises(ValueError, match=r"^rows.1.token differs: 'b' and 'c'$"):
        largest_difference(one, {**one, "rows": [one["rows"][0], {"loss": 0.5, "token": "c"}]})


@pytest.mark.long
def test_the_whole_of_it_runs_on_a_cpu(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cuda", "--device", "cpu", "--data", text])
    assert module.main() == 0
    out = capsys.readouterr().out
    assert out.endswith("all parts are done\n")
    lines = [line.split("  ") for line in out.splitlines()]
    equal = [words[0] for words in lines if words[-1].strip() == "equal bits"]
    assert equal == ["the same again", "without a graph", "by two processes"]
