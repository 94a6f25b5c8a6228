"""The corpus behind SOURCEs: one pass over all of it, unless an earlier program made it, then streams of documents."""

from __future__ import annotations

import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import IO

from gpt_cli.callbacks import Counting, Notify, uncounted
from gpt_cli.config import DataConfig
from gpt_cli.errors import DataError, GptError, counted, shown, together
from gpt_cli.files import write_failure
from gpt_cli.limits import STDIN_BYTES, STDIN_MEMORY
from gpt_cli.text import catalogue
from gpt_cli.text.blocks import Block, in_blocks, split_at
from gpt_cli.text.corpus import Corpus, SurveyedCorpus, Tally, Watch, is_short
from gpt_cli.text.decoding import decoded
from gpt_cli.text.formats import BLOCK, Reading, read_file
from gpt_cli.text.manifest import Survey, find_survey, remember
from gpt_cli.text.sources import STDIN, Found, Walk, names_of

MOST_ERRORS = 20
NAME_A_SOURCE = "name a text file, a directory, a glob, - for stdin, or a name of `gpt data list`"
_SKIP_HINT = "--set data.skip_bad=true leaves such files out"


class SourceCorpus(SurveyedCorpus):
    """The documents of SOURCEs; `read_corpus` makes one and surveys it."""

    is_known: bool  # whether an earlier program has made that pass
    _stdin: IO[bytes]  # what came through stdin, which gives it once
    _kept: list[Block] | None = None  # all documents of a short text, once they have been read

    def __init__(self, sources: Sequence[str], separator: str | None, how: Reading, skip_bad: bool):
        self.sources, self.separator, self.how, self.skip_bad = sources, separator, how, skip_bad

    def blocks(self) -> Iterator[Block]:
        if self._kept is None and is_short(self.num_characters, self.num_documents):
            self._kept = [*self._blocks_again()]  # an earlier program made the survey
        yield from self._blocks_again() if self._kept is None else self._kept

    def _blocks_again(self) -> Iterator[Block]:
        left_out = set(self.survey.bad)
        for found in Walk(self.sources, self.skip_bad):
            if found.name not in left_out:
                yield from self._blocks_of(found) or ()

    def require_unchanged(self) -> None:
        if self._look().fingerprint() != self.survey.fingerprint:
            sentence = "the text changed while gpt read it"
            hint = "try again when no other program writes to it"
            raise DataError(shown(", ".join(self.sources)), sentence, hint=hint)

    def _look(self) -> Walk:
        """A walk that is over, and has opened nothing."""
        walk = Walk(self.sources, self.skip_bad)
        for _ in walk:
            pass
        return walk

    def survey_all(self, counting: Counting, watch: Watch, fresh: bool) -> Survey:
        """The survey that this corpus needs before anything else; see `read_corpus`."""
        with counting("looking for changes", None, "") as count:
            count(0)  # the work begins
            looked = self._look()
        num_bytes = looked.num_bytes
        if STDIN in self.sources:
            self._stdin = tempfile.SpooledTemporaryFile(max_size=STDIN_MEMORY)  # noqa: SIM115
            weakref.finalize(self, self._stdin.close)
            with counting("reading stdin", None, "B") as count:
                _keep_stdin(self._stdin, count)
            num_bytes += self._stdin.tell()
        how = (self.separator, self.how, self.skip_bad)
        known = find_survey(looked, how)
        self.is_known = known is not None
        if known is not None and not fresh:
            return known
        with counting("reading", num_bytes, "B") as count, ThreadPoolExecutor(1) as worker:
            survey = self._read_all(Tally(worker), count, watch)
        if not survey.num_documents:
            raise DataError(shown(", ".join(self.sources)), "this source contains no text", hint=NAME_A_SOURCE)
        if known is not None and known.fingerprint == survey.fingerprint and known.digest != survey.digest:
            sentence = "the content is not what gpt read before, but sizes and times of the files are: they are damaged"
            hint = "restore them from a copy; if the text is right as it is, run touch on one of the files"
            raise DataError(shown(", ".join(self.sources)), sentence, hint=hint)
        remember(survey, looked, how)
        return survey

    def _read_all(self, tally: Tally, count: Callable[[int], object], watch: Watch) -> Survey:
        walk = Walk(self.sources, self.skip_bad)
        num_skipped, bad, errors = 0, list[str](), list[GptError]()
        num_errors, any_named, any_found = 0, False, False
        for found in walk:
            try:
                if (blocks := self._blocks_of(found, count)) is None:
                    num_skipped += 1
                else:
                    tally.add_all(blocks, watch)
            except DataError as error:
                bad.append(found.name)
                num_errors += 1
                any_named |= found.named  # a mistyped name must not train on less text
                if not found.named:
                    error.hint, any_found = error.hint or _SKIP_HINT, True
                errors += [error] if num_errors <= MOST_ERRORS else []
        survey, self._kept = tally.survey(), tally.kept
        if errors and (any_named or not self.skip_bad or not survey.num_documents):
            if num_errors > MOST_ERRORS:
                more = f"{counted(num_errors - MOST_ERRORS, 'more file')} cannot be read"
                errors.append(DataError(shown(", ".join(self.sources)), more, hint=_SKIP_HINT))
            if any_found and all(error.hint != _SKIP_HINT for error in errors):
                errors[-1].hint = f"{errors[-1].hint}; or {_SKIP_HINT}"
            raise together(errors)
        return replace(
            survey,
            num_skipped=num_skipped + walk.num_special,
            num_repeated=walk.num_repeated,
            bad=(*bad, *walk.closed),
            fingerprint=walk.fingerprint(),
        )

    def _blocks_of(self, found: Found, count: Callable[[int], object] = lambda _: None) -> Iterator[Block] | None:
        """The documents of one file or other source; None for a file without text that nobody named."""
        if found.name == STDIN and found.status is None:  # else a file of that name in a directory
            advice = "unpack it before the pipe, as zcat does"
            blocks: Iterator[Block] | None = decoded(self._stdin_content(count), "stdin", advice)
        elif found.status is None and found.name in catalogue.ENTRIES:
            blocks = in_blocks(catalogue.read_entry(catalogue.ENTRIES[found.name]))
        else:
            blocks = read_file(Path(found.name), self.how, named=found.named, hint=_nearest(found), count=count)
        return split_at(self.separator, blocks) if blocks is not None and self.separator else blocks

    def _stdin_content(self, count: Callable[[int], object]) -> Iterator[bytes]:
        self._stdin.seek(0)
        while block := self._stdin.read(BLOCK):
            count(len(block))
            yield block


