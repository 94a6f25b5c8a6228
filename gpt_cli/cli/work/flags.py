"""Flags that do nothing beside others are refused. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping

from gpt_cli.errors import UsageError


def refuse_beside(beside: str, given: Mapping[str, object]) -> None:
    """Raises UsageError for the first flag that has a value although it does nothing beside another."""
    for flag, value in given.items():
        if value is not None:
            raise UsageError(flag, f"{flag} and {beside} cannot be combined; leave one of them out")


def refuse(given: Mapping[str, object], wrong: str, hint: str | None = None) -> None:
    """Raises UsageError for the first flag that has a value, which is `wrong`."""
    for flag, value in given.items():
        if value is not None:
            raise UsageError(flag, wrong, hint=hint)
