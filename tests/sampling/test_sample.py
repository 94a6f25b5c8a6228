"""`gpt_cli.sample`, and the same of a model that is loaded."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from golden.make import FOLDER
from support.helpers import RunCommand

import gpt_cli
from gpt_cli.checkpoints import verify
from gpt_cli.checkpoints.select import newest_run
from gpt_cli.common.host import Host
from gpt_cli.sampling.request import SampleRequest
from gpt_cli.sampling.sample import Sampler


@pytest.mark.parametrize("prompts", ["one", "two"])
def test_samples_are_what_the_command_prints(prompts: str, smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "two.txt").write_text("The value\nA\n")
    given: dict[str, Any] = {"prompt": "The value"} if prompts == "one" else {"prompt_file": tmp_path / "two.txt"}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    words += ["--num-samples", "2", "--seed", "1", "--max-new-tokens", "6", "--without", "1.1,0.1", "--without", "0.0"]
    found = gpt_cli.sample(**given, run=smoke_run, num_samples=2, seed=1, max_new_tokens=6, without=["1.1,0.1", "0.0"])
    assert found.as_text() + "\n" == run("sample", *words).out
    assert found.as_dict()["without"] == ["0.0", "0.1", "1.1"]
    printed = run("sample", *words, "--json").out
    assert printed == "".join(found.as_json()) + "\n" == json.dumps(found.as_dict(), ensure_ascii=False) + "\n"
    other = replace(found, prompts=['"samples": []'], samples=[])
    assert "".join(other.as_json()) == json.dumps(other.as_dict())
    assert [sample.prompt for sample in found.samples] == [text for text in found.prompts for _ in range(2)]
    assert [len(sample.tokens) for sample in found.samples] == [6] * 2 * len(found.prompts)


def test_a_seed_is_drawn_and_recorded(smoke_run: Path) -> None:
    first, other = (gpt_cli.sample("The value", max_new_tokens=8) for _ in range(2))
    assert first.seed != other.seed
    assert gpt_cli.sample("The value", max_new_tokens=8, seed=first.seed) == first
    assert "without" not in first.as_dict()
    assert gpt_cli.sample("The value", max_new_tokens=8, greedy=True).seed is None


def test_a_loaded_model_is_not_read_again(smoke_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = gpt_cli.sample("The value", seed=1, max_new_tokens=8)
    measured = gpt_cli.evaluate(per_token=True).as_dict()["runs"][0]
    explained = gpt_cli.explain("The value", layer=1).as_dict()
    loaded = gpt_cli.load()

    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(verify, "reading", refuse)
    assert loaded.sample("The value", seed=1, max_new_tokens=8) == expected
    assert loaded.evaluate(per_token=True).as_dict()["runs"][0] | {"run": measured["run"]} == measured
    assert loaded.explain("The value", layer=1).as_dict() == explained


def test_the_model_in_memory_counts_and_stays_as_it_is(smoke_run: Path) -> None:
    loaded = gpt_cli.load()
    expected = gpt_cli.sample("The value", seed=1, max_new_tokens=8)
    loaded.model.train()
    loaded.model.final_norm.register_forward_hook(lambda *_: pytest.fail("a hook of the user runs"))
    loaded.model.final_norm.register_forward_pre_hook(lambda *_: pytest.fail("a hook of the user runs"))
    assert loaded.sample("The value", seed=1, max_new_tokens=8, without="0.0,1.1").samples != expected.samples
    assert loaded.sample("The value", seed=1, max_new_tokens=8) == expected
    assert loaded.model.training
    loaded.model.bfloat16()
    assert loaded.explain("The value").explanation.facts["layer"] == 0
    with torch.no_grad():
        for parameter in loaded.model.parameters():
            parameter.zero_()
    (sample,) = loaded.sample("The value", seed=1, max_new_tokens=8).samples
    assert sample.log_probabilities[0] == pytest.approx(-math.log(512))


def test_the_run_is_found_once(copied: Path) -> None:
    request = SampleRequest(prompt="The")
    target = request.find(Host())
    newer = shutil.copytree(copied, copied.with_name("newer"))
    assert newest_run() == newer
    assert Sampler(request, target, Host()).loaded.path.is_relative_to(copied)


def test_a_refused_prompt_gets_no_line_about_a_seed(run: RunCommand) -> None:
    outcome = run("sample", "--prompt", "ŵ", "--run", FOLDER / "format-1-characters.safetensors")
    assert outcome.err.startswith("error: --prompt: this model knows")
