"""Load the corpus of SOURCEs (files, directories, globs, stdin, catalogue names); find its size and digest."""

import contextlib
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import IO

from gpt_cli.common.files import spooling
from gpt_cli.common.host import NOBODY, Host
from gpt_cli.common.limits import STDIN_BYTES, STDIN_MEMORY
from gpt_cli.config import DataConfig
from gpt_cli.errors import DataError, EnvironmentFailure, GptError, counted, shown, together, visible
from gpt_cli.text import datasets
from gpt_cli.text.cache import find_survey, remember
from gpt_cli.text.compressed import BLOCK
from gpt_cli.text.corpus import Corpus, Survey, SurveyedCorpus, Tally, Watch, fits_in_memory
from gpt_cli.text.documents import TextBlock, bytes_counted, decoded, in_blocks, markup_noted, split_at, split_at_marks
from gpt_cli.text.file_formats import SKIP_HINT, Reading, has_remedy, holds_conversations, is_encoded, read_file
from gpt_cli.text.remarks import Remarks
from gpt_cli.text.sft_examples import ConversationCorpus, split_conversations
from gpt_cli.text.sources import NAME_A_SOURCE, STDIN, SourceFile, SourceWalk, require_there, source_names

MOST_ERRORS = 20
_LINE_ENDS = {
    "\r\n": ("lines end as on Windows, and \\r becomes a part of tokens", "tr -d '\\r' < OLD > NEW removes it"),
    "\r": ("lines end with \\r alone, which becomes a part of tokens", "tr '\\r' '\\n' < OLD > NEW converts them"),
}
_MOVE_HINT = "then move the old file out of the directory"


