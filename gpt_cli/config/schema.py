"""Every setting, once: name, type, default, range, unit and meaning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from gpt_cli.config.fields import (
    Count,
    Duration,
    Few,
    Misfit,
    Number,
    Section,
    Size,
    Source,
    Switch,
    Whole,
    read_number,
)


class ModelConfig(Section):
    """The shape of the model; the vocabulary size comes from the tokenizer."""

    context_length: Size = Field(default=128, description="tokens the model sees at once")
    d_model: Size = Field(default=512, description="width of the residual stream; a multiple of num_heads")
    num_heads: Few = Field(default=8, description="attention heads in each block")
    num_blocks: Few = Field(default=12, description="transformer blocks")
    dropout: Number = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="share zeroed in training, of attention weights and of each residual branch",
    )
    attention: Literal["multi_head", "grouped_query", "latent"] = Field(
        default="multi_head",
        description="grouped_query lets heads share keys and values; latent makes them from one small vector a token",
    )
    num_key_value_heads: Few | None = Field(
        default=None, description="heads of keys and values of grouped_query; null for a quarter of num_heads"
    )
    latent_size: Size | None = Field(
        default=None, description="width of the vector that latent makes keys and values from; null for d_model / 4"
    )
    query_latent_size: Size | None = Field(
        default=None, description="width of the one that latent makes queries from; null for queries of the stream"
    )
    rotary_size: Size | None = Field(
        default=None, description="width of the part of latent's queries and keys that rope turns; null for half a head"
    )
    scale: Literal["head", "none"] = Field(
        default="head", description="divide scores by the root of the width of queries and keys, or by nothing"
    )
    positions: Literal["learned", "sinusoidal", "rope", "none"] = Field(
        default="learned",
        description="how the model knows the order of tokens; rope turns queries and keys, none leaves it to the mask",
    )
    norm: Literal["layernorm", "rmsnorm"] = Field(default="layernorm", description="kind of normalisation")
    norm_position: Literal["pre", "post"] = Field(
        default="pre", description="normalise the input of each branch (pre) or the sum after it (post)"
    )
    activation: Literal["gelu", "relu", "relu2"] = Field(
        default="gelu", description="between the two layers of the feed-forward part; relu2 is relu squared"
    )
    feed_forward_size: Size | None = Field(
        default=None, description="width between the two layers of the feed-forward part; null for 4 x d_model"
    )
    bias: Switch = Field(default=True, description="bias in projection_layer, feed-forward and layernorm")
    ngram_embedding: Annotated[int, Field(ge=2, le=8), Whole] | None = Field(
        default=None, description="the 2, ..., N tokens that end at a token get learned embeddings too; null for none"
    )
    ngram_rows: Count = Field(default=16384, description="rows of each of their tables, which n-grams share by a hash")
    tie_embeddings: Switch = Field(default=False, description="use the token embedding as the output layer too")

    def unused_keys(self) -> list[tuple[str, str]]:
        """Keys that were changed although others leave them without use, and which."""
        form, latent = f"model.attention {self.attention}", self.attention == "latent"
        turned = latent and self.positions == "rope"
        used = [
            ("num_key_value_heads", self.attention == "grouped_query", form),
            ("latent_size", latent, form),
            ("query_latent_size", latent, form),
            ("rotary_size", turned, f"model.positions {self.positions}" if latent else form),
            ("ngram_rows", self.ngram_embedding, "model.ngram_embedding null"),
        ]
        return [(key, cause) for key, use, cause in used if self._idle(key, use)]

    @property
    def head_size(self) -> int:
        """Width of one head's values, and of its queries and keys where rope turns no part of their own."""
        return self.d_model // self.num_heads

    @property
    def turned_size(self) -> int:
        """Width of what rope turns of a head's queries and keys; 0 with other positions."""
        if self.positions != "rope":
            return 0
        if self.attention == "latent":
            return self.rotary_size or 2 * max(1, self.head_size // 4)
        return self.head_size

    @property
    def query_size(self) -> int:
        """Width of one head's queries and keys."""
        return self.head_size + (self.turned_size if self.attention == "latent" else 0)

    @property
    def key_value_heads(self) -> int:
        """How many heads of keys and values there are; of grouped_query by default at most a quarter, evenly shared."""
        if self.attention != "grouped_query":
            return self.num_heads
        quarter = max(1, self.num_heads // 4)
        return self.num_key_value_heads or max(n for n in range(1, quarter + 1) if self.num_heads % n == 0)

    @property
    def key_value_latent(self) -> int:
        """Width of the vector that keys and values of latent attention are made from."""
        return self.latent_size or max(1, self.d_model // 4)

    @property
    def cached_size(self) -> int:
        """How many numbers a cache keeps of a token in each block."""
        if self.attention == "latent":
            return self.key_value_latent + self.turned_size
        return 2 * self.key_value_heads * self.head_size

    @property
    def hidden_size(self) -> int:
        """Width between the two layers of the feed-forward part."""
        return self.feed_forward_size or 4 * self.d_model

    def misfits(self) -> Iterator[Misfit]:
        """How sizes that are valid by themselves do not fit together."""
        if self.num_heads % self.key_value_heads:
            divisors = [str(n) for n in range(1, self.num_heads + 1) if self.num_heads % n == 0]
            wrong = f"{self.num_key_value_heads} does not divide num_heads {self.num_heads}"
            yield Misfit(("num_key_value_heads", "num_heads"), wrong, f"use {', '.join(divisors)}")
        if self.d_model % self.num_heads:
            below = self.d_model - self.d_model % self.num_heads
            wrong = f"{self.d_model} is not a multiple of num_heads {self.num_heads}"
            yield Misfit(("d_model", "num_heads"), wrong, _nearest(below, below + self.num_heads))
        elif self.attention == "latent" and self.turned_size % 2:
            wrong = f"{self.rotary_size} is odd, and rope turns pairs"
            yield Misfit(("rotary_size",), wrong, _nearest(self.turned_size - 1, self.turned_size + 1))
        elif self.attention != "latent" and self.turned_size % 2:
            wrong = (
                f"rope needs an even head size, and d_model {self.d_model} / num_heads {self.num_heads} "
                f"is {self.head_size}"
            )
            allowed = "change d_model or num_heads, or use learned or sinusoidal"
            yield Misfit(("positions", "d_model", "num_heads"), wrong, allowed)


def _nearest(below: int, above: int) -> str:
    return f"the nearest are {below} or {above}" if below else f"the nearest is {above}"


class DataConfig(Section):
    """Where the text comes from."""

    source: Source | Annotated[list[Source], Field(min_length=1)] = Field(
        default="python-docs",
        description="SOURCE or a list of them: a file, directory, glob, - for stdin, or a name of `gpt data list`",
    )
    validation_fraction: Number = Field(
        default=0.1, gt=0, lt=1, description="share of the characters, at the end, that is kept for validation"
    )
    validation_tokens: Count = Field(
        default=4_000_000, description="validation tokens of the closing evaluation at most, in evenly spaced windows"
    )


class TokenizerConfig(Section):
    """How text becomes token ids."""

    kind: Literal["bpe", "byte", "char", "tiktoken"] = Field(
        default="bpe",
        description="bpe is trained on the training text; tiktoken takes a published vocabulary by name",
    )
    vocab_size: Annotated[int, Field(ge=257, le=1_000_000), Whole] = Field(
        default=4096, description="tokens of a bpe vocabulary, bytes and end-of-text included; small texts give fewer"
    )
    name: str = Field(default="gpt2", description="the vocabulary of kind tiktoken: gpt2, cl100k_base, o200k_base, ...")

    def unused_keys(self) -> list[tuple[str, str]]:
        """Keys that were changed although others leave them without use, and which."""
        used = {"vocab_size": self.kind == "bpe", "name": self.kind == "tiktoken"}
        return [(key, f"tokenizer.kind {self.kind}") for key in sorted(used) if self._idle(key, used[key])]


class TrainConfig(Section):
    """How the model is trained, watched and saved; every `_every` counts steps."""

    batch_size: Size = Field(default=16, description="sequences a step")
    micro_batch_size: Size | None = Field(
        default=None, description="sequences computed at once, to save memory; a divisor of batch_size; null for all"
    )
    max_steps: Count = Field(default=2000, description="optimizer steps")
    max_time: Duration | None = Field(
        default=None,
        description="seconds, or 90s, 5m, 2h: ends the run in place of max_steps, and the schedule follows the clock",
    )
    optimizer: Literal["adamw", "muon"] = Field(
        default="adamw", description="muon takes the matrices inside blocks, and leaves all else to AdamW"
    )
    learning_rate: Number = Field(default=1e-3, gt=0, le=100, description="AdamW's, at its highest")
    muon_learning_rate: Number = Field(default=0.02, gt=0, le=100, description="Muon's, at its highest")
    warmup_steps: Annotated[int, Field(ge=0, le=2**31 - 1), Whole] = Field(
        default=100,
        description="steps in which the rate rises linearly, at most half of the run; then it follows the schedule",
    )
    schedule: Literal["linear", "cosine", "stable"] = Field(
        default="linear", description="how the rate falls to zero; stable stays up until the half of what follows"
    )
    weight_decay: Number = Field(default=0.1, ge=0, lt=10, description="on matrices only")
    gradient_clip: Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(read_number)] | None = Field(
        default=1.0, description="largest norm of the whole gradient; null for no limit"
    )
    seed: Annotated[int, Field(ge=0, lt=2**63), Whole] = Field(
        default=1337, description="of weights, batches and dropout"
    )
    device: str = Field(
        default="auto", pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$", description="auto, cpu, cuda or cuda:N"
    )
    threads: Few | None = Field(default=None, description="CPU threads; null leaves their number to torch")
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto", description="of the products; weights stay float32; auto takes bfloat16 where it pays"
    )
    compile: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="translate blocks to faster code first; auto does on CUDA from 1,000 steps or 5 minutes on",
    )
    log_every: Count = Field(default=10, description="steps between lines of metrics.jsonl")
    eval_every: Count = Field(default=250, description="steps between evaluations")
    eval_tokens: Count = Field(default=16384, description="validation tokens of an evaluation while training")
    sample_every: Count | None = Field(default=500, description="steps between sampled lines; null for none")
    save_every: Count = Field(default=250, description="steps between checkpoints")
    keep_checkpoints: Count = Field(default=2, description="newest checkpoints kept; the best is kept beside them")
    patience: Count | None = Field(
        default=None, description="evaluations without a new best after which training stops; null for never"
    )

    def misfits(self) -> Iterator[Misfit]:
        """How sizes that are valid by themselves do not fit together."""
        if self.micro_batch_size and self.batch_size % self.micro_batch_size:
            divisors = [str(n) for n in range(1, self.batch_size + 1) if self.batch_size % n == 0]
            wrong = f"{self.micro_batch_size} does not divide batch_size {self.batch_size}"
            yield Misfit(("micro_batch_size", "batch_size"), wrong, f"use one of {', '.join(divisors[:20])}")

    def unused_keys(self) -> list[tuple[str, str]]:
        """Keys that were changed although others leave them without use, and which."""
        muon = self.optimizer == "muon"
        return [("muon_learning_rate", "train.optimizer adamw")] if self._idle("muon_learning_rate", muon) else []


class Config(Section):
    """All settings of a run."""

    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    train: TrainConfig = TrainConfig()

    def unused(self) -> Iterator[str]:
        """A line for each key that was changed although others leave it without use."""
        for name in type(self).model_fields:
            for key, cause in getattr(self, name).unused_keys():
                yield f"{name}.{key} is not used by {cause}"
