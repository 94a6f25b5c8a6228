"""A training with its files: the state, the run directory, and the validation text."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Thread

from gpt_cli.checkpoints.checkpoint import Checkpoint, on_cpu, read_checkpoint, save_checkpoint
from gpt_cli.checkpoints.header import Progress
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.common.files import move
from gpt_cli.config import Config
from gpt_cli.distributed.collectives import Ranks
from gpt_cli.errors import EnvironmentFailure, shown
from gpt_cli.model import GPT
from gpt_cli.text.sft_examples import Examples
from gpt_cli.text.token_files import Ids, validation_windows
from gpt_cli.text.tokenizers import Tokenizer
from gpt_cli.training.events import Saved
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import read_outcomes


class _Write(Thread):
    """A thread that writes a file; its owner calls `complete` once `join` has returned, if `error` is None.

    A future cannot replace this thread, because garbage collection may close a run inside the thread, where `join`
    raises an error, but a future would wait forever.
    """

    def __init__(self, write: Callable[[], object], complete: Callable[[], object]):
        super().__init__()
        self.write, self.complete = write, complete
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.write()
        except BaseException as error:
            self.error = error


@dataclass
class Run:
    """A training: state, run directory, tokenizer, validation ids; `saved` is the progress in its newest checkpoint.

    If a single process trains on an accelerator, a thread writes checkpoints during the next steps, one at a time.
    """

    state: TrainingState
    directory: RunDirectory
    tokenizer: Tokenizer
    validation_ids: Ids | Examples
    saved: Progress | None = None
    foreign_best: bool = False  # whether best.safetensors belongs to another run, so that `open_directory` renames it
    logged: Progress = field(init=False, repr=False)  # at the last line of metrics, or at program start
    byte_scale: float = 1  # bytes of the validation text for each byte of its tokens
    _events: list[Saved] = field(default_factory=list, repr=False)  # which the loop has not yielded yet
    _writing: _Write | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.logged = self.progress

    @property
    def config(self) -> Config:
        return self.state.config

    @property
    def progress(self) -> Progress:
        return self.state.progress

    @property
    def ranks(self) -> Ranks:
        return self.state.ranks

    def open_directory(self) -> None:
        """Prepare the run directory: for a new run, remove an old run; for a resumed run, remove files of later steps.

        A run that starts from another model saves that model's weights at once, before an early stop can lose them.
        """
        after = None if self.saved is None else self.saved.observed_step
        begins_from_another = self.progress.began_from is not None and self.saved is None

        def make_ready() -> None:
            if self.foreign_best:
                move(self.directory.best, self.directory.foreign_best)
            self.directory.open_for(None if begins_from_another else self.config, after)

        self.ranks.on_rank_zero(make_ready)
        if begins_from_another:
            self.save()  # which waits for the first checkpoint
            # a run with a config and no checkpoint would resume from random weights
            self.ranks.on_rank_zero(lambda: self.directory.write_config(self.config))

    def windows(self, num_tokens: int) -> list[tuple[int, int]]:
        """Return evenly spaced windows (start, end) or examples of validation text, of about `num_tokens` in all."""
        if isinstance(self.validation_ids, Examples):
            return self.validation_ids.windows(num_tokens)
        return validation_windows(len(self.validation_ids), self.config.model.context_length, num_tokens)

    @property
    def closing_windows(self) -> list[tuple[int, int]]:
        """The windows (start, end) of validation text for the closing evaluation, which measures the best weights."""
        return self.windows(self.config.data.validation_tokens)

    def checkpoint(self, *, with_optimizer: bool) -> Checkpoint:
        """Return a checkpoint of the current state, complete on the first rank only; all ranks must call this."""
        optimizer_state = self.state.optimizer.state_dict() if with_optimizer else {}
        weights = self.state.evaluated_model.state_dict()
        return Checkpoint(self.config, self.tokenizer, self.progress, weights, optimizer_state)

    def save(self, *, requested: bool | None = None) -> None:
        """Save a checkpoint to resume from; raise Diverged if a loss or gradient is not finite.

        Once the file is complete, `new_events` returns a Saved event, whose `requested` is true if a user asked for
        the checkpoint. If `requested` is None, there is no event.
        """
        read_outcomes(self.state)
        progress, keep = self.progress, self.config.train.keep_checkpoints

        def complete() -> None:
            self.saved = progress
            if requested is not None:
                self._events.append(Saved(progress.step, self.directory.step_file(progress.step), requested))

        is_first = self.saved is None
        self._write(lambda file: self.directory.save(file, keep), complete, with_optimizer=True)
        if is_first:  # or a run that is killed now would have metrics of later steps and no checkpoint
            self.finish_writing()

    def save_best(self) -> None:
        """Write the weights of `evaluated_model` to best.safetensors; all ranks must call this."""
        self._write(lambda file: save_checkpoint(self.directory.best, file), lambda: None, with_optimizer=False)

    def _write(
        self, write: Callable[[Checkpoint], object], complete: Callable[[], object], *, with_optimizer: bool
    ) -> None:
        """Pass a checkpoint to `write`, perhaps in a thread, then call `complete`; raise the previous write's error."""
        self.finish_writing()
        file = self.checkpoint(with_optimizer=with_optimizer)
        if self.state.reads_at_once or self.ranks.size > 1:
            self.ranks.on_rank_zero(lambda: write(file))
            complete()
            return
        copy = on_cpu(file)
        self._writing = _Write(lambda: write(copy), complete)

    def finish_writing(self) -> None:
        """Wait until the file that a thread is writing is complete; raise the thread's error, if any."""
        if self._writing is not None:
            self._writing.join()
            writing, self._writing = self._writing, None
            if writing.error is not None:
                raise writing.error
            writing.complete()

    def new_events(self) -> list[Saved]:
        """Return the events of checkpoints completed since the last call."""
        if self._writing is not None and not self._writing.is_alive():
            self.finish_writing()
        events, self._events = self._events, []
        return events

    def best_model(self) -> tuple[GPT, int]:
        """Return the model with the lowest validation loss and its step; the current model if no best one was saved."""
        progress = self.progress
        if progress.evaluated_step == progress.step and not progress.evaluations_without_best:
            return self.state.evaluated_model, progress.step  # without waiting for its file
        self.finish_writing()
        if not self.ranks.all_reduce_max(self.directory.best.exists())[0]:
            return self.state.evaluated_model, self.progress.step
        best = read_checkpoint(self.directory.best)
        if self.ranks.any_differ(best.progress.step):
            sentence = "the processes read different versions of it: the filesystem shows some of them an old version"
            raise EnvironmentFailure(shown(self.directory.best), sentence)
        return best.build_model().to(self.state.device), best.progress.step