class SourceCorpus(SurveyedCorpus):
    """The corpus of SOURCEs (file, directory, glob, stdin or catalogue name); use `read_data` to make one."""

    has_survey: bool  # whether the cache had the survey of an earlier program
    _stdin: IO[bytes]  # the content of stdin, which can be read only once
    _documents: list[TextBlock] | None = None  # all documents of a short text, once they have been read

    def __init__(self, sources: Sequence[str], how: Reading, host: Host, watch: Watch, *, fresh: bool):
        self.sources, self.how = sources, how
        super().__init__(self._survey_all(host, watch, fresh))

    def blocks(self) -> Iterator[TextBlock]:
        if self._documents is None and fits_in_memory(self.num_characters, self.num_documents):
            self._documents = [*self._blocks_again()]  # an earlier program made the survey
        yield from self._blocks_again() if self._documents is None else self._documents

    def _blocks_again(self) -> Iterator[TextBlock]:
        left_out, remarks = set(self.survey.bad), Remarks(skip_bad=self.how.skip_bad)
        for file in SourceWalk(self.sources, self.how.skip_bad):
            if file.name not in left_out:
                yield from self._blocks_of(file, remarks)

    def require_unchanged(self) -> None:
        if SourceWalk(self.sources, self.how.skip_bad).finished().fingerprint() != self.survey.fingerprint:
            hint = "try again when no other program writes to it"
            raise DataError(self._where, "the text changed while gpt read it", hint=hint)

    def with_template(self, template: str | None) -> Corpus:
        """Return this corpus or, if it has conversations, a ConversationCorpus with `template` (None: a plain one)."""
        if not self.how.conversations:
            return self
        return ConversationCorpus(self, 0, self.num_documents, template)

    def notices(self) -> Iterator[str]:
        """Yield lines for the user: remarks on the text, what was left out, and the number of repeated sources."""
        yield from self.survey.notes
        if self.survey.num_repeated:
            yield f"left out {counted(self.survey.num_repeated, 'repeated source')}: each text is read once"

    @property
    def _where(self) -> str:
        return shown(", ".join(self.sources))

    def _survey_all(self, host: Host, watch: Watch, fresh: bool) -> Survey:
        """Return the survey (size, digest) from the cache; if missing or `fresh`, read all text. See `read_data`."""
        with host.working("looking for changes"):
            looked = SourceWalk(self.sources, self.how.skip_bad).finished()
        num_bytes = looked.num_bytes
        if STDIN in self.sources:
            self._stdin = _file_of(sys.stdin.buffer)
            self._stdin.seek(0, os.SEEK_END)
            with host.counting("reading stdin", None, "B") as count:
                _spool_stdin(self._stdin, count)
            num_bytes += self._stdin.tell()
        cached = find_survey(looked, self.how)
        self.has_survey = cached is not None
        if cached is not None and not fresh:
            return cached
        with host.counting("reading", num_bytes, "B") as count, ThreadPoolExecutor(1) as worker:
            survey = self._read_all(Tally(worker), count, watch)
        if cached is not None and cached.fingerprint == survey.fingerprint and cached.digest != survey.digest:
            sentence = "the content of the files has changed, but their sizes and times have not: the files are damaged"
            hint = "restore them from a copy; if the text is right as it is, run touch on one of the files"
            raise DataError(self._where, sentence, hint=hint)
        remember(survey, looked, self.how)
        return survey

    def _read_all(self, tally: Tally, count: Callable[[int], object], watch: Watch) -> Survey:
        walk, remarks = SourceWalk(self.sources, self.how.skip_bad), Remarks(skip_bad=self.how.skip_bad)
        bad, errors = list[str](), list[GptError]()
        skip_hint = None if self.how.skip_bad else SKIP_HINT
        any_named = any_unnamed = False
        for file in walk:
            try:
                tally.add_all(self._blocks_of(file, remarks, count), watch)
                if tally.line_ends:
                    what, command = _LINE_ENDS[tally.line_ends]
                    hints = [] if is_encoded(Path(file.name)) else [command, *([] if file.named else [_MOVE_HINT])]
                    remarks.note("; ".join([what, *hints]))
            except DataError as error:
                bad.append(file.name)
                any_named |= file.named  # a mistyped name must not shrink the text
                if not file.named:
                    # gpt would still read the old file, in the same directory as its repaired copy
                    hint = error.hint or skip_hint
                    if hint and " > " in hint and "skip_bad" not in hint:
                        hint += f"; {_MOVE_HINT}"
                    error.hint, any_unnamed = hint, True
                errors += [error] if len(bad) <= MOST_ERRORS else []
            except EnvironmentFailure as error:
                if file.named or not self.how.skip_bad or not isinstance(error.__cause__, PermissionError):
                    raise
                bad.append(file.name)
        for name in walk.special:
            remarks.leave_out("file", f"{visible(name)} (not a regular file)")
        for name in (*bad, *walk.closed):
            remarks.leave_out("bad", visible(name))
        survey, self._documents = tally.survey(), tally.documents
        if errors and (any_named or not self.how.skip_bad or not survey.num_documents):
            if len(bad) > MOST_ERRORS:
                more = f"{counted(len(bad) - MOST_ERRORS, 'more file')} cannot be read"
                errors.append(DataError(self._where, more, hint=skip_hint))
            if skip_hint and any_unnamed and not any(map(has_remedy, errors)):
                errors[-1].hint = f"{errors[-1].hint}; or {skip_hint}"
            raise together(errors)
        if not survey.num_documents:
            hint = next(iter(remarks.lines()), None)
            raise remarks.first_bad or DataError(self._where, "this source contains no text", hint=hint)
        return replace(
            survey,
            num_skipped=remarks.counts["file"] + remarks.counts["document"],
            notes=remarks.lines(),
            num_repeated=walk.num_repeated,
            bad=(*bad, *walk.closed),
            fingerprint=walk.fingerprint(),
        )

    def _blocks_of(
        self, file: SourceFile, remarks: Remarks, count: Callable[[int], object] = lambda _: None
    ) -> Iterator[TextBlock]:
        """Yield the documents of one source (a file, stdin or a catalogue entry) in blocks."""
        how, is_stdin = self.how, file.name == STDIN and file.status is None  # else a file of that name in a directory
        remarks.begin("stdin" if is_stdin else file.name, has_file=not is_stdin)
        if how.conversations and file.status is None and _is_of_conversations(file, how) is False:
            sentence = "this is not a list of questions and answers, but the first source is, so all sources must be"
            raise DataError(shown(file.name), sentence)
        if is_stdin:
            self._stdin.seek(0)
            content = iter(lambda: self._stdin.read(BLOCK), b"")
            text = decoded(content, "stdin", "save it to a file with the right ending, and name that file")
            blocks = markup_noted(bytes_counted(text, count), remarks.note)
        elif file.status is None and file.name in datasets.ENTRIES:
            blocks = in_blocks(datasets.read_entry(datasets.ENTRIES[file.name]))
        else:
            if file.named and file.status is None:
                require_there(file.name)
            hint = NAME_A_SOURCE if file.named else None
            blocks = read_file(Path(file.name), how, remarks, named=file.named, hint=hint, count=count)
        if how.conversations:
            return blocks
        return split_at(how.separator, blocks) if how.separator else split_at_marks(blocks, remarks.note)


