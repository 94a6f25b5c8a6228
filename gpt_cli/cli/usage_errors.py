"""Describe mistakes in a command line, with the nearest correct command line as a hint."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

# typer contains click since 0.26 and exports two of its exceptions; a test fails where a typer moves the others
from typer._click.exceptions import BadOptionUsage, BadParameter, MissingParameter, NoArgsIsHelpError, NoSuchOption
from typer._click.exceptions import UsageError as ClickUsageError

from gpt_cli.checkpoints.run_paths import RunFiles, named_run
from gpt_cli.common.language import LANGUAGES, VARIABLE, code_of
from gpt_cli.common.mistyped import DASHES, full_width, half_width, nearest
from gpt_cli.common.spelling import as_flags
from gpt_cli.errors import GptError, UsageError, shown, together

if TYPE_CHECKING:
    from gpt_cli.config.suggest import Arguments

__all__ = ["ClickUsageError", "NoArgsIsHelpError", "require_supported_language", "spelled", "usage_error"]

_TEXTS = (".txt", ".md", ".jsonl", ".csv", ".gz", ".zst", ".parquet")
_CHECKPOINT = ".safetensors"


def usage_error(error: ClickUsageError, command: str, words: Sequence[str]) -> GptError:
    """Convert typer's error about command line `words` to a GptError; `command` is a name such as `gpt sample`."""
    from gpt_cli.config.suggest import command_meant  # reads the declarations of all settings

    see, line = f"{command} --help lists the flags", _Line(error.ctx, command, words)
    if isinstance(error, NoSuchOption):
        return line.unknown_flags()
    if isinstance(error, BadOptionUsage):
        takes = "this flag needs a value" if "requires" in error.message else "this flag takes no value"
        return UsageError(error.option_name, takes, hint=see)
    if isinstance(error, MissingParameter):
        return UsageError(command, f"{_name(error.param)} is missing", hint=f"{command} --help shows an example")
    if isinstance(error, BadParameter) and error.param is not None:
        flag = _name(error.param)
        return UsageError(flag, _sentence(error.message), hint=full_width(line.value_of(flag)))
    if error.message.startswith("No such command") and line.first < len(words):
        wrong = words[line.first]
        commands = getattr(error.ctx and error.ctx.command, "commands", {})
        near = command_meant(wrong, commands) if command == "gpt" else nearest(wrong, commands)
        hint = f"did you mean {near}?" if near else f"{command} --help lists the commands"
        return UsageError(command, f"there is no command {shown(wrong)}", hint=hint)
    if extra := re.fullmatch(r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)", error.message, re.DOTALL):
        positions = line.positions_of(extra[1])
        for position in positions:
            if line.words[position].startswith((*DASHES, "－")):
                return line.other_dash(position, positions)
        return UsageError(command, f"unexpected argument {shown(extra[1])}", hint=line.meaning(positions) or see)
    return UsageError(command, _sentence(error.message), hint=see)


def require_supported_language() -> None:
    """Raise UsageError if GPT_LANGUAGE names a language that `gpt` does not have."""
    requested = os.environ.get(VARIABLE, "")
    if requested and code_of(requested) not in LANGUAGES:
        raise UsageError(VARIABLE, f"{shown(requested)} is not allowed; use {', '.join(LANGUAGES)}")


def spelled(text: str, command: str, request: Any, words: Sequence[str]) -> str:
    """Replace fields of `request` in ‹› by flags: ‹top_k=5› by --top-k 5, or by --top_k 5 if `words` has --top_k."""
    names = {}
    if request is not None:
        from gpt_cli.config.request import flag_of, flags_of

        typed = {flag.replace("_", "-"): flag for flag in (word.partition("=")[0] for word in words)}
        flags = {name: flag_of(name, flag) for name, _, flag in flags_of(request)}
        names = {name: typed.get(flag, flag) for name, flag in flags.items()}
    return as_flags(text, names, command)


