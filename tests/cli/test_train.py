import contextlib
import io
import json
import os
import re
import shlex
import sys
import time
import warnings
from contextlib import closing
from pathlib import Path

import pytest
import torch
from support.helpers import CORPUS_TEXT, RunCommand

import gpt_cli
from gpt_cli.__main__ import run as main
from gpt_cli.config.load import read_config
from gpt_cli.model.costs import estimate
from gpt_cli.training.events import Saved

pytestmark = pytest.mark.slow

FAST = shlex.split("--config smoke --set tokenizer.kind=byte --set train.sample_every=null --data corpus.txt")


@pytest.fixture
def corpus(here: Path) -> Path:
    (here / "corpus.txt").write_text(CORPUS_TEXT)
    return here


def test_before_the_first_step_a_run_says_what_it_will_take(corpus: Path, run: RunCommand) -> None:
    outcome = run("train", *FAST, exits=0)
    for start in (
        "device      cpu, float32, 1 thread, torch ",
        "parameters  ",
        "corpus      1 document, ",
        "tokenizer   byte, ",
        "estimate    ",
    ):
        assert any(line.startswith(start) for line in outcome.err.splitlines()), start
    assert " training tokens, " in outcome.err
    assert "step 10: validation loss" in outcome.err
    assert "bits/byte" in outcome.err
    assert "tokens/s" in outcome.err
    assert outcome.out.startswith("runs/smoke: 20 steps in ")
    assert outcome.out.endswith(" bits/byte with the best weights, those of step 20\n")
    assert "epochs, and the closing evaluation" in outcome.err


def test_advice_comes_before_while_and_after_a_training_and_changes_nothing(corpus: Path, run: RunCommand) -> None:
    """A learning rate of 10, where 0.02 is usual; ln 257 = 5.55."""
    settings = ["--set", "train.learning_rate=10", "--set", "train.log_every=1", "--json"]
    told, quiet = (run("train", *FAST, *settings, "--out", out, *words) for out, *words in (["a"], ["b", "--quiet"]))
    assert (told.code, quiet.code, quiet.err) == (0, 0, "")
    lines = told.err.splitlines()
    before, during, after = [line for line in lines if line.startswith("advice: ")]
    rate = "try --set train.learning_rate=0.02"
    assert before == f"advice: a learning rate of 10 is 500 times what is usual at a width of 32; {rate}"
    assert re.fullmatch(rf"advice: step \d: the loss has risen to \S+, while guessing gives 5.55: .*; {rate}", during)
    assert re.fullmatch(
        rf"advice: the model is worse than guessing: its loss is \S+, while guessing gives 5.55; {rate}", after
    )
    assert lines.index(before) < lines.index(during) < len(lines) - 1 == lines.index(after)
    figures = [json.loads(outcome.out) for outcome in (told, quiet)]  # alone on stdout
    assert (figures[1]["run"], figures[1]["steps"], figures[1]["tokens"]) == ("b", 20, 20 * 8 * 32)
    assert [figures[1][key] for key in ("device", "dtype", "stopped_by")] == ["cpu", "float32", "steps"]
    assert figures[0]["loss"] == figures[1]["loss"]
    assert figures[0]["validation_loss"] == figures[1]["validation_loss"]
    # a run that continues has heard what its curve shows, and says only what it would end with
    longer = run("train", "--out", "a", "--resume", "--max-steps", "24").err.splitlines()
    assert [line.split(";")[0].split(" is ")[0] for line in longer if line.startswith("advice")] == [
        "advice: the model"
    ]


def test_by_the_clock_a_run_ends_in_time_and_continues_from_there(corpus: Path, run: RunCommand) -> None:
    settings = ("log_every=1", "warmup_steps=1", "eval_every=100000", "save_every=100000")
    more = ["--json", "--out", "runs/x", *(word for text in settings for word in ("--set", f"train.{text}"))]
    started = time.monotonic()
    outcome = run("train", *FAST, *more, "--max-time", "0.2s")
    passed = time.monotonic() - started
    summary = json.loads(outcome.out)
    assert summary["stopped_by"] == "time"
    assert summary["seconds"] < passed
    lines = [json.loads(line) for line in Path("runs/x/metrics.jsonl").read_text().splitlines()]
    rates = [line["learning_rate"] for line in lines]
    assert rates == sorted(rates, reverse=True)
    assert summary["validation_loss"] is not None
    # a run that has no time left ends where it is; with more time it goes on
    assert json.loads(run("train", "--out", "runs/x", "--resume", "--json").out)["steps"] == summary["steps"]
    longer = json.loads(run("train", "--out", "runs/x", "--resume", "--max-time", f"{passed + 0.1:.3f}", "--json").out)
    assert longer["steps"] > summary["steps"]
    assert longer["seconds"] > summary["seconds"]
    by_steps = run("train", "--out", "runs/x", "--resume", "--max-steps", str(longer["steps"] + 2), "--json")
    assert (json.loads(by_steps.out)["steps"], json.loads(by_steps.out)["stopped_by"]) == (longer["steps"] + 2, "steps")


