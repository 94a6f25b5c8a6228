"""Many generated inputs: how many, and what must hold for each."""

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, settings

from gpt_cli.cli import app
from gpt_cli.errors import GptError
from support.faults import SCALE
from support.helpers import Outcome

SHARE = 120  # `make test` tries one input of this many
_AT_ONCE = 500  # hypothesis holds all inputs of a test: 14 GB of 10,000


@contextmanager
def built_once() -> Iterator[None]:
    """Builds the flags of all commands once for many command lines: it takes longer than to refuse one."""
    whole = app.build()
    with patch.object(app, "build", lambda: whole):
        yield


def inputs(count: int) -> Callable[[Any], Any]:
    """Decorates a property of `count` generated inputs; they are the same in each run unless all are tried."""
    number = count if SCALE >= 1 else count // SHARE
    limited = settings(
        max_examples=min(number, _AT_ONCE),
        derandomize=SCALE < 1,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )

    def decorate(holds: Callable[..., None]) -> Callable[..., None]:
        once = limited(holds)

        @functools.wraps(once)
        def in_parts(*arguments: Any, **named: Any) -> None:
            for _ in range(-(-number // _AT_ONCE)):
                once(*arguments, **named)

        return in_parts

    return decorate


def require_sentence(error: GptError, *codes: int) -> None:
    """Fails where an error has another exit code than these, or would not be a line of text."""
    assert error.exit_code in codes, error
    for line in error.lines():
        assert re.match(r"(error|hint): \S", line), line
        assert line.isprintable(), line
        assert len(line) < 3_000, line[:300]


def require_answer(outcome: Outcome, *codes: int) -> None:
    """Fails where a command did not end with one of these codes, or ended in an error without its line."""
    assert outcome.code in codes, outcome.err
    assert "Traceback" not in outcome.err
    if outcome.code:
        assert any(line.startswith("error: ") for line in outcome.err.splitlines()), outcome.err
