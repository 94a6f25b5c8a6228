"""Translate config keys of earlier versions, so that old configs and checkpoints can always be loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def without_retired(content: Any, *, whole: bool = False) -> Any:
    """Return a config of an earlier version with today's keys; `whole` says that gpt wrote it, so it lists every key.

    max_steps becomes null if max_time is set and stop_at is null (or missing in a `whole` config with max_expansion or
    without freeze). stop_at, max_expansion and parallel are dropped; num_teachers 0 or 1 becomes a teacher_share.
    """
    if not isinstance(content, Mapping):
        return content
    sections = {name: dict(section) if isinstance(section, Mapping) else section for name, section in content.items()}
    data, train = ({} if not isinstance(sections.get(name), dict) else sections[name] for name in ("data", "train"))
    if whole and "stop_at" not in train and ("max_expansion" in data or "freeze" not in train):
        train["stop_at"] = None
    if train.get("stop_at", "first") is None and train.get("max_time") is not None:
        train["max_steps"] = None
    data.pop("max_expansion", None)
    train.pop("stop_at", None)
    train.pop("parallel", None)
    if (teachers := str(train.get("num_teachers"))) in ("0", "1"):  # of a third of the steps
        train["teacher_share"] = None if teachers == "0" else 1 / 3
        del train["num_teachers"]
    return sections