def test_a_time_far_away_changes_no_bit_also_of_a_run_that_is_resumed(corpus: Path, run: RunCommand) -> None:
    def losses(out: str) -> list[float]:
        return [json.loads(line)["loss"] for line in Path(out, "metrics.jsonl").read_text().splitlines()]

    settings = ["tokenizer.kind=byte", "train.sample_every=null", "train.log_every=1", "train.save_every=4"]
    training = {"config": "smoke", "data": "corpus.txt", "settings": settings, "max_steps": 8}
    *_, _ = gpt_cli.train(out="steps", **training)
    with closing(gpt_cli.train(out="both", max_time="9h", **training)) as reports:
        assert any(isinstance(report, Saved) for report in reports)  # and leaves the run there, at step 4
    assert len(losses("both")) == 4
    ended = json.loads(run("train", "--out", "both", "--resume", "--json").out.splitlines()[-1])
    assert (ended["steps"], ended["stopped_by"]) == (8, "steps")
    assert losses("both") == losses("steps")


def test_the_bar_counts_what_is_likely_to_end_the_run(
    corpus: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpt_cli.cli.train_output.LEAST_SECONDS", 0.0)
    assert "step 8/8: loss " in run("train", *FAST, "--max-steps", "8", "--max-time", "9h").err
    by_clock = run("train", *FAST, "--max-steps", "99999", "--max-time", "0.05s", "--overwrite").err
    assert "/99,999" not in by_clock


def test_a_failed_compilation_is_reported_with_a_hint(
    corpus: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = type("CppCompileError", (RuntimeError,), {"__module__": "torch._inductor.exc"})

    def fail(session: object) -> float:
        raise failure("C++ compile error\n\nCommand: ...")

    monkeypatch.setattr("gpt_cli.model.gpt.GPT.compile_blocks", lambda model: model)
    monkeypatch.setattr("gpt_cli.training.step_time.time_step", fail)
    assert run("train", *FAST, "--compile", "on", exits=5).err.splitlines()[-2:] == [
        'error: train.compile: torch cannot compile here, "C++ compile error"; use off',
        "hint: --compile off",
    ]
    assert not Path("runs/smoke/checkpoints").exists()


def test_where_auto_cannot_compile_the_run_trains_without(
    corpus: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = type("TritonMissing", (RuntimeError,), {"__module__": "torch._inductor.exc"})

    def fail(*_: object) -> None:
        raise failure("no working compiler")

    short = [*FAST, "--json", "--max-steps", "2"]
    plain = json.loads(run("train", *short, "--out", "runs/plain").out)
    monkeypatch.setattr("gpt_cli.training.setup.choose_compile", lambda *_, **__: "on")  # as on a GPU
    monkeypatch.setattr("torch.compile", lambda _, **options: fail)
    outcome = run("train", *short)
    assert "compil" not in outcome.err  # nor does it try, for a training that is soon over
    assert "compile: 'off'" in Path("runs/smoke/config.yaml").read_text()
    monkeypatch.setattr("gpt_cli.training.step_time.COMPILE_FROM_SECONDS", 0)
    outcome = run("train", *short, "--overwrite")
    assert outcome.err.count("compiling, which may take half a minute") == 1
    assert 'warning: torch cannot compile here, "no working compiler"; training uncompiled' in outcome.err.splitlines()
    assert json.loads(outcome.out)["loss"] == plain["loss"]
    assert "compile: 'off'" in Path("runs/smoke/config.yaml").read_text()


def test_a_run_whose_plain_step_does_not_fit_is_compiled(
    corpus: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled blocks need less memory of a GPU."""
    seconds = iter([torch.OutOfMemoryError("sim out of memory"), 0.1])

    def timed(_: object) -> float:
        if isinstance(found := next(seconds), Exception):
            raise found
        return found

    monkeypatch.setattr("gpt_cli.training.setup.choose_compile", lambda *_, **__: "on")  # as on a GPU
    monkeypatch.setattr("torch.compile", lambda block, **_: block)
    monkeypatch.setattr("gpt_cli.training.step_time.time_step", timed)
    assert run("train", *FAST, "--max-steps", "1", exits=0).err.count("compiling, which may take half a minute") == 1
    assert "compile: 'on'" in Path("runs/smoke/config.yaml").read_text()


def test_float32_stays_float32_without_advice_from_the_compiler(
    corpus: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiling(_: object) -> float:
        warnings.warn("TensorFloat32 tensor cores for float32 matrix multiplication available", stacklevel=1)
        return 0.1

    monkeypatch.setattr("gpt_cli.training.step_time.time_step", compiling)
    with warnings.catch_warnings(action="error"):
        run("train", *FAST, "--max-steps", "1", exits=0)


def test_an_existing_run_is_refused_resumed_or_replaced(corpus: Path, run: RunCommand) -> None:
    assert run("train", *FAST, "--overwrite", "--max-steps", "5").code == 0  # fine on a new directory
    assert run("train", *FAST, exits=2).err.splitlines() == [
        'error: "runs/smoke": there is a run already; continue it with --resume or replace it with --overwrite',
        "hint: gpt train --out runs/smoke --resume",
    ]
    mistyped = run("train", *FAST[:-1], "corpus.tx", exits=3)  # the first mistake to mend
    assert mistyped.err.splitlines()[0] == 'error: "corpus.tx": there is no such file'
    Path("other text.txt").write_text(CORPUS_TEXT)
    other = run("train", *FAST[:-1], "other text.txt")
    assert other.err.splitlines()[-1] == "hint: --out 'runs/other text' trains another run beside it"
    longer = run("train", "--out", "runs/smoke", "--resume", "--max_steps", "10", exits=0)
    assert "resuming runs/smoke at step 5" in longer.err
    steps = [json.loads(line)["step"] for line in Path("runs/smoke/metrics.jsonl").read_text().splitlines()]
    assert steps == [5, 10]
    run("train", *FAST, "--overwrite", "--max-steps", "5", exits=0)
    assert sorted(os.listdir("runs/smoke/checkpoints")) == ["best.safetensors", "step-00000005.safetensors"]


def test_files_that_no_run_wrote_are_never_removed(corpus: Path, run: RunCommand) -> None:
    (corpus / "samples.txt").write_text(CORPUS_TEXT)
    for flags in ([], ["--overwrite"]):
        assert run("train", *FAST, "--out", ".", *flags, exits=2).err.splitlines()[0] == (
            'error: ".": it contains samples.txt, which no run wrote; move it elsewhere, or name another directory with --out'
        )
    assert (corpus / "samples.txt").read_text() == CORPUS_TEXT
    (corpus / "mail/logs/outbox").mkdir(parents=True)
    (corpus / "mail/logs/outbox/sent.jsonl").write_text("mine")
    run("train", *FAST, "--out", "mail", exits=2)
    assert (corpus / "mail/logs/outbox/sent.jsonl").read_text() == "mine"


def test_a_training_too_large_for_memory_is_refused_before_the_text_is_read(corpus: Path, run: RunCommand) -> None:
    large = ["--set", "model.num_blocks=1024", "--set", "model.d_model=4096", "--data", "nowhere.txt"]
    outcome = run("train", *FAST, *large, exits=5)
    error, hint = outcome.err.splitlines()[-2:]
    assert error.startswith("error: memory: the model and 8 sequences of its batch take at least ")
    assert hint.startswith("hint: --set model.d_model=")
    run("train", *FAST, *large, *hint.removeprefix("hint: ").split(), exits=3)  # it fits, and the text is missed
    tables = ["--set", "model.ngram_embedding=8", "--set", "model.ngram_rows=2147483647", "--data", "nowhere.txt"]
    assert "take at least " in run("train", *FAST, *tables, exits=5).err
    assert not Path("runs").exists()


def test_a_batch_too_large_for_memory_is_refused_with_a_part_that_fits(
    corpus: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = [*FAST, "--quiet", "--max-steps", "1"]
    sizes = read_config("smoke").model
    of_four = estimate(sizes, 257, micro_batch_size=4, dtype="float32").training_bytes * 4 // 5
    for free, fitting in ((of_four - 1, 2), (of_four, 4)):
        monkeypatch.setattr("gpt_cli.training.setup.available_memory", lambda free=free: free)
        assert run("train", *settings, exits=5).err.splitlines()[1] == f"hint: --set train.micro_batch_size={fitting}"
    run("train", *settings, "--set", "train.micro_batch_size=4", exits=0)
    # a run keeps its width
    monkeypatch.setattr("gpt_cli.training.setup.available_memory", lambda: 1)
    refused = run("train", "--out", "runs/smoke", "--resume", "--max-steps", "2")
    assert refused.err.endswith("\nhint: close other programs, or continue on a machine with more memory\n")


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        pytest.param("The one, two, three\n" * 100, "The", marks=pytest.mark.long),
        ("one two\n" * 200, "one"),
        ("道可道，非常道。\n" * 100, "'道可道'"),
        pytest.param("…\n" * 500, "'…'", marks=pytest.mark.long),
    ],
    ids=["English", "without capitals", "Chinese", "no words"],
)
def test_the_suggested_next_command_works(here: Path, run: RunCommand, text: str, prompt: str) -> None:
    (here / "text.txt").write_text(text)
    options = ["--config", "smoke", "--data", "text.txt", "--set", "tokenizer.kind=char", "--max-steps", "1"]
    line = run("train", *options, "--set", "train.sample_every=null", "--out", "a b").err.splitlines()[-1]
    assert line == f"next: gpt sample --run 'a b' --prompt {prompt}"
    assert run(*shlex.split(line)[2:], "--max-new-tokens", "2").code == 0


def train_into(stdout: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """The exit code of a training in this process that writes to a descriptor, and its stderr."""
    stream, err = os.fdopen(stdout, "w"), io.StringIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        patch.setattr(sys, "stderr", err)
        code = main(["train", *FAST, "--max-steps", "5", "--json", "--quiet"])
    with contextlib.suppress(OSError):  # of a full device
        stream.close()
    return code, err.getvalue()


@pytest.mark.usefixtures("drawing")
def test_a_reader_that_closes_stdout_does_not_stop_a_training(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert train_into(writer, monkeypatch) == (141, "")
    assert json.loads(Path("runs/smoke/metrics.jsonl").read_text().splitlines()[-1])["step"] == 5
    assert Path("runs/smoke/checkpoints/step-00000005.safetensors").exists()
    assert Path("runs/smoke/loss.png").exists()


def test_a_full_device_as_stdout_is_reported(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    said = "error: output: there is no space left on the filesystem\n"
    assert train_into(full, monkeypatch) == (5, said)


def test_threads_are_a_setting_that_a_run_keeps(corpus: Path, run: RunCommand) -> None:
    first = run("train", *FAST, "--threads", "2", "--max-steps", "2")
    assert "device      cpu, float32, 2 threads, " in first.err, first.err
    assert torch.get_num_threads() == 1
    resume = ["train", "--out", "runs/smoke", "--resume", "--max-steps"]
    again = run(*resume, "3")
    assert "2 threads, " in again.err
    assert "not bit-exact" not in again.err
    warned = run(*resume, "4", "--threads", "1")
    assert "warning: not bit-exact from here on: threads 2 -> 1" in warned.err.splitlines()


def test_a_single_document_gets_a_notice(corpus: Path, run: RunCommand) -> None:
    notice = "corpus.txt counts as one document; if it holds several (poems, letters, names), say what separates them: "
    (corpus / "corpus.txt").write_text(f"{CORPUS_TEXT}\n\nThe end.")
    assert notice in run("train", *FAST, "--max-steps", "1").err
    continued = run("train", "--out", "runs/smoke", "--resume", "--max-steps", "2", exits=0)
    assert "counts as one document" not in continued.err, "what separates documents may not change any more"
    (corpus / "another.txt").write_text(CORPUS_TEXT)
    assert notice not in run("train", *FAST, "--max-steps", "1", "--data", "another.txt", "--out", "runs/b").err


@pytest.mark.parametrize(
    ("text", "separator", "said"),
    [
        ("A first poem.\n\nA second one.\n" * 30, "null", "say what separates them: --set data.separator='\\n\\n'"),
        ("A first poem.\r\n\r\nA second.\r\n" * 30, "null", "them: --set data.separator='\\r\\n\\r\\n'"),
        ("Emma\nOlivia\nAva\nIsabella\n" * 30, "null", "say what separates them: --set data.separator='\\n'"),
        ("date,price\n2024-01-01,5\n" * 30, "null", ""),
        ("One line that is long, as of a novel without any paragraph.\n" * 30, "null", ""),
        ("One.<|endoftext|>Two.\n" * 30, "'<|endoftext|>'", "data.separator \"'<|endoftext|>'\" separates nothing"),
    ],
)
def test_a_separator_is_proposed_that_the_text_has(
    corpus: Path, run: RunCommand, text: str, separator: str, said: str
) -> None:
    (corpus / "corpus.txt").write_bytes(text.encode())
    outcome = run("train", *FAST, "--set", f"data.separator={separator}", "--dry-run", exits=0)
    assert (said in outcome.err, "one document" in outcome.err) == (True, bool(said))
