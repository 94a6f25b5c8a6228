"""The check of a device finds what is wrong there: numbers, operations, formats."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.accelerator import Accelerator
from support.faults import SCALE

from gpt_cli.common.host import NOBODY
from gpt_cli.config import Config
from gpt_cli.model import GPT
from gpt_cli.tools.bench import device_check
from gpt_cli.tools.bench.device_check import (
    GRADIENT,
    NATS,
    Bound,
    Checked,
    DeviceCheck,
    DeviceRuns,
    Figures,
    Pair,
    check_device,
    checks,
)
from gpt_cli.tools.bench.request import BenchRequest

Only = Callable[..., None]
GRADIENTS = "gradient of a first step in float32"


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings of a smaller model, of four steps in place of twelve."""
    fewer = (
        "data.validation_fraction=0.01",
        "model.context_length=32",
        "model.num_blocks=1",
        "train.sample_every=null",
    )
    monkeypatch.setattr(device_check, "SIZES", (*device_check.SIZES, *fewer))
    monkeypatch.setattr(device_check, "STEPS", 4)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Only:
    """Leaves of all checks the groups with these titles."""

    def leave(*titles: str) -> None:
        def some(cpu: DeviceRuns, other: DeviceRuns) -> Any:
            return [group for group in checks(cpu, other) if group[0] in titles]

        monkeypatch.setattr(device_check, "checks", some)

    return leave


def found_on(device: str) -> DeviceCheck:
    return check_device(BenchRequest(check_device=device), Config(), NOBODY)


def verdicts(found: DeviceCheck) -> dict[str, str]:
    return {row.name: row.verdict for group in found.groups for row in group.checks}


@pytest.mark.slow
def test_the_simulated_device_passes(accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    if SCALE < 1:  # multi-head attention is in other checks too
        monkeypatch.setattr(device_check, "FORMS", dict([*device_check.FORMS.items()][-1:]))
    else:
        monkeypatch.undo()  # of what makes it short
    found = found_on("sim")
    assert found.failure() is None
    assert set(verdicts(found).values()) <= {"equal", "within"}, found.as_text()
    for group in found.groups[0], found.groups[2], found.groups[3]:  # training in float32
        assert {row.verdict for row in group.checks} == {"equal"}, found.as_text()
    lines, counts = found.as_text().splitlines(), found.verdicts()
    assert max(map(len, lines)) <= 80
    assert lines[-1] == f"sim: {counts.total()} checks: {counts['equal']} equal, {counts['within']} within"
    assert found.supports["float64"]
    assert json.loads("".join(found.as_json()))["groups"][0]["bound"]["most"] == 256


# without dropout, an accelerator computes attention in one operation of torch's
@pytest.mark.parametrize(
    ("operation", "unharmed"), [("aten::_softmax", {"multi-head, no dropout"}), ("aten::mm", set())]
)
def test_an_operation_that_is_wrong_by_a_thousandth_is_noticed(
    accelerator: Accelerator, only: Only, operation: str, unharmed: set[str]
) -> None:
    def spoil(op: Any, args: list[Any], kwargs: dict[str, Any], result: Any) -> None:
        if op._schema.name == operation:
            result.mul_(1.001)

    accelerator.listeners.append(spoil)
    only(GRADIENTS, "attention on a prompt")
    found = found_on("sim")
    wrong = verdicts(found)
    assert {row.name for row in found.groups[0].checks if row.verdict != "differs"} == unharmed
    assert wrong["gpt attn-dump: every stage"] == "differs"
    assert (found.groups[0].checks[0].difference or 0) > 10 * GRADIENT.most
    failure = found.failure()
    assert failure is not None
    assert failure.exit_code == 5


def test_an_operation_that_is_missing_is_refused_and_the_others_go_on(accelerator: Accelerator, only: Only) -> None:
    accelerator.lacks("aten::gelu")
    only(GRADIENTS, "weights after 4 steps on the device")
    found = found_on("sim")
    refused = found.groups[0].checks
    assert {row.verdict for row in refused} == {"refused"}
    assert refused[0].message == "The operator 'aten::gelu' is not currently implemented for the SIM device."
    assert verdicts(found)["the same seed twice"] == "refused"
    assert str(found.failure()) == "check_device: sim fails in 5 checks"
    assert f"    {refused[0].message}" in found.as_text().splitlines()


def test_a_device_without_bfloat16_skips_it(accelerator: Accelerator, only: Only) -> None:
    accelerator.lacks(torch.bfloat16)
    only("the same in bfloat16")
    found = found_on("sim")
    rows = [row for group in found.groups for row in group.checks]
    assert len(rows) == 3
    assert {(row.verdict, row.message) for row in rows} == {("skipped", "sim has no bfloat16 products")}
    assert not found.supports["bfloat16"]
    assert found.failure() is None


def test_another_order_of_sums_is_within_the_bounds_but_not_equal(only: Only, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, heads one by one in place of all at once."""
    made, gradient, fused = GPT.__init__, DeviceRuns.gradient, iter([True, False] * 4)

    def one_by_one(side: DeviceRuns, settings: Any) -> Figures:
        whole = next(fused)
        monkeypatch.setattr(GPT, "__init__", lambda self, *args: (made(self, *args), self.use_fused(whole))[0])
        return gradient(side, settings)

    monkeypatch.setattr(DeviceRuns, "gradient", one_by_one)
    only(GRADIENTS)
    (group,) = found_on("cpu").groups
    assert {row.verdict for row in group.checks} == {"within"}
    assert max(row.difference or 0 for row in group.checks) < GRADIENT.most / 8


def figures(*numbers: float) -> Callable[[], Figures]:
    return lambda: {"loss": np.array(numbers)}


@pytest.mark.parametrize(
    ("bound", "pair", "verdict", "difference"),
    [
        (NATS, (figures(1, 2), figures(1, 2)), "equal", 0),
        (NATS, (figures(1, 2), figures(1, 2 + 2**-20)), "within", 2**-20),
        (NATS, (figures(1, 2), figures(1, 2.125)), "differs", 0.125),
        (NATS, (figures(1, 2), figures(1, float("nan"))), "differs", None),
        (NATS, (figures(1, 2), figures(1)), "differs", None),
        (GRADIENT, (figures(1, 4), figures(1 + 2**-20, 4)), "within", 4),  # 2^-24 of 4
    ],
)
def test_the_largest_difference_decides(bound: Bound, pair: Pair, verdict: str, difference: float | None) -> None:
    assert device_check._checked("x", bound, pair) == Checked("x", verdict, difference, None)  # type: ignore[arg-type]


def test_a_check_leaves_nothing_behind(only: Only, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    only("weights after 4 steps on the device")
    assert verdicts(found_on("cpu")) == {"the same seed twice": "equal"}
    assert list(tmp_path.iterdir()) == []
