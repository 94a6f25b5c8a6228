"""The request class of `gpt explain`, which checks the arguments of this command. Its import needs no torch."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from gpt_cli.checkpoints.header import Header
from gpt_cli.checkpoints.lock import require_foreign
from gpt_cli.checkpoints.select import find_header
from gpt_cli.common.drawing.file_types import PICTURES, ending_of
from gpt_cli.common.host import Host
from gpt_cli.config.field_types import Misfit, Whole
from gpt_cli.config.request import NONE, Digits, Flag, MaybePath, WhichCheckpoint, WhichRun
from gpt_cli.errors import UsageError, shown
from gpt_cli.sampling.prompts import read_prompt
from gpt_cli.tools.interpret.request import PromptRequest, Truncate, out_of_range

Index = Annotated[int, Field(ge=0), Whole] | None
_OF_HEAD, _OF_MODEL = ("prompt", "prompt_file", "layer", "head", "query", "truncate"), ("run", "checkpoint")


class ExplainRequest(PromptRequest):
    """Work through one head, step by step.

    Every step has its formula, its shape and its numbers. With ‹example› it works through a published example, with
    ‹study› through a study of one idea; neither needs a prompt.
    """

    run: WhichRun = NONE
    checkpoint: WhichCheckpoint = NONE
    layer: Index = Field(default=None, description="The head's layer, from 0. Default: 0.")
    head: Index = Field(default=None, description="The head in its layer, from 0. Default: 0.")
    query: Annotated[Digits, Flag("N|all")] = Field(
        default=NONE, description="The position of the token that looks, from 0, or all. Default: the last."
    )
    example: Literal["journey"] | None = Field(
        default=None, description="A published example instead of a model: journey, six tokens of three numbers."
    )
    study: Literal["scaling", "mask", "dropout", "padding"] | None = Field(
        default=None, description="A study of one idea instead of a head: scaling, mask, dropout, padding."
    )
    out: Annotated[MaybePath, Flag("FILE")] = Field(
        default=NONE,
        description="A page (.html), a .md or .json file, or for a ‹study› a picture (.png, .svg, .pdf). "
        "Default: text in the terminal.",
    )
    truncate: Truncate = False
    form: Literal["terminal", "markdown", "html"] | None = Field(
        default=None, description="terminal, markdown or html. Default: terminal."
    )
    language: Literal["en", "zh"] | None = Field(
        default=None, description="en or zh. Default: the language of help and errors."
    )

    exclusive = (*PromptRequest.exclusive, ("out", "form"), ("example", "study", *_OF_HEAD, *_OF_MODEL))

    def misfits(self) -> Iterator[Misfit]:
        """Yield errors for flags that exclude each other, or have no effect with --example or --study."""
        yield from super().misfits()
        useless = _OF_HEAD if self.study == "scaling" else _OF_HEAD + _OF_MODEL
        if not self.example:
            yield from self.apart("study", *useless, value=str(self.study))

    def require_shown(self, *, json: bool) -> None:
        """Raise UsageError if `json` is true (--json) and `form` is set, since JSON has only one form."""
        if json and self.form is not None:
            raise UsageError("‹form›", "‹form› and ‹json› cannot be combined; leave one of them out")

    def find(self, host: Host) -> tuple[str, str, Header] | None:
        """Return the prompt, the name of its source, and the checkpoint's header; None with `example` or `study`.

        Raises UsageError for an invalid layer, head or query, and for a picture without `study`.
        """
        if self.out is not None:
            if ending_of(self.out, (".html", ".md", ".json", *PICTURES)) in PICTURES and self.study is None:
                raise UsageError("‹out›", "only a study has a picture; use .html, .md or .json", hint="‹out=head.html›")
            require_foreign(self.out)
        if self.example or self.study:
            return None
        query = self.query
        if query is not None and query != "all" and not (query.isdecimal() and len(query) <= 9):
            raise UsageError("‹query›", f"{shown(query)} is not a position; use a number from 0 on, or all")
        header = find_header(self.run, self.checkpoint, host)
        sizes = header.config.model
        for field, value, count in (("layer", self.layer, sizes.num_blocks), ("head", self.head, sizes.num_heads)):
            if (value or 0) >= count:
                raise UsageError(f"‹{field}›", out_of_range(field, value or 0, count))
        return *read_prompt(self.prompt, self.prompt_file, header, host.stdin), header
