"""The text that a trained model is measured on: one that the user names, or the run's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gpt_cli.callbacks import Host
from gpt_cli.checkpoints.load import Loaded
from gpt_cli.checkpoints.own_text import located
from gpt_cli.checkpoints.run_files import named_run
from gpt_cli.config import DataConfig
from gpt_cli.errors import DataError, GptError
from gpt_cli.text.corpus import Corpus
from gpt_cli.text.encoding import both_examples, digest_of, encode
from gpt_cli.text.examples import ConversationCorpus
from gpt_cli.text.formats import Reading
from gpt_cli.text.reading import SourceCorpus, read_corpus, read_split, reading_of
from gpt_cli.text.sources import names_of


def given_text(sources: Sequence[str], text: DataConfig, host: Host, *, answers: bool = False) -> SourceCorpus:
    """The text of `--data`, read as a run reads text; with `answers`, questions and answers are read as such.

    Raises DataError or EnvironmentFailure, whose hints lack what only commands with `--set` can do.
    """
    how = reading_of([*sources], text) if answers else Reading(text.text_field, text.max_expansion)
    try:
        return read_corpus([*sources], None, how, skip_bad=text.skip_bad, host=host)
    except GptError as error:
        for problem in (error, *error.others):
            ways = re.split("(?=; )", problem.hint or "")
            kept = "".join(way for way in ways if "--set " not in way)
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
        hint = f"{name} was trained on it; name it where it is now, or another text, with --data SOURCE"
        raise DataError(error.where, error.sentence, hint=hint) from error


def is_own_text(name: str, own: OwnText, loaded: Loaded, host: Host) -> bool:
    """Whether a text gives the ids that the run was trained and evaluated on; the user is warned where it does not."""
    data, training, validation = own
    try:
        if isinstance(training, ConversationCorpus) and isinstance(validation, ConversationCorpus):
            digest = digest_of(*both_examples(training, validation, loaded.config, loaded.tokenizer, host))
        else:
            num_bytes = training.num_bytes + validation.num_bytes
            with host.counting("comparing with the training", num_bytes, "B") as count:
                ids = [encode(part, loaded.tokenizer, count, host.notice) for part in (training, validation)]
            digest = digest_of(*ids)
        same = digest == loaded.data_digest
    except DataError:  # it has characters that the run's vocabulary lacks
        same = False
    if not same:
        sources = [*names_of(data.source), *names_of(data.validation_source)]
        host.warn(f"{name}: {joined(sources)} has changed since this run was trained on it")
    return same


def joined(source: str | list[str]) -> str:
    """One source as it is, several with commas between them."""
    return source if isinstance(source, str) else ", ".join(source)
