"""What `gpt info` does before it loads torch: it finds the run or reads the config, and then prints the facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpt_cli.checkpoints.finding import find_checkpoint, near_run, newest_run
from gpt_cli.checkpoints.run_files import named_run
from gpt_cli.cli.amounts import size
from gpt_cli.cli.importing import importing_torch
from gpt_cli.cli.terminal import Console, table
from gpt_cli.config.reading import near_config, read_config, shipped_configs
from gpt_cli.errors import UsageError, inert, shown
from gpt_cli.ranks.launch import require_fitting


def info(
    *,
    path: str | None,
    checkpoint: str | None,
    ranks: int | None,
    settings: list[str] | None,
    json: bool,
    quiet: bool,
) -> None:
    """Print the facts of a config, a run or a checkpoint."""
    console = Console(quiet)
    if path is None:
        path = str(newest_run())
        console.notice(path)
    target = Path(path) if path in shipped_configs() else named_run(path)
    # a path with a folder that does not end like a config names a run
    names_a_run = target.suffix == ".safetensors" or ("/" in path and target.suffix not in (".yaml", ".yml"))
    if target.is_dir() or names_a_run:
        asked = find_checkpoint(target, checkpoint)
        if settings:
            raise UsageError("--set", f"{path} is no config, and a run keeps its settings")
    elif checkpoint is not None:
        raise UsageError("--checkpoint", f"{path} is a config, and only runs have checkpoints")
    elif not target.exists() and not near_config(path) and (near := near_run(target)):
        raise UsageError(shown(path), "there is no such config or run", hint=near)
    else:
        asked = read_config(path, settings or ())
        if ranks is not None:
            require_fitting(ranks, asked, "--ranks")
    with importing_torch():
        from gpt_cli.cli.work.facts import facts_of_config, facts_of_run
    if isinstance(asked, Path):
        facts = facts_of_run(target, asked, console, ranks)
    else:
        facts = facts_of_config(asked, console, ranks)
    if json:
        console.json(facts)
    else:
        console.result(_as_table(facts))


def _as_table(facts: dict[str, Any]) -> str:
    rows: list[tuple[str, str]] = []
    for key, value in facts.items():
        name = key.replace("_bytes", "_memory").replace("_", " ")
        if isinstance(value, dict):
            rows.append((name, ""))
            rows += [(f"  {part}", _written(key, number)) for part, number in value.items()]
        elif isinstance(value, list):
            rows.append((name, ", ".join(map(str, value))))
        elif value is None:
            rows.append((name, "none"))
        elif value is True:
            rows.append((name, "every byte"))
        elif isinstance(value, float) and "bytes" not in key:
            rows.append((name, f"{value:.4g}"))
        else:
            rows.append((name, _written(key, value)))
    return table(rows)


def _written(key: str, value: float | str) -> str:
    if isinstance(value, str):
        return inert(value)
    return size(round(value)) if "bytes" in key else f"{value:,}"
