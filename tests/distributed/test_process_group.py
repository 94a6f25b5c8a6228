"""What the first rank raises while it works for all."""

from __future__ import annotations

import pytest

from gpt_cli.distributed.heartbeat import LeftToAnother
from gpt_cli.distributed.process_group import ProcessGroup
from gpt_cli.errors import EnvironmentFailure
from gpt_cli.training.interrupts import StopRequested
from gpt_cli.training.step import Diverged


def raised_by_both(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> tuple[Exception, Exception]:
    """What the first and the second rank raise where the work of the first fails."""
    told: list[str] = []

    def text_of_first(group: ProcessGroup, text: str) -> str:
        told.append(text)
        return told[0]

    def work() -> None:
        raise failure

    monkeypatch.setattr(ProcessGroup, "_text_of_first", text_of_first)
    found = []
    for rank in (0, 1):
        with pytest.raises(type(failure) if rank == 0 else Exception) as raised:
            ProcessGroup(rank, 2, None).on_rank_zero(work)  # type: ignore[arg-type]
        found.append(raised.value)
    return found[0], found[1]


def test_all_ranks_raise_an_error_for_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = raised_by_both(EnvironmentFailure("f", "the disk is full", hint="remove files"), monkeypatch)
    assert isinstance(second, EnvironmentFailure)
    assert second.lines() == ["error: f: the disk is full", "hint: remove files"]
    assert first is not second


def test_all_ranks_stop_by_the_signal_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    _, second = raised_by_both(StopRequested(15), monkeypatch)
    assert isinstance(second, StopRequested)
    assert second.signal == 15


def test_all_ranks_know_what_is_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    _, second = raised_by_both(Diverged(3, None, what="the attention weights of inspect.prompt"), monkeypatch)
    assert isinstance(second, Diverged)
    assert (second.step, second.what) == (3, "the attention weights of inspect.prompt")


@pytest.mark.parametrize(("failure", "code"), [(MemoryError(), 5), (OSError(13, "no", "f"), 5), (KeyError("x"), 1)])
def test_what_only_the_first_rank_can_tell_is_left_to_it(
    failure: Exception, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = raised_by_both(failure, monkeypatch)
    assert first is failure
    assert isinstance(second, LeftToAnother)
    assert second.exit_code == code
