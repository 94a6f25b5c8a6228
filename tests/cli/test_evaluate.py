import contextlib
import gzip
import json
import math
import os
import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.corpora import read_corpus
from support.exchange import sharp_checkpoint
from support.helpers import RunCommand, run_command
from support.light import WithoutTorch

import gpt_cli
from gpt_cli.checkpoints.checkpoint import save_checkpoint
from gpt_cli.checkpoints.load import load
from gpt_cli.common.host import ignored
from gpt_cli.config import ModelConfig
from gpt_cli.evaluation.nll import scoring_bytes, surprisals, windows_at_once
from gpt_cli.evaluation.texts import _share_of_files
from gpt_cli.evaluation.token_losses import Surprisals
from gpt_cli.model import GPT
from gpt_cli.sampling.head_ablation import remove_heads
from gpt_cli.text.tokenizers import ByteTokenizer, CharTokenizer

pytestmark = pytest.mark.slow


def test_without_data_it_is_the_closing_loss_of_the_training(copied: Path, run: RunCommand) -> None:
    closing = json.loads(run("train", "--out", copied, "--resume", "--json", "--quiet").out)
    outcome = run("eval", "--json", "--dtype", "float32")
    (found,) = json.loads(outcome.out)["runs"]
    assert found["run"] == str(copied)
    assert found["loss"] == pytest.approx(closing["validation_loss"], abs=2e-3)
    assert found["bits_per_byte"] == pytest.approx(closing["bits_per_byte"], abs=2e-3)
    assert found["loss_error"] == pytest.approx(closing["validation_loss_error"], rel=1e-3)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))


