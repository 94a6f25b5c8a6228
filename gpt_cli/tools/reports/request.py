"""Requests of `gpt runs`, `gpt runs rm` and `gpt report`: their flags and checks. Needs no torch."""

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from gpt_cli.checkpoints.lock import is_held, require_foreign
from gpt_cli.checkpoints.run_list import find_runs, is_run
from gpt_cli.checkpoints.run_paths import RUNS, SWEEP, RunFiles, State, named_run
from gpt_cli.checkpoints.select import newest_run, run_hint
from gpt_cli.common.drawing.file_types import PICTURES, ending_of
from gpt_cli.common.host import Host
from gpt_cli.common.machine.failures import reason
from gpt_cli.common.untrusted_files import require_reachable
from gpt_cli.config.field_types import Switch
from gpt_cli.config.request import EMPTY, NONE, Flag, MaybePath, NamedPaths, Request
from gpt_cli.errors import (
    CheckpointError,
    EnvironmentFailure,
    GptError,
    UsageError,
    collecting,
    counted,
    shown,
    together,
    visible,
)


class RunsRequest(Request):
    """List runs: state, steps, validation loss, size, age, and what differs from a shipped config."""

    directory: Annotated[MaybePath, Flag("DIR", offers="commands_of_runs", position=True)] = Field(
        default=NONE, kw_only=False, description="Where the runs are. Default: runs/."
    )
    sort: Annotated[Literal["name", "state", "steps", "loss", "parameters", "size", "age"] | None, Flag("COLUMN")] = (
        Field(
            default=None,
            description="One of name, state, steps, loss, parameters, size, age: the lowest loss, the most steps, the "
            "newest first. Default: by name.",
        )
    )
    state: Annotated[State | None, Flag("STATE")] = Field(
        default=None, description="Only runs that are training, stopped, finished, diverged, imported, empty, damaged."
    )

    def find(self, host: Host) -> tuple[Path, list[Path]]:
        """Return the directory and the paths of its runs; CheckpointError if `directory` is set but does not exist."""
        where = RUNS if self.directory is None else named_run(self.directory)
        if self.directory is not None and not where.is_dir():
            hint = run_hint(where, directories=True)
            raise CheckpointError(shown(where), "there is no such directory of runs", hint=hint)
        try:
            return where, find_runs(where) if where.is_dir() else []
        except OSError as error:
            raise EnvironmentFailure(f"reading {shown(where)}", reason(error)) from error


class RemoveRequest(Request):
    """Remove runs, but neither a run that is being trained nor files that no run wrote."""

    has_json = False

    names: Annotated[NamedPaths, Flag("NAME", offers="run_names", position=True)] = Field(
        kw_only=False, description="Names that `gpt runs` prints, or paths of runs."
    )
    yes: Switch = Field(default=False, description="Remove without asking; needed where there is no terminal.")

    def find(self, host: Host) -> list[RunFiles]:
        """Return the named runs, each once; raise one error that reports every run that cannot be removed."""
        return list(map(RunFiles, _chosen(self.names, _removable, once=True)))


def _removable(path: Path) -> list[Path]:
    """Return [path] if `path` is a run; raise CheckpointError if not, EnvironmentFailure if it is being trained."""
    if not os.path.isdir(path):
        require_reachable(path)
        raise CheckpointError(shown(path), "there is no such run", hint=run_hint(path))
    if path.is_symlink():
        raise CheckpointError(shown(path), f"this is a link; name the run that it leads to, {shown(path.resolve())}")
    if is_held(path):
        hint = "stop it first, or wait for it"
        raise EnvironmentFailure(shown(path), "this run is being trained, so it is not removed", hint=hint)
    if is_run(path):
        return [path]
    if below := find_runs(path):
        sentence = f"this is not a run but a directory of {counted(len(below), 'run')}"
        hint = f"name its runs, as in gpt runs rm {shlex.quote(visible(path))}/*"
        raise CheckpointError(shown(path), sentence, hint=hint)
    raise CheckpointError(shown(path), "this is not a run", hint=run_hint())


