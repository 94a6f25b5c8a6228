"""Those who call a function of Python read keywords where the command line has flags."""

from __future__ import annotations

import re
import shutil
import traceback
import warnings
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import gpt_cli
from gpt_cli.cli.command_table import COMMANDS, function_of
from gpt_cli.common.language import chinese
from gpt_cli.config.spelling import described, in_keywords
from gpt_cli.config.suggest import FUNCTIONS
from gpt_cli.errors import CheckpointError, GptError, UsageError
from gpt_cli.sampling.request import EvaluateRequest, SampleRequest
from gpt_cli.tools.bench.request import InfoRequest
from gpt_cli.tools.explain.request import ExplainRequest
from gpt_cli.tools.interpret.heads.request import HeadsRequest
from gpt_cli.training.request import TrainRequest

# what only a terminal has, whole commands, and what a person gave
_COMMAND = re.compile(r"\"[^\"]*\"|\b(?:gpt|hf|pip) [^;,)]*")
_OF_A_TERMINAL = re.compile(r"--[a-z]|\bstdin\b|\bstdout\b|\bpipe\b|(the|a|no) terminal")


def assert_of_python(text: str) -> None:
    assert not _OF_A_TERMINAL.search(_COMMAND.sub("", text)), text


@pytest.mark.parametrize(
    ("typed", "keywords"),
    [
        ("--max-new-tokens 5", "max_new_tokens=5"),
        ("--greedy", "greedy=True"),
        ("--no-stream", "stream=False"),
        ("--set model.d_model=64 --set train.seed=3 --max-steps 20", None),
        ("--prompt 'The value of'", 'prompt="The value of"'),
        ("--prompt 3", 'prompt="3"'),
        ("--device cpu", 'device="cpu"'),
        ("--data a.txt --data 'b c.txt'", 'data=["a.txt", "b c.txt"]'),
        (
            "name more text, or lower --set model.context_length",
            "name more text, or lower model.context_length",
        ),
        ("another --data FILE beside the first", "another data=FILE beside the first"),
        ('"--greedy" is not a whole number', '"--greedy" is not a whole number'),
        (
            "gpt train --data my.txt trains one; --run names another",
            "gpt train --data my.txt trains one; run= names another",
        ),
        ("hf download a/b --local-dir b; then gpt import b --out runs/b", None),
        ("Names that `gpt runs` prints", "Names that gpt_cli.runs() prints"),
        ("as gpt train --data names it", "as data of gpt_cli.train names it"),
        ("name a file, or a name of `gpt data list`", "name a file, or a name of gpt_cli.data.list()"),
        ("start anew with --overwrite and --dtype float32", 'start anew with overwrite=True and dtype="float32"'),
    ],
)
def test_flags_become_keywords(typed: str, keywords: str | None) -> None:
    expected = typed if keywords is None else keywords
    if "--set model.d_model" in typed:
        expected = 'settings=["model.d_model=64", "train.seed=3"], max_steps=20'
    request = TrainRequest if {"--set", "--overwrite", "--data"} & {*typed.split()} else SampleRequest
    assert in_keywords(typed, request) == expected


def test_a_flag_is_the_keyword_of_the_function_that_was_called() -> None:
    assert in_keywords("--format html", ExplainRequest) == 'form="html"'
    assert in_keywords("--format html", TrainRequest) == 'format="html"'
    assert in_keywords("--run PATH", InfoRequest) == "path=PATH"
    assert in_keywords("--run PATH", HeadsRequest) == "run=PATH"


def test_descriptions_lose_what_concerns_the_command_line() -> None:
    text = "stdout contains the continuations alone. An empty prompt starts a new document."
    assert described(text, SampleRequest) == "An empty prompt starts a new document."
    assert (
        described("Samples of --memorised. Default: 10.", EvaluateRequest) == "Samples of memorised=True. Default: 10."
    )
    assert described("Print a single sample. Default: --stream.", SampleRequest) == ""


def test_no_sentence_of_the_catalogue_keeps_a_flag() -> None:
    """Whatever a message says about flags can be said in keywords."""
    said = [in_keywords(re.sub(r"\{\w+(![a-z])?\}", "3", text), TrainRequest) for text in chinese().pairs]
    left = [text for text in said if re.search("--[a-z]", _COMMAND.sub("", text))]
    assert not left


@pytest.mark.parametrize("name", COMMANDS)
def test_help_speaks_of_keywords(name: str) -> None:
    assert_of_python(function_of(name).__doc__ or "")