def test_several_runs_make_one_table(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The value of the expression is the value of its operands.\n" * 5)
    steps = [smoke_run / "checkpoints" / f"step-{step:08}.safetensors" for step in (10, 20)]
    outcome = run("eval", "--run", steps[0], "--run", steps[1], "--data", tmp_path / "a.txt", exits=0)
    head, first, second, difference = outcome.out.splitlines()
    assert head.split() == ["run", "step", "tokens", "nats/token", "perplexity", "bits/byte"]
    assert (first.split()[1], second.split()[1]) == ("10", "20")
    assert float(first.split()[3]) > float(second.split()[3])
    less = float(second.split()[3]) - float(first.split()[3])
    assert re.fullmatch(rf"{steps[1]} - {steps[0]}: (-\d\.\d{{4}}) ± \d\.\d{{4}} nats/token", difference)
    assert float(difference.split(": ")[1].split()[0]) == pytest.approx(less, abs=2e-4)


def _per_token(run: RunCommand, path: Path, text: Path) -> list[dict[str, Any]]:
    """Each token that a run predicts of a text, as `gpt eval` shows it."""
    (found,) = json.loads(run("eval", "--run", path, "--data", text, "--per-token", "--json").out)["runs"]
    return found["per_token"]


def _error_of_ratios(*runs: list[tuple[float, int]]) -> float:
    """The standard error of nats for each amount in windows of (nats, amount); of two runs, of their difference."""
    totals = [(sum(nats for nats, _ in windows), sum(amount for _, amount in windows)) for windows in runs]
    moved = [
        [(nats - total / amounts * amount) / amounts for nats, amount in windows]
        for windows, (total, amounts) in zip(runs, totals, strict=True)
    ]
    of_windows = [one[0] - (one[1] if len(one) > 1 else 0) for one in zip(*moved, strict=True)]
    return math.sqrt(len(of_windows) / (len(of_windows) - 1) * sum(one**2 for one in of_windows))


def test_errors_of_losses_and_of_their_difference_are_those_of_windows(
    smoke_run: Path, run: RunCommand, tmp_path: Path
) -> None:
    """Recomputed from the surprisal of each token: 32 of them are a window."""
    text = tmp_path / "a.txt"
    text.write_text("".join(f"{number} is followed by {number + 1}.\n" for number in range(60)))
    paths = [smoke_run / "checkpoints" / f"step-{step:08}.safetensors" for step in (10, 20)]
    found = json.loads(run("eval", "--run", paths[0], "--run", paths[1], "--data", text, "--json").out)["runs"]
    windows = []
    for path in paths:
        nats = [token["nats"] for token in _per_token(run, path, text)]
        windows.append([(sum(part), len(part)) for at in range(0, len(nats), 32) if (part := nats[at : at + 32])])
    assert len(windows[0]) > 10
    assert [one["loss_error"] for one in found] == pytest.approx([_error_of_ratios(one) for one in windows])
    difference = found[1]["difference"]
    assert difference["error"] == pytest.approx(_error_of_ratios(windows[1], windows[0]))
    assert difference["error"] < found[0]["loss_error"]
    assert difference["value"] == found[1]["loss"] - found[0]["loss"]
    assert (difference["from"], difference["unit"]) == (str(paths[0]), "nats/token")
    assert "difference" not in found[0]


def test_runs_of_different_tokenizers_are_compared_by_bytes(own_runs: Path, trained: Path, run: RunCommand) -> None:
    """Recomputed in stretches of 128 bytes, 4 for each of the 32 tokens that both models see."""
    text = Path("mixed.txt")
    text.write_text("".join(f"{number} is 今 and {number + 1} follows.\n" for number in range(60)))
    paths = [trained / "runs/smoke", Path("runs/a")]
    found = json.loads(run("eval", "--run", paths[0], "--run", paths[1], "--data", text, "--json").out)["runs"]
    stretches, num_bytes = [], len(text.read_bytes())
    for path in paths:
        loaded, tokens = load(path), _per_token(run, path, text)
        lengths = [len(loaded.tokenizer.token_bytes[token["token"]]) for token in tokens]
        at, sums = num_bytes - sum(lengths), [[0.0, 0] for _ in range(-(-num_bytes // 128))]
        for token, length in zip(tokens, lengths, strict=True):
            sums[at // 128][0] += token["nats"] / math.log(2)
            sums[at // 128][1] += length
            at += length
        stretches.append([(bits, length) for bits, length in sums])
    assert found[0]["num_tokens"] < found[1]["num_tokens"]
    difference = found[1]["difference"]
    assert difference["error"] == pytest.approx(_error_of_ratios(stretches[1], stretches[0]))
    assert difference["value"] == found[1]["bits_per_byte"] - found[0]["bits_per_byte"]
    assert difference["unit"] == "bits/byte"


def test_more_context_and_int8_change_the_loss(smoke_run: Path, run: RunCommand) -> None:
    def loss(*flags: str) -> float:
        text = b"The value of the expression is the value of its operands.\n" * 20
        return json.loads(run("eval", "--data", "-", "--json", *flags, stdin=text).out)["runs"][0]["loss"]

    whole = loss()
    assert loss("--stride", "8") != whole
    assert 0 < abs(loss("--quantize", "int8") - whole) < 0.01


def test_each_token_has_its_surprisal(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The value is 今.")
    options = ["--data", tmp_path / "a.txt", "--per-token"]
    (found,) = json.loads(run("eval", *options, "--json").out)["runs"]
    assert sum(token["nats"] for token in found["per_token"]) / found["num_tokens"] == pytest.approx(found["loss"])
    lines = run("eval", *options).out.splitlines()
    assert lines[0].split() == ["token", "nats"]
    assert lines[1].startswith(json.dumps(found["per_token"][0]["text"]))
    assert len(lines) == 1 + found["num_tokens"] + 2


def test_coloured_text_is_the_text_with_whole_characters() -> None:
    tokenizer = ByteTokenizer()
    nats = [0.5, 1.0, 1.0, 1.0, 0.0, 7.0]  # of b, the three bytes of the character, the end of the line, c
    shown = Surprisals(tokenizer, list("ab今\nc".encode()), nats).as_coloured_text()
    text, _, legend = shown.partition("\n\n")
    assert text == "ab\033[48;5;94m今\033[0m\n\033[48;5;124mc\033[0m"
    assert re.sub(r"\033\[[0-9;]*m", "", legend) == ("nats per token:  0 to 1   1 to 2   2 to 4   4 to 6   6 and more ")
    hidden = CharTokenizer("a\x7f\x9b\u202e")
    assert Surprisals(hidden, [0, 1, 2, 3], [1.0] * 3).as_table().isascii()
    cut = Surprisals(tokenizer, [*b"a\x1b", tokenizer.end_of_text, 0xE4], [0.0, 0.0, 9.0]).as_coloured_text()
    assert cut.startswith("a\\x1b<|endoftext|>\033[48;5;124m\N{REPLACEMENT CHARACTER}\033[0m\n\n")


def test_a_notebook_shows_the_text_on_the_same_grounds(smoke_run: Path, tmp_path: Path) -> None:
    page = Surprisals(ByteTokenizer(), list("a<今".encode()), [0.5, 1.0, 1.0, 1.0]).as_page("1 & 2")
    marked = re.findall(r'<span title="([0-9.]+)" style="background:rgb\(200 40 0/(\d+)%\)">(.*?)</span>', page)
    assert marked == [("0.000", "0", "a"), ("0.500", "0", "&lt;"), ("3.000", "30", "今")]
    assert "<pre>1 &amp; 2</pre>" in page
    assert "<script" not in page
    (tmp_path / "a.txt").write_text("The value is 今.")
    shown = gpt_cli.evaluate(tmp_path / "a.txt", run=[smoke_run], per_token=True)._repr_mimebundle_()
    assert "今" in str(shown["text/html"])
    assert gpt_cli.evaluate(tmp_path / "a.txt", run=[smoke_run]).as_page() is None


def test_samples_are_compared_with_the_training_text(smoke_run: Path) -> None:
    found = gpt_cli.evaluate(run=smoke_run, max_tokens=320, memorised=True, num_samples=3, max_new_tokens=30)
    memorised = found.runs[0]["memorised"]
    assert memorised["num_samples"] == 3
    assert memorised["longest_length"] == len(memorised["longest"]) > 0
    assert 0 <= memorised["copied_share"] < 0.5
    assert f"training text {memorised['longest_length']}: " in found.as_text()


@pytest.fixture(scope="module")
def _two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    with contextlib.chdir(folder):
        for name in ("a", "b"):
            Path(f"{name}.txt").write_text(f"{name} is {name} and no other letter.\n" * 60)
            flags = ["--set", "tokenizer.kind=byte", "--max-steps", "2", "--out", f"runs/{name}", "--quiet"]
            run_command("train", "--config", "smoke", "--data", f"{name}.txt", *flags, exits=0)
    return folder


@pytest.fixture
def own_runs(_two_runs: Path, here: Path) -> Path:
    """Two runs on two files, a.txt and b.txt, of the working folder."""
    shutil.copytree(_two_runs, here, dirs_exist_ok=True)
    return here


def test_a_changed_text_is_reported_in_a_warning_the_table_and_the_json(own_runs: Path, run: RunCommand) -> None:
    unchanged = run("eval", "--run", "runs/a")
    assert unchanged.err == ""
    assert unchanged.out.splitlines()[0].split()[-1] == "text"
    assert unchanged.out.splitlines()[1].split()[-1] == "a.txt"
    Path("a.txt").write_text("All of it is new.\n" * 60)
    changed = run("eval", "--run", "runs/a")
    sentence = "a.txt has changed since this run was trained on it, or an older gpt read it otherwise"
    assert changed.err == f"warning: runs/a: {sentence}\n"
    assert run("heads", "--run", "runs/a", "--quiet").err == changed.err
    assert changed.out.splitlines()[1].endswith("a.txt (changed)")
    (found,) = json.loads(run("eval", "--run", "runs/a", "--json").out)["runs"]
    assert (found["text"], found["same_text"]) == ("a.txt", False)


def test_a_text_that_a_model_learned_from_is_called_so(own_runs: Path, run: RunCommand) -> None:
    shutil.copy("a.txt", "copy.txt")
    Path("both").mkdir()
    for name in ("a", "b"):
        os.link(f"{name}.txt", f"both/{name}.txt")
    own = "gpt measures validation text"
    shares = {"a.txt": 0.9, "copy.txt": 0.9, "both": 0.45, "b.txt": 0}  # both are of equal length
    for source, share in shares.items():
        asked = ["--run", "runs/a", "--data", source]
        outcome = run("eval", *asked, "--json")
        assert json.loads(outcome.out)["runs"][0]["training_share"] == pytest.approx(share)
        line = f"runs/a trained on about {share:.0%} of this text, so the loss is too low; without --data, {own}"
        assert outcome.err == (f"{line}\n" if share else "")
    assert gpt_cli.lens(run="runs/a", data="both").training_share == pytest.approx(0.45)
    (first, second) = gpt_cli.compare(["runs/a", "runs/b"], data="a.txt").runs
    assert (first["training_share"], second["training_share"]) == (pytest.approx(0.9), 0)
    shutil.copytree("runs/a", "runs/again")
    for words in (["compare", "a", "again"], ["eval", "--run", "a", "--run", "again"]):
        heard = run(*words, "--data", "a.txt").err
        assert heard.count(own) == 1
        assert "runs/a, runs/again trained on about 90% of this text" in heard
    assert "training_share" not in gpt_cli.lens(run="runs/a").as_dict()
    os.rename("a.txt", "[甲]a.txt")  # no glob, though it looks like one
    loaded = load("runs/a", None, ignored)
    named = replace(loaded, config=loaded.config.changed(data={"source": "[甲]a.txt"}))
    assert _share_of_files("runs/a", read_corpus("[甲]a.txt"), named) == pytest.approx(0.9)
    Path("a.txt").write_text("All of it is new.\n" * 60)
    assert gpt_cli.heads(run="runs/a", data="a.txt").training_share == 0


def test_a_validation_text_of_its_own_was_not_learned(own_runs: Path, run: RunCommand) -> None:
    words = "train --config smoke --data a.txt --set data.validation_source=b.txt --max-steps 2 --out runs/v --quiet"
    assert run(*words.split()).code == 0
    assert run("eval", "--run", "runs/v", "--data", "b.txt").err == ""
    assert "runs/v trained on all of this text, " in run("eval", "--run", "runs/v", "--data", "a.txt").err


def test_max_tokens_reads_evenly_spaced_windows(own_runs: Path, run: RunCommand) -> None:
    """Of 129 bytes the model predicts four windows of 32; two of them are the first and the third."""
    Path("some.txt").write_bytes(random.Random(0).randbytes(129).hex()[:129].encode())
    asked = ["eval", "--run", "runs/a", "--data", "some.txt", "--json"]
    costs = [each["nats"] for each in json.loads(run(*asked, "--per-token").out)["runs"][0]["per_token"]][-128:]
    found = json.loads(run(*asked, "--run", "runs/b", "--max-tokens", "64").out)["runs"]
    assert [one["num_tokens"] for one in found] == [64, 64]
    assert found[0]["loss"] == pytest.approx(np.mean([*costs[:32], *costs[64:96]]))
    assert found[0]["bits_per_byte"] == pytest.approx(found[0]["loss"] / math.log(2))
    assert found[0]["loss_error"] > 0
    assert found[1]["difference"]["value"] == pytest.approx(found[1]["loss"] - found[0]["loss"])
    characters = CharTokenizer("".join(sorted({*Path("a.txt").read_text()})))
    save_checkpoint(Path("c.safetensors"), sharp_checkpoint("model.context_length=32", tokenizer=characters))
    asked = ["eval", "--run", "runs/a", "--run", "c.safetensors", "--data", "a.txt", "--json"]
    other = json.loads(run(*asked, "--max-tokens", "50").out)["runs"]  # 200 bytes, of which both lack the first
    assert [one["num_tokens"] for one in other] == [199, 199]


def test_max_tokens_with_a_stride_read_the_beginning(own_runs: Path, run: RunCommand) -> None:
    """Of 64 bytes, all but those of the first window have 16 more bytes of context where the window moves by 16."""
    whole = Path("some.txt")
    whole.write_bytes(random.Random(0).randbytes(129).hex()[:129].encode())
    Path("begins.txt").write_bytes(whole.read_bytes()[:65])
    asked = ["eval", "--run", "runs/a", "--json", "--stride", "16"]
    (bounded,) = json.loads(run(*asked, "--data", "some.txt", "--max-tokens", "64").out)["runs"]
    (alone,) = json.loads(run(*asked, "--data", "begins.txt").out)["runs"]
    assert (bounded["loss"], bounded["num_tokens"]) == (alone["loss"], 64)
    (fresh,) = json.loads(run(*asked[:-2], "--data", "begins.txt").out)["runs"]
    assert fresh["loss"] != alone["loss"]


def test_losses_on_different_texts_are_not_compared_without_a_warning(own_runs: Path, run: RunCommand) -> None:
    both = ["--run", "runs/a", "--run", "runs/b"]
    apart = run("eval", *both)
    warning = "warning: these runs are measured on different texts; --data SOURCE measures all on the same text\n"
    assert apart.err == warning
    # nor is their difference computed
    assert [line.split()[-1] for line in apart.out.splitlines()] == ["text", "a.txt", "b.txt"]
    together = run("eval", *both, "--data", "a.txt", exits=0)
    assert together.err.count("\n") == 1
    assert together.err.startswith("runs/a trained on about 90% of this text, ")
    assert "text" not in together.out.splitlines()[0].split()


def test_threads_are_those_that_torch_uses(smoke_run: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [2]
    monkeypatch.setattr(torch, "get_num_threads", lambda: numbers[-1])
    monkeypatch.setattr(torch, "set_num_threads", numbers.append)
    run("eval", "--threads", "1", "--max-tokens", "64", exits=0)
    assert numbers == [2, 1, 2]  # and again as many as before


BEST = "runs/smoke/checkpoints/best.safetensors"


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ("--stride 33", f"--stride: the model of {BEST} sees 32 tokens; use 1 to 32"),
        ("--without 0.2", f'--without: {BEST} has layers 0 to 1 with heads 0 to 1, so "0.2" is out of range'),
        ("--per-token --run runs/smoke --run runs/smoke", "--per-token: it shows one run, and --run names 2; name one"),
        *(
            (f"{flag} 3", f"{flag}: it changes the samples of --memorised, so it needs --memorised\nhint: --memorised")
            for flag in ("--num-samples", "--max-new-tokens", "--seed")
        ),
    ],
)
def test_a_measurement_that_is_impossible_is_refused_before_torch_is_loaded(
    smoke_run: Path, flags: str, error: str, without_torch: WithoutTorch
) -> None:
    done = without_torch("eval", *flags.split())
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {error}\n")


def test_a_checkpoint_from_elsewhere_names_no_text(smoke_run: Path, here: Path, without_torch: WithoutTorch) -> None:
    save_checkpoint(Path("theirs.safetensors"), sharp_checkpoint("data.source=/etc/passwd"))
    no_text = "gpt does not read a text only because a model names it: a stranger may have chosen it"
    sentence = f'"theirs.safetensors": {no_text}'
    memorised = "leave out --memorised, which reads the text that the model was trained on"
    for words, hint in (
        (["eval"], "--data FILE"),
        (["heads"], "--data FILE"),
        (["eval", "--memorised"], f"{memorised}, and name a text with --data FILE"),
        (["eval", "--memorised", "--data", "my.txt"], memorised),
    ):
        done = without_torch(*words, "--run", "theirs.safetensors")
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {sentence}\nhint: {hint}\n")


def test_a_checkpoint_from_elsewhere_moves_no_limit_of_a_text(run: RunCommand, here: Path) -> None:
    asks = ["data.skip_bad=true", "tokenizer.kind=byte"]
    save_checkpoint(Path("theirs.safetensors"), sharp_checkpoint(*asks))
    Path("texts").mkdir()
    Path("texts/good.txt").write_text("some text " * 99)
    Path("texts/bad.txt").write_bytes(b"\xff\xfe\xfd")
    Path("bomb.txt.gz").write_bytes(gzip.compress(b"a" * 7_000_000) * 10)
    for command, text, sentence in (
        ("eval", "texts", "must be UTF-8"),
        ("heads", "bomb.txt.gz", "expands to more than 200 times"),
    ):
        refused = run(command, "--run", "theirs.safetensors", "--data", text, exits=3)
        assert sentence in refused.err
        assert "--set" not in refused.err, "these commands do not have it"


def test_a_text_of_one_token_is_refused(copied: Path, run: RunCommand, here: Path) -> None:
    (here / "one.txt").write_text("a")
    sentence = "--data: the text is one token long, so there is nothing to predict"
    assert run("eval", "--data", "one.txt", exits=3).err == f"error: {sentence}\n"


def test_of_several_models_the_one_that_lacks_a_character_is_named_with_the_text(here: Path, run: RunCommand) -> None:
    for name, characters in (("a", "abc"), ("b", "ab")):
        save_checkpoint(here / f"{name}.safetensors", sharp_checkpoint(tokenizer=CharTokenizer(characters)))
    (here / "m.txt").write_text("abcabc")
    outcome = run("eval", "--run", "a.safetensors", "--run", "b.safetensors", "--data", "m.txt", exits=3)
    assert "error: b.safetensors: m.txt: this model knows 2 characters, but not " in outcome.err


def test_a_run_is_measured_as_it_reads_text(here: Path, run: RunCommand) -> None:
    """With the field that it was trained on, and on the validation text that it names."""
    for name in ("train", "val", "other"):
        Path(f"{name}.jsonl").write_text("".join(f'{{"body": "{name} {i} of the text"}}\n' for i in range(200)))
    flags = [f"--set=data.{key}" for key in ("text_field=body", "validation_source=val.jsonl")]
    small = ["--set", "tokenizer.kind=byte", "--max-steps", "1", "--out", "runs/field", "--quiet"]
    run("train", "--config", "smoke", "--data", "train.jsonl", *flags, *small, exits=0)
    run("eval", "--data", "other.jsonl", exits=0)
    assert run("eval").out.split()[-1] == "val.jsonl"
    Path("val.jsonl").write_text('{"body": "something else"}\n' * 9)
    changed = run("eval")
    assert changed.out.splitlines()[-1].endswith("val.jsonl (changed)")
    assert "train.jsonl, val.jsonl has changed" in changed.err
    again = [*flags[:1], "--set=data.validation_source=-", *small[:-1], "--overwrite"]
    run("train", "--config", "smoke", "--data", "train.jsonl", *again, stdin=b"from a pipe, " * 9, exits=0)
    assert run("eval", stdin=b"never read", exits=3).err.endswith(
        "trained on text from stdin, which gpt did not save\nhint: --data FILE\n"
    )


def test_a_loss_without_heads_is_that_of_a_model_that_lacks_them(smoke_run: Path, run: RunCommand) -> None:
    loaded = load(smoke_run)
    text = "The value of the expression is the value of its operands.\n" * 5
    remove_heads(loaded.model, [(0, 1), (1, 0)])
    ids = np.array(loaded.tokenizer.encode(text))
    nats = np.concatenate([*surprisals(loaded.model, ids, stride=loaded.config.model.context_length)])
    outcome = run("eval", "--data", "-", "--without", "0.1,1.0", "--json", stdin=text.encode())
    found = json.loads(outcome.out)
    assert found["without"] == ["0.1", "1.0"]
    assert found["runs"][0]["loss"] == pytest.approx(nats.mean(), abs=1e-6)
    assert "heads switched off: 0.1, 1.0\n" in outcome.err
    whole = json.loads(run("eval", "--data", "-", "--json", stdin=text.encode()).out)
    assert "without" not in whole
    assert whole["runs"][0]["loss"] != pytest.approx(nats.mean(), abs=1e-4)


def test_a_window_that_memory_cannot_hold_is_refused_before_the_model_runs(
    smoke_run: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpt_cli.evaluation.evaluate.available_memory", lambda: 1)
    monkeypatch.setattr("gpt_cli.evaluation.evaluate.surprisals", None)
    refused = run("eval", "--run", smoke_run, exits=5)
    assert "error: eval: the activations of one window of 32 tokens take about " in refused.err
    assert refused.err.endswith("hint: use a shorter text\n")
    refused = run("eval", "--run", smoke_run, "--quantize", "int8", exits=5)
    assert "error: eval: the weights to be rounded take about " in refused.err


def test_fewer_windows_at_once_where_memory_is_small_give_the_same_figures(
    smoke_run: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Room for 7 windows at once, 4 of which are taken, a quarter of 16."""
    batches: list[int | None] = []

    def watched(*args: Any, batch_size: int | None, **options: Any) -> Iterator[np.ndarray]:
        batches.append(batch_size)
        return surprisals(*args, batch_size=batch_size, **options)

    monkeypatch.setattr("gpt_cli.evaluation.evaluate.surprisals", watched)
    (tmp_path / "a.txt").write_text("The value of the expression is the value of its operands.\n" * 100)
    asked = ["eval", "--run", smoke_run, "--data", tmp_path / "a.txt", "--dtype", "float32", "--per-token", "--json"]
    free = scoring_bytes(load(smoke_run).model, 7, 32)
    for flags in ([], ["--stride", "8"]):
        found = []
        for available in (free, 16 * free):
            monkeypatch.setattr("gpt_cli.evaluation.evaluate.available_memory", lambda available=available: available)
            found.append(run(*asked, *flags).out)
        assert found[0] == found[1]
    assert batches == [4, 16] * 2


def test_samples_that_memory_cannot_hold_are_refused_before_the_evaluation_and_those_that_fit_work(
    smoke_run: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpt_cli.evaluation.evaluate.available_memory", lambda: 50_000_000)
    few = ["eval", "--run", smoke_run, "--max-tokens", "320", "--memorised", "--max-new-tokens", "3", "--num-samples"]
    with monkeypatch.context() as patched:
        patched.setattr("gpt_cli.evaluation.evaluate.surprisals", None)
        refused = run(*few, "10000", exits=5)
    assert "error: eval: 10,000 samples of 3 tokens take about " in refused.err
    number = re.search(r"hint: --num-samples (\d+)", refused.err)
    assert number
    run(*few, number[1], exits=0)


def test_a_text_is_read_in_shorter_windows_where_attention_would_not_fit(
    smoke_run: Path, run: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "a.txt"
    text.write_text("The value of the expression is the value of its operands.\n" * 5)
    command = ("eval", "--run", smoke_run, "--data", text, "--json")
    whole = json.loads(run(*command).out)["runs"][0]
    monkeypatch.setattr("gpt_cli.config.model.WEIGHTS_AT_ONCE", 2 * 16**2)  # of both heads on 16 tokens
    found = run(*command)
    assert "the text is read in windows of 16 tokens, since the attention of all 32 would take" in found.err
    assert json.loads(found.out)["runs"][0]["num_tokens"] == whole["num_tokens"]
    assert json.loads(found.out)["runs"][0]["loss"] != whole["loss"]
    run(*command, "--stride", "17", exits=2)


def test_at_least_one_window_is_evaluated_at_once_and_half_as_many_until_they_fit_and_few_long_ones() -> None:
    model = GPT(ModelConfig(context_length=16, d_model=8, num_heads=2, num_blocks=1, dropout=0), 10)
    free = [scoring_bytes(model, number, 16) - 1 for number in (16, 8, 4, 2, 1)]
    assert [windows_at_once(model, 100, free=some) for some in free] == [8, 4, 2, 1, 1]
    assert windows_at_once(model, 100, free=scoring_bytes(model, 16, 16)) == 16
    assert [windows_at_once(model, number) for number in (3, 100)] == [3, 16]
    model.config = model.config.changed(context_length=4096, num_heads=8)  # which have 2^27 weights
    assert windows_at_once(model, 100) == 2


def test_python_measures_what_json_prints(
    smoke_run: Path, run: RunCommand, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "a.txt"
    text.write_text("The value of the expression is the value of its operands.\n" * 5)
    capfd.readouterr()
    found = gpt_cli.evaluate(text, run=[smoke_run], per_token=True, without="0.1,1.0")
    assert capfd.readouterr() == ("", "")
    flags = ["eval", "--data", text, "--run", smoke_run, "--per-token", "--without", "0.1", "--without", "1.0"]
    assert found.as_dict() == json.loads(run(*flags, "--json").out)
    assert found.as_text() + "\n" == run(*flags, "--quiet").out
    assert found.as_coloured_text().startswith("The")
