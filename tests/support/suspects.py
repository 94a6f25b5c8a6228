"""Files that would do something if any part of them ran, was imported, or was taken for a path."""

import copy
import json
import os
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from gpt_cli.checkpoints.checkpoint import Checkpoint
from gpt_cli.text.tokenizers import byte_letters
from gpt_cli.tools.exchange.export_hf import write_for_transformers
from support.strangers import intact

STRINGS = [
    "__import__('os').system('touch canary')", "os.system", "../../canary", "/etc/passwd", "file:///etc/passwd",
    "http://127.0.0.1:9/x", "!!python/object/apply:os.system ['touch canary']", "${jndi:ldap://127.0.0.1/x}",
    "{0.__class__.__init__.__globals__}", "%(x)s%n", "\x1b]0;x\x07", "`touch canary`", "$(touch canary)", "; touch canary",
    "\0", "__class__", "builtins.eval", "torch.load", "C:\\canary",
]  # fmt: skip


class Runs:
    """What a pickle runs when it is loaded."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch canary",)


def checkpoints() -> dict[str, bytes]:
    """Hostile checkpoints, whose digests match."""
    found = {"pickle": pickle.dumps(Runs()), "pickle-behind-length": (8).to_bytes(8, "little") + pickle.dumps(Runs())}
    parts = copy.deepcopy(intact())
    parts.metadata["config"]["data"]["source"] = "tinyshakespeare"
    found["far"] = parts.joined()
    for number, text in enumerate(STRINGS):
        for section, key in (("config", "model"), ("tokenizer", "kind"), ("progress", "data_digest")):
            parts = copy.deepcopy(intact())
            parts.metadata[section][key] = text
            found[f"{section}-{number}"] = parts.joined()
        parts = copy.deepcopy(intact())
        parts.metadata["config"].update({"_target_": text, "__class__": text})
        found[f"key-{number}"] = parts.joined()
        parts = copy.deepcopy(intact())
        lead_elsewhere(parts.metadata["config"], number)
        found[f"elsewhere-{number}"] = parts.joined()
        entries = dict(intact().entries)
        entries[text] = entries.pop("final_norm.weight")
        found[f"tensor-{number}"] = replace(intact(), entries=entries).joined()
    return found


def lead_elsewhere(config: dict[str, Any], number: int) -> None:
    """Write into the settings of a model what would read, connect or start something, if anything followed it."""
    texts = (STRINGS[number], "python-docs")
    source, validation_source = texts if number % 2 else texts[::-1]
    config["data"].update({"source": source, "validation_source": validation_source})
    config["train"].update({"log_to": ["tensorboard"], "compile": "on"})
    config["tokenizer"].update({"kind": "tiktoken", "name": "o200k_base"})


def exports(folder: Path, good: Checkpoint) -> list[Path]:
    """Directories as `gpt export` writes them, whose settings lead elsewhere."""
    found = [folder / f"exported-{number}" for number in range(len(STRINGS))]
    for number, path in enumerate(found):
        path.mkdir()
        write_for_transformers(path, good)
        config = json.loads((path / "config.json").read_text())
        lead_elsewhere(config["gpt_cli"]["config"], number)
        (path / "config.json").write_text(json.dumps(config))
    return found


def directories(folder: Path) -> list[Path]:
    """Hostile directories of transformers."""
    vocabulary = {letter: i for i, letter in enumerate(byte_letters())}
    step = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    tokenizer = {
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
        "added_tokens": [{"id": 256, "content": "<|endoftext|>"}],
        "pre_tokenizer": step,
    }
    config = {"model_type": "gpt2", "n_positions": 4, "n_embd": 4, "n_layer": 1, "n_head": 1}
    found: list[Path] = []
    for number, text in enumerate(STRINGS):
        variants = {
            "auto": (config | {"auto_map": {"AutoModelForCausalLM": text}, "trust_remote_code": True}, tokenizer, None),
            "kind": (config | {"model_type": text}, tokenizer, None),
            "cut": (config, tokenizer | {"pre_tokenizer": {"type": text}}, None),
            "index": (config, tokenizer, {"weight_map": {"wte.weight": text + ".safetensors"}}),
        }
        for name, parts in variants.items():
            found.append(folder / f"{name}-{number}")
            _directory(found[-1], *parts)
    return found


def _directory(path: Path, config: dict[str, Any], tokenizer: dict[str, Any], index: dict[str, Any] | None) -> None:
    """A directory of transformers with one tensor."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    content = safetensors.numpy.save({"wte.weight": np.zeros((257, 4), np.float32)})
    (path / ("weights.bin" if index else "model.safetensors")).write_bytes(content)
    if index:
        (path / "model.safetensors.index.json").write_text(json.dumps(index))
    (path / "modeling_x.py").write_text("open('canary', 'w')")
    (path / "__init__.py").write_text("open('canary', 'w')")
    (path / "pytorch_model.bin").write_bytes(pickle.dumps(Runs()))


def run_directory(path: Path, trained: Path, text: str) -> Path:
    """A copy of a run whose files, but for its checkpoints, say this text wherever they can."""
    shutil.copytree(trained, path)
    (path / "checkpoints/step-00000001.safetensors").write_bytes(pickle.dumps(Runs()))
    for name in ("attention", "logs/tensorboard"):
        (path / name).mkdir(parents=True, exist_ok=True)
    parts = copy.deepcopy(intact())
    parts.metadata["config"]["inspect"]["prompt"] = text
    (path / "attention/step-00000001.safetensors").write_bytes(parts.joined())
    (path / "config.yaml").write_text(config(text))
    with (path / "metrics.jsonl").open("a") as metrics:
        metrics.write(json.dumps({"step": 9, "loss": 2.0, "validation_loss": 2.0, text: text}) + "\n")
    (path / "samples.txt").write_text(f"=== step 1 ===\n{text}\n")
    (path / "outcome.json").write_text(json.dumps({"stopped_by": "steps", "step": 1, "validation_loss": text}))
    (path / "logs/tensorboard/sent.jsonl").write_text(json.dumps({text: text}) + "\n")
    (path / "sitecustomize.py").write_text("open('canary', 'w')")
    return path


def sweep_directory(path: Path, text: str) -> Path:
    """The directory of a sweep whose record says this text wherever it can."""
    path.mkdir()
    record = {"base": text, "points": [{text: text}], "config": {"data": {"source": text}}, text: text}
    (path / "sweep.json").write_text(json.dumps(record))
    return path


def config(text: str) -> str:
    """A config with this text as plain YAML, where a tag may stand, and as a source."""
    return f"data:\n  source: {json.dumps(text)}\n  separator: {text!r}\nmodel: {text}\n"


def sweep(text: str) -> str:
    """A sweep with this text as its base and its values."""
    return f"base: {json.dumps(text)}\ngrid:\n  data.source: [{json.dumps(text)}, {text}]\n"