class ReportRequest(Request):
    """Show how runs trained: their curves, and in a page their samples, settings and attention too.

    Several runs are overlaid, and the settings in which they differ are listed. Runs may still be training.
    """

    runs: Annotated[NamedPaths, Flag("RUN", offers="run_names", position=True)] = Field(
        default=EMPTY,
        kw_only=False,
        description="Names that `gpt runs` prints, or paths; a directory of runs, such as a sweep, means all of them. "
        "Default: the newest run under runs/.",
    )
    out: Annotated[MaybePath, Flag("FILE")] = Field(
        default=NONE, description="A page (.html), or a picture (.png, .svg, .pdf). Default: curves in the terminal."
    )
    axis: Literal["step", "tokens", "seconds"] = Field(
        default="step",
        description="The horizontal axis: step, tokens or seconds of training. A page opens with this axis. "
        "Default: step.",
    )
    prompt: str | None = Field(
        default=None,
        description="On a page, the attention of the best checkpoints to this text; it needs no snapshots.",
    )

    def require_shown(self, *, json: bool) -> None:
        """Raise UsageError for `prompt` without `out`, since only a page shows attention."""
        if self.prompt is not None and self.out is None:
            raise no_page()

    def find(self, host: Host) -> list[Path]:
        """Return the named runs, and all runs in a named directory; without names, the newest run.

        Raises UsageError for an unknown format of `out`, and one error that reports every wrong name.
        """
        if self.out is not None:
            ending = ending_of(self.out, (".html", *PICTURES))
            require_foreign(self.out)
            if self.prompt is not None and ending != ".html":
                raise no_page()
        return _chosen(self.runs, _runs_of) if self.runs else [newest_run()]


def no_page() -> UsageError:
    """Return the error for `prompt` in a request that writes no page."""
    return UsageError("‹prompt›", "only a page shows attention", hint="‹out=report.html›")


def _chosen(names: Sequence[str], runs_of: Callable[[Path], Sequence[Path]], *, once: bool = False) -> list[Path]:
    """Return the runs that `runs_of` returns for each of `names`; raise one error that reports every wrong name.

    For a run that is named twice, raises UsageError or, with `once`, returns the run once.
    """
    paths_by_target: dict[Path, Path] = {}
    wrong: list[GptError] = []
    paths = list(map(named_run, names))
    # the files of a sweep are skipped, because runs/rates/* matches them too
    for named in [path for path in paths if not (path.is_file() and (path.parent / SWEEP).exists())] or paths:
        with collecting(wrong):
            earlier = set(paths_by_target)  # a directory may also contain a link to one of its runs
            for path in runs_of(named):
                if path.resolve() in earlier and not once:
                    raise UsageError("‹runs›", f"{shown(path)} is named twice")
                paths_by_target.setdefault(path.resolve(), path)
    if wrong:
        raise together(wrong)
    return list(paths_by_target.values())


def _runs_of(path: Path) -> list[Path]:
    """Return [path] if `path` is a run, else the runs in this directory; raise CheckpointError if there are none."""
    try:
        runs = find_runs(path)
    except NotADirectoryError:
        hint = f"gpt report {shlex.quote(visible(path.parent))}" if is_run(path.parent) else run_hint()
        raise CheckpointError(shown(path), "this is a file; name the directory of a run", hint=hint) from None
    except FileNotFoundError:
        hint = run_hint(path, directories=True)
        raise CheckpointError(shown(path), "there is no such run", hint=hint) from None
    except OSError as error:
        raise EnvironmentFailure(f"reading {shown(path)}", reason(error)) from error
    if not runs:
        raise CheckpointError(shown(path), "there is no run in this directory", hint=run_hint())
    return runs
