"""`gpt heads`: what each head does, what it is worth, and what it writes."""

import csv
import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from support.attribution import attribute
from support.heads import reported
from support.helpers import CORPUS_TEXT, RunCommand
from support.light import WithoutTorch

import gpt_cli
from gpt_cli.attention_maps.head_metrics import COLUMNS
from gpt_cli.evaluation.nll import surprisals
from gpt_cli.sampling.head_ablation import remove_heads

pytestmark = pytest.mark.slow

PROMPT = "The value of the expression is the value"


def test_without_a_text_it_reads_the_validation_text_of_the_run(smoke_run: Path, run: RunCommand) -> None:
    """And never stdin, although that is no terminal here."""
    outcome = run("heads", "--json", stdin=b"never read")
    found = json.loads(outcome.out)
    (measured,) = json.loads(run("eval", "--json").out)["runs"]
    assert (found["text"], found["tokens"]) == ("python-docs", min(measured["num_tokens"], 16_384))
    fewer = reported(run, "--max-tokens", "320")
    assert (fewer["text"], fewer["tokens"]) == ("python-docs", 320)
    assert reported(run, "--max-tokens", "5")["tokens"] == 5  # one window, shorter than the context
    assert fewer["heads"][0]["self"] != found["heads"][0]["self"]


def test_python_gets_the_rows_that_json_prints(smoke_run: Path, run: RunCommand) -> None:
    found = gpt_cli.heads(PROMPT, heads="1", ablate="zero", query=2)
    assert found.as_dict() == reported(run, "--prompt", PROMPT, "--heads", "1", "--ablate", "zero", "--query", "2")
    assert [(row["layer"], row["head"], len(row["raises"])) for row in found.heads] == [(0, 1, 5), (1, 1, 5)]
    assert [*found._repr_mimebundle_()] == ["text/html", "image/png", "text/plain"]


