"""`gpt bench --check-device`: run the same computations on a device and on the CPU, and compare the results."""

import platform
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from gpt_cli.attention_maps.file_formats import STAGES
from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.checkpoints.select import find_checkpoints
from gpt_cli.common import __version__
from gpt_cli.common.host import NOBODY, Host
from gpt_cli.common.machine.devices import (
    Ability,
    accelerator,
    choose_compile,
    choose_device,
    device_name,
    free_memory,
    processor,
    supports,
)
from gpt_cli.common.machine.memory import available_memory, reuse_memory
from gpt_cli.common.results import WIDTH, Result
from gpt_cli.common.tables import cut
from gpt_cli.common.units import size
from gpt_cli.config import Config
from gpt_cli.config.load import read_config
from gpt_cli.config.request import Request, read_request
from gpt_cli.errors import EnvironmentFailure, GptError, counted, together
from gpt_cli.sampling.request import SampleRequest
from gpt_cli.sampling.sample import sample
from gpt_cli.tools.bench.baselines import endless_state
from gpt_cli.tools.bench.request import BenchRequest
from gpt_cli.tools.interpret.attention import attention
from gpt_cli.tools.interpret.request import AttentionRequest
from gpt_cli.tools.reports.run_record import read_record
from gpt_cli.training.loop import train_whole
from gpt_cli.training.request import TrainRequest
from gpt_cli.training.step import compute_gradient, send

Figures = Mapping[str, np.ndarray]
Pair = tuple[Callable[[], Figures], Callable[[], Figures]]  # two computations that must agree
Verdict = Literal["equal", "within", "differs", "refused", "skipped"]

PROMPT = "The value of the function is an integer, and a list of values"
STEPS = 12
_COLUMNS = 80  # of an issue
# small enough for seconds on two cores, and wide enough for the kernels that larger models use
SIZES = (
    "model.context_length=64",
    "model.d_model=64",
    "model.num_heads=4",
    "data.validation_fraction=0.03",
    "train.dtype=float32",
    "train.learning_rate=1e-3",
    "train.log_every=1",
)


class Skipped(Exception):  # noqa: N818 - nothing is wrong
    """Raised for a check that needs something, such as bfloat16, that the device lacks."""


@dataclass(frozen=True)
class Bound:
    """The largest allowed difference between two arrays: `most` units; the sentence `reason` explains the number.

    `most` is 9 to 20 times the difference that another order of sums makes on a CPU. A unit, named `unit`, is 2^-bits
    times the largest magnitude in the expected array; without `bits`, a unit is 1.
    """

    most: float
    unit: str
    reason: str
    bits: int | None = None

    def difference(self, expected: Figures, computed: Figures) -> float:
        """Return the largest difference of equally named arrays, in units; inf if shapes differ, NaN if any has NaN."""
        assert expected.keys() == computed.keys()
        if any(expected[name].shape != computed[name].shape for name in expected):
            return np.inf
        differences = list[float]()
        for name, numbers in expected.items():
            apart = np.abs(numbers.astype(float) - computed[name]).max()
            differences.append(apart / np.abs(numbers).max() * 2**self.bits if self.bits and apart else apart)
        return float(np.max(differences))


GRADIENT = Bound(256, "roundings", "other orders of sums differ by up to 24 on a CPU", bits=24)
GRADIENT_16 = Bound(64, "roundings", "other orders of sums differ by up to 5 on a CPU", bits=9)
NATS = Bound(1e-5, "nats", "other orders of sums differ by up to 5e-7 on a CPU, the rounding of a loss")
WEIGHTS = Bound(8_000, "roundings", "other orders of sums differ by up to 700 on a CPU", bits=24)
STAGES_OF_HEADS = Bound(64, "roundings", "other orders of sums differ by up to 7 on a CPU", bits=24)

# the forms of attention, each with different training settings
MULTI_HEAD = ()
_ROPE = ("model.positions=rope", "train.micro_batch_size=2")
FORMS = {
    "multi-head": MULTI_HEAD,
    "grouped-query, rope, micro-batches": ("model.attention=grouped_query", *_ROPE),
    "latent, rope, micro-batches, Muon": ("model.attention=latent", *_ROPE, "train.optimizer=muon"),
}


