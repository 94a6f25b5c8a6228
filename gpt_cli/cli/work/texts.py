"""The text that a trained model is measured on: one that the user names, or the run's own."""

from __future__ import annotations

from gpt_cli.checkpoints.discovery import Loaded
from gpt_cli.cli.terminal import Console
from gpt_cli.errors import DataError
from gpt_cli.text.corpus import Corpus
from gpt_cli.text.encoding import digest_of, encode
from gpt_cli.text.reading import read_split
from gpt_cli.text.sources import STDIN, names_of


def own_text(name: str, loaded: Loaded, console: Console) -> tuple[Corpus, Corpus]:
    """The training and the validation part of the text that a run's config names; raises DataError."""
    data = loaded.config.data
    if any(STDIN in names_of(named) for named in (data.source, data.validation_source)):
        raise DataError(name, "this run was trained on text from stdin, which it does not keep", hint="--data FILE")
    try:
        return read_split(data, console.counting)
    except DataError as error:
        hint = f"{name} was trained on it; measure another text with --data SOURCE"
        raise DataError(error.where, error.sentence, hint=hint) from error


def is_own_text(name: str, loaded: Loaded, training: Corpus, validation: Corpus, console: Console) -> bool:
    """Whether a text gives the ids that the run was trained and evaluated on; the user is warned where it does not."""
    try:
        with console.counting("comparing with the training", training.num_bytes + validation.num_bytes, "B") as count:
            parts = [encode(part, loaded.tokenizer, count, console.notice) for part in (training, validation)]
            same = digest_of(*parts) == loaded.data_digest
    except DataError:  # it has characters that the run's vocabulary lacks
        same = False
    if not same:
        data = loaded.config.data
        sources = [*names_of(data.source), *names_of(data.validation_source)]
        console.warn(f"{name}: {joined(sources)} has changed since this run was trained on it")
    return same


def joined(source: str | list[str]) -> str:
    """One source as it is, several with commas between them."""
    return source if isinstance(source, str) else ", ".join(source)