class _Line:
    """A command line: its words, the flags of its command, and the flag to which each word belongs."""

    def __init__(self, context: Any, command: str, words: Sequence[str]):
        self.words, self._name, self._context = list(words), command, context
        self.first = len(command.split()) - 1  # `words` does not contain gpt itself
        self._parameters = context.command.params if context is not None else []
        self._request = getattr(context and context.command.callback, "request", None)
        self._flags: Mapping[str, Any] = {flag: one for one in self._parameters for flag in one.opts if flag[:1] == "-"}
        self._roles = self._read_roles()

    def _read_roles(self) -> list[str]:
        """Return each word's flag, as typed: the word itself, or the flag whose value the word is; else ""."""
        roles = [""] * self.first
        while (position := len(roles)) < len(self.words):
            flag, equals, _ = self.words[position].partition("=")
            roles.append("" if flag[:1] != "-" or flag in ("-", "--") else flag)
            option, following = self._flags.get(_plain(flag)), self.words[position + 1 : position + 2]
            is_value = not option.is_flag if option else any(not re.match(r"-(?!\.?\d)", word) for word in following)
            roles += [flag] * (bool(roles[-1]) and not equals and is_value and len(following))
        return roles

    def unknown_flags(self) -> GptError:
        """Return one error for all unknown flags and for wrong values of the other flags."""
        from gpt_cli.config.request import refused
        from gpt_cli.config.suggest import Arguments

        fields = {one.name: "" if one.is_flag else one.metavar or "VALUE" for one in self._flags.values()}
        positionals = [one for one in self._parameters if one.metavar in ("RUN", "PATH") and one.opts[0][:1] != "-"]
        run = positionals[0].name if positionals and "run" not in fields else "run"
        arguments = Arguments(fields | ({run: "RUN"} if positionals else {}), self._request, run)
        valid_flags = {"", *self._flags}
        words = [*zip(self.words, self._roles, strict=True)][self.first :]
        errors: list[GptError] = [
            self._unknown_flag(word, arguments)
            for word, role in words
            if _plain(role) not in valid_flags and word.partition("=")[0] == role
        ]
        with contextlib.suppress(ClickUsageError):
            typed = [word for word, role in words if _plain(role) in valid_flags]
            values, _, _ = self._context.command.make_parser(self._context).parse_args(typed)
            errors += refused(self._request, values) if self._request else []
        return together(errors)

    def _unknown_flag(self, word: str, arguments: Arguments) -> UsageError:
        flag = word.partition("=")[0]
        if wrong_mark := full_width(flag):
            return UsageError(self._name, wrong_mark, hint=f"did you mean {half_width(flag).replace(':', '=', 1)}?")
        hint = arguments.hint(flag, self.value_of(flag)) or f"{self._name} --help lists the flags"
        return UsageError(self._name, f"there is no flag {shown(flag)}", hint=hint, about=flag)

    def value_of(self, flag: str) -> str | None:
        """Return the first value that the command line gives to a flag; None if it gives none."""
        words = zip(self.words, self._roles, strict=True)
        texts = (word.removeprefix(f"{role}=") for word, role in words if _plain(role) == _plain(flag) and word != role)
        return next(filter(None, texts), None)

    def positions_of(self, extra: str) -> list[int]:
        """Return the positions of the unexpected words that typer joined to the text `extra`; [] if not found."""
        positions = [position for position, role in enumerate(self._roles) if not role and position >= self.first]
        ends = (positions[start:] for start in range(len(positions)))
        return next((end for end in ends if " ".join(self.words[at] for at in end) == extra), [])

    def other_dash(self, position: int, positions: Sequence[int]) -> UsageError:
        """Return the error for a wrong dash at the word number `position`; `positions` has all unexpected words."""
        word = self.words[position]
        meant = f"--{half_width(word).lstrip('-')}"
        if position + 1 in positions:
            meant += f" {shlex.quote(self.words[position + 1])}"
        sentence = f"a flag begins with two hyphens, and not with {shown(word[0])}"
        return UsageError(shown(word), sentence, hint=f"did you mean {meant}?")

    def meaning(self, positions: Sequence[int]) -> str | None:
        """Return a hint for the unexpected words at `positions`, such as to put quotes around them, or None."""
        if not positions:
            return None
        before = positions[0] - 1
        option = self._flags.get(_plain(flag := self._roles[before]))
        if getattr(option, "metavar", None) == "TEXT":
            end = next((at for at in range(before + 1, len(self.words)) if at not in positions), len(self.words))
            text = " ".join([self.words[before].removeprefix(f"{flag}="), *self.words[before + 1 : end]])
            return f"put quotes around a text with spaces: {flag} {shlex.quote(text)}"
        words = [self.words[position] for position in positions]
        if flag == "--set" and (setting := _without_spaces(self.words[before].removeprefix("--set="), words)):
            return f"write no spaces around the equals sign: --set {shlex.quote(setting)}"
        again = [f"{flag} {shlex.quote(word)}" for word in words] if getattr(option, "multiple", False) else []
        line = " ".join([*self._flags_for(words)] or again)
        return f"did you mean {line}?" if line else None

    def _flags_for(self, words: Sequence[str]) -> Iterator[str]:
        """Yield `--flag word` for each config, run or text in `words`; join other words as one --prompt, if allowed."""
        from gpt_cli.checkpoints.training_text import is_imported
        from gpt_cli.config.load import shipped_configs
        from gpt_cli.text.datasets import ENTRIES

        typed, texts = {_plain(word.partition("=")[0]) for word in self.words}, list[str]()
        trains, free = "--init-from" in self._flags, self._flags.keys() - typed
        for word in words:
            is_config = word in shipped_configs() or word.endswith((".yaml", ".yml"))
            is_text = word in ENTRIES or word.endswith(_TEXTS) or os.path.exists(word)
            is_run = trains and word not in ENTRIES and RunFiles(named_run(word)).exists()
            if "--resume" in typed and "--out" in free:
                yield f"--out {shlex.quote(str(named_run(word)))}"
            elif is_config and "--config" in free:
                yield f"--config {shlex.quote(word)}"
            elif "--run" in free and (word.endswith(_CHECKPOINT) or os.path.isdir(named_run(word))):
                yield f"--run {shlex.quote(word)}"
            elif is_run and not typed & {"--config", "--data", "--out"} and not is_imported(RunFiles(named_run(word))):
                yield f"--out {shlex.quote(str(named_run(word)))} --resume"
            elif trains and "--init-from" not in typed and (is_run or word.endswith(_CHECKPOINT)):
                yield f"--init-from {shlex.quote(word)}"
            elif is_text and "--data" in self._flags:
                yield f"--data {shlex.quote(word)}"
            elif "--prompt-file" in free and os.path.isfile(word):
                yield f"--prompt-file {shlex.quote(word)}"
            else:
                texts.append(word)
        if texts and "--prompt" in free:
            yield f"--prompt {shlex.quote(' '.join(texts))}"


def _without_spaces(setting: str, words: Sequence[str]) -> str | None:
    """Join the parts of a setting KEY=VALUE that spaces have split; return None if the parts form no setting."""
    if "=" not in setting and "=" not in words[0]:
        return f"{setting}={words[0]}"
    joined = "".join([setting, *words[: 2 if words[0] == "=" else 1]])
    return joined if setting.endswith("=") or (words[0].startswith("=") and not joined.endswith("=")) else None


def _plain(flag: str) -> str:
    return flag.replace("_", "-")


def _name(parameter: object) -> str:
    """Return a click parameter's name for messages: `--flag` for a flag, the placeholder for a positional argument."""
    flags = [flag for flag in getattr(parameter, "opts", []) if flag.startswith("-")]
    argument = getattr(parameter, "metavar", None) or getattr(parameter, "name", "")
    return flags[0] if flags else str(argument).strip("[].")


def _sentence(message: str) -> str:
    return message[:1].lower() + message[1:].rstrip(".")
