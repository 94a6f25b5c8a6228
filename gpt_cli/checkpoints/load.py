"""Load a model from the checkpoint that the user names, or from the default one."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.checkpoints.header import Header
from gpt_cli.checkpoints.select import first_usable
from gpt_cli.common.host import Host
from gpt_cli.common.machine.memory import reuse_memory
from gpt_cli.config import Config
from gpt_cli.model import GPT
from gpt_cli.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Loaded:
    """A trained model with its tokenizer, config and header."""

    model: GPT
    tokenizer: Tokenizer
    config: Config
    step: int
    path: Path
    header: Header = field(repr=False)


def load(
    path: str | Path | None = None,
    checkpoint: str | None = None,
    warn: Callable[[str], object] | None = None,
    expected: Header | None = None,
    *,
    as_stored: bool = False,
) -> Loaded:
    """Load a model to the CPU from the first undamaged file of `select.find_checkpoints(path, checkpoint)`.

    `warn` receives a line for each damaged file. If `warn` is None or no file is left, raises CheckpointError. A
    file also counts as damaged if its model differs from that of `expected`, a header that the caller read earlier.
    Weights become float32, unless `as_stored`. Raises the errors of `find_checkpoints`.
    """

    def use(file: Path) -> Loaded:
        stored = read_checkpoint(file, expected, as_stored=as_stored)
        assert stored.header is not None, "every file has one"
        return Loaded(stored.build_model(), stored.tokenizer, stored.config, stored.progress.step, file, stored.header)

    return first_usable(path, checkpoint, use, warn, expected)


def load_for(
    host: Host, path: Path | None, checkpoint: str | None, expected: Header | None = None, *, as_stored: bool = False
) -> Loaded:
    """Call `load` with `host.warn`, or copy the model `host.loaded`, if set, to the CPU, in float32, without hooks."""
    if host.loaded is None:
        reuse_memory()
        return load(path, checkpoint, host.warn, expected, as_stored=as_stored)
    model = copy.deepcopy(host.loaded.model).cpu().float().eval()
    for module in model.modules():
        for kind in ("forward", "forward_pre", "backward", "backward_pre"):
            getattr(module, f"_{kind}_hooks").clear()
    return replace(host.loaded, model=model)
