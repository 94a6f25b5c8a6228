"""Write docs/flags.md and its Chinese twin below their markers: `make flags`.

The tables are those of `gpt COMMAND --help`, so a flag is described once, in the request that declares it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

MARKER = "<!-- `make flags` writes what follows -->\n"
PAGES = {"en": Path(__file__).parent / "flags.md", "zh": Path(__file__).parent / "flags.zh-CN.md"}
SHARED = 3  # a flag of so many commands, described alike, is in the first table alone
HEADS = {"en": ("flag", "meaning", "commands"), "zh": ("选项", "含义", "命令")}
MOST = 20  # commands: "all", or "nearly all", instead of their names
ALL = {"en": ("all", "nearly all"), "zh": ("所有", "几乎所有")}


def tables(language: str) -> str:
    """Return the flags that commands share, then those of each command, as help describes them in a language."""
    from gpt_cli.common.language import say

    flag, meaning, some = HEADS[language]
    of: dict[tuple[str, str], list[str]] = {}
    for command, rows in (commands := list(_commands())):
        for row in rows:
            of.setdefault(row, []).append(command)
    shared = [(row, names) for row, names in of.items() if len(names) >= SHARED]
    lines = [f"| {flag} | {meaning} | {some} |", "| --- | --- | --- |"]
    for (words, text), names in sorted(shared, key=lambda item: -len(item[1])):
        listed = ", ".join(f"`{name}`" for name in names)
        listed = listed if len(names) < MOST else ALL[language][len(names) < len(commands)]
        lines.append(f"| `{words}` | {_cell(say(text, language))} | {listed} |")
    for command, _ in commands:
        rows = [row for row, names in of.items() if command in names and len(names) < SHARED]
        if rows:
            lines += ["", f"## gpt {command}", "", f"| {flag} | {meaning} |", "| --- | --- |"]
            lines += [f"| `{_cell(words)}` | {_cell(say(text, language))} |" for words, text in rows]
    return "\n".join(lines) + "\n"


def _commands() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each command with the flags and arguments of its help, in English."""
    from gpt_cli.cli.app import build
    from gpt_cli.cli.command_table import TABLE

    root = build()
    for name, row in TABLE.items():
        command, context = root, root.make_context("gpt", [], resilient_parsing=True)
        for word in name.split():
            command = command.commands[word]
            context = command.make_context(word, [], parent=context, resilient_parsing=True)
        if row.example:
            records = (parameter.get_help_record(context) for parameter in command.get_params(context))
            yield (
                name,
                [(re.sub(r" <.*", "", of), text.removesuffix("  [required]")) for of, text in filter(None, records)],
            )


def _cell(text: str) -> str:
    """Return a text as a cell: it has no bar, and no name that reads as HTML."""
    return text.replace("  [required]", "").replace("|", "\\|").replace("<", "\\<")


def main() -> None:
    """Write both pages below their markers."""
    for language, page in PAGES.items():
        head, _, _ = page.read_text("utf-8").partition(MARKER)
        page.write_text(f"{head}{MARKER}\n{tables(language)}", "utf-8")


if __name__ == "__main__":
    main()
