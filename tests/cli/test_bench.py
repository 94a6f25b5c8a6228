from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.helpers import RunCommand

from gpt_cli.config import Config
from gpt_cli.config.reading import read_config
from gpt_cli.machine.memory import PROCESS_BYTES
from gpt_cli.measuring.attention import with_forms
from gpt_cli.measuring.needs import attention_bytes, beside_bytes, plain_bytes, sampling_bytes, together_bytes

QUICK = ["--config", "smoke", "--rounds", "1", "--tokens", "3"]


@pytest.fixture(autouse=True)
def _small_roof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpt_cli.measuring.roof._SIZE", 64)
    monkeypatch.setattr("gpt_cli.measuring.roof._READ", 1000)


def test_the_bench_prints_the_roof_and_the_forms(here: Path, run: RunCommand) -> None:
    outcome = run("bench", *QUICK)
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert "GFLOP/s, reading" in lines[1]
    assert lines[3] == "training smoke, 256 tokens a step; the roof is products"
    assert [line.split("  ")[0] for line in lines[4:8]] == ["implementation", "plain", "heads", "gpt train"]
    assert "sampling smoke, 3 tokens after 8; the roof is reading the weights" in lines
    assert list(here.iterdir()) == []


def test_its_json_is_alone_on_stdout(here: Path, run: RunCommand) -> None:
    found = json.loads(run("bench", *QUICK, "--json", "--set", "model.dropout=0").out)
    assert (found["config"], found["device"], found["rounds"]) == ("smoke", "cpu", 1)
    assert found["roof"]["flops"]["float32"] > 0
    assert found["training"][0]["ratio"] == found["sampling"][0]["ratio"] == 1
    for timing in found["training"]:
        assert timing["tokens_per_second"] * timing["seconds"] > 255.9


FORMS = ["--attention", *QUICK, "--set", "train.max_steps=2", "--set", "model.positions=rope"]


def test_forms_of_attention_are_compared(here: Path, run: RunCommand) -> None:
    outcome = run("bench", *FORMS, "--set", "train.max_time=5m")
    assert outcome.code == 0, outcome.err
    assert "train.max_time is not used: each form is trained for 2 steps" in outcome.err.splitlines()
    lines = outcome.out.splitlines()
    assert lines[0] == "one layer of attention without positions, forward and backward, 8 x 32 tokens of 32, float32"
    rows = [line.split("  ")[0] for line in lines[2:8]]
    assert rows[1:3] == ["multi_head, each head by itself", "query, key, value"]
    assert lines[9].startswith("whole models of ")
    assert lines[9].endswith(" parameters, smoke: 2 steps of training in float32, samples in float32")
    assert [line.split("  ")[0] for line in lines[11:]] == ["multi_head", "grouped_query", "latent"]
    assert list(here.iterdir()) == []