@lru_cache(maxsize=1)
def _file_of(stdin: IO[bytes]) -> IO[bytes]:
    """Return the file to which `_spool_stdin` copies `stdin`, the same for all corpora: stdin can be read only once."""
    spooled = tempfile.SpooledTemporaryFile(max_size=STDIN_MEMORY)  # noqa: SIM115
    weakref.finalize(stdin, spooled.close)
    return spooled


def _spool_stdin(spooled: IO[bytes], count: Callable[[int], object]) -> None:
    """Copy all of stdin to the file `spooled`; `count` receives the number of bytes of each block.

    Raises DataError beyond a size limit, because stdin may be endless, EnvironmentFailure if a write fails.
    """
    limit, num_bytes = STDIN_MEMORY, 0
    with spooling("stdin"):
        # not `read`, which would wait for a second Ctrl-D of a user who types the text
        while block := sys.stdin.buffer.read1(BLOCK):  # pyright: ignore[reportAttributeAccessIssue]
            if limit == STDIN_MEMORY < num_bytes + len(block):
                # half: a stream without end would fill the disk, or the memory behind a tmpfs
                limit = max(limit, shutil.disk_usage(tempfile.gettempdir()).free // 2)
            if (num_bytes := num_bytes + len(block)) > min(limit, STDIN_BYTES):
                megabytes = min(limit, STDIN_BYTES) / 1e6
                sentence = f"gpt keeps at most {megabytes:.0f} MB of it"
                if limit < STDIN_BYTES:
                    sentence = f"gpt keeps at most {megabytes:.0f} MB of it, half of what is free in the folder TMPDIR"
                raise DataError("stdin", sentence, hint="save the text to a file, and name that file")
            spooled.write(block)
            count(len(block))


def read_data(
    config: DataConfig, host: Host = NOBODY, *, fresh: bool = False, watch: Watch = lambda _: None
) -> SourceCorpus:
    """Return the corpus that `config.source` names (file, directory, glob, - or catalogue name), each file once.

    If size and digest of a large text are cached, gpt reads the text only with `fresh`, and raises DataError if its
    digest differs. `watch` receives each block that is read, as UTF-8, even of bad files. Raises DataError for a source
    that is missing, damaged, without text or not UTF-8, EnvironmentFailure for a source that the user may not read.
    """
    how = Reading(config.text_field, config.separator, skip_bad=config.skip_bad)
    with contextlib.suppress(GptError):  # reading the text raises the error
        kinds = (_is_of_conversations(file, how) for file in SourceWalk(source_names(config.source), config.skip_bad))
        # the beginning of the text decides
        how = replace(how, conversations=next((kind for kind in kinds if kind is not None), False))
    if config.loss == "answers" and not how.conversations:
        sentence = "answers needs lines of .jsonl with questions and answers, but the first source has none"
        raise DataError("data.loss", sentence, hint="‹data.loss=null›")
    if config.separator is not None and how.conversations:
        host.notice("questions and answers do not use data.separator")
    return SourceCorpus(source_names(config.source), how, host, watch, fresh=fresh)


def _is_of_conversations(file: SourceFile, how: Reading) -> bool | None:
    """Return whether a source consists of conversations; None for a file that is empty, damaged or not text."""
    if file.status is None and file.name in (STDIN, *datasets.ENTRIES):
        return file.name != STDIN and datasets.ENTRIES[file.name].has_answers
    return holds_conversations(Path(file.name), how, named=file.named)


def split_of(corpus: SourceCorpus, config: DataConfig, host: Host = NOBODY) -> tuple[Corpus, Corpus]:
    """Return (training, validation): two parts of `corpus`, or `corpus` and the corpus that validation_source names."""
    if config.validation_source is None:
        if corpus.how.conversations:
            return split_conversations(corpus, config)
        return corpus.split(config.validation_fraction)
    validation = read_data(config.changed(source=config.validation_source), host)
    for line in validation.notices():
        host.notice(f"data.validation_source: {line}")
    both = SourceWalk([*corpus.sources, *validation.sources], config.skip_bad).finished()
    if num_shared := both.num_repeated - corpus.survey.num_repeated - validation.survey.num_repeated:
        host.notice(f"data.validation_source: the training text contains {counted(num_shared, 'file')} of it, too")
    if corpus.how.conversations != validation.how.conversations:
        sentence = "one of data.source and data.validation_source has questions and answers, the other has none"
        raise DataError("data.validation_source", sentence)
    return corpus.with_template(config.template), validation.with_template(config.template)
