import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.exchange import sharp_checkpoint
from support.helpers import RunCommand
from support.light import WithoutTorch
from support.pages import content_of, keep, snapshots_of

import gpt_cli
from gpt_cli.checkpoints.checkpoint import save_checkpoint
from gpt_cli.checkpoints.header import read_header
from gpt_cli.common.safetensors_header import header_bytes

pytestmark = pytest.mark.slow

FIGURES = {"out", "format", "class", "parameters", "bytes"}


def test_a_run_becomes_a_directory_for_transformers(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    out = tmp_path / "hf"
    outcome = run("export", "--run", smoke_run, "--out", out, "--json", exits=0)
    figures = json.loads(outcome.out)
    assert figures.keys() == FIGURES
    assert (figures["out"], figures["format"], figures["class"]) == (str(out), "hf", "GPT2LMHeadModel")
    # GPT-2 has biases of queries, keys and values, zeros here, of which a line says that
    own = sum(parameter.numel() for parameter in gpt_cli.load(smoke_run).model.parameters())
    assert figures["parameters"] == own + 2 * 3 * 32
    assert figures["bytes"] == sum(path.stat().st_size for path in out.iterdir())
    assert outcome.err == (
        "this model has none of attn.c_attn.bias: gpt writes zeros, which further training may change\n"
    )
    # an earlier export is replaced
    again = run("export", "--run", smoke_run, "--out", out, "--checkpoint", "last", "--quiet")
    assert (again.code, again.err) == (0, "")
    assert again.out.startswith(f"{out}: GPT2LMHeadModel of transformers, ")


def test_a_run_becomes_one_file_that_every_command_reads(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    out = tmp_path / "shared.safetensors"
    outcome = run("export", "--run", smoke_run, "--out", out, "--format", "safetensors", "--json")
    figures = json.loads(outcome.out)
    assert figures.keys() == FIGURES
    assert (figures["class"], figures["bytes"]) == (None, out.stat().st_size)
    sampled = ["--prompt", "The", "--greedy", "--max-new-tokens", "8", "--quiet"]
    assert run("sample", "--run", out, *sampled).out == run("sample", "--run", smoke_run, *sampled).out
    for command in (["eval", "--run", out, "--json"], ["info", out], ["attn-dump", "--run", out, "--prompt", "The"]):
        run(*command, exits=0)
    run("export", "--run", out, "--out", tmp_path / "hf", exits=0)


def test_a_run_becomes_a_page_whose_size_is_told_before(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    out = tmp_path / "smoke.html"
    words = ["export", "--run", smoke_run, "--format", "html", "--out", out]
    outcome = run(*words, "--json", "--title", "第三课", "--prompt", "Two words", exits=0)
    told = re.fullmatch(r"the page will have about (\d+\.\d) kB, with weights in float16\n", outcome.err)
    assert told
    figures = json.loads(outcome.out)
    assert figures.keys() == FIGURES
    assert (figures["format"], figures["class"], figures["bytes"]) == ("html", None, out.stat().st_size)
    assert figures["bytes"] == pytest.approx(1000 * float(told[1]), rel=0.02)
    assert figures["parameters"] == sum(each.numel() for each in gpt_cli.load(smoke_run).model.parameters())
    content = content_of(out.read_bytes())
    assert (content["origin"]["run"], content["title"], content["prompt"]) == ("smoke", "第三课", "Two words")
    assert run(*words, "--prompt", "\udcc4", exits=3).err.startswith("error: --prompt: ")
    assert content_of(out.read_bytes()) == content
    # one checkpoint by itself has the name of its file
    alone = tmp_path / "shared.safetensors"
    run("export", "--run", smoke_run, "--out", alone, "--format", "safetensors", exits=0)
    smaller = run("export", "--run", alone, "--format", "html", "--out", out, "--quantize", "int8", "--quiet")
    assert (smaller.code, smaller.err) == (0, "")
    assert smaller.out.startswith(f"{out}: a page in which the model runs, ")
    assert content_of(out.read_bytes())["origin"]["run"] == "shared"
    assert out.stat().st_size < figures["bytes"] - 50_000


def test_export_model_says_what_it_wrote_and_prints_nothing(
    smoke_run: Path, run: RunCommand, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    export_model: Any = gpt_cli.export_model  # as a type checker knows no format in a variable
    for form, name in (("hf", "hf"), ("html", "m.html")):
        out = tmp_path / name
        prompt = "-" if form == "html" else None  # which is itself, as Python has no pipe
        found = export_model(run=smoke_run, out=out, format=form, prompt=prompt)
        assert capfd.readouterr() == ("", "")
        if prompt:
            assert content_of(out.read_bytes())["prompt"] == "-"
            out.unlink()
        words = ["export", "--run", smoke_run, "--out", out, "--format", form, "--json"]
        outcome = run(*words, *(["--prompt", "."] if prompt else []), exits=0)
        printed = json.loads(outcome.out)
        assert found.as_dict() == printed | {"bytes": found.num_bytes}
        assert found.num_bytes == pytest.approx(printed["bytes"], rel=0.001)
        assert (found.out, found.format, found.class_name) == (str(out), form, printed["class"])
        assert found.as_text().startswith(f"{out}: ")


def test_a_hand_out_is_a_folder_of_pages_that_replaces_an_earlier_one(
    copied: Path, run: RunCommand, tmp_path: Path
) -> None:
    keep(snapshots_of(2, 2, 2, ["One", " text"]), copied)
    out = tmp_path / "class"
    words = ["export", "--run", copied, "--format", "handout", "--out", out]
    outcome = run(*words, "--title", "Lesson 3", "--prompt", "The value", "--json", exits=0)
    figures = json.loads(outcome.out)
    assert figures.keys() == FIGURES
    assert (figures["format"], figures["class"]) == ("handout", None)
    contents = {path.stem: content_of(path.read_bytes()) for path in out.iterdir()}
    assert contents["index"]["handout"]["pages"] == ["model", "attention", "film"]
    assert contents["index"]["handout"] | {"title": "Lesson 3", "prompt": "The value"} == contents["index"]["handout"]
    assert {contents[name]["title"] for name in ("model", "attention", "film")} == {"Lesson 3"}
    assert contents["model"]["prompt"] == contents["attention"]["origin"]["prompt"] == "The value"
    assert "".join(contents["attention"]["tokens"]) == "The value"
    assert contents["film"]["tokens"] == ["One", " text"]
    assert figures["bytes"] == sum(path.stat().st_size for path in out.iterdir())
    # nobody learns where the run lies
    assert not any(str(tmp_path.parent).encode() in path.read_bytes() for path in out.iterdir())
    # a checkpoint by itself has no film
    alone = tmp_path / "shared.safetensors"
    run("export", "--run", copied, "--out", alone, "--format", "safetensors", exits=0)
    run("export", "--run", alone, "--format", "handout", "--out", out, "--prompt", "The value of it " * 9, exits=0)
    assert sorted(path.name for path in out.iterdir()) == ["attention.html", "index.html", "model.html"]
    context_length = content_of((out / "model.html").read_bytes())["config"]["context_length"]
    tokens = content_of((out / "attention.html").read_bytes())["tokens"]
    assert len(tokens) == context_length, "the last ones, where a prompt is too long"
    assert ("The value of it " * 9).endswith("".join(tokens))
    (out / "notes.txt").write_text("of a teacher")
    run(*words, exits=2)


def test_a_model_too_large_for_a_page_is_refused_before_torch_is_loaded(
    here: Path, without_torch: WithoutTorch
) -> None:
    save_checkpoint(here / "small.safetensors", sharp_checkpoint("model.num_blocks=1"))
    tensors = {"token_embedding.weight": ("F32", (300_000, 512))}
    header = header_bytes(tensors, read_header(here / "small.safetensors").metadata)
    with open(here / "large.safetensors", "wb") as file:
        file.write(header)
        file.truncate(len(header) + 4 * 300_000 * 512)  # zeros that take no room
    done = without_torch("export", "--run", "large.safetensors", "--format", "html", "--out", "large.html", exits=5)
    # 153.6 million weights and 1.2 million bytes of scales, in base64, and the page's own script
    told = re.match(
        r"error: --format html: the page would have (\d+) MB with weights in int8, and browsers", done.stderr
    )
    assert told
    assert int(told[1]) == pytest.approx((153.6 + 1.2) * 4 / 3, abs=1)
    assert not (here / "large.html").exists()


def test_a_tokenizer_that_is_damaged_in_the_header_is_an_error_of_the_checkpoint(here: Path, run: RunCommand) -> None:
    path = here / "shared.safetensors"
    save_checkpoint(path, sharp_checkpoint("model.num_blocks=1"))
    path.write_bytes(path.read_bytes().replace(rb'"{\"kind\":\"byte\"}"', rb'"[\"kind\":\"byte\"}"'))
    outcome = run("export", "--run", path, "--format", "html", "--out", "model.html", exits=4)
    assert outcome.err.startswith(f'error: "{path}": this is not a valid checkpoint, ')


@pytest.fixture
def taken(tmp_path: Path) -> Path:
    """A folder with things that are not ours to replace."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("a year of work")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "ollama").mkdir()
    (tmp_path / "ollama" / "Modelfile").write_text("FROM llama3\n")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("<h1>My site</h1>")
    (tmp_path / "file").write_text("a file")
    return tmp_path


NOTES = 'error: --out: "{0}/notes" contains "thesis.txt"; name a new directory'
AS_THEY_ARE = "--format hf writes weights as they are"


@pytest.mark.parametrize(
    ("out", "words", "line"),
    [
        ("notes", "", f"{NOTES}, an empty one or an export"),
        ("foreign", "", 'error: --out: "{0}/foreign" has files that gpt export did not write; name a new directory'),
        ("file", "", 'error: --out: "{0}/file" is not a directory, but --format hf writes one'),
        ("new.safetensors", "", 'error: --out: "{0}/new.safetensors" is the name of a file, but --format hf writes'),
        ("model.pt", "--format safetensors", 'error: --out: "model.pt" does not end in .safetensors'),
        (
            "model.htm",
            "--format html",
            'error: --out: "model.htm" does not end in .html, but --format html requires it',
        ),
        ("m.bin", "--format gguf", 'error: --out: "m.bin" does not end in .gguf, but --format gguf requires it'),
        (
            "ollama/m.gguf",
            "--format gguf",
            "error: --out: there is a Modelfile beside it that gpt export did not write",
        ),
        (
            "m.gguf",
            "--format gguf --quantize int8",
            "error: --quantize: --format gguf stores weights in q8_0, bf16, f16",
        ),
        ("m.gguf", "--format gguf --title T", "error: --title: --format gguf does not write a page"),
        ("notes", "--quantize int8", f"error: --quantize: {AS_THEY_ARE}; only gguf, html and handout"),
        ("new", "--title T", "error: --title: --format hf does not write a page; only html and handout write pages"),
        ("site", "--format handout", 'error: --out: "{0}/site" has files that gpt export did not write; name a new'),
        ("new", "--quantize int4", 'error: --quantize: "int4" is not one of float16, int8, q8_0, bf16, f16'),
        ("new", "--run nothere", 'error: "nothere": there is no such run or checkpoint'),
    ],
)
def test_what_cannot_be_is_refused_before_torch_is_loaded(
    out: str, words: str, line: str, taken: Path, smoke_run: Path, without_torch: WithoutTorch
) -> None:
    before = sorted(taken.rglob("*"))
    done = without_torch("export", "--out", taken / out, *words.split(), exits=4 if "nothere" in words else 2)
    assert done.stderr.startswith(line.format(taken))
    assert sorted(taken.rglob("*")) == before


@pytest.mark.parametrize(
    ("form", "own"), [("hf", "README.md"), pytest.param("handout", "index.html", marks=pytest.mark.long)]
)
def test_beside_files_of_others_an_export_is_replaced_if_overwrite_says_so(
    form: str, own: str, copied: Path, run: RunCommand
) -> None:
    """They stay to the byte, and so does what only has the names of ours."""
    asked = ["export", "--run", copied, "--out", "made", "--format", form, "--quiet"]
    assert run(*asked, "--overwrite").code == 0, "a new one"
    stale = Path("made", "film.html")
    stale.touch()
    before, edited = Path("made", own).read_bytes(), Path("made", "adapter")
    edited.mkdir()
    (edited / "notes.txt").write_text("mine")
    Path("made", own).write_bytes(before + b"edited")
    refused = run(*asked, exits=2)
    assert 'error: --out: "made" contains "adapter"; name a new directory' in refused.err
    assert "hint: --overwrite replaces the export in it and leaves the other files" in refused.err
    Path("made", "photo.png").write_bytes(bytes(3_000_000))
    figures = json.loads(run(*asked, "--overwrite", "--json", exits=0).out)
    assert figures["bytes"] < 2_000_000, "without what others have there"
    assert (edited / "notes.txt").read_text() == "mine"
    assert Path("made", own).read_bytes() == before
    assert stale.exists() == (form == "hf"), "which is no page of an export"
    Path("made", own).write_text("another's")
    for words in ([], ["--overwrite"]):
        assert "overwrite replaces" not in run(*asked, *words, exits=2).err
    assert Path("made", own).read_text() == "another's"


def test_an_earlier_export_is_replaced_and_a_copy_of_a_checkpoint_is_not(copied: Path, run: RunCommand) -> None:
    words = ["export", "--run", copied, "--format", "safetensors", "--out"]
    for overwrite in ([], [], ["--overwrite"]):
        run(*words, "a.safetensors", *overwrite, exits=0)
    for name in ("best", "step-00000020"):
        shutil.copy(copied / "checkpoints" / f"{name}.safetensors", "mine.safetensors")
        before = Path("mine.safetensors").read_bytes()
        run(*words, "mine.safetensors", "--overwrite", exits=2)
        assert Path("mine.safetensors").read_bytes() == before
    shutil.copy("a.safetensors", copied / "checkpoints/best.safetensors")
    run(*words, copied / "checkpoints/best.safetensors", exits=2)


def test_every_setting_that_no_class_has_is_named_without_torch(here: Path, without_torch: WithoutTorch) -> None:
    settings = ("model.num_blocks=1", "model.norm_position=post", "model.ngram_embedding=2")
    save_checkpoint(here / "post.safetensors", sharp_checkpoint(*settings))
    done = without_torch("export", "--run", "post.safetensors", "--out", "hf", exits=2)
    places = [line.partition(": ")[2].partition(": ")[0] for line in done.stderr.splitlines()[:-1]]
    assert places == ["model.norm_position", "model.ngram_embedding"]


def test_a_damaged_best_checkpoint_is_passed_over(copied: Path, run: RunCommand) -> None:
    (copied / "checkpoints" / "best.safetensors").write_bytes(b"damaged")
    for command in (["export", "--out", "hf", "--quiet"], ["tokens", "The value"]):
        assert run(*command, exits=0).err.count("trying another checkpoint of the run") == 1
    run("export", "--out", "hf", "--checkpoint", "best", exits=4)
