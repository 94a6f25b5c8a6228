"""Choose width, depth, heads and context length of a model for a text and a budget. Imports no torch."""

from collections.abc import Mapping
from typing import Any

from gpt_cli.config.model import ModelConfig
from gpt_cli.training.advice.rates import fitting_context
from gpt_cli.training.auto_config.text_statistics import TextFigures

# the step in which budgets are counted: of the config tiny, 2,048 tokens with a vocabulary of 1,024
REFERENCE = ModelConfig(
    context_length=128,
    d_model=128,
    num_heads=4,
    num_blocks=4,
    positions="rope",
    norm="rmsnorm",
    activation="relu2",
    bias=False,
)
REFERENCE_BATCH, REFERENCE_VOCABULARY = 16, 1024
REFERENCE_TOKENS = REFERENCE_BATCH * REFERENCE.context_length  # a step

# (width, blocks) of the sizes; a head is 32 wide, and 64 in models of width 256 or more
SIZES = ((64, 3), (96, 3), (128, 4), (192, 5), (256, 6), (384, 8), (512, 12))
# a larger model pays where it still trains on so many tokens for each parameter, on more in longer trainings, which
# have no n-grams, or where it reads the text so often
_TOKENS_PER_PARAMETER, _WITHOUT_NGRAMS, _OFTEN = 2.0, 3.0, 4.0
_LONG, _LONGEST = 256, 1024  # context length of models that are at least as wide; the longest, for long examples
_PARAMETERS_PER_TOKEN = 15.0  # of the text; the weights of blocks and of the output layer count
# tables of n-grams pay up to so many reference steps: then the blocks know better
NGRAMS_UP_TO = 1_300


def parameters_of(width: int, blocks: int, vocabulary: int, inner: int | None = None) -> float:
    """Count the weights of attention, feed-forward (`inner` wide; None: 4 x width) and output layer of a model."""
    return blocks * (4.0 * width**2 + 2.0 * width * (inner or 4 * width)) + width * vocabulary


def cost_of(width: int, blocks: int, vocabulary: int, inner: int | None = None) -> float:
    """Estimate the multiply-adds per token: one for each weight that `parameters_of` counts, and 100,000 per block."""
    return parameters_of(width, blocks, vocabulary, inner) + 100_000 * blocks


REFERENCE_COST = cost_of(REFERENCE.d_model, REFERENCE.num_blocks, REFERENCE_VOCABULARY)


def shape_of(
    tokens: float, steps: float, vocabulary: int, overrides: Mapping[str, Any], most_parameters: float
) -> tuple[int, int]:
    """Return (d_model, number of blocks) of the largest useful model for `tokens` tokens of text and `steps` steps.

    `steps` is a budget of time, counted in steps of the small model REFERENCE. `overrides` are the model settings that
    the user has fixed; `most_parameters` limits the weights in matrix products.
    """
    least = _TOKENS_PER_PARAMETER if steps <= NGRAMS_UP_TO else _WITHOUT_NGRAMS
    sizes = [(overrides.get("d_model", width), overrides.get("num_blocks", blocks)) for width, blocks in SIZES]
    best, inner = sizes[0], overrides.get("feed_forward_size")
    for width, blocks in sizes[1:]:
        parameters = parameters_of(width, blocks, vocabulary, inner)
        trained = REFERENCE_TOKENS * steps * REFERENCE_COST / cost_of(width, blocks, vocabulary, inner)
        if parameters > min(_PARAMETERS_PER_TOKEN * tokens, most_parameters):
            break
        if trained >= least * parameters or trained >= _OFTEN * tokens:
            best = (width, blocks)
    width, blocks = best
    return (width if "d_model" in overrides else fitting_width(width, overrides)), blocks


def fitting_width(width: int, overrides: Mapping[str, Any]) -> int:
    """Return `width`, rounded for even head sizes (RoPE) if `overrides` fix the number of heads but not their size."""
    multiple = overrides.get("num_heads") or overrides.get("num_key_value_heads")
    if not multiple or overrides.get("head_size"):
        return width
    return max(1, width // (2 * multiple)) * 2 * multiple


def context_of(text: TextFigures, bytes_per_token: float, validation: float, width: int) -> int:
    """Choose a context length in tokens, a power of two from 16 to 1,024, for a text and a model of d_model `width`.

    The context length is at most a quarter of the number of `validation` tokens, unless that is below 16. Short
    documents lower the context length; conversations raise the context length until 95 % of them fit.
    """
    longest = 256 if width >= _LONG else 128
    while longest > 16 and validation < 4 * longest:
        longest //= 2
    if not text.example_bytes:
        return fitting_context(longest, text.num_bytes / bytes_per_token / max(1, text.num_documents) + 1)
    while longest < min(text.example_bytes / bytes_per_token, _LONGEST):
        longest *= 2
    return longest


def heads_of(width: int, multiple: int) -> int:
    """Return a number of heads, a multiple of `multiple`, for heads about 32 wide, or 64 if `width` is 256 or more.

    The head size is even; if no number of heads allows this, return `multiple`.
    """
    wanted = width // (64 if width >= _LONG else 32)
    possible = range(max(multiple, wanted // multiple * multiple), 0, -multiple)
    return next((heads for heads in possible if width % (2 * heads) == 0), multiple)