def test_what_was_measured_before_a_stop_is_told(run: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gpt_cli.cli.work.benching.sampling_variants", stop)
    outcome = run("bench", *QUICK)
    assert outcome.code == 130
    assert [line.split("  ")[0] for line in outcome.out.splitlines()][5:8] == ["plain", "heads", "gpt train"]


def test_the_json_of_the_forms_holds_every_figure(run: RunCommand) -> None:
    found = json.loads(run("bench", *FORMS, "--json").out)
    assert [layer["form"] for layer in found["layers"]][2] == "query, key, value"
    multi_head, grouped, latent = found["models"]
    # two blocks of width 32 in float32, two heads of which one is shared, a latent of 8 beside 8 that turn
    caches = [model["cache_bytes_per_token"] for model in (multi_head, grouped, latent)]
    assert caches == [2 * 64 * 4, 2 * 32 * 4, 2 * (8 + 8) * 4]
    assert multi_head["training_ratio"] == 1
    assert all(model["validation_loss"] > 0 for model in found["models"])
    assert found["dtype"] == "float32"


def test_wrong_values_are_told(run: RunCommand) -> None:
    assert run("bench", "--rounds", "0").err.startswith('error: --rounds: "0" is not allowed; use a whole number')
    assert run("bench", "--config", "smal").code == 2


def test_warming_up_and_building_are_shown(run: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpt_cli.cli.progress.LINE_SECONDS", 0.0)
    lines = run("bench", *QUICK).err.splitlines()
    assert [line.split(",")[0] for line in lines if line.startswith("the roof: ")][-6:] == [
        f"the roof: {n} of 6 rounds" for n in range(1, 7)
    ]
    assert {"building models to train", "building models to sample from"} <= {line.split(":")[0] for line in lines}


def test_what_is_measured_is_told_as_it_begins(here: Path, run: RunCommand) -> None:
    lines = [line.split(":")[0] for line in run("bench", *QUICK).err.splitlines()]
    assert lines == [f"measuring {what}" for what in ("the roof", "training", "products", "sampling")]
    assert run("bench", *QUICK, "--quiet").err == ""
    lines = run("bench", *FORMS).err.splitlines()
    assert lines[0] == "measuring layers: 12 runs"
    assert "measuring latent: 2 steps" in lines


def test_work_beside_busy_programs(here: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = run("bench", "--busy", "1", *QUICK)
    assert (outcome.code, outcome.err.splitlines()) == (
        2,
        [
            "error: OMP_WAIT_POLICY: it fixes how threads wait, and --busy compares two ways; unset it",
            "hint: env -u OMP_WAIT_POLICY gpt bench --busy 1",
        ],
    )
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setattr("gpt_cli.measuring.beside.WATCH_EVERY", 0.01)
    monkeypatch.setattr("gpt_cli.measuring.beside.MIN_SECONDS", 0.0)
    outcome = run("bench", "--busy", "1", *QUICK)
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    assert lines[1].startswith("smoke beside 1 busy program: speed as a share of that alone, where ")
    assert [line.split("  ")[0] for line in lines[2:]] == ["work", "gpt train", *["gpt sample"] * 3]
    found = json.loads(run("bench", "--busy", "2", *QUICK, "--json").out)
    assert found["programs"] == 2
    assert [each["dtype"] for each in found["work"]] == ["float32", "float32", "bfloat16", "int8"]
    assert all(each["sleeping"] > 0 for each in found["work"])


def test_forms_of_attention_are_not_compared_beside_busy_programs(run: RunCommand) -> None:
    outcome = run("bench", "--attention", "--busy", "1")
    assert outcome.code == 2
    assert outcome.err == "error: --busy: --busy and --attention cannot be combined; leave one of them out\n"


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (("--busy", "1"), "error: --processes: --processes and --busy cannot be combined; leave one of them out"),
        (("--device", "cuda"), "error: --processes: it measures processes on the processor, not on cuda"),
        (("--set", "train.batch_size=6"), "error: --processes: 4 processes cannot share a batch of 6 sequences evenly"),
        (("--set", "train.micro_batch_size=4"), "error: --processes: 4 processes cannot share a batch of 8 sequences"),
    ],
)
def test_processes_that_cannot_be_measured_are_refused(run: RunCommand, flags: tuple[str, ...], line: str) -> None:
    outcome = run("bench", "--processes", "4", "--config", "smoke", *flags)
    assert outcome.code == 2
    assert outcome.err.startswith(line)


def test_a_batch_that_memory_cannot_hold_is_refused_with_one_that_fits(run: RunCommand) -> None:
    refused = run("bench", "--config", "small", "--set", "train.batch_size=65536")
    assert refused.code == 5
    assert refused.err.startswith("error: bench: 65,536 sequences of 128 tokens take about ")
    assert " of memory, and " in refused.err
    assert "hint: --set train.batch_size=" in refused.err


@pytest.mark.parametrize("kind", [["--attention"], ["--busy", "1"], ["--processes", "2"]], ids=lambda kind: kind[0][2:])
def test_each_kind_is_estimated_before_it_begins(
    kind: list[str], run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    refused = run("bench", *kind, *QUICK, "--set", "model.positions=rope", "--set", "train.batch_size=65536")
    assert refused.code == 5
    *_, sentence, hint = refused.err.splitlines()
    assert re.fullmatch(
        r"error: bench: 65,536 sequences of 32 tokens take about .* of memory, and .* are free", sentence
    )
    size = "micro_batch_size" if kind[0] == "--processes" else "batch_size"
    assert re.fullmatch(rf"hint: --set train\.{size}=\d+", hint)


def test_processes_that_memory_cannot_hold_are_refused_before_one_starts(
    run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpt_cli.cli.work.bench_room.available_memory", lambda: 2_500_000_000)
    monkeypatch.setattr("gpt_cli.measuring.together.subprocess.Popen", None)
    refused = run("bench", "--processes", "64", "--config", "smoke", "--set", "train.batch_size=64")
    assert refused.code == 5
    # 65 processes of 250 MB and their models; 9 fit
    assert "error: bench: 64 sequences of 32 tokens take about 16.4 GB of memory" in refused.err
    assert "hint: --processes 8 --set train.micro_batch_size=1" in refused.err


def test_estimates_grow_with_what_is_measured() -> None:
    def asked(*more: str) -> Config:
        resolved = {"dtype": "float32", "device": "cpu", "compile": "off"}
        return read_config("smoke", ["train.batch_size=64", "model.positions=rope", *more], {}).changed(train=resolved)

    def estimates(config: Config, tokens: int = 10) -> list[int]:
        attention = attention_bytes(config, with_forms(config))
        return [plain_bytes(config, tokens), beside_bytes(config, tokens), attention, together_bytes(config, 2)]

    least = estimates(asked())
    for more in ("model.num_blocks=4", "model.d_model=64", "tokenizer.vocab_size=4096", "train.batch_size=128"):
        assert all(now > then for now, then in zip(estimates(asked(more)), least, strict=True))
    assert sampling_bytes(asked(), 50) > sampling_bytes(asked(), 10)
    assert together_bytes(asked(), 4) > together_bytes(asked(), 2) + 2 * PROCESS_BYTES
