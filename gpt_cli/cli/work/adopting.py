"""What `gpt import` does once the directory is checked."""

from __future__ import annotations

from pathlib import Path

from gpt_cli.checkpoints.lock import sole_trainer
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.cli.terminal import Console
from gpt_cli.errors import visible
from gpt_cli.exchange.adopting import write_run
from gpt_cli.exchange.gpt2 import Foreign


def adopt_and_show(foreign: Foreign, out: Path, console: Console, *, json: bool) -> None:
    """Write the run, and print its sizes and what to do with it."""
    for notice in foreign.notices:
        console.notice(notice)
    with sole_trainer(out, console.warn):
        num_parameters = write_run(RunDirectory(out), foreign, console.counting)
    sizes, vocab_size = foreign.config.model, foreign.tokenizer.vocab_size
    if json:
        facts = {"run": str(out), "parameters": num_parameters, "vocab_size": vocab_size}
        names = ("context_length", "d_model", "num_heads", "num_blocks")
        console.json(facts | {name: getattr(sizes, name) for name in names})
        return
    shape = f"{sizes.num_blocks} blocks of {sizes.num_heads} heads, {vocab_size:,} tokens"
    console.result(f"{visible(out)}: {num_parameters:,} parameters, {shape}, context of {sizes.context_length:,}")