class DeviceRuns:
    """Computations that checks compare, on one device; `folder` holds new runs. A setting is text like train.seed=1."""

    def __init__(self, device: str, folder: Path):
        self.device, self.folder = device, folder
        self.trained = cache(self.train)  # like `train`, but trains only once for the same settings

    def gradient(self, settings: tuple[str, ...]) -> Figures:
        """Compute the loss of a first batch of random tokens, and the gradient of each parameter: name -> array.

        Raises Skipped for bfloat16 on a device that lacks it.
        """
        if "train.dtype=bfloat16" in settings and not supports(torch.device(self.device), "bfloat16"):
            raise Skipped(f"{self.device} has no bfloat16 products")
        config = read_config("smoke", [*SIZES, *settings], {"train.device": ("device", self.device)})
        state = endless_state(config.changed(train={"compile": "off"}))
        losses = compute_gradient(state, send(state, 0))
        gradients = {name: _array(weight.grad) for name, weight in state.layout.owned.items()}
        return {"loss": _array(losses.sum()), **gradients}

    def train(self, settings: tuple[str, ...]) -> Path:
        """Train a new run of STEPS steps, and return its directory."""
        out = Path(tempfile.mkdtemp(dir=self.folder)) / "run"
        config = [f"train.max_steps={STEPS}", *SIZES, *settings]
        request = TrainRequest(config="smoke", settings=config, out=out, device=self.device)
        for _ in train_whole(request.find(NOBODY), NOBODY):
            pass
        return out

    def losses(self, settings: tuple[str, ...]) -> Figures:
        """Return the loss at each step of a run trained on this device with `settings`."""
        return {"loss": read_record(self.trained(settings)).metrics["loss"]}

    def sampled(self, run: Path) -> Figures:
        """Sample a greedy continuation of PROMPT from a run; return its tokens and their log-probabilities."""
        how = {"prompt": PROMPT, "max_new_tokens": 64, "greedy": True}
        (continuation,) = _answer(sample, SampleRequest, run=run, device=self.device, **how).samples
        return {"tokens": np.array(continuation.tokens), "log-probabilities": np.array(continuation.log_probabilities)}

    def attended(self, run: Path) -> Figures:
        """Compute all attention stages (weights, ...) of all heads of a run's model on PROMPT: name -> array."""
        return _answer(attention, AttentionRequest, run=run, device=self.device, prompt=PROMPT, stage=STAGES[1:]).stages


def checks(cpu: DeviceRuns, other: DeviceRuns) -> list[tuple[str, Bound, dict[str, Pair]]]:
    """Return all checks in groups: a title, a bound, and for each name a pair of functions whose results must agree."""

    def both(compute: Callable[[DeviceRuns], Figures]) -> Pair:
        return lambda: compute(cpu), lambda: compute(other)

    def by_form(compute: Callable[[DeviceRuns, tuple[str, ...]], Figures], *more: str) -> dict[str, Pair]:
        return {name: both(lambda runs, form=form: compute(runs, (*more, *form))) for name, form in FORMS.items()}

    gradients = by_form(DeviceRuns.gradient)
    # torch computes this attention in one operation, which has special kernels on many devices
    in_one_operation = both(lambda runs: runs.gradient(("model.dropout=0",)))
    twice = lambda: _weights(other.trained(MULTI_HEAD)), lambda: _weights(other.train(MULTI_HEAD))
    samples = by_form(lambda runs, form: runs.sampled(cpu.trained(form)))
    stages = both(lambda runs: runs.attended(cpu.trained(MULTI_HEAD)))
    return [
        ("gradient of a first step in float32", GRADIENT, {**gradients, "multi-head, no dropout": in_one_operation}),
        ("the same in bfloat16", GRADIENT_16, by_form(DeviceRuns.gradient, "train.dtype=bfloat16")),
        (f"losses of {STEPS} steps in float32", NATS, by_form(DeviceRuns.losses)),
        (f"weights after {STEPS} steps on the device", WEIGHTS, {"the same seed twice": twice}),
        ("greedy tokens and their log-probabilities", NATS, samples),
        ("attention on a prompt", STAGES_OF_HEADS, {"gpt attn-dump: every stage": stages}),
    ]


def _weights(run: Path) -> Figures:
    """Read the weights of a run's best checkpoint."""
    return {name: _array(tensor) for name, tensor in read_checkpoint(find_checkpoints(run)[0]).weights.items()}


def _array(tensor: torch.Tensor | None) -> np.ndarray:
    """Copy a tensor from any device to a float32 array."""
    assert tensor is not None
    return tensor.detach().float().cpu().numpy()


def _answer(work: Callable[..., Any], kind: type[Request], **fields: Any) -> Any:
    """Run the command function `work` on a request of class `kind`, without progress or notices; return its result."""
    request = read_request(kind, fields)
    return work(request, request.find(NOBODY), NOBODY)


@dataclass(frozen=True)
class Checked:
    """Outcome of one check; `difference` is in the unit of `Group.bound`, None if it is not finite or unknown."""

    name: str
    verdict: Verdict
    difference: float | None = None
    message: str | None = None  # why it was refused or skipped


@dataclass(frozen=True)
class Group:
    """Checks that share `bound`, the largest difference allowed between the two results of a check."""

    title: str
    bound: Bound
    checks: list[Checked]

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report: title and bound, the bound's reason, and the outcome of each check."""
        yield f"{self.title}: at most {self.bound.most:,g} {self.bound.unit}"
        yield f"({self.bound.reason})"
        for row in self.checks:
            apart = row.difference
            shown = "" if apart is None else f"{apart:,.0f}" if apart >= 10 else f"{apart:.2g}"
            yield f"  {row.name:<58}{shown:>8}  {row.verdict}"
            if row.message:
                yield f"    {row.message}"


