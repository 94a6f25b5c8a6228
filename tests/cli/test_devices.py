"""Every command that takes --device gives on a simulated accelerator what it gives on the CPU."""

import json
import math
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.accelerator import Accelerator
from support.helpers import RunCommand

import gpt_cli
from gpt_cli.checkpoints.load import load
from gpt_cli.common.machine.devices import supports
from gpt_cli.evaluation.nll import surprisals
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.fast import matmul
from gpt_cli.sampling.generate import generate
from gpt_cli.sampling.next_token import SamplingParameters
from gpt_cli.tools.bench import bench

TEXT = "def read(path):\n    return open(path).read()\n" * 12
# in whole passes of the model an accelerator computes attention in a kernel of its own, whose sums have another order
OF_KERNELS, OF_BFLOAT16 = 1e-5, 1e-2
# of the smoke run, whose window has 32 tokens -> by how much figures may differ
SHARE = {
    "sample --prompt The --greedy --max-new-tokens 40": 0.0,
    "eval --data text.txt --run runs/smoke --run runs/smoke --checkpoint last": OF_KERNELS,
    "heads --data text.txt --ablate zero --dtype float32": OF_KERNELS,
}
REST = {
    "attn-dump --prompt def --generate 6": OF_KERNELS,
    "eval --data text.txt --per-token": OF_KERNELS,
    "sample --prompt The --prompt If --num-samples 3 --top-k 20 --seed 5 --max-new-tokens 40": 0.0,
    "sample --prompt The --dtype bfloat16 --seed 5 --max-new-tokens 40": 0.0,
    "sample --prompt The --seed 5 --max-new-tokens 40 --without 0.1": 0.0,
    "eval --data text.txt --stride 8": OF_KERNELS,
    "eval --data text.txt --dtype bfloat16": OF_BFLOAT16,
    "eval --data text.txt --memorised --num-samples 2 --max-new-tokens 8": OF_KERNELS,
    "heads --data text.txt": 0.0,
    "heads --prompt def_read --query 2": 0.0,
    "heads --data text.txt --ablate mean --dtype float32": OF_KERNELS,
    "heads --data text.txt --ablate layer --dtype float32": OF_KERNELS,
    "heads --data text.txt --ablate zero --dtype bfloat16": OF_BFLOAT16,
}
long = pytest.mark.long


@pytest.fixture
def text(smoke_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A text to measure, in a folder of its own that has the smoke run too."""
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "runs").symlink_to(smoke_run.parent.resolve())
    monkeypatch.chdir(tmp_path)
    # a CPU multiplies in the form that is fastest there, with sums in other orders
    monkeypatch.setattr(matmul, "choose_form", lambda *_, **__: "linear")
    return tmp_path / "text.txt"


def figures(run: RunCommand, *arguments: str) -> dict[str, Any]:
    outcome = run(*arguments, "--json", exits=0)
    return json.loads(outcome.out.splitlines()[-1])


def require_equal(one: Any, other: Any, tolerance: float, where: str = "") -> None:
    """Compare what two devices report: numbers that are not whole may differ by `tolerance`, of 1 or of themselves."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            require_equal(one[key], other[key], tolerance, f"{where}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), where
        for number, pair in enumerate(zip(one, other, strict=True)):
            require_equal(*pair, tolerance, f"{where}.{number}")
    elif isinstance(one, float) and tolerance:
        assert math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance), f"{where}: {one} and {other}"
    else:
        assert one == other, where


@pytest.mark.parametrize(
    ("command", "tolerance"), [*SHARE.items(), *(pytest.param(*case, marks=long) for case in REST.items())]
)
@pytest.mark.usefixtures("text")
def test_a_command_finds_on_an_accelerator_what_it_finds_on_the_cpu(
    command: str, tolerance: float, run: RunCommand, accelerator: Accelerator
) -> None:
    on_cpu = figures(run, *command.split(), "--device", "cpu")
    assert not accelerator.copies.to_device
    on_device = figures(run, *command.split(), "--device", "sim:1")
    assert accelerator.copies.to_device
    require_equal(on_cpu, on_device, tolerance)


@long
@pytest.mark.usefixtures("text")
def test_bench_measures_an_accelerator(
    run: RunCommand, accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "_SIZE", 64)
    monkeypatch.setattr(bench, "_READ", 64)
    for device, dtypes in (("sim:1", {"float32", "bfloat16"}), ("sim", {"float32"})):
        if "bfloat16" not in dtypes:
            accelerator.lacks(torch.bfloat16)
        found = figures(run, "bench", "--config", "smoke", "--rounds", "1", "--tokens", "2", "--device", device)
        assert found["device"] == device
        assert {timing["dtype"] for timing in [*found["training"], *found["sampling"]]} == dtypes


