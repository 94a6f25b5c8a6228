"""`gpt data stats`: count characters, lines and documents of a text, and estimate its tokens for a config."""

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpt_cli.common.host import Host
from gpt_cli.common.results import Result
from gpt_cli.common.tables import Rows
from gpt_cli.config import Config
from gpt_cli.errors import visible
from gpt_cli.text.compressed import BLOCK
from gpt_cli.text.corpus import Corpus
from gpt_cli.text.documents import bytes_counted
from gpt_cli.text.load import SourceCorpus, read_data, split_of
from gpt_cli.text.request import StatsRequest
from gpt_cli.text.split_patterns import BY_NAME
from gpt_cli.text.tokenizers import code_points
from gpt_cli.text.train_tokenizer import make_tokenizer, sample_texts, train_byte_pairs

# a vocabulary that is learned from 4 MB of text estimates the tokens of 40 MB within 1 % (note 0059)
ESTIMATE_BYTES = 4_000_000


@dataclass(frozen=True)
class TokenEstimate:
    """Estimated number of training tokens of a text, and its ratio to the number of parameters of a config's model."""

    vocab_size: int
    training_tokens: int
    bytes_per_token: float
    parameters: int
    tokens_per_parameter: float


@dataclass(frozen=True)
class Stats(Result):
    """Counts of a text, and, for a request with a config, an estimate of the text's tokens."""

    documents: int
    skipped_files: int
    repeated_files: int
    bad_files: int
    characters: int
    bytes: int
    lines: int
    distinct_characters: int
    most_common: list[str]
    estimate: TokenEstimate | None

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `gpt data stats --json` prints."""
        counts = {name: count for name, count in vars(self).items() if isinstance(count, int)}
        return counts | (vars(self.estimate) if self.estimate else {})

    def parts(self) -> list[Rows]:
        """Return a table of the counts (documents, bytes, ...), the most common characters, and the token estimate."""
        counts = {name: count for name, count in vars(self).items() if isinstance(count, int)}
        rows = [(key.replace("_", " "), f"{count:,}") for key, count in counts.items() if count or key != "bad_files"]
        rows.append(("most common", " ".join("␣" if each == " " else visible(each) for each in self.most_common)))
        return [[("", ""), *rows, *map(_estimated, vars(self.estimate).items() if self.estimate else ())]]


def stats(request: StatsRequest, config: Config, host: Host) -> Stats:
    """Count documents, lines and characters of a text; estimate its tokens if the request names a config."""
    characters = Characters()
    corpus = read_data(config.data, host, watch=characters.add)
    host.notices(corpus.notices())
    if corpus.how.conversations:
        host.notice("these are questions and answers; gpt counts their text, without field names and roles")
        characters = _count(corpus.with_template(config.data.template), host)
    elif characters.num_bytes != corpus.num_bytes:  # a cached corpus was not read, or some files are bad
        characters = _count(corpus, host)
    survey = corpus.survey
    return Stats(
        documents=survey.num_documents,
        skipped_files=survey.num_skipped,
        repeated_files=survey.num_repeated,
        bad_files=len(survey.bad),
        characters=int(characters.counts.sum()),
        bytes=characters.num_bytes,
        lines=int(characters.counts[ord("\n")]),
        distinct_characters=int((characters.counts > 0).sum()),
        most_common=characters.most_common(12),
        estimate=_estimate(corpus, characters, config, host) if request.config else None,
    )


class Characters:
    """Counter of characters in UTF-8 documents; `counts` [code points] is indexed by code point."""

    def __init__(self) -> None:
        self._counts = np.zeros(sys.maxunicode + 1, np.int64)
        self._held = bytearray()
        self.num_bytes = 0

    def add(self, content: bytes) -> None:
        """Count the characters of a block of UTF-8, which must contain only whole characters."""
        self.num_bytes += len(content)
        self._held += content  # counting takes 80 µs and more, however short the text
        if len(self._held) >= BLOCK:
            self._count_held()

    @property
    def counts(self) -> np.ndarray:
        self._count_held()
        return self._counts

    def _count_held(self) -> None:
        text = self._held.decode()
        self._held.clear()
        for start in range(0, len(text), BLOCK):  # counting takes 12 times the memory of the text
            counts = np.bincount(code_points(text[start : start + BLOCK]))
            self._counts[: len(counts)] += counts

    def most_common(self, number: int) -> list[str]:
        """Return the `number` most common characters, the commonest first; equal counts are in order of code points."""
        return [chr(point) for point in np.argsort(-self.counts, kind="stable")[:number] if self.counts[point]]


def _count(corpus: Corpus, host: Host) -> Characters:
    characters = Characters()
    with host.counting("counting", corpus.num_bytes, "B") as count:
        for block in bytes_counted(corpus.blocks(), count):
            characters.add(block.content)
    return characters


def _estimate(corpus: SourceCorpus, characters: Characters, config: Config, host: Host) -> TokenEstimate:
    training, validation = split_of(corpus, config.data, host)
    # questions and answers are shorter than the lines of JSON that contain them
    num_bytes = round(training.num_bytes / corpus.num_bytes * characters.num_bytes)
    num_documents = (corpus.num_documents - 1) * training.num_characters / corpus.num_characters
    with host.working("estimating tokens"):
        texts = list(sample_texts(training.blocks(), ESTIMATE_BYTES / max(1, num_bytes)))
        if config.tokenizer.kind == "bpe":
            tokenizer = train_byte_pairs(texts, config.tokenizer.vocab_size, BY_NAME[config.tokenizer.pattern])
        else:
            tokenizer = make_tokenizer(config.tokenizer, training, validation)
        sampled = sum(len(text.encode()) for text in texts)
        rate = sum(len(tokenizer.array(text)) for text in texts) / max(1, sampled)
    num_tokens = round(rate * num_bytes + num_documents)  # end-of-text separates documents
    with host.importing():
        from gpt_cli.model.costs import parameters_by_part
    parameters = sum(parameters_by_part(config.model, tokenizer.vocab_size).values())
    return TokenEstimate(
        vocab_size=tokenizer.vocab_size,
        training_tokens=num_tokens,
        bytes_per_token=num_bytes / max(1, num_tokens),
        parameters=parameters,
        tokens_per_parameter=num_tokens / parameters,
    )


def _estimated(fact: tuple[str, Any]) -> tuple[str, str]:
    """Format `fact`, (name, value) of a TokenEstimate field; 3 digits, but vocab_size and parameters in full."""
    name, value = fact
    if name in ("vocab_size", "parameters"):
        return name.replace("_", " "), f"{value:,}"
    rounded = float(f"{value:.3g}")
    return name.replace("_", " "), f"about {rounded:,.0f}" if isinstance(value, int) else f"about {rounded:g}"
