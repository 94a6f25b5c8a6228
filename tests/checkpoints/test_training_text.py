"""Which text a model may read again: what its run's config.yaml names, and of a checkpoint by itself the catalogue's."""

import contextlib
import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest
from support.exchange import sharp_checkpoint
from support.helpers import small_config

from gpt_cli.checkpoints.checkpoint import save_checkpoint
from gpt_cli.checkpoints.header import Header, read_header
from gpt_cli.checkpoints.training_text import config_with_text, located, opening, readable_prompt, trusted_config
from gpt_cli.common.host import ignored
from gpt_cli.config import DataConfig
from gpt_cli.config.load import write_config
from gpt_cli.errors import DataError, UsageError
from gpt_cli.text import datasets

NO_TEXT = "gpt does not read a text only because a model names it: a stranger may have chosen it"
ALONE = f'"alone.safetensors": {NO_TEXT}'
IN_A_RUN = "mine/checkpoints/best.safetensors"


def header_naming(source: str, path: str = "alone.safetensors", *settings: str, num_tokens: int = 1000) -> Header:
    """The header of a checkpoint there that was trained on a source; of an import, on no tokens."""
    checkpoint = sharp_checkpoint(f"data.source={source}", "model.num_blocks=1", *settings)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    progress = replace(checkpoint.progress, step=7, num_training_tokens=num_tokens)
    save_checkpoint(Path(path), replace(checkpoint, progress=progress))
    return read_header(Path(path))


def run_naming(source: str) -> None:
    """The config.yaml of the run in `mine`."""
    Path("mine").mkdir(exist_ok=True)
    config = small_config(f"data.source={source}", "train.log_to=[tensorboard]")
    Path("mine/config.yaml").write_text(write_config(config))


def refusal(header: Header) -> list[str]:
    with pytest.raises(UsageError) as refused:
        config_with_text(header)
    return refused.value.lines()


def test_the_config_of_its_run_names_the_text_not_the_checkpoint(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = header_naming("theirs.txt", IN_A_RUN)
    run_naming("my.txt")
    assert config_with_text(header).data.source == "my.txt"
    assert trusted_config(header).train.log_to == ["tensorboard"]
    Path("mine/checkpoints/below").mkdir()
    for folder, name in (("mine/checkpoints", ""), ("mine/checkpoints/below", "../")):
        monkeypatch.chdir(here / folder)
        assert config_with_text(read_header(Path(f"{name}best.safetensors"))).data.source == "my.txt"


def test_a_run_without_a_config_and_an_imported_one_have_no_text(here: Path) -> None:
    header = header_naming("python-docs", IN_A_RUN)
    assert refusal(header) == ['error: "mine/config.yaml": this file of the run is missing', "hint: --data FILE"]
    header = header_naming("python-docs", IN_A_RUN, "train.compile=on", num_tokens=0)
    run_naming("my.txt")
    assert refusal(header) == [
        'error: "mine": this run was imported, so it has no text of its own',
        "hint: --data FILE",
    ]
    assert (trusted_config(header).train.log_to, trusted_config(header).train.compile) == ([], "auto")


def test_a_link_makes_no_run_of_what_lies_elsewhere(here: Path) -> None:
    """A stranger's folder may have one, to a hidden run of its own."""
    header_naming("theirs.txt", IN_A_RUN)
    run_naming("my.txt")
    Path("link.safetensors").symlink_to(IN_A_RUN)
    Path("linked").symlink_to("mine/checkpoints")
    for name in ("link.safetensors", "linked/best.safetensors"):
        header = read_header(Path(name))
        assert refusal(header) == [f'error: "{name}": {NO_TEXT}', "hint: --data FILE"]
        assert trusted_config(header).train.log_to == []


def test_a_model_directory_with_the_files_of_a_run_has_no_text(here: Path) -> None:
    header = header_naming("theirs.txt", IN_A_RUN)
    run_naming("my.txt")
    Path("mine/config.json").write_text("{}")
    sentence = '"mine": there is a config.json beside its checkpoints, so gpt does not treat it as a run of yours'
    assert refusal(header) == [f"error: {sentence}", "hint: --data FILE"]
    assert trusted_config(header).train.log_to == []


def test_a_config_that_is_not_valid_is_an_error_unless_another_text_is_named(here: Path) -> None:
    header = header_naming("theirs.txt", IN_A_RUN, "train.batch_size=5")
    run_naming("my.txt")
    written = Path("mine/config.yaml").read_text()
    for wrong, hint in (("oops: 1", "--data FILE"), ("trian: {}", "did you mean train? else --data FILE")):
        Path("mine/config.yaml").write_text(f"{written}{wrong}\n")
        error, *hints = refusal(header)
        assert (error.startswith("error: mine/config.yaml:"), hints) == (True, [f"hint: {hint}"])
    assert (trusted_config(header).data.source, trusted_config(header).train.batch_size) == ("python-docs", 5)


@pytest.mark.parametrize("source", ["/etc/passwd", "~/.ssh/id_rsa", "..", "*", "-", "[python-docs, my.txt]"])
def test_a_checkpoint_by_itself_names_no_text(here: Path, source: str) -> None:
    assert refusal(header_naming(source)) == [f"error: {ALONE}", "hint: --data FILE"]
    both = header_naming("python-docs", "alone.safetensors", f"data.validation_source={source}")
    assert refusal(both) == [f"error: {ALONE}", "hint: --data FILE"]
    assert trusted_config(both).data.validation_source is None


def test_a_text_of_the_catalogue_may_be_named_if_it_needs_no_network(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
    settings = "data.validation_source=repeats", "train.log_to=[tensorboard]"
    docs = config_with_text(header_naming("python-docs", "a", *settings))
    assert (docs.data.source, docs.data.validation_source, docs.train.log_to) == ("python-docs", "repeats", [])
    content = b"a text of the catalogue"
    entry = replace(datasets.ENTRIES["tinyshakespeare"], sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(datasets.ENTRIES, "tinyshakespeare", entry)
    header = header_naming("tinyshakespeare")
    sentence = "it was trained on tinyshakespeare of the catalogue, which gpt has not fetched yet"
    far = [f'error: "alone.safetensors": {sentence}', "hint: gpt data fetch tinyshakespeare, or --data FILE"]
    assert refusal(header) == far
    entry.cached.parent.mkdir(parents=True)
    entry.cached.write_bytes(content[:-1])  # a damaged one would be fetched again
    assert refusal(header) == far
    entry.cached.write_bytes(content)
    assert config_with_text(header).data.source == "tinyshakespeare"
    assert refusal(header_naming("tinyshakespeare", num_tokens=0)) == [f"error: {ALONE}", "hint: --data FILE"]


def test_a_text_from_stdin_is_gone_but_may_be_given_again(here: Path) -> None:
    header = header_naming("my.txt", IN_A_RUN)
    run_naming("-")
    with pytest.raises(DataError, match='"mine": this run was trained on text from stdin, which gpt did not save'):
        config_with_text(header)
    assert config_with_text(header, stdin=True).data.source == "-"


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("a.txt", "{top}/a.txt"),
        ("texts", "{top}/texts"),
        ("texts/*.md", "{top}/texts/*.md"),
        ("texts/**/*.md", "{top}/texts/**/*.md"),
        ("texts/b**.md", "{top}/texts/b**.md"),
        (["a.txt", "lunyu", "-"], ["{top}/a.txt", "lunyu", "-"]),
        (["a.txt", "gone.txt"], ["a.txt", "gone.txt"]),  # all of them, or none
        ("gone/*.md", "gone/*.md"),
        ("/gone/a.txt", "/gone/a.txt"),
        ("~/gone/a.txt", "~/gone/a.txt"),
    ],
)
def test_a_relative_path_counts_from_the_nearest_folder_around_the_run_that_has_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, named: str | list[str], found: str | list[str]
) -> None:
    top = here / "project"
    (top / "runs" / "mine").mkdir(parents=True)
    (top / "texts").mkdir()
    (top / "texts" / "b.md").write_text("b")
    (top / "a.txt").write_text("a")
    expected = found.format(top=top) if isinstance(found, str) else [one.format(top=top) for one in found]
    for place in (here, top / "runs"):
        monkeypatch.chdir(place)
        assert located(DataConfig(source=named), top / "runs" / "mine", ignored).source == expected
    monkeypatch.chdir(top)
    assert located(DataConfig(source=named), Path("runs/mine"), ignored).source == named


