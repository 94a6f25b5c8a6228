"""Start a training from the weights of another model: `--init-from`. Imports torch only when it reads weights."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpt_cli.checkpoints.header import Header
from gpt_cli.checkpoints.run_paths import RunFiles, run_of_checkpoint
from gpt_cli.checkpoints.select import find_header
from gpt_cli.checkpoints.training_text import config_with_text, no_text, trusted_config
from gpt_cli.common.host import Host, Notify
from gpt_cli.config import Config
from gpt_cli.config.load import config_differences
from gpt_cli.config.strict_yaml import Document
from gpt_cli.errors import CheckpointError, shown, together

if TYPE_CHECKING:
    import numpy as np

    from gpt_cli.model import GPT
    from gpt_cli.text.tokenizers import Tokenizer

FLAG = "‹init_from›"
# settings of the model that its weights do not depend on
_FREE = frozenset({"model.dropout", "model.context_length"})
# the parameters that belong to a vocabulary
_OF_TOKENS = ("token_embedding.", "output_layer.", "ngram_embedding.")
_ONE_MODEL = {"teacher_share": None, "num_models": 2}
_HINT = "leave these settings out, so that gpt takes them from there, or train without ‹init_from›"


class InitialWeights(NamedTuple):
    """The tokenizer of a model, and `weight`, a function from a state-dict name to the float32 array of that weight."""

    tokenizer: Tokenizer
    weight: Callable[[str], np.ndarray]


@dataclass(frozen=True)
class Initial:
    """The model from whose weights a training starts (`--init-from`); `where` is its path, as messages show it.

    For a checkpoint, `header` is set, and `load_initial_weights` reads the weights; otherwise `weights` is set.
    """

    where: str
    config: Config
    header: Header | None = None  # of the checkpoint
    weights: InitialWeights | None = None
    new_tokenizer: bool = False  # whether the training has another tokenizer, and new embeddings
    names_text: bool = False  # whether its config alone names the text of the training

    @property
    def name(self) -> str:
        """The model's name as a run records it: the last part of its path, or `run/file` for a run's checkpoint."""
        path = Path(self.where).resolve()
        run = run_of_checkpoint(path)
        name = path.name if run is None else f"{run.path.name}/{path.name}"
        return os.fsencode(name).decode("utf-8", "replace")  # a checkpoint's header is UTF-8

    def settings(self, *, other_text: bool) -> Config:
        """Return the config of a training that starts from this model without --config; it trains a single model.

        With `other_text`, the user names a text. Without `other_text`, the config names the text of the model; raises
        UsageError if gpt may not read that text, for example because a stranger may have chosen it.
        """
        if self.header is not None:
            named = trusted_config(self.header) if other_text else config_with_text(self.header, stdin=True)
            named = named.changed(data={"loss": None}) if other_text else named
            alone = named.changed(train=_ONE_MODEL)
            return alone.model_copy(update={"model": self.config.model, "tokenizer": self.config.tokenizer})
        if not other_text:
            raise no_text(shown(self.where))
        # from which `exchange` has removed untrusted settings
        return self.config.changed(data={"loss": None})


def read_initial(path: Path, host: Host) -> Initial:
    """Read the config of the model at a path: a run (its best checkpoint), a checkpoint, or a transformers directory.

    `host.notice` receives a line per unused part of transformers files. Raises CheckpointError if no model is usable.
    """
    if not (path / "config.json").is_file() or RunFiles(path).exists():
        header = find_header(path)
        return Initial(str(path), header.config, header=header)
    assert host.read_foreign is not None, "who trains can read models of other programs"
    foreign = host.read_foreign(path)
    host.notices(foreign.notices)
    return Initial(str(path), foreign.config, weights=InitialWeights(foreign.tokenizer, foreign.weights.__getitem__))


def with_source_settings(document: Document, source: Config) -> Document:
    """Return a config file's settings, with missing model and tokenizer settings filled in from `source`."""
    source_settings = source.model_dump(mode="json")
    content = dict(document.content)
    for section in ("model", "tokenizer"):
        settings = content.get(section)
        if settings is None or isinstance(settings, dict):  # else validation reports that it is no section
            content[section] = {**source_settings[section], **(settings or {})}
    return Document(content, document.lines)


