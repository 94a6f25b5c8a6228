"""Those who call a function of Python read keywords where the command line has flags."""

import re
import shutil
import traceback
import warnings
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from support.messages import QUOTED_OR_TYPED
from support.package import COMMANDS

import gpt_cli
from gpt_cli.cli.command_table import function_of
from gpt_cli.common.spelling import as_flags, as_keywords, described
from gpt_cli.config.suggest import FUNCTIONS
from gpt_cli.errors import CheckpointError, GptError, UsageError

_OF_A_TERMINAL = re.compile(r"--[a-z]|\bstdin\b|\bstdout\b|\bpipe\b|(the|a|no) terminal")


def assert_of_python(text: str) -> None:
    assert not _OF_A_TERMINAL.search(QUOTED_OR_TYPED.sub("", text)), text


@pytest.mark.parametrize(
    ("marked", "flags", "keywords"),
    [
        ("‹max_new_tokens=5›", "--max-new-tokens 5", "max_new_tokens=5"),
        ("‹greedy=True›", "--greedy", "greedy=True"),
        ("‹stream=False›", "--no-stream", "stream=False"),
        ("leave out ‹quantize›", "leave out --quantize", "leave out quantize"),
        ("‹prompt=The value of›", "--prompt 'The value of'", 'prompt="The value of"'),
        ("‹device=cpu›, or ‹out=FILE.npz›", "--device cpu, or --out FILE.npz", 'device="cpu", or out="FILE.npz"'),
        ("‹data=a.txt› ‹data=b c.txt›", "--data a.txt --data 'b c.txt'", 'data=["a.txt", "b c.txt"]'),
        ("lower ‹model.d_model›", "lower --set model.d_model", "lower model.d_model"),
        (
            "‹model.d_model=64› ‹train.seed=3› ‹max_steps=20›",
            "--set model.d_model=64 --set train.seed=3 --max-steps 20",
            'settings=["model.d_model=64", "train.seed=3"], max_steps=20',
        ),
        ("‹settings›: wrong", "--set: wrong", "settings: wrong"),
        ("‹settings=a b›", "--set 'a b'", 'settings=["a b"]'),
        ("another ‹data=FILE› beside the first", "another --data FILE beside the first", "another data=FILE beside the first"),
        ("‹form=html›", "--format html", 'form="html"'),
        ("‹json› has the figures", "--json has the figures", "as_dict() has the figures"),
        ("gpt train --data my.txt trains a model", "gpt train --data my.txt trains a model", "gpt train --data my.txt trains a model"),
        ('"--greedy" is no number', '"--greedy" is no number', '"--greedy" is no number'),
    ],
)  # fmt: skip
def test_each_door_writes_fields_in_its_way(marked: str, flags: str, keywords: str) -> None:
    assert (as_flags(marked), as_keywords(marked)) == (flags, keywords)


def test_an_argument_stands_behind_its_command() -> None:
    names = {"path": "PATH", "top_k": "--top_k"}
    assert as_flags("‹path›: wrong", names, "gpt info") == "PATH: wrong"
    assert as_flags("‹path=runs/a› ‹top_k=5›", names, "gpt info") == "gpt info runs/a --top_k 5"


