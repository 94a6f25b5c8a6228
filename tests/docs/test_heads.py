"""The pages about heads say what the program does."""

from __future__ import annotations

import re

import pytest
from support.documents import DOCS

from gpt_cli.attention_maps.head_metrics import COLUMNS, ROLES
from gpt_cli.tools.interpret.heads.view import HEADINGS


@pytest.mark.parametrize("page", ["heads.md", "heads.zh-CN.md"])
def test_labels_have_the_thresholds_of_the_program(page: str) -> None:
    rows = re.findall(r"^\| ([a-z ]+)[^|]*\| `(\w+)` \| (0\.\d+) \|$", (DOCS / page).read_text(), re.MULTILINE)
    assert [(column, label.strip(), float(least)) for label, column, least in rows] == [*ROLES]


@pytest.mark.parametrize("page", ["heads.md", "heads.zh-CN.md"])
def test_every_column_is_explained_under_both_its_names(page: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| .*w\(q, .* \|$", (DOCS / page).read_text(), re.MULTILINE)
    assert rows == [(name, HEADINGS[name]) for name in COLUMNS]
