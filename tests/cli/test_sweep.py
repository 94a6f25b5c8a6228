import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.faults import fingerprint, new_folder
from support.helpers import WAIT, RunCommand, run_command, small_config, wait_until
from support.light import WithoutTorch

import gpt_cli
from gpt_cli.checkpoints.lock import is_held
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.common.host import Host
from gpt_cli.common.language import chinese
from gpt_cli.distributed.environment import LAUNCHER
from gpt_cli.distributed.failure_detector import Launcher
from gpt_cli.errors import EnvironmentFailure
from gpt_cli.tools.sweeps import processes, request
from gpt_cli.tools.sweeps import sweep as work
from gpt_cli.tools.sweeps.processes import Jobs, _Job
from gpt_cli.tools.sweeps.sweep import share_machine
from gpt_cli.tools.sweeps.sweep_file import read_sweep
from gpt_cli.training.auto_config import auto_config
from gpt_cli.training.auto_config.model_sizes import cost_of

pytestmark = pytest.mark.slow

FILE = "base: c.yaml\ngrid:\n  train.learning_rate: [1e-3, 1e-2, 100]\n"


@pytest.fixture(name="folder")
def _folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a corpus, c.yaml and s.yaml, a sweep of three points; no step is timed for an estimate."""
    monkeypatch.setattr(auto_config, "reference_seconds", lambda _: 100.0)
    new_folder(here / "work", "model.d_model=4", "train.max_steps=16", "train.sample_every=null")
    monkeypatch.chdir(here / "work")
    Path("s.yaml").write_text(FILE)
    return here / "work"


@pytest.mark.usefixtures("sweeping_here")
def test_a_sweep_trains_each_point_and_sorts_them(
    folder: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third point diverges, which does not end the sweep; the same command again trains nothing."""
    Path("corpus.txt").write_text("A title\n\n" + Path("corpus.txt").read_text())
    outcome = run("sweep", "s.yaml", "--json", exits=0)
    rows = json.loads(outcome.out.splitlines()[-1])["runs"]
    assert [row["state"] for row in rows] == ["finished", "finished", "diverged"]
    losses = [row["validation_loss"] for row in rows[:2]]
    assert losses == sorted(losses)
    assert rows[2]["name"] == "s/002-learning_rate-100"
    assert rows[2]["settings"] == {"train.learning_rate": 100.0}
    listed = run("runs", "runs/s", "--json")
    assert {row["name"]: row["best_validation_loss"] for row in json.loads(listed.out)["runs"]} == {
        row["name"]: row["best_validation_loss"] for row in rows
    }
    for row in rows:
        metrics = Path(row["run"]) / "metrics.jsonl"
        assert json.loads(metrics.read_text().splitlines()[0])["step"] == 1
    before = {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*.*")}
    again = run("sweep", "s.yaml")
    best = rows[0]["run"]
    assert (again.code, again.err.splitlines()) == (
        0,
        [
            "all 3 runs had already ended",
            "the curves of all runs: runs/s/report.html",  # written before stdout, which may be full, gets the table
            "best: the lowest validation loss so far, of a run without a closing evaluation",
            f"next: gpt sample --run {best}",
        ],
    )
    assert [line.split()[0] for line in again.out.splitlines()[1:]] == [row["name"] for row in rows]
    changed = {path.name for path, at in before.items() if path.stat().st_mtime_ns != at}
    assert changed <= {"sweep.json", "report.html"}
    shutil.rmtree(rows[2]["run"])
    monkeypatch.setenv(LAUNCHER, str(os.getppid()))  # as its process would have it
    monkeypatch.setattr(Launcher, "watch", lambda _: None)
    said = run("sweep", "s.yaml").err
    assert "device      cpu" in said
    assert "002-learning_rate-100: diverged" in said
    assert "counts as one document" in outcome.err
    assert "counts as one document" not in said, "the first run has said it"


@pytest.mark.usefixtures("sweeping_here")
def test_repeats_give_a_mean_and_its_error_for_each_setting(folder: Path, run: RunCommand) -> None:
    rates = "grid: {train.learning_rate: [1e-3, 1e-2]}"
    Path("s.yaml").write_text(f"base: c.yaml\nrepeats: 2\nsettings: {{train.max_steps: 8}}\n{rates}\n")
    outcome = run("sweep", "s.yaml", "--json", "--quiet", exits=0)
    found = json.loads(outcome.out.splitlines()[-1])
    assert len(found["runs"]) == 4
    assert [mean["settings"] for mean in found["means"]] == [{"train.learning_rate": rate} for rate in (0.01, 0.001)]
    for mean in found["means"]:
        of_rate = [row for row in found["runs"] if mean["settings"].items() <= row["settings"].items()]
        seeds = sorted(row["settings"]["train.seed"] for row in of_rate)
        one, other = (row["validation_loss"] for row in of_rate)
        assert (mean["num_runs"], mean["unit"], seeds[1] - seeds[0]) == (2, "nats/token", 1)
        assert mean["mean"] == pytest.approx((one + other) / 2)
        assert mean["error"] == pytest.approx(abs(one - other) / 2)  # of two, their standard deviation over sqrt(2)
    *_, head, first, second = run("sweep", "s.yaml", "--quiet").out.splitlines()
    assert head.split() == ["mean", "nats/token", "runs", "settings"]
    best = found["means"][0]
    expected = [f"{best['mean']:.4f}", "±", f"{best['error']:.4f}", "2", "learning_rate=0.01"]
    assert first.split() == expected
    assert second.split()[-1] == "learning_rate=0.001"
    reported = json.loads(run("report", "s", "--json").out)
    for mean in (*reported["means"], *found["means"]):
        mean["of"] = dict(zip(mean.pop("seeds"), mean.pop("losses"), strict=True))
    assert reported["means"] == found["means"]


def test_another_file_for_the_same_directory_is_refused_with_the_difference(folder: Path, run: RunCommand) -> None:
    Path("runs/s").mkdir(parents=True)
    record = read_sweep(Path("s.yaml")).record
    older = dict(record) | {"base.data.max_expansion": "200"}  # a key of earlier versions is no difference
    Path("runs/s/sweep.json").write_text(json.dumps(older))
    Path("s.yaml").write_text(FILE.replace("100", "0.1") + "settings: {train.seed: 3}\n")
    outcome = run("sweep", "s.yaml", "--max-time", "5s")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.splitlines() == [
        'error: "s.yaml": grid.train.learning_rate was ["1e-3", "1e-2", "100"] in this sweep and is ["1e-3", "1e-2", "0.1"] now',
        'error: "s.yaml": max_time was not set in this sweep and is 5s now',
        'error: "s.yaml": settings.train.seed was not set in this sweep and is 3 now',
        "hint: undo the change, or begin another sweep: --out runs/s-2",
    ]
    Path("runs/s/sweep.json").write_text("[]")
    run("sweep", "s.yaml", exits=4)


def test_a_directory_with_files_of_others_is_refused(folder: Path, run: RunCommand) -> None:
    assert 'error: ".": it contains c.yaml, which no sweep wrote' in run("sweep", "s.yaml", "--out", ".", exits=2).err
    run("sweep", "s.yaml", "--out", "c.yaml", exits=2)
    assert not Path("runs").exists()


def test_a_dry_run_shows_the_points_and_writes_nothing(folder: Path, without_torch: WithoutTorch) -> None:
    done = without_torch("sweep", "s.yaml", "--dry-run", "--max-time", "20s", exits=0)
    assert done.stderr == "3 runs, about 20 s of steps and 4 s of start-up per run: about 1 min 12 s in total\n"
    assert done.stdout.splitlines() == [
        "run                            state  settings",
        "runs/s/000-learning_rate-1e-3  new    train.learning_rate=1e-3",
        "runs/s/001-learning_rate-1e-2  new    train.learning_rate=1e-2",
        "runs/s/002-learning_rate-100   new    train.learning_rate=100",
    ]
    assert sorted(os.listdir()) == ["c.yaml", "corpus.txt", "s.yaml"]


@pytest.mark.usefixtures("sweeping_here")
def test_how_long_a_sweep_takes_is_estimated_by_a_timed_step_and_then_by_its_runs(
    folder: Path, run: RunCommand
) -> None:
    """The reference has 2,048 tokens a step; the 16 steps here take as long as their tokens and their arithmetic."""
    planned = gpt_cli.sweep("s.yaml", dry_run=True)
    (config, *_) = read_sweep(Path("s.yaml")).configs
    tokens = 16 * (config.tokens_per_step + config.train.eval_tokens / config.train.eval_every / 3)
    cost = cost_of(4, config.model.num_blocks, 257) / cost_of(128, 4, 1024)  # tokens are bytes
    assert planned.as_dict()["seconds"] == pytest.approx(3 * (4 + 100 * tokens / 2048 * cost))
    Path("s.yaml").write_text(FILE.replace("[1e-3, 1e-2, 100]", "[1e-3, 1e-2]"))
    lines = run("sweep", "s.yaml").err.splitlines()
    assert lines[0].startswith("2 runs, about ")
    assert any(re.match(r"run 2 of 2, about [\d.]+ s left, runs/s/001-", line) for line in lines)
    assert gpt_cli.sweep("s.yaml", dry_run=True).as_dict()["seconds"] == 0


def test_the_time_of_a_run_is_its_own_and_not_that_of_the_sweep(folder: Path) -> None:
    point = cast("Any", SimpleNamespace(path=Path("runs/s/000")))
    jobs, ended = Jobs([], keeps_stderr=False), SimpleNamespace(poll=lambda: 0, returncode=0)
    jobs.running = [_Job(point, cast("Any", ended), {}, None, time.monotonic() - 30) for _ in range(2)]
    assert len(jobs.take_ended()) == 2
    assert 60 <= jobs.worked < 70


def test_as_many_runs_as_jobs_take_the_time_of_the_longest(folder: Path) -> None:
    """A run begins as soon as another has ended: of 3 runs of 20 s and 4 s of start, two are one after the other."""
    for jobs, seconds in ((1, 72), (2, 48), (3, 24), (8, 24)):
        assert gpt_cli.sweep("s.yaml", dry_run=True, max_time="20s", jobs=jobs).as_dict()["seconds"] == seconds


def test_a_mistake_is_found_before_anything_is_trained(folder: Path, without_torch: WithoutTorch) -> None:
    Path("s.yaml").write_text(FILE.replace("100", "fast"))
    done = without_torch("sweep", "s.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith('error: s.yaml:3: train.learning_rate: "fast" is not a number above 0')
    assert not Path("runs").exists()
    run_command("sweep", "missing.yaml", exits=2)


def test_runs_that_would_share_stdin_or_need_a_trained_model_are_refused(folder: Path, run: RunCommand) -> None:
    for key in ("source", "validation_source"):
        Path("s.yaml").write_text(FILE + f'settings: {{data.{key}: "-"}}\n')
        assert "error: s.yaml: data.source: many runs cannot read stdin" in run("sweep", "s.yaml", exits=2).err
    Path("s.yaml").write_text("base: smoke\ngrid: {train.rank: [4, 8]}\n")
    assert "error: s.yaml: a sweep trains new models, so train.rank" in run("sweep", "s.yaml", "--dry-run", exits=2).err


def test_a_missing_logger_is_found_before_the_first_run(
    folder: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    Path("s.yaml").write_text("base: c.yaml\ngrid: {train.log_to: [[], trackio]}\n")
    assert "error: train.log_to: the package of trackio is not installed" in run("sweep", "s.yaml", exits=5).err
    assert not Path("runs").exists()


def test_the_words_of_a_point_are_those_of_gpt_train(folder: Path) -> None:
    """With -P, or a torch.py in the working folder would run."""
    Path("s.yaml").write_text("base: c.yaml\nsettings: {data.source: [a, b]}\ngrid: {train.sample_every: [null]}\n")
    found = read_sweep(Path("s.yaml"), "5s")
    point = request.Point(Path("runs/s/000"), found.points[0], found.configs[0])
    words = processes.training_command(found, point, ["--quiet"])
    assert words == [
        *(sys.executable, "-P", "-m", "gpt_cli", "train", "--config", "c.yaml", "--out", "runs/s/000"),
        *("--set", 'data.source=["a", "b"]', "--set", "train.max_time=5s", "--set", "train.sample_every=null"),
        "--quiet",
    ]


def stand_in(monkeypatch: pytest.MonkeyPatch, code: Callable[[request.Point], str]) -> None:
    """Let each point run Python code in place of a training."""

    def command(_: object, point: request.Point, *__: object, **___: object) -> list[str]:
        return [sys.executable, "-S", "-c", code(point)]

    monkeypatch.setattr(processes, "training_command", command)


def test_a_point_that_fails_does_not_end_the_sweep(
    folder: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, lambda point: f"import sys; sys.exit({3 if '000' in point.path.name else 0})")
    outcome = run("sweep", "s.yaml", "--quiet", exits=3)
    assert outcome.err.splitlines() == [
        'error: "runs/s": 1 of 3 runs failed, the first with exit code 3: 000-learning_rate-1e-3',
        "hint: the same command tries them again",
    ]
    assert len(outcome.out.splitlines()) == 4  # the table is printed all the same


def test_each_line_about_a_point_says_what_its_directory_shows(
    folder: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose training wrote nothing is empty, not damaged; states are said in the language of the user."""
    stand_in(monkeypatch, lambda point: f"import os, sys; os.makedirs({str(point.path)!r}); sys.exit(3)")
    lines = run("sweep", "s.yaml").err.splitlines()
    assert "runs/s/000-learning_rate-1e-3: empty" in lines
    say = chinese().say
    assert say("runs/s/000: empty") == "runs/s/000：空"
    assert say("runs/s/000: finished") == "runs/s/000：已完成"
    ended = "runs/s/000: finished, validation loss 5.4341 ± 0.0161"
    assert say(ended) == "runs/s/000：已完成，验证损失 5.4341 ± 0.0161"
    stopped = "runs/s/000: stopped, validation loss 5.4970 (best so far)"
    assert say(stopped) == "runs/s/000：已停止，验证损失 5.4970（目前最低）"


def test_a_point_that_the_user_stops_ends_the_sweep(
    folder: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, lambda _: "import sys; sys.exit(143)")
    err = run("sweep", "s.yaml", "--quiet", "--jobs", "2", exits=143).err
    assert err == "warning: stopped by SIGTERM; continue: gpt sweep s.yaml --jobs 2\n"
    outcome = run("sweep", "s.yaml", "--quiet", exits=143)
    assert outcome.err == "warning: stopped by SIGTERM; continue: gpt sweep s.yaml\n"
    assert [line.split() for line in outcome.out.splitlines()[1:]] == [
        [f"s/{name}", "empty", "0", "bytes", f"train.learning_rate={value}"]
        for name, value in {
            "000-learning_rate-1e-3": "1e-3",
            "001-learning_rate-1e-2": "1e-2",
            "002-learning_rate-100": "100",
        }.items()
    ]


def test_python_says_nothing_but_warns_of_what_a_failed_training_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert gpt_cli.sweep("s.yaml", dry_run=True).as_dict()["runs"][1] == {
        "run": "runs/s/001-learning_rate-1e-2", "state": "new", "settings": {"train.learning_rate": 0.01}
    }  # fmt: skip
    stand_in(monkeypatch, lambda point: f"import sys; sys.exit('full' if '000' in {point.path.name!r} else 0)")
    with pytest.warns(UserWarning, match="runs/s/000-learning_rate-1e-3: full"):
        found = gpt_cli.sweep("s.yaml")
    assert isinstance(found, work.Swept)
    assert [(point.path.name, code) for point, code in found.failed] == [("000-learning_rate-1e-3", 1)]
    assert "1 of 3 runs failed" in str(found.failure())
    assert [row["state"] for row in found.as_dict()["runs"]] == ["empty"] * 3
    assert capfd.readouterr() == ("", "")


def test_jobs_run_at_once(folder: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two waits for the file that the other makes."""
    monkeypatch.setattr(work, "cores", lambda: 4)
    Path("s.yaml").write_text(FILE.replace(", 100", ""))
    stand_in(
        monkeypatch,
        lambda point: (
            "import os, time; from pathlib import Path\n"
            f"Path('{point.path.name[:3]}').write_text(os.environ['OMP_NUM_THREADS'] + ' ' + os.environ['{LAUNCHER}'])\n"
            "while not (Path('000').exists() and Path('001').exists()): time.sleep(0.01)"
        ),
    )
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert run("sweep", "s.yaml", "--jobs", "2", exits=0).err.startswith("2 runs at once, each with 2 threads\n")
    assert (Path("000").read_text(), Path("001").read_text()) == (f"2 {os.getpid()}",) * 2


CUDA = "CUDA_VISIBLE_DEVICES"


def test_jobs_share_cores_or_have_a_gpu_each() -> None:
    on_cpu = [small_config()]
    on_any = [small_config("train.device=auto")]
    assert share_machine(2, on_cpu, 5, 0, {}, CUDA) == [{"OMP_NUM_THREADS": "2"}] * 2
    assert share_machine(2, on_cpu, 4, 0, {"OMP_NUM_THREADS": "1"}, CUDA) == [{"OMP_NUM_THREADS": "1"}] * 2
    assert share_machine(2, on_cpu, 4, 0, {"OMP_NUM_THREADS": ""}, CUDA) == [{"OMP_NUM_THREADS": "2"}] * 2
    assert [share["CUDA_VISIBLE_DEVICES"] for share in share_machine(2, on_any, 4, 2, {}, CUDA)] == ["0", "1"]
    asked = {"CUDA_VISIBLE_DEVICES": "5,7"}
    assert [share["CUDA_VISIBLE_DEVICES"] for share in share_machine(2, on_any, 4, 2, asked, CUDA)] == ["5", "7"]


def test_on_amd_gpus_jobs_share_the_variable_that_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.version.hip", "7.2")
    monkeypatch.setattr("gpt_cli.common.machine.devices.accelerator", lambda: SimpleNamespace(type="cuda"))
    monkeypatch.setattr("torch.accelerator.device_count", lambda: 2)
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "5,7")
    monkeypatch.setattr(work, "cores", lambda: 2)
    shares = work._shares(2, [small_config("train.device=auto")], Host())
    assert [share["HIP_VISIBLE_DEVICES"] for share in shares] == ["5", "7"]
    assert not any("HIP_VISIBLE_DEVICES" in share for share in work._shares(2, [small_config()], Host()))  # on the CPU


@pytest.mark.parametrize(
    ("jobs", "settings", "gpus", "sentence", "hint"),
    [
        (3, [], 0, "3 runs at once need a core each, but this program may use 2 cores", "‹jobs=2›"),
        (2, ["train.threads=2"], 0, "2 runs at once need 2 cores each, but this program may use 2 cores", "‹jobs=1›"),
        (2, ["train.device=auto"], 1, "2 runs at once need a GPU each, but torch finds 1 GPU", "‹jobs=1›"),
        (2, ["train.device=cuda:1"], 4, "2 runs at once would share the one GPU that train.device names, cuda:1", None),
    ],
)
def test_more_jobs_than_the_machine_allows_are_refused(
    jobs: int, settings: list[str], gpus: int, sentence: str, hint: str | None
) -> None:
    with pytest.raises(EnvironmentFailure) as raised:
        share_machine(jobs, [small_config(*settings)], 2, gpus, {}, CUDA)
    assert raised.value.where == "‹jobs›"
    assert raised.value.sentence.startswith(sentence)
    assert raised.value.hint == hint


def begun(*words: str) -> subprocess.Popen[str]:
    """`gpt sweep` in a process group of its own, so that a signal reaches it alone."""
    return subprocess.Popen(
        [sys.executable, "-m", "gpt_cli", "sweep", *words], stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def steps(run: RunDirectory) -> int:
    return len(run.metrics.read_text().splitlines()) if run.metrics.exists() else 0


@pytest.mark.long
def test_a_sweep_that_is_killed_and_stopped_goes_on_where_it_was(folder: Path, run: RunCommand) -> None:
    """Killed with -9 in its first run, whose training saves and ends by itself; stopped by INT; then continued."""
    # steps that take long enough to be met, and few files
    slow = {"batch_size": 64, "max_steps": 60, "eval_every": 30, "save_every": 30, "learning_rate": 1e-3}
    settings = [f"train.{key}={value}" for key, value in slow.items()]
    whole = [word for setting in settings for word in ("--set", setting)]
    # in a process of its own, as those of the sweep are, with as many threads
    command = [sys.executable, "-m", "gpt_cli", "train", "--config", "c.yaml", "--out", "whole", "--quiet", *whole]
    assert subprocess.run(command).returncode == 0
    lines = [f"  {setting.replace('=', ': ')}\n" for setting in settings[:-1]]
    Path("s.yaml").write_text(f"base: c.yaml\nsettings:\n{''.join(lines)}grid: {{train.learning_rate: [1e-3]}}\n")
    point = RunDirectory(Path("runs/s/000-learning_rate-1e-3"))
    with begun("s.yaml", "--quiet") as killed:
        wait_until("the first run does not begin", lambda: steps(point) > 3)
        killed.kill()
    wait_until("the training outlives the sweep", lambda: not is_held(point.path))
    at_kill = json.loads(point.outcome.read_text())
    assert at_kill["stopped_by"] == "signal"
    assert at_kill["step"] in point.steps()

    with begun("s.yaml", "--quiet") as stopped:
        wait_until("the first run does not go on", lambda: steps(point) > at_kill["step"] + 3)
        stopped.send_signal(signal.SIGINT)
        _, err = stopped.communicate(timeout=WAIT)
    assert stopped.returncode == 130
    assert "warning: stopped by SIGINT; continue: gpt sweep s.yaml" in err
    assert not is_held(point.path)
    at_stop = json.loads(point.outcome.read_text())
    assert (at_stop["stopped_by"], at_stop["step"] > at_kill["step"]) == ("signal", True)

    run("sweep", "s.yaml", "--quiet", exits=0)
    assert fingerprint(point.path) == fingerprint(Path("whole"))


def test_a_report_that_fails_does_not_end_the_sweep(
    folder: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "")

    monkeypatch.setattr(work, "read_record", refuse)
    monkeypatch.setattr(work, "train_points", lambda *_: processes.Jobs([], keeps_stderr=False))
    new_run = folder / "runs/s/000-learning_rate-1e-3"
    (new_run / "checkpoints").mkdir(parents=True)
    shutil.copy("c.yaml", new_run / "config.yaml")
    Path("runs/s/sweep.json").write_text(json.dumps(dict(read_sweep(Path("s.yaml")).record)))
    assert "warning: permission is denied; there is no report of this sweep\n" in run("sweep", "s.yaml", exits=0).err


def test_two_sweeps_of_one_directory_exclude_each_other(folder: Path, run: RunCommand) -> None:
    with work.sole_trainer(Path("runs/s"), pytest.fail, "sweep"):
        outcome = run("sweep", "s.yaml")
    assert outcome.code == 5
    assert "is training this sweep, and only one process may train a sweep" in outcome.err
