"""What one pass over a corpus found, remembered for as long as no file changes: a warm start reads no text."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Hashable
from dataclasses import asdict, dataclass
from pathlib import Path

from gpt_cli.errors import DataError, EnvironmentFailure
from gpt_cli.files import cache_directory, make_directory, write_durably
from gpt_cli.opening import read_bytes
from gpt_cli.text.sources import Walk

# reading less is as fast as looking it up
REMEMBER_FROM = 2**24  # bytes
OPENING = 2**14  # bytes that could be read while a file is opened
# a file may change again within the same tick of its clock, so nothing is noted about one that was younger
RACY_SECONDS = 2
_VERSION = 1


@dataclass(frozen=True)
class Survey:
    """The digest and the size of a corpus, and what was left out of it."""

    digest: str
    num_documents: int
    num_characters: int
    num_bytes: int
    num_skipped: int = 0  # files without text
    num_repeated: int = 0  # files named twice
    bad: tuple[str, ...] = ()
    fingerprint: str = ""


def find_survey(looked: Walk, how: Hashable) -> Survey | None:
    """The survey of files of which none has changed since; None where there is none."""
    if not _is_worth_it(looked):
        return None
    try:
        stored = json.loads(read_bytes(_path(looked, how), DataError))
        survey = Survey(**{**stored["survey"], "bad": tuple(stored["survey"]["bad"])})
        if stored["sha256"] != _digest(survey):
            return None
    except (DataError, EnvironmentFailure, ValueError, TypeError, KeyError):
        return None
    return survey if survey.fingerprint == looked.fingerprint() else None


def remember(survey: Survey, looked: Walk, how: Hashable) -> None:
    """Note a survey, where it is worth it and the files are the ones that `looked` saw."""
    young = looked.newest > looked.began - int(RACY_SECONDS * 1e9)
    if not _is_worth_it(looked) or young or survey.fingerprint != looked.fingerprint():
        return
    with contextlib.suppress(EnvironmentFailure):  # without a cache the next start reads again
        path = _path(looked, how)
        make_directory(path.parent)
        write_durably(path, [json.dumps({"survey": asdict(survey), "sha256": _digest(survey)}).encode()])


def _digest(survey: Survey) -> str:
    return hashlib.sha256(repr(survey).encode("utf-8", "surrogateescape")).hexdigest()


def _is_worth_it(looked: Walk) -> bool:
    return looked.only_files and looked.num_bytes + OPENING * looked.num_files >= REMEMBER_FROM


def _path(looked: Walk, how: Hashable) -> Path:
    key = hashlib.sha256(repr((_VERSION, looked.fingerprint(), how)).encode()).hexdigest()
    return cache_directory("manifests") / f"{key}.json"
