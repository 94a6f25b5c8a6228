"""Declare all settings but the model's (model.py). A Field's description is its help, translated in settings.toml."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from gpt_cli.common.limits import SOURCE_BYTES, SOURCES
from gpt_cli.config.field_types import (
    DEVICE_PATTERN,
    FREE,
    LEARNING,
    Count,
    Duration,
    Fact,
    Few,
    Loggers,
    Misfit,
    Number,
    Real,
    Section,
    Separator,
    Size,
    Source,
    Switch,
    Text,
    Whole,
    divisors,
)
from gpt_cli.config.model import ModelConfig

PROMPT = "{prompt}"
SEED = "train.seed"  # the only setting in which repeats of a run differ
NAMED_TEMPLATES = ("chatml", "llama3")
# vocabulary sizes of gpt's tokenizers by tiktoken's names: byte pairs and the end of text
PUBLISHED = dict.fromkeys(("gpt2", "r50k_base"), 50_257) | dict.fromkeys(("p50k_base", "p50k_edit"), 50_281)
PUBLISHED |= {"cl100k_base": 100_257} | dict.fromkeys(("o200k_base", "o200k_harmony"), 199_999)


class DataConfig(Section):
    """Settings of the text: its sources, how they are read, and the part for validation."""

    source: Annotated[Source | Annotated[list[Source], Field(min_length=1)], FREE] = Field(
        default="python-docs",
        description="one source of text or a list: a file, directory, glob, - for stdin, "
        "or a name that `gpt data list` prints",
    )
    text_field: Annotated[Text, LEARNING] = Field(
        default="text", description="JSON field, or column of tables, that contains the text"
    )
    separator: Annotated[Separator | None, LEARNING] = Field(
        default=None,
        description="text at which documents are split into several, such as \\n\\n for blank lines; "
        "null splits at marks of end-of-text alone",
    )
    skip_bad: Annotated[Switch, FREE] = Field(
        default=False,
        description="whether bad records, and files of a directory or an archive that are damaged or not UTF-8, are "
        "left out; else they are errors",
    )
    validation_source: Annotated[Source | Annotated[list[Source], Field(min_length=1)] | None, FREE] = Field(
        default=None,
        description="text for validation alone, named like source; null takes validation_fraction of the source",
    )
    validation_fraction: Annotated[Number, LEARNING] = Field(
        default=0.1, gt=0, lt=1, description="share of the characters, at the end of the text, kept for validation"
    )
    validation_tokens: Annotated[Count, FREE, LEARNING] = Field(
        default=4_000_000, description="maximum validation tokens of the closing evaluation, in evenly spaced windows"
    )

    loss: Annotated[Literal["answers", "all"] | None, LEARNING] = Field(
        default=None,
        description="tokens of questions and answers that the loss counts; null: answers, and all tokens of other text",
    )
    template: Annotated[Separator | None, LEARNING] = Field(
        default=None,
        description="text around each question, such as 'Q: {prompt}\\nA:\\n', or chatml or llama3; null means the "
        "tokenizer's template if gpt supports it, else {prompt}\\n",
    )

    def misfits(self) -> Iterator[Misfit]:
        if self.template is not None and self.template not in NAMED_TEMPLATES and self.template.count(PROMPT) != 1:
            wrong = f"it must contain {PROMPT} once, or be one of {', '.join(NAMED_TEMPLATES)}"
            yield Misfit(("template",), wrong, f"‹data.template={PROMPT}\\n›")
        keys = ("source", "validation_source")
        values = [getattr(self, key) for key in keys]
        if all("-" in ([value] if isinstance(value, str) else value or ()) for value in values):
            wrong = "stdin can be read once, so it cannot be both the training text and the validation text"
            yield Misfit(keys, wrong, "save one of them to a file and name that file")
        names = [name for value in values if isinstance(value, list) for name in value]
        if len(names) > SOURCES or sum(len(name.encode(errors="replace")) for name in names) > SOURCE_BYTES:
            most = f"at most {SOURCES:,} texts, whose names have at most {SOURCE_BYTES:,} bytes"
            yield Misfit(keys, f"a config names {most}", "name their directory, or a glob in quotes")

    def key_uses(self) -> Iterable[tuple[str, bool, str]]:
        return [("validation_fraction", self.validation_source is None, "data.validation_source")]


class TokenizerConfig(Section):
    """Settings of the tokenizer, which turns text into token ids."""

    kind: Literal["bpe", "byte", "char", "tiktoken", "imported"] = Field(
        default="bpe",
        description="kind of tokenizer; bpe learns from the training text, tiktoken loads a published vocabulary, "
        "imported is the tokenizer of an imported model, for a training with --init-from",
    )
    vocab_size: Annotated[int, Field(ge=257, le=1_000_000), Whole] = Field(
        default=4096, description="tokens in a bpe vocabulary, bytes and end-of-text included; a small text gives fewer"
    )
    pattern: Literal["simple", "gpt2", "llama3", "qwen2"] = Field(
        default="simple",
        description="how bpe splits text into words, within which it merges bytes; only gpt has simple; the others are "
        "the patterns of GPT-2, Llama 3 and Qwen 2, which other programs support",
    )
    name: str = Field(default="gpt2", description="vocabulary of kind tiktoken: gpt2, cl100k_base, o200k_base, ...")

    def key_uses(self) -> Iterable[tuple[str, bool, str]]:
        learns, cause = self.kind == "bpe", f"tokenizer.kind {self.kind}"
        return [("name", self.kind == "tiktoken", cause), ("pattern", learns, cause), ("vocab_size", learns, cause)]


class TrainConfig(Section):
    """Settings of training, evaluation and checkpoints; a setting whose name ends in _every is a number of steps."""

    batch_size: Annotated[Size, LEARNING] = Field(default=16, description="sequences per step")
    micro_batch_size: Annotated[Size | None, FREE, LEARNING] = Field(
        default=None, description="sequences computed at once, to save memory, a divisor of batch_size; null means all"
    )
    max_steps: Annotated[Count | None, FREE, LEARNING] = Field(
        default=2000, description="optimizer steps in a run; null means no limit, the default if only max_time is set"
    )
    max_time: Annotated[Duration | None, FREE, LEARNING] = Field(
        default=None,
        description="time after which the run ends, in seconds or as 90s, 5m, 1h30m, 1d, if max_steps does not end it "
        "first; the schedule follows the nearer limit; null means no limit",
    )
    optimizer: Annotated[Literal["adamw", "muon"], LEARNING] = Field(
        default="adamw", description="muon updates the matrices inside blocks and leaves everything else to AdamW"
    )
    learning_rate: Annotated[Number, LEARNING] = Field(
        default=1e-3, gt=0, le=100, description="peak learning rate of AdamW"
    )
    muon_learning_rate: Annotated[Number, LEARNING] = Field(
        default=0.02, gt=0, le=100, description="peak learning rate of Muon"
    )
    warmup_steps: Annotated[int, Field(ge=0, le=2**31 - 1), Whole, LEARNING] = Field(
        default=100, description="steps in which the learning rate rises linearly, at most half of the run"
    )
    schedule: Annotated[Literal["linear", "cosine", "stable"], LEARNING] = Field(
        default="linear",
        description="how the learning rate falls to zero after the warm-up; "
        "stable holds it for the first half of that time",
    )
    weight_decay: Annotated[Number, LEARNING] = Field(
        default=0.1, ge=0, lt=10, description="weight decay, applied to matrices only"
    )
    ema_decay: Annotated[Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False), Real] | None, LEARNING] = Field(
        default=None,
        description="decay per step of an exponential moving average of the weights, which evaluations, samples and "
        "checkpoints use instead of the last weights; null means no average",
    )
    teacher_share: Annotated[Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False), Real] | None, LEARNING] = Field(
        default=None,
        description="share of the steps or of the time for a first model; a second model, the result of the run, then "
        "learns from the text, from counts of its n-grams, and from the first; null means one model",
    )
    num_models: Annotated[int, Field(ge=2, le=64), Whole, LEARNING] = Field(
        default=2,
        description="models that a run with teacher_share trains in turn; of more than two, the first teaches all but "
        "the last, which learns from those and from counts of n-grams, without dropout and with a tenth of the "
        "weight decay",
    )
    rank: Annotated[Count | None, LEARNING] = Field(
        default=None,
        description="rank of the low-rank changes (LoRA) to the matrices inside blocks that a training with "
        "--init-from learns, in less memory; everything else stays as it is; null trains all weights",
    )
    freeze: Annotated[Annotated[int, Field(ge=0, le=2**16), Whole] | None, LEARNING] = Field(
        default=None,
        description="number of first blocks that a training with --init-from freezes, together with the embeddings; 0 "
        "freezes the embeddings alone, null nothing",
    )
    gradient_clip: Annotated[Annotated[float, Field(gt=0, allow_inf_nan=False), Real] | None, LEARNING] = Field(
        default=1.0, description="largest norm of the whole gradient; null means no limit"
    )
    seed: Annotated[int, Field(ge=0, le=2**63 - 1), Whole, LEARNING] = Field(
        default=1337, description="seed of weights, batches and dropout"
    )
    device: Annotated[str, FREE] = Field(
        default="auto",
        pattern=DEVICE_PATTERN,
        description="device that trains: auto, cpu, cuda, cuda:N, mps, xpu, "
        "or what torch calls the accelerator of this machine",
    )
    threads: Annotated[Few | None, FREE] = Field(
        default=None, description="CPU threads; null leaves their number to torch"
    )
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto",
        description="number type of matrix products; weights stay float32, "
        "and auto chooses bfloat16 where it is faster",
    )
    compile: Annotated[Literal["auto", "on", "off"], FREE] = Field(
        default="auto",
        description="whether torch compiles the blocks first; "
        "auto does so on GPUs with Triton for trainings of a minute or more",
    )
    graph: Annotated[Literal["auto", "off"], FREE] = Field(
        default="auto",
        description="whether a GPU records a step as a graph and then replays it, with the same result; auto does so "
        "if one process trains and a trial gives the same bits",
    )
    log_every: Annotated[Count, FREE, LEARNING] = Field(default=10, description="steps between lines of metrics.jsonl")
    eval_every: Annotated[Count, FREE, LEARNING] = Field(default=250, description="steps between evaluations")
    eval_tokens: Annotated[Count, LEARNING] = Field(
        default=16384, description="validation tokens in each evaluation during training"
    )
    sample_every: Annotated[Count | None, FREE, LEARNING] = Field(
        default=500, description="steps between samples of text; null: after the last step only"
    )
    sample_prompt: Annotated[Text | None, FREE] = Field(
        default=None, description="text that samples continue; null: the beginning of a line of the validation text"
    )
    save_every: Annotated[Count, FREE, LEARNING] = Field(default=250, description="steps between checkpoints")
    keep_checkpoints: Annotated[Count, FREE, LEARNING] = Field(
        default=2, description="number of newest checkpoints to keep; the best one is kept as well"
    )
    patience: Annotated[Count | None, FREE, LEARNING] = Field(
        default=None, description="evaluations without a new best after which training stops; null means never"
    )
    log_to: Annotated[Loggers, FREE] = Field(
        default=[],
        description="loggers that also receive metrics, samples and config, each an extra of the package; they stay "
        "offline unless their own environment variables change this",
    )

    @model_validator(mode="before")
    @classmethod
    def _a_time_alone(cls, values: Any) -> Any:
        """Set max_steps to null if values have max_time without max_steps, so that the time alone ends the run."""
        if isinstance(values, dict) and values.get("max_time") is not None:
            return {"max_steps": None, **values}
        return values

    @property
    def sequences_at_once(self) -> int:
        """Number of sequences computed at once: micro_batch_size, or the whole batch."""
        return self.micro_batch_size or self.batch_size

    @property
    def num_teachers(self) -> int:
        """Number of models that a run trains before its final model; 0 without teacher_share."""
        return 0 if self.teacher_share is None else self.num_models - 1

    @property
    def trains_all(self) -> bool:
        """Whether every weight of the model trains."""
        return self.rank is None and self.freeze is None

    @property
    def stored_per_weight(self) -> int:
        """Most values that a checkpoint stores besides a trained weight: 2, +1 with `rank`, +1 with `ema_decay`."""
        return 2 + (self.rank is not None) + (self.ema_decay is not None)

    @property
    def num_micro_batches(self) -> int:
        """Number of micro-batches in a step, which several processes may share."""
        return self.batch_size // self.sequences_at_once

    def misfits(self) -> Iterator[Misfit]:
        if self.max_steps is None and self.max_time is None:
            yield Misfit(("max_steps", "max_time"), "max_steps or max_time ends a run, so set one of them")
        if self.rank is not None and self.optimizer != "adamw":
            yield Misfit(("rank", "optimizer"), "low-rank changes need the optimizer adamw", "‹train.optimizer=adamw›")
        if self.rank is not None and self.ema_decay is not None:
            wrong = "low-rank changes of the weights cannot be averaged"
            yield Misfit(("rank", "ema_decay"), wrong, "‹train.ema_decay=null›")
        if self.teacher_share is not None and self.patience is not None:
            wrong = "the first evaluations of a new model are worse than the last of its teacher"
            yield Misfit(("teacher_share", "patience"), wrong, "‹train.patience=null›")
        if self.micro_batch_size and self.batch_size % self.micro_batch_size:
            sizes = f"micro_batch_size {self.micro_batch_size} does not divide batch_size {self.batch_size}"
            yield Misfit(("micro_batch_size", "batch_size"), f"{sizes}, as {divisors(self.batch_size)} would")

    def key_uses(self) -> Iterable[tuple[str, bool, str]]:
        return [
            ("muon_learning_rate", self.optimizer == "muon", "train.optimizer adamw"),
            ("num_models", self.teacher_share is not None, "train.teacher_share null"),
        ]


class InspectConfig(Section):
    """Settings of attention snapshots for one text during training; the snapshots do not change the training."""

    prompt: Annotated[Text | None, FREE] = Field(
        default=None, description="text of two tokens or more whose attention the run keeps in snapshots; null: none"
    )
    every: Annotated[Count, FREE] = Field(
        default=25, description="steps between snapshots; the first and the last step have one too"
    )

    def key_uses(self) -> Iterable[tuple[str, bool, str]]:
        return [("every", self.prompt is not None, "inspect.prompt null")]


class Config(Section):
    """All settings of a run."""

    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    train: TrainConfig = TrainConfig()
    inspect: InspectConfig = InspectConfig()

    @property
    def tokens_per_step(self) -> int:
        """Number of tokens that one step trains on."""
        return self.train.batch_size * self.model.context_length

    def unused(self, *sources: Config | None) -> Iterator[str]:
        """Yield a sentence for each key that is set but has no effect, because another setting disables it.

        A key counts as set if its value differs from the default and from its values in `sources` (None: no config).
        """
        for name in type(self).model_fields:
            here, there = getattr(self, name), [getattr(source, name) for source in (Config(), *sources) if source]
            for key, used, cause in here.key_uses():
                if not used and all(getattr(here, key) != getattr(section, key) for section in there):
                    yield f"{name}.{key} is not used by {cause}"


def keys_with(fact: Fact) -> frozenset[str]:
    """Return the names, as `section.key`, of the settings that are marked with `fact` (FREE or LEARNING)."""
    return frozenset(
        f"{section}.{key}"
        for section, values in Config()
        for key, field in type(values).model_fields.items()
        if fact in field.metadata
    )
