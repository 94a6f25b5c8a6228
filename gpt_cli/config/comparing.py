"""What makes a config different from the shipped one that it is most like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gpt_cli.config.reading import differences, read_config, shipped_configs
from gpt_cli.config.schema import Config


class Likeness(NamedTuple):
    """A shipped config by name, and the settings in which another differs from it: section.key -> value as written."""

    shipped: str
    settings: Mapping[str, str]


def read_shipped() -> dict[str, Config]:
    """The shipped configs by name."""
    return {name: read_config(str(path)) for name, path in shipped_configs().items()}


def likeness(config: Config, name: str, shipped: Mapping[str, Config]) -> Likeness:
    """How a config differs from the shipped one of its name, else from the one that it shares most settings with.

    What a run has chosen in place of `auto` does not count.
    """
    found = (
        Likeness(other, {key: new for key, old, new in differences(settings, config) if old != "auto"})
        for other, settings in shipped.items()
        if other == name or name not in shipped
    )
    # of two that are equally near, the plain one: tiny before multi-head
    return min(found, key=lambda one: (len(one.settings), len(one.shipped)))
