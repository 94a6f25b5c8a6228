"""Encode conversations to token ids with a loss mask, and pack examples into windows."""

import hashlib
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np

from gpt_cli.config import DataConfig
from gpt_cli.errors import DataError
from gpt_cli.text.chat_templates import Template, plain_template
from gpt_cli.text.conversations import Conversation, read_conversation
from gpt_cli.text.corpus import CorpusPart, SurveyedCorpus
from gpt_cli.text.documents import TextBlock, in_blocks
from gpt_cli.text.tokenizers import Tokenizer

IGNORED = -100  # a target that adds no loss; torch and transformers use this number


class ConversationCorpus(CorpusPart):
    """The conversations start..end-1 of a corpus; `blocks` yields the text of each conversation as a document."""

    def __init__(self, of: SurveyedCorpus, start: int, end: int, template: str | None):
        super().__init__(of, start, end)
        self._template = plain_template(template) if template and "{" in template else plain_template()
        self.of_conversations = f"{of.digest} {start} {end}"  # the same for all templates
        self.digest = hashlib.sha256(f"{of.digest} conversations {start} {end} {template}".encode()).hexdigest()
        share = (end - start) / of.num_documents  # about: all count as equally long
        self.num_characters, self.num_bytes = round(of.num_characters * share), round(of.num_bytes * share)

    def conversations(self) -> Iterator[Conversation]:
        """Yield all conversations in order; raise DataError if the text has become unreadable."""
        return (read_conversation(block.text) for block in islice(self._of.blocks(), self._start, self._end))

    def blocks(self) -> Iterator[TextBlock]:
        return in_blocks(self._template.text(one.turns) for one in self.conversations())


def split_conversations(corpus: SurveyedCorpus, config: DataConfig) -> tuple[ConversationCorpus, ConversationCorpus]:
    """Return (training, validation: the last `validation_fraction`); raise DataError for a single conversation."""
    number = corpus.num_documents
    if number < 2:
        sentence = "it has one question with its answer, but gpt needs at least 2: one to train and one to validate"
        raise DataError("corpus", sentence, hint="add lines to it, or name ‹data.validation_source›")
    at = number - min(number - 1, max(1, round(number * config.validation_fraction)))
    return ConversationCorpus(corpus, 0, at, config.template), ConversationCorpus(corpus, at, number, config.template)


@dataclass(frozen=True, eq=False)
class Examples:
    """Conversations as `ids` [N] of N tokens, loss mask `learned` [N]; conversation i is ids[bounds[i]:bounds[i + 1]].

    An example of n tokens takes n - 1 positions of a window, because its last token is only a target.
    """

    ids: np.ndarray
    learned: np.ndarray
    bounds: np.ndarray
    first_question: list[int]  # the ids of the first example before its first answer
    template: Template
    num_left_out: int = 0  # which do not fit context_length
    longest: int = 0  # tokens of the longest, those left out included

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def lengths(self) -> np.ndarray:
        """The number of positions that each of E examples takes in a window: int64 [E]."""
        return np.diff(self.bounds) - 1

    @cached_property
    def num_learned(self) -> np.ndarray:
        """The number of tokens that the loss counts in each of E examples: int64 [E]."""
        return np.add.reduceat(self.learned, self.bounds[:-1], dtype=np.int64)

    @cached_property
    def targets(self) -> np.ndarray:
        """The ids of all N tokens as targets, int64 [N]: IGNORED for tokens that the loss does not count."""
        return np.where(self.learned, self.ids.astype(np.int64), IGNORED)

    def windows(self, num_tokens: int) -> list[tuple[int, int]]:
        """Return evenly spaced examples as (start, end) windows, about `num_tokens` tokens in all.

        Inputs are ids[start:end], targets are targets[start + 1:end + 1]. Each window is a single example, not packed.
        """
        E = len(self.lengths)
        number = min(E, max(1, round(E * num_tokens / max(1, int(self.lengths.sum())))))
        chosen = np.arange(number) * E // number
        return [(int(self.bounds[i]), int(self.bounds[i] + self.lengths[i])) for i in chosen]

    def packed(self, rows: Sequence[np.ndarray], length: int) -> list[np.ndarray]:
        """Pack examples into padded windows of `length` tokens; each row lists the examples of one window by index.

        Returns inputs, targets (IGNORED: no loss) and positions (from 0 in each example) of the windows, [B, T] each.
        """
        shape = len(rows), length
        packed = [np.zeros(shape, np.int64), np.full(shape, IGNORED), np.zeros(shape, np.int64)]
        for row, inputs, targets, positions in zip(rows, *packed, strict=True):
            at = 0
            for number in row:
                start, end = self.bounds[number : number + 2]
                taken = slice(at, at := at + int(end - start) - 1)
                inputs[taken] = self.ids[start : end - 1]
                targets[taken] = self.targets[start + 1 : end]
                positions[taken] = np.arange(end - start - 1)
            positions[at:] = np.arange(length - at)
        return packed

    @cached_property
    def digest(self) -> str:
        """The sha256 of everything that a training uses of the examples: ids, loss mask and bounds."""
        digest = hashlib.sha256()
        for part in (self.ids.astype(np.uint32), self.learned, self.bounds):
            digest.update(len(part).to_bytes(8, "little") + part.tobytes())
        return digest.hexdigest()


def pack(lengths: np.ndarray, size: int) -> list[np.ndarray]:
    """Return rows of example indices with at most `size` tokens a row, by best-fit decreasing (Johnson 1973).

    The rows depend only on `lengths` [E] of E examples; the indices of a row are in ascending order.
    """
    rows, rooms = list[list[int]](), list[tuple[int, int]]()  # rooms: (free positions, row), sorted
    for number in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[number])
        at = bisect_left(rooms, (length, -1))
        left, row = rooms.pop(at) if at < len(rooms) else (size, len(rows))
        if row == len(rows):
            rows.append([])
        rows[row].append(number)
        insort(rooms, (left - length, row))
    return [np.array(sorted(row)) for row in rows]


def gather(
    conversations: Iterable[Conversation],
    tokenizer: Tokenizer,
    template: Template,
    context_length: int,
    *,
    learn_all: bool = False,
    count: Callable[[int], object] = lambda _: None,
) -> Examples:
    """Return the encoded conversations that fit context_length; with `learn_all`, the loss counts questions too.

    `count` receives the number of bytes of each conversation's text.
    """
    ids, learned, bounds, first_question = list[np.ndarray](), list[np.ndarray](), [0], list[int]()
    num_left_out = longest = 0
    for conversation in conversations:
        encoded = template.encode(conversation.turns, tokenizer)
        count(sum(len(turn.content.encode()) for turn in conversation.turns))
        longest = max(longest, len(encoded.ids))
        if len(encoded.ids) - 1 > context_length:
            num_left_out += 1
            continue
        ids.append(np.array(encoded.ids, np.uint32))
        learned.append(np.ones(len(encoded.ids), bool) if learn_all else np.array(encoded.learned))
        learned[-1][0] = False  # nothing predicts the first token
        first_question = first_question or encoded.ids[: encoded.learned.index(True, 1)]
        bounds.append(bounds[-1] + len(encoded.ids))
    joined = np.concatenate([np.empty(0, np.uint32), *ids]), np.concatenate([np.empty(0, bool), *learned])
    return Examples(*joined, np.array(bounds), first_question, template, num_left_out, longest)
