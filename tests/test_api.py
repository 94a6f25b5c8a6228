"""The commands as functions of Python: their keywords are the fields of their requests, and they raise our errors."""

import inspect
import pickle
import pydoc
import random
import re
import sys
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.package import COMMANDS

import gpt_cli
from gpt_cli.api import _warned
from gpt_cli.cli.app import build
from gpt_cli.cli.command_table import TABLE, function_of
from gpt_cli.common.spelling import as_flags
from gpt_cli.config.request import flag_of, flags_of
from gpt_cli.config.suggest import FUNCTIONS
from gpt_cli.errors import CheckpointError, UsageError
from gpt_cli.training.events import Stepped


@pytest.mark.parametrize("name", COMMANDS)
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
    first = [name for name, field, _ in flags_of(function.request) if field.kw_only is False]
    assert first == [*fields][:1], "it may lack its name"
    assert [*fields, *function.request.of_python] == list(inspect.signature(function).parameters)
    assert TABLE[name].sentence.rstrip(".") in as_flags(inspect.getdoc(function.request) or "")
    described = " ".join((function.__doc__ or "").split())
    for name in inspect.signature(function).parameters:
        assert function.request.model_fields[name].description, f"{name} needs a description, which is its help"
        assert f" {name}: " in described


def test_wrong_values_raise_errors_that_name_the_keyword() -> None:
    info: Any = gpt_cli.info  # a type checker would refuse some of these
    with pytest.raises(UsageError) as raised:
        info("smoke", ranks=0, checkpoint=[])
    assert [str(error) for error in (raised.value, *raised.value.others)] == [
        "checkpoint: [] is not text",
        "ranks: 0 is not a whole number from 1 to 1,024",
    ]
    with pytest.raises(UsageError, match='settings: "" is empty; leave it out'):
        info("smoke", settings=["model.dropout=0", ""])
    assert repr(raised.value) == "UsageError('checkpoint', '[] is not text')"
    with pytest.raises(UsageError, match="settings: 3 is not text"):
        info("smoke", settings=[3])
    with pytest.raises(UsageError, match="rans: there is no such argument") as raised:
        info("smoke", rans=2)
    assert raised.value.hint == "did you mean ranks=2?"
    with pytest.raises(UsageError, match="of: there is no such argument") as raised:
        info("smoke", of=2)
    assert raised.value.hint == "the arguments are path, checkpoint, ranks, settings, progress"
    with pytest.raises(TypeError, match="all arguments but path need their names"):
        info("smoke", "best")
    with pytest.raises(CheckpointError, match="there is no such run or checkpoint"):
        info("runs/nothere")


