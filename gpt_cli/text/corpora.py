"""`gpt data list` and `gpt data fetch`: the corpora that have names."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_cli.callbacks import Host
from gpt_cli.errors import EnvironmentFailure
from gpt_cli.files import make_directory, write_durably
from gpt_cli.language import say
from gpt_cli.results import WIDTH, Result
from gpt_cli.tables import table
from gpt_cli.text import catalogue
from gpt_cli.text.catalogue import Entry
from gpt_cli.text.request import FetchRequest


@dataclass(frozen=True)
class Corpora(Result):
    """The catalogue: of each corpus its name, description, licence, url, sha256, and whether it is here."""

    corpora: list[dict[str, str | None]]

    def as_text(self, width: int = WIDTH) -> str:
        """A table with a row for each corpus, in the language of the user."""
        rows = [
            (str(each["name"]), *(say(str(each[key])) for key in ("description", "licence", "state")))
            for each in self.corpora
        ]
        return table([(say("name"), say("text"), say("licence"), say("state")), *rows])


def list_corpora() -> Corpora:
    """The corpora that the catalogue has."""
    keys = ("name", "description", "licence", "url", "sha256")
    entries = catalogue.ENTRIES.values()
    return Corpora([{key: getattr(entry, key) for key in keys} | {"state": _state(entry)} for entry in entries])


def _state(entry: Entry) -> str:
    if entry.url is None:
        return "needs no network"
    with contextlib.suppress(EnvironmentFailure, OSError):  # a user without a home directory, or one that is closed
        if entry.cached.exists():
            return "fetched"
    return "not fetched yet"


@dataclass(frozen=True)
class Fetched(Result):
    """The files that hold the corpora, but for one that is part of Python and was not written."""

    paths: list[Path]

    def as_dict(self) -> dict[str, Any]:
        """The paths as texts."""
        return {"paths": [*map(str, self.paths)]}

    def as_text(self, width: int = WIDTH) -> str:
        """A line for each path."""
        return "\n".join(map(str, self.paths))


def fetch(request: FetchRequest, entries: Sequence[Entry], host: Host) -> Fetched:
    """Fetch corpora, and write them to a directory if one is named; raises EnvironmentFailure without network."""
    paths = list[Path]()
    for entry in entries:
        with host.working(f"fetching {entry.name}"):
            documents = catalogue.read_entry(entry)
        if request.out is not None:
            paths.append(_write_text(entry.name, documents, request.out))
        elif entry.url is None:
            host.notice(f"{entry.name} is part of Python and needs no download")
        elif entry.cached.exists():
            paths.append(entry.cached)
        else:
            where = entry.cached.parent
            raise EnvironmentFailure(
                entry.name, f"the download succeeded, but {where} is not writable", hint="gpt data fetch --out DIR"
            )
    return Fetched(paths)


def _write_text(name: str, documents: list[str], folder: Path) -> Path:
    """Write one document as a text file, and several as a .jsonl file; returns the path."""
    make_directory(folder)
    if len(documents) == 1:
        path, text = folder / f"{name}.txt", documents[0]
    else:
        path = folder / f"{name}.jsonl"
        text = "".join(json.dumps({"text": document}, ensure_ascii=False) + "\n" for document in documents)
    write_durably(path, [text.encode()])
    return path
