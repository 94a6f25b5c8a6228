"""The arguments of `gpt patch`, as a class that checks them. Needs no torch."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import BeforeValidator, Field

from gpt_cli.checkpoints.header import Header
from gpt_cli.checkpoints.select import find_header
from gpt_cli.common.host import Host
from gpt_cli.common.limits import PROMPT_BYTES
from gpt_cli.common.strict_json import plainly, strict_json
from gpt_cli.common.untrusted_files import read_bytes
from gpt_cli.config import ModelConfig
from gpt_cli.config.field_types import Misfit, Switch
from gpt_cli.config.request import (
    EMPTY,
    NONE,
    Coerced,
    Device,
    Flag,
    MaybePath,
    Request,
    Several,
    Text,
    Threads,
    WhichCheckpoint,
    WhichRun,
)
from gpt_cli.errors import DataError, GptError, UsageError, collecting, shown, together, visible
from gpt_cli.tools.interpret.request import Heads, Layers, chosen_heads, require_report

Part = Literal["residual", "attention", "feed_forward", "head"]
PARTS: tuple[str, ...] = get_args(Part)
FEED_FORWARD, LOGITS = "feed_forward", "logits"  # receivers of an edge besides heads
_KEYS = ("clean", "corrupt", "answer", "against")
_MAX_WRONG = 5  # lines of a file that are named
_PAIR = '{"clean": "...", "corrupt": "...", "answer": " a", "against": " b"}'


def _read_parts(value: Any) -> Any:
    """Split comma-separated text, or a sequence of such texts, into a tuple of distinct parts; keep other values."""
    several = [value] if isinstance(value, str) else value
    if isinstance(several, Sequence) and all(isinstance(each, str) for each in several):
        return tuple(dict.fromkeys(part.strip() for each in several for part in each.split(",")))
    return value


class Pair(NamedTuple):
    """Two prompts, and the tokens that the metric compares; `where` names the file and line (None: given by flags)."""

    clean: str
    corrupt: str
    answer: str | None = None
    against: str | None = None
    where: str | None = None

    def named(self, key: str) -> str:
        """Return how errors name `key`: answer is named ‹answer› if it is a flag, else, say, pairs.jsonl:3: answer."""
        return f"‹{key}›" if self.where is None else f"{self.where}: {key}"


class Edge(NamedTuple):
    """An edge from head (`layer`, `head`) to its reader (`to_layer`, `to`): a higher head, feed_forward or logits."""

    layer: int
    head: int
    to_layer: int
    to: int | str


class ToPatch(NamedTuple):
    """The inputs of `gpt patch`: pairs of prompts, layers and heads to patch (or an edge), and the checkpoint."""

    pairs: list[Pair]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    edge: Edge | None
    header: Header


class PatchRequest(Request):
    """Find which parts of a model carry an answer, by patching activations of a clean prompt into a corrupt one.

    The model reads the corrupt prompt with one activation of the clean prompt: the residual stream after a block, the
    output of its attention or feed-forward, or of one head, at one position or at all. The figure is the share of the
    metric that this recovers: 0 as after the corrupt prompt, 1 as after the clean one. The metric is the logit of
    ‹answer› minus that of ‹against›; with ‹answer› alone its log probability; without both, gpt compares the most
    probable next tokens of the two prompts.
    """

    clean: Text | None = Field(default=None, kw_only=False, description="The prompt that the model answers well.")
    corrupt: Text | None = Field(
        default=None, description="The clean prompt with a change that spoils the answer, and as many tokens."
    )
    answer: Text | None = Field(default=None, description="The token that follows ‹clean›, with its space: ' Paris'.")
    against: Text | None = Field(
        default=None, description="The token that follows ‹corrupt›, whose logit is subtracted."
    )
    pairs: Annotated[MaybePath, Flag("FILE")] = Field(
        default=NONE,
        description='A .jsonl file with a pair on each line, {"clean", "corrupt", "answer", "against"}, the last two '
        "optional: shares with standard errors over pairs.",
    )
    parts: Annotated[
        Coerced[Annotated[Several[Part], BeforeValidator(_read_parts)], str | Sequence[str]], Flag("LIST")
    ] = Field(
        default=EMPTY, description="What to patch: residual,attention,feed_forward,head, or some of them. Default: all."
    )
    layers: Layers = NONE
    heads: Heads = NONE
    path: Annotated[Text | None, Flag("L.H:L.H")] = Field(
        default=None,
        description="Patch one edge: what the second head reads from the first, as in 0.1:1.0, by its queries, keys or "
        "values. The second may also be 1.feed_forward or logits.",
    )
    estimate: Switch = Field(
        default=False, description="Also estimate each share by one backward pass (attribution patching)."
    )
    exact: Switch = Field(default=True, description="With ‹estimate›: ‹exact=False› leaves out the exact shares.")
    over_training: Switch = Field(default=False, description="The shares by step, from the checkpoints of the run.")
    run: WhichRun = NONE
    checkpoint: WhichCheckpoint = NONE
    out: Annotated[MaybePath, Flag("FILE")] = Field(
        default=NONE,
        description="A .json or .csv file, or a picture (.png, .svg, .pdf) or a page (.html) with maps of layers by "
        "positions and by heads. Default: tables in the terminal.",
    )
    device: Device = None
    threads: Threads = None

    @property
    def chosen(self) -> tuple[str, ...]:
        """The requested parts, such as attention, or all parts if none was requested, in the order of PARTS."""
        return tuple(part for part in PARTS if part in self.parts or not self.parts)

    exclusive = (
        ("pairs", "clean", "corrupt", "answer", "against"),
        ("path", "parts", "layers", "heads", "estimate", "over_training"),
        ("over_training", "checkpoint", "estimate"),
    )

    def misfits(self) -> Iterator[Misfit]:
        """Yield errors (`Misfit`) for fields without the one that they need, such as `clean` without `corrupt`."""
        yield from super().misfits()
        for one, other in (("clean", "corrupt"), ("corrupt", "clean"), ("against", "answer"), ("answer", "clean")):
            if getattr(self, one) is not None and getattr(self, other) is None and not self.pairs:
                yield Misfit((one,), f"‹{one}› needs ‹{other}›", f"‹{other}=...›")
        if not self.exact and not self.estimate:
            wrong = "without exact shares, only ‹estimate› gives shares"
            yield Misfit(("exact",), wrong, "‹estimate=True› ‹exact=False›")

    def find(self, host: Host) -> ToPatch:
        """Return pairs of prompts, and heads or edge to patch; raises UsageError, or DataError for a bad file."""
        if self.pairs is None and self.clean is None:
            hint = "‹clean=The value of› ‹corrupt=The name of› ‹answer= the›"
            raise UsageError("gpt patch", "there is nothing to patch; use ‹clean› and ‹corrupt›, or ‹pairs›", hint=hint)
        if self.out is not None:
            require_report(self.out, "‹out=patch.png›" if self.path else None)
        if self.pairs is not None:
            pairs = _read_pairs(self.pairs)
        else:
            pairs = [Pair(self.clean or "", self.corrupt or "", self.answer, self.against)]
        header = find_header(self.run, self.checkpoint, host)
        edge = None if self.path is None else parse_edge(self.path, header.config.model)
        return ToPatch(pairs, *chosen_heads(header, self.layers, self.heads), edge, header)


def parse_edge(text: str, sizes: ModelConfig) -> Edge:
    """Parse an edge, `1.3:2.0` (layer.head:layer.head), `1.3:2.feed_forward` or `1.3:logits`; raises UsageError."""

    def parse_end(part: str, *others: str) -> tuple[int, int | str] | None:
        layer, _, head = part.strip().partition(".")
        if len(part) <= 20 and layer.isdecimal() and (head.isdecimal() or head in others):
            return int(layer), head if head in others else int(head)
        return None

    first, _, second = text.partition(":")
    sender = parse_end(first)
    receiver = (sizes.num_blocks, LOGITS) if second.strip() == LOGITS else parse_end(second, FEED_FORWARD)
    if sender is None or receiver is None:
        sentence = f"{shown(text)} is not an edge; name two heads, as 0.1:1.0, or a head and 1.feed_forward or logits"
        raise UsageError("‹path›", sentence, hint="‹path=0.0:logits›")
    for layer, head in (sender, receiver):
        lacks = layer >= sizes.num_blocks or (isinstance(head, int) and head >= sizes.num_heads)
        if lacks and head != LOGITS:
            has = f"this model has layers 0 to {sizes.num_blocks - 1} with heads 0 to {sizes.num_heads - 1}"
            raise UsageError("‹path›", f"{has}, so {shown(f'{layer}.{head}')} is out of range")
    same = receiver[1] == FEED_FORWARD and not sizes.parallel_branches
    if receiver[0] < sender[0] + (0 if same else 1):
        sentence = f"{shown(second)} does not read {shown(first)}, which is computed later or at the same time"
        raise UsageError("‹path›", sentence, hint="an edge leads from a head to a higher layer")
    return Edge(sender[0], int(sender[1]), *receiver)


def _read_pairs(path: Path) -> list[Pair]:
    """Return a file's pairs; raise DataError about the first wrong lines, or a pair with other keys than the first."""
    try:
        lines = read_bytes(path, DataError, most=("a file of pairs", PROMPT_BYTES)).decode("utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise DataError(shown(path), "it is not UTF-8 text") from None
    pairs, wrong = list[Pair](), list[GptError]()
    for number, line in enumerate(lines, 1):
        with collecting(wrong):
            pairs += [_read_pair(line, f"{visible(path)}:{number}")] if line.strip() else []
    if wrong:
        for error in wrong:
            error.hint = _PAIR
        raise together(wrong[:_MAX_WRONG])
    if not pairs:
        raise DataError(shown(path), "the file contains no pair; write one per line", hint=_PAIR)
    first = pairs[0]
    for pair in pairs:
        if [pair.answer is None, pair.against is None] != [first.answer is None, first.against is None]:
            raise DataError(str(pair.where), "its keys differ from those of the first pair, so their metrics differ")
    return pairs


def _read_pair(line: str, where: str) -> Pair:
    try:
        fields = strict_json(line)
    except json.JSONDecodeError:
        raise DataError(where, f"this is not JSON; each line is an object such as {_PAIR}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(where, plainly(error)) from None
    if not isinstance(fields, dict) or not {"clean", "corrupt"} <= {*fields}:
        raise DataError(where, "a pair has the keys clean and corrupt, and optionally answer and against")
    if unknown := [key for key in fields if key not in _KEYS]:
        raise DataError(where, f"{shown(unknown[0])} is not a key of a pair")
    if wrong := [key for key in _KEYS if key in fields and not (isinstance(fields[key], str) and fields[key])]:
        raise DataError(where, f"{wrong[0]} is not a text, or is empty")
    if "against" in fields and "answer" not in fields:
        raise DataError(where, "against needs answer")
    return Pair(**fields, where=where)
