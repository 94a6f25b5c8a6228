"""What gpt prints when something is wrong: exact texts and exit codes."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from support.helpers import RunCommand, _Standard, overflow, run_command

import gpt_cli.cli.app as app
from gpt_cli.sampling import request as sample_module

# what is typed and printed; the exit code is 2 where none is shown
TRANSCRIPT = r"""
$ gpt trian
error: gpt: there is no command "trian"
hint: did you mean train?

$ gpt train --init-from runs/smoke --config auto
error: gpt train: --config auto chooses sizes, but the model of --init-from has its own; leave --config out

$ gpt train --config smal
error: "smal": there is no such config file
hint: did you mean small? shipped configs: auto, grouped-query, induction, latent, modern, multi-head, shakespeare, shakespeare-cpu, small, smoke, sums, tiny

$ gpt train --config smoke --max-time 5x
error: --max-time: "5x" is not a duration, such as 90s or 1h30m, up to 10,000 hours

$ gpt train --config smoke --device CUDA
error: --device: "CUDA" is not one of auto, cpu, cuda, cuda:N, mps, xpu

$ gpt train --config smoke --resume --overwrite
error: --overwrite and --resume cannot be combined; leave one of them out

$ gpt train --resume
error: --resume: there is no run in "runs/auto" to continue
hint: gpt train --out runs/smoke --resume

$ gpt help sample extra
error: gpt help: there is no command "sample extra"
hint: gpt --help

$ gpt train --resume --out runs/new
error: --resume: there is no run in "runs/new" to continue
hint: runs here: runs/smoke

$ gpt train --resume --out runs/smok
error: --resume: there is no run in "runs/smok" to continue
hint: gpt train --out runs/smoke --resume

$ gpt train --config smoke --data short.txt --out o
error: corpus: its training part has 1 token, but context_length 32 needs at least 33
hint: name more text
exit code 3

$ gpt train --config smoke --out short.txt
error: "short.txt": this is a file, but --out names a directory

$ gpt sample --prompt x --run short.txt
error: "short.txt": this is not a checkpoint of gpt
hint: gpt train writes checkpoints
exit code 4

$ gpt sample --prompt x --prompt_file short.txt
error: --prompt_file and --prompt cannot be combined; leave one of them out

$ gpt sample --prompt x --max-new-tokens 1e3
error: --max-new-tokens: "1e3" must be written as a whole number, 1000

$ gpt sample --prompt
error: --prompt: this flag needs a value
hint: gpt sample --help lists the flags

$ gpt train --config smoke --data '' --out o
error: --data: "" is empty; name a file or a directory

$ gpt data lst
error: gpt data: there is no command "lst"
hint: did you mean list?

$ gpt sample --prompt x --seed 9223372036854775808
error: --seed: "9223372036854775808" is not a whole number from 0 to 9,223,372,036,854,775,807

$ gpt sample --prompt x --json=1
error: --json: this flag takes no value
hint: gpt sample --help lists the flags

$ gpt info smoke --checkpoint 3
error: --checkpoint: smoke is a config, and only runs have checkpoints

$ gpt config check
error: gpt config check: FILE is missing
hint: gpt config check --help shows an example

$ gpt config check foreign.yaml
error: foreign.yaml:2: there is no setting "model.num_layers"
error: foreign.yaml:3: there is no setting "model.层数"
error: foreign.yaml:4: there is no setting "model.colour"
error: foreign.yaml:6: there is no setting "train.学习率"
hint: model.num_layers, model.层数: did you mean model.num_blocks?
hint: model.colour: `gpt config settings` lists every setting
hint: train.学习率: did you mean train.learning_rate?

$ gpt config check wide.yaml
error: wide.yaml:1: "：" in "model：" is a full-width character; type ":"

$ gpt config check widest.yaml
error: widest.yaml:1: model is a section, so its settings belong below it
error: widest.yaml:3: train.log_to: ['wandb，trackio'] is not one of tensorboard, wandb, trackio, swanlab, a list of them
hint: model: "：" in "d_model：32" is a full-width character; type ":"
hint: train.log_to: "，" in "wandb，trackio" is a full-width character; type ","

$ gpt config check tiny --set model.d_model＝32 --set model。d_model=64
error: --set: "＝" in "model.d_model＝32" is a full-width character; type "="
error: --set: "。" in "model。d_model" is a full-width character; type "."
hint: model.d_model＝32: --set model.d_model=32
hint: model。d_model=64: --set model.d_model=64

