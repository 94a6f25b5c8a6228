"""What the commands of this package are asked. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from gpt_cli.config.fields import Misfit
from gpt_cli.config.request import Flag, Prompt, PromptFile, Request, WhichCheckpoint, WhichRun


class TokensRequest(Request):
    """Show how a text is cut into tokens: their ids and their pieces of the text.

    A space is shown as ␣, the end of a line as ↵, and a piece of a character by its bytes.
    """

    text: Annotated[str | None, Flag("TEXT", position=True)] = Field(
        default=None, description="The text; or use --prompt, --prompt-file or a pipe."
    )
    prompt: Prompt = None
    prompt_file: PromptFile = None
    run: WhichRun = None
    checkpoint: WhichCheckpoint = None
    tokenizer: Annotated[str | None, Flag("NAME", offers="tokenizers")] = Field(
        default=None,
        description="byte, or a published vocabulary such as gpt2 or cl100k_base, instead of that of a run.",
    )

    def misfits(self) -> Iterator[Misfit]:
        """A text that comes twice, or two tokenizers."""
        yield from self.apart("text", "prompt", "prompt_file")
        yield from self.apart("tokenizer", "run", "checkpoint")
