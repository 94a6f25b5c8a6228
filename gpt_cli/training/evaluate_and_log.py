"""Evaluate, log, sample and take attention snapshots after a step; compute all results before writing the first."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from gpt_cli.attention_maps.head_scores import take_snapshot
from gpt_cli.attention_maps.snapshots import Snapshot, snapshot_bytes
from gpt_cli.common.files import append
from gpt_cli.common.host import Host, both
from gpt_cli.common.machine.devices import product_dtype
from gpt_cli.errors import CheckpointError
from gpt_cli.evaluation.nll import Score
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.generate import continuations
from gpt_cli.sampling.next_token import SamplingParameters
from gpt_cli.text.sft_examples import Examples
from gpt_cli.training.events import Evaluated, Sampled, Stepped, TrainingEvent
from gpt_cli.training.interrupts import Watch
from gpt_cli.training.intervals import step_actions
from gpt_cli.training.prompts import sample_prompt, watched_ids
from gpt_cli.training.run import Run
from gpt_cli.training.step import Diverged, read_outcomes
from gpt_cli.training.validation import validation_score

SAMPLE_NEW_TOKENS = 64
# sequences of random tokens, fewer than a report has: most of a snapshot's time goes there
_NUM_REPEATS = 2


def observe(run: Run, watch: Watch, host: Host) -> Iterator[TrainingEvent]:
    """Evaluate, log, sample and record attention if due after the current step; write all results, then yield events.

    Calls `watch` after each evaluated batch and sampled token; if `watch` raises, no file has changed. `host.counting`
    opens a progress bar. Raises Diverged if a loss or gradient so far, a logit or an attention weight is not finite.
    """
    step = run.progress.step
    score: Score | None = None
    sampled: list[Sampled] = []
    snapshots: list[bytes] = []
    at_first = step_actions(run.progress, run.config)
    if at_first.log or at_first.sample or at_first.snapshot:
        read_outcomes(run.state)
    progress = replace(run.progress, observed_step=step)
    if step_actions(progress, run.config).evaluate:  # decided anew: the wait may have taken the rest of max_time
        score = _evaluate(run, watch, host)
        best = progress.best_loss is None or score.loss < progress.best_loss
        progress = replace(
            progress,
            best_loss=score.loss if best else progress.best_loss,
            evaluations_without_best=0 if best else progress.evaluations_without_best + 1,
            evaluated_step=step,
            elapsed=run.state.elapsed(),  # the evaluation may have taken the rest of max_time
        )
    now = step_actions(progress, run.config)
    if now.sample or now.snapshot:

        def look() -> None:
            if now.sample:
                sampled.append(_sample(run, watch.alone, host))
            if now.snapshot:
                with host.working("keeping a snapshot"):
                    snapshots.append(snapshot_bytes(_take_snapshot(run)))

        run.ranks.on_rank_zero(look)

    run.state.progress = progress
    stepped = _stepped(run, now.log)
    is_best = score is not None and progress.evaluations_without_best == 0

    def write() -> None:
        if now.log:
            append(run.directory.metrics, _metrics_line(run, stepped, score))
        for sample in sampled:
            run.directory.add_sample(step, sample.prompt + sample.text)
        for snapshot in snapshots:
            run.directory.add_snapshot(step, snapshot)

    run.ranks.on_rank_zero(write)
    if is_best:
        with host.working("saving the best weights"):
            run.save_best()
    if now.log:
        run.logged = progress
    if score:
        yield Evaluated(step, score, is_best, stepped.model)
    yield stepped
    yield from sampled


def _stepped(run: Run, logged: bool) -> Stepped:
    """Return the event of the last step, with the tokens per second since `run.logged`."""
    progress, model = run.progress, len(run.progress.teachers) + 1
    if run.state.unread:
        return Stepped(progress.step, None, None, None, None, logged, progress.elapsed, model=model)
    steps, seconds = progress.step - run.logged.step, progress.seconds - run.logged.seconds
    # a run that continues at a step whose evaluation was cut short: no step since then, so the mean of the whole run
    if not steps:
        steps, seconds = progress.step, progress.seconds
    rate = steps * run.config.tokens_per_step / seconds
    loss, learning_rate, gradient_norm = progress.loss, progress.learning_rate, progress.gradient_norm
    mean = loss if progress.smoothed_loss is None else progress.smoothed_loss
    return Stepped(progress.step, loss, learning_rate, gradient_norm, rate, logged, progress.elapsed, mean, model)


def _evaluate(run: Run, watch: Watch, host: Host) -> Score:
    """Measure the validation loss on evenly spaced windows; raise Diverged if it is not finite."""
    settings, windows = run.config.train, run.windows(run.config.train.eval_tokens)
    with host.started("evaluating", sum(end - start for start, end in windows), "tokens") as count:
        score = validation_score(
            run.state.evaluated_model,
            run.tokenizer,
            run.validation_ids,
            windows,
            batch_size=settings.sequences_at_once,
            dtype=settings.dtype,
            count=both(count, watch),
            byte_scale=run.byte_scale,
            ranks=run.ranks,
        )
    if not math.isfinite(score.loss):
        raise Diverged(run.progress.step, f"the validation loss is {score.loss:g}")
    return score


def _sample(run: Run, watch: Callable[[], object], host: Host) -> Sampled:
    """Continue the run's sample prompt; call `watch` after each token; raise Diverged if logits are not finite."""
    tokenizer, settings, validation = run.tokenizer, run.config.train, run.validation_ids
    prompt = sample_prompt(run.config, tokenizer, validation)
    end = validation.template.end_id(tokenizer) if isinstance(validation, Examples) else tokenizer.end_of_text
    try:
        with host.started("sampling", SAMPLE_NEW_TOKENS, "tokens") as count:
            (tokens,) = continuations(
                Decoder(run.state.evaluated_model, product_dtype(settings.dtype)),
                [prompt],
                SamplingParameters(),
                max_new_tokens=SAMPLE_NEW_TOKENS,
                seed=settings.seed,
                end_of_text=end,
                count=both(count, watch),
            )
    except CheckpointError as error:  # its hint is for commands that load a checkpoint
        raise Diverged(run.progress.step, "the logits of a sample are not finite") from error
    return Sampled(run.progress.step, tokenizer.decode(prompt), tokenizer.decode(tokens, begins=False))


def _take_snapshot(run: Run) -> Snapshot:
    """Compute a snapshot of the attention on the text of `inspect.prompt`; raise Diverged if it is not finite."""
    progress, prompt = run.progress, run.config.inspect.prompt
    assert prompt is not None
    assert progress.loss is not None, "a step was taken, and its outcome was read"
    try:
        return take_snapshot(
            run.state.evaluated_model,
            run.tokenizer,
            watched_ids(run.config, run.tokenizer),
            prompt=prompt,
            step=progress.step,
            loss=progress.loss,
            repeats=_NUM_REPEATS,
        )
    except CheckpointError as error:  # its hint is for commands that load a checkpoint
        raise Diverged(progress.step, "the attention weights of inspect.prompt are not finite") from error


def _metrics_line(run: Run, stepped: Stepped, score: Score | None) -> str:
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
    if run.config.train.teacher_share is not None:
        line["model"] = stepped.model
    if score:
        line["validation_loss"] = score.loss
        line["validation_tokens"] = score.num_tokens
        line["bits_per_byte"] = score.bits_per_byte
    return json.dumps(line) + "\n"
