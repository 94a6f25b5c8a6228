"""What a user asks to be trained: read and refused before torch is loaded or a file is touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.config import Config
from gpt_cli.config.reading import build_config, find_config, read_config, shipped_config
from gpt_cli.config.yaml_subset import Document, parse, read_text
from gpt_cli.errors import UsageError, shown
from gpt_cli.files import require_no_file
from gpt_cli.loggers.installed import require_installed
from gpt_cli.training.initial import Initial, asks_for, filled, require_fit, require_no_download


@dataclass(frozen=True)
class Request:
    """A config before anything is chosen for this machine, and the directory of its run."""

    config: Config
    directory: Path
    resume: bool = False
    overwrite: bool = False
    initial: Initial | None = None  # what a new run begins with, instead of random weights
    text_of_initial: bool = False  # whether only that names the text
    by_own_config: bool = False  # whether the config is that of the run, which must then exist
    shipped: Config | None = None  # the shipped config that it is made from


def read_request(
    config: str | Path | Config | None,
    out: str | Path | None = None,
    settings: Sequence[str] = (),
    flags: Mapping[str, tuple[str, Any]] | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    begin: Callable[[], Initial] | None = None,
) -> Request:
    """The request of a config (a file, a shipped name, a Config; None for the run's own) with settings over it.

    `flags` are keys with their flag as typed and its value. `begin` reads the model that a new run begins with, whose
    sizes and tokenizer the config may leave out; without a config, `Initial.settings` gives all. Raises UsageError for
    whatever does not fit together, CheckpointError where the model does not fit, EnvironmentFailure for a logger whose
    package is missing.
    """
    if resume and overwrite:
        raise UsageError("--overwrite", "--overwrite and --resume cannot be combined; leave one of them out")
    if out == "":
        raise UsageError(
            "--out",
            "the name of the run directory is empty; name one, or leave it out for runs/ and the name of the config",
        )
    if config == "":
        sentence = "the name is empty; name a YAML file or a shipped config"
        raise UsageError("--config", sentence, hint="gpt train --config tiny")
    if config is None and resume and not out:
        sentence = "--resume needs the run directory, --out, or the --config that names it"
        raise UsageError("gpt train", sentence, hint="gpt train --out runs/tiny --resume")
    if config is None and begin is not None and not out:
        sentence = "--init-from without --config needs the run directory, --out"
        raise UsageError("gpt train", sentence, hint="gpt train --init-from runs/tiny --data my.txt --out runs/mine")
    if config is None and not resume and begin is None:
        sentence = "--config is missing; name a YAML file or a shipped config"
        typed = out is not None or settings or any(value is not None for _, value in (flags or {}).values())
        raise UsageError("gpt train", sentence, hint="add --config tiny" if typed else "gpt train --config tiny")
    if isinstance(config, Config) and out is None:
        raise UsageError("--out", "a Config has no file name, so name the run directory with out")
    shipped = None if config is None or isinstance(config, Config) else shipped_config(str(config))
    directory = Path(out).expanduser() if out else Path("runs") / Path(str(config)).stem
    require_no_file(directory)
    own = directory / "config.yaml"
    _, text = (flags or {}).get("data.source", ("", None))
    names_text = text is not None or asks_for(settings, "data.source=", "data=")
    if begin is not None:
        continues = resume and bool(RunFiles(directory).steps())
        initial = None if continues else begin()
        source = initial.config if initial is not None else read_config(str(own))
        if config is None and initial is not None:
            source = initial.settings(other_text=names_text)
        document, where = _document(config, source)
        asked = build_config(filled(document, source), where, settings, flags)
        if initial is not None:
            initial = replace(initial, own_tokenizer=asks_for(settings, "tokenizer."))
            require_fit(initial, asked, settings, None if isinstance(config, Config) else config and str(config))
            section = document.content.get("tokenizer") if config is not None else None
            if not asks_for(settings, "tokenizer.kind=") and "kind" not in (section or {}):
                require_no_download(initial, asked)
        require_installed(asked.train.log_to)
        return Request(asked, directory, resume, overwrite, initial, config is None and not names_text, shipped=shipped)
    if config is None:
        require_run(RunFiles(directory))
    if isinstance(config, Config):
        asked = build_config(Document(config.model_dump(mode="json")), "config", settings, flags)
    else:
        asked = read_config(str(config or own), settings, flags)
    require_installed(asked.train.log_to)
    return Request(asked, directory, resume, overwrite, by_own_config=config is None, shipped=shipped)


def require_run(run: RunFiles) -> None:
    """Raises UsageError where there is no run whose config a training could take."""
    if not run.config.exists():
        sentence = f"there is no run in {shown(run.path)} to continue, so --config is needed"
        raise UsageError("gpt train", sentence, hint="gpt train --config tiny")


def _document(config: str | Path | Config | None, source: Config) -> tuple[Document, str]:
    """The settings that a config gives, and its name in messages; those of a source where there is none."""
    if config is None:
        return Document(source.model_dump(mode="json")), "config"
    if isinstance(config, Config):
        return Document(config.model_dump(mode="json", exclude_unset=True)), "config"
    path = find_config(str(config))
    return parse(read_text(path), str(path)), str(path)