def test_another_text_is_read_in_windows(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The value of 今天 is fine. " * 40)
    found = reported(run, "--data", tmp_path / "a.txt", "--data", tmp_path / "a.txt")
    assert found["text"] == [str(tmp_path / "a.txt")] * 2
    assert found["tokens"] > 500
    assert reported(run, "--data", tmp_path / "a.txt", "--layers", "1", "--heads", "0")["heads"][0]["layer"] == 1


def test_a_report_has_the_numbers_of_the_model(smoke_run: Path, run: RunCommand) -> None:
    """The scores of each head, the loss without it, and what it raises and lowers most at a token."""
    found = reported(run, "--prompt", PROMPT, "--ablate", "zero", "--query", "-1", "--dtype", "float32")
    assert [(row["layer"], row["head"]) for row in found["heads"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    loaded = gpt_cli.load(smoke_run)
    tokenizer, ids = loaded.tokenizer, loaded.tokenizer.encode(PROMPT)
    assert found["query"] == {"position": len(ids) - 1, "token": tokenizer.token_text(ids[-1])}
    weights = loaded.model.attention_weights(torch.tensor([ids]))[:, 0]
    terms = attribute(loaded.model, ids, len(ids) - 1)
    for row in found["heads"]:
        of_head = weights[row["layer"], row["head"]]
        assert row["self"] == pytest.approx(float(of_head.diagonal()[1:].mean()), abs=1e-6)
        assert row["first_token"] == pytest.approx(float(of_head[1:, 0].mean()), abs=1e-6)
        model = gpt_cli.load(smoke_run).model
        remove_heads(model, [(row["layer"], row["head"])])
        without = np.concatenate([*surprisals(model, np.array(ids), stride=model.config.context_length)]).mean()
        assert row["loss_change"] == pytest.approx(without - found["loss"], abs=1e-5)
        assert row["loss_change_error"] is None, "a prompt is one window"
        logits = terms.logits[terms.names.index(f"L{row['layer']} H{row['head']}")]
        logits = (logits - logits.mean()).detach()
        for key, expected in (("raises", logits.topk(5)), ("lowers", logits.topk(5, largest=False))):
            assert [entry["logit"] for entry in row[key]] == pytest.approx(expected.values.tolist(), abs=1e-5)
            assert row[key][0]["id"] == int(expected.indices[0])
            assert [entry["token"] for entry in row[key]] == [tokenizer.token_text(e["id"]) for e in row[key]]


def test_the_three_ways_of_removing_differ(smoke_run: Path, run: RunCommand) -> None:
    zero, mean, layer = (reported(run, "--max-tokens", "640", "--ablate", how) for how in ("zero", "mean", "layer"))
    for row, of_mean in zip(zero["heads"], mean["heads"], strict=True):
        assert row["loss_change"] != of_mean["loss_change"]
        assert 0 < row["loss_change_error"] < 0.1
    assert [[*row] for row in layer["layers"]] == [["layer", "loss_change", "loss_change_error"]] * 2
    assert [row["layer"] for row in layer["layers"]] == [0, 1]
    assert "loss_change" not in layer["heads"][0]
    assert "layers" not in zero


def test_the_terminal_shows_the_table_and_says_what_was_read(smoke_run: Path, run: RunCommand) -> None:
    flags = ["--prompt", PROMPT, "--ablate", "layer", "--query", "-1", "--sort", "self"]
    found, outcome = reported(run, *flags), run("heads", *flags)
    assert [row["self"] for row in found["heads"]] == sorted((row["self"] for row in found["heads"]), reverse=True)
    assert outcome.out == f"{gpt_cli.heads(PROMPT, ablate='layer', query=-1, sort='self').as_text()}\n"
    lines = outcome.err.splitlines()
    assert lines[0] == f"runs/smoke, step 20: {found['tokens']} tokens of the prompt"
    assert lines[4] == f"loss change: how much the loss ({found['loss']:.4f}) rises without it, ± standard error"


def test_files_have_what_json_prints(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    flags = ["--prompt", PROMPT, "--query", "2"]
    found = reported(run, *flags)
    path = gpt_cli.load(smoke_run).path
    assert (found["text"], found["step"], found["checkpoint"]) == (PROMPT, 20, str(path))
    outcome = run("heads", *flags, "--out", tmp_path / "a.JSON")
    assert (outcome.out, outcome.err.splitlines()[-1]) == ("", f"wrote {tmp_path / 'a.JSON'}: 4 heads")
    assert json.loads((tmp_path / "a.JSON").read_text()) == found
    assert reported(run, *flags, "--out", tmp_path / "a.csv") == found
    with open(tmp_path / "a.csv", encoding="utf-8", newline="") as file:
        lines = [*csv.DictReader(file)]
    assert [*lines[0]][:10] == ["layer", "head", *COLUMNS, "label"]
    for line, row in zip(lines, found["heads"], strict=True):
        assert float(line["entropy"]) == row["entropy"]
        assert line["raises_1_token"].removeprefix("'") == row["raises"][0]["token"]
        assert int(line["lowers_5_id"]) == row["lowers"][4]["id"]


def test_a_query_beyond_the_prompt_is_refused(smoke_run: Path, run: RunCommand) -> None:
    for query in ("2", "-3"):
        error = f"error: --query: this prompt has tokens 0 to 1, so {query} is out of range\n"
        refused = run("heads", "--prompt", "The value", "--query", query, exits=2)
        assert refused.err == f"{error}hint: --query -1 is the last token\n"


def test_too_little_text_is_refused(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    for prompt in ("", "a"):
        sentence = "prompt: it has 1 token, which can only look at itself; use at least 2"
        assert run("heads", "--prompt", prompt, exits=3).err == f"error: {sentence}\n"
    (tmp_path / "two.txt").write_text("The value")
    outcome = run("heads", "--data", tmp_path / "two.txt", exits=3)
    assert outcome.err == "error: --data: the text has 2 tokens; use at least 3\n"


def test_what_memory_cannot_hold_is_refused_with_the_heads_that_fit(
    smoke_run: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpt_cli.tools.interpret.heads.heads.available_memory", lambda: 40 * 32**2)
    assert run("heads", exits=5).err.splitlines()[-2:] == [
        "error: heads: 2 heads on 32 tokens take about 81.9 kB of memory, but only 41.0 kB are free",
        "hint: --heads 0",
    ]
    run("heads", "--heads", "0", "--max-tokens", "320", exits=0)
    monkeypatch.setattr("gpt_cli.tools.interpret.heads.heads.available_memory", lambda: 1)
    assert run("heads").err.endswith("hint: close other programs\n"), (
        "induction has 32 tokens too, however long the text"
    )
    over_training = ("--passages", "1", "--over-training", "--max-tokens", "100")
    assert run("heads", *over_training, exits=5).err.startswith("error: heads: 2 heads on 32 tokens take ")


def test_memory_is_counted_for_what_a_report_needs_beside_its_heads_and_its_text(
    smoke_run: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpt_cli.tools.interpret.heads.heads.available_memory", lambda: 40 * 32**2)
    lines = run("heads", "--heads", "0", "--ablate", "zero").err.splitlines()
    assert lines[-2].startswith("error: heads: 2 heads on 32 tokens"), "the losses need all heads of a layer"
    lines = run("heads", "--prompt", "ab").err.splitlines()
    assert lines[-2].startswith("error: heads: 2 heads on 32 tokens"), "induction has a text of its own"
    assert lines[-1] == "hint: --heads 0"
    # the output layer, three times in float32, and two times a logit of each token
    V, D = gpt_cli.load(smoke_run).model.output_weight.shape
    monkeypatch.setattr("gpt_cli.tools.interpret.heads.heads.available_memory", lambda: 12 * V * D + 8 * V - 1)
    lines = run("heads", "--prompt", "The value of", "--query", "-1", exits=5).err.splitlines()
    assert lines[-2].startswith("error: heads: the tokens that heads promote take about ")
    assert lines[-1] == "hint: leave out --query"


def test_shorter_windows_are_announced(
    smoke_run: Path, run: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpt_cli.tools.interpret.text_windows.HEADS_WINDOW", 16)
    lines = run("heads", "--max-tokens", "64").err.splitlines()
    assert "the model reads windows of 16 tokens, not of 32, to save time" in lines
    (tmp_path / "t.txt").write_text("The value of")
    assert "to save time" not in run("heads", "--data", tmp_path / "t.txt", exits=0).err, "no window is that long"


ENDINGS = "ends in none of .json, .csv, .png, .svg, .pdf"
NO_LOSS_CHANGE = "--sort: only --ablate zero and --ablate mean report the loss change of a head"
NO_TOKENS = "a picture shows no tokens; use .json, .csv or .html"
FILM = "--over-training --out film.html"


@pytest.mark.parametrize(
    ("flags", "error", "hint"),
    [
        ("--max-tokens 0", '--max-tokens: "0" is not a whole number of at least 2', None),
        ("--query 0", "--query needs --prompt or --prompt-file", "--prompt 'The value of'"),
        ("--prompt x --query last", '--query: "last" is not a whole number from -65,536 to 65,535', None),
        ("--ablate heads", '--ablate: "heads" is not one of zero, mean, layer', None),
        ("--dtype bfloat16", "--dtype: it applies only to --ablate; scores are always in float32", "--ablate zero"),
        ("--sort loss_change", NO_LOSS_CHANGE, "--ablate zero"),
        ("--sort loss_change --ablate layer", NO_LOSS_CHANGE, "--ablate zero"),
        ("--sort loss_change --over-training", NO_LOSS_CHANGE, None),
        ("--sort name", f'--sort: "name" is not one of {", ".join(COLUMNS)}, loss_change', None),
        ("--out heads.gif", f'--out: "heads.gif" {ENDINGS}, .html', "--out heads.png"),
        ("--out -", f'--out: "-" {ENDINGS}, .html', "--json has the figures"),
        ("--prompt x --query 0 --out heads.pdf", f"--query: {NO_TOKENS}", "--out heads.html"),
        ("--passages 1 --over-training --out heads.png", f"--passages: {NO_TOKENS}", "--out heads.html"),
        ("--layers 2", '--layers: this model has layers 0 to 1, so "2" is out of range', None),
        ("--over-training --out heads.html", f'--out: "heads.html" {ENDINGS}', f"gpt attn-dump {FILM}"),
        (
            "--run smoke --prompt 'the  end' --over-training --out heads.html",
            f'--out: "heads.html" {ENDINGS}',
            f"gpt attn-dump --run smoke --prompt 'the  end' {FILM}",
        ),
        *(
            (flags, f"{pair} cannot be combined; leave one of them out", None)
            for flags, pair in {
                "--prompt x --data a.txt": "--data and --prompt",
                "--prompt x --max-tokens 9": "--max-tokens and --prompt",
                "--passages 1 --over-training --sort self": "--sort and --over-training",
                "--circuits --over-training": "--circuits and --over-training",
                "--over-training --ablate zero": "--ablate and --over-training",
            }.items()
        ),
    ],
)
def test_flags_that_do_not_go_together_are_refused_before_torch_is_loaded(
    smoke_run: Path, flags: str, error: str, hint: str | None, without_torch: WithoutTorch
) -> None:
    done = without_torch("heads", *shlex.split(flags))
    expected = f"error: {error}\n" + (f"hint: {hint}\n" if hint else "")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)


def test_a_model_that_reads_one_token_has_heads_with_nothing_to_measure(here: Path, run: RunCommand) -> None:
    """Every head looks at the only token there is; every command takes such a model."""
    Path("t.txt").write_text(CORPUS_TEXT)
    sizes = ["model.context_length=1", "model.positions=rope", "tokenizer.kind=char", "train.max_steps=2"]
    words = [word for setting in sizes for word in ("--set", setting)]
    run("train", "--config", "smoke", "--data", "t.txt", *words, "--out", "runs/one", "--quiet", exits=0)
    outcome = run("heads", "--json", "--ablate", "zero", "--max-tokens", "100", exits=0)
    rows = json.loads(outcome.out)["heads"]
    assert {row[name] for row in rows for name in (*COLUMNS, "label")} == {None}
    assert all(isinstance(row["loss_change"], float) for row in rows)
    for command in (
        ["heads", "--prompt", "3", "--query", "0"],
        ["attn-dump", "--prompt", "3", "--out", "a.html"],
        ["explain", "--prompt", "3"],
        ["export", "--format", "html", "--out", "m.html"],
        ["report", "runs/one", "--prompt", "3", "--out", "r.html"],
    ):
        run(*command, exits=0)
    assert set(run("heads", "--max-tokens", "100").out.split("\n")[1].split()[2:]) == {"-"}
    outcome = run("heads", "--prompt", "3", "--ablate", "zero")
    assert (outcome.code, outcome.err.startswith("error: --ablate: this model reads 1 token at a time")) == (2, True)
