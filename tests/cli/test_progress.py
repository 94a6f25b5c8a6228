import threading
from pathlib import Path

import pytest
from support.helpers import RunCommand, Terminal

from gpt_cli.cli import progress
from gpt_cli.cli.console import Console
from gpt_cli.cli.progress import Bar, Lines, Meter


def put_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal in place of stderr, where no time passes until a bar appears."""
    found = Terminal()
    monkeypatch.setattr("sys.stderr", found)
    monkeypatch.setattr(progress, "BAR_SECONDS", 0.0)
    return found


def test_a_line_has_the_time_where_nothing_was_counted_since_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 30 tokens, at 4 s none is done, at 12 and 24 s neither, at 36 s a third is, at 48 s too."""
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    found: list[str] = []
    work = Lines("sampling", 30, "tokens", found.append)
    work.begin()
    for now in (4.0, 12.0, 24.0):  # noqa: B007 - the clock reads it
        work.beat()
    now = 36.0
    work.add(10)
    now = 48.0
    work.beat()
    assert found == [
        "sampling: 0 of 30 tokens, 12 s",
        "sampling: 0 of 30 tokens, 24 s",
        "sampling: 10 of 30 tokens, 1 min 12 s left",
        "sampling: 10 of 30 tokens, 48 s",
    ]


def test_a_line_about_bytes_has_their_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """120 of 400 MB in 10 s, a gap, and all the rest in 20 s more."""
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    found: list[str] = []
    work = Lines("tokenizing", 400_000_000, "B", found.append)
    work.begin()
    now = 10.0
    work.add(120_000_000)
    now = 20.0
    work.beat()
    now = 40.0
    work.add(280_000_000)
    assert found == [
        "tokenizing: 120.0 of 400.0 MB, 12.0 MB/s, 23 s left",
        "tokenizing: 120.0 of 400.0 MB, 20 s",
        "tokenizing: 400.0 of 400.0 MB, 10.0 MB/s",
    ]


def test_between_counts_a_thread_moves_what_is_shown_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "BEAT_SECONDS", 0.001)
    beaten = threading.Event()

    class Counted(Meter):
        def begin(self) -> None:
            assert not beaten.is_set()

        def add(self, amount: int) -> None: ...

        def beat(self) -> None:
            beaten.set()

        def end(self) -> None: ...

    work = Counted("work", 1, "runs")
    work.count(0)
    assert beaten.wait(30)
    work.close()
    beaten.clear()
    assert not beaten.wait(0.02)


def test_a_bar_appears_without_a_count_has_the_speed_of_bytes_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = put_terminal(monkeypatch)
    bar = Bar("tokenizing: ", 400_000_000, "B")
    bar.count(0)
    bar.beat()
    assert "tokenizing:   0%" in terminal.getvalue()
    bar.count(120_000_000)
    bar.beat()
    assert "| 120M/400M [" in terminal.getvalue()
    assert "B/s]" in terminal.getvalue()
    bar.close()
    assert terminal.getvalue().endswith("\r")
    assert terminal.getvalue().split("\r")[-2].strip() == ""


def test_a_work_of_unknown_amount_shows_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, shown = put_terminal(monkeypatch), threading.Event()
    monkeypatch.setattr(progress, "BEAT_SECONDS", 0.001)
    beat = Bar.beat
    monkeypatch.setattr(Bar, "beat", lambda bar: (beat(bar), shown.set()))
    with Console().host().working("building models"):
        assert shown.wait(30)
        assert "\rbuilding models: 00:00" in terminal.getvalue()


def test_short_or_quiet_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = put_terminal(monkeypatch)
    with Console(quiet=True).host().working("building models"):
        pass
    monkeypatch.setattr(progress, "BAR_SECONDS", 2.0)
    bar = Bar("training: ", 30, "runs")
    bar.count(0)
    bar.beat()
    bar.close()
    assert terminal.getvalue() == ""


BYTES = ["--config", "smoke", "--set", "tokenizer.kind=byte"]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["attn-dump", "--prompt", "The", "--out", "a.json"], {"generating", "computing attention", "writing a.json"}),
        (["explain", "--study", "mask"], {"computing"}),
        (["heads", "--ablate", "mean", "--max-tokens", "64"], {"scoring heads", "removing heads"}),
        (["eval", "--max-tokens", "64"], {"tokenizing", "evaluating", "comparing with the training"}),
        (["data", "stats", "runs/smoke/config.yaml"], {"reading"}),
        (["data", "prepare", *BYTES], {"tokenizing"}),
        (["data", "fetch", "python-docs"], {"fetching python-docs"}),
        (["export", "--out", "exported"], {"writing exported"}),
        (["info", "smoke", *BYTES[2:]], {"tokenizing"}),
        (["train", *BYTES, "--max-steps", "1", "--out", "runs/b"], {"timing a step"}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_commands_say_what_they_are_doing(
    copied: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch, words: list[str], shown: set[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    assert shown <= {line.split(":")[0] for line in run(*words).err.splitlines()}


def test_the_label_of_a_bar_ends_with_the_colon_of_its_language(monkeypatch: pytest.MonkeyPatch) -> None:
    for language, total, label in (
        ("en", 30, "sampling:   0%|"),
        ("zh", 30, "采样：  0%|"),
        ("en", None, "sampling: 00:00"),
        ("zh", None, "采样：00:00"),
    ):
        monkeypatch.setenv("GPT_LANGUAGE", language)
        terminal = put_terminal(monkeypatch)
        with Console().counting("sampling", total, "tokens") as count:
            count(0)
        assert label in terminal.getvalue()
