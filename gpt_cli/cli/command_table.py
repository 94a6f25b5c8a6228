"""List the commands of `gpt` in a table, with help and examples, and find the Python function of a command."""

from importlib import import_module
from typing import Any, NamedTuple


class CommandRow(NamedTuple):
    """A command or group in TABLE. All fields are strings, so that help need not import the slow request classes."""

    sentence: str  # the first sentence of its help
    example: str = ""  # or several, joined by ", gpt"
    memory: str | None = None  # the hint if memory runs out: what would take less
    drive: str = ""  # the module of cli/ whose function `drive` runs the command, if it prints while it works


# in the order in which help lists them
TABLE = {
    "train": CommandRow(
        "Train a model on text and save it, with its tokenizer, in a run directory.",
        "gpt train --data my.txt",
        memory="set train.micro_batch_size to a smaller divisor of train.batch_size, or choose a smaller model",
        drive="train",
    ),
    "sample": CommandRow(
        "Continue prompts.",
        "gpt sample --prompt 'The value of' --num-samples 3",
        memory="lower --num-samples or --max-new-tokens, or give fewer prompts",
        drive="sample",
    ),
    "attn-dump": CommandRow(
        "Show or save where each head looks.",
        "gpt attn-dump --prompt 'The value of' --out attention.png",
        memory="choose fewer with --layers 0 and --heads 0, or use a shorter prompt",
    ),
    "explain": CommandRow(
        "Work through one head, step by step.",
        "gpt explain --prompt 'The value of', gpt explain --example journey",
        memory="use a shorter prompt",
    ),
    "heads": CommandRow(
        "Report what each head attends to, how much the loss depends on it, and which tokens it promotes.",
        "gpt heads --sort induction, gpt heads --passages 3 --circuits --out heads.html",
        memory="choose fewer with --heads 0, or use a shorter prompt",
    ),
    "lens": CommandRow(
        "Report what each layer would already predict.",
        "gpt lens --prompt 'The value of', gpt lens --tuned, gpt lens --out lens.png",
        memory="use a shorter prompt, or fewer --max-tokens",
    ),
    "patch": CommandRow(
        "Find which parts of a model carry an answer, by patching activations of a clean prompt into a corrupt one.",
        "gpt patch --clean 'The value of' --corrupt 'The name of' --answer ' the'",
        memory="choose fewer with --layers 0 and --heads 0, or use shorter prompts",
    ),
    "compare": CommandRow(
        "Compare two models on the same text.",
        "gpt compare runs/tiny runs/mine, gpt compare runs/tiny/checkpoints/step-00000500.safetensors runs/tiny",
        memory="use fewer --max-tokens",
    ),
    "eval": CommandRow(
        "Measure how well trained models predict a text: nats per token, perplexity, bits per byte.",
        "gpt eval --run runs/a --run runs/b --data my.txt",
        memory="name fewer runs with --run, or a shorter text with --data",
    ),
    "tokens": CommandRow(
        "Show how a text is cut into tokens: their ids and their pieces of the text.",
        "gpt tokens 'The value of', gpt tokens --tokenizer gpt2 'The value of'",
    ),
    "info": CommandRow(
        "Count parameters, operations and memory; of a checkpoint, verify every byte.",
        "gpt info small, gpt info runs/tiny",
    ),
    "export": CommandRow(
        "Write a trained model for transformers or Ollama, as one file to share, as a page, or for a class.",
        "gpt export --run runs/tiny --out tiny-hf",
    ),
    "import": CommandRow(
        "Make a run of an open model, for all commands: sample, attn-dump, explain, train with --init-from.",
        "gpt import tiny-gpt2 --out runs/tiny-again",
    ),
    "report": CommandRow(
        "Show how runs trained: their curves, and in a page their samples, settings and attention too.",
        "gpt report, gpt report runs/a runs/b --out report.html",
        memory="name fewer runs",
    ),
    "sweep": CommandRow(
        "Train a base config with lists or ranges of settings, one ordinary run each, and compare them.",
        "gpt sweep rates.yaml --dry-run, gpt sweep random.yaml --max-time 2m",
        memory="set train.micro_batch_size to a smaller divisor of train.batch_size, or choose smaller models",
        drive="sweep",
    ),
    "bench": CommandRow(
        "Benchmark training and sampling against plain implementations and the limits of this machine.",
        "gpt bench --config tiny --json",
        memory="set train.batch_size to a smaller number, or choose a smaller model",
    ),
    "completion": CommandRow("Print a script for shell completion of gpt.", "gpt completion bash >> ~/.bashrc"),
    "help": CommandRow("Show the flags of a command, as its --help does.", "gpt help sample"),
    "config": CommandRow("Check, show and describe configs."),
    "data": CommandRow("List and fetch corpora; count, prepare and verify texts."),
    "runs": CommandRow(
        "List runs: state, steps, validation loss, size, age, and what differs from a shipped config.",
        "gpt runs --sort loss, gpt runs rm tiny",
    ),
    "config check": CommandRow("Check a config and report every mistake in it.", "gpt config check my.yaml"),
    "config show": CommandRow(
        "Show a config with all its settings, defaults included.", "gpt config show tiny --set model.d_model=192"
    ),
    "config settings": CommandRow(
        "List every setting: its default, what it allows, and what it means.", "gpt config settings"
    ),
    "config schema": CommandRow(
        "Show the JSON schema of configs, with which editors complete and check settings.",
        "gpt config schema > schema.json",
    ),
    "data list": CommandRow("List the corpora that --data accepts by name.", "gpt data list"),
    "data fetch": CommandRow(
        "Fetch corpora into the per-user cache, check their digests, and list their paths.",
        "gpt data fetch tinyshakespeare --out data",
    ),
    "data stats": CommandRow(
        "Count the documents, characters, bytes and lines of a text; with --config, estimate its tokens.",
        "gpt data stats my.txt, gpt data stats my.txt --config tiny",
    ),
    "data prepare": CommandRow(
        "Make the tokenizer and the tokens of a text, so that gpt train with this config starts at once.",
        "gpt data prepare my.jsonl --config tiny",
    ),
    "data verify": CommandRow(
        "Read every byte of a text and of the tokens made from it, and compare them with their digests.",
        "gpt data verify my.jsonl",
    ),
    "runs rm": CommandRow(
        "Remove runs, but neither a run that is being trained nor files that no run wrote.",
        "gpt runs rm tiny runs/sweep/003-d_model-64 --yes",
        drive="runs",
    ),
}


def below(group: str) -> list[str]:
    """Return the names of the commands in `group`; the group "" is `gpt` itself, and contains the other groups too."""
    return [last for above, _, last in (name.rpartition(" ") for name in TABLE) if above == group]


def function_of(name: str) -> Any:
    """Return the Python function of a command: gpt_cli.data.list for `data list`."""
    from gpt_cli.config.suggest import FUNCTIONS

    module, _, last = FUNCTIONS.get(name, name.replace("-", "_").replace(" ", ".")).rpartition(".")
    return getattr(import_module(f"gpt_cli.{module or 'api'}"), last)
