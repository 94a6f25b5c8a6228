"""Encode the prompt, or the windows of a text, that an inspected model reads; load a run's checkpoints in turn."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from gpt_cli.checkpoints.load import Loaded, load
from gpt_cli.checkpoints.run_paths import named_run
from gpt_cli.common.host import Host
from gpt_cli.common.limits import HEADS_TOKENS, HEADS_WINDOW
from gpt_cli.config import DataConfig
from gpt_cli.errors import CheckpointError, DataError, counted, shown, visible
from gpt_cli.evaluation.texts import is_run_text, read_named_text, read_run_text, remark_on_shares, training_share
from gpt_cli.sampling.prompts import encode_prompt
from gpt_cli.text.chat_templates import template_for
from gpt_cli.text.corpus import Corpus
from gpt_cli.text.encode import encode
from gpt_cli.text.sft_examples import ConversationCorpus
from gpt_cli.text.token_files import Ids, validation_windows
from gpt_cli.tools.interpret.request import ReadingRequest, ToInspect

DATA_TO_TRAIN = 0.9  # the share of a text on which a tuned lens trains, if it trains on that text; the rest is read


@dataclass(frozen=True)
class Text:
    """Ids of a prompt or text, and the `windows` (start, end) of these ids that the model reads."""

    about: str | list[str]  # the prompt, or the sources of the text
    ids: Ids
    windows: list[tuple[int, int]]
    training_share: float | None = None  # about the share of --data that the model was trained on

    @property
    def num_tokens(self) -> int:
        return sum(end - start for start, end in self.windows)


def encode_prompt_of(target: ToInspect, loaded: Loaded, *, truncate: bool | None, least: int = 1) -> Text:
    """Encode the prompt; raise DataError if it is too long, cannot be encoded, or has fewer than `least` tokens.

    `truncate` drops the first tokens of a prompt that is too long; None means that the command has no --truncate.
    """
    assert target.prompt is not None
    longest = loaded.config.model.context_length
    ids = encode_prompt(loaded.tokenizer, target.prompt, longest, source=target.source, truncate=truncate)
    if len(ids) < least:
        raise DataError("prompt", "it has 1 token, which can only look at itself; use at least 2")
    return Text(target.prompt, np.array(ids), [(0, len(ids))])


def read_text(request: ReadingRequest, target: ToInspect, loaded: Loaded, host: Host, *, rest: bool = False) -> Text:
    """Return evenly spaced windows of --data, or of the run's validation text; raises DataError for too little text.

    With `rest`, skip the first nine tenths of the tokens (DATA_TO_TRAIN), on which a tuned lens is trained.
    """
    assert target.text
    name = str(named_run(request.run) if request.run else loaded.header.run.path)
    corpus, about, shares = open_text(request.data, target.text, [(name, loaded)], host)
    ids = ids_of(corpus, loaded, host)
    if rest:
        ids = ids[round(len(ids) * DATA_TO_TRAIN) :]
    if len(ids) < 3:
        where = "‹data›" if request.data else name
        raise DataError(where, f"the text has {counted(len(ids), 'token')}; use at least 3")
    windows = spaced_windows(len(ids), loaded.config.model.context_length, request.max_tokens, host)
    return Text(about, ids, windows, *shares)


def open_text(
    sources: Sequence[str], config: DataConfig, models: Sequence[tuple[str, Loaded]], host: Host
) -> tuple[Corpus, str | list[str], list[float]]:
    """Open the text of --data `sources` by `config`, or, if it is empty, the validation text of the first model's run.

    Returns the text, its sources, and, with --data, the approximate share of --data on which each model was trained. A
    notice names each model that was trained on answers alone, because the losses measured here count all tokens.
    """
    shares = list[tuple[str, float]]()
    if sources:
        named = read_named_text(sources, config, host)
        corpus, about = named.with_template(config.template), [*sources]
        shares = [(name, training_share(name, named, loaded, host)) for name, loaded in models]
        remark_on_shares(shares, host)
    else:
        name, first = models[0]
        parts = read_run_text(name, config, host)
        is_run_text(name, config, parts, first, host)
        (_, corpus), about = parts, config.validation_source or config.source
    for name in (visible(each.header.run.path) for _, each in models if each.config.data.loss == "answers"):
        host.notice(
            f"{name} was trained on answers alone; gpt eval counts only answers, but these losses count all tokens"
        )
    return corpus, about, [share for _, share in shares]


def ids_of(corpus: Corpus, loaded: Loaded, host: Host) -> Ids:
    """Tokenize a text with a model's tokenizer, and conversations in the template that the model has learned."""
    with host.counting("tokenizing", corpus.num_bytes, "B") as count:
        if not isinstance(corpus, ConversationCorpus):
            return encode(corpus, loaded.tokenizer, count, host.notice)
        template = template_for(loaded.config.data.template, loaded.tokenizer, host.notice)
        ids = [template.encode(one.turns, loaded.tokenizer).ids for one in corpus.conversations()]
    return np.concatenate(ids).astype(np.uint32)


def spaced_windows(num_ids: int, context_length: int, max_tokens: int | None, host: Host) -> list[tuple[int, int]]:
    """Return evenly spaced windows (start, end) of `num_ids` ids, about `max_tokens` in all (None: HEADS_TOKENS)."""
    max_tokens = max_tokens or HEADS_TOKENS
    length = min(context_length, HEADS_WINDOW, max_tokens)
    if length == HEADS_WINDOW < min(context_length, num_ids - 1):
        host.notice(f"the model reads windows of {HEADS_WINDOW:,} tokens, not of {context_length:,}, to save time")
    return validation_windows(num_ids, length, max_tokens)


def each_checkpoint(paths: Iterable[Path], newest: Loaded, device: torch.device, host: Host) -> Iterator[Loaded]:
    """Load the checkpoints at `paths` onto a device and yield each in turn; `newest` is loaded already.

    Leaves out what a training has removed meanwhile. Raises CheckpointError for a checkpoint that is damaged, or has
    another tokenizer or shape than the newest.
    """
    for path in paths:
        if path != newest.path and not path.exists():
            continue
        loaded = newest if path == newest.path else load(path, None, host.warn)
        if loaded.header.metadata["tokenizer"] != newest.header.metadata["tokenizer"]:
            sentence = f"its tokenizer differs from that of {visible(newest.path)}, so its layers read other tokens"
            raise CheckpointError(shown(loaded.path), sentence)
        one, other = loaded.config.model, newest.config.model
        if any(getattr(one, key) != getattr(other, key) for key in ("num_blocks", "num_heads", "context_length")):
            raise CheckpointError(shown(loaded.path), f"its model is not of the same shape as in {shown(newest.path)}")
        loaded.model.to(device)
        yield loaded
