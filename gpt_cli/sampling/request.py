"""What the commands of this package are asked. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator, Field

from gpt_cli.callbacks import Host
from gpt_cli.checkpoints.find import find_header
from gpt_cli.checkpoints.header import Header
from gpt_cli.checkpoints.own_text import NAME_ONE, own_config, trusted_config
from gpt_cli.checkpoints.run_files import named_run
from gpt_cli.checkpoints.verified import ReadingAhead, ReadVerified
from gpt_cli.config import DataConfig
from gpt_cli.config.fields import Misfit, Switch, Whole
from gpt_cli.config.request import (
    MAX_SEED,
    Device,
    Dtype,
    Flag,
    NamedPath,
    NewTokens,
    Quantize,
    Request,
    Seed,
    Several,
    Threads,
    WhichCheckpoint,
    Without,
)
from gpt_cli.errors import UsageError
from gpt_cli.sampling.removing import parse_heads


class ToEvaluate(NamedTuple):
    """The runs of an evaluation, as far as the headers of their checkpoints tell."""

    runs: list[Path | None]  # None: the newest
    texts: list[DataConfig]  # of each, how it reads text, and without `data` or with `memorised` what it was trained on
    without: tuple[tuple[int, int], ...]  # heads that are switched off: layer, head
    longest_window: int  # the longest context of all runs
    one_tokenizer: bool  # whether all runs cut text into the same tokens
    headers: list[Header]  # of the checkpoints
    read: ReadVerified  # has begun to read the first


class EvaluateRequest(Request):
    """Measure how well trained models predict a text: nats per token, perplexity, bits per byte.

    Without --data, each run is measured on its own validation text, and gpt eval warns where that text is not the
    one that the run was trained with.
    """

    data: Annotated[Several[NamedPath], Flag("SOURCE", offers="texts")] = Field(
        default=(), description="The text to measure. Repeatable. Default: the validation text of the run."
    )
    run: Annotated[Several[Annotated[Path, BeforeValidator(named_run)]], Flag("PATH", offers="runs")] = Field(
        default=(),
        description="A run, by its path or by its name under runs/, or a checkpoint. Repeatable. "
        "Default: the newest run under runs/.",
    )
    checkpoint: WhichCheckpoint = None
    stride: Annotated[int, Field(ge=1), Whole] | None = Field(
        default=None,
        description="Tokens by which the window advances; fewer are slower and give more context. Default: the window.",
    )
    per_token: Switch = Field(default=False, description="Show the surprisal of each token.")
    memorised: Switch = Field(
        default=False, description="Also sample, and measure how much the model copies its training text."
    )
    num_samples: Annotated[int, Field(ge=1, le=10_000), Whole] = Field(
        default=10, description="Samples of --memorised. Default: 10."
    )
    max_new_tokens: NewTokens = Field(default=200, description="Tokens in each sample of --memorised. Default: 200.")
    seed: Seed = Field(default=0, description=f"Seed of --memorised, from 0 to {MAX_SEED}. Default: 0.")
    without: Without = ()
    device: Device = None
    dtype: Dtype = "float32"
    quantize: Quantize = None
    threads: Threads = None

    def misfits(self) -> Iterator[Misfit]:
        """One run per token, and nothing about samples where there are none."""
        of_samples = [name for name in ("num_samples", "max_new_tokens", "seed") if name in self.model_fields_set]
        if self.per_token and len(self.run) > 1:
            yield Misfit(("per_token",), f"it shows one run, and {{run}} names {len(self.run)}; name one")
        elif of_samples and not self.memorised:
            wrong = "it changes the samples of {memorised}, so it needs {memorised}"
            yield Misfit((of_samples[0],), wrong, "{memorised}")

    def find(self, host: Host) -> ToEvaluate:
        """The runs; raises UsageError, DataError or CheckpointError for what their headers rule out."""
        runs: list[Path | None] = [*self.run] or [None]
        headers = [find_header(path, self.checkpoint, host.warn) for path in runs]
        off: tuple[tuple[int, int], ...] = ()
        for header in headers:
            length = header.config.model.context_length
            if self.stride and self.stride > length:
                raise UsageError("--stride", f"{header.path} sees {length} tokens; use 1 to {length}")
            if self.without:
                off = parse_heads(",".join(self.without), header.config.model, str(header.path))
        advice = NAME_ONE
        if self.memorised:
            advice = "leave out --memorised, which reads the text that the model was trained on"
            advice += "" if self.data else f", and name a text with {NAME_ONE}"
        trusts = bool(self.data) and not self.memorised
        configs = [trusted_config(header) if trusts else own_config(header, advice) for header in headers]
        return ToEvaluate(
            runs=runs,
            texts=[config.data for config in configs],
            without=off,
            longest_window=max(header.config.model.context_length for header in headers),
            one_tokenizer=len({header.metadata["tokenizer"] for header in headers}) == 1,
            headers=headers,
            read=ReadingAhead(headers[0].path).read,
        )
