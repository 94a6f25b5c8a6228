"""The arguments of `gpt compare`, as a class that checks them. Needs no torch."""

from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from gpt_cli.checkpoints.header import Header
from gpt_cli.checkpoints.run_paths import named_run
from gpt_cli.checkpoints.select import find_header
from gpt_cli.checkpoints.training_text import config_with_text, trusted_config
from gpt_cli.common.host import Host
from gpt_cli.config import DataConfig
from gpt_cli.config.field_types import Whole
from gpt_cli.config.request import EMPTY, NONE, Device, Flag, MaybePath, NamedPaths, Request, Threads
from gpt_cli.errors import GptError, UsageError, collecting, together
from gpt_cli.tools.interpret.request import MaxTokens, require_report


class ToCompare(NamedTuple):
    """The inputs of `gpt compare`: paths and headers of two models, and the first model's settings for reading text."""

    paths: tuple[Path, Path]
    headers: tuple[Header, Header]
    text: DataConfig  # without --data, it also names the training text of the first model
    one_tokenizer: bool  # whether both models cut text into the same tokens


class CompareRequest(Request):
    """Compare two models on the same text: runs, or two checkpoints of one run.

    It reports the loss of each with the error of the difference, the passages where their predictions differ most, and
    how much each head and each part of the weights differs. It compares models with different tokenizers by bits per
    byte.
    """

    runs: Annotated[NamedPaths, Flag("RUN", offers="runs", position=True)] = Field(
        kw_only=False,
        description="Two runs, by their paths or by their names under runs/, or checkpoint files, such as those of two "
        "steps of a run.",
    )
    data: Annotated[NamedPaths, Flag("SOURCE", offers="texts")] = Field(
        default=EMPTY,
        description="The text that both models read. Repeatable. Default: the validation text of the first run.",
    )
    max_tokens: MaxTokens = None
    passages: Annotated[int, Field(ge=0, le=1000), Whole] = Field(
        default=5, description="How many passages to show where the predictions differ most. Default: 5."
    )
    out: Annotated[MaybePath, Flag("FILE")] = Field(
        default=NONE,
        description="A .json or .csv file, or a picture (.png, .svg, .pdf). Default: tables in the terminal.",
    )
    device: Device = None
    threads: Threads = None

    def find(self, host: Host) -> ToCompare:
        """Return the models to compare; raises UsageError unless there are two, CheckpointError for a missing model."""
        if len(self.runs) != 2:
            sentence = f"gpt compare takes two runs, not {len(self.runs)}"
            hint = "gpt compare runs/a runs/b, or two files of a folder checkpoints/"
            raise UsageError("‹runs›", sentence, hint=hint)
        if self.out is not None:
            require_report(self.out, "gpt report RUN RUN --out page.html")
        headers, wrong = list[Header](), list[GptError]()
        paths = [named_run(path) for path in self.runs]
        for path in paths:
            with collecting(wrong):
                headers.append(find_header(path, None, host))
        if wrong:
            raise together(wrong)
        first, second = headers
        text = (trusted_config(first) if self.data else config_with_text(first)).data
        one_tokenizer = first.metadata["tokenizer"] == second.metadata["tokenizer"]
        return ToCompare((paths[0], paths[1]), (first, second), text, one_tokenizer)
