"""The text that a trained model is measured on: one that the user names, or the run's own."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from gpt_cli.checkpoints.load import Loaded
from gpt_cli.checkpoints.run_paths import named_run
from gpt_cli.checkpoints.training_text import located
from gpt_cli.common.host import Host, ignored
from gpt_cli.config import DataConfig
from gpt_cli.errors import DataError, GptError, visible
from gpt_cli.text.corpus import Corpus
from gpt_cli.text.datasets import ENTRIES, read_entry
from gpt_cli.text.encode import both_examples, digest_of, encode
from gpt_cli.text.file_formats import Reading
from gpt_cli.text.load import SourceCorpus, read_corpus, read_split, reading_of, split_of
from gpt_cli.text.sft_examples import ConversationCorpus
from gpt_cli.text.sources import SourceFile, SourceWalk, source_names

BYTES_PER_TOKEN = 4  # of a stretch of text on which tokenizers are compared; few have more on average


def beginning(corpus: Corpus, max_tokens: int) -> Corpus:
    """About so many tokens of a text, whatever the tokenizer."""
    most = BYTES_PER_TOKEN * max_tokens
    return corpus.split(1 - most / corpus.num_bytes)[0] if corpus.num_bytes > most else corpus


def given_text(sources: Sequence[str], text: DataConfig, host: Host, *, answers: bool = False) -> SourceCorpus:
    """The text of `--data`, read as a run reads text; with `answers`, questions and answers are read as such.

    Raises DataError or EnvironmentFailure, whose hints lack what only commands with `--set` can do.
    """
    how = reading_of([*sources], text) if answers else Reading(text.text_field)
    try:
        return read_corpus([*sources], None, how, skip_bad=text.skip_bad, host=host)
    except GptError as error:
        for problem in (error, *error.others):
            ways = re.split("(?=; )", problem.hint or "")
            kept = "".join(way for way in ways if "‹data." not in way)
            problem.hint = re.sub("^; (or )?", "", kept) or None
        raise


class OwnText(NamedTuple):
    """The text that a run was trained on, as it is now, in its two parts."""

    data: DataConfig
    training: Corpus
    validation: Corpus

    @property
    def validated_on(self) -> str | list[str]:
        """The sources that the validation text is from."""
        return self.data.validation_source or self.data.source


def own_text(name: str, data: DataConfig, host: Host) -> OwnText:
    """The text that a run was trained on; raises DataError where it cannot be read."""
    try:
        return OwnText(data, *read_split(located(data, named_run(name), host.notice), host))
    except DataError as error:
        hint = f"{name} was trained on it; name it where it is now, or another text, with ‹data=SOURCE›"
        raise DataError(error.where, error.sentence, hint=hint) from error


def is_own_text(name: str, own: OwnText, loaded: Loaded, host: Host) -> bool:
    """Whether a text gives the ids that the run was trained and evaluated on; the user is warned where it does not."""
    data = own.data
    if not (same := _gives_same_ids(own.training, own.validation, loaded, host)):
        sources = [*source_names(data.source), *source_names(data.validation_source)]
        host.warn(f"{name}: {joined(sources)} has changed since this run was trained on it")
    return same


def _gives_same_ids(training: Corpus, validation: Corpus, loaded: Loaded, host: Host) -> bool:
    try:
        if isinstance(training, ConversationCorpus) and isinstance(validation, ConversationCorpus):
            digest = digest_of(*both_examples(training, validation, loaded.config, loaded.tokenizer, host))
        else:
            num_bytes = training.num_bytes + validation.num_bytes
            with host.counting("comparing with the training", num_bytes, "B") as count:
                ids = [encode(part, loaded.tokenizer, count, host.notice) for part in (training, validation)]
            digest = digest_of(*ids)
    except DataError:  # it has characters that the run's vocabulary lacks
        return False
    return digest == loaded.data_digest


def training_share(name: str, given: SourceCorpus, loaded: Loaded, host: Host) -> float:
    """About which share of --data the model has learned from; `remark_on_shares` says it.

    It counts files that the run was trained on and that are older than the checkpoint, and a short text that gives the
    same ids under any name.
    """
    data, share = loaded.config.data, 0.0
    with contextlib.suppress(GptError, OSError):  # texts of the run that are no longer there
        share = 0.0 if loaded.header.progress.imported else _share_of_files(name, given, loaded)
        if not share and not given.is_large and data.separator is None and data.validation_source is None:
            parts = split_of(given, data)
            share = (1 - data.validation_fraction) * _gives_same_ids(*parts, loaded, replace(host, notice=ignored))
    return share


def remark_on_shares(shares: Iterable[tuple[str, float]], host: Host) -> None:
    """Say which models have learned from --data; `shares` has the name of each and its `training_share`."""
    names = dict[str, list[str]]()
    for name, share in shares:
        if share >= 0.005:
            of_part = names.setdefault("all" if share > 0.995 else f"about {share:.0%}", [])
            of_part += [] if visible(name) in of_part else [visible(name)]
    for part, learned in names.items():
        sentence = f"{joined(learned)} learned from {part} of this text, so the loss is too low"
        host.notice(f"{sentence}; without ‹data›, validation text is measured")


def _share_of_files(name: str, given: SourceCorpus, loaded: Loaded) -> float:
    measured = {_identity(found): found for found in SourceWalk(given.sources, given.skip_bad)}
    # a stranger's model names any paths: those of other names than the measured ones are never looked for
    parts = {part for found in measured.values() for part in Path(os.path.abspath(found.name)).parts}
    if not any(fnmatch.filter(parts, Path(source).name or "*") for source in source_names(loaded.config.data.source)):
        return 0.0
    data, written = located(loaded.config.data, named_run(name), ignored), loaded.path.stat().st_mtime
    sizes = {_identity(found): (_size(found), found) for found in SourceWalk(source_names(data.source), data.skip_bad)}
    left = sum(size for size, _ in sizes.values())
    left *= 1.0 if data.validation_source else 1 - data.validation_fraction  # of the training part, which comes first
    learned = dict[object, float]()
    for identity, (size, found) in sizes.items():
        if found.status is None or found.status.st_mtime <= written:
            learned[identity] = min(size, max(0.0, left))
        left -= size
    return sum(learned.get(identity, 0.0) for identity in measured) / max(1, sum(map(_size, measured.values())))


def _identity(found: SourceFile) -> object:
    return found.name if found.status is None else (found.status.st_dev, found.status.st_ino)


def _size(found: SourceFile) -> int:
    """The bytes of a file, or of a text of the catalogue that is here."""
    if found.status is not None:
        return found.status.st_size
    entry = ENTRIES.get(found.name)
    return sum(len(text.encode()) for text in read_entry(entry)) if entry and entry.is_here() else 0


def joined(source: str | list[str]) -> str:
    """Join the names of sources with commas."""
    return source if isinstance(source, str) else ", ".join(source)
