import errno
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from support.helpers import RunCommand, _Standard
from support.light import WithoutTorch

import gpt_cli
from gpt_cli.checkpoints.lock import sole_trainer
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.common.tables import cut, narrow_table
from gpt_cli.common.units import age, quantity
from gpt_cli.errors import CheckpointError


@pytest.fixture(name="runs")
def _runs(copied: Path) -> Path:
    """runs/ with a finished run, a diverged one and a damaged one, and a sweep of one run that a signal stopped."""
    root = copied.parent
    for name in ("wild", "broken", "sweep/000-a"):
        shutil.copytree(copied, root / name)
    RunDirectory(root / "wild").end("diverged", 15)
    (root / "broken" / "config.yaml").unlink()
    RunDirectory(root / "sweep" / "000-a").end("signal", 12)
    return root


def names(out: str) -> list[str]:
    return [line.split()[0] for line in out.splitlines()[1:]]


def test_a_row_for_each_run_those_of_a_sweep_last(runs: Path, run: RunCommand) -> None:
    outcome = run("runs", exits=0)
    assert outcome.err == "best: the lowest validation loss so far, of a run without a closing evaluation\n"
    head, *rows = outcome.out.splitlines()
    assert head.split("  ")[0] == "name"
    cells = {row.split()[0]: row.split() for row in rows}
    assert list(cells) == ["broken", "smoke", "wild", "sweep/000-a"]
    ended = json.loads((runs / "smoke" / "outcome.json").read_text())
    loss, error, bits = (f"{ended[name]:.4f}" for name in ("validation_loss", "validation_loss_error", "bits_per_byte"))
    assert cells["smoke"][1:8] == ["finished", "20/20", loss, "±", error, bits, "59.1"]
    best = json.loads((runs / "wild" / "metrics.jsonl").read_text().splitlines()[-1])
    assert cells["wild"][3:6] == ["best", f"{best['validation_loss']:.4f}", f"{best['bits_per_byte']:.4f}"]
    assert cells["smoke"][-1] == "smoke"
    assert (cells["wild"][1], cells["wild"][2]) == ("diverged", "15/20")
    assert (cells["sweep/000-a"][1], cells["sweep/000-a"][2]) == ("stopped", "12/20")
    assert "damaged" in cells["broken"]
    assert "this file of the run is missing" in next(row for row in rows if row.startswith("broken"))


def test_json_has_everything_whole(runs: Path, run: RunCommand) -> None:
    found = {row["name"]: row for row in json.loads(run("runs", "--json").out)["runs"]}
    smoke = found["smoke"]
    assert set(smoke) == {
        *("run", "name", "state", "stopped_by", "steps", "max_steps", "max_time", "best_validation_loss"),
        *("validation_loss", "validation_loss_error", "bits_per_byte", "parameters", "bytes", "changed"),
        *("age_seconds", "config", "differs", "problem"),
    }
    assert (smoke["run"], smoke["state"], smoke["stopped_by"]) == ("runs/smoke", "finished", "steps")
    assert (smoke["steps"], smoke["max_steps"], smoke["config"], smoke["differs"]) == (20, 20, "smoke", {})
    assert "is missing" in found["broken"]["problem"]
    assert found["broken"]["best_validation_loss"] is None


def test_python_has_what_json_prints_and_removes_without_a_question(runs: Path, run: RunCommand) -> None:
    found = gpt_cli.runs(sort="steps", state="diverged")
    (row,) = json.loads(run("runs", "--sort", "steps", "--state", "diverged", "--json").out)["runs"]
    assert {**found.as_dict()["runs"][0], "age_seconds": 0} == {**row, "age_seconds": 0}
    assert "best: the lowest validation loss so far" in found.as_text()
    assert gpt_cli.remove_runs("wild").as_text() == "removed runs/wild"
    assert gpt_cli.runs(state="diverged").as_text() == 'none of 3 runs in "runs" is diverged'
    with pytest.raises(CheckpointError, match="there is no such run"):
        gpt_cli.remove_runs(["wild", "smoke"])