def asks_for(settings: Sequence[str], *beginnings: str) -> bool:
    """Return whether any of the `--set` arguments begins with one of `beginnings`, such as `tokenizer.`."""
    return any(setting.startswith(beginnings) for setting in settings)


def require_fit(initial: Initial, requested: Config, settings: Sequence[str] = (), config: str | None = None) -> None:
    """Raise a CheckpointError that lists every requested setting that does not fit the initial weights.

    `settings` are the `--set` arguments; all other settings come from the file that `config` names.
    """
    misfits = list(_misfits(initial, requested))
    if not misfits:
        return
    hint = _HINT
    from_file = [key for key, _ in misfits if not asks_for(settings, f"{key}=")]
    if config is not None and from_file:
        of_file = f"‹config={config}› asks for this; without it, gpt train takes all settings of {initial.where}"
        kind = f"tokenizer.kind={requested.tokenizer.kind}"
        of_tokens = "tokenizer.kind" in from_file and all(key.startswith("tokenizer.") for key, _ in misfits)
        hint = f"{of_file}; or ‹{kind}› for new embeddings" if of_tokens else of_file
    raise together([CheckpointError(FLAG, sentence, hint=hint) for _, sentence in misfits])


def _misfits(initial: Initial, requested: Config) -> Iterator[tuple[str, str]]:
    """Yield the key of each requested setting that does not fit the initial weights, and a sentence that says why."""
    there = initial.config.model
    for key, old, new in config_differences(initial.config, requested):
        if key.startswith("model.") and key not in _FREE:
            yield key, f"{key} is {old} in {initial.where} and {new} here, and its weights fit {old} alone"
        elif key.startswith("tokenizer.") and not initial.new_tokenizer:
            sentence = f"{key} is {old} in {initial.where} and {new} here; only ‹{key}={new}› asks for new embeddings"
            yield key, sentence
    if there.positions == "learned" and requested.model.context_length > there.context_length:
        learned = f"{initial.where} has learned {there.context_length} positions; use at most {there.context_length}"
        sentence = f"model.context_length is {requested.model.context_length}, but {learned}"
        yield "model.context_length", sentence


def load_initial_weights(initial: Initial) -> InitialWeights:
    """Return the tokenizer and the weights of the initial model; raise CheckpointError if its checkpoint is damaged."""
    if initial.weights is not None:
        return initial.weights
    from gpt_cli.checkpoints.checkpoint import read_checkpoint

    assert initial.header is not None
    stored = read_checkpoint(initial.header.path, initial.header)
    weights = stored.build_model().state_dict()
    return InitialWeights(stored.tokenizer, lambda name: weights[name].numpy())


def begin_with(model: GPT, initial: InitialWeights, tokenizer: Tokenizer, notice: Notify) -> None:
    """Copy the initial weights into a model of equal sizes; if the tokenizer differs, weights of tokens stay random.

    A shorter context takes the first learned position embeddings. `notice` receives a line in each of the two cases.
    """
    import torch

    same_tokens = tokenizer.digest == initial.tokenizer.digest
    for name, parameter in model.state_dict().items():
        if name.startswith(_OF_TOKENS) and not same_tokens:
            continue
        weight = torch.from_numpy(initial.weight(name))
        if name == "position_embedding.weight" and len(weight) > len(parameter):
            notice(f"gpt uses the first {len(parameter)} of {len(weight)} positions, as model.context_length requires")
            weight = weight[: len(parameter)]
        parameter.copy_(weight)
    if not same_tokens:
        notice(f"the new embeddings, of {tokenizer.vocab_size:,} tokens of kind {tokenizer.kind}, begin at random")
