"""What `gpt data prepare` and `gpt data verify` do."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from gpt_cli.amounts import duration, size
from gpt_cli.cli.terminal import Console
from gpt_cli.config import Config
from gpt_cli.config.reading import build_config, read_config, shipped_config
from gpt_cli.config.yaml_subset import Document
from gpt_cli.errors import DataError, UsageError, together
from gpt_cli.files import cache_directory
from gpt_cli.tables import table
from gpt_cli.text.corpus import Corpus
from gpt_cli.text.encoding import CACHE_FROM, TOKENIZING, EncodedText, encode_parts
from gpt_cli.text.prepared import Prepared, find_prepared
from gpt_cli.text.reading import SourceCorpus, read_data, split_of
from gpt_cli.text.sources import STDIN, names_of
from gpt_cli.text.token_files import Ids, TokensOnDisk

_SMALL = "a text this short is tokenized at every start"


def prepare(
    *, source: list[str] | None, config: str | None, settings: list[str] | None, json: bool, quiet: bool
) -> None:
    """Do with a text what `gpt train` does before it loads a model, and print what was made."""
    if not config:
        sentence = "--config is missing; it says how the text becomes tokens, and what part of it validates"
        raise UsageError("gpt data prepare", sentence, hint="gpt data prepare my.txt --config tiny")
    console = Console(quiet)
    asked = config_for(source, config, settings)
    for line in asked.unused(shipped_config(config)):
        console.notice(line)
    cache_directory("tokens")  # a user without one has nowhere to keep anything
    began, num_encoded = time.monotonic(), 0

    @contextlib.contextmanager
    def counting(what: str, total: int | None, unit: str) -> Iterator[Callable[[int], object]]:
        with console.counting(what, total, unit) as count:

            def count_encoded(amount: int) -> None:
                nonlocal num_encoded
                num_encoded += amount if what == TOKENIZING else 0
                count(amount)

            yield count_encoded

    corpus = read_data(asked.data, console.counting)
    for line in corpus.notices():
        console.notice(line)
    training, validation = split_of(corpus, asked.data, console.counting, console.notice)
    text = encode_parts(training, validation, asked, load=False, counting=counting, notice=console.notice)
    if any(STDIN in names_of(named) for named in (asked.data.source, asked.data.validation_source)):
        console.notice("gpt keeps the tokens of stdin, not its text: give gpt train the same text again")
    facts = _facts(corpus, training, validation, text)
    seconds = time.monotonic() - began
    facts |= {"seconds": round(seconds, 3), "bytes_per_second": round(num_encoded / seconds) if num_encoded else None}
    if json:
        console.json(facts)
    else:
        console.result(_as_table(facts))


def config_for(source: list[str] | None, config: str | None, settings: list[str] | None) -> Config:
    """A config file, or the defaults, with settings over it and the SOURCEs of the command where it names any."""
    named = source[0] if source and len(source) == 1 else source
    flags = {"data.source": ("SOURCE", named or None)}
    if config is None:
        return build_config(Document({}, {}), "--set", settings or (), flags)
    return read_config(config, settings or (), flags)


def _facts(corpus: SourceCorpus, training: Corpus, validation: Corpus, text: EncodedText) -> dict[str, Any]:
    kept = {ids.directory for ids in (text.ids, text.validation_ids) if isinstance(ids, TokensOnDisk)}
    num_bytes = training.num_bytes + validation.num_bytes
    return {
        "documents": corpus.num_documents,
        "characters": corpus.num_characters,
        "bytes": corpus.num_bytes,
        "skipped_files": corpus.survey.num_skipped,
        "repeated_files": corpus.survey.num_repeated,
        "bad_files": len(corpus.survey.bad),
        "tokenizer": text.tokenizer.kind,
        "vocab_size": text.tokenizer.vocab_size,
        "training_tokens": len(text.ids),
        "validation_tokens": len(text.validation_ids),
        "bytes_per_token": num_bytes / (len(text.ids) + len(text.validation_ids)),
        "data_digest": text.digest,
        "training_directory": _place(text.ids),
        "validation_directory": _place(text.validation_ids),
        "bytes_on_disk": sum(path.stat().st_size for directory in kept for path in directory.iterdir()),
    }


def _place(ids: Ids) -> str | None:
    return str(ids.directory) if isinstance(ids, TokensOnDisk) else None


def _as_table(facts: dict[str, Any]) -> str:
    written = {
        "time": duration(facts["seconds"]),
        "bytes_per_token": f"{facts['bytes_per_token']:.2f}",
        "on_disk": size(facts["bytes_on_disk"]) if facts["bytes_on_disk"] else f"nothing; {_SMALL}",
    }
    if facts["bytes_on_disk"]:
        speed = facts["bytes_per_second"]
        written["time"] += f", {size(speed)}/s" if speed else "; an earlier gpt had prepared this text"
        for part in ("training", "validation"):
            written[f"{part}_directory"] = facts[f"{part}_directory"] or f"none; {_SMALL}"
    hidden = {"bad_files"} if not facts["bad_files"] else set[str]()
    hidden |= {"seconds", "bytes_per_second", "bytes_on_disk", "training_directory", "validation_directory"}
    shown = {key: value for key, value in facts.items() if key not in hidden} | written
    return table(
        [(key.replace("_", " "), f"{value:,}" if isinstance(value, int) else value) for key, value in shown.items()]
    )


def verify(*, source: list[str], config: str | None, settings: list[str] | None, json: bool, quiet: bool) -> None:
    """Read a text and all tokens made from it, and say whether they are intact; raises DataError where not."""
    console = Console(quiet)
    data = config_for(source, config, settings).data
    texts = [data] if data.validation_source is None else [data, data.changed(source=data.validation_source)]
    found = list[dict[str, Any]]()
    damaged = list[DataError]()
    for each in texts:
        corpus = read_data(each, console.counting, fresh=True)
        for line in corpus.notices():
            console.notice(line)
        name = ", ".join(names_of(each.source))
        state = "intact" if corpus.is_known else "readable"
        found.append({"what": "text", "where": name, "state": state, "bytes": corpus.num_bytes})
        for prepared in find_prepared(corpus.digest):
            found.append(_verified(prepared, console, damaged))
    if json:
        console.json({"verified": found})
    else:
        rows = [(row["what"], row["state"], _amount(row), row["where"]) for row in found]
        console.result(table([("what", "state", "size", "where"), *rows]))
    if damaged:
        raise together(damaged)
    if all(row["what"] == "text" for row in found):
        console.notice(
            "nothing is prepared from this text: gpt data prepare SOURCE --config FILE does so, "
            f"from {CACHE_FROM:,} characters on"
        )


def _verified(prepared: Prepared, console: Console, damaged: list[DataError]) -> dict[str, Any]:
    """What was found out about some tokens; adds an error to `damaged` where they are not intact."""
    state = "intact"
    with console.counting("verifying", prepared.num_tokens, "tokens") as count:
        try:
            prepared.verify(count)
        except DataError as error:
            damaged.append(error)
            state = "damaged"
    return {
        "what": "tokens",
        "where": str(prepared.directory),
        "state": state,
        "tokens": prepared.num_tokens,
        "tokenizer": prepared.kind,
        "vocab_size": prepared.vocab_size,
    }


def _amount(row: dict[str, Any]) -> str:
    if row["what"] == "text":
        return size(row["bytes"])
    return f"{row['tokens']:,} of {row['tokenizer']}, vocabulary of {row['vocab_size']:,}"
