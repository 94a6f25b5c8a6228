"""Encode pairs of prompts, and find the tokens that the metric compares."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import zip_longest

import torch
from torch import Tensor

from gpt_cli.checkpoints.load import Loaded
from gpt_cli.checkpoints.run_paths import run_of_checkpoint
from gpt_cli.common.drawing.token_labels import quoted
from gpt_cli.common.host import Host
from gpt_cli.common.tables import table
from gpt_cli.errors import DataError, blaming, counted, shown
from gpt_cli.model.gpt import require_finite
from gpt_cli.sampling.prompts import encode_prompt, encode_text
from gpt_cli.text.tokenizers import Tokenizer
from gpt_cli.tools.interpret.patching.activation_patching import Task
from gpt_cli.tools.interpret.patching.request import Pair
from gpt_cli.tools.interpret.patching.view import LABEL


def read_tasks(pairs: Sequence[Pair], loaded: Loaded, device: torch.device, host: Host) -> list[Task]:
    """Return the pairs of prompts as tasks, with token ids on `device`.

    Without an answer, the metric compares the model's likeliest tokens after the clean and after the corrupt prompt.
    Raises DataError for prompts of different lengths, for equal ones, and for an answer of more than one token.
    """
    tasks = []
    for pair in pairs:
        clean, corrupt = (_encode(loaded, pair, key) for key in ("clean", "corrupt"))
        if len(clean) != len(corrupt):
            raise _of_other_length(loaded, pair, clean, corrupt, host)
        first = next((at for at, two in enumerate(zip(clean, corrupt, strict=True)) if two[0] != two[1]), None)
        if first is None:
            hint = "change a token of the prompt that the answer depends on"
            raise DataError(pair.named("corrupt"), "it has the same tokens as the clean prompt", hint=hint)
        both = torch.tensor([clean, corrupt], device=device)
        if pair.answer is None:
            answer, against = _likeliest(loaded, both, pair)
        else:
            answer = _next_token(loaded.tokenizer, pair, "answer", host)
            against = None if pair.against is None else _next_token(loaded.tokenizer, pair, "against", host)
            if answer == against:
                raise DataError(pair.named("against"), "it is the same token as the answer")
        tasks.append(Task(both[0], both[1], first, answer, against))
    return tasks


def _encode(loaded: Loaded, pair: Pair, key: str) -> list[int]:
    text, longest = getattr(pair, key), loaded.config.model.context_length
    with blaming(pair.named(key)):  # not `prompt`, where it is too long
        return encode_prompt(loaded.tokenizer, text, longest, source=pair.named(key), truncate=None)


def _of_other_length(loaded: Loaded, pair: Pair, clean: Sequence[int], corrupt: Sequence[int], host: Host) -> DataError:
    """Return the error about prompts of different lengths; notices show both prompts, token below token."""
    text, prompts = loaded.tokenizer.token_text, (("clean", clean), ("corrupt", corrupt))
    rows = [(name, *(quoted(text(token), LABEL) for token in ids)) for name, ids in prompts]
    columns = zip_longest(*rows, fillvalue="")
    for line in table([*zip(*columns, strict=True)]).split("\n"):
        host.notice(line)
    sentence = f"it has {counted(len(corrupt), 'token')}, and the clean prompt has {len(clean)}; use as many in both"
    run = run_of_checkpoint(loaded.path)
    name = shlex.quote(str(loaded.path if run is None else run.path))
    hint = f"gpt tokens --run {name} TEXT shows how a text is cut into tokens"
    return DataError(pair.named("corrupt"), sentence, hint=hint)


def _likeliest(loaded: Loaded, both: Tensor, pair: Pair) -> tuple[int, int]:
    """Return the likeliest tokens after the clean and after the corrupt prompt; raises DataError if they are equal."""
    with torch.no_grad():
        logits = loaded.model.next_logits(both)
    require_finite(logits, "logits", shown(loaded.path))
    answer, against = logits.argmax(dim=-1).tolist()
    if answer == against:
        said = shown(loaded.tokenizer.token_text(answer))
        wrong = f"the likeliest next token is {said} after both prompts, so there is nothing to compare by itself"
        hint = "‹answer=TEXT› ‹against=TEXT›" if pair.where is None else "name answer and against on each line"
        raise DataError("‹corrupt›" if pair.where is None else pair.where, wrong, hint=hint)
    return answer, against


def _next_token(tokenizer: Tokenizer, pair: Pair, key: str, host: Host) -> int:
    """Return the id of a pair's answer or against (`key`); DataError unless both prompts make it the same one token."""
    text, source, token_ids = getattr(pair, key), pair.named(key), set[int]()
    for prompt in (pair.clean, pair.corrupt):
        token = _added(tokenizer, prompt, text, source)
        if isinstance(token, list):
            parts = ", ".join(shown(tokenizer.token_text(piece)) for piece in token)
            wrong = f"{shown(text)} is not one token after {shown(prompt)}, which goes on with {parts}"
            hint = "most words begin with their space, as in ' Paris'"
            if tokenizer.kind == "char":
                hint = "a token of this model is a single character"
                hint += f", as in ‹{key}={text[0]}›" if pair.where is None else ""
            elif pair.where is None and _is_one_with_space(tokenizer, prompt, text):
                hint = f"‹{key}= {text}›, with the space before the word"
            raise DataError(source, wrong, hint=hint)
        token_ids.add(token)
    if pair.where is None and text[:1].isalnum() and _is_one_with_space(tokenizer, pair.clean, text):
        host.notice(f"{source} {shown(text)} has no space before it; with one it is another token: {shown(' ' + text)}")
    if len(token_ids) > 1:
        raise DataError(source, f"{shown(text)} is another token after the other prompt")
    return token_ids.pop()


def _is_one_with_space(tokenizer: Tokenizer, prompt: str, text: str) -> bool:
    """Return whether `text` with a space in front is one token after a prompt."""
    try:
        return isinstance(_added(tokenizer, prompt, " " + text, ""), int)
    except DataError:  # a vocabulary of characters may lack the space
        return False


def _added(tokenizer: Tokenizer, prompt: str, text: str, source: str) -> int | list[int]:
    """Return the one id that `text` appends to a prompt's ids, or else the list of ids from the first new one on."""
    encode_text(tokenizer, text, source)  # so that an error counts characters from where the text begins
    before, after = encode_text(tokenizer, prompt, source), encode_text(tokenizer, prompt + text, source)
    if after[:-1] == before:
        return after[-1]
    same = next((at for at, two in enumerate(zip(before, after, strict=False)) if two[0] != two[1]), len(before))
    return after[same:]
