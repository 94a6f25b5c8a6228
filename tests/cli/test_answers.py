"""A model that has learned a few answers by heart, asked for them in every way."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.helpers import RunCommand, run_command

import gpt_cli
from gpt_cli.checkpoints.load import load
from gpt_cli.cli import sample
from gpt_cli.cli.console import Console
from gpt_cli.common.host import NOBODY, ignored
from gpt_cli.config.request import read_request
from gpt_cli.errors import DataError
from gpt_cli.evaluation.texts import read_named_text
from gpt_cli.sampling.request import SampleRequest
from gpt_cli.text.conversations import Turn
from gpt_cli.tools.interpret.text_windows import ids_of

ANSWERS = {"a": "one", "b": "two", "c": "three", "d": "four", "e": "five", "f": "six"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that has learned ANSWERS by heart."""
    folder = tmp_path_factory.mktemp("answers")
    pairs = [{"prompt": ask, "response": say, "choices": list(ANSWERS.values())} for ask, say in ANSWERS.items()]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    settings = "tokenizer.kind=char data.validation_source=pairs.jsonl model.dropout=0 train.sample_every=null"
    flags = [part for setting in settings.split() for part in ("--set", setting)]
    with contextlib.chdir(folder):
        run_command("train", "--config", "smoke", "--data", "pairs.jsonl", "--max-steps", "60", *flags, exits=0)
    return folder


@pytest.fixture(autouse=True)
def _there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def test_a_question_is_answered_up_to_the_end_of_the_turn(run: RunCommand) -> None:
    for ask in "ae":
        assert run("sample", "--chat", "--prompt", ask, "--greedy", exits=0).out == f"{ANSWERS[ask]}\n"
    assert gpt_cli.sample("b", chat=True, greedy=True).samples[0].text == "two"


def test_conversations_of_a_file_are_answered(run: RunCommand, tmp_path: Path) -> None:
    turns = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "c"},
    ]
    (tmp_path / "one.json").write_text(json.dumps(turns))
    found = json.loads(run("sample", "--messages", tmp_path / "one.json", "--json", "--greedy").out)
    assert (found["prompt"], len(found["samples"])) == ("c", 1)
    (tmp_path / "more.jsonl").write_text('{"prompt": "d"}\n{"prompt": "f"}\n')
    assert run("sample", "--messages", tmp_path / "more.jsonl", "--greedy").out == "four\n---\nsix\n"
    (tmp_path / "bad.jsonl").write_text('{"prompt": "d"}\n{"prompt": "é"}\n')
    wrong = run("sample", "--messages", tmp_path / "bad.jsonl", "--greedy", exits=3)
    assert 'bad.jsonl": this model knows' in wrong.err
    (tmp_path / "bad.jsonl").write_bytes(b"\xff")
    run("sample", "--messages", tmp_path / "bad.jsonl", exits=3)
    both = run("sample", "--messages", tmp_path / "one.json", "--prompt", "a", exits=2)
    assert "--prompt and --messages cannot be combined" in both.err


def test_a_talk_keeps_as_many_turns_as_the_window_holds(capsys: pytest.CaptureFixture[str]) -> None:
    """A window of 32: a turn of `a` takes 2 tokens, the answer with its end 4, and a long answer may have 16."""
    request = read_request(SampleRequest, {"chat": True, "greedy": True, "run": Path("runs/smoke")})
    console = Console()
    turns = list[Turn]()
    talk: Callable[[str, SampleRequest], object] = sample._open(request, console, console.host(), turns)
    for _ in range(5):
        talk("a", request)
    assert "the model no longer sees the first 2 messages" in capsys.readouterr().err
    talk("", request)
    sample._open(request, console, console.host(), turns)("e", request)  # as after /without and /checkpoint
    assert [turn.content for turn in turns] == ["e", "five"]
    found = capsys.readouterr()
    assert (found.out.splitlines()[-1], "no longer" in found.err) == ("five", False)
    with pytest.raises(DataError, match="in the template, but this model sees 32"):
        talk("abc" * 11, request)