def test_a_run_with_the_name_of_its_text_is_not_the_text(copied: Path) -> None:
    top = copied.absolute().parent.parent
    os.rename(copied, top / "runs/a.txt")
    (top / "a.txt").write_text("a")
    data = DataConfig(source="a.txt")
    with contextlib.chdir(top):
        assert located(data, Path("runs/a.txt"), ignored).source == "a.txt"
    with contextlib.chdir(top / "runs"):
        assert located(data, Path("a.txt"), ignored).source == str(top / "a.txt")


@pytest.mark.parametrize(
    ("samples", "found", "why"),
    [
        (["The king is dead. Long", "The king is dead. So"], "The king is dead.", "what all samples share"),
        (["KING:\nWhat is", "KING:\nWho is"], "KING:", "a line"),
        (["The man who saw", "The man who said"], "The man who", "whole words"),
        (["有朋自远方来，不亦", "有朋自远方来，今天"], "有朋自远方来，", "of Chinese every character"),
        (["a word " * 30], "a word " * 14 + "a", "of one sample the line, at most 100 characters"),
        ([], "", "of a run without samples nothing"),
    ],
)
def test_a_page_opens_with_the_beginning_of_the_samples(here: Path, samples: list[str], found: str, why: str) -> None:
    header = header_naming("a.txt", "runs/a/checkpoints/best.safetensors")
    texts = (f"=== step {10 * number} ===\n{text}\n" for number, text in enumerate(samples, 1))
    Path("runs/a/samples.txt").write_text("".join(texts), "utf-8")
    assert opening(header) == found, why


def test_a_run_that_wrote_sums_reads_a_sum_and_no_english(here: Path) -> None:
    header = header_naming("a.txt", "runs/a/checkpoints/best.safetensors")
    for text, prompt in (("38+98=136", "38+"), ("to be", "The value of"), ("", "The value of")):
        Path("runs/a/samples.txt").write_text(f"=== step 10 ===\n{text}\n")
        assert readable_prompt(header) == prompt
    assert readable_prompt(header_naming("a.txt", "short.safetensors", "model.context_length=5")) == "The v"
