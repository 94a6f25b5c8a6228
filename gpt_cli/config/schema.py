"""Every setting, declared once: name, type, default, range, unit and meaning."""

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
    Separator,
    Size,
    Source,
    Switch,
    Whole,
    read_number,
)


class ModelConfig(Section):
    """The shape of the model; the vocabulary size comes from the tokenizer."""

    context_length: Size = Field(default=128, description="tokens that the model sees at once")
    d_model: Size = Field(default=512, description="width of the residual stream, a multiple of num_heads")
    num_heads: Few = Field(default=8, description="attention heads in each block")
    num_blocks: Few = Field(default=12, description="number of transformer blocks")
    dropout: Number = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="share of attention weights and of each residual branch that training sets to zero",
    )
    attention: Literal["multi_head", "grouped_query", "latent"] = Field(
        default="multi_head",
        description="form of attention; grouped_query shares keys and values between heads, "
        "latent computes them from one small vector per token",
    )
    num_key_value_heads: Few | None = Field(
        default=None,
        description="heads of keys and values in grouped_query, a divisor of num_heads; "
        "null means at most a quarter of num_heads",
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
        description="width of the part of latent's queries and keys that rope rotates, an even number; "
        "null means half a head",
    )
    scale: Literal["head", "none"] = Field(
        default="head",
        description="head divides attention scores by the square root of the width of queries and keys, none does not",
    )
    positions: Literal["learned", "sinusoidal", "rope", "none"] = Field(
        default="learned",
        description="how the model learns the order of tokens; rope rotates queries and keys, "
        "none leaves it to the causal mask",
    )
    norm: Literal["layernorm", "rmsnorm"] = Field(default="layernorm", description="kind of normalisation")
    norm_position: Literal["pre", "post"] = Field(
        default="pre", description="pre normalises the input of each residual branch, post the sum after it"
    )
    activation: Literal["gelu", "gelu_tanh", "relu", "relu2"] = Field(
        default="gelu",
        description="function between the two layers of the feed-forward part; gelu_tanh is gelu as GPT-2 computes it, "
        "relu2 is relu squared",
    )
    feed_forward_size: Size | None = Field(
        default=None, description="width between the two layers of the feed-forward part; null means 4 x d_model"
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

    def unused_keys(self) -> list[tuple[str, str]]:
        """Changed keys that have no effect, each with the setting that makes it so."""
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
        """Width of one head's values, and of its queries and keys except in latent attention with rope."""
        return self.d_model // self.num_heads

    @property
    def turned_size(self) -> int:
        """Width of the part of a head's queries and keys that rope rotates; 0 with other positions."""
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
        """Number of heads of keys and values; grouped_query has at most a quarter of num_heads by default."""
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
        """Numbers that a cache keeps per token and block."""
        if self.attention == "latent":
            return self.key_value_latent + self.turned_size
        return 2 * self.key_value_heads * self.head_size

    @property
    def hidden_size(self) -> int:
        """Width between the two layers of the feed-forward part."""
        return self.feed_forward_size or 4 * self.d_model

    def misfits(self) -> Iterator[Misfit]:
        """Sizes that are valid by themselves but do not fit together."""
        if self.qkv_bias and self.attention == "latent":
            sentence = "latent attention makes queries, keys and values without a bias, so qkv_bias must be false"
            yield Misfit(("qkv_bias", "attention"), sentence)
        if self.num_heads % self.key_value_heads:
            wrong = f"num_key_value_heads {self.num_key_value_heads} does not divide num_heads {self.num_heads}"
            yield Misfit(("num_key_value_heads", "num_heads"), f"{wrong}, as {_divisors(self.num_heads)} would")
        if self.d_model % self.num_heads:
            below = self.d_model - self.d_model % self.num_heads
            wrong = f"d_model {self.d_model} is not a multiple of num_heads {self.num_heads}"
            yield Misfit(("d_model", "num_heads"), f"{wrong}, as {_nearest(below, below + self.num_heads)} would be")
        elif self.attention == "latent" and self.turned_size % 2:
            nearest = _nearest(self.turned_size - 1, self.turned_size + 1)
            yield Misfit(("rotary_size",), f"rope rotates pairs, so {self.rotary_size} must be even; use {nearest}")
        elif self.attention != "latent" and self.turned_size % 2:
            head = f"d_model {self.d_model} / num_heads {self.num_heads} is {self.head_size}"
            yield Misfit(
                ("positions", "d_model", "num_heads"),
                f"rope needs an even head size, but {head}",
                "change model.d_model or model.num_heads, or use model.positions=learned",
            )


def _nearest(below: int, above: int) -> str:
    return f"{below} or {above}" if below else str(above)


def _divisors(number: int) -> str:
    """The first 20 divisors of a number, in words."""
    *others, last = [str(n) for n in range(1, number + 1) if number % n == 0][:20]
    return f"{', '.join(others)} or {last}" if others else last


class DataConfig(Section):
    """Where the text comes from."""

    source: Source | Annotated[list[Source], Field(min_length=1)] = Field(
        default="python-docs",
        description="one source of text or a list: a file, directory, glob, - for stdin, "
        "or a name that `gpt data list` prints",
    )
    text_field: Source = Field(
        default="text", description="field of .jsonl lines, or column of .parquet tables, that contains the text"
    )
    separator: Separator | None = Field(
        default=None,
        description="text at which documents are split into several, such as \\n\\n for blank lines; "
        "null splits nothing",
    )
    skip_bad: Switch = Field(
        default=False, description="whether files that are damaged or not UTF-8 are left out; else they are errors"
    )
    max_expansion: Count = Field(
        default=200, description="times its size to which a packed file may expand before gpt refuses it"
    )
    validation_source: Source | Annotated[list[Source], Field(min_length=1)] | None = Field(
        default=None,
        description="text for validation alone, named like source; null takes validation_fraction of the source",
    )
    validation_fraction: Number = Field(
        default=0.1, gt=0, lt=1, description="share of the characters, at the end of the text, kept for validation"
    )
    validation_tokens: Count = Field(
        default=4_000_000, description="validation tokens of the closing evaluation at most, in evenly spaced windows"
    )

    def unused_keys(self) -> list[tuple[str, str]]:
        """Changed keys that have no effect, each with the setting that makes it so."""
        idle = self._idle("validation_fraction", self.validation_source is None)
        return [("validation_fraction", "data.validation_source")] if idle else []


class TokenizerConfig(Section):
    """How text becomes token ids."""

    kind: Literal["bpe", "byte", "char", "tiktoken"] = Field(
        default="bpe",
        description="kind of tokenizer; bpe learns from the training text, tiktoken loads a published vocabulary",
    )
    vocab_size: Annotated[int, Field(ge=257, le=1_000_000), Whole] = Field(
        default=4096, description="tokens in a bpe vocabulary, bytes and end-of-text included; a small text gives fewer"
    )
    name: str = Field(default="gpt2", description="vocabulary of kind tiktoken: gpt2, cl100k_base, o200k_base, ...")

    def unused_keys(self) -> list[tuple[str, str]]:
        """Changed keys that have no effect, each with the setting that makes it so."""
        used = {"vocab_size": self.kind == "bpe", "name": self.kind == "tiktoken"}
        return [(key, f"tokenizer.kind {self.kind}") for key in sorted(used) if self._idle(key, used[key])]


class TrainConfig(Section):
    """How the model is trained, evaluated and saved; each `_every` is a number of steps."""

    batch_size: Size = Field(default=16, description="sequences per step")
    micro_batch_size: Size | None = Field(
        default=None, description="sequences computed at once, to save memory, a divisor of batch_size; null means all"
    )
    max_steps: Count = Field(default=2000, description="optimizer steps in a run")
    max_time: Duration | None = Field(
        default=None,
        description="time after which the run ends, in seconds or as 90s, 5m, 1h30m, 1d; "
        "replaces max_steps, and the schedule follows the clock; null means no limit",
    )
    optimizer: Literal["adamw", "muon"] = Field(
        default="adamw", description="muon updates the matrices inside blocks and leaves everything else to AdamW"
    )
    learning_rate: Number = Field(default=1e-3, gt=0, le=100, description="peak learning rate of AdamW")
    muon_learning_rate: Number = Field(default=0.02, gt=0, le=100, description="peak learning rate of Muon")
    warmup_steps: Annotated[int, Field(ge=0, le=2**31 - 1), Whole] = Field(
        default=100,
        description="steps in which the learning rate rises linearly, at most half of the run",
    )
    schedule: Literal["linear", "cosine", "stable"] = Field(
        default="linear",
        description="how the learning rate falls to zero after the warm-up; "
        "stable holds it for the first half of that time",
    )
    weight_decay: Number = Field(default=0.1, ge=0, lt=10, description="weight decay, applied to matrices only")
    gradient_clip: Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(read_number)] | None = Field(
        default=1.0, description="largest norm of the whole gradient; null means no limit"
    )
    seed: Annotated[int, Field(ge=0, le=2**63 - 1), Whole] = Field(
        default=1337, description="seed of weights, batches and dropout"
    )
    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$",
        description="device that trains: auto, cpu, cuda or cuda:N",
    )
    threads: Few | None = Field(default=None, description="CPU threads; null leaves their number to torch")
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto",
        description="number type of matrix products; weights stay float32, "
        "and auto chooses bfloat16 where it is faster",
    )
    compile: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="whether torch compiles the blocks first; "
        "auto does so on CUDA for runs of at least 1,000 steps or 5 minutes",
    )
    parallel: Literal["auto", "replicate", "shard"] = Field(
        default="auto",
        description="whether each of many processes holds all weights (replicate) or a share of them (shard), "
        "with the same result; auto shards where memory is too small",
    )
    log_every: Count = Field(default=10, description="steps between lines of metrics.jsonl")
    eval_every: Count = Field(default=250, description="steps between evaluations")
    eval_tokens: Count = Field(default=16384, description="validation tokens in each evaluation during training")
    sample_every: Count | None = Field(default=500, description="steps between samples of text; null means none")
    save_every: Count = Field(default=250, description="steps between checkpoints")
    keep_checkpoints: Count = Field(
        default=2, description="number of newest checkpoints to keep; the best one is kept as well"
    )
    patience: Count | None = Field(
        default=None, description="evaluations without a new best after which training stops; null means never"
    )

    @property
    def sequences_at_once(self) -> int:
        """Sequences computed at once: micro_batch_size, or the whole batch."""
        return self.micro_batch_size or self.batch_size

    @property
    def num_lanes(self) -> int:
        """Micro-batches in a step, which processes may share."""
        return self.batch_size // self.sequences_at_once

    def misfits(self) -> Iterator[Misfit]:
        """Sizes that are valid by themselves but do not fit together."""
        if self.micro_batch_size and self.batch_size % self.micro_batch_size:
            wrong = f"micro_batch_size {self.micro_batch_size} does not divide batch_size {self.batch_size}"
            yield Misfit(("micro_batch_size", "batch_size"), f"{wrong}, as {_divisors(self.batch_size)} would")

    def unused_keys(self) -> list[tuple[str, str]]:
        """Changed keys that have no effect, each with the setting that makes it so."""
        muon = self.optimizer == "muon"
        return [("muon_learning_rate", "train.optimizer adamw")] if self._idle("muon_learning_rate", muon) else []


class Config(Section):
    """All settings of a run."""

    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    train: TrainConfig = TrainConfig()

    @property
    def tokens_per_step(self) -> int:
        """Tokens that a step trains on."""
        return self.train.batch_size * self.model.context_length

    def unused(self, source: Config | None = None) -> Iterator[str]:
        """A line for each changed key that has no effect; a key that is as in `source` was not changed here."""
        for name in type(self).model_fields:
            here, there = getattr(self, name), getattr(source, name, None)
            for key, cause in here.unused_keys():
                if there is None or getattr(here, key) != getattr(there, key):
                    yield f"{name}.{key} is not used by {cause}"
