"""`gpt train --dry-run`: prepare a training, take no step, and show its config."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from gpt_cli.common.host import Host
from gpt_cli.common.machine.cpu_contention import sharing
from gpt_cli.common.machine.devices import restored_threads
from gpt_cli.common.machine.memory import reuse_memory
from gpt_cli.common.results import WIDTH, Result
from gpt_cli.config import Config
from gpt_cli.config.load import write_config
from gpt_cli.text.load import read_data
from gpt_cli.training.auto_config.auto_config import choose_config
from gpt_cli.training.events import Finished, Prepared
from gpt_cli.training.plan import AutoRun, NewRun, Plan
from gpt_cli.training.setup import setup


@dataclass(frozen=True)
class Chosen(Result):
    """The result of a dry run: the config, the reasons for settings that gpt chose, and estimated costs (`prepared`).

    `prepared` is None if the run has nothing left to train, or if several processes would train it.
    """

    config: Config
    reasons: tuple[str, ...] = ()
    prepared: Prepared | None = field(default=None, repr=False)

    def as_dict(self) -> dict[str, Any]:
        return {"config": self.config.model_dump(mode="json"), "reasons": list(self.reasons)}

    def as_text(self, width: int = WIDTH) -> str:
        return write_config(self.config).rstrip()


def dry_run(plan: Plan, host: Host, *, several: bool = False) -> Chosen:
    """Prepare a training without a step; return its config; raise the errors of a training, except for an existing run.

    `device`, `dtype` and `compile` stay as requested, because the training may run on another machine. With `several`
    processes, only the config is chosen, because one process cannot know the memory of each.
    """
    reuse_memory()
    with restored_threads(), sharing():
        if several and isinstance(plan, AutoRun):
            choice = choose_config(plan.config, read_data(plan.config.data, host), host)
            return Chosen(choice.config, choice.reasons)
        if several:
            return Chosen(plan.config)
        outcome = setup(replace(plan, overwrite=True) if isinstance(plan, NewRun) else plan, host)
    if isinstance(outcome, Finished):
        host.notice(outcome.before or "")
        return Chosen(plan.config)
    settings, (_, prepared) = plan.config.train, outcome
    unresolved = {key: getattr(settings, key) for key in ("device", "dtype", "compile")}
    return Chosen(prepared.config.changed(train=unresolved), prepared.reasons, prepared)
