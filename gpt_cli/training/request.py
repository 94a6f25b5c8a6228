"""What a user asks to be trained: read and refused before torch is loaded or a file is touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_cli.config import Config
from gpt_cli.config.reading import build_config, read_config
from gpt_cli.config.yaml_subset import Document
from gpt_cli.errors import UsageError, shown


@dataclass(frozen=True)
class Request:
    """A config before anything is chosen for this machine, and the directory of its run."""

    config: Config
    directory: Path
    resume: bool = False
    overwrite: bool = False


def read_request(
    config: str | Path | Config | None,
    out: str | Path | None = None,
    settings: Sequence[str] = (),
    flags: Mapping[str, tuple[str, Any]] | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
) -> Request:
    """The request of a config (a file, a shipped name, a Config; None for the run's own) with settings over it.

    `flags` are keys with their flag as typed and its value. Raises UsageError for whatever does not fit together.
    """
    if resume and overwrite:
        raise UsageError("--overwrite", "it contradicts --resume, so use one of them")
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
    if config is None and not resume:
        sentence = "--config is missing; name a YAML file or a shipped config"
        raise UsageError("gpt train", sentence, hint="gpt train --config tiny")
    if isinstance(config, Config) and out is None:
        raise UsageError("--out", "a Config has no file name, so name the run directory with out")
    directory = Path(out).expanduser() if out else Path("runs") / Path(str(config)).stem
    if directory.exists() and not directory.is_dir():
        raise UsageError(shown(directory), "this is a file, but --out names a directory")
    own = directory / "config.yaml"
    if config is None and not own.exists():
        sentence = f"there is no run in {shown(directory)} to continue, so --config is needed"
        raise UsageError("gpt train", sentence, hint="gpt train --config tiny")
    if isinstance(config, Config):
        asked = build_config(Document(config.model_dump(mode="json")), "config", settings, flags)
    else:
        asked = read_config(str(config or own), settings, flags)
    return Request(asked, directory, resume, overwrite)
