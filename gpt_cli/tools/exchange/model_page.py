"""Build a web page in which a trained model runs."""

import base64
import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gpt_cli.attention_maps.head_scores import induction_scores
from gpt_cli.checkpoints.checkpoint import Checkpoint
from gpt_cli.common.drawing.token_labels import STEPS
from gpt_cli.common.language import LANGUAGES, say
from gpt_cli.config import Config
from gpt_cli.errors import DataError, UsageError
from gpt_cli.sampling.fast.int8 import to_int8
from gpt_cli.text.tokenizers import CharTokenizer, Tokenizer
from gpt_cli.tools.exchange.page_data import Layout, chosen_layout, page_context, tokenizer_content
from gpt_cli.tools.explain.explanation import HEAD_STEPS, title_of
from gpt_cli.tools.interpret.attention_files import scores_content

_PROMPTS = ("The value of", "今天")
_LARGEST_HALF = float(np.finfo(np.float16).max)


class ModelPage(NamedTuple):
    """The two parts of a model's page, for `build_page(MODEL, *page)`: JSON data, and the weights in base64."""

    content: Mapping[str, Any]
    weights: str


def model_page(checkpoint: Checkpoint, wanted: str | None, name: str, *, title: str, prompt: str) -> ModelPage:
    """Return the JSON data and the weights of a web page that runs a model; the page shows `name` as the run's name.

    Matrices have the dtype `wanted`; None chooses float16 for a small page, else int8. The page opens with `prompt`.
    Raises CheckpointError for weights that do not fit their config or a tokenizer that the page's script does not
    implement, UsageError for weights that float16 cannot hold, EnvironmentFailure for a page that is too large.
    """
    model = checkpoint.build_model()
    weights = dict(model.named_parameters())
    tokenizer = tokenizer_content(checkpoint.tokenizer)
    page_layout, _ = chosen_layout({each: tensor.shape for each, tensor in weights.items()}, tokenizer, wanted)
    packed_weights = base64.b64encode(stored(page_layout, weights)).decode()
    progress = checkpoint.progress
    # sizes that follow from the settings, so that the page need not compute them, and its context length
    config, derived = model.config, ("value_size", "query_size", "key_value_heads", "epsilon", "windows", "gated")
    follows = {name: getattr(config, name) for name in derived} | {"context_length": page_context(config)}
    frequencies = [] if model.rotary is None else model.rotary.frequencies().tolist()
    induction = induction_scores(model.float(), end_of_text=checkpoint.tokenizer.end_of_text)
    content = {
        "config": config.model_dump(mode="json") | follows | {"frequencies": frequencies},
        "tokenizer": tokenizer,
        "tensors": page_layout.tensors,
        "origin": {
            "run": name,
            "step": progress.step,
            "best_loss": progress.best_loss,
            "parameters": sum(tensor.numel() for tensor in weights.values()),
            "context_length": config.context_length,
            "kind": page_layout.kind,
        },
        "title": title,
        "prompt": prompt,
        "colours": STEPS,
        "scores": scores_content([{"induction": induction}], ["induction"]),
        "steps": {language: {step: say(title_of(step), language) for step in HEAD_STEPS} for language in LANGUAGES},
    }
    return ModelPage(content, packed_weights)


def first_prompt(config: Config, tokenizer: Tokenizer, opening: str = "") -> str:
    """Return the first prompt that `tokenizer` can encode: the config's inspect.prompt, `opening`, or a short text."""
    for text in (config.inspect.prompt, opening, *_PROMPTS):
        with contextlib.suppress(DataError):
            if text and tokenizer.encode(text):
                return text
    if isinstance(tokenizer, CharTokenizer):
        return "".join(tokenizer.characters[:3])
    # an imported vocabulary may have digits alone
    texts = map(tokenizer.token_text, range(tokenizer.vocab_size))
    return next((text for text in texts if text.strip() and tokenizer.decode(tokenizer.encode(text)) == text), "")


@torch.no_grad()
def stored(page_layout: Layout, weights: Mapping[str, Tensor]) -> bytes:
    """Return the weights as little-endian bytes in `page_layout`; raises UsageError if float16 cannot hold a weight."""
    content = bytearray(page_layout.num_bytes)
    for tensor in page_layout.tensors:
        weight = weights[tensor["name"]].float()
        if tensor["kind"] == "int8":
            numbers, scales = to_int8(weight)
            arrays = {"at": numbers.numpy(), "scales_at": scales.float().numpy().astype("<f4")}
        else:
            if tensor["kind"] == "float16" and (largest := float(weight.abs().max())) > _LARGEST_HALF:
                wrong = f"{tensor['name']} has a weight of {largest:.3g}, but float16 ends at {_LARGEST_HALF:,.0f}"
                raise UsageError("‹quantize›", wrong, hint="‹quantize=int8›")
            arrays = {"at": weight.numpy().astype("<f2" if tensor["kind"] == "float16" else "<f4")}
        for key, array in arrays.items():
            content[tensor[key] : tensor[key] + array.nbytes] = array.tobytes()
    return bytes(content)