$ gpt config check tiny --set 'model.d_model = 128' --set model.num_heads:4 --set 'model.num_blocks == 4 '
error: --set: "model.d_model = 128" does not have the form section.key=value
error: --set: "model.num_heads:4" does not have the form section.key=value
error: --set: "model.num_blocks == 4 " does not have the form section.key=value
hint: model.d_model = 128: --set model.d_model=128
hint: model.num_heads:4: --set model.num_heads=4
hint: model.num_blocks == 4 : --set model.num_blocks=4

$ gpt attn-dump --prompt x --layers 0，1
error: --layers: "，" in "0，1" is a full-width character; type ","
hint: --layers 0,1

$ gpt sample --prompt x --without '0.1， 1.0'
error: --without: "，" in "0.1， 1.0" is a full-width character; type ","
hint: --without '0.1, 1.0'

$ gpt sample --prompt x --top_p 0。8
error: --top_p: "0。8" is not a number from 0 to 1
hint: did you mean --top_p 0.8?

$ gpt train －config tiny
error: "－config": a flag begins with two hyphens, and not with "－"
hint: did you mean --config tiny?

$ gpt data fetch luny
error: "luny": the catalogue has no text of this name; it has python-docs, repeats, sums, sums-asked, tinyshakespeare, sales-textbook, songci-300, lunyu, shijing
hint: did you mean lunyu?
"""


BLOCKS = TRANSCRIPT.strip().split("\n\n")


@pytest.mark.parametrize("block", BLOCKS, ids=[block.splitlines()[0] for block in BLOCKS])
def test_a_mistake_is_a_sentence_with_a_way_out(block: str, smoke_run: Path, run: RunCommand) -> None:
    Path("short.txt").write_text("short")
    Path("foreign.yaml").write_text("model:\n  num_layers: 4\n  层数: 4\n  colour: red\ntrain:\n  学习率: 1\n")
    Path("wide.yaml").write_text("model：\n  d_model：32\n")
    Path("widest.yaml").write_text("model:\n  d_model：32\ntrain: {log_to: [wandb，trackio]}\n")
    command = block.splitlines()[0]
    outcome = run(*shlex.split(command)[2:])
    code = "" if outcome.code == 2 else f"exit code {outcome.code}\n"
    assert f"{command}\n{outcome.err}{code}" == f"{block}\n"
    assert outcome.out == ""


def test_a_device_that_is_not_there_is_found_before_data_is_read(here: Path, run: RunCommand) -> None:
    outcome = run("train", "--config", "smoke", "--device", "cuda:9", "--data", "nothere.txt", exits=5)
    assert outcome.err.startswith("error: device: cuda:9 is not available")


def test_a_bug_is_named_as_one_and_debug_prints_a_traceback(
    smoke_run: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> str:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(sample_module, "read_prompts", broken)
    error = "error: internal: this is a bug of gpt, ZeroDivisionError: oops"
    assert run("sample", "--prompt", "x", exits=1).err == f"{error}\nhint: add --debug for the traceback\n"
    assert "Traceback" in run("sample", "--prompt", "x", "--debug", exits=1).err


FEWER = "hint: lower --num-samples or --max-new-tokens, or give fewer prompts"
LITTLE_MEMORY = f"memory: gpt sample ran out of memory\n{FEWER}"
LITTLE_DEVICE_MEMORY = f"device: it has too little memory for gpt sample\n{FEWER}; or --device cpu\n"
LACKS = "device: gpt sample needs aten::sort, which torch lacks on this device\nhint: --device cpu"
FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK=1 in front of gpt"


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (MemoryError(), LITTLE_MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), LITTLE_MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), LITTLE_DEVICE_MEMORY),
        (RuntimeError("MPS backend out of memory"), LITTLE_DEVICE_MEMORY),
        (
            NotImplementedError("The operator 'aten::sort' is not currently implemented for the MPS device."),
            f"{LACKS}, or {FALLBACK}\n",
        ),
        (NotImplementedError("Could not run 'aten::sort' with arguments from the 'XPU' backend."), f"{LACKS}\n"),
        (OSError(28, "No space left on device", "f"), '"f": there is no space left on the filesystem'),
        (RuntimeError("[enforce fail at x] socket: Too many open files"), "open files: gpt sample needs"),
        (OSError(24, "Too many open files", "f"), "open files: gpt sample needs more"),
    ],
)
def test_what_the_machine_refuses_is_an_error_of_the_machine(
    raised: BaseException, error: str, smoke_run: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> str:
        raise raised

    monkeypatch.setattr(sample_module, "read_prompts", refuse)
    assert run("sample", "--prompt", "x", exits=5).err.startswith(f"error: {error}")


def test_errors_name_a_command_by_all_its_words() -> None:
    for name in app.TABLE:
        assert app.named([*name.split(), "x"]) == f"gpt {name}"


def test_a_tilde_in_quotes_is_the_home_directory(
    copied: Path, run: RunCommand, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(here))
    Path("prompt.txt").write_text("The value of")
    words = ["sample", "--run", "~/runs/smoke", "--prompt-file", "~/prompt.txt", "--greedy", "--max-new-tokens", "2"]
    assert run(*words, exits=0).err == ""
    run("eval", "--data", "~/prompt.txt", "--run", "~/runs/smoke", exits=0)
    run("info", "~/runs/smoke", exits=0)


@pytest.fixture(scope="module")
def chinese(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose model knows the characters of a Chinese sentence alone."""
    folder = tmp_path_factory.mktemp("chinese")
    (folder / "text.txt").write_text("今天天气很好。\n" * 100)
    shape = ["--set", "tokenizer.kind=char", "--max-steps", "1", "--quiet"]
    run_command("train", "--config", "smoke", "--data", folder / "text.txt", "--out", folder / "run", *shape, exits=0)
    return folder / "run"