def test_rows_are_sorted_and_filtered(runs: Path, run: RunCommand) -> None:
    os.utime(runs / "smoke" / "outcome.json", (time.time() + 60, time.time() + 60))
    assert names(run("runs", "--sort", "age").out)[0] == "smoke"
    assert names(run("runs", "--sort", "steps").out) == ["smoke", "wild", "sweep/000-a", "broken"]
    assert names(run("runs", "--sort", "loss").out)[-1] == "broken"  # of which none is known
    assert names(run("runs", "--state", "diverged").out) == ["wild"]
    assert names(run("runs", "runs/sweep").out) == ["sweep/000-a"]  # the name that other commands take
    assert names(run("runs", "--state", "stopped", "runs/sweep").out) == ["sweep/000-a"]
    nothing = run("runs", "--state", "training")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", 'none of 4 runs in "runs" is training\n')


def test_without_runs_it_says_how_to_get_one(here: Path, run: RunCommand) -> None:
    outcome = run("runs")
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err == 'there are no runs in "runs"; gpt train --data my.txt trains one\n'
    assert json.loads(run("runs", "--json").out) == {"runs": []}
    run("runs", "elsewhere", exits=4)


def test_neither_listing_nor_removing_loads_torch(runs: Path, without_torch: WithoutTorch) -> None:
    assert without_torch("runs").returncode == 0
    assert without_torch("runs", "rm", "wild", "--yes").returncode == 0


@pytest.fixture
def _on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Standard, "isatty", lambda _: True)


def test_a_narrow_terminal_shows_state_loss_age_and_what_differs(runs: Path) -> None:
    (runs / "sweep" / "000-a").rename(runs / "sweep" / "003-learning_rate-3e-4-dropout-0.1-context_length-16")
    found = gpt_cli.runs()
    for width in (40, 60, 80, 100, 120):
        lines = found.table(width).splitlines()
        assert all(len(line) <= width for line in lines)
        if width >= 60:
            head = lines[0].split()
            assert [*head[:4], head[-1]] == ["name", "state", "steps", "loss", "age"]
            assert lines[1] == "    differs from the shipped config"
            swept = next(line for line in lines if line.startswith("sweep/"))
            assert "…" in swept.split()[0]
            assert swept.split()[1:5] == ["stopped", "12/20", "best", "5.4970"]
            assert lines[lines.index(swept) + 1].split() == ["smoke"]
        assert ("size" in lines[0]) == (width >= 80)
        assert ("bits/byte" in lines[0]) == (width >= 100)


@pytest.mark.parametrize(
    ("width", "head"), [(60, "name loss bits age"), (48, "name loss age"), (28, "name loss"), (24, "name loss")]
)
def test_columns_give_way_so_that_names_stay_distinct(width: int, head: str) -> None:
    names = ["induction", "indexed", *(f"rates-00{number}-learning_rate-1e-3-dropout-0" for number in (1, 2))]
    rows = [
        ("name", "loss", "bits", "age", "about"),
        *((name, "3.3530 ± 0.1", "1.6599", "12 s", "-") for name in names),
    ]
    lines = narrow_table(rows, width, ["bits"], ["age"]).split("\n")[::2]
    assert lines[0].split() == head.split()
    assert len({line.split()[0] for line in lines}) == 5
    assert all(len(line) <= width for line in lines)


