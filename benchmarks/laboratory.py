"""What the benchmarks share: flags, a browser, the line about the machine, a bar, and tables."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from typing import Any

import torch

from gpt_cli.checkpoints.checkpoint import Checkpoint, Progress
from gpt_cli.cli.console import Console
from gpt_cli.common.machine.devices import choose_device, choose_dtype, processor, use_threads
from gpt_cli.common.machine.memory import reuse_memory
from gpt_cli.common.tables import table
from gpt_cli.config import Config
from gpt_cli.config.load import read_config
from gpt_cli.errors import GptError, counted
from gpt_cli.model import GPT
from gpt_cli.text.split_patterns import WORD_PATTERN
from gpt_cli.text.tokenizers import BytePairTokenizer

CONSOLE = Console()
CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """The program of the first browser that is installed, in the order in which tests of pages look for one."""
    return next(filter(None, map(shutil.which, CHROMIUM)), None)


def flags(description: str | None, *, config: str, rounds: int = 5) -> argparse.ArgumentParser:
    """A parser with the flags that all of them have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default=config, metavar="FILE", help=f"default: {config}")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--rounds", type=int, default=rounds, metavar="N", help=f"after one to warm up: {rounds}")
    parser.add_argument("--tokens", type=int, default=100, metavar="N", help="new tokens of each sample: 100")
    parser.add_argument("--threads", type=int, metavar="N")
    parser.add_argument("--json", action="store_true")
    return parser


def asked(arguments: argparse.Namespace) -> Config:
    """The config of the flags; a mistake in it ends the process as it ends `gpt`."""
    try:
        return read_config(arguments.config, arguments.set, {"train.threads": ("--threads", arguments.threads)})
    except GptError as error:
        sys.exit("\n".join(error.lines()))


def resolved(config: Config) -> tuple[Config, torch.device]:
    """The config as this machine trains it, without a compiler, and its device."""
    use_threads(config.train.threads)
    reuse_memory()
    device = choose_device(config.train.device)
    dtype = choose_dtype(config.train.dtype, device, config.model.d_model)
    return config.changed(train={"device": str(device), "dtype": dtype, "compile": "off"}), device


def fresh_checkpoint(config: Config) -> Checkpoint:
    """A model with random weights, and tokens of eight bytes beside the single ones."""
    vocab_size = config.tokenizer.vocab_size or 257
    longer = [f"\0{number:07}".encode() for number in range(vocab_size - 257)]
    tokenizer = BytePairTokenizer("bpe", WORD_PATTERN, [*(bytes([byte]) for byte in range(256)), *longer])
    model = GPT(config.model, tokenizer.vocab_size, torch.Generator().manual_seed(0))
    return Checkpoint(config, tokenizer, Progress.at_the_start(0, "", {}), dict(model.state_dict()), {})


def machine(device: torch.device, rounds: int, threads: int | None = None) -> str:
    """What was measured on."""
    num_threads = counted(threads or torch.get_num_threads(), "thread")
    return f"{processor()}, {device}, {num_threads}, torch {torch.__version__}, {counted(rounds, 'round')}"


def show(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table under its title."""
    print(f"{title}\n{table([tuple(heads), *map(tuple, rows)])}\n", flush=True)


def finish(arguments: argparse.Namespace, **found: Any) -> None:
    """Print all figures as JSON where they are asked for; rows are dataclasses."""
    if arguments.json:
        print(json.dumps({"config": arguments.config, "torch": torch.__version__, **found}, default=vars))