def _keep_stdin(spooled: IO[bytes], count: Callable[[int], object]) -> None:
    """Write all of stdin to a file; `count` receives its bytes.

    Raises DataError for more than is kept, which ends a stream that has no end.
    """
    room, num_bytes = STDIN_MEMORY, 0
    try:
        while block := sys.stdin.buffer.read(BLOCK):
            if room == STDIN_MEMORY < num_bytes + len(block):
                # half: a stream without end would fill the disk, or the memory behind a tmpfs
                room = max(room, shutil.disk_usage(tempfile.gettempdir()).free // 2)
            if (num_bytes := num_bytes + len(block)) > min(room, STDIN_BYTES):
                sentence = f"gpt keeps at most {STDIN_BYTES / 1e6:.0f} MB of it"
                if room < STDIN_BYTES:
                    sentence = f"gpt keeps at most {room / 1e6:.0f} MB of it, half of what is free in the folder TMPDIR"
                raise DataError("stdin", sentence, hint="save the text to a file, and name that")
            spooled.write(block)
            count(len(block))
    except OSError as error:
        failure = write_failure(Path(tempfile.gettempdir(), "stdin"), error)
        failure.hint = "set TMPDIR to a folder with more space"
        raise failure from error


def _nearest(found: Found) -> str | None:
    """A hint for a file that the user named and that may not exist."""
    if not found.named:
        return None
    close = catalogue.nearest(found.name)
    return f"did you mean {close}? else {NAME_A_SOURCE}" if close else NAME_A_SOURCE


def read_corpus(
    sources: str | Sequence[str],
    separator: str | None = None,
    how: Reading | None = None,
    *,
    skip_bad: bool = False,
    fresh: bool = False,
    counting: Counting = uncounted,
    watch: Watch = lambda _: None,
) -> SourceCorpus:
    """The documents of one or more SOURCEs, each file once; `separator` splits them into shorter ones.

    With `fresh` everything is read, and compared with what an earlier program has noted. `counting` receives the bytes
    of files that were read, `watch` each block of that pass in UTF-8, those of bad files too. Raises DataError for a
    source that is missing, damaged, contains no text or is not UTF-8, and EnvironmentFailure for one that the user may
    not read.
    """
    corpus = SourceCorpus(names_of(sources), separator, how or Reading(), skip_bad)
    corpus.survey = corpus.survey_all(counting, watch, fresh)
    return corpus


def read_data(
    config: DataConfig, counting: Counting = uncounted, *, fresh: bool = False, watch: Watch = lambda _: None
) -> SourceCorpus:
    """The text that a config names; raises errors as `read_corpus` does."""
    return read_corpus(
        config.source,
        config.separator,
        Reading(config.text_field, config.max_expansion),
        skip_bad=config.skip_bad,
        fresh=fresh,
        counting=counting,
        watch=watch,
    )


def read_split(config: DataConfig, counting: Counting = uncounted) -> tuple[Corpus, Corpus]:
    """The training and the validation part of the text that a config names; raises errors as `read_corpus` does."""
    return split_of(read_data(config, counting), config, counting)


def split_of(
    corpus: SourceCorpus, config: DataConfig, counting: Counting = uncounted, notice: Notify = lambda _: None
) -> tuple[Corpus, Corpus]:
    """The training and the validation part of a text, or the whole of it and a validation text of its own."""
    if config.validation_source is None:
        return corpus.split(config.validation_fraction)
    validation = read_data(config.changed(source=config.validation_source), counting)
    for line in validation.notices():
        notice(f"data.validation_source: {line}")
    both = Walk([*corpus.sources, *validation.sources], config.skip_bad)
    for _ in both:
        pass
    if num_shared := both.num_repeated - corpus.survey.num_repeated - validation.survey.num_repeated:
        notice(f"data.validation_source: the training text contains {counted(num_shared, 'file')} of it too")
    return corpus, validation
