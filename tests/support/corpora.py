"""A corpus of documents that are in memory, the documents of any corpus, and the amounts of work that are counted."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from gpt_cli.common.host import NOBODY, Counting, Host
from gpt_cli.config import DataConfig
from gpt_cli.text.corpus import Corpus, SurveyedCorpus, Tally
from gpt_cli.text.documents import TextBlock, in_blocks
from gpt_cli.text.file_formats import Reading
from gpt_cli.text.load import SourceCorpus, read_data, split_of
from gpt_cli.text.sources import source_names


class Texts(SurveyedCorpus):
    """Documents that are in memory."""

    def __init__(self, documents: Sequence[str]):
        self._documents = documents
        with ThreadPoolExecutor(1) as worker:
            tally = Tally(worker)
            tally.add_all(self.blocks())
        super().__init__(tally.survey())

    def blocks(self) -> Iterator[TextBlock]:
        return in_blocks(self._documents)


def read_corpus(
    sources: str | Sequence[str], how: Reading | None = None, *, fresh: bool = False, host: Host = NOBODY
) -> SourceCorpus:
    """The corpus of sources, read with these options, whatever the text begins with."""
    return SourceCorpus(source_names(sources), how or Reading(), host, lambda _: None, fresh=fresh)


def read_split(config: DataConfig) -> tuple[Corpus, Corpus]:
    """The training and the validation corpus of a config."""
    return split_of(read_data(config), config)


def noting(amounts: dict[str, list[int]]) -> Counting:
    """A Counting that notes, by what is counted, its total and the amounts."""

    @contextmanager
    def counting(what: str, total: int | None, _: str) -> Iterator[Callable[[int], object]]:
        amounts[what] = [total or 0]
        yield amounts[what].append

    return counting


def documents_of(corpus: Corpus) -> tuple[str, ...]:
    """All documents of a corpus as strings in memory."""
    documents: list[list[str]] = []
    for block in corpus.blocks():
        if block.starts:
            documents.append([])
        documents[-1].append(block.text)
    return tuple(map("".join, documents))
