"""Faults seeded into the package, each with the tests that must notice it.

A mutant is a file, the code that stands there once, the code put in its place, and the tests. That the code stands
there is checked on every run of the tests; that the tests notice is checked by `make test-long`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """What goes wrong, where, how, and which tests (pytest's own words) must fail."""

    wrong: str
    file: str
    code: str
    instead: str
    tests: tuple[str, ...]


KILLS = ("tests/reliability/test_kills.py", "-k", "file_operation")
POWER_CUT = ("tests/reliability/test_power_cut.py",)
STOPS = ("tests/reliability/test_stops.py", "-k", "stopped")
WATCHING = ("tests/reliability/test_stops.py", "-k", "watching")
SIGNALS = ("tests/cli/test_signals.py",)
DAMAGE = ("tests/reliability/test_damage.py",)
COMPANY = ("tests/reliability/test_company.py",)
LOOP = ("tests/training/test_loop.py",)

MUTANTS = (
    Mutant(
        "a file is renamed before its content is safe", "files.py",
        "            os.fsync(descriptor)\n        os.replace(", "            pass\n        os.replace(", POWER_CUT,
    ),
    Mutant(
        "a rename is not made durable", "files.py",
        "        os.replace(temporary, path)\n        _sync(path.parent)", "        os.replace(temporary, path)", POWER_CUT,
    ),
    Mutant(
        "a file is written in place", "files.py",
        "        os.replace(temporary, path)\n        _sync(path.parent)",
        "        with _opened(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY) as descriptor:\n"
        "            _write_all(descriptor, temporary.read_bytes())\n            os.fsync(descriptor)", POWER_CUT,
    ),
    Mutant(
        "a new directory is not made durable", "files.py",
        "                        raise\n                _sync(path.parent)", "                        raise", POWER_CUT,
    ),
    Mutant(
        "metrics are behind the checkpoint", "checkpoints/run_directory.py",
        "            make_durable(self.metrics, self.path)", "            pass", POWER_CUT,
    ),
    Mutant(
        "old checkpoints are removed before the new one is there", "checkpoints/run_directory.py",
        "        save_checkpoint(self.step_file(saved), checkpoint)\n        for path in [path for step, path in "
        "self.steps().items() if step <= saved][:-keep]:\n            if is_checkpoint(path):\n                remove(path)",
        "        for path in list(self.steps().values()):\n            remove(path)\n"
        "        save_checkpoint(self.step_file(saved), checkpoint)", POWER_CUT,
    ),
    Mutant(
        "what killed writers left stays", "checkpoints/run_directory.py",
        "        for path in self._temporaries():", "        for path in ():", KILLS,
    ),
    Mutant(
        "lines of metrics after the checkpoint stay", "checkpoints/run_directory.py",
        "if 0 < _step_of(line) <= step", "if line", KILLS,
    ),
    Mutant(
        "the digest of the weights is not checked", "checkpoints/checkpoint.py",
        'if _digest([blank, data[: header.num_weight_bytes]]) != metadata["digest_weights"]:', "if not blank:", DAMAGE,
    ),
    Mutant(
        "the digest of the rest is not checked", "checkpoints/checkpoint.py",
        "if everything and _digest(", "if not data and _digest(", DAMAGE,
    ),
    Mutant(
        "two trainers in one directory", "checkpoints/lock.py",
        "        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)", "        pass", COMPANY,
    ),
    Mutant(
        "a lock file that was removed is taken", "checkpoints/lock.py",
        "    if not _is_at(descriptor, path):", "    if not path:",
        ("tests/checkpoints/test_lock.py",),
    ),
    Mutant(
        "an evaluation draws from the training stream", "training/step.py",
        "state.batches(step)\n", "state.batches(step + (state.progress.best_loss is not None))\n", WATCHING,
    ),
    Mutant(
        "a stop drops what is due after the step", "training/loop.py",
        "            if run.progress.observed:", "            if True:", STOPS,
    ),
    Mutant(
        "an unfinished accumulation is kept", "training/step.py",
        "    finally:\n        state.optimizer.zero_grad()\n    seconds", "    finally:\n        pass\n    seconds", LOOP,
    ),
    Mutant(
        "the optimizer forgets a step", "training/optimizer.py",
        "num_steps.fill_(step)", "num_steps.fill_(step - 1)", STOPS,
    ),
    Mutant(
        "a loss that is not finite reaches the weights", "training/step.py",
        "        if not (math.isfinite(loss) and math.isfinite(norm)):", "        if outcome is None:", LOOP,
    ),
    Mutant(
        "the first signal ends the process", "cli/signals.py",
        "            self.received, self._received_at = number, time.monotonic()", "            os._exit(128 + number)", SIGNALS,
    ),
    Mutant(
        "the signal handler saves", "cli/work/training.py",
        "            finished = show_progress(reports, prepared, console)",
        "            def save(number, _):\n                console.warn('stopped by SIGTERM')\n"
        "                import gc\n                from gpt_cli.training.run import Run\n"
        "                for run in gc.get_objects():\n                    if isinstance(run, Run):\n"
        "                        run.save()\n                raise SystemExit(128 + number)\n"
        "            import signal\n            signal.signal(signal.SIGTERM, save)\n"
        "            finished = show_progress(reports, prepared, console)", SIGNALS,
    ),
    Mutant(
        "a second signal is not heeded", "cli/signals.py",
        "        elif time.monotonic() - self._received_at > SAME_REQUEST_SECONDS:", "        elif not number:", SIGNALS,
    ),
)  # fmt: skip
