"""What a user gets to read when something is wrong: exact texts and exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.helpers import Outcome, RunCommand

import gpt_cli.cli.app as app
from gpt_cli.cli import sample as sample_module

TABLE = [
    (["trian"], 2, ["error: gpt: no such command 'trian'; see gpt --help", "hint: did you mean train?"]),
    (["train"], 2, ["error: gpt train: --config is missing; name a YAML file or a shipped config", "hint: gpt train --config tiny"]),
    (["train", "--confg", "x"], 2, ['error: gpt train: no such flag "--confg"; see gpt train --help', "hint: did you mean --config?"]),
    (["train", "--config", "smoke", "extra"], 2, ["error: gpt train: got unexpected extra argument(s) (extra); see gpt train --help"]),
    (["train", "--config", "smal"], 2, [
        'error: "smal": no such config file', "hint: did you mean --config small? shipped configs: grouped-query, latent, multi-head, shakespeare, shakespeare-cpu, small, smoke, tiny"]),
    (["train", "--config", "smoke", "--max-steps", "0"], 2, ["error: --max-steps: 0 is out of range; use a whole number from 1"]),
    (["train", "--config", "smoke", "--seed", "x"], 2, ['error: --seed: "x" is not a whole number; use a whole number from 0']),
    (["train", "--config", "smoke", "--dtype", "fp16"], 2, ['error: --dtype: "fp16" is not allowed; use auto | float32 | bfloat16']),
    (["train", "--config", "smoke", "--device", "tpu"], 2, ['error: --device: "tpu" is not allowed; use auto | cpu | cuda | cuda:N']),
    (["train", "--config", "smoke", "--resume", "--overwrite"], 2, ["error: --overwrite: contradicts --resume; use one of them"]),
    (["train", "--resume", "--out", "runs/new"], 2, [
        'error: gpt train: there is no run in "runs/new"; --config is needed to begin one']),
    (["train", "--config", "smoke", "--data", "nothere.txt", "--out", "o"], 3, [
        'error: "nothere.txt": no such file',
        "hint: name a text file, a directory, a glob, - for stdin, or a name of `gpt data list`"]),
    (["train", "--config", "smoke", "--data", "short.txt", "--out", "o"], 3, [
        "error: corpus: its training part has 1 token; context_length 32 needs at least 33",
        "hint: add text with --data, or lower --set model.context_length"]),
    (["train", "--config", "smoke", "--out", "short.txt"], 2, ['error: "short.txt": is not a directory; --out names a directory']),
    (["sample", "--prompt", "x", "--run", "nothere"], 4, [
        'error: "nothere": no such run or checkpoint', "hint: runs here: runs/smoke"]),
    (["sample", "--prompt", "x", "--run", "short.txt"], 4, [
        'error: "short.txt": not a checkpoint of this program', "hint: gpt train writes them"]),
    (["sample", "--prompt", "x", "--checkpoint", "7"], 4, ['error: "runs/smoke": has no checkpoint of step 7; its steps are 10, 20']),
    (["sample", "--prompt", "x", "--checkpoint", "worst"], 2, ['error: --checkpoint: "worst" is not allowed; use best | last | a step']),
    (["sample", "--prompt", "x", "--temperature", "nan"], 2, ['error: --temperature: "nan" is not allowed; use a number from 0']),
    (["sample", "--prompt", "x", "--temperature", "-1"], 2, ['error: --temperature: "-1" is not allowed; use a number from 0']),
    (["sample", "--prompt", "x", "--top_k", "-3"], 2, ['error: --top-k: "-3" is not allowed; use a whole number from 0']),
    (["sample", "--prompt", "x", "--max-new-tokens", "1e3"], 2, [
        'error: --max-new-tokens: "1e3" is not allowed; use a whole number from 1 to 1000000']),
    (["sample", "--prompt"], 2, ["error: --prompt: has no value; see gpt sample --help"]),
    (["sample", "--prompt-file", "nothere.txt"], 3, ['error: "nothere.txt": no such file']),
    (["sample", "--prompt-file", "latin.txt"], 3, [
        "error: latin.txt: line 2: byte 0xe9 at offset 5 is not UTF-8; text is UTF-8",
        "hint: if it is LATIN1: iconv -f LATIN1 -t utf-8 OLD > NEW"]),
    (["attn-dump", "--prompt", "x", "--out", "a.gif"], 2, [
        'error: --out: "a.gif" has no known ending; use .npz .safetensors .json .csv .html .png .svg']),
    (["attn-dump", "--prompt", "x", "--out", "no/a.npz"], 5, ['error: writing "no/a.npz": no such directory', "hint: mkdir -p no"]),
    (["attn-dump", "--prompt", "x", "--layers", "2"], 2, ['error: --layers: "2" is out of range; this model has 0 to 1']),
    (["attn-dump", "--prompt", "x", "--stage", "query"], 2, [
        'error: --stage: "query" is not allowed; use weights | scores | queries | keys | values | heads']),
    (["attn-dump", "--prompt", "x", "--file-dtype", "int8"], 2, ['error: --file-dtype: "int8" is not allowed; use float32 | float16']),
    (["sample", "--prompt", "x", "--device", "cuda:x"], 2, [
        'error: --device: "cuda:x" is not allowed; use auto | cpu | cuda | cuda:N']),
    (["sample", "--prompt", "x", "--checkpoint", "9" * 5000], 2, [
        'error: --checkpoint: "' + "9" * 200 + '…" is not allowed; use best | last | a step']),
    (["info", "runs/nothere"], 4, ['error: "runs/nothere": no such run or checkpoint', "hint: runs here: runs/smoke"]),
    (["train", "--config", "smoke", "--data", "", "--out", "o"], 2, ['error: --source: "" is not allowed; use text or a list of texts']),
    (["info"], 2, ["error: gpt info: PATH is missing; see gpt info --help"]),
    (["config", "check", "typo.yaml"], 2, [
        'error: typo.yaml:2: unknown key "model.d_modle"; see `gpt config schema` for those of model',
        "error: typo.yaml:3: model.dropout: 2.0 is out of range; use a number from 0 and below 1",
        "hint: did you mean model.d_model?"]),
    (["data", "fetch", "luny"], 2, [
        'error: "luny": not in the catalogue; known are python-docs, tinyshakespeare, sales-textbook, songci-300, lunyu, shijing',
        "hint: did you mean lunyu?"]),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "code", "lines"), TABLE, ids=[" ".join(row[0]) for row in TABLE])
def test_a_mistake_is_one_line_with_a_way_out(
    arguments: list[str], code: int, lines: list[str], smoke_run: Path, run: RunCommand
) -> None:
    Path("short.txt").write_text("short")
    Path("latin.txt").write_bytes(b"ab\ncd\xe9")
    Path("typo.yaml").write_text("model:\n  d_modle: 4\n  dropout: 2\n")
    assert run(*arguments) == Outcome(code, "", "".join(line + "\n" for line in lines))


def test_a_device_that_is_not_there_is_found_before_data_is_read(here: Path, run: RunCommand) -> None:
    outcome = run("train", "--config", "smoke", "--device", "cuda:9", "--data", "nothere.txt")
    assert outcome.code == 5
    assert outcome.err.startswith("error: device: cuda:9 is not available")


def test_a_bug_is_called_one_and_debug_shows_where(
    smoke_run: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> str:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(sample_module, "read_prompts", broken)
    quiet, loud = run("sample", "--prompt", "x"), run("sample", "--prompt", "x", "--debug")
    assert quiet.code == loud.code == 1
    assert quiet.err == "error: internal: ZeroDivisionError: oops; this is a bug\nhint: add --debug for the traceback\n"
    assert "Traceback" in loud.err


@pytest.mark.parametrize(
    ("raised", "code", "start"),
    [
        (MemoryError(), 5, "error: memory: out of memory"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
            5,
            "error: memory: out of memory",
        ),
        (OSError(28, "No space left on device", "f"), 5, 'error: "f": no space left on the filesystem'),
        (KeyboardInterrupt(), 130, "stopped"),
    ],
)
def test_what_the_machine_refuses_has_a_code(
    raised: BaseException,
    code: int,
    start: str,
    smoke_run: Path,
    run: RunCommand,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> str:
        raise raised

    monkeypatch.setattr(sample_module, "read_prompts", refuse)
    outcome = run("sample", "--prompt", "x")
    assert outcome.code == code
    assert outcome.err.startswith(start)


def test_flags_may_be_typed_with_either_dash(smoke_run: Path, run: RunCommand) -> None:
    one = run("sample", "--prompt", "a_b", "--max_new_tokens", "5", "--num_samples", "2", "--seed", "0")
    other = run("sample", "--prompt", "a_b", "--max-new-tokens", "5", "--num-samples", "2", "--seed", "0")
    assert one == other
    assert one.code == 0


def test_help_has_an_example_for_every_command(run: RunCommand) -> None:
    assert run().out == run("--help").out
    for words in (["train"], ["sample"], ["attn-dump"], ["info"], ["config", "check"], ["data", "stats"]):
        outcome = run(*words, "--help")
        assert outcome.code == 0
        assert f"Example: gpt {' '.join(words)}" in outcome.out
    assert app.main.__doc__
