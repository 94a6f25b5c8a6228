"""The arguments of `gpt tokens` and `gpt attn-dump` as classes; base classes for other commands. Needs no torch."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from gpt_cli.attention_maps.file_formats import FORMATS, STAGES, Stage, check_format
from gpt_cli.checkpoints.header import Header
from gpt_cli.checkpoints.lock import require_foreign
from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.checkpoints.select import find_header, model_began
from gpt_cli.checkpoints.training_text import config_with_text, readable_prompt, trusted_config
from gpt_cli.common.drawing.file_types import REPORTS, ending_of
from gpt_cli.common.host import Host
from gpt_cli.common.mistyped import full_width, half_width
from gpt_cli.config import DataConfig
from gpt_cli.config.field_types import Misfit, Real, Switch, Whole
from gpt_cli.config.request import (
    EMPTY,
    NONE,
    Coerced,
    Device,
    Flag,
    MaybePath,
    NamedPaths,
    Prompt,
    ReadDigits,
    Request,
    Seed,
    Several,
    Threads,
    WhichCheckpoint,
    WhichRun,
)
from gpt_cli.errors import CheckpointError, UsageError, shown, visible
from gpt_cli.sampling.prompts import read_prompt

STDOUT = Path("-")


def _read_selection(value: Any) -> Any:
    """Convert several indices of layers or heads in Python, such as [0, 3], to text such as 0,3."""
    return ",".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else value


Selection = Annotated[
    Coerced[Annotated[str, ReadDigits, BeforeValidator(_read_selection)] | None, str | int | Sequence[int] | None],
    Flag("LIST"),
]
Layers = Annotated[Selection, Field(description="Layers, such as 0,3-5. Default: all.")]
Heads = Annotated[Selection, Field(description="Heads, such as 0-3. Default: all.")]
MaxTokens = Annotated[
    Annotated[int, Field(ge=2), Whole] | None,
    Field(description="Read about N tokens of a text, in windows that are evenly spaced. Default: 16,384."),
]
PromptFile = Annotated[MaybePath, Flag("FILE"), Field(description="Read the prompt from a UTF-8 file.")]
Truncate = Annotated[Switch, Field(description="Keep the last tokens of a prompt that is too long.")]


class TokensRequest(Request):
    """Show how a text is cut into tokens: their ids and their pieces of the text.

    A space is shown as ␣, the end of a line as ↵, and a piece of a character by its bytes.
    """

    text: Annotated[str | None, Flag("TEXT", position=True)] = Field(
        default=None,
        kw_only=False,
        description="The text; or use ‹prompt› or ‹prompt_file›. Default: stdin, if it is a pipe.",
    )
    prompt: Prompt = None
    prompt_file: PromptFile = NONE
    run: WhichRun = NONE
    checkpoint: WhichCheckpoint = NONE
    tokenizer: Annotated[str | None, Flag("NAME", offers="tokenizers")] = Field(
        default=None,
        description="byte, or a published vocabulary such as gpt2 or cl100k_base, instead of a run's tokenizer.",
    )

    exclusive = (("text", "prompt", "prompt_file"), ("prompt", "prompt_file"), ("tokenizer", "run", "checkpoint"))


class ToInspect(NamedTuple):
    """The inputs of an inspection: layers, heads, the prompt or text to read, and the checkpoint's header."""

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    header: Header
    prompt: str | None = None  # None: read a text, or snapshots of attention that training wrote
    source: str = ""  # the field of the prompt, or stdin
    text: DataConfig | None = None  # how the run reads text and, without `data`, its training text; None for a prompt


