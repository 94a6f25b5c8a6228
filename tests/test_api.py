"""The commands as functions of Python: their keywords are the fields of their requests, and they raise our errors."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch
from support.helpers import RunCommand

import gpt_cli
from gpt_cli.cli.app import build
from gpt_cli.cli.listing import FUNCTIONS, GROUPS, REQUESTS, function_of
from gpt_cli.config.request import flag_of, flags_of
from gpt_cli.errors import CheckpointError, UsageError


@pytest.mark.parametrize(
    "name", [*REQUESTS, *(f"{group} {name}".rstrip() for group in GROUPS for name in GROUPS[group])]
)
def test_every_flag_is_a_field_of_the_request_and_a_keyword_of_the_function(name: str) -> None:
    group, _, last = name.rpartition(" ")
    function = function_of(name)
    assert function is attrgetter(FUNCTIONS.get(name, name.replace(" ", ".")))(gpt_cli)
    fields = {name: flag_of(name, flag) for name, _, flag in flags_of(function.request)}
    of_the_command_line_alone = {"--json", "--quiet", "--debug"}
    command = build().commands[group or last]
    parameters = (command.commands[last] if group else command).params
    flags = {p.metavar if p.param_type_name == "argument" else p.opts[0] for p in parameters}
    assert ("--json" in flags) == function.request.has_json
    assert flags - of_the_command_line_alone == set(fields.values())
    assert [*fields, *function.request.of_python] == list(inspect.signature(function).parameters)
    assert REQUESTS.get(name, ("",))[0].rstrip(".") in (inspect.getdoc(function.request) or "")
    described = " ".join((function.__doc__ or "").split())
    for name, field, _ in flags_of(function.request):
        assert field.description, f"{name} needs a description, which is its help"
        assert f" {name}: " in described


def test_a_result_is_what_json_prints(run: RunCommand) -> None:
    found = gpt_cli.info("smoke", ranks=2, settings=["train.micro_batch_size=4"])
    printed = run("info", "smoke", "--ranks", "2", "--set", "train.micro_batch_size=4", "--json").out
    assert found.as_dict() == json.loads(printed)
    assert found.costs.vocab_size == 512


def test_a_run_is_found_by_its_path_or_is_the_newest(smoke_run: Path) -> None:
    assert gpt_cli.info().as_dict() == gpt_cli.info(smoke_run).as_dict()


def test_wrong_values_raise_errors_that_name_the_keyword() -> None:
    info: Any = gpt_cli.info  # a type checker would refuse some of these
    with pytest.raises(UsageError) as raised:
        info("smoke", ranks=0, checkpoint=[])
    assert [str(error) for error in (raised.value, *raised.value.others)] == [
        'checkpoint: "[]" is not text',
        'ranks: "0" is not a whole number from 1 to 1,024',
    ]
    with pytest.raises(UsageError, match='settings: "" is empty; leave it out'):
        info("smoke", settings=["model.dropout=0", ""])
    with pytest.raises(UsageError, match='settings: "3" is not text'):
        info("smoke", settings=[3])
    with pytest.raises(UsageError, match="rank: there is no such argument"):
        info("smoke", rank=2)
    with pytest.raises(TypeError, match="all arguments but path need their names"):
        info("smoke", "best")
    with pytest.raises(CheckpointError, match="there is no such run or checkpoint"):
        info("runs/nothere")


@pytest.mark.parametrize("name", sorted(FUNCTIONS.get(name, name) for name in REQUESTS))
def test_a_loaded_model_has_each_function_that_takes_a_run_as_a_method(name: str, smoke_run: Path) -> None:
    fields = dict.fromkeys(inspect.signature(getattr(gpt_cli, name)).parameters)
    place = "run" if "run" in fields else "path"
    if place not in fields:
        assert not hasattr(gpt_cli.load(), name)
        return
    method = getattr(gpt_cli.load(), name)
    assert inspect.signature(method).parameters.keys() == fields.keys() - {place, "checkpoint"}
    assert "checkpoint: " not in method.__doc__
    with pytest.raises(TypeError, match=f"{place} is that of the model"):
        method(**{place: smoke_run})


def test_nothing_is_printed_unless_progress_is_asked_for(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gpt_cli.info("smoke")
    assert capfd.readouterr() == ("", "")
    gpt_cli.info("smoke", progress=True)
    assert "tokenizing" in capfd.readouterr().err


def test_the_package_and_its_requests_load_no_torch() -> None:
    script = (
        "import sys, gpt_cli\n"
        "assert 'pydantic' not in sys.modules\n"
        "gpt_cli.info\n"
        "sys.exit(sorted({'torch', 'numpy', 'matplotlib'} & set(sys.modules)) or 0)\n"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_settings_are_repeatable(run: RunCommand) -> None:
    words = ["--set", "model.num_blocks=1", "--set", "model.d_model=64", "--json"]
    printed = json.loads(run("info", "smoke", *words).out)
    assert printed == gpt_cli.info("smoke", settings=words[1:4:2]).as_dict()
    assert printed != json.loads(run("info", "smoke", *words[2:]).out)


def test_completion_lists_the_functions_alone() -> None:
    assert {"train", "sample", "attention", "load", "data"} <= {*dir(gpt_cli)}
    assert "annotations" not in dir(gpt_cli)
    assert dir(gpt_cli.data) == ["fetch", "list", "prepare", "stats", "verify"]
    assert dir(gpt_cli.configs) == ["check", "schema", "settings", "show"]


def test_threads_end_with_the_function_that_was_asked_to_use_them(smoke_run: Path) -> None:
    before = torch.get_num_threads()
    gpt_cli.sample("The", run=smoke_run, threads=before + 1, max_new_tokens=1)
    assert torch.get_num_threads() == before
