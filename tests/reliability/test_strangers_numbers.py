"""Numbers that no training reaches, and values of other types, in the files of a run: a row or a sentence, never a crash."""

import json
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.faults import some_of
from support.fuzzing import require_answer
from support.helpers import RunCommand
from support.strangers import Parts

BIG = 10**400  # more than a float can hold
CONTINUED = ["train", "--out", "runs/smoke", "--resume", "--max-steps", "22", "--quiet"]
LISTS = [["runs"], ["runs", "--json"], ["report"], ["report", "runs/smoke", "--json"], ["report", "--out", "r.html"]]
USES = [
    ["info", "runs/smoke"],
    ["sample", "--run", "runs/smoke", "--prompt", "The", "--max-new-tokens", "1"],
    ["eval", "--run", "runs/smoke", "--data", "text.txt"],
    ["export", "--run", "runs/smoke", "--format", "safetensors", "--out", "x.safetensors"],
    ["train", "--init-from", "runs/smoke", "--data", "text.txt", "--out", "runs/tuned", "--max-steps", "1", "--quiet"],
]


def change(path: Path, alter: Callable[[dict[str, Any], dict[str, Any]], object]) -> None:
    """Alter the metadata and the tensors' entries of a checkpoint, and give it right digests."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    entries = json.loads(content[8 : 8 + length])
    metadata = entries.pop("__metadata__")
    alter(metadata, entries)
    raw = {key: value for key, value in metadata.items() if not key.startswith("digest")}
    path.write_bytes(Parts(metadata, entries, content[8 + length :], raw).joined())


def with_progress(**values: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    """Alters what a checkpoint says about the progress, and its step."""

    def alter(metadata: dict[str, Any], _: dict[str, Any]) -> None:
        metadata["progress"] = json.dumps({**json.loads(metadata["progress"]), **values})
        metadata["step"] = str(values.get("step", metadata["step"]))

    return alter


def with_metadata(key: str, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda metadata, _: metadata.update({key: value})


def with_shape(*shape: int) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda _, entries: entries["token_embedding.weight"].update(shape=list(shape))


BEST, LAST = "best.safetensors", "step-00000020.safetensors"
ALTERED = {
    "best loss": (BEST, with_progress(best_loss=BIG)),
    "tokens of the corpus": (BEST, with_progress(num_training_tokens=BIG)),
    "a shape": (LAST, with_shape(BIG)),
    "a shape of large numbers": (LAST, with_shape(10**200, 10**200)),
    "a negative shape": (LAST, with_shape(-1, -1)),
    "seconds without end": (LAST, with_progress(seconds=1e300)),
    "seconds beyond floats": (LAST, with_progress(seconds=BIG)),
    "seconds that cancel": (LAST, with_progress(seconds=1e300, elapsed=-1e300)),
    "a step of 64 bits": (LAST, with_progress(step=2**63, observed_step=2**63)),
    "a long step": (LAST, with_progress(step=10**30, observed_step=10**30)),
    "a step beyond floats": (LAST, with_progress(step=BIG, observed_step=BIG)),
} | {
    f"{key} {value!r} in {name}": (name, with_metadata(key, value))
    for name in (BEST, LAST)
    for key in ("config", "progress")
    for value in (5, [])
}


@pytest.fixture
def beside(copied: Path, here: Path) -> Path:
    """A run to alter, beside one that is whole."""
    shutil.copytree(copied, "runs/whole")
    (here / "text.txt").write_text("The value of a text is what it says. " * 99)
    return copied


@pytest.mark.parametrize("what", some_of(list(ALTERED)))
def test_in_a_checkpoint(what: str, beside: Path, run: RunCommand) -> None:
    name, alter = ALTERED[what]
    change(beside / "checkpoints" / name, alter)
    for command in LISTS:
        outcome = run(*command)
        require_answer(outcome, 0)
        if command == ["runs"]:
            rows = {row.split()[0]: row for row in outcome.out.splitlines()}
            assert "finished" in rows["whole"]
            assert ("damaged" in rows["smoke"]) != what.startswith("seconds")  # which the list does not say
    for command in USES:
        require_answer(run(*command), 0, 4)
    continued = run(*CONTINUED)
    require_answer(continued, 0)
    assert ("trying the checkpoint before it" in continued.err) == (name == LAST)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *some_of([("validation_loss", BIG), ("tokens", -BIG), ("tokens_per_second", BIG), ("step", BIG)], 1),
        *(("seconds", 10**300), ("stopped_by", "x")),
        *some_of([("stopped_by", ["steps"]), ("stopped_by", {"a": 1}), ("stopped_by", None)], 1),
    ],
    ids=str,
)
def test_in_an_outcome(key: str, value: Any, beside: Path, run: RunCommand) -> None:
    outcome = json.loads((beside / "outcome.json").read_text())
    (beside / "outcome.json").write_text(json.dumps(outcome | {key: value}))
    for command in LISTS:
        outcome = run(*command)
        require_answer(outcome, 0)
        if command == ["runs"]:
            assert re.search("^smoke .*damaged.*this is not the outcome of a run", outcome.out, re.MULTILINE)
    require_answer(run(*CONTINUED), 0)


@pytest.mark.parametrize(
    "number", [*some_of(["9" * 30, "9" * 401, "9" * 5000], 1), "[" * 30_000], ids=lambda number: f"{len(number)}"
)
def test_in_the_logs(number: str, beside: Path, run: RunCommand) -> None:
    with (beside / "samples.txt").open("a") as file:
        file.write(f"\n=== step {number} ===\n")
    with (beside / "metrics.jsonl").open("a") as file:
        file.write(f'{{"step": {number}, "loss": {number}, "gradient_norm": 1}}\n{{"step": 21, "loss": {number}}}\n')
    for command in LISTS:
        require_answer(run(*command), 0)
    require_answer(run(*CONTINUED), 0)
