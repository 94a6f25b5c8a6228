import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.faults import some_of
from support.helpers import RunCommand
from support.light import WithoutTorch

import gpt_cli
from gpt_cli.__main__ import run as main
from gpt_cli.checkpoints.checkpoint import read_checkpoint, save_checkpoint
from gpt_cli.checkpoints.header import read_header
from gpt_cli.sampling.decoder import Decoder, row_bytes


def test_stdout_is_the_continuation_alone_and_a_seed_repeats_it(smoke_run: Path, run: RunCommand) -> None:
    first = run("sample", "--prompt", "The value", "--seed", "0", "--max-new-tokens", "20", exits=0)
    again = run("sample", "--prompt", "The value", "--seed", "0", "--max-new-tokens", "20", "--no-stream")
    other = run("sample", "--prompt", "The value", "--seed", "1", "--max-new-tokens", "20")
    assert first.err == ""
    assert first.out == again.out != other.out
    assert not first.out.startswith("The value")


def test_without_a_seed_one_is_chosen_and_printed(smoke_run: Path, run: RunCommand) -> None:
    outcome = run("sample", "--prompt", "The", "--max-new-tokens", "10")
    seed = outcome.err.split("--seed ")[1].strip()
    assert run("sample", "--prompt", "The", "--max-new-tokens", "10", "--seed", seed).out == outcome.out


