"""`gpt`: its commands, and the one place where errors become lines and exit codes."""

from __future__ import annotations

import difflib
import sys
import traceback
from collections.abc import Sequence

import typer
from typer.main import get_command

from gpt_cli.cli import attn_dump, bench, config, data, evaluate, explain, info, sample, train
from gpt_cli.cli.terminal import abandon_stdout, prepare_streams
from gpt_cli.errors import (
    EXIT_CODE_BUG,
    EXIT_CODE_STDOUT_CLOSED,
    EnvironmentFailure,
    GptError,
    UsageError,
    shown,
)
from gpt_cli.files import reason

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    # a flag may be typed with - or _
    context_settings={
        "token_normalize_func": lambda word: word.replace("_", "-"),
        "help_option_names": ["--help", "-h"],
    },
    help="Train a small GPT on your own text, sample from it, and see its attention.",
    epilog="Start with: gpt train --config tiny, then gpt sample --prompt 'The ' and gpt attn-dump --prompt 'The '",
)
app.command("train", epilog="Example: gpt train --config tiny --data my.txt --set tokenizer.kind=char")(train.train)
app.command("sample", epilog="Example: gpt sample --prompt 'The value of' --num-samples 3")(sample.sample)
app.command("attn-dump", epilog="Example: gpt attn-dump --prompt 'The value of' --out attention.png")(
    attn_dump.attn_dump
)
app.command("explain", epilog="Example: gpt explain --prompt 'The value of', gpt explain --example journey")(
    explain.explain
)
app.command("eval", epilog="Example: gpt eval --run runs/a --run runs/b --data my.txt")(evaluate.evaluate)
app.command("info", epilog="Example: gpt info small, gpt info runs/tiny")(info.info)
app.command("bench", epilog="Example: gpt bench --config tiny --json, gpt bench --attention")(bench.bench)
app.add_typer(config.app, name="config")
app.add_typer(data.app, name="data")

# the class of all usage errors, which typer (with click inside since 0.26) does not export by name
ClickUsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    prepare_streams()
    state = {"debug": False}
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(words, state)
    except Exception as error:
        if state["debug"]:
            traceback.print_exc()
        failure = _as_gpt_error(error, words)
        print("\n".join(failure.lines()), file=sys.stderr)
        return failure.exit_code


def _run(arguments: list[str], state: dict[str, bool]) -> int:
    try:
        code = _invoke(arguments, state)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        abandon_stdout()  # whoever reads our output has closed it
        return EXIT_CODE_STDOUT_CLOSED
    return code


def _invoke(arguments: list[str], state: dict[str, bool]) -> int:
    """The exit code of the command that the arguments name."""
    try:
        command = get_command(app)
        with command.make_context("gpt", arguments, obj=state) as context:
            code = command.invoke(context)
        return code if isinstance(code, int) else 0
    except typer.Exit as done:
        return done.exit_code
    except ClickUsageError as error:
        if type(error).__name__ != "NoArgsIsHelpError":
            raise
        print(getattr(error, "message", ""))  # the help text, asked for by naming no command
        return 0


def _as_gpt_error(error: Exception, words: Sequence[str]) -> GptError:
    """Any exception as the error to show."""
    if isinstance(error, GptError):
        return error
    if isinstance(error, ClickUsageError):
        return _usage_error(error, words)
    memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    if memory or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error)):
        return EnvironmentFailure(
            "memory", "out of memory", "the model or the batch is too large for this machine",
            hint="halve the batch with --set train.micro_batch_size=8, or choose a smaller model",
        )  # fmt: skip
    if isinstance(error, OSError):
        return EnvironmentFailure(shown(error.filename) if error.filename else "output", reason(error))
    failure = GptError(
        "internal", f"{type(error).__name__}: {error}", "this is a bug", hint="add --debug for the traceback"
    )
    assert failure.exit_code == EXIT_CODE_BUG
    return failure


def _usage_error(error: Exception, words: Sequence[str]) -> UsageError:
    """A wrong flag or argument in our own form, with the nearest right one."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    command = context.command_path if context else " ".join(["gpt", *words[:1]])
    if type(error).__name__ == "NoSuchOption":
        wrong, near = f"no such flag {shown(error.option_name)}", error.possibilities  # type: ignore[attr-defined]
    elif type(error).__name__ == "BadOptionUsage" and "requires an argument" in str(error):
        return UsageError(str(getattr(error, "option_name", "")), "has no value", f"see {command} --help")
    elif type(error).__name__ == "MissingParameter" and parameter:
        wrong, near = f"{_name(parameter)} is missing", None
    elif parameter:
        message, _, allowed = str(error.message).partition("; ")  # type: ignore[attr-defined]
        return UsageError(_name(parameter), message, allowed or f"see {command} --help")
    else:
        message = str(error.message).partition(" Did you mean")[0]  # type: ignore[attr-defined]
        wrong, near = message[:1].lower() + message[1:].rstrip("."), None
        words = message.split("'")
        if message.startswith("No such command") and len(words) > 1:
            near = (
                difflib.get_close_matches(words[1], getattr(context.command, "commands", {}), n=1) if context else None
            )
    hint = f"did you mean {near[0]}?" if near else None
    return UsageError(command, wrong, f"see {command} --help", hint=hint)


def _name(parameter: object) -> str:
    """A flag as it is typed, or an argument by its name."""
    options = [option for option in getattr(parameter, "opts", []) if option.startswith("-")]
    return options[0] if options else str(getattr(parameter, "metavar", None) or getattr(parameter, "name", ""))
