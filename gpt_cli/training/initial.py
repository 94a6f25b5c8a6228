"""What a training begins with where its weights are not random: `--init-from`. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gpt_cli.checkpoints.find import find_header
from gpt_cli.checkpoints.header import Header
from gpt_cli.checkpoints.own_text import no_text, own_config, trusted_config
from gpt_cli.checkpoints.run_files import run_of_checkpoint
from gpt_cli.config import Config
from gpt_cli.config.reading import differences
from gpt_cli.config.yaml_subset import Document
from gpt_cli.errors import CheckpointError, UsageError, advised, shown
from gpt_cli.text.tokenizer import Tokenizer

FLAG = "--init-from"
# settings of the model that its weights do not depend on
_FREE = frozenset({"model.dropout", "model.context_length"})
_HINT = "leave these settings out, so that they are as there, or train without --init-from"


class Given(NamedTuple):
    """A tokenizer, and the weights of a state dict by name, float32."""

    tokenizer: Tokenizer
    weight: Callable[[str], np.ndarray]


@dataclass(frozen=True)
class Initial:
    """A model to begin with: its config now, its weights when they are needed.

    They are in a checkpoint, or `given` by whoever can read another format.
    """

    where: str
    config: Config
    header: Header | None = None  # of the checkpoint
    given: Given | None = None
    own_tokenizer: bool = False  # whether the training has a tokenizer of its own, and embeddings for it

    @property
    def name(self) -> str:
        """The name that a run keeps of it: the last of its path, and of a checkpoint in a run the run's too."""
        path = Path(self.where).resolve()
        run = run_of_checkpoint(path)
        return path.name if run is None else f"{run.path.name}/{path.name}"

    def settings(self, *, other_text: bool) -> Config:
        """All settings, for a training without a config; those of a run are in its config.yaml.

        Raises UsageError where nothing that gpt may read names a text, unless the training has an `other_text`.
        """
        if self.header is not None:
            named = trusted_config(self.header) if other_text else own_config(self.header, stdin=True)
            return named.model_copy(update={"model": self.config.model, "tokenizer": self.config.tokenizer})
        if not other_text:
            raise no_text(shown(self.where))
        return self.config  # from which `exchange` has taken what a stranger may not ask for


def initial_of_run(path: Path) -> Initial:
    """The best checkpoint of a run, or a checkpoint; raises CheckpointError where there is none."""
    header = find_header(path)
    return Initial(str(path), header.config, header=header)


def filled(document: Document, source: Config) -> Document:
    """A config file with the settings of model and tokenizer that it leaves out, as they are in a source."""
    known = source.model_dump(mode="json")
    content = dict(document.content)
    for section in ("model", "tokenizer"):
        own = content.get(section)
        if own is None or isinstance(own, dict):  # else validation reports that it is no section
            content[section] = {**known[section], **(own or {})}
    return Document(content, document.lines)


def asks_for(settings: Sequence[str], *beginnings: str) -> bool:
    """Whether a `--set` text begins in one of these ways, such as `tokenizer.`."""
    return any(setting.startswith(beginnings) for setting in settings)


def require_fit(initial: Initial, asked: Config, settings: Sequence[str] = (), config: str | None = None) -> None:
    """Raises CheckpointError that lists every setting with which the weights do not fit.

    `settings` are those of `--set`; the others come from the file that `config` names.
    """
    misfits = list(_misfits(initial, asked))
    if not misfits:
        return
    hint = _HINT
    from_file = [key for key, _ in misfits if not asks_for(settings, f"{key}=")]
    if config is not None and from_file:
        of_file = f"--config {config} asks for this; without it, gpt train takes all settings of {initial.where}"
        kind = f"tokenizer.kind={asked.tokenizer.kind}"
        hint = of_file if "tokenizer.kind" not in from_file else f"{of_file}; or --set {kind} for new embeddings"
    raise advised([CheckpointError(FLAG, sentence) for _, sentence in misfits], hint)


def require_no_download(initial: Initial, asked: Config) -> None:
    """Raises UsageError where a training has a tokenizer of its own, and the model alone says that it is a download."""
    if initial.own_tokenizer and asked.tokenizer.kind == "tiktoken":
        sentence = (
            f"{initial.where} has tiktoken, whose vocabulary may need a download, so gpt uses it where you ask for it"
        )
        raise UsageError("tokenizer.kind", sentence, hint="--set tokenizer.kind=tiktoken")


def _misfits(initial: Initial, asked: Config) -> Iterator[tuple[str, str]]:
    """The settings with which the weights do not fit, each with a sentence."""
    there = initial.config.model
    for key, old, new in differences(initial.config, asked):
        section, _, _ = key.partition(".")
        if section == "model" and key not in _FREE:
            yield key, f"{key} is {old} in {initial.where} and {new} here, and its weights fit {old} alone"
        elif section == "tokenizer" and not initial.own_tokenizer:
            sentence = (
                f"{key} is {old} in {initial.where} and {new} here; only --set {key}={new} asks for new embeddings"
            )
            yield key, sentence
    if there.positions == "learned" and asked.model.context_length > there.context_length:
        sentence = (
            f"model.context_length is {asked.model.context_length}, but {initial.where} has learned "
            f"{there.context_length} positions; use at most {there.context_length}"
        )
        yield "model.context_length", sentence
