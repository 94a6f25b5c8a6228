"""Declare the settings of the model, and compute the sizes that follow from them."""

from collections.abc import Iterable, Iterator
from math import isqrt
from typing import Annotated, Literal

from pydantic import Field

from gpt_cli.config.field_types import Count, Few, Misfit, Number, Real, Section, Size, Switch, Whole, Windows, divisors
from gpt_cli.errors import UsageError

_SLOW_AND_FAST = ("low_frequency", "high_frequency")
WEIGHTS_AT_ONCE = 2**28  # of attention in one block; 16 windows of 1,024 tokens and 12 heads have fewer


class ModelConfig(Section):
    """Settings of the model's architecture; the vocabulary size comes from the tokenizer."""

    context_length: Size = Field(default=128, description="tokens that the model sees at once")
    d_model: Size = Field(default=512, description="width of the residual stream, a multiple of num_heads")
    num_heads: Few = Field(default=8, description="attention heads in each block")
    num_blocks: Few = Field(default=12, description="number of transformer blocks")
    dropout: Number = Field(
        default=0.1,
        ge=0,
        le=0.99,  # a mask compares 16 bits, which cannot express shares near 1
        description="share of attention weights and of each residual branch that training sets to zero",
    )
    attention: Literal["multi_head", "grouped_query", "latent"] = Field(
        default="multi_head",
        description="form of attention; grouped_query shares keys and values between heads, "
        "latent computes them from one small vector per token",
    )
    num_key_value_heads: Few | None = Field(
        default=None,
        description="number of key-value heads in grouped_query, a divisor of num_heads; null means at most a quarter "
        "of num_heads",
    )
    head_size: Size | None = Field(
        default=None, description="width of a head's queries, keys and values; null means d_model / num_heads"
    )
    latent_size: Size | None = Field(
        default=None,
        description="width of the vector from which latent computes keys and values; null means d_model / 4",
    )
    query_latent_size: Size | None = Field(
        default=None,
        description="width of the vector from which latent computes queries; "
        "null computes them from the residual stream",
    )
    rotary_size: Size | None = Field(
        default=None,
        description="width of the part of a head's queries and keys that rope rotates, an even number; "
        "null means the whole head, in latent half a head",
    )
    qk_norm: Switch = Field(
        default=False, description="whether each head normalises its queries and keys, as in Qwen3; not in latent"
    )
    scale: Literal["head", "none"] = Field(
        default="head",
        description="head divides attention scores by the square root of the width of queries and keys, none does not",
    )
    attention_window: Windows | None = Field(
        default=None,
        description="tokens that a token sees, itself included; null means all; a list is repeated over the blocks",
    )
    positions: Literal["learned", "sinusoidal", "rope", "none"] = Field(
        default="learned",
        description="how the model learns the order of tokens; rope rotates queries and keys, "
        "none leaves it to the causal mask",
    )
    rope_base: Number = Field(
        default=10000.0, gt=1, le=10**9, description="base of rope's frequencies; a larger base rotates more slowly"
    )
    rope_scaling: Annotated[float, Field(ge=1, le=1024, allow_inf_nan=False), Real] | None = Field(
        default=None,
        description="factor by which Llama 3's rope slows the slow frequencies for longer texts; null means no scaling",
    )
    rope_original_length: Size = Field(
        default=8192, description="context length before rope_scaling; frequencies are slow or fast relative to it"
    )
    rope_low_frequency: Number = Field(
        default=1.0, gt=0, le=1024, description="turns in rope_original_length below which a frequency slows in full"
    )
    rope_high_frequency: Number = Field(
        default=4.0, gt=0, le=1024, description="turns in rope_original_length above which a frequency stays as it is"
    )
    norm: Literal["layernorm", "rmsnorm"] = Field(default="layernorm", description="kind of normalisation")
    norm_epsilon: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False), Real] | None = Field(
        default=None,
        description="number that a norm adds to the variance or the mean of squares; "
        "null means 1e-5 in layernorm, 1e-6 in rmsnorm",
    )
    norm_position: Literal["pre", "post"] = Field(
        default="pre", description="pre normalises the input of each residual branch, post the sum after it"
    )
    parallel_branches: Switch = Field(
        default=False, description="whether attention and feed-forward both read the input of the block, as in GPT-NeoX"
    )
    activation: Literal["gelu", "gelu_tanh", "relu", "relu2", "swiglu", "geglu"] = Field(
        default="gelu",
        description="function between the two layers of the feed-forward part; gelu_tanh is gelu as GPT-2 computes it, "
        "relu2 is relu squared; swiglu and geglu multiply by a gate",
    )
    feed_forward_size: Size | None = Field(
        default=None,
        description="width of the hidden layer of the feed-forward part; null means 4 x d_model, "
        "and two thirds of that with a gate",
    )
    bias: Switch = Field(default=True, description="whether projection_layer, feed-forward and layernorm have a bias")
    qkv_bias: Switch = Field(
        default=False, description="whether Wq, Wk and Wv have a bias, as in GPT-2; latent has none"
    )
    ngram_embedding: Annotated[int, Field(ge=2, le=8), Whole] | None = Field(
        default=None,
        description="longest n-gram, in tokens, that gets a learned embedding beside the token's own; null means none",
    )
    ngram_rows: Count = Field(
        default=16384, description="rows of each table of n-gram embeddings; n-grams share rows by a hash"
    )
    tie_embeddings: Switch = Field(default=False, description="whether the output layer reuses the token embedding")

    def key_uses(self) -> Iterable[tuple[str, bool, str]]:
        form, latent = f"model.attention {self.attention}", self.attention == "latent"
        turns, slowed = self.positions == "rope", self.rope_scaling is not None
        of_positions = f"model.positions {self.positions}"
        scaling = "model.rope_scaling null" if turns else of_positions
        return [
            ("num_key_value_heads", self.attention == "grouped_query", form),
            ("latent_size", latent, form),
            ("query_latent_size", latent, form),
            *((key, turns, of_positions) for key in ("rotary_size", "rope_base", "rope_scaling")),
            *((f"rope_{key}", turns and slowed, scaling) for key in ("original_length", *_SLOW_AND_FAST)),
            ("ngram_rows", self.ngram_embedding is not None, "model.ngram_embedding null"),
        ]

    @property
    def value_size(self) -> int:
        """Width of one head's values, and of its queries and keys except in latent attention with rope."""
        return self.head_size or self.d_model // self.num_heads

    @property
    def rotated_size(self) -> int:
        """Width of the part of a head's queries and keys that rope rotates; 0 without rope."""
        if self.positions != "rope":
            return 0
        if self.attention == "latent":
            return self.rotary_size or 2 * max(1, self.value_size // 4)
        return self.rotary_size or self.value_size

    @property
    def query_size(self) -> int:
        """Width of one head's queries and keys."""
        return self.value_size + (self.rotated_size if self.attention == "latent" else 0)

    @property
    def key_value_heads(self) -> int:
        """Key-value heads: num_heads; in grouped_query by default its largest divisor <= num_heads / 4, or 1."""
        if self.attention != "grouped_query":
            return self.num_heads
        quarter = max(1, self.num_heads // 4)
        return self.num_key_value_heads or max(n for n in range(1, quarter + 1) if self.num_heads % n == 0)

    @property
    def key_value_latent(self) -> int:
        """Width of the vector from which latent attention computes keys and values."""
        return self.latent_size or max(1, self.d_model // 4)

    @property
    def cached_size(self) -> int:
        """Number of elements per token and block in a key-value cache."""
        if self.attention == "latent":
            return self.key_value_latent + self.rotated_size
        return 2 * self.key_value_heads * self.value_size

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Attention window of each block: how many tokens a token attends to, itself included; None means all."""
        pattern = self.attention_window or [None]
        return tuple(pattern[number % len(pattern)] for number in range(self.num_blocks))

    @property
    def evaluation_window(self) -> int:
        """Number T of tokens per evaluated sequence: context_length, or fewer so that H * T * T <= WEIGHTS_AT_ONCE."""
        return min(self.context_length, 1 << (isqrt(WEIGHTS_AT_ONCE // self.num_heads).bit_length() - 1))

    @property
    def epsilon(self) -> float:
        """The number that layernorm adds to the variance, and rmsnorm to the mean of squares."""
        return self.norm_epsilon or (1e-5 if self.norm == "layernorm" else 1e-6)

    @property
    def gated(self) -> bool:
        """Whether a gate multiplies the hidden layer of the feed-forward network, as in SwiGLU."""
        return self.activation in ("swiglu", "geglu")

    @property
    def hidden_size(self) -> int:
        """Width of the hidden layer of the feed-forward network."""
        if self.feed_forward_size is not None:
            return self.feed_forward_size
        return 8 * -(-self.d_model // 3) if self.gated else 4 * self.d_model

    def misfits(self) -> Iterator[Misfit]:
        for key, how in (("qkv_bias", "without a bias"), ("qk_norm", "without a norm")):
            if getattr(self, key) and self.attention == "latent":
                sentence = f"latent attention computes queries, keys and values {how}, so {key} must be false"
                yield Misfit((key, "attention"), sentence)
        if self.parallel_branches and self.norm_position == "post":
            sentence = "parallel branches read the same input, each through its own norm, so norm_position must be pre"
            yield Misfit(("parallel_branches", "norm_position"), sentence)
        if self.rope_scaling is not None and self.rope_low_frequency >= self.rope_high_frequency:
            slow = f"rope_low_frequency {self.rope_low_frequency:g} is not below"
            sentence = f"{slow} rope_high_frequency {self.rope_high_frequency:g}"
            yield Misfit(("rope_low_frequency", "rope_high_frequency"), sentence)
        if self.num_heads % self.key_value_heads:
            wrong = f"num_key_value_heads {self.num_key_value_heads} does not divide num_heads {self.num_heads}"
            yield Misfit(("num_key_value_heads", "num_heads"), f"{wrong}, as {divisors(self.num_heads)} would")
        if self.d_model % self.num_heads and self.head_size is None:
            below = self.d_model - self.d_model % self.num_heads
            wrong = f"d_model {self.d_model} is not a multiple of num_heads {self.num_heads}"
            heads = _divisors_around(self.d_model, self.num_heads)
            use = f"use num_heads {heads}, or d_model {_nearest(below, below + self.num_heads)}"
            yield Misfit(("d_model", "num_heads"), f"{wrong}; {use}")
        else:
            yield from self._misfits_of_rope()

    def _misfits_of_rope(self) -> Iterator[Misfit]:
        size, latent = self.rotated_size, self.attention == "latent"
        of_heads = self.rotary_size is None and not latent
        if size % 2 and of_heads and self.head_size is None:
            head = f"d_model {self.d_model} / num_heads {self.num_heads} is {size}"
            yield Misfit(
                ("positions", "d_model", "num_heads"),
                f"rope needs an even head size, but {head}",
                "change model.d_model or model.num_heads, or use model.positions=learned",
            )
        elif size % 2:
            key = "head_size" if of_heads else "rotary_size"
            yield Misfit((key,), f"rope rotates pairs, so {size} must be even; use {_nearest(size - 1, size + 1)}")
        elif not latent and size > self.value_size:
            yield Misfit(("rotary_size",), f"a head is {self.value_size} wide, so rope cannot rotate {size} of it")


def unknown_form(who: str, form: str, hint: str | None = None) -> UsageError:
    """Return the error for `who`, such as `gpt explain`, which does not support the attention form `form`."""
    return UsageError("model.attention", f"{who} does not support the form {form}", hint=hint)


def _divisors_around(number: int, near: int) -> str:
    """Return the nearest divisors of `number` below and above `near`, as text, such as "4 or 8"."""
    factors = [n for n in range(1, min(number, 1024) + 1) if number % n == 0]
    around = [*[n for n in factors if n < near][-1:], *[n for n in factors if n > near][:1]]
    return " or ".join(map(str, around))


def _nearest(below: int, above: int) -> str:
    return f"{below} or {above}" if below else str(above)
