"""Prompts of a training: for samples, for attention snapshots, and for the user's first try of the trained model."""

import contextlib
from collections.abc import Sequence

from gpt_cli.checkpoints.training_text import prompts_like
from gpt_cli.config import Config
from gpt_cli.errors import DataError, blaming, counted
from gpt_cli.sampling.prompts import encode_text
from gpt_cli.text.conversations import Turn
from gpt_cli.text.sft_examples import Examples
from gpt_cli.text.token_files import Ids
from gpt_cli.text.tokenizers import Tokenizer

SAMPLE_PROMPT_TOKENS = 16
_SEARCHED = 256  # tokens in which a line or a word begins
_SHORTEST = 2  # tokens at least, before a prompt ends with its line or with a word


def sample_prompt(config: Config, tokenizer: Tokenizer, validation_ids: Ids | Examples) -> list[int]:
    """Return token ids that samples continue: `train.sample_prompt`, else the beginning of a line of validation text.

    For conversations, the prompt is a question, by default the first. Raises DataError if a character has no token.
    """
    if (text := config.train.sample_prompt) is not None:
        with blaming("train.sample_prompt"):
            if isinstance(validation_ids, Examples):
                prompt_ids = validation_ids.template.encode([Turn("user", text)], tokenizer).ids
            else:
                prompt_ids = tokenizer.begin(tokenizer.encode(text))
    elif isinstance(validation_ids, Examples):
        prompt_ids = validation_ids.first_question
    else:
        start, ids, parts = _start(tokenizer, validation_ids)
        prompt_ids = ids[start : start + _length(parts[start : start + SAMPLE_PROMPT_TOKENS + 1])]
    return prompt_ids[-config.model.context_length :]


def _start(tokenizer: Tokenizer, validation_ids: Ids) -> tuple[int, list[int], list[bytes]]:
    """Return the first index where a line (else a word, else a character) begins, the ids searched, and their bytes.

    End-of-text counts as a line break. The search is needed because the ids may begin in the middle of a word.
    """
    ids = validation_ids[:_SEARCHED].astype(int).tolist()
    parts = [b"\n" if one == tokenizer.end_of_text else tokenizer.token_bytes[one] for one in ids]
    starts = range(1, len(ids) - SAMPLE_PROMPT_TOKENS)
    lines = [i for i in starts if b"\n" in _space_after(parts[i - 1]) and not parts[i].isspace()]
    words = [i for i in starts if not parts[i].isspace() and (_space_after(parts[i - 1]) or parts[i][:1].isspace())]
    characters = [i for i in (0, *starts) if not _is_within_character(parts[i])]
    return next((kind[0] for kind in (lines, words, characters) if kind), 0), ids, parts


def _length(parts: Sequence[bytes]) -> int:
    """Return how many tokens make a prompt; `parts` are the bytes of tokens to choose from.

    The prompt ends where the first line ends or, without such an end, where the last word or character ends.
    """
    ends = range(_SHORTEST, len(parts))
    lines = [i for i in ends if parts[i].startswith(b"\n")]
    words = [i for i in ends if parts[i][:1].isspace() and not _space_after(parts[i - 1])]
    characters = [i for i in ends if not _is_within_character(parts[i])]
    return [*lines[:1], *words[-1:], *characters[-1:], min(len(parts), SAMPLE_PROMPT_TOKENS)][0]


def _space_after(part: bytes) -> bytes:
    return part[len(part.rstrip()) :]


def _is_within_character(part: bytes) -> bool:
    """Return whether a token begins with a UTF-8 continuation byte."""
    return b"\x80" <= part[:1] < b"\xc0"


def prompt_of_validation(tokenizer: Tokenizer, validation_ids: Ids | Examples) -> str:
    """Return a prompt to try a model with: a question, else `The` (ASCII text) or a word; "" if none can be encoded."""
    if isinstance(validation_ids, Examples):
        return tokenizer.decode(validation_ids.first_question)
    start, ids, _ = _start(tokenizer, validation_ids)
    for prompt in prompts_like(tokenizer.decode(ids[start : start + 64])):
        with contextlib.suppress(DataError):
            if tokenizer.encode(prompt):
                return prompt
    return ""


def watched_ids(config: Config, tokenizer: Tokenizer) -> list[int]:
    """Return the token ids of the setting `inspect.prompt`, or [] if the setting is null.

    Raises DataError if the vocabulary lacks a character, or if there are fewer than 2 or more than context_length ids.
    """
    where, prompt, context_length = "inspect.prompt (‹watch›)", config.inspect.prompt, config.model.context_length
    if prompt is None:
        return []
    ids = [*tokenizer.starts_with, *encode_text(tokenizer, prompt, where)]
    if len(ids) < 2:
        raise DataError(where, "it is a single token, which has no other to look at; watch a text of two or more")
    if len(ids) > context_length:
        hint = f"watch a shorter text, or begin a new run with ‹model.context_length={len(ids)}›"
        raise DataError(where, f"it has {counted(len(ids), 'token')}, but this model sees {context_length}", hint=hint)
    return ids