def chosen_heads(header: Header, layers: str | None, heads: str | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Parse the layers and heads of a request, such as `0,3-5`; raises UsageError for any that the model lacks."""
    sizes = header.config.model
    return parse_selection(layers, sizes.num_blocks, "layers"), parse_selection(heads, sizes.num_heads, "heads")


def parse_selection(text: str | None, count: int, field: str) -> tuple[int, ...]:
    """Return the indices below `count` that `text`, such as 0,3-5, selects (None: all); UsageError names `field`."""
    if text in (None, "all"):
        return tuple(range(count))
    where = f"‹{field}›"
    if wrong_mark := full_width(text):
        raise UsageError(where, wrong_mark, hint=f"‹{field}={half_width(text)}›")
    chosen: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 20:
            raise UsageError(where, f"{shown(part)} is neither a number nor a range", hint=f"‹{field}=0,3-5›")
        low, high = int(first), int(last or first)
        if low > high:
            raise UsageError(where, f"the range {shown(part)} runs backwards", hint=f"‹{field}={high}-{low}›")
        if high >= count:
            raise UsageError(where, out_of_range(field, part, count))
        chosen.update(range(low, high + 1))
    return tuple(sorted(chosen))


def out_of_range(field: str, value: object, count: int) -> str:
    """Return the error sentence for a layer or head out of range; `field` is layers or heads, `count` their number."""
    return f"this model has {field.removesuffix('s')}s 0 to {count - 1}, so {shown(value)} is out of range"


def step_files(run: RunFiles) -> list[Path]:
    """Return the checkpoint files of a run's last model in the order of their steps; CheckpointError without any."""
    if not (steps := run.steps()):
        sentence = "this run has no checkpoints of steps, so gpt cannot compute anything by step"
        raise CheckpointError(shown(run.path), sentence, hint="gpt import DIR... --steps imports several steps")
    begin = model_began(run, max(steps))
    return [path for step, path in steps.items() if step > begin or not begin]


class PromptRequest(Request):
    """Base class of requests with an optional prompt."""

    prompt: Prompt = Field(default=None, kw_only=False)
    prompt_file: PromptFile = NONE
    exclusive = (("prompt", "prompt_file"),)

    @property
    def prompted(self) -> bool:
        """Whether the request has a prompt or a prompt file."""
        return self.prompt is not None or self.prompt_file is not None


class AttentionRequest(PromptRequest):
    """Show or save where each head looks.

    Each row of a map is a token that looks, each column a token it looks at.
    """

    out: Annotated[MaybePath, Flag("FILE")] = Field(
        default=NONE,
        description="A .npz, .safetensors, .json, .csv, .html, .png, .svg or .pdf file; - writes JSON or CSV to "
        "stdout. Default: a drawing in the terminal.",
    )
    format: Literal["json", "csv"] | None = Field(
        default=None, description="What ‹out=-› writes: json or csv. Default: json."
    )
    run: WhichRun = NONE
    checkpoint: WhichCheckpoint = NONE
    layers: Layers = NONE
    heads: Heads = NONE
    generate: Annotated[int, Field(ge=1, le=65_536), Whole] | None = Field(
        default=None, description="Let the model add N tokens, and show their attention too."
    )
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False), Real] | None = Field(
        default=None, description="For ‹generate›; 0 always takes the most probable token. Default: 0.8."
    )
    seed: Seed | None = Field(default=None, description="For ‹generate›. Default: 0.")
    stage: Annotated[Coerced[Several[Stage], Stage | Sequence[Stage]], Flag("STAGE")] = Field(
        default=EMPTY,
        description="Write more than the weights: scores (neither divided nor masked), queries, keys, values, heads. "
        "Repeatable.",
    )
    file_dtype: Literal["float32", "float16"] = Field(
        default="float32", description="float32, or float16 in .npz and .safetensors. Default: float32."
    )
    truncate: Truncate = False
    over_training: Switch = Field(
        default=False,
        description="Write a film as a page, ‹out=film.html›: of the snapshots of gpt train --watch, or with ‹prompt› "
        "of the checkpoints.",
    )
    device: Device = None

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the requested arrays of attention, such as queries, always with weights, in the order of STAGES."""
        return tuple(name for name in STAGES if name == "weights" or name in self.stage)

    @property
    def ending(self) -> str | None:
        """The format of `out`, such as `.png`; None without `out`. Raises UsageError for an unknown ending."""
        if self.out == STDOUT:
            return f".{self.format or 'json'}"
        return None if self.out is None else ending_of(self.out, FORMATS)

    def misfits(self) -> Iterator[Misfit]:
        """Yield errors (`Misfit`) for flags that --over-training excludes, or that need --generate or --out - too."""
        yield from super().misfits()
        if self.over_training:
            of_step = ("format", "checkpoint", "generate", "temperature", "seed", "stage")
            unused = () if self.prompted else ("device",)  # nothing is computed then
            yield from self.apart("over_training", *of_step, "file_dtype", "truncate", *unused)
            return
        if self.format and self.out != STDOUT:
            yield Misfit(("format",), "it applies only to ‹out=-›; the ending of a file sets its format", "‹out=-›")
        if self.generate is None:
            for key in ("temperature", "seed"):
                if getattr(self, key) is not None:
                    yield Misfit((key,), "it changes what ‹generate› adds, so it needs ‹generate›", "‹generate=20›")

    def require_shown(self, *, json: bool) -> None:
        """Raise UsageError for `over_training`, `stage` or `file_dtype` without `out`, and for --json with `out=-`."""
        if self.out is None and self.over_training:
            sentence = "a film is a page, so its name must end in .html"
            raise UsageError("‹over_training›", sentence, hint="‹out=film.html›")
        if self.out is None and (self.stage or self.file_dtype != "float32"):
            flag = "‹stage›" if self.stage else "‹file_dtype›"
            raise UsageError(flag, "the drawing in the terminal shows weights only", hint="‹out=FILE.npz›")
        if json and self.out == STDOUT:
            raise UsageError("‹json›", "‹json› and ‹out=-› cannot be combined; leave one of them out")

    def find(self, host: Host) -> ToInspect:
        """Return the heads to inspect and the prompt, which is None if --over-training reads snapshots.

        Raises UsageError for heads that the model does not have and for files that cannot be written.
        """
        if self.over_training:
            if self.out is not None and self.out.suffix.lower() != ".html":
                wrong = "a film is a page, so its name must end in .html"
                raise UsageError("‹over_training›", wrong, hint="‹out=film.html›")
        elif ending := self.ending:
            check_format(ending, self.stages, self.file_dtype)
        if self.out not in (None, STDOUT):
            require_foreign(self.out)
        header = find_header(self.run, self.checkpoint, host)
        chosen = chosen_heads(header, self.layers, self.heads)
        if self.over_training and not self.prompted:
            return ToInspect(*chosen, header)
        return ToInspect(*chosen, header, *read_prompt(self.prompt, self.prompt_file, header, host.stdin))


def require_report(out: Path, page: str | None = None) -> None:
    """Raise UsageError if `out` does not end in .json, .csv, .html or a picture's ending, or is a file of a run.

    If `page` is set, .html is refused too; `page` is then the error's hint, which says how to get a page instead.
    """
    ending_of(out, REPORTS if page else (*REPORTS, ".html"), {".html": page})
    require_foreign(out)


class ReadingRequest(PromptRequest):
    """Base class of requests for a report on a model that reads a prompt or a text."""

    data: Annotated[NamedPaths, Flag("SOURCE", offers="texts")] = Field(
        default=EMPTY, description="The text that the model reads. Repeatable. Default: the validation text of the run."
    )
    max_tokens: MaxTokens = None
    run: WhichRun = NONE
    checkpoint: WhichCheckpoint = NONE
    layers: Layers = NONE
    truncate: Truncate = False
    device: Device = None
    threads: Threads = None
    exclusive = (*PromptRequest.exclusive, ("prompt", "data", "max_tokens"), ("prompt_file", "data", "max_tokens"))

    @property
    def film(self) -> str:
        """The shell command that writes a film (a page of attention by step) for the same run and prompt."""
        texts = {"--run": self.run, "--prompt": self.prompt, "--prompt-file": self.prompt_file}
        flags = [f" {flag} {shlex.quote(visible(text, 10**6))}" for flag, text in texts.items() if text is not None]
        return f"gpt attn-dump{''.join(flags)} --over-training --out film.html"

    def require_prompt(self, flag: str, host: Host) -> None:
        """Raise UsageError, with a prompt as its hint, if the request has no prompt, which `flag` needs."""
        if not self.prompted:
            hint = f"‹prompt={readable_prompt(find_header(self.run, self.checkpoint, host))}›"
            raise UsageError(flag, f"{flag} needs ‹prompt› or ‹prompt_file›", hint=hint)

    def reading(self, host: Host, heads: str | None = None, *, by_step: bool = False) -> ToInspect:
        """Return layers, heads, and prompt or text to inspect; raises UsageError for layers or heads out of range.

        With `by_step`, choose the checkpoint of the newest step; raises CheckpointError for a run without steps.
        """
        if self.truncate:
            self.require_prompt("‹truncate›", host)
        header = find_header(self.run, self.checkpoint, host)
        if by_step:
            header = find_header(step_files(header.run)[-1], None, host)
        chosen = chosen_heads(header, self.layers, heads)
        if self.prompted:
            return ToInspect(*chosen, header, *read_prompt(self.prompt, self.prompt_file, header, host.stdin))
        config = trusted_config(header) if self.data else config_with_text(header)
        return ToInspect(*chosen, header, text=config.data)
