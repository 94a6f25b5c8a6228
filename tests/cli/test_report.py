"""`gpt report`, and `loss.png` of `gpt train`."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.helpers import RunCommand
from support.light import WithoutTorch
from support.pages import content_of

import gpt_cli
from gpt_cli.checkpoints.lock import sole_trainer
from gpt_cli.checkpoints.metrics_files import smoothed
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.cli.train_worker import leave_picture
from gpt_cli.tools.reports import curves_picture as picture
from gpt_cli.tools.reports.report import RunReport

pytestmark = pytest.mark.slow

PNG = b"\x89PNG\r\n"


@pytest.fixture(name="runs")
def _runs(copied: Path) -> Path:
    """runs/ with a finished run, a diverged one, an empty one, and a sweep of two that were stopped."""
    root = copied.parent
    for name in ("wild", "sweep/000-a", "sweep/001-b"):
        shutil.copytree(copied, root / name)
    RunDirectory(root / "wild").end("diverged", 15)
    for name in ("000-a", "001-b"):
        RunDirectory(root / "sweep" / name).end("signal", 12)
    config = root / "sweep" / "001-b" / "config.yaml"
    config.write_text(config.read_text().replace("learning_rate: 0.01", "learning_rate: 0.02"))
    (root / "new" / "checkpoints").mkdir(parents=True)
    shutil.copy(copied / "config.yaml", root / "new")
    return root


def test_training_and_its_reports_say_one_loss_whatever_was_logged(here: Path, run: RunCommand) -> None:
    """The mean of the losses of all 20 steps, though few of them are logged."""
    small = ("train.warmup_steps=2", "tokenizer.kind=byte", "train.sample_every=null")
    flags = ["--config", "smoke", *(word for setting in small for word in ("--set", setting))]
    whole = run("train", *flags, "--set", "train.log_every=7", "--out", "runs/whole")
    run("train", *flags, "--set", "train.log_every=1", "--out", "runs/all", "--quiet", exits=0)
    mean: float | None = None
    for line in map(json.loads, Path("runs/all/metrics.jsonl").read_text().splitlines()):
        mean = smoothed(mean, line["loss"], line["step"])
        assert line["smoothed_loss"] == mean
    (row,) = json.loads(run("report", "whole", "--json").out)["runs"]
    assert row["smoothed_loss"] == mean != row["loss"]
    assert f"step 20/20: loss {mean:.4f}," in whole.err
    assert run("report", "whole").out.splitlines()[1].split()[3:5] == ["20", f"{mean:.4f}"]
    assert json.loads(Path("runs/whole/outcome.json").read_text())["smoothed_loss"] == mean


def test_a_run_that_continues_goes_on_with_its_mean(copied: Path, run: RunCommand) -> None:
    before = json.loads((copied / "outcome.json").read_text())
    after = json.loads(run("train", "--out", copied, "--max-steps", "21", "--resume", "--json", "--quiet").out)
    assert after["smoothed_loss"] == smoothed(before["smoothed_loss"], after["loss"], 21)


def test_the_terminal_shows_the_newest_run(smoke_run: Path, run: RunCommand) -> None:
    outcome = run("report")
    assert (outcome.code, outcome.err) == (0, "")
    lines = [json.loads(line) for line in (smoke_run / "metrics.jsonl").read_text().splitlines()]
    assert outcome.out.splitlines()[1].split()[:3] == ["a", "smoke", "finished"]
    ended = json.loads((smoke_run / "outcome.json").read_text())
    figures = (lines[-1]["smoothed_loss"], ended["validation_loss"], ended["validation_loss_error"])
    training, loss, error = (f"{figure:.4f}" for figure in figures)
    bits = f"{ended['bits_per_byte']:.4f}"
    assert outcome.out.splitlines()[1].split()[4:9] == [training, loss, "±", error, bits]
    assert "loss (nats/token); ● validation (of 1,024 tokens)" in outcome.out
    assert "validation bits/byte (of 1,024 tokens)" in outcome.out
    assert "settings that differ" not in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 80


def test_several_runs_are_overlaid_and_their_differing_settings_listed(runs: Path, run: RunCommand) -> None:
    outcome = run("report", "sweep", "smoke")
    assert (outcome.code, outcome.err) == (0, "")
    assert [line.split()[:2] for line in outcome.out.splitlines()[1:4]] == [
        ["a", "sweep/000-a"], ["b", "sweep/001-b"], ["c", "smoke"],
    ]  # fmt: skip
    *_, head, row = outcome.out.splitlines()
    assert head.split() == ["settings", "that", "differ", "a", "b", "c"]
    assert row.split() == ["train.learning_rate", "0.01", "0.02", "0.01"]


def test_json_has_the_figures_of_metrics(runs: Path, run: RunCommand) -> None:
    found = json.loads(run("report", "smoke", "runs/wild", "new", "--json").out)
    lines = [json.loads(line) for line in (runs / "smoke" / "metrics.jsonl").read_text().splitlines()]
    smoke, wild, new = found["runs"]
    assert [(row["name"], row["state"]) for row in found["runs"]] == [
        ("smoke", "finished"), ("wild", "diverged"), ("new", "empty"),
    ]  # fmt: skip
    assert (smoke["run"], smoke["steps"], wild["steps"], new["steps"]) == ("runs/smoke", 20, 15, 0)
    last = {name: lines[-1][name] for name in ("loss", "validation_loss", "bits_per_byte", "gradient_norm")}
    assert smoke["last"].items() >= last.items()
    assert smoke["best"] == {"step": 20, "validation_loss": lines[-1]["validation_loss"]}
    assert (new["best"], set(new["last"].values())) == (None, {None})
    assert (smoke["config"], smoke["differs"], found["settings"]) == ("smoke", {}, {})


def test_python_has_what_json_prints_and_shows_itself(runs: Path, run: RunCommand) -> None:
    found = gpt_cli.report(["smoke", runs / "wild"], axis="tokens")
    assert found.as_dict() == json.loads(run("report", "smoke", "runs/wild", "--json").out)
    assert found.as_text(80) == run("report", "smoke", "wild", "--axis", "tokens").out.rstrip("\n")
    assert (found.as_page() or "").startswith("<!doctype html>")
    assert found.runs[0].metrics["step"].tolist() == [5, 10, 15, 20]
    many = RunReport(found.runs * 20)
    assert "\nthe best 12 of 40 curves are drawn" in many.as_text()
    assert (many.as_page() or "").count('"lastLineAt"') == 32


def test_a_name_is_that_of_gpt_runs_or_a_path(runs: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["smoke", "runs/smoke", "./runs/smoke", str((runs / "smoke").resolve())]
    found = [json.loads(run("report", name, "--json").out)["runs"][0]["name"] for name in names]
    assert found == ["smoke"] * 4
    monkeypatch.chdir(runs / "smoke")
    assert json.loads(run("report", ".", "--json").out)["runs"][0]["name"] == "smoke"


def test_a_file_is_a_picture_or_a_page(runs: Path, run: RunCommand, here: Path) -> None:
    outcome = run("report", "smoke", "wild", "--out", "a.svg", "--axis", "tokens", exits=0)
    assert (outcome.out, outcome.err) == ("", "wrote a.svg: 2 runs\n")
    assert Path("a.svg").read_bytes().startswith(b"<?xml")
    assert b"tokens" in Path("a.svg").read_bytes()
    assert run("report", "smoke", "--out", "b.html", "--quiet").err == ""
    assert Path("b.html").read_bytes().startswith(b"<!doctype html>")


def test_the_attention_of_a_prompt_is_on_the_page(runs: Path, run: RunCommand) -> None:
    assert run("report", "smoke", "new", "--prompt", "The value of", "--out", "a.html", exits=0).err.splitlines() == [
        'warning: "runs/new": this run has no checkpoint yet; the report leaves out its attention',
        "wrote a.html: 2 runs",
    ]
    assert " value" in Path("a.html").read_text()
    too_long = run("report", "smoke", "--prompt", "The value of " * 100, "--out", "b.html", exits=3)
    assert 'but the model of "runs/smoke" sees 32' in too_long.err
    run("report", "new", "--prompt", "The", "--out", "b.html", exits=4)
    assert not Path("b.html").exists()


def test_runs_of_one_name_have_each_their_own_attention(copied: Path) -> None:
    """A run below runs/ is named without it, so it may have the name of one beside runs/."""
    shutil.copytree(copied, "smoke")
    report = gpt_cli.report(["runs/smoke", "./smoke"], prompt="The")
    assert [record.name for record in report.runs] == ["smoke", "smoke"]
    content = content_of(report.as_page().encode())
    origins = [each["weights"]["origin"]["checkpoint"] for each in content["attention"]]
    assert origins == ["runs/smoke/checkpoints/best.safetensors", "smoke/checkpoints/best.safetensors"]


def test_a_run_counts_once_beside_a_link_to_it(runs: Path) -> None:
    (runs / "sweep" / "best").symlink_to("001-b")
    assert [record.name for record in gpt_cli.report(["sweep"]).runs] == ["sweep/000-a", "sweep/001-b"]


def test_mistakes_are_one_sentence(runs: Path, run: RunCommand) -> None:
    for words, code, error in (
        ("nope smoke lost", 4, 'error: "lost": there is no such run'),
        ("smoke runs/smoke", 2, 'error: RUN: "runs/smoke" is named twice'),
        ("sweep runs/sweep/000-a", 2, 'error: RUN: "runs/sweep/000-a" is named twice'),
        ("runs/smoke/metrics.jsonl", 4, "hint: gpt report runs/smoke"),
        ("runs/smoke/checkpoints", 4, 'error: "runs/smoke/checkpoints": there is no run in this directory'),
        ("--out a.eps", 2, 'error: --out: "a.eps" ends in none of .html, .png, .svg, .pdf'),
        ("--out a", 2, "hint: --out a.html"),
        ("new --out a.png", 2, "hint: --out report.html shows the rest"),
        ("--out -", 2, "hint: --json has the figures"),
        ("--out runs/smoke/loss.png", 2, "is a file of the run"),
        ("--prompt The", 2, "hint: --out report.html"),
        ("--axis epochs", 2, 'error: --axis: "epochs" is not one of step, tokens, seconds'),
        ("smoke --out nowhere/a.svg", 5, "hint: mkdir -p nowhere"),
    ):
        outcome = run("report", *words.split(), exits=code)
        assert outcome.out == ""
        assert error in outcome.err


def test_what_cannot_be_read_is_said(runs: Path, run: RunCommand) -> None:
    with (runs / "smoke" / "metrics.jsonl").open("a") as file:
        file.write("{broken}\n")
    outcome = run("report", "smoke", exits=0)
    assert outcome.err.startswith('warning: "runs/smoke/metrics.jsonl": the report leaves out 1 line,')


def test_a_report_of_curves_needs_no_torch(runs: Path, without_torch: WithoutTorch) -> None:
    for words in ([], ["--out", "a.html"], ["--out", "a.PNG"]):
        without_torch("report", "smoke", *words, exits=0)
    assert Path("a.PNG").read_bytes().startswith(PNG)
    assert without_torch("report", "x", "--out", "a.png").returncode == 4


TRAIN = ("train", "--config", "smoke", "--quiet", "--out", "runs/smoke")


@pytest.mark.usefixtures("drawing")
def test_a_training_leaves_the_picture_of_its_losses(copied: Path, run: RunCommand) -> None:
    """The same run gives the same picture, a longer one another, and one that is trained again none."""
    picture = copied / "loss.png"
    with sole_trainer(copied, pytest.fail):
        leave_picture(copied, pytest.fail)
    assert not picture.exists()
    leave_picture(copied, pytest.fail)
    first = picture.read_bytes()
    assert first.startswith(PNG)
    leave_picture(copied, pytest.fail)
    assert picture.read_bytes() == first
    run(*TRAIN, "--resume", "--max-steps", "24", exits=0)
    assert picture.read_bytes() != first


@pytest.mark.usefixtures("drawing")
def test_a_training_that_diverges_leaves_it_too(here: Path, run: RunCommand) -> None:
    wild = ("--set", "train.learning_rate=100", "--set", "train.gradient_clip=null", "--set", "train.log_every=1")
    small = ("--set", "tokenizer.kind=byte", "--set", "train.sample_every=null")
    run(*TRAIN, "--max-steps", "100", *small, *wild, exits=6)
    assert Path("runs/smoke/loss.png").read_bytes().startswith(PNG)


@pytest.mark.usefixtures("drawing")
def test_a_picture_that_fails_is_one_warning(copied: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise RuntimeError("no ink")

    monkeypatch.setattr(picture, "draw_losses", fail)
    outcome = run(*TRAIN, "--resume", "--max-steps", "22", "--json", exits=0)
    assert outcome.err == "warning: the picture of the losses could not be made: no ink\n"
    assert json.loads(outcome.out)["steps"] == 22
    assert not (copied / "loss.png").exists()


@pytest.mark.long
def test_no_training_imports_matplotlib_before_its_end(here: Path) -> None:
    script = (
        "import sys\nfrom gpt_cli.cli.app import main\nfrom gpt_cli.cli import train_worker\n"
        "train_worker.leave_picture = lambda *_: None\n"
        f"assert main({list(TRAIN)!r}) == 0\nsys.exit('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
