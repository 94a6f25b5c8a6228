"""Conversations that a model answers: as many turns as its window holds."""

from __future__ import annotations

from collections.abc import Sequence

from gpt_cli.errors import DataError, counted
from gpt_cli.text.chat_templates import Template
from gpt_cli.text.conversations import Turn
from gpt_cli.text.tokenizers import Tokenizer


def fit_history(
    turns: Sequence[Turn], template: Template, tokenizer: Tokenizer, context_length: int, num_new_tokens: int
) -> tuple[list[int], int]:
    """Encode a conversation up to its answer; returns ids, and how many of its oldest turns are left out for room.

    What the system says stays. An answer has room for `num_new_tokens`, at most half of the window; the last message
    alone may take more. Raises DataError where that does not fit, or for a character that the vocabulary lacks.
    """
    max_length = context_length - min(num_new_tokens, context_length // 2)
    system = turns[:1] if turns[0].role == "system" else ()
    rest = turns[len(system) :]
    starts = [i for i, turn in enumerate(rest) if turn.role == "user" or i == 0]
    ids = list[int]()
    for start in starts:
        ids = template.encode([*system, *rest[start:]], tokenizer).ids
        if len(ids) <= (max_length if start != starts[-1] else context_length - 1):
            return ids, start
    sentence = f"it has {counted(len(ids), 'token')} in the template, but this model sees {context_length}"
    raise DataError("message", sentence, hint="ask in fewer words")
