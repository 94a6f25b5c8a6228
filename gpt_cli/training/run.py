"""A training with its files: the state, the directory that keeps it, and the text that it is measured on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpt_cli.checkpoints.checkpoint import Checkpoint, Progress, read_checkpoint, save_checkpoint
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.config import Config
from gpt_cli.model import GPT
from gpt_cli.text.token_files import Ids
from gpt_cli.text.tokenizer import Tokenizer
from gpt_cli.text.tokens import validation_windows
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import read_outcomes


@dataclass
class Run:
    """A training state and all that surrounds it; `saved` is the progress in the newest checkpoint of this run."""

    state: TrainingState
    directory: RunDirectory
    tokenizer: Tokenizer
    validation_ids: Ids
    saved: Progress | None = None

    @property
    def config(self) -> Config:
        return self.state.config

    @property
    def progress(self) -> Progress:
        return self.state.progress

    def open_directory(self) -> None:
        """Make the directory ready: empty for a new run, without files of later steps for a continued one."""
        self.directory.open_for(self.config, after=None if self.saved is None else self.saved.observed_step)

    def windows(self, num_tokens: int) -> list[tuple[int, int]]:
        """Evenly spaced windows (start, end) of the validation text, of at most so many tokens together."""
        return validation_windows(len(self.validation_ids), self.config.model.context_length, num_tokens)

    @property
    def closing_windows(self) -> list[tuple[int, int]]:
        """The windows of the closing evaluation."""
        return self.windows(self.config.data.validation_tokens)

    def checkpoint(self, *, with_moments: bool) -> Checkpoint:
        """The present state, ready to be saved."""
        stored = self.state.optimizer.moments() if with_moments else {}
        return Checkpoint(self.config, self.tokenizer, self.progress, self.state.model.state_dict(), stored)

    def save(self) -> Path:
        """Save all that a run needs to continue; raises Diverged instead when a step's outcome is not finite."""
        read_outcomes(self.state)
        self.directory.save(self.checkpoint(with_moments=True), self.config.train.keep_checkpoints)
        self.saved = self.progress
        return self.directory.step_file(self.progress.step)

    def save_best(self) -> None:
        """Save the weights alone as the best so far."""
        save_checkpoint(self.directory.best, self.checkpoint(with_moments=False))

    def best_model(self) -> tuple[GPT, int]:
        """The weights of the lowest validation loss and their step; without an evaluation the present ones."""
        if not self.directory.best.exists():
            return self.state.model, self.progress.step
        best = read_checkpoint(self.directory.best)
        return best.build_model().to(self.state.device), best.progress.step
