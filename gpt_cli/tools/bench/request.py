"""The requests (flags and inputs) of `gpt info` and `gpt bench`. Needs no torch."""

from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field

from gpt_cli.checkpoints.run_paths import named_run
from gpt_cli.checkpoints.select import find_checkpoints, near_run, newest_run, run_hint
from gpt_cli.common.file_signatures import holds_run
from gpt_cli.common.host import Host
from gpt_cli.config import Config
from gpt_cli.config.field_types import Few, Whole
from gpt_cli.config.load import near_config, read_config, shipped_configs
from gpt_cli.config.request import (
    EMPTY,
    NONE,
    ConfigFile,
    Device,
    Flag,
    NamedOrLoaded,
    Request,
    Settings,
    Threads,
    WhichCheckpoint,
)
from gpt_cli.distributed.launch import require_fitting
from gpt_cli.errors import UsageError, shown


class InfoRequest(Request):
    """Count parameters, operations and memory; of a checkpoint, verify every byte."""

    path: Annotated[NamedOrLoaded, Flag("PATH", offers="configs_and_runs", position=True)] = Field(
        default=NONE,
        kw_only=False,
        description="A config (file or shipped name), a run directory or a checkpoint. Default: the newest run.",
    )
    checkpoint: WhichCheckpoint = Field(
        default=NONE, description="best, last or a step of a run. Default: the best checkpoint."
    )
    ranks: Few | None = Field(
        default=None, description="Also report what each of N processes that train together stores and sends."
    )
    settings: Settings = EMPTY

    def find(self, host: Host) -> tuple[Path, Path | Config]:
        """Return the path that the request names (default: the newest run), and the checkpoint file or config there.

        Raises UsageError for a wrong name or setting, CheckpointError if there is no such checkpoint.
        """
        path = self.path
        if path is None:
            path = str(newest_run())
            host.notice(path)
        is_config = path in shipped_configs() and not holds_run(Path(path))
        target = Path(path) if is_config else named_run(path)
        # a path with a slash that does not end in .yaml or .yml names a run
        ending = target.suffix
        names_a_run = ending in (".safetensors", ".gguf") or ("/" in path and ending not in (".yaml", ".yml"))
        if (target.is_dir() and not is_config) or names_a_run:
            if self.settings:
                raise UsageError("‹settings›", f"{path} is not a config, and the settings of a run cannot change")
            return target, find_checkpoints(target, self.checkpoint)[0]
        if self.checkpoint is not None:
            raise UsageError("‹checkpoint›", f"{path} is a config, and only runs have checkpoints")
        if not is_config and not target.exists() and near_run(target):
            hint = run_hint(target) + (f" else the shipped config {close}" if (close := near_config(path)) else "")
            raise UsageError(shown(path), "there is no such config or run", hint=hint)
        config = read_config(path, self.settings)
        if self.ranks is not None:
            require_fitting(self.ranks, config, "‹ranks›")
        return target, config


class BenchRequest(Request):
    """Benchmark training and sampling against plain implementations and the limits of this machine."""

    config: ConfigFile = Field(
        default=cast(Any, "small"), kw_only=False, description="A YAML file or a shipped config. Default: small."
    )
    settings: Settings = EMPTY
    rounds: Annotated[int, Field(ge=1, le=1000), Whole] = Field(
        default=5, description="Timed rounds, after one to warm up. Default: 5."
    )
    tokens: Annotated[int, Field(ge=1, le=100_000), Whole] = Field(
        default=100, description="New tokens of each sampled sequence. Default: 100."
    )
    device: Device = None
    threads: Threads = None
    check_device: Device = Field(
        default=None,
        description="Instead of timing: compute the same on the CPU and on this device, and print what is equal and "
        "what differs, ready to paste into an issue.",
    )

    # only timings use the fields after check_device
    exclusive = (("check_device", "config", "settings", "rounds", "tokens", "device"),)

    def find(self, host: Host) -> Config:
        """Return the config with the request's settings; raise UsageError if the config or a setting is wrong."""
        flags = {"train.threads": ("threads", self.threads), "train.device": ("device", self.device)}
        return read_config(self.config, self.settings, flags)
