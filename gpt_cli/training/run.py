"""A training with its files: the state, the run directory, and the validation text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpt_cli.checkpoints.checkpoint import Checkpoint, read_checkpoint
from gpt_cli.checkpoints.header import Progress
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.common.files import move
from gpt_cli.config import Config
from gpt_cli.distributed.collectives import Ranks
from gpt_cli.errors import CheckpointError, EnvironmentFailure, shown
from gpt_cli.model import GPT
from gpt_cli.text.sft_examples import Examples
from gpt_cli.text.token_files import Ids, validation_windows
from gpt_cli.text.tokenizers import Tokenizer
from gpt_cli.training.resume import is_best_of_run
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import read_outcomes


@dataclass
class Run:
    """A training: state, run directory, tokenizer, validation ids; `saved` is the progress in its newest checkpoint."""

    state: TrainingState
    directory: RunDirectory
    tokenizer: Tokenizer
    validation_ids: Ids | Examples
    saved: Progress | None = None

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
        """Prepare the run directory: empty it for a new run; for a resumed run, remove files of later steps.

        A run that starts from another model saves that model's weights at once. Otherwise a run that stopped before its
        first checkpoint would resume with random weights.
        """
        after = None if self.saved is None else self.saved.observed_step

        def make_ready() -> None:
            if after is not None and self.directory.best.exists() and not self._best_is_of_run():
                move(self.directory.best, self.directory.foreign_best)
            self.directory.open_for(self.config, after)

        self.ranks.on_rank_zero(make_ready)
        if self.progress.began_from is not None and self.saved is None:
            self.save()

    def windows(self, num_tokens: int) -> list[tuple[int, int]]:
        """Return evenly spaced windows (start, end) of the validation text, with about `num_tokens` tokens in total.

        For conversations, each window is an example.
        """
        if isinstance(self.validation_ids, Examples):
            return self.validation_ids.windows(num_tokens)
        return validation_windows(len(self.validation_ids), self.config.model.context_length, num_tokens)

    @property
    def closing_windows(self) -> list[tuple[int, int]]:
        """The windows (start, end) of the validation text that the closing evaluation measures."""
        return self.windows(self.config.data.validation_tokens)

    def checkpoint(self, *, with_optimizer: bool) -> Checkpoint:
        """Return a checkpoint of the current state; all ranks call this, and the first rank's result is complete."""
        optimizer_state = self.state.optimizer.state_dict() if with_optimizer else {}
        return Checkpoint(self.config, self.tokenizer, self.progress, self.state.model.state_dict(), optimizer_state)

    def save(self) -> Path:
        """Save a checkpoint to resume from, and return its path; raise Diverged if a loss or gradient is not finite."""
        read_outcomes(self.state)
        checkpoint = self.checkpoint(with_optimizer=True)
        self.ranks.on_rank_zero(lambda: self.directory.save(checkpoint, self.config.train.keep_checkpoints))
        self.saved = self.progress
        return self.directory.step_file(self.progress.step)

    def best_model(self) -> tuple[GPT, int]:
        """Return the model with the lowest validation loss and its step, or the current model if no best was saved."""
        if not self.ranks.all_reduce_max(self.directory.best.exists() and self._best_is_of_run())[0]:
            return self.state.model, self.progress.step
        best = read_checkpoint(self.directory.best)
        if self.ranks.any_differ(best.progress.step):
            sentence = "the processes read different versions of it, so the filesystem shows some of them an old one"
            raise EnvironmentFailure(shown(self.directory.best), sentence)
        return best.build_model().to(self.state.device), best.progress.step

    def _best_is_of_run(self) -> bool:
        """Return whether best.safetensors belongs to this run; True if the file is damaged: its next reader says so."""
        try:
            return is_best_of_run(read_checkpoint(self.directory.best), self.config, self.progress)
        except CheckpointError:
            return True