@dataclass(frozen=True)
class DeviceCheck(Result):
    """Differences between the results of a device and those of the CPU of the same machine."""

    gpt: str
    torch: str
    python: str
    system: str
    device: str
    name: str
    memory: int | None  # free bytes, where they are known
    supports: dict[str, bool]
    processor: str
    threads: int
    groups: list[Group]

    def verdicts(self) -> Counter[Verdict]:
        """Count the checks by verdict: equal, within (the bound), differs, refused (the device failed), skipped."""
        return Counter(row.verdict for group in self.groups for row in group.checks)

    def as_text(self, width: int = WIDTH) -> str:
        """Return the report, 80 columns wide to paste into an issue: machine, checks in groups, counts of verdicts."""
        memory = "" if self.memory is None else f", {size(self.memory)} of memory free"
        can = ", ".join(what for what, has in self.supports.items() if has)
        cannot = ", ".join(what for what, has in self.supports.items() if not has)
        lines = [
            f"gpt {self.gpt}, torch {self.torch}, Python {self.python}, {self.system}",
            f"{self.device}: {self.name}{memory}",
            f"{self.device}: has {can or 'nothing of'}; lacks {cannot or 'nothing'}",
            f"beside the CPU: {self.processor}, {counted(self.threads, 'thread')}",
            "each check: the largest difference, in the unit of the bound above it",
        ]
        for group in self.groups:
            lines += ["", *group.lines()]
        verdicts = self.verdicts()
        counts = ", ".join(f"{verdicts[one]} {one}" for one in get_args(Verdict) if verdicts[one])
        rounding = "a rounding: 2^-24 of the largest number of an array, in bfloat16 2^-9"
        lines += ["", rounding, f"{self.device}: {counted(verdicts.total(), 'check')}: {counts}"]
        return "\n".join(cut(line, _COLUMNS) for line in lines)

    def failure(self) -> GptError | None:
        """Return an error if results differ beyond a bound or the device failed a check, else None."""
        tally, hint = self.verdicts(), "paste the lines of this check into an issue"
        wrong = (("gives numbers beyond a bound", tally["differs"]), ("fails", tally["refused"]))
        sentences = [f"{self.device} {what} in {counted(number, 'check')}" for what, number in wrong if number]
        errors = [EnvironmentFailure("‹check_device›", sentence, hint=hint) for sentence in sentences]
        return together(errors) if errors else None


def check_device(request: BenchRequest, _config: Config, host: Host) -> DeviceCheck:
    """Compare the requested device with the CPU in all checks; raise EnvironmentFailure if there is no such device."""
    reuse_memory()
    groups = list[Group]()
    try:
        device = choose_device(request.check_device or "auto")
    except EnvironmentFailure as error:  # the hint names --device, and the CPU if there is no accelerator
        hint = error.hint and error.hint.replace("‹device", "‹check_device")
        if accelerator() is None:
            hint = "‹check_device› cuda, mps or xpu, on a machine that has one"
        raise EnvironmentFailure("‹check_device›", error.sentence, hint=hint) from None
    with tempfile.TemporaryDirectory(prefix="gpt-check-") as folder:
        all_checks = checks(DeviceRuns("cpu", Path(folder)), DeviceRuns(str(device), Path(folder)))
        with host.started(f"checking {device}", sum(len(pairs) for _, _, pairs in all_checks), "checks") as count:
            for title, bound, pairs in all_checks:
                groups.append(Group(title, bound, []))
                for name, pair in pairs.items():
                    groups[-1].checks.append(_checked(name, bound, pair))
                    count(1)
    able = {what: supports(device, what) for what in get_args(Ability)}
    return DeviceCheck(
        gpt=__version__,
        torch=torch.__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release().partition('-')[0]} {platform.machine()}",
        device=str(device),
        name=device_name(device),
        memory=available_memory() if device.type == "cpu" else free_memory(device),
        supports=able | {"compile": choose_compile("auto", device, long=True) == "on"},
        processor=processor(),
        threads=torch.get_num_threads(),
        groups=groups,
    )


def _checked(name: str, bound: Bound, pair: Pair) -> Checked:
    try:
        expected, computed = (compute() for compute in pair)
        difference = bound.difference(expected, computed)
    except Skipped as reason:
        return Checked(name, "skipped", message=str(reason))
    except Exception as error:  # the device may lack anything; the other checks continue
        lines = f"{error}".strip().splitlines() or [type(error).__name__]
        return Checked(name, "refused", message=lines[0])
    verdict = "equal" if difference == 0 else "within" if difference <= bound.most else "differs"
    return Checked(name, verdict, difference if np.isfinite(difference) else None)
