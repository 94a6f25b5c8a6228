"""The requests (flags and inputs) of `gpt sample` and `gpt eval`. Needs no torch."""

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from gpt_cli.checkpoints.header import Header
from gpt_cli.checkpoints.run_paths import named_run
from gpt_cli.checkpoints.select import find_header
from gpt_cli.checkpoints.training_text import NAME_ONE, config_with_text, trusted_config
from gpt_cli.common.host import Host
from gpt_cli.config import DataConfig
from gpt_cli.config.field_types import Misfit, Number, Real, Switch, UnreadableError, Whole
from gpt_cli.config.request import (
    EMPTY,
    MAX_SEED,
    NONE,
    Coerced,
    Device,
    Flag,
    LoadedRun,
    MaybePath,
    NamedPaths,
    Prompt,
    Request,
    Seed,
    Several,
    Text,
    Threads,
    WhichCheckpoint,
    WhichRun,
)
from gpt_cli.errors import UsageError, shown, visible
from gpt_cli.sampling.head_ablation import parse_heads
from gpt_cli.sampling.prompts import read_prompt, read_prompts
from gpt_cli.text.conversations import Conversation, Turn, conversations_of_file

LEAVE_OUT_MEMORISED = "leave out ‹memorised›, which reads the text that the model was trained on"


class ToSample(NamedTuple):
    """A model to load, and the prompts that it continues; a session on a terminal has none yet."""

    header: Header  # of the checkpoint
    without: tuple[tuple[int, int], ...]  # heads to switch off: layer, head
    prompts: Sequence[str] = ()
    source: str = ""  # the name of the prompts' source in errors
    seed: int | None = None  # None: nothing is drawn
    conversations: list[Conversation] | None = None  # to answer, instead of prompts to continue


class ToEvaluate(NamedTuple):
    """The headers of the checkpoints to evaluate, their data settings, and the heads to switch off."""

    texts: list[DataConfig]  # how each run reads text; without `data` or with `memorised`, also its training text
    without: tuple[tuple[int, int], ...]  # heads that are switched off: layer, head
    longest_window: int  # the longest context of all runs
    one_tokenizer: bool  # whether all runs cut text into the same tokens
    headers: list[Header]  # of the checkpoints


def _read_stop(value: Any) -> Any:
    if value == "":
        raise UnreadableError("is empty; name the text before which a sample ends")
    return value


def _read_run(value: Any) -> Any:
    if isinstance(value, LoadedRun):
        raise UnreadableError("is a model in memory, which a list cannot contain; give it alone, or name its path")
    return named_run(value) if isinstance(value, str | Path) else value


def new_seed() -> int:
    """Draw a random seed below 2^31, for a request without a seed."""
    return secrets.randbelow(2**31)


Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), Real] | None
NewTokens = Annotated[int, Field(ge=1, le=1_000_000), Whole]
Without = Annotated[
    Several[Text],
    Flag("LAYER.HEAD"),
    Field(description="Switch this head off, or several with commas between them: 2.3 or 2.3,4.0. Repeatable."),
]
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16"], Field(description="auto, float32 or bfloat16. Default: float32.")
]
Quantize = Annotated[Literal["int8"] | None, Field(description="int8: weights in 8 bits, products in bfloat16.")]


class SampleRequest(Request):
    """Continue prompts.

    stdout contains the continuations alone; a line with --- separates several. An empty prompt starts a new
    document. On a terminal, without a prompt, gpt sample reads lines and continues each. End a prompt with a whole
    word, not with a space: a byte-pair model learned its words with the space in front.
    """

    prompt: Prompt = Field(default=None, kw_only=False)
    prompt_file: Annotated[MaybePath, Flag("FILE")] = Field(
        default=NONE, description="A UTF-8 text file with one prompt per line."
    )
    chat: Switch = Field(
        default=False,
        description="Answer the prompt as a question, in the template of the model. On a terminal, without a prompt, "
        "talk with it: it sees the earlier turns, as many as fit.",
    )
    messages: Annotated[MaybePath, Flag("FILE")] = Field(
        default=NONE,
        description="Answer conversations of a file: JSON messages with roles and contents, or a line for each one.",
    )
    run: WhichRun = NONE
    checkpoint: WhichCheckpoint = NONE
    max_new_tokens: NewTokens = Field(default=200, description="How many tokens to add. Default: 200.")
    temperature: Number = Field(
        default=0.8,
        ge=0,
        description="Below 1 is more careful, above 1 more daring, 0 the same as ‹greedy›. Default: 0.8.",
    )
    top_k: Annotated[int, Field(ge=0), Whole] | None = Field(
        default=None, description="Choose among the N most probable tokens only; 0 means all."
    )
    top_p: Share = Field(default=None, description="Choose among the most probable tokens with total probability X.")
    min_p: Share = Field(default=None, description="Choose among tokens at least X times as probable as the top token.")
    repetition_penalty: Number = Field(
        default=1.0, gt=0, description="Above 1 makes tokens of the text so far less probable. Default: 1."
    )
    stop: Several[Annotated[str, BeforeValidator(_read_stop)]] = Field(
        default=(), description="End before this text and leave it out. Repeatable."
    )
    num_samples: Annotated[int, Field(ge=1, le=10_000), Whole] = Field(
        default=1, description="How many continuations of each prompt. Default: 1."
    )
    seed: Seed | None = Field(
        default=None, description=f"Seed of the draws, from 0 to {MAX_SEED}. Default: another seed each time."
    )
    greedy: Switch = Field(default=False, description="Always take the most probable token.")
    stream: Switch = Field(
        default=True, description="Print a single sample token by token as the model writes it. Default: ‹stream›."
    )
    without: Without = ()
    device: Device = None
    dtype: Dtype = "float32"
    quantize: Quantize = None
    threads: Threads = None

    exclusive = (("messages", "prompt", "prompt_file"), ("prompt", "prompt_file"))

    def misfits(self) -> Iterator[Misfit]:
        """Yield an error (Misfit) for flags that cannot be combined, such as `greedy` and `temperature`."""
        yield from super().misfits()
        if self.greedy and self.temperature and "temperature" in self.model_fields_set:
            yield Misfit(("temperature",), "‹temperature› and ‹greedy› cannot be combined; leave one of them out")

    def find(self, host: Host) -> ToSample:
        """Return prompts, model and seed; raise UsageError, DataError or, for a bad checkpoint, CheckpointError."""
        target = self.find_model(host)
        is_drawn = not self.greedy and self.temperature != 0
        seed = new_seed() if self.seed is None and is_drawn else self.seed
        if self.messages is not None:
            text, _ = read_prompt(None, self.messages, target.header, None, may_be_empty=True)
            conversations = conversations_of_file(text, visible(self.messages))
            prompts, source = [one.turns[-1].content for one in conversations], shown(self.messages)
        else:
            prompts, source = read_prompts(self.prompt, self.prompt_file, target.header, host.stdin)
            conversations = [Conversation((Turn("user", text),)) for text in prompts] if self.chat else None
        return target._replace(prompts=prompts, source=source, seed=seed, conversations=conversations)

    def find_model(self, host: Host) -> ToSample:
        """Return the model to load; raise CheckpointError for a bad header, UsageError for heads the model lacks."""
        header = find_header(self.run, self.checkpoint, host)
        return ToSample(header, parse_heads(",".join(self.without), header.config.model) if self.without else ())


