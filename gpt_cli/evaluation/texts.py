"""Read the text on which a trained model is measured: the text of --data, or the text that the run was trained on."""

import contextlib
import fnmatch
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from gpt_cli.checkpoints.load import Loaded
from gpt_cli.checkpoints.training_text import located
from gpt_cli.common.host import Host, ignored
from gpt_cli.config import DataConfig
from gpt_cli.errors import DataError, GptError, visible
from gpt_cli.text.corpus import Corpus
from gpt_cli.text.datasets import ENTRIES, read_entry
from gpt_cli.text.encode import both_examples, digest_of, encode
from gpt_cli.text.load import SourceCorpus, read_data, split_of
from gpt_cli.text.sft_examples import ConversationCorpus
from gpt_cli.text.sources import SourceFile, SourceWalk, source_names

BYTES_PER_TOKEN = 4  # of a text on which tokenizers are compared; few average more


def beginning(corpus: Corpus, max_tokens: int) -> Corpus:
    """Return about the first `max_tokens` * BYTES_PER_TOKEN bytes of a text, the same part for every tokenizer."""
    most = BYTES_PER_TOKEN * max_tokens
    return corpus.split(1 - most / corpus.num_bytes)[0] if corpus.num_bytes > most else corpus


def read_named_text(sources: Sequence[str], settings: DataConfig, host: Host) -> SourceCorpus:
    """Read the text of --data, which may hold conversations, with a run's `settings`, but without `separator`.

    Raises DataError or EnvironmentFailure; their hints name no `data.` settings, since a user cannot set these here.
    """
    try:
        corpus = read_data(settings.changed(source=[*sources], separator=None, loss=None), host)
    except GptError as error:
        for problem in (error, *error.others):
            clauses = re.split("(?=; )", problem.hint or "")
            suggestions = "".join(clause for clause in clauses if "‹data." not in clause)
            problem.hint = re.sub("^; (or )?", "", suggestions) or None
        raise
    host.notices(corpus.notices())
    return corpus


def read_run_text(name: str, data: DataConfig, host: Host, advice: str | None = None) -> tuple[Corpus, Corpus]:
    """Return the training and validation parts of a run's text as it is now; raise DataError if it is unreadable.

    `advice` is the hint of the error; None: to name another text.
    """
    try:
        data = located(data, Path(name), host.notice)
        return split_of(read_data(data, host), data, host)
    except DataError as error:
        hint = f"{name} was trained on this text; name its new path, or another text, with ‹data=SOURCE›"
        raise DataError(error.where, error.sentence, hint=advice or hint) from error


def is_run_text(name: str, data: DataConfig, text: tuple[Corpus, Corpus], loaded: Loaded, host: Host) -> bool:
    """Return whether a text (its training and validation parts) encodes to the run's token ids; warn if it does not."""
    if not (same := gives_same_ids(*text, loaded, host)):
        sources = ", ".join(source_names(data.source, data.validation_source))
        host.warn(f"{name}: {sources} has changed since this run was trained on it, or an older gpt read it otherwise")
    return same


def gives_same_ids(training: Corpus, validation: Corpus, loaded: Loaded, host: Host) -> bool:
    """Return whether the parts of a text encode to the token ids that a run was trained on and evaluated with."""
    try:
        if isinstance(training, ConversationCorpus) and isinstance(validation, ConversationCorpus):
            digest = digest_of(*both_examples(training, validation, loaded.config, loaded.tokenizer, host))
        else:
            with host.counting("comparing with the training", training.num_bytes + validation.num_bytes, "B") as count:
                ids = [encode(part, loaded.tokenizer, count, host.notice) for part in (training, validation)]
            digest = digest_of(*ids)
    except DataError:  # it has characters that the run's vocabulary lacks
        return False
    return digest == loaded.header.progress.data_digest


def training_share(name: str, corpus: SourceCorpus, loaded: Loaded, host: Host) -> float:
    """Estimate the share (0 to 1) of the text of --data that the model of the run `name` was trained on.

    Counts the bytes of files that are in the training part of the run's text and not newer than the checkpoint. If no
    such file is found, a small text may be encoded; if its token ids equal those of the run's text, the result
    is the share of the training part. The result is 0 for an imported model, and if the run's text cannot be found.
    """
    data, share = loaded.config.data, 0.0
    with contextlib.suppress(GptError, OSError):  # texts of the run that are no longer there
        share = 0.0 if loaded.header.progress.imported else _share_of_files(name, corpus, loaded)
        if not share and not corpus.is_large and data.separator is None and data.validation_source is None:
            parts = split_of(corpus, data)
            share = (1 - data.validation_fraction) * gives_same_ids(*parts, loaded, replace(host, notice=ignored))
    return share


def remark_on_shares(shares: Iterable[tuple[str, float]], host: Host) -> None:
    """Notify the user which models were trained on the text of --data; `shares` has (name, `training_share`)."""
    names = dict[str, list[str]]()
    for name, share in shares:
        if share >= 0.005:
            of_part = names.setdefault("all" if share > 0.995 else f"about {share:.0%}", [])
            of_part += [] if visible(name) in of_part else [visible(name)]
    for part, learned in names.items():
        sentence = f"{', '.join(learned)} trained on {part} of this text, so the loss is too low"
        host.notice(f"{sentence}; without ‹data›, gpt measures validation text")


def _share_of_files(name: str, corpus: SourceCorpus, loaded: Loaded) -> float:
    measured = {_identity(file): file for file in SourceWalk(corpus.sources, corpus.how.skip_bad)}
    # a stranger's model may name any path: gpt searches only for paths with names of measured files
    parts = {part for file in measured.values() for part in Path(os.path.abspath(file.name)).parts}
    names = [Path(source).name or "*" for source in source_names(loaded.config.data.source)]
    if not any(name in parts or fnmatch.filter(parts, name) for name in names):  # [a].txt may be a name
        return 0.0
    data, saved_at = located(loaded.config.data, Path(name), ignored), loaded.path.stat().st_mtime
    sizes = {_identity(file): (_size(file), file) for file in SourceWalk(source_names(data.source), data.skip_bad)}
    left = sum(size for size, _ in sizes.values())
    left *= 1.0 if data.validation_source else 1 - data.validation_fraction  # of the training part, which comes first
    learned = dict[object, float]()
    for identity, (size, file) in sizes.items():
        if file.status is None or file.status.st_mtime <= saved_at:
            learned[identity] = min(size, max(0.0, left))
        left -= size
    return sum(learned.get(identity, 0.0) for identity in measured) / max(1, sum(map(_size, measured.values())))


def _identity(file: SourceFile) -> object:
    return file.name if file.status is None else (file.status.st_dev, file.status.st_ino)


def _size(file: SourceFile) -> int:
    """Return the bytes of a file, or of a text in `gpt data list`; 0 if that text is not on this machine."""
    if file.status is not None:
        return file.status.st_size
    entry = ENTRIES.get(file.name)
    return sum(len(text.encode()) for text in read_entry(entry)) if entry and entry.is_here() else 0
