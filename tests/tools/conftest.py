"""The real transformers, imported once; whatever it logs while it loads a directory is a failure."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def _library() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        import transformers

        transformers.utils.logging.disable_progress_bar()
        yield transformers


@pytest.fixture
def transformers(_library: Any) -> Iterator[Any]:
    """The library, offline; a warning that it logs fails the test."""
    logged: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(record.getMessage())

    listening = Listening(logging.WARNING)
    _library.utils.logging.add_handler(listening)
    yield _library
    _library.utils.logging.remove_handler(listening)
    assert logged == []