@pytest.fixture
def everywhere(copied: Path, here: Path) -> Path:
    """A folder with a run, texts and a sweep that the failures need."""
    copied.rename("runs/tiny")
    (here / "my.txt").write_text("the value of the value\n" * 40)
    (here / "short.txt").write_text("too short")
    (here / "latin.txt").write_bytes(b"caf\xe9 " * 100)
    (here / "sweep.yaml").write_text("base: smoke\ngrid: {train.seed: [1]}\n")
    (here / "taken").mkdir()
    (here / "taken/notes").write_text("mine")
    return here


# each function with arguments that it refuses
_REFUSED: Mapping[str, list[dict[str, Any]]] = {
    "attention": [
        {},
        {"prompt": "the " * 200},
        {"prompt": "a", "out": "x.gif"},
        {"prompt": "a", "out": "x.html", "format": "json"},
        {"prompt": "a", "temperature": 1},
        {"prompt": "a", "layers": 9},
        {"prompt": "a", "prompt_file": "my.txt"},
        {"prompt": "a", "generate": 60000},
        {"prompt": "a", "out": "x.json", "file_dtype": "float16"},
        {"over_training": True, "out": "film.png"},
        {"over_training": True},
        {"over_training": True, "seed": 1},
        {"prompt": "a", "run": "nothere"},
        {"prompt": "a", "checkpoint": "newest"},
        {"prompt": "a", "device": "cuda:77"},
    ],
    "bench": [{"config": "smal"}, {"config": "smoke", "settings": ["model.d_mode=3"]}, {"device": "cuda:77"}],
    "configs.check": [{}],
    "configs.show": [{"file": "smok"}, {"file": "smoke", "settings": ["model.dropout"]}],
    "data.fetch": [{"names": "nothere"}],
    "data.prepare": [
        {"source": "my.txt"},
        {"source": "short.txt", "config": "smoke"},
        {"source": "no.txt", "config": "smoke"},
    ],
    "data.stats": [{"source": "nothere.txt"}, {"source": "latin.txt"}, {"source": "my.txt", "settings": "x"}],
    "data.verify": [{"source": "nothere", "config": "smoke"}],
    "evaluate": [
        {"data": "nothere.txt"},
        {"stride": 1000},
        {"num_samples": 3},
        {"run": ["tiny", "runs/tiny"], "per_token": True},
        {"without": "9.9"},
        {"without": "x"},
        {"checkpoint": "77"},
        {"data": "latin.txt"},
    ],
    "explain": [
        {},
        {"prompt": "a", "layer": 9},
        {"prompt": "a", "query": "x"},
        {"prompt": "a", "query": 500},
        {"prompt": "a", "out": "x.png"},
        {"study": "mask", "out": "x.gif"},
        {"study": "mask", "prompt": "a"},
        {"prompt": "the " * 200},
    ],
    "export_model": [
        {"out": "x.html"},
        {"out": "x", "format": "html"},
        {"out": "taken"},
        {"out": "y", "title": "t"},
        {"out": "y", "quantize": "int8"},
    ],
    "heads": [
        {"query": 3},
        {"truncate": True},
        {"prompt": "a", "out": "x.html"},
        {"out": "-"},
        {"dtype": "float32"},
        {"sort": "loss_change"},
        {"over_training": True},
        {"prompt": "a", "query": 1, "out": "x.png"},
        {"prompt": "a", "data": "my.txt"},
        {"prompt": "a", "query": 77},
    ],
    "import_model": [{"directory": "nothere"}, {"directory": "taken"}, {"directory": "runs/tiny"}],
    "info": [{"path": "smok"}, {"path": "smoke", "checkpoint": "last"}, {"path": "smoke", "settings": ["a=b"]}],
    "compare": [{"runs": ["runs/smoke"]}, {"runs": ["a", "b"], "out": "x.html"}, {"runs": ["runs/smoke", "missing"]}],
    "lens": [{"truncate": True}, {"out": "x.gif"}, {"prompt": "a", "data": "my.txt"}, {"layers": 9}],
    "patch": [
        {},
        {"clean": "a"},
        {"clean": "ab", "corrupt": "a"},
        {"clean": "ab", "corrupt": "cb", "answer": "the value"},
        {"clean": "ab", "corrupt": "cb", "path": "1.0:0.0"},
        {"clean": "ab", "corrupt": "cb", "exact": False},
        {"clean": "ab", "corrupt": "cb", "out": "x.gif"},
        {"pairs": "my.txt"},
    ],
    "remove_runs": [{"names": "nothere"}, {"names": "taken"}],
    "report": [
        {"out": "x.json"},
        {"out": "x.gif"},
        {"out": "x.png", "prompt": "a"},
        {"runs": "nothere"},
        {"runs": ["tiny", "runs/tiny"]},
    ],
    "runs": [{"directory": "nothere"}, {"sort": "x"}],
    "sample": [
        {"run": "tin"},
        {},
        {"prompt": "a", "max_new_tokens": 0},
        {"prompt": "a", "greedy": True, "temperature": 1},
        {"prompt": "a", "prompt_file": "my.txt"},
        {"prompt": "a", "num_samples": 10_000, "max_new_tokens": 1_000_000},
        {"prompt": "a\udcff"},
        {"prompt_file": "latin.txt"},
        {"prompt_file": "nothere.txt"},
    ],
    "sweep": [{"file": "nothere.yaml"}, {"file": "sweep.yaml", "out": "taken"}],
    "tokens": [{}, {"text": "a", "tokenizer": "nothere"}, {"text": "a", "prompt": "b"}, {"text": "a\udcff"}],
    "train": [
        {"config": "auto", "init_from": "runs/tiny", "out": "runs/two"},
        {"resume": True},
        {"init_from": "runs/tiny"},
        {"config": "smok"},
        {"config": "smoke", "settings": ["model.dropout=2", "train.sed=1"]},
        {"config": "smoke", "settings": ["model.dropout"]},
        {"config": "smoke", "processes": 2},
        {"config": "smoke", "out": "runs/tiny"},
        {"config": "smoke", "out": "runs/tiny", "resume": True, "settings": ["model.d_model=16"]},
        {"config": "smoke", "out": "runs/tiny", "resume": True, "overwrite": True},
        {"config": "smoke", "data": "short.txt"},
        {"config": "smoke", "data": "nothere.txt"},
        {"config": "smoke", "data": "latin.txt"},
        {"out": "nothere", "resume": True},
        {
            "config": "smoke",
            "settings": ["train.learning_rate=100", "train.warmup_steps=0", "train.gradient_clip=null"],
        },
    ],
}


