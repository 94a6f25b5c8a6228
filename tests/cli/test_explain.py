import json
from pathlib import Path

import pytest
from support.helpers import RunCommand
from support.light import WithoutTorch

import gpt_cli
from gpt_cli.errors import UsageError
from gpt_cli.tools.explain import explain

pytestmark = pytest.mark.slow

NOT_BOTH = "cannot be combined; leave one of them out"


def test_a_head_is_explained_in_the_terminal(smoke_run: Path, run: RunCommand) -> None:
    outcome = run("explain", "--prompt", "The value of", "--layer", "1", "--head", "1", exits=0)
    lines = outcome.out.splitlines()
    assert lines[0] == "layer 1, head 1: T = 3 tokens of D = 32 numbers, H = 2 heads of K = 16"
    assert lines[1] == 'runs/smoke/checkpoints/best.safetensors: "The value of"'
    assert "8. scores:  s = q · k  [1, 3]" in lines
    assert any(line.startswith("2 of looks most at: ") for line in lines)
    assert any("residual stream after attention" in line for line in lines)


def test_its_json_has_the_tokens_and_every_step(smoke_run: Path, run: RunCommand) -> None:
    content = json.loads(run("explain", "--prompt", "The value of", "--query", "all", "--json").out)
    loaded = gpt_cli.load(smoke_run)
    assert content["token_ids"] == loaded.tokenizer.encode("The value of")
    assert content["queries"] == [0, 1, 2]
    (weights,) = [step for step in content["steps"] if step["name"] == "weights"]
    assert weights["shape"] == [3, 3]
    assert content["checkpoint"] == "runs/smoke/checkpoints/best.safetensors"
    assert [note["query"] for note in weights["notes"] if note["note"] == "most_weight"] == ["0 The", "1 value", "2 of"]
    assert (
        content["parameters"]["Wq"]
        == loaded.model.state_dict()["blocks.0.attention.heads.0.Wq.weight"].double().tolist()
    )


@pytest.mark.parametrize(
    ("flags", "title"), [([], "在 softmax 之前加掩码"), (["--language", "en"], "masking before softmax")]
)
def test_the_language_is_that_of_the_user(
    here: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch, flags: list[str], title: str
) -> None:
    monkeypatch.setenv("GPT_LANGUAGE", "zh")
    assert title in run("explain", "--study", "mask", *flags).out


def test_the_example_and_the_studies_need_no_model(here: Path, run: RunCommand) -> None:
    outcome = run("explain", "--example", "journey", exits=0)
    assert "journey  0.1385   0.2379  0.2333  0.1240  0.1082  0.1581" in outcome.out
    outcome = run("explain", "--study", "padding", "--out", "padding.pdf", exits=0)
    assert (outcome.out, outcome.err) == ("", "wrote padding.pdf\n")
    assert (here / "padding.pdf").read_bytes().startswith(b"%PDF")
    assert run("explain", "--study", "scaling", exits=0).err.startswith("the study shows no trained model: ")
    run("explain", "--study", "scaling", "--run", "nowhere", exits=4)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--layer 2", '--layer: this model has layers 0 to 1, so "2" is out of range'),
        ("--query -1", '--query: "-1" is not a position; use a number from 0 on, or all'),
        ("--example journy", '--example: "journy" is not journey'),
        ("--example journey", f"--prompt and --example {NOT_BOTH}"),
        ("--study mask", f"--prompt and --study mask {NOT_BOTH}"),
        ("--json --format html", f"--format and --json {NOT_BOTH}"),
        ("--out a.png", "--out: only a study has a picture; use .html, .md or .json"),
        ("--out a.md --format html", f"--format and --out {NOT_BOTH}"),
        ("--format pdf", '--format: "pdf" is not one of terminal, markdown, html'),
        ("--language de", '--language: "de" is neither en nor zh'),
    ],
)
def test_wrong_input_is_refused_before_torch_is_loaded(
    smoke_run: Path, words: str, error: str, without_torch: WithoutTorch
) -> None:
    done = without_torch("explain", "--prompt", "The value of", *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == f"error: {error}"


def test_a_position_that_the_prompt_does_not_have_is_refused(smoke_run: Path, run: RunCommand) -> None:
    wrong = "the prompt has 3 tokens, so use a position from 0 to 2 instead of 3"
    assert run("explain", "--prompt", "The value of", "--query", "3", exits=2).err == f"error: --query: {wrong}\n"


def test_the_function_of_python_returns_what_json_prints(
    smoke_run: Path, run: RunCommand, capfd: pytest.CaptureFixture[str]
) -> None:
    found = gpt_cli.explain("The value of", layer=1, head=1, query="1", run=smoke_run, language="zh")
    assert capfd.readouterr() == ("", "")
    words = ["explain", "--prompt", "The value of", "--layer", "1", "--head", "1", "--query", "1", "--run", smoke_run]
    assert found.as_dict() == json.loads(run(*words, "--json").out)
    assert found.as_text() + "\n" == run(*words, "--language", "zh").out
    assert found.as_page() + "\n" == run(*words, "--language", "zh", "--format", "html").out
    assert found.as_picture() is None


def test_a_study_in_python_has_every_form() -> None:
    found = gpt_cli.explain(study="mask")
    assert gpt_cli.explain(study="mask", form="markdown").as_text().startswith("# masking before softmax")
    assert str(found.as_page()).startswith("<!doctype html>")
    with pytest.raises(UsageError, match='layer and study="mask" cannot be combined'):
        gpt_cli.explain(study="mask", layer=0)


def test_what_memory_cannot_hold_is_refused_in_the_form_that_needs_it(
    smoke_run: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["explain", "--prompt", "The value of", "--query", "all"]
    monkeypatch.setattr(explain, "available_memory", lambda: 2_000)
    run(*words, "--json", exits=0)
    refused = run(*words, exits=5)
    assert refused.out == ""
    wrong = "1 head on 3 tokens take about 3.6 kB of memory, but only 2.0 kB are free"
    assert refused.err == f"error: explain: {wrong}\nhint: --query 2\n"


@pytest.mark.parametrize(
    ("ending", "flags"), [("html", ["--format", "html"]), ("md", ["--format", "markdown"]), ("json", ["--json"])]
)
def test_a_file_has_what_its_ending_says(here: Path, run: RunCommand, ending: str, flags: list[str]) -> None:
    printed = run("explain", "--example", "journey", *flags).out
    outcome = run("explain", "--example", "journey", "--out", f"a.{ending}")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", f"wrote a.{ending}\n")
    assert (here / f"a.{ending}").read_text("utf-8") == printed


def test_flags_that_a_study_cannot_use_are_refused(here: Path, run: RunCommand) -> None:
    for words, flag in ((["--layer", "3"], "--layer"), (["--run", "a"], "--run"), (["--truncate"], "--truncate")):
        assert run("explain", "--study", "mask", *words).err.startswith(
            f"error: {flag} and --study mask cannot be combined;"
        )
    for words in (["--study", "mask", "--out", "a.gif"], ["--example", "journey", "--out", "a.gif"]):
        wrong = 'error: --out: "a.gif" ends in none of .html, .md, .json, .png, .svg, .pdf'
        assert run("explain", *words, exits=2).err == f"{wrong}\nhint: --out a.png\n"
