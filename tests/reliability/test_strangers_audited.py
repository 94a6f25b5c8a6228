"""Under Python's audit, hostile checkpoints and directories run, import, connect and open nothing of their own choice."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from support.strangers import intact

from gpt_cli.exchange.tokenizer_json import byte_letters

STRINGS = [
    "__import__('os').system('touch canary')", "os.system", "../../canary", "/etc/passwd", "file:///etc/passwd",
    "http://127.0.0.1:9/x", "!!python/object/apply:os.system ['touch canary']", "${jndi:ldap://127.0.0.1/x}",
    "{0.__class__.__init__.__globals__}", "%(x)s%n", "\x1b]0;x\x07", "`touch canary`", "$(touch canary)", "; touch canary",
    "\0", "__class__", "builtins.eval", "torch.load", "C:\\canary",
]  # fmt: skip


class _Runs:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch canary",)


def checkpoints() -> dict[str, bytes]:
    """Hostile checkpoints, whose digests match."""
    found = {"pickle": pickle.dumps(_Runs()), "pickle-behind-length": (8).to_bytes(8, "little") + pickle.dumps(_Runs())}
    for number, text in enumerate(STRINGS):
        for section, key in (("config", "model"), ("tokenizer", "kind"), ("progress", "data_digest")):
            parts = copy.deepcopy(intact())
            parts.metadata[section][key] = text
            found[f"{section}-{number}"] = parts.joined()
        parts = copy.deepcopy(intact())
        parts.metadata["config"].update({"_target_": text, "__class__": text})
        found[f"key-{number}"] = parts.joined()
        entries = dict(intact().entries)
        entries[text] = entries.pop("final_norm.weight")
        found[f"tensor-{number}"] = replace(intact(), entries=entries).joined()
    return found


def directory(path: Path, config: dict[str, Any], tokenizer: dict[str, Any], index: dict[str, Any] | None) -> None:
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
    (path / "pytorch_model.bin").write_bytes(pickle.dumps(_Runs()))


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
            directory(found[-1], *parts)
    return found


def test_files_of_strangers_cause_nothing(tmp_path: Path, tally: Callable[[str, int], None]) -> None:
    (tmp_path / "good.safetensors").write_bytes(intact().joined())
    hostile = directories(tmp_path)
    for name, content in checkpoints().items():
        hostile.append(tmp_path / f"{name}.safetensors")
        hostile[-1].write_bytes(content)
    # one of each kind, refused, shows what a refusal imports
    warm = [tmp_path / "good.safetensors", hostile[0], hostile[1], hostile[-1]]
    command = [sys.executable, "-m", "support.audited", *map(str, warm), "--", *map(str, hostile)]
    outcome = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=_environment(), check=False)
    assert outcome.returncode == 0, outcome.stderr
    assert json.loads(outcome.stdout) == []
    assert not list(tmp_path.rglob("canary"))
    tally("hostile checkpoints and directories: nothing runs, nothing else is opened", len(hostile))


def _environment() -> dict[str, str]:
    folders = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}


def test_the_audit_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link of the directory itself leads outside: following it is what the user asked for, and the audit sees it."""
    (tmp_path / "outside.safetensors").write_bytes(intact().joined())
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.json").symlink_to(tmp_path / "outside.safetensors")
    good = str(tmp_path / "outside.safetensors")
    command = [sys.executable, "-m", "support.audited", good, "--", str(tmp_path / "a")]
    outcome = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=_environment(), check=False)
    assert "config.json" in outcome.stdout
