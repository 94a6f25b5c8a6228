"""Cache JSON data on disk, such as the survey (size and digest) of a corpus, until a file of the corpus changes."""

import contextlib
import hashlib
import json
from collections.abc import Hashable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from gpt_cli.common.extras import is_installed
from gpt_cli.common.files import cache_directory, make_directory, write_durably
from gpt_cli.common.untrusted_files import read_bytes
from gpt_cli.errors import DataError, EnvironmentFailure
from gpt_cli.text.corpus import Survey
from gpt_cli.text.sources import SourceWalk

# reading a smaller text is as fast as reading its entry in the cache
REMEMBER_FROM = 2**24  # bytes
OPENING = 2**14  # bytes that could be read in the time that it takes to open a file
# a file may change twice within one tick of the file system's clock, so the survey of a younger file is not cached
RACY_SECONDS = 2
_VERSION = 4


def cached(name: str, *key: object) -> Path:
    """Return the path for `key` in the cache folder `name`; raise EnvironmentFailure without a home directory."""
    return cache_directory(name) / hashlib.sha256(repr((_VERSION, *key)).encode()).hexdigest()


def read_cached_json(path: Path) -> Any:
    """Return the content of a JSON file in the cache, or None if the file is missing, unreadable or damaged."""
    try:
        return json.loads(read_bytes(path, DataError))
    except (DataError, EnvironmentFailure, ValueError):
        return None


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file to the cache. A failed write is ignored: it costs time later, but changes no result."""
    with contextlib.suppress(EnvironmentFailure):
        make_directory(path.parent)
        write_durably(path, [json.dumps(content).encode()])


def find_survey(walk: SourceWalk, options: Hashable) -> Survey | None:
    """Return the cached Survey (digest, size) of the files in `walk` for `options`, or None if it is not up to date."""
    with contextlib.suppress(EnvironmentFailure, TypeError, KeyError, ValueError):
        if _is_worth_it(walk) and (stored := read_cached_json(_survey_path(walk, options))):
            survey = TypeAdapter(Survey).validate_python(stored["survey"])
            if stored["sha256"] == _digest(survey) and survey.fingerprint == walk.fingerprint():
                return survey
    return None


def remember(survey: Survey, walk: SourceWalk, options: Hashable) -> None:
    """Cache the survey of large or many files for `find_survey`, unless a file is newer than 2 s before the walk."""
    young = walk.newest > walk.began - int(RACY_SECONDS * 1e9)
    if _is_worth_it(walk) and not young and survey.fingerprint == walk.fingerprint():
        with contextlib.suppress(EnvironmentFailure):  # of a user without a home directory
            write_json(_survey_path(walk, options), {"survey": asdict(survey), "sha256": _digest(survey)})


def _digest(survey: Survey) -> str:
    return hashlib.sha256(repr(survey).encode("utf-8", "surrogateescape")).hexdigest()


def _is_worth_it(walk: SourceWalk) -> bool:
    return walk.only_files and walk.num_bytes + OPENING * walk.num_files >= REMEMBER_FROM


def _survey_path(walk: SourceWalk, options: Hashable) -> Path:
    # without an extra that converts documents, a directory's documents are left out
    extras = is_installed("pypandoc"), is_installed("pypdfium2")
    return cached("manifests", walk.fingerprint(), options, extras).with_suffix(".json")
