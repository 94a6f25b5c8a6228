"""The arguments of `gpt heads`, as a class that checks them. Needs no torch."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from gpt_cli.attention_maps.head_metrics import COLUMNS, LOSS_CHANGE, Column
from gpt_cli.checkpoints.select import find_header
from gpt_cli.common.drawing.file_types import PICTURES
from gpt_cli.common.host import Host
from gpt_cli.config.field_types import Misfit, Switch, Whole
from gpt_cli.config.request import NONE, Flag, MaybePath
from gpt_cli.errors import UsageError
from gpt_cli.tools.interpret.request import Heads, ReadingRequest, ToInspect, chosen_heads, require_report


class HeadsRequest(ReadingRequest):
    """Report what each head attends to, how much the loss depends on it, and which tokens it promotes.

    A row for each head: the entropy of its attention, how far it looks, and how much of it goes to the first token, to
    the token before, to itself, to an earlier equal token, and to the token after such a token (induction).
    """

    heads: Heads = NONE
    ablate: Annotated[Literal["zero", "mean", "layer"] | None, Flag("HOW")] = Field(
        default=None,
        description="How much the loss rises without each head: its output is zero, or its mean over the text. "
        "layer: without each whole layer.",
    )
    query: Annotated[int, Field(ge=-65_536, le=65_535), Whole] | None = Field(
        default=None,
        description="Show the tokens that each head promotes most at this token of the prompt, from 0; -1 is the last.",
    )
    passages: Annotated[int, Field(ge=1, le=100), Whole] | None = Field(
        default=None,
        description="Show the N passages of the text in which each head acts most, by the size of what it writes.",
    )
    circuits: Switch = Field(
        default=False,
        description="Show how heads of different layers compose, and the tokens that each head reads, writes, looks "
        "from and looks at, from the weights alone.",
    )
    over_training: Switch = Field(
        default=False,
        description="The scores by step: from the snapshots of ‹watch›, or with ‹prompt› from the checkpoints; with "
        "‹passages›, the passages of each checkpoint.",
    )
    sort: Annotated[Literal[Column, "loss_change"] | None, Flag("COLUMN")] = Field(
        default=None,
        description=f"The highest first: {', '.join(COLUMNS)}; with ‹ablate›, {LOSS_CHANGE}. "
        "Default: by layer and head.",
    )
    out: Annotated[MaybePath, Flag("FILE")] = Field(
        default=NONE,
        description="A .json or .csv file, a picture with a map for each column (.png, .svg, .pdf), or a page, .html. "
        "Default: a table in the terminal.",
    )
    dtype: Literal["auto", "float32", "bfloat16"] | None = Field(
        default=None, description="For ‹ablate›: auto, float32 or bfloat16. Default: auto. Scores are in float32."
    )

    def misfits(self) -> Iterator[Misfit]:
        """Yield errors (`Misfit`) for flags that have no effect with --over-training, or that need a missing flag."""
        yield from super().misfits()
        if self.over_training:
            others = ("checkpoint", "ablate", "query", "circuits", "truncate", "dtype", "threads")
            unused = () if self.passages or self.prompted else ("device",)  # of snapshots nothing is computed
            other = ("sort",) if self.passages else ("data", "max_tokens")
            yield from self.apart("over_training", *others, *unused, *other)
        if self.dtype and not self.ablate and not self.over_training:
            yield Misfit(("dtype",), "it applies only to ‹ablate›; scores are always in float32", "‹ablate=zero›")
        if self.sort == LOSS_CHANGE and self.ablate in (None, "layer"):
            wrong = "only ‹ablate=zero› and ‹ablate=mean› report the loss change of a head"
            yield Misfit(("sort",), wrong, None if self.over_training else "‹ablate=zero›")

    def find(self, host: Host) -> ToInspect:
        """Return the heads to measure and the prompt or text to measure them on.

        Raises UsageError for heads that the model does not have, for files that cannot be written and, without --data,
        for a model whose training text gpt may not read, such as an imported one.
        """
        if self.query is not None:
            self.require_prompt("‹query›", host)
        if self.out is not None:
            require_report(self.out, self.film if self.over_training and not self.passages else None)
            tokens = {"‹query›": self.query is not None, "‹passages›": self.passages, "‹circuits›": self.circuits}
            if self.out.suffix.lower() in PICTURES and (flags := [flag for flag, is_set in tokens.items() if is_set]):
                wrong, hint = "a picture shows no tokens; use .json, .csv or .html", "‹out=heads.html›"
                raise UsageError(flags[0], wrong, hint=hint)
        if self.over_training and not self.passages and not self.prompted:
            header = find_header(self.run, None, host)
            return ToInspect(*chosen_heads(header, self.layers, self.heads), header)
        return self.reading(host, self.heads, by_step=self.over_training and self.passages is not None)