class EvaluateRequest(Request):
    """Measure how well trained models predict a text: nats per token, perplexity, bits per byte.

    Without ‹data›, each run is measured on its own validation text, and gpt eval warns if that text has changed since
    the run was trained.
    """

    data: Annotated[NamedPaths, Flag("SOURCE", offers="texts")] = Field(
        default=EMPTY,
        kw_only=False,
        description="The text to measure. Repeatable. Default: the validation text of the run.",
    )
    run: Annotated[
        Coerced[Several[Annotated[Path, BeforeValidator(_read_run)]], str | Path | LoadedRun | Sequence[str | Path]],
        Flag("PATH", offers="runs"),
    ] = Field(
        default=EMPTY,
        description="A run, by its path or by its name under runs/, or a checkpoint. Repeatable. "
        "Default: the newest run under runs/.",
    )
    checkpoint: WhichCheckpoint = NONE
    stride: Annotated[int, Field(ge=1), Whole] | None = Field(
        default=None,
        description="Tokens by which the window advances; fewer are slower and give more context. Default: the window.",
    )
    max_tokens: Annotated[int, Field(ge=2), Whole] | None = Field(
        default=None,
        description="Read about N tokens of the text, in windows that are evenly spaced; with ‹stride›, from its "
        "beginning. Default: all.",
    )
    per_token: Switch = Field(default=False, description="Show the surprisal of each token.")
    memorised: Switch = Field(
        default=False, description="Also sample, and measure how much the model copies its training text."
    )
    num_samples: Annotated[int, Field(ge=1, le=10_000), Whole] = Field(
        default=10, description="Samples of ‹memorised›. Default: 10."
    )
    max_new_tokens: NewTokens = Field(default=200, description="Tokens in each sample of ‹memorised›. Default: 200.")
    seed: Seed = Field(default=0, description=f"Seed of ‹memorised›, from 0 to {MAX_SEED}. Default: 0.")
    without: Without = ()
    device: Device = None
    dtype: Dtype = "float32"
    quantize: Quantize = None
    threads: Threads = None

    exclusive = (("per_token", "max_tokens"),)

    def misfits(self) -> Iterator[Misfit]:
        """Yield an error (Misfit) for `per_token` with several runs, and for flags of sampling without `memorised`."""
        yield from super().misfits()
        of_samples = [name for name in ("num_samples", "max_new_tokens", "seed") if name in self.model_fields_set]
        if self.per_token and len(self.run) > 1:
            yield Misfit(("per_token",), f"it shows one run, and ‹run› names {len(self.run)}; name one")
        elif of_samples and not self.memorised:
            wrong = "it changes the samples of ‹memorised›, so it needs ‹memorised=True›"
            yield Misfit((of_samples[0],), wrong, "‹memorised=True›")

    def find(self, host: Host) -> ToEvaluate:
        """Return the runs to evaluate; raise CheckpointError for bad headers, UsageError or DataError for bad input."""
        headers = [find_header(path, self.checkpoint, host) for path in self.run or [None]]
        off: tuple[tuple[int, int], ...] = ()
        for header in headers:
            length = header.config.model.evaluation_window
            if self.stride and self.stride > length:
                raise UsageError("‹stride›", f"the model of {header.path} sees {length} tokens; use 1 to {length}")
            if self.without:
                off = parse_heads(",".join(self.without), header.config.model, str(header.path))
        advice = NAME_ONE
        if self.memorised:
            advice = LEAVE_OUT_MEMORISED
            advice += "" if self.data else f", and name a text with {NAME_ONE}"
        trusts = bool(self.data) and not self.memorised
        configs = [trusted_config(header) if trusts else config_with_text(header, advice) for header in headers]
        return ToEvaluate(
            texts=[config.data for config in configs],
            without=off,
            longest_window=max(header.config.model.evaluation_window for header in headers),
            one_tokenizer=len({header.metadata["tokenizer"] for header in headers}) == 1,
            headers=headers,
        )