def test_descriptions_lose_what_concerns_the_command_line() -> None:
    text = "stdout contains the continuations alone. An empty prompt starts a new document."
    assert described(text) == "An empty prompt starts a new document."
    assert described("The prompt; - reads it from stdin.") == "The prompt."
    assert described("Samples of ‹memorised›. Default: 10.") == "Samples of memorised. Default: 10."
    assert described("On a terminal, one by one. Default: ‹stream›.") == ""


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
        {"prompt": "the " * 200},
        {"prompt": "a", "out": "x.gif"},
        {"prompt": "a", "out": "x.html", "format": "json"},
        {"prompt": "a", "temperature": 1},
        {"prompt": "a", "generate": 60000},
        {"prompt": "a", "out": "x.json", "file_dtype": "float16"},
        {"over_training": True, "out": "film.png"},
        {"over_training": True},
        {"prompt": "a", "device": "cuda:77"},
    ],
    "bench": [{"config": "smal"}],
    "configs.check": [{}],
    "configs.show": [{"file": "smoke", "settings": ["model.dropout"]}],
    "data.fetch": [{"names": "nothere"}],
    "data.prepare": [{"source": "my.txt"}, {"source": "short.txt", "config": "smoke"}],
    "data.stats": [{"source": "latin.txt"}],
    "data.verify": [{"source": "nothere", "config": "smoke"}],
    "evaluate": [
        {"stride": 1000},
        {"num_samples": 3},
        {"run": ["tiny", "runs/tiny"], "per_token": True},
        {"without": "9.9"},
        {"checkpoint": "77"},
    ],
    "explain": [
        {"prompt": "a", "layer": 9},
        {"prompt": "a", "query": 500},
        {"prompt": "a", "out": "x.png"},
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
        {"prompt": "a", "out": "x.html"},
        {"out": "-"},
        {"dtype": "float32"},
        {"sort": "loss_change"},
        {"prompt": "a", "query": 1, "out": "x.png"},
    ],
    "import_model": [{"directory": "nothere"}, {"directory": "taken"}, {"directory": "runs/tiny"}],
    "info": [{"path": "smoke", "checkpoint": "last"}, {"path": "smoke", "settings": ["a=b"]}],
    "compare": [{"runs": ["runs/smoke"]}, {"runs": ["a", "b"], "out": "x.html"}],
    "lens": [{"prompt": "a", "data": "my.txt"}],
    "patch": [
        {},
        {"clean": "a"},
        {"clean": "ab", "corrupt": "a"},
        {"clean": "ab", "corrupt": "cb", "answer": "the value"},
        {"clean": "ab", "corrupt": "cb", "path": "1.0:0.0"},
        {"clean": "ab", "corrupt": "cb", "exact": False},
        {"pairs": "my.txt"},
    ],
    "remove_runs": [{"names": "nothere"}, {"names": "taken"}],
    "report": [{"out": "x.png", "prompt": "a"}, {"runs": "nothere"}, {"runs": ["tiny", "runs/tiny"]}],
    "runs": [{"directory": "nothere"}, {"sort": "x"}],
    "sample": [
        {"run": "tin"},
        {},
        {"prompt": "a", "max_new_tokens": 0},
        {"prompt": "a", "num_samples": 10_000, "max_new_tokens": 1_000_000},
        {"prompt": "a\udcff"},
        {"prompt_file": "nothere.txt"},
    ],
    "sweep": [{"file": "sweep.yaml", "out": "taken"}],
    "tokens": [{"text": "a", "tokenizer": "nothere"}, {"text": "a", "prompt": "b"}],
    "train": [
        {"config": "auto", "init_from": "runs/tiny", "out": "runs/two"},
        {"init_from": "runs/tiny"},
        {"config": "smoke", "settings": ["model.dropout=2", "train.sed=1"]},
        {"config": "smoke", "processes": 2},
        {"config": "smoke", "out": "runs/tiny"},
        {"config": "smoke", "out": "runs/tiny", "resume": True, "settings": ["model.d_model=16"]},
        {"out": "nothere", "resume": True},
        {"config": "smoke", "settings": ["tokenizer.kind=byte", "train.learning_rate=100", "train.gradient_clip=null"]},
    ],
}


def test_every_function_that_can_refuse_is_provoked() -> None:
    names = {FUNCTIONS.get(name, name).replace(" ", ".") for name in COMMANDS}
    assert names - {"configs.schema", "configs.settings", "data.list"} == _REFUSED.keys()


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
    assert raised.value.hint == "gpt train --data my.txt trains a model; or name a model in another folder"
    with pytest.raises(UsageError, match=r"^checkpoint: "):
        gpt_cli.load("runs/tiny", checkpoint="newest")


def test_warnings_name_keywords(everywhere: Path) -> None:
    shutil.copytree("runs/tiny", "runs/other")
    config = Path("runs/other/config.yaml")
    config.write_text(config.read_text().replace("validation_fraction: 0.1", "validation_fraction: 0.2"))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        gpt_cli.evaluate(run=[Path("tiny"), Path("other")])
    assert "these runs are measured on different texts; data=SOURCE measures all on the same text" in str(
        warned[-1].message
    )
