"""The steps of a run that `--over-training` shows. Needs no torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpt_cli.common.host import Host
from gpt_cli.common.machine.cpu_contention import sharing
from gpt_cli.tools.interpret.request import ToInspect

if TYPE_CHECKING:
    from gpt_cli.attention_maps.snapshots import Steps


@contextlib.contextmanager
def steps_of(target: ToInspect, device: str | None, host: Host) -> Iterator[Steps]:
    """Open the steps of a run, those of a prompt on a device; raises errors as `kept_steps` and `computed_steps` do."""
    if target.prompt is None:
        from gpt_cli.attention_maps.snapshots import kept_steps

        yield kept_steps(target.run)
        return
    with sharing():
        with host.importing():
            from gpt_cli.common.machine.devices import choose_device
            from gpt_cli.tools.interpret.checkpoint_steps import computed_steps
        yield computed_steps(target, choose_device(device or "auto"), host)