def _names() -> list[str]:
    return [FUNCTIONS.get(name, name).replace(" ", ".") for name in COMMANDS]


def test_every_function_that_can_refuse_is_provoked() -> None:
    assert {*_names()} - {"configs.schema", "configs.settings", "data.list"} == _REFUSED.keys()


def _provoke(function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    result = function(**given)
    for _ in result if function is gpt_cli.train else ():
        pass
    raise getattr(result, "failure", lambda: None)() or AssertionError(f"{given} is taken")


@pytest.mark.parametrize("name", _REFUSED)
def test_errors_name_keywords_and_no_pipe(name: str, everywhere: Path) -> None:
    function: Callable[..., Any] = attrgetter(name)(gpt_cli)
    for given in _REFUSED[name]:
        with pytest.raises(GptError) as raised:
            _provoke(function, given)
        for error in (raised.value, *raised.value.others):
            for text in (error.where, str(error), error.hint or ""):
                assert_of_python(text)


def test_a_traceback_shows_all_problems_and_hints(everywhere: Path) -> None:
    with pytest.raises(UsageError) as raised:
        gpt_cli.train("smoke", settings=["model.dropout=2", "train.sed=1"])
    shown = "".join(traceback.format_exception(raised.value))
    assert '\nsettings: there is no setting "train.sed"\n' in shown
    assert "\nhint: did you mean train.seed?" in shown


def test_a_run_that_cannot_be_loaded_names_the_keywords_of_load(here: Path) -> None:
    with pytest.raises(CheckpointError) as raised:
        gpt_cli.load()
    assert raised.value.hint == "gpt train --data my.txt trains one; path= names one that is elsewhere"
    with pytest.raises(UsageError, match=r"^checkpoint: "):
        gpt_cli.load("runs/tiny", checkpoint="newest")


def test_warnings_name_keywords(everywhere: Path) -> None:
    shutil.copytree("runs/tiny", "runs/other")
    config = Path("runs/other/config.yaml")
    config.write_text(config.read_text().replace("validation_fraction: 0.1", "validation_fraction: 0.2"))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        gpt_cli.evaluate(run=[Path("tiny"), Path("other")])
    assert "these runs are measured on different texts; data=SOURCE measures all on one" in str(warned[-1].message)
