"""Directories of one model at several steps of its training, as Pythia publishes them. Needs no torch."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpt_cli.common.host import Host
from gpt_cli.common.limits import STEPS
from gpt_cli.errors import GptError, UsageError, collecting, shown, together, visible
from gpt_cli.tools.exchange.import_hf import Foreign, read_foreign
from gpt_cli.tools.exchange.import_tensors import Weights

# step1000, checkpoint-2000, pythia-14m-step3000, step1000-tokens2B; nothing of TinyStories-33M
_STEP = re.compile(r"step[-_]?([0-9]+)(?![0-9])|([0-9]+)$", re.IGNORECASE)
_DIGITS = len(str(STEPS))


def directories_by_step(directories: Sequence[Path]) -> dict[int, Path]:
    """Return the directories by the training step that each name contains, the earliest first.

    The step is the number after the word step, else the number at the end of the name. Raises UsageError that lists all
    names without a step, and all names that repeat a step.
    """
    directories_of: dict[int, Path] = {}
    wrong: list[GptError] = []
    for directory in directories:
        match = _place_of_step(directory)
        digits = "" if match is None else (match[1] or match[2]).lstrip("0") or "0"
        if match is None or len(digits) > _DIGITS or int(digits) > STEPS:
            sentence = f"its name tells no step, as step1000 does; the largest is {STEPS:,}"
            wrong.append(UsageError(shown(directory), sentence, hint="rename it, or make a link with such a name"))
        elif (other := directories_of.setdefault(int(digits), directory)) is not directory:
            sentence = f"its name tells step {int(digits):,}, as that of {shown(other)} does"
            wrong.append(UsageError(shown(directory), sentence, hint="name one directory for each step"))
    if wrong:
        raise together(wrong)
    return dict(sorted(directories_of.items()))


def shared_name(directory: Path) -> str:
    """Return the directory's name without its step; if nothing is left, the name of its parent directory."""
    match = _place_of_step(directory)
    name = "" if match is None else match.string[: match.start()].rstrip("-_. ")
    return name or Path(os.path.abspath(directory)).parent.name or "steps"


def read_steps(steps: Mapping[int, Path], context_length: int | None, host: Host) -> tuple[Foreign, dict[int, Weights]]:
    """Return the model of the last step, and each step's weights, which are read on request.

    Raises the errors of all directories together, also for models that differ from the model of the last step.
    """
    wrong: list[GptError] = []
    weights: dict[int, Weights] = {}
    last: tuple[Path, Foreign] | None = None
    with host.counting("comparing", len(steps), "models") as count:
        count(0)
        for step, path in reversed([*steps.items()]):
            with collecting(wrong):
                foreign = read_foreign(path, context_length)
                if last is None:
                    last = path, foreign
                weights[step] = foreign.weights
                wrong += _differences(path, foreign, *last)
            count(1)
    if wrong:
        raise together(wrong)
    assert last is not None, "a request names at least one"
    return last[1], dict(sorted(weights.items()))


def _place_of_step(directory: Path) -> re.Match[str] | None:
    """Match the training step in the name of `directory`, for a link in the link's own name; None without a step."""
    matches = list(_STEP.finditer(os.path.basename(os.path.abspath(directory))))
    named = [match for match in matches if match[1]]
    return (named or matches or [None])[-1]


def _differences(path: Path, foreign: Foreign, last_path: Path, last: Foreign) -> list[GptError]:
    """Return an error for each setting, and for a tokenizer, that differs from the model of the last step."""
    ours = foreign.config.model.model_dump()
    wrong: list[GptError] = [
        UsageError(shown(path), f"{key} is {visible(ours[key])}, but in {shown(last_path)} it is {visible(value)}")
        for key, value in last.config.model.model_dump().items()
        if ours[key] != value
    ]
    if foreign.tokenizer.digest != last.tokenizer.digest:
        wrong.append(UsageError(shown(path), f"its tokenizer is not that of {shown(last_path)}"))
    return wrong
