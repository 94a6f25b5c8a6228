"""`gpt train --dry-run`: all that a training says before its first step, and the config that it would have."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from gpt_cli.common.host import Host
from gpt_cli.common.machine.cpu_contention import sharing
from gpt_cli.common.machine.devices import threads_kept
from gpt_cli.common.machine.memory import reuse_memory
from gpt_cli.common.results import WIDTH, Result
from gpt_cli.config import Config
from gpt_cli.config.load import write_config
from gpt_cli.text.load import read_data
from gpt_cli.training.auto_config.auto_config import chosen
from gpt_cli.training.events import Finished, Prepared
from gpt_cli.training.plan import AutoRun, NewRun, Plan
from gpt_cli.training.setup import setup


@dataclass(frozen=True)
class Chosen(Result):
    """The config that a training would have, why where gpt chose it, and what the training would take.

    `prepared` is None for a run that has nothing left to train.
    """

    config: Config
    reasons: tuple[str, ...] = ()
    prepared: Prepared | None = field(default=None, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """What `gpt train --dry-run --json` prints."""
        return {"config": self.config.model_dump(mode="json"), "reasons": list(self.reasons)}

    def as_text(self, width: int = WIDTH) -> str:
        """The config as YAML, which `--config` takes."""
        return write_config(self.config).rstrip()


def dry_run(plan: Plan, host: Host, *, several: bool = False) -> Chosen:
    """Prepare a training that does not begin; raises errors as it does, but for a run that is there already.

    Device, dtype and compiling stay as they were asked for: another machine may have others. Of `several` processes,
    one cannot tell what each would hold, so it only chooses the config.
    """
    reuse_memory()
    with threads_kept(), sharing():
        if several and isinstance(plan, AutoRun):
            choice = chosen(plan.config, read_data(plan.config.data, host), host)
            return Chosen(choice.config, choice.reasons)
        if several:
            return Chosen(plan.config)
        found = setup(replace(plan, overwrite=True) if isinstance(plan, NewRun) else plan, host)
    if isinstance(found, Finished):
        host.notice(found.before or "")
        return Chosen(plan.config)
    asked, (_, prepared) = plan.config.train, found
    kept = {key: getattr(asked, key) for key in ("device", "dtype", "compile")}
    return Chosen(prepared.config.changed(train=kept), prepared.reasons, prepared)
