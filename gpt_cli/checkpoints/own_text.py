"""Which text a model was trained on, as far as it may be read again. Needs no torch.

The config.yaml of a run names it, as any config does. A checkpoint by itself names one too, but a stranger may have
made it: of the texts that it names, only those of the catalogue are read, and only where that needs no network.
"""

from __future__ import annotations

import shlex

from gpt_cli.checkpoints.header import Header, read_header
from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.config import Config, DataConfig
from gpt_cli.config.reading import read_config
from gpt_cli.errors import DataError, UsageError, shown
from gpt_cli.text.catalogue import ENTRIES
from gpt_cli.text.sources import STDIN, names_of

NAME_ONE = "--data FILE"


def is_imported(run: RunFiles) -> bool:
    """Whether the only weights are those of step 0: a training saves its first best after some steps."""
    return not run.steps() and run.best.exists() and read_header(run.best).step == 0


def config_of_run(header: Header) -> Config | None:
    """The config.yaml of the run that a checkpoint is in; None for one that is in none, or was imported.

    Raises UsageError for a config that is not valid.
    """
    path = header.path.absolute()
    run = RunFiles(path.parent.parent)
    if path.parent != run.checkpoints or not run.exists() or is_imported(run):
        return None
    return read_config(str(run.config))


def own_data(header: Header, advice: str = NAME_ONE) -> DataConfig:
    """The text that the model of a checkpoint was trained on.

    Raises UsageError where nothing that may be read names it, with `advice` for a hint, and DataError where it came
    from stdin.
    """
    run = config_of_run(header)
    data = header.config.data if run is None else run.data
    sources = [*names_of(data.source), *names_of(data.validation_source)]
    if run is not None and STDIN in sources:
        where = shown(header.path.parent.parent)
        raise DataError(where, "this run was trained on text from stdin, which it does not keep", hint=NAME_ONE)
    if run is None and (header.step == 0 or not all(source in ENTRIES for source in sources)):
        raise no_text(header.where, advice)
    if run is None and (far := [source for source in sources if not ENTRIES[source].is_here()]):
        raise no_text(header.where, f"gpt data fetch {shlex.quote(far[0])}")
    return data


def no_text(where: str, advice: str = NAME_ONE) -> UsageError:
    """The error for a model that comes from elsewhere, where the user names no text."""
    return UsageError(where, "gpt reads no text that only a checkpoint or a model directory names", hint=advice)
