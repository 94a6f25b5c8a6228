"""What `gpt bench` does before it loads torch: it reads the config."""

from __future__ import annotations

from gpt_cli.cli.importing import importing_torch
from gpt_cli.cli.terminal import Console
from gpt_cli.config.reading import read_config
from gpt_cli.errors import UsageError
from gpt_cli.machine.sharing import sharing


def bench(
    *,
    config: str | None,
    attention: bool,
    busy: int | None,
    settings: list[str] | None,
    rounds: int,
    tokens: int,
    device: str | None,
    threads: int | None,
    json: bool,
    quiet: bool,
) -> None:
    """Print timings as they are ready, or with `json` all of them at the end."""
    if attention and busy is not None:
        raise UsageError("--busy", "it contradicts --attention, so use one of them")
    console = Console(quiet)
    config = config or ("multi-head" if attention else "small")
    asked = read_config(config, settings or (), {"train.threads": ("--threads", threads)})
    wanted = {"rounds": rounds, "tokens": tokens, "device": device, "json": json}
    if busy is not None:
        with importing_torch():
            from gpt_cli.cli.work.benching import bench_beside  # only now torch
        bench_beside(asked, config, console, num_programs=busy, **wanted)
        return
    with sharing(asked.train.threads) as shared:
        with importing_torch():
            from gpt_cli.cli.work.benching import bench_and_show
        shared.remark(console.notice)
        bench_and_show(asked, config, console, attention=attention, **wanted)
