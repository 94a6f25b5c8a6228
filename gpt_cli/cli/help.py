"""Format the help of commands in the language of the user."""

import re
from collections import UserDict
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from rich.cells import cell_len

# typer contains click since 0.26; a test fails where a typer moves these
from typer._click.core import Context
from typer._click.formatting import HelpFormatter
from typer.core import TyperGroup

from gpt_cli.cli.command_table import TABLE, below
from gpt_cli.common.language import say
from gpt_cli.common.tables import WORD, filled

_AS_IT_IS = "\b\n"  # click wraps no paragraph that begins like this
_EXAMPLE = "Example: "
_FIRST = "Start with: "
_FLAGS_WIDTH = 30  # at most, as in click
_TYPE = re.compile(r" <[^ ]+>$")  # typer adds the type that an argument has in Python: NAME <list[str]>


class TranslatedHelp(HelpFormatter):
    """A click help formatter that translates headings and paragraphs to the user's language and wraps translations."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the usage, one line for each form of the command; " | " in `args` separates the forms of a group."""
        usage = say(prefix or "Usage: ")
        forms = re.sub(r"\{(\w+)\}", r"\1", args).split(" | ")  # typer puts braces around some arguments
        for number, form in enumerate(forms):
            words = " ".join(map(say, form.split(" ")))
            super().write_usage(prog, words, usage if number == 0 else " " * cell_len(usage))

    def write_heading(self, heading: str) -> None:
        """Write a translated heading, such as the line above the options."""
        said = say(heading)
        if said == heading:
            super().write_heading(heading)
        else:
            self.write(f"{' ' * self.current_indent}{said}：\n")

    def write_text(self, text: str) -> None:
        """Write a translated help text or epilog: paragraphs with empty lines between them."""
        paragraphs = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
        super().write_text("\n\n".join(_paragraph(one, self.width - self.current_indent) for one in paragraphs))

    def write_dl(self, rows: Sequence[tuple[str, str]], col_max: int = _FLAGS_WIDTH, col_spacing: int = 2) -> None:
        """Write a list of flags or commands, each with its translated help."""
        rows = [(_TYPE.sub("", flags), does) for flags, does in rows]
        first = min(max((len(flags) for flags, _ in rows), default=0), col_max) + col_spacing
        width = self.width - first - self.current_indent
        super().write_dl([(flags, _said(does, width)) for flags, does in rows], col_max, col_spacing)


class HelpContext(Context):
    """A click context whose help is formatted by TranslatedHelp."""

    formatter_class: Any = TranslatedHelp


class Below(UserDict[str, Any]):
    """The click commands of a group by name; `make` builds a command on first access, as building all takes long."""

    def __init__(self, group: str, make: Callable[[str], Any]):
        super().__init__(dict.fromkeys(below(group)))
        self._group, self._make = group, make

    def __getitem__(self, name: str) -> Any:
        if self.data[name] is None:
            self.data[name] = self._make(f"{self._group} {name}".lstrip())
        return self.data[name]


class CommandGroup(TyperGroup):
    """A click group whose help lists its commands without building them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the group's commands, in the order of TABLE."""
        return [*self.commands]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a list of the group's commands, each with the first sentence of its help, which click would shorten."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, TABLE[f"{self.name} {name}".lstrip()].sentence) for name in self.commands])


class ListsByDefault(CommandGroup):
    """A click group that runs its own callback unless the first argument is a subcommand, as `gpt runs` does."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] in self.commands:
            self.params = [parameter for parameter in self.params if parameter.param_type_name == "option"]
        else:
            ctx.allow_interspersed_args = True
        return super().parse_args(ctx, args)


def _set_debug(context: typer.Context, value: bool) -> bool:
    context.find_root().obj["debug"] |= value
    return value


_DEBUG_HELP = "Print a traceback when something goes wrong."
# a flag of every command
Debug = Annotated[bool, typer.Option("--debug", callback=_set_debug, expose_value=False, help=_DEBUG_HELP)]


def _paragraph(text: str, width: int) -> str:
    """Translate and wrap a paragraph of help; each example command gets its own line, so that users can copy it."""
    if text.startswith(_FIRST):
        return _AS_IT_IS + re.sub("(?<![ ,])[, ]*(?=gpt )", "\n  ", say(text))
    if not text.startswith(_EXAMPLE):
        return _said(text, width)
    commands = re.split(", (?=gpt )", text.removeprefix(_EXAMPLE))
    return _AS_IT_IS + "\n".join(say(_EXAMPLE + command) for command in commands)


def _said(text: str, width: int) -> str:
    """Translate a paragraph, and wrap the translation to `width` columns, because click would count letters instead."""
    said = "  ".join(map(say, text.split("  ")))  # click puts two spaces before its additions, such as [required]
    return said if said == text else _AS_IT_IS + "\n".join(filled(WORD.findall(said.strip()), width))