def test_a_prompt_comes_from_a_flag_a_file_or_stdin(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_bytes("\ufeffThe value\n".encode())
    options = ["--greedy", "--max-new-tokens", "8"]
    by_flag = run("sample", "--prompt", "The value", *options, stdin=b"never read", exits=0)
    by_file = run("sample", "--prompt-file", tmp_path / "prompt.txt", *options, stdin=b"never read")
    piped = run("sample", *options, stdin=b"The value\n")
    asked = run("sample", "--prompt", "-", *options, stdin=b"The value")
    assert by_flag.out == by_file.out == piped.out == asked.out


def test_greedy_is_temperature_zero_and_the_narrowest_limits(smoke_run: Path, run: RunCommand) -> None:
    outs = {
        run("sample", "--prompt", "The", "--max-new-tokens", "12", "--seed", "3", *options.split()).out
        for options in (
            *("--greedy", "--temperature 0", "--temperature 1e-300", "--greedy --temperature 0"),
            *("--top-k 1", "--top_k 1 --temperature 2", "--top-p 0", "--min-p 1"),
        )
    }
    assert len(outs) == 1
    asked = ["sample", "--prompt", "The", "--max-new-tokens", "2", "--json", "--temperature"]
    drawn = [run(*asked, temperature).out for temperature in ("0", "1")]
    assert [json.loads(out)["seed"] is None for out in drawn] == [True, False]


def test_several_samples_come_in_one_batch_and_the_first_is_that_of_one(smoke_run: Path, run: RunCommand) -> None:
    options = ["--prompt", "The", "--seed", "5", "--max-new-tokens", "12", "--json"]
    one, three = (json.loads(run("sample", *options, "--num-samples", n).out) for n in ("1", "3"))
    assert len(three["samples"]) == 3
    first, alone = three["samples"][0], one["samples"][0]
    assert (first["text"], first["tokens"]) == (alone["text"], alone["tokens"])
    assert first["log_probabilities"] == pytest.approx(alone["log_probabilities"], abs=1e-4)
    assert three["prompt"] == "The"
    text = run("sample", *options[:-1], "--num-samples", "3").out
    assert text == "\n---\n".join(sample["text"] for sample in three["samples"]) + "\n"


def test_a_locale_without_utf8_does_not_change_a_prompt(smoke_run: Path, run: RunCommand) -> None:
    """Python then keeps each byte as half a character."""
    options = ["--greedy", "--max-new-tokens", "3", "--json"]
    kept = "a 🐕".encode().decode("ascii", "surrogateescape")
    assert run("sample", "--prompt", kept, *options).out == run("sample", "--prompt", "a 🐕", *options).out


def test_a_file_contains_one_prompt_per_line_and_all_share_a_batch(
    smoke_run: Path, run: RunCommand, tmp_path: Path
) -> None:
    (tmp_path / "prompts.txt").write_text("The value of\n\nA\r\nthe statement\n")
    options = ["--seed", "4", "--max-new-tokens", "9", "--num-samples", "2", "--json"]
    found = json.loads(run("sample", "--prompt-file", tmp_path / "prompts.txt", *options).out)
    prompts = ["The value of", "A", "the statement"]
    assert [sample["prompt"] for sample in found["samples"]] == [prompt for prompt in prompts for _ in range(2)]
    lines = run("sample", "--prompt-file", tmp_path / "prompts.txt", *options[:-1]).err.splitlines()
    named = ["samples 1 to 2 continue: The value of", "samples 3 to 4 continue: A"]
    assert lines[:3] == [*named, "samples 5 to 6 continue: the statement"]
    for number, prompt in enumerate(prompts):
        alone = json.loads(run("sample", "--prompt", prompt, *options).out)["samples"]
        together = found["samples"][2 * number : 2 * number + 2]
        assert [sample["tokens"] for sample in together] == [sample["tokens"] for sample in alone]
    (tmp_path / "prompts.txt").write_text("\n\n")
    refused = run("sample", "--prompt-file", tmp_path / "prompts.txt", exits=3)
    assert refused.err == f"error: {tmp_path}/prompts.txt: the file contains no prompt; write one per line\n"


def test_weights_of_8_bits_sample_too(smoke_run: Path, run: RunCommand) -> None:
    options = ["--prompt", "The", "--greedy", "--max-new-tokens", "5", "--json"]
    found = json.loads(run("sample", *options, "--quantize", "int8").out)["samples"][0]
    plain = json.loads(run("sample", *options).out)["samples"][0]
    assert found["log_probabilities"][0] == pytest.approx(plain["log_probabilities"][0], abs=0.1)
    assert run("sample", *options, "--quantize", "int4", exits=2).err == 'error: --quantize: "int4" is not int8\n'


def test_a_stop_ends_the_text_before_it_streamed_or_not(smoke_run: Path, run: RunCommand) -> None:
    options = ["--prompt", "The value", "--seed", "2", "--max-new-tokens", "60"]
    whole = run("sample", *options).out.rstrip("\n")
    stop = whole[20:23]
    expected = whole[: whole.index(stop)]
    for more in ([], ["--no-stream"]):
        assert run("sample", *options, "--stop", stop, "--stop", "never there", *more).out == expected + "\n"
    found = json.loads(run("sample", *options, "--stop", stop, "--json").out)["samples"][0]
    assert found["text"] == expected
    assert len(found["tokens"]) < 60


NOT_BOTH = "cannot be combined; leave one of them out"


@pytest.mark.parametrize(
    ("flags", "code", "error"),
    [
        ("--prompt x --stop ''", 2, '--stop: "" is empty; name the text before which a sample ends'),
        ("--prompt x --greedy --temperature 0.8", 2, f"--temperature and --greedy {NOT_BOTH}"),
        ("--checkpoint 7", 4, '"runs/smoke": this run has no checkpoint of step 7, only of 10, 20'),
        ("--without 0.0,9.1", 2, '--without: this model has layers 0 to 1 with heads 0 to 1, so "9.1" is out of range'),
        ("--repetition-penalty 0", 2, '--repetition-penalty: "0" is not a number above 0'),
        ("--temperature nan", 2, '--temperature: "nan" is not a number of at least 0'),
        ("--prompt-file nowhere.txt", 3, '"nowhere.txt": there is no such file'),
    ],
)
def test_wrong_input_is_refused_before_torch_is_loaded(
    smoke_run: Path, flags: str, code: int, error: str, without_torch: WithoutTorch
) -> None:
    done = without_torch("sample", *shlex.split(flags))
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.splitlines()[0] == f"error: {error}"


def test_without_a_temperature_it_is_the_one_that_the_help_names(smoke_run: Path, run: RunCommand) -> None:
    options = ["sample", "--prompt", "The", "--seed", "3", "--max-new-tokens", "20"]
    assert run(*options).out == run(*options, "--temperature", "0.8").out != run(*options, "--temperature", "1.5").out
    assert "Default: 0.8." in " ".join(run("sample", "--help").out.split())


def test_long_prompts_are_cut_with_a_notice_and_sampling_goes_past_the_context(
    smoke_run: Path, run: RunCommand
) -> None:
    outcome = run("sample", "--prompt", "word " * 60, "--greedy", "--max-new-tokens", "50", "--json")
    assert "the prompt has" in outcome.err
    assert "the model sees the last 32" in outcome.err
    assert len(json.loads(outcome.out)["samples"][0]["tokens"]) == 50


def test_of_many_long_prompts_one_line_says_how_many(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text(f"{'a' * 40}\nThe value\n{'b' * 50}\n")
    outcome = run("sample", "--prompt-file", tmp_path / "prompts.txt", "--greedy", "--max-new-tokens", "1")
    (line,) = [line for line in outcome.err.splitlines() if "the model sees" in line]
    assert line.startswith("the model sees the last 32 tokens of a prompt, which shortens 2 of these 3; the longest ")


@pytest.mark.parametrize(("prompt", "said"), [("The value ", 1), ("The value", 0), (" ", 0), ("x:\n    ", 0)])
def test_a_space_at_the_end_is_remarked_on_where_byte_pairs_were_learned(
    smoke_run: Path, run: RunCommand, prompt: str, said: int
) -> None:
    outcome = run("sample", "--prompt", prompt, "--max-new-tokens", "2")
    assert outcome.err.count("the prompt ends with a space") == said


def test_an_ascii_terminal_gets_escapes_instead_of_an_error(smoke_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out := io.BytesIO(), encoding="ascii"))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert main(["attn-dump", "--prompt", "The value", "--layers", "0", "--heads", "0"]) == 0
    assert b"\\u2588" in out.getvalue()  # a full block


def test_streams_that_are_closed_from_the_start_are_no_error() -> None:
    for closing in some_of((">&-", "2>&-", "<&-"), least=1):
        command = f"{sys.executable} -m gpt_cli data list {closing}"
        assert subprocess.run(["sh", "-c", command], capture_output=True).returncode == 0


def test_a_batch_too_large_for_memory_is_refused_with_one_that_fits(
    smoke_run: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, vocab_size = gpt_cli.load(smoke_run).config.model, gpt_cli.load(smoke_run).tokenizer.vocab_size
    # keys and values in float32 of 5 tokens (one is the prompt), and 72 bytes for each logit of a draw
    of_row = 2 * sizes.num_blocks * sizes.d_model * 4 * 5 + 72 * vocab_size
    monkeypatch.setattr("gpt_cli.sampling.sample.available_memory", lambda: 7 * of_row)
    options = ["sample", "--prompt", "T", "--max-new-tokens", "4", "--seed", "1"]
    refused = run(*options, "--num-samples", "8", exits=5)
    assert refused.err.splitlines()[0].startswith("error: --num-samples: 8 sequences of 5 tokens take about ")
    assert refused.err.splitlines()[1] == "hint: --num-samples 7"
    run(*options, "--num-samples", "7", exits=0)


def test_a_head_that_is_switched_off_writes_nothing(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    stored = read_checkpoint(smoke_run / "checkpoints" / "step-00000020.safetensors", everything=True)
    name = "blocks.1.attention.projection_layer.weight"
    cut = stored.weights[name].clone()
    size = cut.shape[1] // stored.config.model.num_heads
    cut[:, :size] = 0
    save_checkpoint(tmp_path / "cut.safetensors", replace(stored, weights={**stored.weights, name: cut}))
    options = ["--prompt", "The value", "--seed", "1", "--max-new-tokens", "20", "--temperature", "2"]
    for more in ([], ["--quantize", "int8"]):
        off = run("sample", "--checkpoint", "20", *options, "--without", "1.0", *more)
        assert off.err == "heads switched off: 1.0\n"
        assert off.out == run("sample", "--run", tmp_path / "cut.safetensors", *options, *more).out
        assert off.out != run("sample", "--checkpoint", "20", *options, *more).out


def test_many_prompts_are_continued_in_batches_of_bounded_memory(
    smoke_run: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """100,000 prompts took 7 GB at once."""
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("".join(f"The value of x{'x' * (number % 5)}\n" for number in range(12)))
    command = ["sample", "--prompt-file", prompts, "--max-new-tokens", "4", "--num-samples", "2", "--seed", "1"]
    together = run(*command)
    counts = []
    original = Decoder.prefill

    def prefill(self: Decoder, rows: Sequence[Sequence[int]], num_new_tokens: int) -> torch.Tensor:
        counts.append(len(rows))
        return original(self, rows, num_new_tokens)

    monkeypatch.setattr(Decoder, "prefill", prefill)
    monkeypatch.setattr("gpt_cli.sampling.sample.SAMPLING_BYTES", 1_000_000)
    in_batches = run(*command)
    said = [line for line in in_batches.err.splitlines() if not re.search(r" continues?: ", line)]
    assert (in_batches.code, in_batches.out, said) == (0, together.out, [])
    assert sum(counts) == 24
    assert len(counts) > 1
    # of a conversation, all turns count, not the last one alone
    turns = [{"role": role, "content": text} for role, text in (("user", "The value " * 5), ("assistant", "x"))]
    Path("m.jsonl").write_text((json.dumps([*turns, {"role": "user", "content": "y"}]) + "\n") * 6)
    counts.clear()
    found = read_header(smoke_run / "checkpoints" / "best.safetensors").config.model
    monkeypatch.setattr("gpt_cli.sampling.sample.SAMPLING_BYTES", 6 * row_bytes(found, 512, 1, 5))
    run("sample", "--messages", "m.jsonl", "--max-new-tokens", "4", exits=0)
    assert (sum(counts), len(counts) > 1) == (6, True)


def test_samples_too_many_for_memory_are_refused_with_a_length_that_fits(
    smoke_run: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpt_cli.sampling.sample.available_memory", lambda: 2_000_000)
    command = ["sample", "--prompt", "The", "--num-samples", "20", "--max-new-tokens"]
    refused = run(*command, "6000", exits=5)
    wanted = "20 samples of 6,000 tokens take about 2.4 MB of memory, but only 2.0 MB are free"
    assert refused.err.splitlines() == [f"error: --max-new-tokens: {wanted}", "hint: --max-new-tokens 5000"]
