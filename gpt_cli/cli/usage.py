"""A wrong command line as an error of ours, with the nearest right one as its hint."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# typer contains click since 0.26 and exports two of its exceptions; a test fails where a typer moves the others
from typer._click.exceptions import BadOptionUsage, BadParameter, MissingParameter, NoArgsIsHelpError, NoSuchOption
from typer._click.exceptions import UsageError as ClickUsageError

from gpt_cli.checkpoints.run_files import RunFiles, named_run
from gpt_cli.errors import GptError, UsageError, full_width, half_width, shown
from gpt_cli.language import LANGUAGES, VARIABLE, code_of

__all__ = ["ClickUsageError", "NoArgsIsHelpError", "name_flags_as_typed", "require_known_language", "usage_error"]

# what others call a flag -> ours, of which a command takes the first that it has; {} stands for the value
_ELSEWHERE = {
    name: ours
    for names, ours in {
        "model m": ("--run {}", "--config {}"),
        "ckpt ckpt-path checkpoint-path weights": ("--run {}", "--init-from {}"),
        "p text start input": ("--prompt {}", "--data {}"),
        "d dataset corpus file": ("--data {}",),
        "c cfg": ("--config {}",),
        "r": ("--run {}",),
        "o output out-dir output-dir": ("--out {}",),
        "name run run-name": ("--out runs/{}",),
        "steps iters iterations max-iters num-steps": ("--max-steps {}",),
        "epochs epoch num-epochs max-epochs num-train-epochs": ("--max-steps N",),
        "max-tokens num-tokens length max-length n-predict": ("--max-new-tokens {}",),
        "temp t": ("--temperature {}",),
        "gpu cuda": ("--device cuda",),
        "cpu": ("--device cpu",),
        "tokenizer": ("--set tokenizer.kind={}",),
        "force f": ("--overwrite",),
        "y": ("--yes",),
        "v": ("--version",),
    }.items()
    for name in names.split()
}
_TEXTS = (".txt", ".md", ".jsonl", ".csv", ".gz", ".zst", ".parquet")
_CHECKPOINT = ".safetensors"
_DASHES = "—–−－"
_LIKE = 0.65  # of names that are taken for one another; 1 is equal


# what other programs call our commands
_COMMANDS_ELSEWHERE = {
    "chat": "gpt sample",
    "complete": "gpt sample",
    "convert": "gpt export",
    "evaluate": "gpt eval",
    "finetune": "gpt train --init-from",
    "generate": "gpt sample",
    "list": "gpt runs",
    "ls": "gpt runs",
    "rm": "gpt runs rm",
    "run": "gpt sample --run",
    "show": "gpt info",
    "test": "gpt eval",
    "tokenize": "gpt tokens",
}


def usage_error(error: ClickUsageError, command: str, words: Sequence[str]) -> UsageError:
    """What typer found wrong with the words of a command line, which name the command `gpt sample` or so."""
    see, line = f"{command} --help lists the flags", _Line(error.ctx, command, words)
    if isinstance(error, NoSuchOption):
        word, value = line.unknown_flag(error.option_name)
        if wrong_mark := full_width(word):
            return UsageError(command, wrong_mark, hint=_did_you_mean(half_width(word).replace(":", "=", 1)))
        hint = _did_you_mean(line.flag_for(word, value)) or see
        return UsageError(command, f"there is no flag {shown(word)}", hint=hint)
    if isinstance(error, BadOptionUsage):
        takes = "this flag needs a value" if "requires" in error.message else "this flag takes no value"
        return UsageError(error.option_name, takes, hint=see)
    if isinstance(error, MissingParameter):
        return UsageError(command, f"{_name(error.param)} is missing", hint=f"{command} --help shows an example")
    if isinstance(error, BadParameter) and error.param is not None:
        flag = _name(error.param)
        return UsageError(flag, _sentence(error.message), hint=full_width(line.value_of(flag)))
    if (wrong := _unknown_command(error, command, words)) is not None:
        near = difflib.get_close_matches(wrong, getattr(error.ctx and error.ctx.command, "commands", {}), n=1)
        if command == "gpt" and wrong in _COMMANDS_ELSEWHERE:
            near = [_COMMANDS_ELSEWHERE[wrong]]
        hint = f"did you mean {near[0]}?" if near else f"{command} --help lists the commands"
        return UsageError(command, f"there is no command {shown(wrong)}", hint=hint)
    if extra := re.fullmatch(r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)", error.message, re.DOTALL):
        places = line.places_of(extra[1])
        for place in places:
            if line.words[place].startswith(tuple(_DASHES)):
                return line.other_dash(place, places)
        return UsageError(command, f"there is no place for {shown(extra[1])} here", hint=line.meaning(places) or see)
    return UsageError(command, _sentence(error.message), hint=see)


def require_known_language() -> None:
    """Raises UsageError where GPT_LANGUAGE names a language that `gpt` does not speak."""
    asked = os.environ.get(VARIABLE, "")
    if asked and code_of(asked) not in LANGUAGES:
        raise UsageError(VARIABLE, f"{shown(asked)} is not allowed; use {', '.join(LANGUAGES)}")


def name_flags_as_typed(error: GptError, words: Sequence[str]) -> None:
    """Let an error and those it carries name a flag with - or _ as the user typed it."""
    for problem in (error, *error.others):
        typed = _typed(problem.where, words)
        if problem.opens_with_its_place(problem.sentence):
            problem.sentence = typed + problem.sentence.removeprefix(problem.where)
        problem.where = typed


def _typed(flag: str, words: Sequence[str]) -> str:
    """`--top_k` for `--top-k` where the user typed that."""
    typed = (word.partition("=")[0] for word in words if word.startswith("-"))
    return next((word for word in typed if word.replace("_", "-") == flag), flag)


class _Line:
    """The words of a command line, and the flags of the command that they name."""

    def __init__(self, context: Any, command: str, words: Sequence[str]):
        self.words = list(words)
        self._first = len(command.split()) - 1  # gpt itself is no word of the line
        parameters = context.command.params if context is not None else []
        names_run = any(one.metavar in ("RUN", "PATH") and one.opts[0][:1] != "-" for one in parameters)
        self._runs = f"{command} {{}}" if names_run else None
        self._flags: Mapping[str, Any] = {flag: one for one in parameters for flag in one.opts if flag[:1] == "-"}

    def unknown_flag(self, name: str) -> tuple[str, str | None]:
        """The flag that the command does not have, as typed, and what was given to it."""
        for place, word in enumerate(self.words):
            flag, equals, value = word.partition("=")
            is_long = flag.replace("_", "-") == name
            if is_long or (len(name) == 2 and name[1] != "-" and re.match(rf"{re.escape(name)}\w", flag)):
                return flag, value if equals else self._value_after(place)
        return name, None

    def value_of(self, flag: str) -> str | None:
        """What was given to a flag, last."""
        given = [self.unknown_flag(flag)[1]] if flag in map(_plain, self.words) else []
        given += [word.partition("=")[2] for word in self.words if _plain(word.partition("=")[0]) == flag]
        return next(filter(None, given), None)

    def flag_for(self, word: str, value: str | None) -> str | None:
        """What to type for a flag that the command does not have; None where nobody knows."""
        name = _plain(word).lstrip("-")
        given = None if value is None else shlex.quote(value)
        if f"--{name}" in self._flags:
            return self._with_value(f"--{name} {{}}", given)
        if self._runs and name in ("run", "runs", "name", "model", "ckpt"):
            return self._runs.format(given or "RUN")
        # these read the declarations of all settings
        from gpt_cli.config.problems import setting_of
        from gpt_cli.config.schema import PUBLISHED

        if name == "tokenizer" and value in PUBLISHED and "--set" in self._flags:
            return f"--set tokenizer.kind=tiktoken --set tokenizer.name={value}"
        for ours in _ELSEWHERE.get(name, ()):
            if ours.split()[0] in self._flags:
                return self._with_value(ours, given)

        has_settings = "--set" in self._flags
        if has_settings and (key := setting_of(name)):
            return f"--set {key}={given or 'VALUE'}"
        ours = [flag[2:] for flag in self._flags if flag.startswith("--")]
        begun = [flag for flag in ours if len(name) > 2 and flag.startswith(name)]
        if near := begun if len(begun) == 1 else difflib.get_close_matches(name, ours, n=1, cutoff=_LIKE):
            return f"--{near[0]}"
        key = setting_of(name, near=True) if has_settings else None
        return key and f"--set {key}={given or 'VALUE'}"

    def places_of(self, extra: str) -> list[int]:
        """Where the words are that typer found too many, joined by spaces."""
        places, place = list[int](), self._first
        while place < len(self.words):
            flag, equals, _ = self.words[place].partition("=")
            if flag[:1] != "-" or flag == "-":
                places.append(place)
            elif not equals and self._takes_value(_plain(flag)):
                place += 1
            place += 1
        ends = (places[start:] for start in range(len(places)))
        return next((end for end in ends if " ".join(self.words[at] for at in end) == extra), [])

    def other_dash(self, place: int, places: Sequence[int]) -> UsageError:
        """The error for a flag that begins with another dash, such as the one that a Chinese keyboard types."""
        word = self.words[place]
        meant = f"--{half_width(word).lstrip('-')}"
        if place + 1 in places:
            meant += f" {shlex.quote(self.words[place + 1])}"
        return UsageError(
            shown(word), f"a flag begins with two hyphens, and not with {shown(word[0])}", hint=_did_you_mean(meant)
        )

    def meaning(self, places: Sequence[int]) -> str | None:
        """A hint with the flags to which words belong that stand alone; None where nobody knows."""
        if not places:
            return None
        before = places[0] - 1
        option = self._flags.get(_plain(flag := self._flag_of(before)))
        if getattr(option, "metavar", None) == "TEXT":
            end = next((at for at in range(before + 1, len(self.words)) if at not in places), len(self.words))
            text = " ".join([self.words[before].partition("=")[2] or self.words[before], *self.words[before + 1 : end]])
            return f"put quotes around a text with spaces: {flag} {shlex.quote(text)}"
        words = [self.words[place] for place in places]
        if flag == "--set" and (setting := _without_spaces(self.words[before].removeprefix("--set="), words)):
            return f"write no spaces around the equals sign: --set {shlex.quote(setting)}"
        again = [f"{flag} {shlex.quote(word)}" for word in words] if getattr(option, "multiple", False) else []
        return _did_you_mean(" ".join([*self._flags_for(words)] or again))

    def _flags_for(self, words: Sequence[str]) -> Iterator[str]:
        """The flags of these words; what names nothing is a prompt, where the command takes one."""
        from gpt_cli.checkpoints.own_text import is_imported
        from gpt_cli.config.reading import shipped_configs
        from gpt_cli.text.catalogue import ENTRIES

        trains = "--init-from" in self._flags
        typed, texts = {_plain(word.partition("=")[0]) for word in self.words}, list[str]()
        for word in words:
            is_config = word in shipped_configs() or word.endswith((".yaml", ".yml"))
            is_text = word in ENTRIES or word.endswith(_TEXTS) or os.path.exists(word)
            is_run = trains and word not in ENTRIES and RunFiles(named_run(word)).exists()
            if "--resume" in typed and "--out" in self._flags.keys() - typed:
                yield f"--out {shlex.quote(str(named_run(word)))}"
            elif is_config and "--config" in self._flags.keys() - typed:
                yield f"--config {shlex.quote(word)}"
            elif "--run" in self._flags.keys() - typed and (
                word.endswith(_CHECKPOINT) or os.path.isdir(named_run(word))
            ):
                yield f"--run {shlex.quote(word)}"
            elif is_run and not typed & {"--config", "--data", "--out"} and not is_imported(RunFiles(named_run(word))):
                yield f"--out {shlex.quote(str(named_run(word)))} --resume"
            elif trains and "--init-from" not in typed and (is_run or word.endswith(_CHECKPOINT)):
                yield f"--init-from {shlex.quote(word)}"
            elif is_text and "--data" in self._flags:
                yield f"--data {shlex.quote(word)}"
            else:
                texts.append(word)
        if texts and "--prompt" in self._flags.keys() - typed:
            yield f"--prompt {shlex.quote(' '.join(texts))}"

    def _flag_of(self, place: int) -> str:
        """The flag whose value this word is or contains; where it is something else, no flag of the command."""
        word = self.words[place] if place >= self._first else ""
        return word.partition("=")[0] if word[:1] == "-" else self.words[place - 1] if place > self._first else ""

    def _value_after(self, place: int) -> str | None:
        following = self.words[place + 1] if place + 1 < len(self.words) else "-"
        return None if re.match(r"-(?!\.?\d)", following) else following

    def _takes_value(self, flag: str) -> bool:
        return flag in self._flags and not self._flags[flag].is_flag

    def _with_value(self, ours: str, value: str | None) -> str:
        """One of our flags with its value; without one, as the help has it."""
        flag = ours.split()[0]
        if not self._takes_value(flag):
            return flag
        named = "VALUE" if flag == "--set" else getattr(self._flags[flag], "metavar", None) or "VALUE"
        return ours.replace("{}", value or named).replace(" runs/runs/", " runs/")


def _without_spaces(setting: str, words: Sequence[str]) -> str | None:
    """A setting with spaces around its equals sign or in its place, which the shell has therefore cut into words."""
    if "=" not in setting and "=" not in words[0]:
        return f"{setting}={words[0]}"
    joined = "".join([setting, *words[: 2 if words[0] == "=" else 1]])
    return joined if setting.endswith("=") or (words[0].startswith("=") and not joined.endswith("=")) else None


def _plain(flag: str) -> str:
    return flag.replace("_", "-")


def _did_you_mean(line: str | None) -> str | None:
    return f"did you mean {line}?" if line else None


def _unknown_command(error: ClickUsageError, command: str, words: Sequence[str]) -> str | None:
    """The word after `gpt data` or so that should name a command, where the error is about one that does not exist."""
    depth = len(command.split()) - 1  # gpt itself is no word of the arguments
    return words[depth] if error.message.startswith("No such command") and depth < len(words) else None


def _name(parameter: object) -> str:
    """A flag as `--flag`, an argument as in the help."""
    flags = [flag for flag in getattr(parameter, "opts", []) if flag.startswith("-")]
    argument = getattr(parameter, "metavar", None) or getattr(parameter, "name", "")
    return flags[0] if flags else str(argument).strip("[].")


def _sentence(message: str) -> str:
    return message[:1].lower() + message[1:].rstrip(".")