def test_hints_offer_a_prompt_that_the_model_reads(
    chinese: Path, run: RunCommand, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(chinese, here / "runs/c")
    assert "hint: --prompt '今天天气'\n" in run("heads", "--query", "1").err
    welcome = run()
    assert "gpt sample --run runs/c --prompt '今天天气'\n" in welcome.out
    assert "gpt attn-dump --run runs/c --prompt '今天天气' --out" in welcome.out
    (here / "runs/c/samples.txt").unlink()  # as of an imported model
    monkeypatch.setattr(_Standard, "isatty", lambda _: True)
    for command in ("attn-dump", "explain"):
        assert run(command).err.endswith("a pipe\nhint: --prompt '今天好'\n")


@pytest.mark.parametrize("command", ["sample", "attn-dump", "explain"])
def test_a_character_that_the_model_lacks_is_an_error_of_what_gave_the_prompt(
    command: str, chinese: Path, run: RunCommand, here: Path
) -> None:
    Path("prompt.txt").write_text("天X")
    by_flag = run(command, "--run", chinese, "--prompt", "天X", exits=3)
    assert by_flag.out == ""
    sentence = 'this model knows 7 characters, but not "X" U+0058 at position 1'
    hint = "leave these characters out, or train with --set tokenizer.kind=bpe, which reads every character"
    assert by_flag.err.splitlines()[-2:] == [f"error: --prompt: {sentence}", f"hint: {hint}"]
    by_file = run(command, "--run", chinese, "--prompt-file", "prompt.txt", exits=3)
    piped = run(command, "--run", chinese, stdin="天X".encode(), exits=3)
    for where, outcome in (("--prompt-file", by_file), ("stdin", piped)):
        assert f"error: {where}: {sentence}\n" in outcome.err


@pytest.fixture(scope="module")
def overflowing(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run whose weights are too large, to be read."""
    folder = tmp_path_factory.mktemp("overflowing")
    for path in shutil.copytree(trained / "runs", folder / "runs").glob("smoke/checkpoints/*"):
        overflow(path)
    return folder


@pytest.mark.parametrize(
    ("command", "numbers"),
    [
        ("sample --prompt The --greedy --quiet", "logits"),
        ("attn-dump --prompt The --out a.html", "weights in layer 0"),
        ("attn-dump --prompt The --generate 3", "logits"),
        ("explain --prompt The --layer 1 --json", "weights in layer 1"),
        ("eval", "surprisals"),
        ("heads --prompt ab", "attention weights"),
        ("heads --passages 1", "outputs of heads"),
        ("heads --passages 1 --over-training", "outputs of heads"),
    ],
)
def test_weights_whose_results_are_not_finite_are_refused_with_their_file(
    command: str, numbers: str, overflowing: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(overflowing)
    outcome = run(*command.split(), exits=4)
    assert outcome.out == ""
    error = (
        rf'^error: "runs/smoke/checkpoints/\S+": its weights give {numbers} that are not finite, so it cannot be used$'
    )
    assert re.search(error, outcome.err, re.MULTILINE)
    assert not Path("a.html").exists()
