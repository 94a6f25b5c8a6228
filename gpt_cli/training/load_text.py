"""Read the text of a training from its sources, and encode it as token ids."""

from __future__ import annotations

import re

from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.checkpoints.run_list import find_runs
from gpt_cli.checkpoints.training_text import located
from gpt_cli.common.host import Host, Notify
from gpt_cli.config import Config
from gpt_cli.distributed.collectives import Ranks
from gpt_cli.errors import DataError
from gpt_cli.text.encode import EncodedText, encode_parts
from gpt_cli.text.load import SourceCorpus, read_data, split_of
from gpt_cli.text.sources import STDIN, source_names
from gpt_cli.text.tokenizers import Tokenizer
from gpt_cli.training.advice.rates import text_name
from gpt_cli.training.resume import is_missing, other_text, text_problem
from gpt_cli.training.start import Start

_FEWEST_NAMES, _LONGEST_NAME = 20, 40  # lines of a list, and characters of a line


def load_text(
    start: Start,
    config: Config,
    tokenizer: Tokenizer | None,
    directory: RunDirectory,
    host: Host,
    ranks: Ranks,
    *,
    of_sweep: bool,
) -> tuple[SourceCorpus, EncodedText]:
    """Read and encode the text; the tokenizer is the resumed run's, else `tokenizer`, else a new one by the config.

    On each machine, the first rank reads first. With `of_sweep`, only the first run of the sweep reports notices about
    the text. Raises CheckpointError if the ids of a resumed run differ from the ids that the run was trained on.
    """
    config = _where_the_text_is(start, config, directory, host.notice)
    with ranks.local_rank_zero_first():
        corpus = start.corpus or _read(start, config, directory, host)
        if not (of_sweep and len(find_runs(directory.path.parent)) > 1):  # the first run of a sweep has said it
            _remark_on(corpus, config, host.notice, continued=start.checkpoint is not None)
        if start.checkpoint is None:
            return corpus, encode_parts(*split_of(corpus, config.data, host), config, tokenizer, host)
        try:
            parts = split_of(corpus, config.data, host)
            text = encode_parts(*parts, config, start.checkpoint.tokenizer, host)
        except DataError as error:
            raise text_problem(error, start.checkpoint, config, directory) from error
        if text.digest != start.checkpoint.progress.data_digest:
            raise other_text(start.checkpoint, config, directory)
        return corpus, text


def _where_the_text_is(start: Start, config: Config, directory: RunDirectory, notice: Notify) -> Config:
    """Return `config`; if a resumed run has the same text sources as before, replace relative paths by existing paths.

    `located` finds the existing paths. No run stores these paths, because they name folders of this machine.
    """
    texts = [(one.data.source, one.data.validation_source) for one in (start.run_config, config) if one is not None]
    if start.run_config is None or texts[0] != texts[1]:
        return config
    data = located(config.data, directory.path, notice)
    return config.changed(data={"source": data.source, "validation_source": data.validation_source})


def _read(start: Start, config: Config, directory: RunDirectory, host: Host) -> SourceCorpus:
    """Read the text of a training; if the text of an earlier run is missing, the error's hint says how to name it."""
    try:
        return read_data(config.data, host)
    except DataError as error:
        if start.checkpoint is not None and (is_missing(error) or STDIN in source_names(config.data.source)):
            raise text_problem(error, start.checkpoint, config, directory) from error
        if start.initial is not None and start.initial.names_text and is_missing(error):
            where = start.initial.where
            error.hint = f"{where} was trained on it; name it where it is now, or another text, with ‹data=NEW/PATH›"
        raise


def _remark_on(corpus: SourceCorpus, config: Config, notice: Notify, *, continued: bool) -> None:
    for line in corpus.notices():
        notice(line)
    if corpus.num_documents == 1 and not continued and not corpus.how.conversations:  # it would be another text now
        one = f"{text_name(config.data)} counts as one document"
        if (separator := config.data.separator) is not None:
            notice(f"{one}; data.separator {separator!r} occurs nowhere between two")
        elif guess := _separator_in(next(corpus.blocks()).text):
            several = "if it holds several (poems, letters, names), say what separates them"
            notice(f"{one}; {several}: ‹data.separator={repr(guess)[1:-1]}›")


def _separator_in(text: str) -> str | None:
    """Guess the separator of documents: a blank line, or a line end if all lines are as short as names; else None."""
    end = "\r\n" if "\r\n" in text else "\n" if "\n" in text else "\r"
    if 2 * end in text.strip():
        return 2 * end
    lines = text.split(end)[:1000]
    of_names = len(lines) >= _FEWEST_NAMES and all(len(line) <= _LONGEST_NAME for line in lines)
    return end if of_names and not re.search(r"[][{}<>,;|=\t]", "".join(lines)) else None