def test_a_model_of_texts_says_that_it_has_learned_no_answers(run: RunCommand, smoke_run: Path) -> None:
    ended = run("sample", "--run", smoke_run, "--chat", "--prompt", "What?", "--max-new-tokens", "3")
    assert (ended.code, "this model was not trained to answer" in ended.err) == (0, True)


def test_answers_are_measured_with_their_errors(run: RunCommand, tmp_path: Path) -> None:
    own = json.loads(run("eval", "--json").out)["runs"][0]
    assert own["answers"]["exact_match"] == {"share": 1.0, "error": 0.0, "examples": 6}
    assert own["answers"]["choices"] == {"share": 1.0, "error": 0.0, "examples": 6}
    assert own["loss"] == pytest.approx(json.loads(Path("runs/smoke/outcome.json").read_text())["validation_loss"])
    # four right ones of six, and choices of which the learned answer is wrong in two
    lines = [json.loads(line) for line in Path("pairs.jsonl").read_text().splitlines()]
    lines[0]["response"], lines[1]["response"] = "two", "one"
    (tmp_path / "wrong.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ended = run("eval", "--data", tmp_path / "wrong.jsonl", "--run", "runs/smoke", "--run", "runs/smoke", exits=0)
    # sqrt(2/3 * 1/3 / 5) = 0.2108
    assert "6 examples; exact answers 0.6667 ± 0.2108 of 6; right choices 0.6667 ± 0.2108 of 6" in ended.out
    assert "runs/smoke - runs/smoke: +0.0000 ± 0.0000 nats/token" in ended.out
    (tmp_path / "long.jsonl").write_text(json.dumps({"prompt": "a" * 40, "response": "one"}) + "\n")
    run("eval", "--data", tmp_path / "long.jsonl", exits=3)
    for flag in ("--per-token", "--memorised"):
        assert (
            f"error: {flag}: it needs text other than questions and answers"
            in run("eval", "--data", "pairs.jsonl", flag, exits=2).err
        )


def test_reports_that_read_questions_too_say_so(run: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpt_cli.tools.interpret.lens.tuned_lens.MOST_STEPS", 5)
    said = "runs/smoke was trained on answers alone; gpt eval counts only answers, but these losses count all tokens"
    for words in (["lens"], ["heads", "--ablate", "layer"], ["compare", "runs/smoke", "runs/smoke"]):
        for data in ((), ("--data", "pairs.jsonl")):
            assert said in run(*words, *data, "--max-tokens", "64", exits=0).err.splitlines()
    run("lens", "--tuned", "--data", "pairs.jsonl", exits=0)


def test_reports_read_conversations_in_the_template_of_the_model() -> None:
    """With the end of text after each answer, also within a conversation, as in training."""
    turns = [{"role": role, "content": text} for role, text in (("user", "a"), ("assistant", "one")) * 2]
    Path("two.jsonl").write_text(json.dumps({"messages": turns}) + "\n")
    loaded = load(Path("runs/smoke/checkpoints/best.safetensors"), None, ignored)
    corpus = read_named_text(["two.jsonl"], loaded.config.data, NOBODY).with_template(None)
    end = loaded.tokenizer.decode([loaded.tokenizer.end_of_text])
    assert loaded.tokenizer.decode([*map(int, ids_of(corpus, loaded, NOBODY)[:])]) == f"a\none{end}a\none{end}"


def test_a_single_question_is_refused_and_not_called_a_document(run: RunCommand) -> None:
    Path("one.jsonl").write_text('{"prompt": "a", "response": "one"}\n')
    ended = run("train", "--config", "smoke", "--data", "one.jsonl", "--out", "runs/one", exits=3)
    assert "error: corpus: it has one question with its answer, but gpt needs at least 2" in ended.err
    assert "document" not in ended.err
