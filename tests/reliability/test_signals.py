"""At any time, a signal saves the run and sets the exit code, and `gpt train` prints nothing but what the signal did."""

import random
import shutil
import signal
from pathlib import Path

import pytest
from support.faults import ENDLESS, RESUME, START, fingerprint, in_parallel, new_folder, scaled, strays
from support.forks import Ended, Servers

from gpt_cli.checkpoints.run_directory import RunDirectory

NAMES = {130: "SIGINT", 143: "SIGTERM", 129: "SIGHUP"}


def test_signals_at_any_time(tmp_path: Path, servers: Servers, tally) -> None:
    template = new_folder(tmp_path / "template", "train.max_steps=20")
    whole = shutil.copytree(template, tmp_path / "whole")
    length = servers.gpt(whole, *START).seconds
    expected = fingerprint(whole / "run")
    draw = random.Random(0)
    count = scaled(200, 4)
    plans = [(draw.uniform(0, length), draw.choice((2, 15, 1)), draw.random() < 0.2) for _ in range(count)]
    latencies: list[float] = []

    def signalled(number: int) -> None:
        after, name, twice = plans[number]
        folder = shutil.copytree(template, tmp_path / str(number))
        ended = servers.gpt(folder, *START, signals=[(after, name), *([(0.01, signal.SIGTERM)] if twice else [])])
        assert ended.code in (0, *NAMES), ended.err
        assert "Traceback" not in ended.err
        assert "ignored" not in ended.err
        if ended.code in NAMES:
            latencies.append(ended.seconds_after_signal)
            # before it listens, and after it is done, the command does not mention the signal
            cause = "Ctrl-C" if ended.code == 130 else NAMES[ended.code]
            reported = f"stopped by {cause}; " in ended.err or f"stopped by {NAMES[ended.code]} before" in ended.err
            reported |= twice and ended.code == 143 and "stopped by " in ended.err  # TERM came after the sentence
            assert reported or ended.err == "" or "next: gpt sample" in ended.err, ended.err
        servers.gpt(folder, *RESUME, exits=0)
        assert fingerprint(folder / "run") == expected
        assert strays(folder / "run") == []
        shutil.rmtree(folder)

    in_parallel(signalled, range(count))
    assert latencies
    tally(f"signals at random times, at most {max(latencies):.2f} s until the end: state valid, same weights", count)


def test_the_printed_command_resumes_the_run_although_stdout_is_gone(tmp_path: Path, servers: Servers) -> None:
    folder = new_folder(tmp_path / "a", *ENDLESS)
    directory = RunDirectory(folder / "my run")
    begin = ("train", "--config", "c.yaml", "--out", "my run")
    # as after closing a terminal, or when Ctrl-C ends the reader of a pipe too
    gone = {"signals": [(directory.metrics.exists, signal.SIGHUP)], "stdout": "/dev/full"}
    ended = servers.gpt(folder, *begin, **gone, exits=129)
    line = ended.err.splitlines()[-1]
    assert line.startswith("stopped by SIGHUP; step ")
    assert line.endswith(" is saved. To continue: gpt train --out 'my run' --resume")
    step = int(line.split()[4])
    settings = ("--set", "train.save_every=1", "--set", "train.keep_checkpoints=9999")
    signals = [(directory.step_file(step + 1).exists, signal.SIGTERM)]
    ended = servers.gpt(folder, "train", "--out", "my run", "--resume", *settings, signals=signals, exits=143)
    assert f"resuming my run at step {step}" in ended.err


@pytest.mark.long
def test_a_second_signal_does_not_wait_for_the_first(tmp_path: Path, servers: Servers) -> None:
    """A step takes long here, most of it in one call of torch. The old checkpoint stays."""

    def signalled(name: str, *more: tuple[float, int]) -> tuple[Ended, RunDirectory]:
        long = ("train.batch_size=8192", "train.micro_batch_size=8192", "model.num_blocks=6")
        folder = new_folder(tmp_path / name, *ENDLESS, *long, "train.save_every=1")
        directory = RunDirectory(folder / "run")
        in_second_step = [(directory.step_file(1).exists, 0), (0.1, signal.SIGINT)]
        at_once = {"gpt_cli.cli.signals.SAME_REQUEST_SECONDS": 0}  # a quick machine ends the step within that time
        return servers.gpt(folder, *START, signals=[*in_second_step, *more], constants=at_once), directory

    slow, finished = signalled("slow")
    fast, aborted = signalled("fast", (0.2, signal.SIGINT))
    assert (slow.code, fast.code) == (130, 130)
    assert "stopped by Ctrl-C; step 2 is saved. To continue: " in slow.err
    assert "ended by a second signal, SIGINT, without saving the last steps; resume: gpt train" in fast.err
    assert strays(tmp_path / "fast") == []
    assert (list(finished.steps()), list(aborted.steps())) == ([1, 2], [1])
    assert fast.seconds_after_signal < slow.seconds_after_signal / 2
    assert aborted.newest(pytest.fail) is not None
