"""`gpt data`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpt_cli.cli import options
from gpt_cli.cli.terminal import Console, table
from gpt_cli.errors import EnvironmentFailure

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Corpora known by name, and what a text holds.")


@app.command("list", epilog="Example: gpt data list")
def list_entries(json: options.Json = False, quiet: options.Quiet = False, debug: options.Debug = False) -> None:
    """List the corpora that --data knows by name."""
    from gpt_cli.text.catalogue import ENTRIES

    def state(name: str) -> str:
        entry = ENTRIES[name]
        return "needs no network" if entry.url is None else "fetched" if entry.cached.exists() else "not fetched yet"

    if json:
        entries = [
            {
                "name": e.name,
                "description": e.description,
                "licence": e.licence,
                "url": e.url,
                "sha256": e.sha256,
                "state": state(e.name),
            }
            for e in ENTRIES.values()
        ]
        Console(quiet).json({"corpora": entries})
        return
    rows = [(e.name, e.description, e.licence, state(e.name)) for e in ENTRIES.values()]
    Console(quiet).result(table([("name", "text", "licence", "state"), *rows]))


@app.command(epilog="Example: gpt data fetch tinyshakespeare --out data")
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of `gpt data list`, or all.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Also write the text to this directory.")
    ] = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Fetch corpora into the per-user cache, checked by their digest, and print where they are."""
    import json as json_module

    from gpt_cli.files import make_directory, write_durably
    from gpt_cli.text import catalogue

    console = Console(quiet)
    entries = list(catalogue.ENTRIES.values()) if names == ["all"] else [catalogue.find(name) for name in names]
    for entry in entries:
        documents = catalogue.read_entry(entry)
        if out is None:
            if entry.url and not entry.cached.exists():
                raise EnvironmentFailure(entry.name, f"cannot be kept in {entry.cached.parent}", "use --out DIR")
            console.result(str(entry.cached) if entry.url else f"{entry.name} is part of Python and needs no fetching")
            continue
        make_directory(out)
        if len(documents) == 1:
            path, text = out / f"{entry.name}.txt", documents[0]
        else:
            path = out / f"{entry.name}.jsonl"
            text = "".join(json_module.dumps({"text": document}, ensure_ascii=False) + "\n" for document in documents)
        write_durably(path, [text.encode()])
        console.result(str(path))


@app.command(epilog="Example: gpt data stats my.txt")
def stats(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A file, directory, glob, - or a name of `gpt data list`.")
    ],
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Count what a text holds."""
    from collections import Counter

    from gpt_cli.text.corpus import read_corpus

    corpus = read_corpus(source)
    characters = Counter[str]()
    for document in corpus.documents:
        characters.update(document)
    facts = {
        "documents": len(corpus.documents),
        "skipped_files": corpus.num_skipped,
        "characters": corpus.num_characters,
        "bytes": sum(len(c.encode()) * count for c, count in characters.items()),
        "lines": characters["\n"],
        "distinct_characters": len(characters),
    }
    console = Console(quiet)
    if json:
        console.json(facts)
    else:
        rows = [(name.replace("_", " "), f"{count:,}") for name, count in facts.items()]
        common = " ".join(
            c if c.isprintable() and c != " " else repr(c)[1:-1].replace(" ", "␣")
            for c, _ in characters.most_common(12)
        )
        console.result(table([*rows, ("most common", common)]))
