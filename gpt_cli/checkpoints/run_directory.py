"""Write the files of a run directory, and read its newest checkpoint to resume."""

import json
import math
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpt_cli.checkpoints.checkpoint import Checkpoint, read_checkpoint, save_checkpoint
from gpt_cli.checkpoints.metrics_files import LoggedSample, read_log, sample_record, step_in, without_later
from gpt_cli.checkpoints.run_list import read_outcome
from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.checkpoints.training_text import is_imported, valid_config
from gpt_cli.common.file_signatures import is_checkpoint
from gpt_cli.common.files import make_directory, make_durable, remove, remove_directory, require_writable, write_durably
from gpt_cli.config import Config
from gpt_cli.config.load import write_config
from gpt_cli.errors import CheckpointError, DataError, EnvironmentFailure, shown


class RunDirectory(RunFiles):
    """The files of one run, and methods that change them."""

    def open_for(self, config: Config | None, after: int | None = None) -> None:
        """Prepare the directory for a new run (`after` is None) or for resuming after step `after`; write `config`.

        A new run removes files of an earlier run; resuming removes outcome.json, the loss picture and what `rewind`
        removes. If `config` is None, a new run has no config.yaml until `write_config`. Raises EnvironmentFailure.
        """
        make_directory(self.checkpoints)
        for path in self.temporaries():
            remove(path)
        for directory in self.directories():
            require_writable(directory)
        if after is None:
            for folder in self.logger_folders():
                remove_directory(folder)
            for path in self.files():
                if path != self.config or config is None:
                    remove(path)
            # a power cut may not bring them back beside the new config
            make_durable(*self.directories())
        else:
            remove(self.outcome)
            remove(self.loss_picture)
            self.rewind(after)
        # writing the config also makes the removals from the directory durable
        if config is not None:
            self.write_config(config)

    def write_config(self, config: Config) -> None:
        """Write config.yaml, which makes the directory a run; raise EnvironmentFailure if that fails."""
        write_durably(self.config, [write_config(config).encode()])

    def require_space(self, needed: int, *, keeps_several: bool = False) -> None:
        """Raise EnvironmentFailure if the disk cannot hold the run, whose files need up to `needed` bytes.

        The run replaces present checkpoints and temporary files, so their space counts as free. With `keeps_several`,
        the error's hint also suggests keeping one checkpoint.
        """
        replaced_files = [path for path in (*self.steps().values(), self.best, *self.temporaries()) if path.exists()]
        # a dry run makes no directory, and checkpoints/ may be a link to another disk
        disk = next(filter(Path.exists, (self.checkpoints, *self.checkpoints.absolute().parents)))
        free = shutil.disk_usage(disk).free + sum(path.stat().st_size for path in replaced_files)
        if needed > free:
            sentence = f"the run needs up to {needed / 1e6:,.0f} MB of disk, but only {free / 1e6:,.0f} MB are free"
            hint = "free some space, or name another directory with ‹out›"
            if keeps_several:
                hint = "free some space, name another directory with ‹out›, or try ‹train.keep_checkpoints=1›"
            raise EnvironmentFailure(shown(self.path), sentence, hint=hint)

    def newest(self, warn: Callable[[str], object]) -> Checkpoint | None:
        """Return the newest intact checkpoint, for resuming; `warn` receives a line for each damaged newer checkpoint.

        Returns None if nothing was saved yet. Raises CheckpointError for an imported run or if no checkpoint is intact.
        """
        if is_imported(self):
            run_path, other = shlex.quote(str(self.path)), shlex.quote(f"{self.path}-tuned")
            sentence = "this run was imported and never trained, so there is nothing to continue"
            hint = f"gpt train --init-from {run_path} --out {other} --data my.txt"
            raise CheckpointError(shown(self.path), sentence, hint=hint)
        paths = [*self.steps().values()]
        for path in reversed(paths):
            try:
                return read_checkpoint(path, everything=True)
            except CheckpointError as error:
                if path == paths[0]:
                    raise
                warn(f"{error.where}: {error.sentence}; trying the checkpoint before it")
        if (config := valid_config(self)) is not None:
            of_best = [read_checkpoint(self.best).progress.step] if self.best.exists() else []
            lost = max([0, *of_best, *map(step_in, _log(self.metrics).split("\n"))])
            # a kill or a divergence before the first checkpoint leaves no trace beyond it; every other end saves
            saved = read_outcome(self).get("stopped_by", "diverged") != "diverged"
            if lost and (saved or lost > config.train.save_every):
                wrong = f"the run was trained to step {lost}, but its checkpoints are gone"
                hint = "put a checkpoint back, or replace the run with ‹overwrite=True›"
                raise CheckpointError(shown(self.path), wrong, hint=hint)
        return None

    def save(self, checkpoint: Checkpoint, keep: int) -> None:
        """Save a checkpoint, then remove older checkpoints until only the newest `keep` are left, the new one included.

        Never removes files that gpt did not write, checkpoints of later steps, which resuming may have skipped as
        damaged, or the last checkpoint of each earlier model, if the run trains several in turn. Forces metrics.jsonl
        to disk first. Raises EnvironmentFailure if a file cannot be written or removed.
        """
        if self.metrics.exists():
            make_durable(self.metrics, self.path)
        saved, teachers = checkpoint.progress.step, checkpoint.progress.teachers
        save_checkpoint(self.step_file(saved), checkpoint)
        for path in [path for step, path in self.steps().items() if step <= saved and step not in teachers][:-keep]:
            if is_checkpoint(path):
                remove(path)

    def add_sample(self, step: int, text: str) -> None:
        """Add a sample to samples.txt; rewrite the whole file, so that a crash never leaves half a sample."""
        write_durably(self.samples, [_log(self.samples).encode(), sample_record(LoggedSample(step, text)).encode()])

    def add_snapshot(self, step: int, content: bytes) -> None:
        """Write `content`, the bytes of the attention snapshot of `step`, to a file that survives a power cut."""
        make_directory(self.attention)
        write_durably(self.snapshot_file(step), [content])

    def end(self, stopped_by: str, step: int, **figures: Any) -> None:
        """Write outcome.json with `stopped_by` (such as "patience"), `step`, `figures`; NaN, infinity become null."""
        infinite = {key for key, value in figures.items() if isinstance(value, float) and not math.isfinite(value)}
        finite = {key: None if key in infinite else value for key, value in figures.items()}
        content = {"stopped_by": stopped_by, "step": step} | finite
        write_durably(self.outcome, [json.dumps(content, allow_nan=False).encode() + b"\n"])

    def rewind(self, step: int) -> None:
        """Remove samples, attention snapshots, tuned lenses, metrics and a best checkpoint of steps after `step`.

        Also removes a damaged best checkpoint and damaged lines of metrics, whose steps are unknown.
        """
        if self.best.exists():
            try:
                later = read_checkpoint(self.best).progress.step > step
            except CheckpointError:
                later = True
            if later:
                remove(self.best)
        if self.metrics.exists():
            lines = [line for line in _log(self.metrics).split("\n") if 0 < step_in(line) <= step]
            write_durably(self.metrics, ["".join(line + "\n" for line in lines).encode()])
        if self.samples.exists():
            write_durably(self.samples, [without_later(_log(self.samples), step).encode()])
        for directory, by_step in ((self.attention, self.snapshots()), (self.lens, self.maps())):
            if later := [path for number, path in by_step.items() if number > step]:
                for path in later:
                    remove(path)
                make_durable(directory)


def _log(path: Path) -> str:
    """Return the text of metrics.jsonl or samples.txt; an empty text if the file is missing."""
    try:
        return read_log(path, DataError) if path.exists() else ""
    except DataError as error:
        error.hint = error.hint or "move it elsewhere; gpt train continues without it"
        raise
