"""Each benchmark runs at a small scale and prints the figures that it promises."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from support.helpers import CORPUS_TEXT

from benchmarks import auto, cuda, heads, hostile, learning, refusals, shakespeare, texts
from gpt_cli.config.load import validate

Bench = Callable[[str], list[str]]


@pytest.fixture
def bench(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    """Run a benchmark in a folder with `a.txt` and return the lines that it prints."""
    (here / "a.txt").write_text(CORPUS_TEXT)

    def run(command: str) -> list[str]:
        words = shlex.split(command)
        monkeypatch.setattr(sys, "argv", words)
        import_module(f"benchmarks.{words[0]}").main()
        return capsys.readouterr().out.splitlines()

    return run


@pytest.mark.long
def test_attention(here: Path) -> None:
    """By itself, as two browsers in one process do not get along."""
    command = [sys.executable, "-m", "benchmarks.attention", "--config", "smoke", "--rounds", "1"]
    root = Path(auto.__file__).parents[1]
    done = subprocess.run(
        command, cwd=here, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])


def test_auto_goes_on_where_it_was_stopped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[int] = []

    def train(config: Any, source: str, steps: int) -> dict[str, Any]:
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(steps)
        return {"bits_per_byte": 2.0 + len(trained), "steps": steps, "last_above_best": 0.0}

    monkeypatch.setattr(auto, "trained", train)
    monkeypatch.setattr(auto, "times_reference", lambda *_: 0.5)
    command = "auto --data a.txt --seconds 3 --random 1"
    with pytest.raises(KeyboardInterrupt):
        bench(command)
    assert trained[1] == 100  # 3 s are 50 steps of `tiny`, and a step takes half the time of one of `tiny`
    monkeypatch.setattr(auto, "trained", lambda *_: {"bits_per_byte": 1.5, "steps": 1})
    assert bench(command)[-1] == "| a | 3 | 3.000 | 1.500 of 1 | 4.000 | 1.500 | not run | 0.0% |"


@pytest.mark.long
def test_auto_trains_so_many_steps(bench: Bench) -> None:
    sizes = {"d_model": 16, "num_heads": 2, "num_blocks": 1, "context_length": 16}
    config = validate({"model": sizes, "tokenizer": {"kind": "char"}}, "x")
    result = auto.trained(config, "a.txt", 4)
    assert result["steps"] == 4
    assert 0 < result["bits_per_byte"] < 10
    assert 0 < auto.times_reference(config, 50, rounds=2) < 1


@pytest.mark.long
def test_corpus(bench: Bench) -> None:
    cache = os.environ["XDG_CACHE_HOME"]
    sizes = "--megabytes 0.1 --large 2.5 --files 3"  # the ids of 2.5 MB go to the cache, from which batches are read
    rows = json.loads(bench(f"corpus {sizes} --rounds 1 --config smoke --data a.txt --json")[-1])["rows"]
    ratios = {(row["work"], row["form"]): row["ratio"] for row in rows}
    figures = {(row["work"], row["form"]): row["figure"] for row in rows}
    before = "whole text in memory"
    assert ratios["one pass", "gpt"] == pytest.approx(figures["one pass", "gpt"] / figures["one pass", before])
    assert figures["peak memory", "imports alone"] < figures["peak memory", "gpt, 2.5 MB"]
    assert (os.listdir(), os.environ["XDG_CACHE_HOME"]) == (["a.txt"], cache)


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


@pytest.mark.long
def test_cuda_reports_what_fails_and_tries_it_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "COMMAND", (sys.executable, "-S", "-c", ANSWERING))
    for _ in range(2):
        lines = bench("cuda --device cpu --data a.txt --budget 5 --only roof --only memory --only training")
        assert "memory failed: RuntimeError: too small" in lines
        assert lines[-1] == "failed: memory, training; the same command tries them again"
    assert Path("calls").read_text().split() == ["roof", "memory", "training", "memory", "training"]
    parts = json.loads(Path("bench-cuda.json").read_text())["parts"]
    assert parts["roof"]["figures"] == [{"what": "of roof", "value": 1234.56, "unit": "m"}]


@pytest.mark.long
def test_cuda_on_a_cpu(bench: Bench) -> None:
    lines = bench("cuda --device cpu --data a.txt --budget 3600")
    assert lines[-1] == "all parts are done"
    equal = [line.split("  ")[0] for line in lines if line.endswith("equal bits")]
    assert equal == [f"smoke, {way}" for way in ("the same again", "without a graph", "by two processes")]


def test_heads(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "VOCAB_SIZE", 50)
    rows = json.loads(bench("heads --config smoke --tokens 128 --cpu-time --all")[-1])["rows"]
    assert len(rows) == 6
    for row in rows:
        assert row["ratio"] == pytest.approx(row["seconds"] / row["evaluation"])


def test_learning_gives_fewer_steps_to_a_try_that_costs_more(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[tuple[int, int]] = []

    def train(config: Any, source: str, steps: int) -> dict[str, Any]:
        trained.append((config.train.seed, steps))
        return {"bits_per_byte": 2.0, "steps": steps}

    monkeypatch.setattr(learning, "trained", train)
    monkeypatch.setattr(learning, "times_reference", lambda *_: 0.5)
    monkeypatch.setattr(learning, "cost_ratio", lambda *_, **__: 1.25)
    command = "learning --data a.txt --config smoke --seconds 3 --seeds 2 --try model.qk_norm=true"
    for _ in range(2):  # the second call has nothing left to train
        assert "+0.00% ± 0.00%" in bench(command)[-1]
    assert trained == [(0, 100), (1, 100), (0, 80), (1, 80)]
    with pytest.raises(SystemExit, match=r"model\.qk"):
        bench("learning --data a.txt --try model.qk=1")


def test_llama_cpp(bench: Bench) -> None:
    pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")
    assert json.loads(bench("llama_cpp --config smoke --rounds 1 --tokens 3 --json")[-1])


def test_patching(bench: Bench) -> None:
    means = json.loads(bench("patching --config smoke --pairs 1 --tokens 4 --cpu-time")[-1])
    assert min(means[name] for name in ("heads", "all parts", "estimates of all parts")) > 0


@pytest.mark.long
def test_processes(bench: Bench) -> None:
    lines = bench("processes --config smoke --rounds 1")
    works = ["gpt train", "gpt train", "DistributedDataParallel", "exchange", "all_reduce"]
    assert [line.split("  ")[0] for line in lines[3:8]] == works
    with pytest.raises(SystemExit, match="4 processes cannot share a batch of 6 sequences evenly"):
        bench("processes --processes 4 --config smoke --set train.batch_size=6")


def test_products(bench: Bench) -> None:
    products = json.loads(bench("products --config smoke --rounds 1 --json")[-1])["products"]
    assert all(each["ratio"] == 1 for each in products if each["form"] == "F.linear")
    for dtype in ("float32", "bfloat16"):  # one form is chosen for each product, for one row and for many
        assert sum(each["share_chosen"] for each in products if each["dtype"] == dtype) == pytest.approx(2)


def test_refusals(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    clean = refusals.Cost(0, False, 0.0, 0.0, 0)
    monkeypatch.setattr(refusals, "clean_commands", lambda _: {False: clean, True: clean})
    monkeypatch.setattr(refusals, "cases", hostile.configs)
    (row,) = json.loads(bench("refusals --only '1 GB' --json")[-1])["rows"]
    assert (row["code"], row["size"]) == (2, 10**9 + len("configchecka.yaml"))
    assert 0 < row["memory"] < 200e6  # of all that is imported
    assert os.listdir() == ["a.txt"]


@pytest.mark.long
def test_shakespeare(bench: Bench) -> None:
    lines = bench("shakespeare --config smoke --data a.txt --seeds 1 --steps 2")
    figures = json.loads(lines[-1])
    assert lines[-2] == f"ratio {figures['plain_seconds'] / figures['seconds']:.1f}"


@pytest.mark.long
def test_the_plain_trainer_learns() -> None:
    torch.manual_seed(0)
    trainer = shakespeare.PlainTrainer(CORPUS_TEXT)
    losses = [trainer.step() for _ in range(20)]
    assert losses[-1] < losses[0] - 0.5


def test_texts() -> None:
    assert texts.up_to(5, [b"abc", b"def", b"g"]) == b"abc"  # the first that is too large, and what follows, stay out
    content = "\x1b[32m《月》\x1b[m\n明月\n%\n\x1b[32m《春》\x1b[m\n花\n%\n".encode()
    assert texts.fortunes(content) == "《月》\n明月\n\n《春》\n花\n\n"
