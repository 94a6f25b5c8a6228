"""`gpt runs`: its commands and their flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gpt_cli.checkpoints.run_files import STATES
from gpt_cli.cli import completing, options

COLUMNS = ("name", "state", "steps", "loss", "parameters", "size", "age")


class _ListsByDefault(TyperGroup):
    """A group whose first word is a command of it, or else a directory to list."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] in self.commands:
            self.params = [parameter for parameter in self.params if parameter.param_type_name == "option"]
        else:
            ctx.allow_interspersed_args = True
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ListsByDefault, invoke_without_command=True, rich_markup_mode=None, subcommand_metavar="| rm NAME..."
)


@app.callback(epilog="Example: gpt runs --sort loss, gpt runs rm tiny")
def list_runs(
    context: typer.Context,
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            parser=options.run_path,
            autocompletion=completing.words("rm"),  # of directories, the shell knows the names itself
            help="Where the runs are. Default: runs/.",
        ),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            "--sort",
            metavar="COLUMN",
            **options.one_of(*COLUMNS),
            help=f"One of {', '.join(COLUMNS)}: the lowest loss, the most steps, the newest first. Default: by name.",
        ),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="STATE",
            **options.one_of(*STATES),
            help=f"Only runs that are {', '.join(STATES)}.",
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """List runs: state, steps, validation loss, size, age, and what differs from a shipped config."""
    given = locals()
    if context.invoked_subcommand is None:
        from gpt_cli.cli.work.runs import list_runs as work

        del given["context"]
        return work(**given)
    return None


@app.command("rm", epilog="Example: gpt runs rm tiny runs/sweep/003-d_model-64 --yes")
def remove(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME", autocompletion=completing.run_names, help="Names that `gpt runs` prints, or paths of runs."
        ),
    ],
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove without asking; needed where there is no terminal.")
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Remove runs: their own files, never one that is being trained, nor files that no run wrote."""
    given = locals()
    from gpt_cli.cli.work.runs_rm import remove as work

    return work(**given)
