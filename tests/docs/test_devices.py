"""The page on devices shows what the check of a device prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.documents import DOCS, blocks, is_in_order

from gpt_cli.tools.bench.device_check import Checked, DeviceRuns, Group, checks


@pytest.mark.parametrize("page", ["devices.md", "devices.zh-CN.md"])
def test_the_output_has_checks_with_their_bounds_and_fits_an_issue(page: str) -> None:
    nobody = DeviceRuns("cpu", Path())
    expected = []
    for title, bound, pairs in checks(nobody, nobody):
        rows = [Checked(name, "equal", None, None) for name in pairs]
        expected += [line.removesuffix("equal").rstrip() for line in Group(title, bound, rows).lines()]
    shown = next(block for block in blocks(DOCS / page, "console") if "--check-device" in block).splitlines()
    assert max(map(len, shown)) <= 80
    found = [line[:60].rstrip() if line.startswith("  ") else line for line in shown if not line.startswith("    ")]
    listed = [line for line in found[6:-3] if line not in ("", "...")]
    assert len(listed) >= 7
    assert is_in_order(listed, expected)
    assert shown[-1].startswith(f"cpu: {sum(line.startswith('  ') for line in expected)} checks: ")
