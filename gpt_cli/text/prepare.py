"""Prepare and verify texts: `gpt data prepare` and `gpt data verify`."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpt_cli.common.files import cache_directory
from gpt_cli.common.host import Host
from gpt_cli.common.results import WIDTH, Result
from gpt_cli.common.tables import table
from gpt_cli.common.units import duration, size
from gpt_cli.config import Config
from gpt_cli.errors import DataError, GptError, shown, together
from gpt_cli.text.corpus import CACHE_FROM, Corpus
from gpt_cli.text.encode import TOKENIZING, EncodedText, encode_parts
from gpt_cli.text.load import SourceCorpus, read_data, split_of
from gpt_cli.text.request import PrepareRequest, VerifyRequest
from gpt_cli.text.sources import reads_stdin, source_names
from gpt_cli.text.token_files import TokensOnDisk, open_tokens, read_index

_SMALL = "a text this short is tokenized at every start"
_ANSWERS = "questions and answers are tokenized at every start"


@dataclass(frozen=True)
class Preparation(Result):
    """The result of `gpt data prepare`: `figures` (sizes, folders and so on) of the text, which --json prints."""

    figures: dict[str, Any]
    why_none: str = field(default=_SMALL, repr=False)  # the reason if nothing is on disk

    def as_dict(self) -> dict[str, Any]:
        return self.figures

    def as_text(self, width: int = WIDTH) -> str:
        facts = self.figures
        lines = {
            "time": duration(facts["seconds"]),
            "bytes_per_token": f"{facts['bytes_per_token']:.2f}",
            "on_disk": size(facts["bytes_on_disk"]) if facts["bytes_on_disk"] else f"nothing; {self.why_none}",
        }
        if facts["bytes_on_disk"]:
            speed = facts["bytes_per_second"]
            lines["time"] += f", {size(speed)}/s" if speed else "; an earlier gpt had prepared this text"
            for part in ("training", "validation"):
                lines[f"{part}_directory"] = facts[f"{part}_directory"] or f"none; {self.why_none}"
        hidden = {"bad_files"} if not facts["bad_files"] else set[str]()
        hidden |= {"seconds", "bytes_per_second", "bytes_on_disk", "training_directory", "validation_directory"}
        rows = {key: value for key, value in facts.items() if key not in hidden} | lines
        said = ((key, f"{value:,}" if isinstance(value, int) else value) for key, value in rows.items())
        return table([(key.replace("_", " "), value) for key, value in said])


def prepare_text(request: PrepareRequest, config: Config, host: Host) -> Preparation:
    """Read and encode a text as `gpt train` does; return its sizes and cache folders; raise DataError for bad text."""
    began, num_encoded = time.monotonic(), 0

    @contextlib.contextmanager
    def counting(what: str, total: int | None, unit: str) -> Iterator[Callable[[int], object]]:
        with host.counting(what, total, unit) as count:

            def count_encoded(amount: int) -> None:
                nonlocal num_encoded
                num_encoded += amount if what == TOKENIZING else 0
                count(amount)

            yield count_encoded

    corpus = read_data(config.data, host)
    host.notices(corpus.notices())
    training, validation = split_of(corpus, config.data, host)
    text = encode_parts(training, validation, config, host=replace(host, counting=counting), load=False)
    if reads_stdin(config.data):
        host.notice("gpt keeps the tokens of stdin, not its text: give gpt train the same text again")
    facts = _facts(corpus, training, validation, text, config.data.template)
    seconds = time.monotonic() - began
    facts |= {"seconds": round(seconds, 3), "bytes_per_second": round(num_encoded / seconds) if num_encoded else None}
    return Preparation(facts, _ANSWERS if corpus.how.conversations else _SMALL)


def _facts(
    corpus: SourceCorpus, training: Corpus, validation: Corpus, text: EncodedText, template: str | None
) -> dict[str, Any]:
    def size_of(part: Corpus) -> tuple[int, int]:
        texts = [block.text for block in part.blocks()]
        return sum(map(len, texts)), sum(len(text.encode()) for text in texts)

    directories = [ids.directory if isinstance(ids, TokensOnDisk) else None for ids in (text.ids, text.validation_ids)]
    files = [path for folder in {*filter(None, directories)} for path in folder.iterdir()]
    characters, num_bytes = corpus.num_characters, corpus.num_bytes
    tokenized_bytes = training.num_bytes + validation.num_bytes
    if corpus.how.conversations:  # without the JSON around them
        characters, num_bytes = size_of(corpus.with_template(template))
        tokenized_bytes = sum(size_of(part)[1] for part in (training, validation))
    return {
        "documents": corpus.num_documents,
        "characters": characters,
        "bytes": num_bytes,
        "skipped_files": corpus.survey.num_skipped,
        "repeated_files": corpus.survey.num_repeated,
        "bad_files": len(corpus.survey.bad),
        "tokenizer": text.tokenizer.kind,
        "vocab_size": text.tokenizer.vocab_size,
        "training_tokens": len(text.ids),
        "validation_tokens": len(text.validation_ids),
        "bytes_per_token": tokenized_bytes / (len(text.ids) + len(text.validation_ids)),
        "data_digest": text.digest,
        "training_directory": directories[0] and str(directories[0]),
        "validation_directory": directories[1] and str(directories[1]),
        "bytes_on_disk": sum(path.stat().st_size for path in files),
    }


@dataclass(frozen=True)
class Verification(Result):
    """The result of `gpt data verify`: the state of each text and of the tokens made from it.

    A text is "intact" if it matches its cached digest, "readable" if none is cached; tokens are "intact" or "damaged".
    """

    verified: list[dict[str, Any]]
    damaged: list[DataError] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {"verified": self.verified}

    def as_text(self, width: int = WIDTH) -> str:
        rows = [(row["what"], row["state"], _amount(row), row["where"]) for row in self.verified]
        return table([("what", "state", "size", "where"), *rows])

    def failure(self) -> GptError | None:
        return together(self.damaged) if self.damaged else None


def verify(request: VerifyRequest, config: Config, host: Host) -> Verification:
    """Read a text and all its cached tokens, and return the state of each; raise DataError for an unreadable text."""
    data = config.data
    texts = [data] if data.validation_source is None else [data, data.changed(source=data.validation_source)]
    rows = list[dict[str, Any]]()
    damaged, any_large, small = list[DataError](), False, ""
    for each in texts:
        corpus = read_data(each, host, fresh=True)
        host.notices(corpus.notices())
        name = ", ".join(source_names(each.source))
        state = "intact" if corpus.has_survey else "readable"
        rows.append({"what": "text", "where": name, "state": state, "bytes": corpus.num_bytes})
        for directory, index in _prepared_from(corpus.digest):
            num_tokens = sum(part["tokens"] for part in index["parts"])
            state, about = "intact", index["about"]
            with host.counting("verifying", num_tokens, "tokens") as count:
                try:
                    _verify_tokens(directory, count)
                except DataError as error:
                    damaged.append(error)
                    state = "damaged"
            row = {"what": "tokens", "where": str(directory), "state": state, "tokens": num_tokens}
            rows.append(row | {"tokenizer": about["kind"], "vocab_size": about["vocab_size"]})
        any_large |= corpus.is_large and not corpus.how.conversations
        what = "questions and answers" if corpus.how.conversations else f"a text below {CACHE_FROM:,} characters"
        small = f"the cache holds no tokens of this text: gpt tokenizes {what} at every start"
    if all(row["what"] == "text" for row in rows):
        missing = "no tokens of this text are prepared: gpt data prepare SOURCE --config FILE prepares them"
        host.notice(missing if any_large else small)
    return Verification(rows, damaged)


def _prepared_from(text: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield (directory, index) of each cached encoding of the text with digest `text`. Raises EnvironmentFailure."""
    folder = cache_directory("tokens")
    for directory in sorted(folder.iterdir()) if folder.is_dir() else ():
        # there is no index before a preparation is finished
        if (index := read_index(directory)) and index["about"].get("text") == text:
            yield directory, index


def _verify_tokens(directory: Path, count: Callable[[int], object]) -> None:
    """Raise DataError if a token file is missing or does not match its digest; `count` receives numbers of tokens."""
    if (tokens := open_tokens(directory)) is None:
        sentence = "a file of these tokens is missing or has the wrong size"
        raise DataError(shown(directory), sentence, hint="the next gpt data prepare or gpt train writes it again")
    tokens.verify(count)


def _amount(row: dict[str, Any]) -> str:
    if row["what"] == "text":
        return size(row["bytes"])
    return f"{row['tokens']:,} of {row['tokenizer']}, vocabulary of {row['vocab_size']:,}"
