"""The text that a model was trained on, as far as gpt may read it again. Needs no torch.

The config.yaml of a run names it, as any config does. A model by itself names one too, but a stranger may have made it:
of the texts that it names, gpt reads those of the catalogue, where that needs no network.
"""

from __future__ import annotations

import contextlib

from gpt_cli.checkpoints.header import Header, read_header
from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.config import Config
from gpt_cli.config.reading import read_config
from gpt_cli.config.strangers import of_a_stranger
from gpt_cli.errors import DataError, UsageError, shown
from gpt_cli.text.catalogue import ENTRIES
from gpt_cli.text.sources import STDIN, names_of

NAME_ONE = "--data FILE"


def is_imported(run: RunFiles) -> bool:
    """Whether the only weights are those of step 0: a training saves its first best after some steps."""
    return not run.steps() and run.best.exists() and read_header(run.best).step == 0


def own_config(header: Header, advice: str = NAME_ONE, *, stdin: bool = False) -> Config:
    """The config of a model, which names the text that it was trained on.

    Raises UsageError, with `advice`, where gpt may read none that it names, and DataError for one that came from
    stdin, unless `stdin` may give it again.
    """
    run = _run_of(header)
    if run is None:
        return _of_a_checkpoint(header, advice)
    where = shown(run.path)
    if is_imported(run):
        raise UsageError(where, "this run was imported, so it has no text of its own", hint=advice)
    if not run.config.is_file():
        raise UsageError(where, "its config.yaml is missing, which names its text", hint=advice)
    try:
        config = read_config(str(run.config))
    except UsageError as error:
        error.hint = error.hint or advice
        raise
    if STDIN in _sources(config) and not stdin:
        raise DataError(where, "this run was trained on text from stdin, which it does not keep", hint=advice)
    return config


def trusted_config(header: Header) -> Config:
    """The config of a model for a training on another text: that of its run, or what a stranger may ask for."""
    run = _run_of(header)
    if run is not None and run.config.is_file() and not is_imported(run):
        with contextlib.suppress(UsageError):
            return read_config(str(run.config))
    return of_a_stranger(header.config)


def no_text(where: str, advice: str = NAME_ONE) -> UsageError:
    """The error where only a model names a text."""
    return UsageError(where, "only the model itself names its text, and gpt does not read such a text", hint=advice)


def _run_of(header: Header) -> RunFiles | None:
    """The run that a checkpoint belongs to, also by a link; None for a file or a model directory from elsewhere."""
    for path in (header.path, header.path.resolve()):
        run = RunFiles(path.parent.parent)
        if path == run.best or (path.parent == run.checkpoints and run.is_step_file(path)):
            return None if (run.path / "config.json").exists() else run
    return None


def _of_a_checkpoint(header: Header, advice: str) -> Config:
    """As `own_config`, of a checkpoint by itself."""
    sources = _sources(header.config)
    if header.step == 0 or not all(source in ENTRIES for source in sources):
        raise no_text(header.where, advice)
    for source in sources:
        if not ENTRIES[source].is_here():
            raise no_text(header.where, f"gpt data fetch {source}, or {advice}")
    texts = {"source": header.config.data.source, "validation_source": header.config.data.validation_source}
    return of_a_stranger(header.config).changed(data=texts)


def _sources(config: Config) -> list[str]:
    return [*names_of(config.data.source), *names_of(config.data.validation_source)]
