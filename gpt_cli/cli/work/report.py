"""What `gpt report` does before it reads a run: it refuses wrong names and flags. Needs no torch."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from gpt_cli.checkpoints.find import near_run, newest_run
from gpt_cli.checkpoints.list import find_runs, is_run
from gpt_cli.checkpoints.lock import require_foreign
from gpt_cli.checkpoints.run_files import named_run
from gpt_cli.cli.terminal import Console
from gpt_cli.errors import CheckpointError, EnvironmentFailure, GptError, UsageError, reason, shown, together, visible

FORMATS = (".html", ".png", ".svg")
# as many as colours and kinds of lines tell apart, and as a table or a page can hold beside each other
MOST_DRAWN, MOST_ON_A_PAGE = 12, 32


def report(*, runs: list[str] | None, out: Path | None, axis: str, prompt: str | None, json: bool, quiet: bool) -> None:
    """Show runs in the terminal, or write their page or their picture; with `json` print their figures."""
    ending = None if out is None else _ending(out)
    if prompt is not None and ending != ".html":
        raise UsageError("--prompt", "attention is on the page alone", hint="--out report.html")
    paths = chosen_runs(runs)
    if out is not None or not json:
        _require_few(paths, ending)
    from gpt_cli.cli.work.reporting import Wanted, show_report

    show_report(Wanted(paths, out, axis, prompt, json), Console(quiet))


def _ending(out: Path) -> str:
    """The format that a name means; raises UsageError."""
    ending = out.suffix.lower()
    if ending not in FORMATS:
        hint = "--json prints the figures to stdout" if ending in ("", ".json") else "--out report.html"
        raise UsageError("--out", f"{shown(out.name)} ends in none of {', '.join(FORMATS)}", hint=hint)
    require_foreign(out)
    return ending


def chosen_runs(names: Sequence[str] | None) -> list[Path]:
    """The runs of these names, a directory of runs standing for all of them; without names the newest.

    Raises every error that a name has: CheckpointError, or UsageError for a run that is named twice.
    """
    if not names:
        return [newest_run()]
    found: dict[Path, Path] = {}
    wrong: list[GptError] = []
    for name in names:
        try:
            for path in _runs_of(named_run(name)):
                if path.resolve() in found:
                    raise UsageError("RUN", f"{shown(path)} is named twice")
                found[path.resolve()] = path
        except GptError as error:
            wrong.append(error)
    if wrong:
        raise together(wrong)
    return list(found.values())


def _runs_of(path: Path) -> list[Path]:
    """A run, or the runs of a directory; raises CheckpointError where there is none."""
    try:
        if is_run(path):
            return [path]
        below = find_runs(path)
    except NotADirectoryError:
        hint = f"gpt report {shlex.quote(visible(path.parent))}" if is_run(path.parent) else "gpt runs lists the runs"
        raise CheckpointError(shown(path), "this is a file; name the directory of a run", hint=hint) from None
    except FileNotFoundError:
        hint = near_run(path, directories=True) or "gpt runs lists the runs"
        raise CheckpointError(shown(path), "there is no such run", hint=hint) from None
    except OSError as error:
        raise EnvironmentFailure(f"reading {shown(path)}", reason(error)) from error
    if not below:
        raise CheckpointError(shown(path), "there is no run in this directory", hint="gpt runs lists the runs")
    return below


def _require_few(paths: Sequence[Path], ending: str | None) -> None:
    """Raise UsageError for more runs than can be told apart."""
    most, what = (MOST_ON_A_PAGE, "a page") if ending == ".html" else (MOST_DRAWN, "a drawing")
    if len(paths) > most:
        sentence = f"these are {len(paths)} runs, and {what} tells {most} apart; name fewer"
        raise UsageError("RUN", sentence, hint="gpt runs --sort loss lists the best first; --json has any number")