@pytest.mark.usefixtures("_on_a_terminal")
def test_a_terminal_has_the_table_of_its_width(runs: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    for width in (60, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        shown, expected = run("runs").out.splitlines(), gpt_cli.runs().table(width).splitlines()
        assert (len(shown), shown[0].split()) == (len(expected), expected[0].split())
    assert len(shown) == 5, "a line for the heading and each run, as in a pipe"


def _closed(path: Path, loss: float, bits: float) -> None:
    """Let a run have ended with a closing loss."""
    outcome = json.loads((path / "outcome.json").read_text())
    (path / "outcome.json").write_text(json.dumps(outcome | {"validation_loss": loss, "bits_per_byte": bits}))


def test_runs_are_ranked_by_their_closing_loss(copied: Path, run: RunCommand) -> None:
    """Whatever the evaluations found while they trained, which here is the same for all."""
    for name, loss in (("a", 5.2), ("b", 5.9), ("c", 5.1)):
        shutil.copytree(copied, copied.parent / name)
        _closed(copied.parent / name, loss, loss / 2)
    shutil.rmtree(copied)
    assert names(run("runs", "--sort", "loss").out) == ["c", "a", "b"]
    (copied.parent / "c" / "outcome.json").unlink()  # its best evaluation has 5.4970
    assert names(run("runs", "--sort", "loss").out) == ["a", "c", "b"]


def test_runs_of_different_tokenizers_are_ranked_by_bits_per_byte(copied: Path, run: RunCommand) -> None:
    flags = ["--set", "tokenizer.kind=byte", "--max-steps", "2", "--out", "runs/bytes", "--quiet"]
    run("train", "--config", "smoke", *flags, exits=0)
    _closed(copied, 5.4, 3.0)
    _closed(copied.parent / "bytes", 2.6, 3.5)
    found = run("runs", "--sort", "loss")
    assert names(found.out) == ["smoke", "bytes"]
    notice = "the tokenizers of these runs differ, so bits/byte compares and ranks them, not the loss per token"
    assert found.err == f"{notice}\n"
    assert "bits/byte" in gpt_cli.runs().table(80).splitlines()[0]
    reported = run("report", "smoke", "bytes")
    assert "nats/token" not in reported.out
    assert reported.err.startswith("the tokenizers of these runs differ, so the report compares bits per byte")


def test_a_run_does_not_hide_others_and_a_newer_one_below_a_directory_is_the_newest(
    copied: Path, run: RunCommand
) -> None:
    refused = run("train", "--config", "smoke", "--out", "runs", exits=2)
    assert refused.err.startswith(
        'error: "runs": this directory contains runs, which a new run would hide\nhint: --out '
    )
    assert run("train", "--config", "smoke", "--out", "runs", "--resume", exits=2).err == refused.err
    run("export", "--run", copied, "--out", "hf", "--quiet", exits=0)
    assert run("import", "hf", "--out", "runs", exits=2).err == refused.err
    shutil.copytree(copied, "runs/swept/a")
    os.utime("runs/swept/a/checkpoints", (2**31, 2**31))
    assert run("eval", "--max-tokens", "64", exits=0).out.splitlines()[1].startswith("runs/swept/a ")


def test_an_imported_run_has_no_number_of_steps_to_go(copied: Path, run: RunCommand) -> None:
    run("export", "--run", copied, "--out", "hf", "--quiet", exits=0)
    config = json.loads(Path("hf/config.json").read_text())
    config["gpt_cli"]["config"]["train"]["batch_size"] = 2
    Path("hf/config.json").write_text(json.dumps(config))
    run("import", "hf", "--out", "runs/imported", "--quiet", exits=0)
    row = next(line for line in run("runs").out.splitlines() if line.startswith("imported"))
    assert row.split()[1:3] == ["imported", "0"]
    assert row.endswith("  smoke")  # a batch, of a training that gpt knows nothing of, is no difference
    (of_report,) = json.loads(run("report", "runs/imported", "--json").out)["runs"]
    assert of_report["differs"] == {}
    assert "gpt has no training settings for it" in run("info", "runs/imported", "--ranks", "2", exits=2).err


@pytest.mark.usefixtures("_on_a_terminal")
def test_removing_asks_on_a_terminal(runs: Path, run: RunCommand) -> None:
    assert "nothing was removed" in run("runs", "rm", "wild", stdin=b"n\n").err
    assert (runs / "wild").exists()
    asked = run("runs", "rm", "wild", "sweep/000-a", stdin=b"y\n").err
    assert "remove 2 runs (runs/wild, runs/sweep/000-a), " in asked
    assert not (runs / "wild").exists()
    assert not (runs / "sweep" / "000-a").exists()
    assert (runs / "smoke").exists()


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.ENOSPC])
def test_a_run_is_removed_where_nothing_can_be_written(
    number: int, runs: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def refuse(path: str, flags: int, *more: int, **named: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(number, "full")
        return opened(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refuse)
    assert run("runs", "rm", "smoke", "--yes", exits=0).out == "removed runs/smoke\n"


def test_elsewhere_it_removes_only_with_yes(runs: Path, run: RunCommand) -> None:
    outcome = run("runs", "rm", "wild")
    assert (outcome.code, (runs / "wild").exists()) == (2, True)
    assert "it can ask only on a terminal; --yes removes without asking" in outcome.err
    assert run("runs", "rm", "wild", "runs/broken", "--yes", exits=0).out == "removed runs/wild\nremoved runs/broken\n"
    assert sorted(path.name for path in runs.iterdir()) == ["smoke", "sweep"]


def test_a_run_that_is_trained_is_never_removed(runs: Path, run: RunCommand) -> None:
    with sole_trainer(runs / "wild", pytest.fail):
        outcome = run("runs", "rm", "smoke", "wild", "--yes")
    assert (outcome.code, outcome.out) == (5, "")
    assert "this run is being trained" in outcome.err
    assert (runs / "smoke" / "config.yaml").exists()  # all are checked before the first is removed


def test_what_a_run_wrote_goes_with_it_and_files_of_others_stay_and_are_named(runs: Path, run: RunCommand) -> None:
    wild = runs / "wild"
    for name, content in {
        ".metrics.jsonl.7.0a1b2c3d.tmp": "half",
        "loss.png": "",
        "attention/step-00000025.safetensors": '12345678{"__metadata__":{"gpt-cli attention snapshot 1":',
        "logs/wandb/sent.jsonl": '{"run": "a", "step": 0}',
        "logs/wandb/wandb/run-1/a.wandb": "ours",
    }.items():
        (wild / name).parent.mkdir(parents=True, exist_ok=True)
        (wild / name).write_text(content)
    shutil.copytree(wild, runs / "beside")
    (runs / "beside" / "logs" / "mine").mkdir()
    mine = ["attention/mine.png", "checkpoints/mine.safetensors", "notes.txt"]
    for name in mine:
        (runs / "beside" / name).write_text("mine")
    assert run("runs", "rm", "wild", "--yes").err == ""
    assert not wild.exists()
    outcome = run("runs", "rm", "beside", "--yes", exits=0)
    kept = "attention, checkpoints, logs, notes.txt"
    assert outcome.err == f"warning: runs/beside stays: it also contains {kept}, which no run wrote\n"
    left = {str(path.relative_to(runs / "beside")) for path in (runs / "beside").rglob("*")}
    assert left == {"attention", "checkpoints", "logs", "logs/mine", *mine}


def test_what_is_no_run_is_never_touched(runs: Path, here: Path, run: RunCommand) -> None:
    (here / "folder").mkdir()
    (here / "folder" / "checkpoints").mkdir()
    for name in ("config.yaml", "metrics.jsonl", "samples.txt", "loss.png", "checkpoints/last.ckpt"):
        (here / "folder" / name).write_text("trainer: true\n")  # as PyTorch Lightning does
    (here / "link").symlink_to(runs / "smoke")
    before = sorted(here.rglob("*"))
    for name, sentence in {
        "folder": "this is not a run",
        "sweep": "this is not a run but a directory of 1 run",
        "link": "this is a link",
        "nothing": "there is no such run",
        ".": "this is not a run",
    }.items():
        assert sentence in run("runs", "rm", name, "smoke", "--yes", exits=4).err
    for command in ("train --config smoke --overwrite --out", "train --resume --out", "report", "eval --run"):
        assert run(*command.split(), "folder").code in (2, 4)
    assert run("runs", "folder").err == 'there are no runs in "folder"; gpt train --data my.txt trains one\n'
    assert sorted(here.rglob("*")) == before


def test_what_a_kill_left_at_the_very_start_is_listed_and_removed(runs: Path, run: RunCommand) -> None:
    (runs / "killed" / "checkpoints").mkdir(parents=True)
    (runs / "killed" / ".lock").write_text("process 7 on a since today\n")
    assert [line.split()[1] for line in run("runs").out.splitlines() if line.startswith("killed")] == ["empty"]
    assert run("runs", "rm", "killed", "--yes").out == "removed runs/killed\n"
    assert not (runs / "killed").exists()


def test_a_file_of_others_in_a_run_stays_whatever_its_name(runs: Path, run: RunCommand) -> None:
    for name, content in {"metrics.jsonl": "epoch,loss\n", "config.yaml": "trainer: 1\n"}.items():
        shutil.copytree(runs / "smoke", runs / "mixed", dirs_exist_ok=True)
        (runs / "mixed" / name).write_text(content)
        for flag in ("--overwrite", "--resume"):
            refused = run("train", "--config", "smoke", "--out", "runs/mixed", flag, exits=2)
            assert f"it contains {name}, which no run wrote" in refused.err
        outcome = run("runs", "rm", "mixed", "--yes")
        assert outcome.out == "removed the run in runs/mixed\n"
        assert outcome.err == f"warning: runs/mixed stays: it also contains {name}, which no run wrote\n"
        assert [path.name for path in (runs / "mixed").iterdir()] == [name]
        (runs / "mixed" / name).unlink()


def test_a_star_names_a_whole_sweep_whose_directory_goes_with_its_last_run(runs: Path, run: RunCommand) -> None:
    (runs / "sweep" / "sweep.json").write_text('{\n "base": "smoke"\n}\n')
    (runs / "sweep" / "report.html").write_text('<!doctype html>\n<html lang="en">')
    everything = [str(path) for path in (runs / "sweep").iterdir()]
    (runs / "sweep" / ".lock").write_text("process 7 on a since 2026\n")  # of a killed sweep
    assert json.loads(run("report", *everything, "--json").out)["runs"][0]["name"] == "sweep/000-a"
    assert run("runs", "rm", *everything, "--yes").out == "removed runs/sweep/000-a\n"
    assert not (runs / "sweep").exists()


def test_a_name_means_a_run_below_runs_where_there_is_no_such_path(runs: Path, here: Path, run: RunCommand) -> None:
    shutil.copytree(runs / "smoke", here / "wild")
    assert run("runs", "rm", "wild", "--yes").out == "removed wild\n"
    run("runs", "rm", "./wild", "--yes", exits=4)
    (here / "wild").mkdir()  # its text, perhaps: a folder that is no run hides none
    (here / "wild" / "novel.txt").touch()
    assert run("runs", "rm", "wild", "--yes").out == "removed runs/wild\n"


def test_every_command_takes_the_name_of_a_run(runs: Path, run: RunCommand) -> None:
    Path("short.txt").write_text("The value of a name. " * 99)
    for folder in ("wild", "smoke", "sweep/000-a"):  # of which none is a run
        Path(folder).mkdir(parents=True)
    for command in (
        "runs sweep",
        "report sweep",
        "info wild --json",
        "eval --run sweep/000-a",
        "sample --run wild --prompt The --max-new-tokens 1",
        "attn-dump --run wild --prompt The",
        "explain --run wild --prompt The",
        "heads --run wild --data short.txt",
        "export --run wild --out exported",
        "train --config smoke --init-from wild --max-steps 1 --set train.warmup_steps=0 --out begun",
    ):
        run(*command.split(), "--quiet", exits=0)


def test_a_name_that_is_nearly_right_is_told_the_right_one(runs: Path, run: RunCommand) -> None:
    for command, right in {
        "runs sweeep": "runs/sweep",
        "report sweeep": "runs/sweep",
        "runs rm widl": "runs/wild",
        "sample --prompt x --run runs/wild/checkpoints": "runs/wild",
        "sample --prompt x --run runs/wild/config.yaml": "runs/wild",
    }.items():
        assert run(*command.split()).err.splitlines()[-1] == f"hint: did you mean {right}?"
    assert "hint: did you mean runs/smoke? else the shipped config smoke\n" in run("info", "smok").err
    assert "hint: did you mean latent? shipped configs" in run("info", "latnt").err
    Path("latent").mkdir()  # hides no config either
    run("info", "latent", exits=0)


def test_a_folder_of_runs_that_is_a_run_itself_breaks_no_hint(copied: Path, run: RunCommand) -> None:
    for path in list(copied.iterdir()):
        path.rename(copied.parent / path.name)
    for command in ("runs nope", "report nope"):
        assert '"nope": there is no such' in run(*command.split(), exits=4).err


def test_numbers_as_people_write_them() -> None:
    assert [quantity(number) for number in (12, 25_088, 1_049_728)] == ["12", "25.1 k", "1.05 M"]
    assert [age(seconds) for seconds in (-1, 42, 200, 7300, 1e6)] == ["0 s", "42 s", "3 min", "2 h", "11 d"]
    assert [cut("字字字字", width) for width in (8, 6, 4)] == ["字字字字", "字字…", "字…"]


def test_a_row_shows_few_of_many_settings_that_differ_beginning_with_text_and_time(runs: Path, run: RunCommand) -> None:
    config = runs / "wild" / "config.yaml"
    written = config.read_text()
    for old, new in {
        "num_heads: 2": "num_heads: 4",
        "dropout: 0.1": "dropout: 0.2",
        "batch_size: 8": "batch_size: 9",
        "max_steps: 20": "max_steps: 21",
        "log_every: 5": "log_every: 6",
        "seed: 1337": "seed: 7",
        "source: python-docs": "source: my.txt",
    }.items():
        assert old in written
        written = written.replace(old, new)
    config.write_text(written)
    os.utime(config, (2**31, 2**31))
    row = next(row for row in run("runs").out.splitlines() if row.startswith("wild"))
    assert row.endswith("smoke: source=my.txt num_heads=4 dropout=0.2 batch_size=9 max_steps=21 and 2 more")
