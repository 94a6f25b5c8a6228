"""How far a training is, as its checkpoints say it. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter

from gpt_cli.checkpoints.strict_json import strict_json
from gpt_cli.limits import FIGURE, SECONDS, STEPS, TRAINING_TOKENS

Step = Annotated[int, Field(ge=0, le=STEPS)]
Seconds = Annotated[float, Field(ge=0, le=SECONDS)]
Figure = Annotated[float, Field(ge=-FIGURE, le=FIGURE)]


@dataclass(frozen=True)
class Progress:
    """How far a training is: all of its state that does not follow from seed and step."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    step: Step
    observed_step: Step  # the last step whose evaluation, log line and sample are done: `step` or the one before
    loss: Figure | None  # of the last step, in nats per token; None before the first
    gradient_norm: Figure | None
    seconds: Seconds  # of training steps
    best_loss: Figure | None  # nats per token on the evaluation's windows
    evaluations_without_best: Step
    num_training_tokens: Annotated[int, Field(ge=0, le=TRAINING_TOKENS)]  # of the corpus
    data_digest: str  # of training and validation ids
    environment: Mapping[str, str]  # what bit-exactness depends on: torch, processor, threads, ...
    learning_rate: Figure | None = None  # of the last step
    elapsed: Seconds = 0.0  # evaluations, samples and saves included
    evaluated_step: Step = 0  # the last step that was evaluated
    smoothed_loss: Figure | None = None  # the mean of the losses so far that `gpt train` shows
    began_from: str | None = None  # the name of the model whose weights step 0 had; None for random ones

    @classmethod
    def at_the_start(
        cls,
        num_training_tokens: int,
        data_digest: str,
        environment: Mapping[str, str],
        began_from: str | None = None,
    ) -> Progress:
        """Before the first step."""
        return cls(
            step=0,
            observed_step=0,
            loss=None,
            gradient_norm=None,
            seconds=0.0,
            best_loss=None,
            evaluations_without_best=0,
            num_training_tokens=num_training_tokens,
            data_digest=data_digest,
            environment=environment,
            began_from=began_from,
        )

    @property
    def observed(self) -> bool:
        """Whether the last step's evaluation, log line and sample are done."""
        return self.observed_step == self.step


def read_progress(text: str) -> Progress:
    """The progress that the metadata of a checkpoint contain as JSON; raises ValueError and RecursionError."""
    strict_json(text)
    return _reader().validate_json(text, strict=True)


@cache
def _reader() -> TypeAdapter[Progress]:
    # to make one evaluates our annotations, which takes longer than reading many files
    return TypeAdapter(Progress)
