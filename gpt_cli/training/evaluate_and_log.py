"""What is due after a step besides saving: evaluation, a line of metrics, a sample, a snapshot.

Everything is computed first and written afterwards, so that a stop in between leaves nothing half done.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from gpt_cli.attention_maps.snapshots import snapshot_bytes
from gpt_cli.checkpoints.checkpoint import save_checkpoint
from gpt_cli.common.files import append
from gpt_cli.common.host import Host, both
from gpt_cli.common.machine.devices import product_dtype
from gpt_cli.errors import CheckpointError
from gpt_cli.evaluation.nll import Score
from gpt_cli.model import GPT
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.generate import continuations
from gpt_cli.sampling.next_token import SamplingParameters
from gpt_cli.text.sft_examples import Examples
from gpt_cli.training.attention_snapshots import take_snapshot
from gpt_cli.training.events import Evaluated, Report, Sampled, Stepped
from gpt_cli.training.interrupts import Watch
from gpt_cli.training.intervals import due, snapshot_due
from gpt_cli.training.run import Run
from gpt_cli.training.sample_prompts import sample_prompt
from gpt_cli.training.step import Diverged, read_outcomes
from gpt_cli.training.validation import validation_score

SAMPLE_NEW_TOKENS = 64


@dataclass
class Pace:
    """How far the training was at the last line of metrics, or where this part of the run began."""

    step: int
    seconds: float

    def tokens_per_second(self, run: Run) -> float:
        """The mean speed since then."""
        steps, seconds = run.progress.step - self.step, run.progress.seconds - self.seconds
        # a run that continues at a step whose evaluation was cut short has trained nothing yet
        if not steps:
            steps, seconds = run.progress.step, run.progress.seconds
        return steps * run.config.tokens_per_step / seconds


def observe(run: Run, pace: Pace, watch: Watch, host: Host) -> Iterator[Report]:
    """Do what is due after the run's last step; reports what was done, after all of it is written.

    `watch` is called between batches and tokens; when it raises, nothing has changed. `host.counting` opens a bar.
    Raises Diverged when the validation loss, or the outcome of an earlier step, is not finite.
    """
    settings, step = run.config.train, run.progress.step
    found: Score | None = None
    sampled: list[Sampled] = []
    snapshots: list[bytes] = []
    at_first = due(run.progress, settings)
    if at_first.log or at_first.sample or snapshot_due(run.progress, run.config):
        read_outcomes(run.state)
    progress = replace(run.progress, observed_step=step)
    if due(progress, settings).evaluate:  # asked again: the wait may have taken the rest of max_time
        found = _evaluate(run, watch, host)
        best = progress.best_loss is None or found.loss < progress.best_loss
        progress = replace(
            progress,
            best_loss=found.loss if best else progress.best_loss,
            evaluations_without_best=0 if best else progress.evaluations_without_best + 1,
            evaluated_step=step,
            elapsed=run.state.elapsed(),  # the evaluation may have taken the rest of max_time
        )
    now = due(progress, settings)
    keeps_snapshot = snapshot_due(progress, run.config)
    if now.sample or keeps_snapshot:
        whole = run.state.layout.whole_model()

        def look() -> None:
            assert whole is not None, "the first rank has it"
            if now.sample:
                sampled.append(_sample(run, whole, watch.alone, host))
            if keeps_snapshot:
                with host.working("keeping a snapshot"):
                    snapshots.append(snapshot_bytes(take_snapshot(run, whole)))

        run.ranks.on_rank_zero(look)

    run.state.progress = progress
    stepped = _stepped(run, pace, now.log)
    is_best = found is not None and progress.evaluations_without_best == 0
    best = run.checkpoint(with_optimizer=False) if is_best else None

    def write() -> None:
        if now.log:
            append(run.directory.metrics, _metrics_line(run, stepped, found))
        for sample in sampled:
            run.directory.add_sample(step, sample.prompt + sample.text)
        for snapshot in snapshots:
            run.directory.add_snapshot(step, snapshot)
        if best is not None:
            with host.working("saving the best weights"):
                save_checkpoint(run.directory.best, best)

    run.ranks.on_rank_zero(write)
    if now.log:
        pace.step, pace.seconds = step, progress.seconds
    if found:
        yield Evaluated(step, found, is_best)
    yield stepped
    yield from sampled


def _stepped(run: Run, pace: Pace, logged: bool) -> Stepped:
    progress = run.progress
    if run.state.unread:
        return Stepped(progress.step, None, None, None, None, logged, progress.elapsed)
    rate = pace.tokens_per_second(run)
    loss, learning_rate, gradient_norm = progress.loss, progress.learning_rate, progress.gradient_norm
    mean = loss if progress.smoothed_loss is None else progress.smoothed_loss
    return Stepped(progress.step, loss, learning_rate, gradient_norm, rate, logged, progress.elapsed, mean)


def _evaluate(run: Run, watch: Watch, host: Host) -> Score:
    """The validation loss on evenly spaced windows."""
    settings, windows = run.config.train, run.windows(run.config.train.eval_tokens)
    with host.counting("evaluating", sum(end - start for start, end in windows), "tokens") as count:
        count(0)
        found = validation_score(
            run.state.model,
            run.tokenizer,
            run.validation_ids,
            windows,
            batch_size=settings.batch_size,
            dtype=settings.dtype,
            count=both(count, watch),
            ranks=run.ranks,
        )
    if not math.isfinite(found.loss):
        raise Diverged(run.progress.step, found.loss)
    return found


def _sample(run: Run, model: GPT, watch: Callable[[], object], host: Host) -> Sampled:
    """Continue the prompt of the run's samples."""
    tokenizer, settings = run.tokenizer, run.config.train
    validation = run.validation_ids
    prompt = sample_prompt(run.config, tokenizer, validation)
    ends = isinstance(validation, Examples) and validation.template.end_id(tokenizer)
    try:
        with host.counting("sampling", SAMPLE_NEW_TOKENS, "tokens") as count:
            count(0)
            count_and_watch = both(count, watch)
            (tokens,) = continuations(
                Decoder(model, product_dtype(settings.dtype)),
                [prompt],
                SamplingParameters(),
                max_new_tokens=SAMPLE_NEW_TOKENS,
                seed=settings.seed,
                end_of_text=ends or tokenizer.end_of_text,
                watch=lambda: count_and_watch(1),
            )
    except CheckpointError as error:  # its hint is for commands that load a checkpoint
        raise Diverged(run.progress.step, None) from error
    return Sampled(run.progress.step, tokenizer.decode(prompt), tokenizer.decode(tokens, begins=False))


def _metrics_line(run: Run, stepped: Stepped, found: Score | None) -> str:
    assert stepped.tokens_per_second is not None
    line: dict[str, Any] = {
        "step": stepped.step,
        "tokens": stepped.step * run.config.tokens_per_step,
        "seconds": round(run.progress.seconds, 3),
        "loss": stepped.loss,
        "smoothed_loss": stepped.smoothed_loss,
        "learning_rate": stepped.learning_rate,
        "gradient_norm": stepped.gradient_norm,
        "tokens_per_second": round(stepped.tokens_per_second, 1),
    }
    if found:
        line["validation_loss"] = found.loss
        line["validation_tokens"] = found.num_tokens
        line["bits_per_byte"] = found.bits_per_byte
    return json.dumps(line) + "\n"
