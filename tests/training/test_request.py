import json
from pathlib import Path

import pytest
from support.helpers import CORPUS_TEXT, RunCommand, small_config

from gpt_cli import load, train
from gpt_cli.common.file_signatures import LOCK
from gpt_cli.errors import UsageError
from gpt_cli.training.events import Evaluated, Finished, Prepared, Sampled, Saved, Stepped

SETTINGS = ["tokenizer.kind=byte", "train.sample_every=null"]


@pytest.fixture(autouse=True)
def _corpus(here: Path) -> None:
    (here / "corpus.txt").write_text(CORPUS_TEXT)


def test_a_training_reports_and_its_model_loads() -> None:
    notices: list[str] = []
    reports = list(train("smoke", data="corpus.txt", settings=SETTINGS, notice=notices.append, warn=pytest.fail))
    assert isinstance(reports[0], Prepared)
    assert (reports[0].steps_left, reports[0].vocab_size, reports[0].step) == (20, 257, 0)
    assert [report.step for report in reports if isinstance(report, Stepped)] == list(range(1, 21))
    assert {type(report) for report in reports[1:-1]} == {Stepped, Evaluated, Sampled, Saved}
    assert isinstance(reports[-1], Finished)
    assert reports[-1].summary["stopped_by"] == "steps"
    assert load("runs/smoke").step == reports[-1].best_step == 20
    assert notices == []  # the text has no blank lines, so nothing suggests several documents


def test_a_training_is_finished_from_wherever_its_reports_are() -> None:
    training = train("smoke", data="corpus.txt", settings=SETTINGS, max_steps=3)
    assert isinstance(next(training), Prepared)
    finished = training.finish()
    assert finished.as_dict()["steps"] == 3
    assert training.finish() is finished
    assert list(training) == []
    again = train("smoke", data="corpus.txt", settings=SETTINGS, max_steps=3, overwrite=True)
    assert list(again)[-1] is again.finish()


def test_a_training_that_was_closed_has_no_result() -> None:
    training = train("smoke", data="corpus.txt", settings=SETTINGS)
    next(training)
    training.close()
    with pytest.raises(UsageError, match="this training was closed, or an error ended it") as raised:
        training.finish()
    assert raised.value.hint == "resume=True continues it from its last checkpoint"


def test_nothing_is_written_before_the_first_report_is_taken() -> None:
    reports = train("smoke", data="corpus.txt", settings=SETTINGS)
    assert not Path("runs").exists()
    next(reports)
    assert [path.name for path in Path("runs/smoke").iterdir()] == [LOCK]
    reports.close()
    assert not Path("runs").exists()


def test_a_config_from_python_needs_a_name_for_its_run() -> None:
    config = small_config("train.max_steps=2", "data.source=corpus.txt")
    with pytest.raises(UsageError, match="so name the run directory with out"):
        train(config)
    assert train(config, out="runs/mine", settings=["train.max_steps=1"]).finish().summary["steps"] == 1
    again = train(out=Path("runs/mine"), resume=True, settings=["train.max_steps=3"])
    assert again.finish().summary["steps"] == 3


def test_keywords_are_the_flags_and_change_the_same_settings() -> None:
    flags = {"device": "cpu", "dtype": "float32", "compile": "off", "threads": 1, "seed": 7, "watch": "The value"}
    prepared = next(train("smoke", data=["corpus.txt"], max_steps=3, settings=["train.max_time=9"], **flags))
    assert isinstance(prepared, Prepared)
    settings = prepared.config.train
    assert (settings.device, settings.dtype, settings.compile) == ("cpu", "float32", "off")
    assert (settings.threads, settings.seed, settings.max_steps, settings.max_time) == (1, 7, 3, 9.0)
    assert (prepared.config.inspect.prompt, prepared.config.data.source) == ("The value", "corpus.txt")
    by_the_clock = next(train("smoke", data="corpus.txt", out="runs/other", max_time="1m30s"))
    assert isinstance(by_the_clock, Prepared)
    assert by_the_clock.config.train.max_time == 90


def test_wrong_keywords_are_refused_at_once_and_together() -> None:
    with pytest.raises(UsageError) as raised:
        train("smoke", max_steps=0, dtype="int8", warn=3)  # pyright: ignore[reportArgumentType]
    assert [str(error) for error in (raised.value, *raised.value.others)] == [
        "warn: 3 is not a function",
        'dtype: "int8" is not one of auto, float32, bfloat16',
        "max_steps: 0 is not a whole number from 1 to 2,147,483,647",
    ]
    with pytest.raises(UsageError, match="overwrite and resume cannot be combined"):
        train("smoke", resume=True, overwrite=True)
    with pytest.raises(UsageError, match="from Python one process trains") as raised:
        train("smoke", processes=2)
    assert raised.value.hint == "gpt train --processes 2"
    assert not Path("runs").exists()


def test_the_end_is_a_result_with_a_picture_and_leaves_the_directory_free(run: RunCommand) -> None:
    finished = train("smoke", data="corpus.txt", settings=SETTINGS, max_steps=2).finish()
    assert finished.as_text().startswith("runs/smoke: 2 steps in ")
    assert finished.as_text().endswith(str(finished).removeprefix("runs/smoke: 2 steps"))
    shown = finished._repr_mimebundle_()
    assert shown["text/plain"] == finished.as_text()
    assert bytes(shown["image/png"]).startswith(b"\x89PNG")  # pyright: ignore[reportArgumentType]
    words = ["--config", "smoke", "--data", "corpus.txt", "--set", SETTINGS[0], "--set", SETTINGS[1], "--overwrite"]
    words += ["--max-steps", "2"]
    printed = json.loads(run("train", *words, "--json").out)
    times = {"seconds": 0, "tokens_per_second": 0}
    assert printed | times == finished.as_dict() | times
    for report in train("smoke", data="corpus.txt", settings=SETTINGS, max_steps=2, overwrite=True):
        assert Path("runs/smoke", LOCK).exists() != isinstance(report, Finished)


def test_nothing_is_printed_but_a_bar_with_the_loss_where_it_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    options = {"data": "corpus.txt", "settings": SETTINGS, "max_steps": 3}
    list(train("smoke", **options))
    assert capfd.readouterr() == ("", "")
    finished = train("smoke", overwrite=True, progress=True, **options).finish()
    bar = capfd.readouterr().err.rsplit("runs/smoke:", 1)[1]
    assert "| 3/3 [" in bar
    assert f"loss {finished.as_dict()['smoothed_loss']:.3f}" in bar