@pytest.mark.usefixtures("text")
def test_a_model_trained_there_is_exported_imported_and_trained_on_there(
    run: RunCommand, accelerator: Accelerator
) -> None:
    ends = []
    for device in ("cpu", "sim:1"):
        steps = ("--data", "text.txt", "--max-steps", "2", "--dtype", "float32", "--device", device)
        for command in (
            ("train", "--config", "smoke", "--watch", "def read", *steps, "--out", f"{device}/first"),
            ("export", "--run", f"{device}/first", "--format", "hf", "--out", f"{device}/exported"),
            ("import", f"{device}/exported", "--out", f"{device}/imported"),
            ("train", "--init-from", f"{device}/imported", *steps, "--out", f"{device}/second"),
        ):
            run(*command, exits=0)
        ends.append(load_file(f"{device}/second/checkpoints/step-00000002.safetensors"))
    assert all(torch.equal(weight, ends[1][name]) for name, weight in ends[0].items())
    history = [figures(run, "heads", "--run", f"{device}/first", "--over-training") for device in ("cpu", "sim:1")]
    require_equal({**history[0], "run": ""}, {**history[1], "run": ""}, 0.0)


def test_the_picture_is_loaded_while_a_device_computes(
    run: RunCommand, accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    modules = list[str]()

    class Beside:
        def __init__(self, target: Any, args: list[str], daemon: bool) -> None:
            modules.extend(args)

        def start(self) -> None: ...

    monkeypatch.setattr("gpt_cli.cli.train_worker.Thread", Beside)
    for device in ("sim", "cpu"):
        short = ("--set", "tokenizer.kind=byte", "--set", "train.sample_every=null", "--max-steps", "1")
        run("train", "--config", "smoke", "--device", device, *short, "--out", device, exits=0)
        assert modules == ["gpt_cli.tools.reports.curves_picture"]


@long
@pytest.mark.usefixtures("text")
def test_a_loaded_model_may_change_its_device_between_calls(accelerator: Accelerator) -> None:
    model = gpt_cli.load("runs/smoke")
    texts = [model.sample("The", device=name, seed=1, max_new_tokens=8).samples[0].text for name in ("cpu", "sim:1")]
    assert texts[0] == texts[1]
    explained = model.explain("The end")  # which computes on the CPU
    model.model.to("sim:1")
    assert model.explain("The end").as_dict() == explained.as_dict()


@pytest.mark.usefixtures("text")
def test_a_device_without_wide_or_narrow_numbers_gives_the_same_figures(
    run: RunCommand, accelerator: Accelerator
) -> None:
    accelerator.lacks(torch.float64, torch.bfloat16)
    commands = (
        "sample --prompt The --seed 5 --max-new-tokens 40",
        "eval --data text.txt",
        "heads --data text.txt --ablate mean --dtype float32",
        "attn-dump --prompt def --generate 6",
        "patch --clean 'The value of' --corrupt 'The name of' --answer ' the' --estimate",
        "compare runs/smoke/checkpoints/step-00000010.safetensors runs/smoke --data text.txt",
    )
    for command in commands:
        found = [figures(run, *shlex.split(command), "--device", device) for device in ("cpu", "sim")]
        require_equal(found[0], found[1], OF_KERNELS)
    outcome = run(*commands[0].split(), "--dtype", "bfloat16", "--device", "sim")
    assert "sim does not support bfloat16 products, so gpt computes them in float32\n" in outcome.err
    assert outcome.out == run(*commands[0].split(), "--device", "cpu").out


@pytest.mark.usefixtures("text")
def test_what_a_device_cannot_do_is_an_error_with_a_way_out(run: RunCommand, accelerator: Accelerator) -> None:
    accelerator.lacks("aten::embedding")
    outcome = run("eval", "--data", "text.txt", "--device", "sim")
    assert (outcome.code, outcome.err.splitlines()[-2:]) == (
        5,
        ["error: device: gpt eval needs aten::embedding, which torch lacks on this device", "hint: --device cpu"],
    )
    outcome = run("eval", "--data", "text.txt", "--device", "sim:2", exits=5)
    assert outcome.err.endswith("finds 2 sim devices\nhint: --device sim\n")
    accelerator.resize(50_000)
    outcome = run("sample", "--prompt", "The")  # auto takes the accelerator
    assert (outcome.code, outcome.err.splitlines()[-2]) == (5, "error: device: it has too little memory for gpt sample")
    accelerator.resize(900_000)
    outcome = run("train", "--config", "smoke", "--out", "new", "--device", "sim", "--set", "tokenizer.kind=byte")
    assert outcome.code == 5
    assert outcome.err.splitlines()[-2:] == [
        "error: sim has too little memory for this model and 8 sequences at once",
        "hint: --set train.micro_batch_size=4; or --device cpu",
    ]


def test_the_host_waits_once_for_a_token_and_once_for_an_evaluation(smoke_run: Path, accelerator: Accelerator) -> None:
    loaded = load(smoke_run)
    model, ids = loaded.model.to("sim"), np.arange(321) % 500

    def waits(work: Any) -> int:
        before = len(accelerator.syncs)
        assert list(work)
        return len(accelerator.syncs) - before

    decoder, parameters = Decoder(model), SamplingParameters()
    supports(torch.device("sim:0"), "graphs")  # waits once for all
    # past the window, and with rows of different length
    assert waits(generate(decoder, [[1, 2, 3], [4]], parameters, max_new_tokens=40, num_samples=2)) == 40
    assert waits(surprisals(model, ids, stride=32, batch_size=2)) == 5