@pytest.mark.parametrize(
    ("name", "given", "hint"),
    [
        ("sample", {"temp": 1}, "did you mean temperature=1?"),
        ("sample", {"do_sample": False}, "did you mean greedy=True?"),
        ("sample", {"prompt": ["a", "b"]}, "call the function once for each of them"),
        ("sample", {"dtype": "float16"}, 'did you mean dtype="bfloat16"?'),
        ("train", {"batch_size": 3}, 'did you mean settings=["train.batch_size=3"]?'),
        ("train", {"lr": 3e-4}, 'did you mean settings=["train.learning_rate=0.0003"]?'),
        ("train", {"compile": True}, 'did you mean compile="on"?'),
        ("train", {"progres": True}, "did you mean progress=True?"),
        ("info", {"run": "runs/smoke"}, 'did you mean path="runs/smoke"?'),
    ],
)
def test_an_argument_of_another_library_leads_to_ours(name: str, given: dict[str, Any], hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        getattr(gpt_cli, name)(**given)
    assert raised.value.hint == hint


def test_settings_may_be_a_mapping() -> None:
    settings = {"train.max_steps": np.int64(10), "train.max_time": None, "model.bias": False, "data.source": ["a", "b"]}
    config = gpt_cli.configs.show("smoke", settings=settings | {"data.validation_source": Path("val.txt")}).config
    assert (config.train.max_steps, config.train.max_time, config.model.bias) == (10, None, False)
    assert config.data.validation_source == "val.txt"
    assert config.data.source == ["a", "b"]


def test_whole_numbers_may_be_those_of_numpy(smoke_run: Path) -> None:
    functions: Any = gpt_cli  # a type checker would refuse these
    found = functions.sample("The", checkpoint=np.int64(20), seed=np.int64(2**60 + 1), max_new_tokens=1)
    assert found.seed == 2**60 + 1
    assert len(functions.attention("The", layers=np.int64(1)).weights) == 1
    assert functions.explain("The value", query=np.uint8(0)).explanation.facts["queries"] == [0]


def test_a_function_of_another_name_leads_to_ours(smoke_run: Path) -> None:
    names = {"eval": "evaluate", "attn_dump": "attention", "generate": "sample", "prepare": "data.prepare"}
    for name, ours in (*names.items(), ("trian", "train"), ("export", "export_model")):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'; did you mean {re.escape(ours)}?"):
            getattr(gpt_cli, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'plot'$"):
        getattr(gpt_cli, "plot")  # noqa: B009 - a type checker knows that it is missing
    model = gpt_cli.load(smoke_run)
    for name, ours in (("eval", "evaluate"), ("attn_dump", "attention"), ("generate", "sample"), ("smaple", "sample")):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'; did you mean {ours}?"):
            getattr(model, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'train'$"):
        getattr(model, "train")  # noqa: B009


@pytest.mark.parametrize("name", sorted(FUNCTIONS.get(name, name) for name in COMMANDS if " " not in name))
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


def test_a_type_checker_reads_what_each_function_of_an_installed_copy_returns() -> None:
    assert Path(gpt_cli.__file__).with_name("py.typed").exists(), "without it mypy reads no types of a package"
    for name in COMMANDS:
        assert inspect.signature(function_of(name)).return_annotation is not inspect.Signature.empty, name


def test_a_warning_names_the_line_of_the_caller(copied: Path) -> None:
    best = copied / "checkpoints" / "best.safetensors"
    best.write_bytes(best.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="the file is truncated") as warned:
        gpt_cli.sample("The", run=copied, max_new_tokens=1)
    assert warned[0].filename == __file__


def test_a_warning_reaches_code_that_has_no_name() -> None:
    with pytest.warns(UserWarning, match="a line"):
        exec("warned('a line')", {"warned": _warned})


def test_a_function_can_be_pickled(smoke_run: Path) -> None:
    for function in (gpt_cli.sample, gpt_cli.data.list, gpt_cli.configs.check):
        assert pickle.loads(pickle.dumps(function)) is function
    tokens = pickle.loads(pickle.dumps(gpt_cli.load().tokens))
    assert tokens("The").as_dict() == gpt_cli.tokens("The").as_dict()


def test_help_of_python_shows_a_function_with_its_keywords() -> None:
    said = pydoc.plain(pydoc.render_doc(gpt_cli.data.list))
    assert "\nlist(progress=False) -> 'Corpora'\n    List the corpora that data accepts by name.\n" in said
    assert repr(gpt_cli.data.list) == "<function gpt_cli.data.list>"
    assert repr(gpt_cli.sample) == "<function gpt_cli.sample>"


def test_completion_lists_the_functions_alone() -> None:
    assert {"train", "sample", "attention", "load", "data"} <= {*dir(gpt_cli)}
    assert "annotations" not in dir(gpt_cli)
    assert dir(gpt_cli.data) == ["fetch", "list", "prepare", "stats", "verify"]
    assert dir(gpt_cli.configs) == ["check", "schema", "settings", "show"]


def _bench(threads: int) -> None:
    gpt_cli.bench("smoke", threads=threads, rounds=1, tokens=1)


def _check(threads: int) -> None:
    gpt_cli.bench(check_device="cpu", threads=threads)


def _sample(threads: int) -> None:
    gpt_cli.sample("The", run="smoke", threads=threads, max_new_tokens=1)


def _train(threads: int) -> None:
    torch_state = torch.get_rng_state()
    for _ in gpt_cli.train(
        "smoke", out="runs/other", overwrite=True, settings=[f"train.threads={threads}"], max_steps=2
    ):
        assert torch.equal(torch.get_rng_state(), torch_state)


@pytest.mark.parametrize("work", [pytest.param(_bench, marks=pytest.mark.slow), _check, _sample, _train])
def test_threads_and_random_states_stay_as_they_are(
    work: Callable[[int], None], copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpt_cli.tools.bench.bench._SIZE", 64)
    monkeypatch.setattr("gpt_cli.tools.bench.device_check.checks", lambda *_: [])  # which take half a minute
    monkeypatch.setitem(sys.modules, "transformers", None)  # which bench would import, for seconds

    def state() -> str:
        return repr((torch.get_num_threads(), torch.get_rng_state().tolist(), np.random.get_state(), random.getstate()))

    before = state()
    work(torch.get_num_threads() + 1)
    assert state() == before


def test_a_result_with_arrays_equals_only_itself(smoke_run: Path) -> None:
    for of_prompt in (gpt_cli.attention, gpt_cli.explain):
        assert of_prompt("The", run=smoke_run) != of_prompt("The", run=smoke_run)
    assert gpt_cli.report(smoke_run) != gpt_cli.report(smoke_run)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc")
def test_arrays_that_the_caller_frees_go_back_to_the_system(copied: Path) -> None:
    def num_pages() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    for work in (_sample, _train):
        work(1)
        array = np.ones(4 * 10**7)  # 320 MB, 78,125 pages
        before = num_pages()
        del array
        assert before - num_pages() > 78_000


def _modes() -> list[object]:
    autocast = torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled()
    gradients = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    return [autocast, gradients, torch.get_default_dtype(), torch.get_default_device()]


def _figures() -> list[object]:
    """Losses of a training in bfloat16, and of its evaluation; the modes are unchanged after every event and error."""
    before = _modes()
    training = gpt_cli.train("smoke", out="runs/other", dtype="bfloat16", overwrite=True, max_steps=3)
    figures: list[object] = [report.loss for report in training if _modes() == before and isinstance(report, Stepped)]
    with pytest.raises(UsageError):
        gpt_cli.sample("The", run="runs/other", layer=1)  # pyright: ignore[reportCallIssue]
    model = gpt_cli.load("runs/other")
    figures += [model.evaluate(dtype="float32").runs[0]["loss"], model.model.output_weight.is_inference()]
    assert _modes() == before
    return figures


def test_modes_of_the_caller_change_no_figure_and_stay_as_they_are(copied: Path) -> None:
    expected = _figures()
    assert len(expected) == 5, "three steps and two figures of the model"
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode(), torch.device("meta"):
        torch.set_default_dtype(torch.float64)
        try:
            assert _figures() == expected
        finally:
            torch.set_default_dtype(torch.float32)


def test_a_model_in_memory_stands_for_its_run(smoke_run: Path) -> None:
    model = gpt_cli.load(smoke_run)
    with torch.no_grad():
        for parameter in model.model.final_norm.parameters():
            parameter.zero_()  # then every token is as likely as any other: ln 512 nats
    found = gpt_cli.evaluate(run=model)
    assert found.runs[0]["loss"] == pytest.approx(6.2383, abs=1e-4)
    assert found.as_dict() == model.evaluate().as_dict()
    assert gpt_cli.info(model).as_dict() == gpt_cli.info(model.path).as_dict()
    with pytest.raises(TypeError, match="checkpoint is that of the model"):
        gpt_cli.sample("The", run=model, checkpoint="last")
    evaluate: Any = gpt_cli.evaluate  # a type checker would refuse these
    load: Any = gpt_cli.load
    with pytest.raises(UsageError, match="is a model in memory, which a list cannot contain"):
        evaluate(run=[model])
    with pytest.raises(UsageError, match="run: 3 is not text"):
        evaluate(run=[3])
    with pytest.raises(UsageError, match="path: 3 is not text") as raised:
        load(3)
    assert raised.value.hint == 'gpt_cli.load("runs/tiny") loads the run of that name'
