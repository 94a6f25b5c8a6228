"""Measure models on answers of conversations: loss, exact matches and multiple choice, with standard errors."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from gpt_cli.checkpoints.load import Loaded
from gpt_cli.common.host import Host
from gpt_cli.common.machine.devices import autocast, to_device
from gpt_cli.common.units import with_error
from gpt_cli.errors import DataError, counted, visible
from gpt_cli.evaluation.nll import Observations, byte_lengths, in_batches, logits_in_slices, nll_of, score_of
from gpt_cli.model import GPT
from gpt_cli.model.gpt import require_finite
from gpt_cli.text.chat_templates import Template, template_for
from gpt_cli.text.conversations import Conversation, Turn
from gpt_cli.text.sft_examples import ConversationCorpus, Examples, gather

SHORT = 32  # tokens of answers that are compared as a whole
_AT_ONCE = 2**12  # tokens


def answer_costs(
    model: GPT, examples: Examples, *, dtype: str, count: Callable[[int], object] = lambda _: None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nats of the answers of E examples, float64 [E], and whether greedy decoding generates each, bool [E].

    The model reads each example without the others. `count` receives the number of tokens read since its last call.
    Raises CheckpointError if logits are not finite.
    """
    lengths, device = examples.lengths, model.token_embedding.weight.device
    sums, exact = np.zeros(len(lengths)), np.zeros(len(lengths), bool)
    for batch in in_batches(lengths, max(1, _AT_ONCE // max(1, int(lengths.max(initial=1))))):
        length = int(lengths[batch[0]])
        places = examples.bounds[batch][:, None] + np.arange(length + 1)
        ids, learned = examples.ids[places].astype(np.int64), examples.learned[places][:, 1:]
        on_device = to_device(torch.from_numpy(ids), device)
        with torch.inference_mode(), autocast(device, dtype):
            chosen = to_device(torch.from_numpy(learned), device)
            x, targets = model.last_residual(on_device[:, :-1])[chosen], on_device[:, 1:][chosen]
            nats, likeliest = [np.empty(0)], [np.empty(0, bool)]
            for logits, wanted in logits_in_slices(model, x[None], targets[None]):
                require_finite(logits, "logits", model.where)
                nats.append(nll_of(logits, wanted)[0].cpu().double().numpy())
                likeliest.append((logits.argmax(dim=-1) == wanted)[0].cpu().numpy())
        rows = np.nonzero(learned)[0]
        sums[batch] = np.bincount(rows, np.concatenate(nats), len(batch))
        exact[batch] = np.bincount(rows, ~np.concatenate(likeliest), len(batch)) == 0
        count(length * len(batch))
    return sums, exact


def measure_answers(
    loaded: Loaded, corpus: ConversationCorpus, dtype: str, host: Host, *, by_bytes: bool, device: torch.device
) -> tuple[dict[str, Any], Observations | None]:
    """Return a model's figures (loss, ...) on the answers of conversations, and the nats and size of each answer.

    Sizes are in tokens, or in bytes with `by_bytes`. The second result is None if some example exceeds the context.
    The entry "answers" has `exact_match`, the share of answers that greedy decoding generates, of those with at most
    SHORT tokens (None without these), and `choices`, the share of right choices (None without choices). Raises
    DataError if no example fits or the vocabulary lacks a character, CheckpointError if logits are not finite.
    """
    tokenizer, length, model = loaded.tokenizer, loaded.config.model.context_length, loaded.model.to(device).eval()
    template = template_for(loaded.config.data.template, tokenizer, host.notice)
    conversations = [*corpus.conversations()]
    examples = gather(conversations, tokenizer, template, length)
    if not examples.lengths.size:
        raise DataError("‹data›", f"this model sees {length} tokens, and no example fits")
    with host.counting("evaluating", int(examples.lengths.sum()), "tokens") as count:
        nats, exact = answer_costs(model, examples, dtype=dtype, count=count)
    of_tokens = byte_lengths(tokenizer)
    of_tokens[template.end_id(tokenizer)] = 0  # the token that ends an answer has no bytes of text
    num_bytes = np.add.reduceat(of_tokens[examples.ids] * examples.learned, examples.bounds[:-1])
    in_tokens, in_bytes = (Observations(nats, part) for part in (examples.num_learned, num_bytes))
    score = score_of(float(nats.sum()), int(examples.num_learned.sum()), int(num_bytes.sum()))
    short = exact[examples.num_learned <= SHORT]
    with host.working("choosing among answers"):
        chosen = _chosen(loaded, conversations, template, dtype)
    about = {
        "examples": len(examples.lengths),
        "left_out": examples.num_left_out,
        "exact_match": _share(short),
        "choices": _share(chosen),
    }
    whole = None if examples.num_left_out else in_bytes if by_bytes else in_tokens
    return asdict(score) | {"loss_error": in_tokens.standard_error(), "answers": about}, whole


def _chosen(loaded: Loaded, conversations: Sequence[Conversation], template: Template, dtype: str) -> np.ndarray:
    """Return whether the right choice is most probable, for each conversation with choices that fit: bool [N]."""
    is_right = list[bool]()
    for one in conversations:
        if one.choices:
            candidates = [one._replace(turns=(*one.turns[:-1], Turn("assistant", choice))) for choice in one.choices]
            examples = gather(candidates, loaded.tokenizer, template, loaded.config.model.context_length)
            if not examples.num_left_out:
                nats, _ = answer_costs(loaded.model, examples, dtype=dtype)
                is_right.append(one.choices[int(nats.argmin())] == one.turns[-1].content)
    return np.array(is_right, bool)


def _share(hits: np.ndarray) -> dict[str, Any] | None:
    """Return the share of hits [N] that are true, its standard error (None if N is 1), and N; None if N is 0."""
    if not (number := len(hits)):
        return None
    share = float(hits.mean())
    error = math.sqrt(share * (1 - share) / (number - 1)) if number > 1 else None
    return {"share": share, "error": error, "examples": number}


def about_answers(name: str, answers: dict[str, Any]) -> str:
    """Format `answers`, which `measure_answers` returns under "answers", as a line about the run `name`."""
    said = [f"{visible(name)}: {counted(answers['examples'], 'example')}"]
    said += [f"{answers['left_out']:,} left out, which its context cannot hold"] if answers["left_out"] else []
    for key, what in (("exact_match", "exact answers"), ("choices", "right choices")):
        if figures := answers[key]:
            said.append(f"{what} {with_error(figures['share'], figures['error'])} of {figures['examples']:,}")
    return "; ".join(said)
