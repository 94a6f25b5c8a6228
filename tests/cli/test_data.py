import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import RunCommand
from support.light import WithoutTorch

import gpt_cli
from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.errors import DataError
from gpt_cli.text import cache, corpus, datasets, prepare
from gpt_cli.tools.bench import text_stats


def test_data_list_names_every_corpus_in_the_language_of_the_user(
    run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert max(map(len, run("data", "list").out.splitlines())) <= 80
    english = run("data", "list", "--json").out
    assert [entry["name"] for entry in json.loads(english)["corpora"]] == list(datasets.ENTRIES)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("GPT_LANGUAGE", "zh")
    head, *rows = run("data", "list").out.splitlines()
    assert head.split() == ["名字", "许可", "状态", "文本"]
    assert [row.split()[0] for row in rows] == list(datasets.ENTRIES)
    assert rows[list(datasets.ENTRIES).index("lunyu")].split()[1:] == ["MIT；文本属于公有领域", "尚未下载", "《论语》"]
    assert run("data", "list", "--json").out == english


def test_data_stats_counts(here: Path, run: RunCommand) -> None:
    Path("a.txt").write_text("今天\nab\n")
    assert json.loads(run("data", "stats", "a.txt", "--json").out) == {
        "documents": 1,
        "skipped_files": 0,
        "repeated_files": 0,
        "bad_files": 0,
        "characters": 6,
        "bytes": 10,
        "lines": 2,
        "distinct_characters": 5,
    }
    assert "bad files" not in run("data", "stats", "a.txt").out
    assert "characters           6" in run("data", "stats", "a.txt").out
    Path("b.txt").write_text("cd")
    assert "characters           8" in run("data", "stats", "a.txt", "b.txt").out


def test_data_stats_counts_the_text_of_questions_and_answers(here: Path, run: RunCommand) -> None:
    Path("qa.jsonl").write_text('{"prompt": "abc", "response": "今"}\n' * 2)
    outcome = run("data", "stats", "qa.jsonl", "--json")
    assert outcome.err == "these are questions and answers; gpt counts their text, without field names and roles\n"
    found = json.loads(outcome.out)
    assert (found["documents"], found["lines"]) == (2, 2)  # abc\n今, without quotes and brackets
    assert (found["characters"], found["bytes"], found["distinct_characters"]) == (10, 14, 5)


def test_data_fetch_writes_what_train_reads(here: Path, run: RunCommand) -> None:
    assert run("data", "fetch", "python-docs", "--out", "data").out == "data/python-docs.jsonl\n"
    written, named = (
        json.loads(run("data", "stats", s, "--json").out) for s in ("data/python-docs.jsonl", "python-docs")
    )
    assert written == named


def test_a_download_that_cannot_be_kept_advises_another_folder(
    here: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "read_entry", lambda _: ["text"])
    outcome = run("data", "fetch", "lunyu", exits=5)
    assert outcome.err.splitlines()[0].endswith("is not writable")
    assert outcome.err.splitlines()[1] == "hint: gpt data fetch lunyu --out DIR"
    assert run("data", "fetch", "lunyu", "--out", "d").out == "d/lunyu.txt\n"


@settings(max_examples=10)
@given(st.lists(st.text(max_size=9)))
def test_characters_are_counted_whatever_they_are(texts: list[str]) -> None:
    counted = text_stats.Characters()
    for text in texts:
        counted.add(text.encode())
    whole = "".join(texts)
    points = counted.counts.nonzero()[0].tolist()
    assert {chr(point): counted.counts[point] for point in points} == {c: whole.count(c) for c in whole}


def test_data_stats_counts_what_an_earlier_program_has_surveyed(here: Path, run: RunCommand, kept: None) -> None:
    write("a.txt", "今天\nab\n")
    first = run("data", "stats", "a.txt").out
    assert list((Path(os.environ["XDG_CACHE_HOME"]) / "gpt-cli" / "manifests").iterdir())
    assert run("data", "stats", "a.txt").out == first


def test_data_stats_counts_nothing_of_bad_files_and_records(here: Path, run: RunCommand) -> None:
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("ab\n")
    Path("texts/b.jsonl").write_text('{"text": "cd"}\nno object\n')
    Path("texts/c.txt").write_bytes(b"caf\xe9")
    flags = ["--config", "smoke", "--set", "data.skip_bad=true", "--set", "tokenizer.kind=byte", "--json"]
    found = json.loads(run("data", "stats", "texts", *flags).out)
    assert (found["bad_files"], found["characters"], found["distinct_characters"]) == (1, 5, 5)


@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_data_stats_estimates_tokens_from_a_sample(
    here: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A text of 400 kB, of which an eighth is looked at: the estimate is within 5 % of what training would have."""
    monkeypatch.setattr(text_stats, "ESTIMATE_BYTES", 50_000)
    python_docs = datasets.read_entry(datasets.ENTRIES["python-docs"])
    Path("a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in python_docs))
    flags = ["a.jsonl", "--config", "smoke", "--set", f"tokenizer.kind={kind}", "--json"]
    estimated, made = (json.loads(run("data", name, *flags).out) for name in ("stats", "prepare"))
    assert estimated["training_tokens"] == pytest.approx(made["training_tokens"], rel=0.05)
    assert estimated["vocab_size"] == made["vocab_size"]
    ratio = estimated["training_tokens"] / estimated["parameters"]
    assert estimated["tokens_per_parameter"] == pytest.approx(ratio)


def test_data_stats_says_that_tokens_are_estimated_also_where_there_are_none(here: Path, run: RunCommand) -> None:
    Path("a.txt").write_text(TEXT)
    out = run("data", "stats", "a.txt", *CONFIG).out
    assert "training tokens       about 9,000\n" in out
    assert "bytes per token       about 1\n" in out
    Path("a.txt").write_text("a")
    out = run("data", "stats", "a.txt", *CONFIG, "--set", "data.validation_fraction=0.9").out
    assert "training tokens       about 0" in out


def write(name: str, text: str) -> None:
    """Write a file that is old enough to be remembered."""
    Path(name).write_text(text)
    os.utime(name, (1e9, 1e9))


@pytest.fixture
def kept(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache that keeps short texts and new files too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    for module in (corpus, prepare):
        monkeypatch.setattr(module, "CACHE_FROM", 100)
    monkeypatch.setattr(cache, "REMEMBER_FROM", 1)
    monkeypatch.setattr(cache, "RACY_SECONDS", 0)


TEXT = "123456789\n" * 1000
CONFIG = ["--config", "smoke", "--set", "tokenizer.kind=byte"]


def prepared(run: RunCommand, *words: str) -> dict[str, Any]:
    outcome = run("data", "prepare", *words, *CONFIG, "--json", exits=0)
    return json.loads(outcome.out)


def test_data_prepare_makes_what_training_reads(smoke_run: Path, run: RunCommand) -> None:
    stored = read_checkpoint(smoke_run / "checkpoints" / "best.safetensors")
    made = json.loads(run("data", "prepare", "--config", "smoke", "--json").out)
    assert made["data_digest"] == stored.progress.data_digest
    assert made["bytes_on_disk"] == 0
    assert "on disk            nothing; a text this short is tokenized at every start" in (
        run("data", "prepare", "--config", "smoke").out
    )


def test_data_prepare_keeps_tokens_once(here: Path, run: RunCommand, kept: None) -> None:
    write("a.txt", TEXT)
    first, again = prepared(run, "a.txt"), prepared(run, "a.txt")
    assert (first["training_tokens"], first["validation_tokens"]) == (9000, 1000)
    assert first["bytes_per_token"] == 1
    assert first["bytes_on_disk"] > 2 * 10_000
    assert first["bytes_per_second"] > 0
    assert again["bytes_per_second"] is None
    assert again | {"seconds": 0, "bytes_per_second": 0} == first | {"seconds": 0, "bytes_per_second": 0}
    assert "an earlier gpt had prepared this text" in run("data", "prepare", "a.txt", *CONFIG).out


def test_data_prepare_takes_several_sources_and_a_validation_text(here: Path, run: RunCommand, kept: None) -> None:
    write("a.txt", "a" * 300)
    write("b.txt", "b" * 300)
    write("c.txt", "c" * 200)
    made = prepared(run, "a.txt", "b.txt", "--set", "data.validation_source=c.txt")
    # and end-of-text
    assert (made["documents"], made["training_tokens"], made["validation_tokens"]) == (2, 601, 200)


def test_data_prepare_counts_the_text_of_answers_without_the_json(here: Path, run: RunCommand) -> None:
    Path("pairs.jsonl").write_text('{"prompt": "Two and two?", "response": "Four."}\n' * 60)
    counted = json.loads(run("data", "stats", "pairs.jsonl", "--json").out)
    prepared = json.loads(run("data", "prepare", "pairs.jsonl", "--config", "smoke", "--json").out)
    assert prepared["characters"] == counted["characters"] == 60 * len("Two and two?Four.\n")
    tokens = prepared["training_tokens"] + prepared["validation_tokens"]
    assert prepared["bytes_per_token"] == counted["bytes"] / tokens
    table = run("data", "prepare", "pairs.jsonl", "--config", "smoke").out
    assert "nothing; questions and answers are tokenized at every start" in table


def test_data_prepare_says_that_stdin_is_not_kept(here: Path, run: RunCommand, kept: None) -> None:
    outcome = run("data", "prepare", "-", *CONFIG, stdin=TEXT.encode())
    assert outcome.err.splitlines()[-1] == (
        "gpt keeps the tokens of stdin, not its text: give gpt train the same text again"
    )
    write("my-notes.txt", TEXT)
    outcome = run("data", "prepare", "my-notes.txt", *CONFIG)
    assert "stdin" not in outcome.err
    assert "an earlier gpt had prepared this text" in outcome.out  # the same text


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["prepare", "a.txt"], 2, "gpt data prepare: --config is missing; "),
        (["prepare", "a.txt", "--config", "tinny"], 2, '"tinny": there is no such config file'),
        (["prepare", "no.txt", "--config", "smoke"], 3, '"no.txt": there is no such file'),
        (["prepare", "a.txt", *CONFIG, "--set", "data.validation_source=no.txt"], 3, '"no.txt": there is no such file'),
        (["verify", "no.txt"], 3, '"no.txt": there is no such file'),
        (["verify"], 2, "gpt data verify: SOURCE is missing"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_missing_is_named(here: Path, run: RunCommand, words: list[str], code: int, error: str) -> None:
    write("a.txt", TEXT)
    outcome = run("data", *words, exits=code)
    assert outcome.out == ""
    assert outcome.err.splitlines()[-2 if "hint: " in outcome.err else -1].startswith(f"error: {error}")


def test_data_prepare_refuses_a_cache_that_cannot_be_written(
    here: Path, run: RunCommand, kept: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("a.txt", TEXT)
    Path("file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "file"))
    assert run("data", "prepare", "a.txt", *CONFIG, exits=5).out == ""


def test_data_verify_reads_the_text_and_all_tokens_made_from_it(here: Path, run: RunCommand, kept: None) -> None:
    write("a.txt", TEXT)
    write("other.txt", TEXT.upper())
    nothing = run("data", "verify", "a.txt")
    assert nothing.out.splitlines()[1] == "text  readable  10.0 kB  a.txt"
    assert nothing.err.startswith("no tokens of this text are prepared: ")
    prepared(run, "other.txt")
    prepared(run, "a.txt")
    prepared(run, "a.txt", "--set", "data.validation_fraction=0.5")
    found = json.loads(run("data", "verify", "a.txt", "--json").out)["verified"]
    assert [row["state"] for row in found] == ["intact"] * 5
    assert sorted(row["tokens"] for row in found[1:]) == [1000, 5000, 5000, 9000]
    assert "intact  9,000 of byte, vocabulary of 257" in run("data", "verify", "a.txt").out


def test_data_verify_says_that_tokens_of_a_short_text_are_not_kept(here: Path, run: RunCommand) -> None:
    write("a.txt", TEXT)
    assert prepared(run, "a.txt")["bytes_on_disk"] == 0
    small = "gpt tokenizes a text below 2,000,000 characters at every start"
    assert run("data", "verify", "a.txt").err == f"the cache holds no tokens of this text: {small}\n"


def test_data_verify_names_damaged_tokens(here: Path, run: RunCommand, kept: None) -> None:
    write("a.txt", TEXT)
    made = prepared(run, "a.txt")
    changed = Path(made["training_directory"], "part-00000.safetensors")
    content = bytearray(changed.read_bytes())
    content[-1] ^= 1
    changed.write_bytes(content)
    Path(made["validation_directory"], "part-00000.safetensors").unlink()
    assert isinstance(gpt_cli.data.verify("a.txt").failure(), DataError)
    outcome = run("data", "verify", "a.txt", exits=3)
    assert outcome.out.count("damaged") == 2
    errors = [line for line in outcome.err.splitlines() if line.startswith("error: ")]
    assert {line.split('"')[1] for line in errors} == {str(changed), made["validation_directory"]}
    assert prepared(run, "a.txt")["data_digest"] == made["data_digest"]
    run("data", "verify", "a.txt", exits=0)


def test_data_verify_notices_a_text_that_changed_in_place(
    here: Path, run: RunCommand, kept: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a failing disk changes it: size, times and inode stay. The note about the text stays as well."""
    write("a.txt", TEXT)
    made = prepared(run, "a.txt")
    changed = bytearray(TEXT, "utf-8")
    changed[10] ^= 1
    before = os.stat("a.txt")
    Path("a.txt").write_bytes(changed)
    stat = os.stat

    def forgetful(path: Any, *words: Any, **names: Any) -> os.stat_result:
        return before if path == "a.txt" else stat(path, *words, **names)

    monkeypatch.setattr(os, "stat", forgetful)
    for _ in range(2):
        outcome = run("data", "verify", "a.txt", exits=3)
        assert outcome.err.startswith('error: "a.txt": the content of the files has changed')
    assert prepared(run, "a.txt")["data_digest"] == made["data_digest"]


@pytest.mark.parametrize(
    "words", [["prepare", "--config", "smoke"], ["verify", "python-docs"], ["stats", "python-docs"]], ids=" ".join
)
def test_commands_about_texts_need_no_torch(words: list[str], without_torch: WithoutTorch) -> None:
    without_torch("data", *words, exits=0)


def test_settings_of_a_text_need_no_config(here: Path, run: RunCommand) -> None:
    Path("a.jsonl").write_text('{"body": "今天"}\n')
    assert run("data", "stats", "a.jsonl").err.endswith("hint: --set data.text_field=body\n")
    for command in ("stats", "verify"):
        run("data", command, "a.jsonl", "--set", "data.text_field=body", exits=0)


def test_python_has_the_figures_that_json_prints_and_prints_nothing(
    here: Path, run: RunCommand, capfd: pytest.CaptureFixture[str], kept: None
) -> None:
    write("a.txt", TEXT)
    settings = ["data.validation_fraction=0.5", "tokenizer.kind=byte"]
    found = {
        "list": gpt_cli.data.list(),
        "stats": gpt_cli.data.stats("a.txt", config="smoke", settings=settings),
        "fetch": gpt_cli.data.fetch("python-docs", out="data"),
        "prepare": gpt_cli.data.prepare("a.txt", config="smoke", settings=settings),
        "verify": gpt_cli.data.verify(Path("a.txt"), config="smoke"),
    }
    assert capfd.readouterr() == ("", "")
    flags = ["--config", "smoke", *(word for each in settings for word in ("--set", each))]
    words = {"list": [], "stats": ["a.txt", *flags], "verify": ["a.txt", "--config", "smoke"]}
    for name, asked in words.items():
        assert json.loads(run("data", name, *asked, "--json").out) == found[name].as_dict(), name
    again = json.loads(run("data", "prepare", "a.txt", *flags, "--json").out)
    assert {**found["prepare"].as_dict(), "seconds": 0, "bytes_per_second": None} == {**again, "seconds": 0}
    assert found["fetch"].as_dict() == {"paths": ["data/python-docs.jsonl"]}
    assert found["stats"].as_text().splitlines()[0].split() == ["documents", "1"]
