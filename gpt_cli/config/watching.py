"""The settings of what a training shows of its attention, declared once."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gpt_cli.config.fields import Count, Section


class InspectConfig(Section):
    """Snapshots of the attention to one text while the model trains; the training is the same with and without."""

    prompt: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="text whose attention the run keeps snapshots of, of at least two tokens; null: none"
    )
    every: Count = Field(
        default=25, description="steps between snapshots; the first step and the last have one as well"
    )

    def unused_keys(self) -> list[tuple[str, str]]:
        """Changed keys that have no effect, each with the setting that makes it so."""
        return [("every", "inspect.prompt null")] if self._idle("every", self.prompt is not None) else []
