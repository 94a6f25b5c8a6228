"""What `gpt data list` and `gpt data fetch` do."""

from __future__ import annotations

import contextlib
import json as json_module
from pathlib import Path

from gpt_cli.checkpoints.protection import require_no_file
from gpt_cli.cli.terminal import Console
from gpt_cli.errors import EnvironmentFailure
from gpt_cli.files import make_directory, write_durably
from gpt_cli.language import say
from gpt_cli.tables import table
from gpt_cli.text import catalogue
from gpt_cli.text.catalogue import Entry


def list_entries(*, json: bool, quiet: bool) -> None:
    """Print the catalogue."""
    console = Console(quiet)
    entries = list(catalogue.ENTRIES.values())
    if not json:
        rows = [(entry.name, say(entry.description), say(entry.licence), say(_state(entry))) for entry in entries]
        console.result(table([(say("name"), say("text"), say("licence"), say("state")), *rows]))
        return
    keys = ("name", "description", "licence", "url", "sha256")
    console.json({"corpora": [{key: getattr(e, key) for key in keys} | {"state": _state(e)} for e in entries]})


def _state(entry: Entry) -> str:
    if entry.url is None:
        return "needs no network"
    with contextlib.suppress(EnvironmentFailure, OSError):  # a user without a home directory, or one that is closed
        if entry.cached.exists():
            return "fetched"
    return "not fetched yet"


def fetch(*, names: list[str], out: Path | None, quiet: bool) -> None:
    """Fetch corpora, write them to `out` if it is given, and print where they are."""
    console = Console(quiet)
    if out is not None:
        require_no_file(out)
    entries = list(catalogue.ENTRIES.values()) if names == ["all"] else [catalogue.find(name) for name in names]
    for entry in entries:
        with console.working(f"fetching {entry.name}"):
            documents = catalogue.read_entry(entry)
        if out is not None:
            console.result(str(_write_text(entry.name, documents, out)))
        elif entry.url is None:
            console.notice(f"{entry.name} is part of Python and needs no download")
        elif entry.cached.exists():
            console.result(str(entry.cached))
        else:
            where = entry.cached.parent
            raise EnvironmentFailure(
                entry.name, f"the download succeeded, but {where} is not writable", hint="gpt data fetch --out DIR"
            )


def _write_text(name: str, documents: list[str], folder: Path) -> Path:
    """Write one document as a text file, and several as a .jsonl file; returns the path."""
    make_directory(folder)
    if len(documents) == 1:
        path, text = folder / f"{name}.txt", documents[0]
    else:
        path = folder / f"{name}.jsonl"
        text = "".join(json_module.dumps({"text": document}, ensure_ascii=False) + "\n" for document in documents)
    write_durably(path, [text.encode()])
    return path
