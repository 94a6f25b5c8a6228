"""What several runs have in common, and in what they differ: rows with a cell for each run. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpt_cli.reporting.record import RunRecord


class Row(NamedTuple):
    """A name, and for each run its value as text; None where the run does not say."""

    name: str
    values: tuple[str | None, ...]

    @property
    def differs(self) -> bool:
        """Whether two runs say something else; silence is no other value."""
        return len({value for value in self.values if value is not None}) > 1


def settings(records: Sequence[RunRecord]) -> list[Row]:
    """A row for each setting, `section.key`, with the values as a config file writes them."""
    return rows([record.config for record in records])


def differing_settings(records: Sequence[RunRecord]) -> list[Row]:
    """The settings in which runs differ; of one run none."""
    return [row for row in settings(records) if row.differs]


def rows(contents: Sequence[Mapping[str, Any]]) -> list[Row]:
    """A row for each name that one of the contents has, in their order."""
    names = dict.fromkeys(name for content in contents for name in content)
    return [
        Row(name, tuple(_written(content[name]) if name in content else None for content in contents)) for name in names
    ]


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
