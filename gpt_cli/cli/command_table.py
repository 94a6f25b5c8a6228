"""The commands of `gpt`: what help says of them, in which order, and their functions of Python."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# what takes less memory, for each command
MEMORY_HINTS = {
    "gpt train": "set train.micro_batch_size to a smaller divisor of train.batch_size, or choose a smaller model",
    "gpt sample": "ask for less with --num-samples or --max-new-tokens, or give fewer prompts",
    "gpt attn-dump": "choose fewer with --layers 0 and --heads 0, or use a shorter prompt",
    "gpt explain": "use a shorter prompt",
    "gpt heads": "choose fewer with --heads 0, or use a shorter prompt",
    "gpt lens": "use a shorter prompt, or fewer --max-tokens",
    "gpt patch": "choose fewer with --layers 0 and --heads 0, or use shorter prompts",
    "gpt compare": "use fewer --max-tokens",
    "gpt eval": "name fewer runs with --run, or a shorter text with --data",
    "gpt bench": "set train.batch_size to a smaller number, or choose a smaller model",
    "gpt sweep": "set train.micro_batch_size to a smaller divisor of train.batch_size, or choose smaller models",
    "gpt report": "name fewer runs",
}

# commands made from requests, which are imported when they are named: the first sentence of their help, and examples
REQUESTS: dict[str, tuple[str, ...]] = {
    "train": (
        "Train a model on text and save it, with its tokenizer, in a run directory.",
        "gpt train --data my.txt",
    ),
    "sample": ("Continue prompts.", "gpt sample --prompt 'The value of' --num-samples 3"),
    "info": (
        "Count parameters, operations and memory; of a checkpoint, verify every byte.",
        "gpt info small, gpt info runs/tiny",
    ),
    "attn-dump": (
        "Show or save where each head looks.",
        "gpt attn-dump --prompt 'The value of' --out attention.png",
    ),
    "heads": (
        "Report what each head attends to, how much the loss depends on it, and which tokens it promotes.",
        "gpt heads --sort induction, gpt heads --passages 3 --circuits --out heads.html",
    ),
    "lens": (
        "Report what each layer would already predict.",
        "gpt lens --prompt 'The value of', gpt lens --tuned, gpt lens --out lens.png",
    ),
    "compare": (
        "Compare two models on the same text.",
        "gpt compare runs/tiny runs/mine, gpt compare runs/tiny/checkpoints/step-00000500.safetensors runs/tiny",
    ),
    "patch": (
        "Find which parts of a model carry an answer, by patching activations of a clean prompt into a corrupt one.",
        "gpt patch --clean 'The value of' --corrupt 'The name of' --answer ' the'",
    ),
    "explain": (
        "Work through one head, step by step.",
        "gpt explain --prompt 'The value of', gpt explain --example journey",
    ),
    "tokens": (
        "Show how a text is cut into tokens: their ids and their pieces of the text.",
        "gpt tokens 'The value of', gpt tokens --tokenizer gpt2 'The value of'",
    ),
    "bench": (
        "Benchmark training and sampling against plain implementations and the limits of this machine.",
        "gpt bench --config tiny --json",
    ),
    "eval": (
        "Measure how well trained models predict a text: nats per token, perplexity, bits per byte.",
        "gpt eval --run runs/a --run runs/b --data my.txt",
    ),
    "export": (
        "Write a trained model for transformers or Ollama, as one file to share, as a page, or for a class.",
        "gpt export --run runs/tiny --out tiny-hf",
    ),
    "import": (
        "Make a run of an open model, for all commands: sample, attn-dump, explain, train with --init-from.",
        "gpt import tiny-gpt2 --out runs/tiny-again",
    ),
    "report": (
        "Show how runs trained: their curves, and in a page their samples, settings and attention too.",
        "gpt report, gpt report runs/a runs/b --out report.html",
    ),
    "sweep": (
        "Train a base config with lists or ranges of settings, one ordinary run each, and compare them.",
        "gpt sweep rates.yaml --dry-run, gpt sweep random.yaml --max-time 2m",
    ),
}
# the order in which help lists commands; groups follow
ORDER = [
    "train",
    "sample",
    "attn-dump",
    "explain",
    "heads",
    "lens",
    "patch",
    "compare",
    "eval",
    "tokens",
    "info",
    "export",
    "import",
    "report",
    "sweep",
    "bench",
    "completion",
    "help",
]

# groups of such commands, whose functions are those of gpt_cli.GROUP: examples; "" is what the group does by itself
GROUPS = {
    "config": {
        "check": "gpt config check my.yaml",
        "show": "gpt config show tiny --set model.d_model=192",
        "settings": "gpt config settings",
        "schema": "gpt config schema > schema.json",
    },
    "data": {
        "list": "gpt data list",
        "fetch": "gpt data fetch tinyshakespeare --out data",
        "stats": "gpt data stats my.txt, gpt data stats my.txt --config tiny",
        "prepare": "gpt data prepare my.jsonl --config tiny",
        "verify": "gpt data verify my.jsonl",
    },
    "runs": {
        "": "gpt runs --sort loss, gpt runs rm tiny",
        "rm": "gpt runs rm tiny runs/sweep/003-d_model-64 --yes",
    },
}


def place_of(name: str) -> int:
    """Where help lists a command: those of ORDER first."""
    return ORDER.index(name) if name in ORDER else len(ORDER)


def function_of(name: str) -> Any:
    """The function of Python that a command is: gpt_cli.data.list of `data list`."""
    from gpt_cli.config.suggest import FUNCTIONS

    module, _, last = FUNCTIONS.get(name, name.replace("-", "_").replace(" ", ".")).rpartition(".")
    return getattr(import_module(f"gpt_cli.{module or 'api'}"), last)
