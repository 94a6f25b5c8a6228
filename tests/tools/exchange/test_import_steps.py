"""`gpt import --steps`: the revisions of a model as one run, and what all commands do with it."""

import contextlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.exchange import sharp_checkpoint, with_config, write_as_others
from support.helpers import RunCommand, run_command
from support.light import WithoutTorch
from support.pages import content_of
from support.tokenizers import LEARNED
from torch.nn.functional import cross_entropy

import gpt_cli
from gpt_cli.errors import UsageError
from gpt_cli.tools.exchange import import_model as module
from gpt_cli.tools.exchange.export_hf import write_for_transformers
from gpt_cli.tools.exchange.import_hf import directories_by_step, shared_name

STEPS = (0, 1000, 2000)
NAMES = [f"toy/step{step}" for step in STEPS]
PROMPT = "one two one two"


@pytest.fixture(scope="session")
def _published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 at three steps, whose weights grow by a tenth from one to the next, in the folder toy; their run."""
    folder = tmp_path_factory.mktemp("published")
    found = sharp_checkpoint("model.qkv_bias=true", "model.activation=gelu_tanh")
    for number, step in enumerate(STEPS):
        weights = {name: weight * (1 + 0.1 * number) for name, weight in found.weights.items()}
        write_as_others(folder / f"toy/step{step}", replace(found, weights=weights))
    with contextlib.chdir(folder):
        run_command("import", *reversed(NAMES), "--steps", exits=0)
    return folder


@pytest.fixture
def published(_published: Path, here: Path) -> Path:
    """A copy of the GPT-2 to damage, in this folder."""
    return Path(shutil.copytree(_published / "toy", "toy"))


@pytest.fixture
def imported(_published: Path, published: Path) -> Path:
    """And a copy of its run."""
    return Path(shutil.copytree(_published / "runs/toy", "runs/toy"))


@pytest.mark.parametrize(
    ("name", "step", "shared"),
    [
        ("pythia/step1000", 1000, "pythia"),
        ("pythia-14m-step3000", 3000, "pythia-14m"),
        ("checkpoint-2000", 2000, "checkpoint"),
        ("OLMo/stage1-step1000-tokens2B", 1000, "stage1"),
        ("a/step-7/", 7, "a"),
        ("a/step0", 0, "a"),
        ("a/iter_0005000", 5000, "iter"),
    ],
)
def test_the_name_of_a_directory_tells_its_step(name: str, step: int, shared: str) -> None:
    assert directories_by_step([Path(name)]) == {step: Path(name)}
    assert shared_name(Path(name)) == shared


def test_all_names_without_a_step_and_all_steps_that_come_twice_are_listed() -> None:
    names = ["TinyStories-33M", "a/step5", "b/step05", "main", "step99999999999999999999", "step2147483648"]
    with pytest.raises(UsageError) as raised:
        directories_by_step([*map(Path, names)])
    no_step = "its name contains no step, such as step1000; the largest step is 2,147,483,647"
    assert [str(error) for error in (raised.value, *raised.value.others)] == [
        f'"TinyStories-33M": {no_step}',
        '"b/step05": its name contains step 5, and so does "a/step5"',
        *(f'"{name}": {no_step}' for name in names[3:]),
    ]


def test_the_directories_become_checkpoints_of_one_run(imported: Path, run: RunCommand) -> None:
    assert [path.name for path in sorted((imported / "checkpoints").iterdir())] == [
        f"step-{step:08}.safetensors" for step in STEPS
    ]
    first, *later = (gpt_cli.load(imported, checkpoint=step).model for step in STEPS)
    for growth, model in zip((1.1, 1.2), later, strict=True):
        for weight, other in zip(first.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(weight * growth, other)
    for which in ("best", "last"):
        assert gpt_cli.load(imported, checkpoint=which).step == 2000
    for command in (
        ["sample", "--prompt", "the", "--max-new-tokens", "3", "--checkpoint", "1000"],
        ["attn-dump", "--prompt", "the", "--checkpoint", "0"],
        ["explain", "--prompt", "the", "--checkpoint", "1000"],
        ["export", "--checkpoint", "1000", "--out", "hf"],
    ):
        run(*command, "--run", imported, exits=0)


def test_a_run_of_steps_says_that_it_was_imported_and_tells_no_losses(imported: Path, run: RunCommand) -> None:
    listed = json.loads(run("runs", "--json").out)["runs"][0]
    assert (listed["state"], listed["steps"]) == ("imported", 2000)
    assert listed["best_validation_loss"] is listed["max_steps"] is None
    facts = gpt_cli.info(imported).as_dict()
    assert (facts["state"], facts["step"], facts["training_tokens"]) == ("imported", 2000, None)
    assert (facts["training_bytes"], facts["tokens_per_parameter"]) == (None, None)
    assert not {"best_validation_loss", "training_seconds"} & {*facts}
    assert "python-docs" not in run("report", imported, "--json").out
    run("export", "--run", imported, "--out", "hf", exits=0)
    card = Path("hf/README.md").read_text()
    assert "which did not train it. Its step is 2,000." in card
    assert "python-docs`" not in card
    assert "this run was imported, so it has no text" in run("eval", "--run", imported, exits=2).err


def test_heads_over_training_has_the_figures_of_each_checkpoint(imported: Path, run: RunCommand) -> None:
    outcome = run("heads", "--over-training", "--prompt", PROMPT, "--json", exits=0)
    found = json.loads(outcome.out)
    assert [at["step"] for at in found["steps"]] == [*STEPS]
    for at in found["steps"]:
        report = run("heads", "--run", imported, "--checkpoint", str(at["step"]), "--prompt", PROMPT, "--json")
        assert at["heads"] == json.loads(report.out)["heads"]
        loaded = gpt_cli.load(imported, checkpoint=at["step"])
        ids = torch.tensor(loaded.tokenizer.encode(PROMPT))
        assert at["loss"] == pytest.approx(cross_entropy(loaded.model(ids[None, :-1])[0], ids[1:]).item(), abs=1e-5)


def test_a_film_of_the_checkpoints_and_a_table_say_what_they_are(imported: Path, run: RunCommand) -> None:
    outcome = run("attn-dump", "--over-training", "--prompt", PROMPT, "--layers", "1", "--out", "film.html")
    assert (outcome.code, outcome.err) == (0, "wrote film.html: 3 steps, 1 layer, 4 heads, 15 tokens\n")
    frames = content_of(Path("film.html").read_bytes())["frames"]
    found: Any = gpt_cli.heads(PROMPT, over_training=True, out="h.csv")
    assert (frames["steps"], frames["losses"]) == ([*STEPS], [at["loss"] for at in found.steps])
    assert frames["curves"] == {"loss": [], "validation_loss": []}
    assert len(Path("h.csv").read_text().splitlines()) == 1 + 3 * 3 * 4
    outcome = run("heads", "--over-training", "--prompt", PROMPT)
    assert "computed from checkpoints; the loss is measured on this prompt" in outcome.err
    for command in (["heads"], ["attn-dump", "--out", "film.html"]):
        outcome = run(*command, "--over-training")
        hint = "hint: --prompt 'The value of' computes it from 3 checkpoints"
        assert (outcome.code, outcome.err.splitlines()[-1]) == (4, hint)
        outcome = run(*command, "--over-training", "--prompt", "a")
        assert (outcome.code, "it has 1 token" in outcome.err) == (3, True)
        long = run(*command, "--over-training", "--device", "cpu", "--prompt", "the " * 999)
        assert (long.code, len(long.err.splitlines())) == (3, 1), "--truncate is no flag of it"
    Path("p.txt").write_text(PROMPT)
    outcome = run("heads", "--over-training", "--prompt-file", "p.txt", "--out", "h.html")
    hint = outcome.err.splitlines()[-1].removeprefix("hint: gpt ")
    assert run(*hint.split()).code == 0, hint


def test_a_run_of_one_model_has_no_steps_to_compute_from(published: Path, run: RunCommand) -> None:
    run("import", NAMES[0], "--out", "a", exits=0)
    outcome = run("heads", "--run", "a", "--over-training", "--prompt", PROMPT)
    assert (outcome.code, outcome.err.splitlines()[1]) == (4, "hint: gpt import DIR... --steps imports several steps")


def test_python_imports_steps_as_the_command_does_and_says_nothing(
    published: Path, run: RunCommand, capfd: pytest.CaptureFixture[str]
) -> None:
    found = gpt_cli.import_model([Path(name) for name in NAMES], steps=True)
    assert capfd.readouterr() == ("", "")
    assert (found.run, found.steps, found.num_blocks) == ("runs/toy", STEPS, 3)
    assert json.loads(run("import", *NAMES, "--steps", "--overwrite", "--json").out) == found.as_dict() | {
        "steps": [*STEPS]
    }
    assert found.as_text().endswith("context of 80; 3 steps up to 2,000")
    with pytest.raises(UsageError, match="several directories need steps=True"):
        gpt_cli.import_model(NAMES)
    with pytest.raises(UsageError, match="names no directory"):
        gpt_cli.import_model([])


def _narrower(directory: Path) -> None:
    write_for_transformers(directory, sharp_checkpoint("model.qkv_bias=true", "model.num_heads=2"))


@pytest.mark.parametrize(
    ("damage", "sentences"),
    [
        (_narrower, ["num_heads is 2, but in {last} it is 4", "activation is gelu, but in {last} it is gelu_tanh"]),
        (with_config(model_type="unheard-of"), ["it is a model of type"]),
        (lambda directory: (directory / "model.safetensors").unlink(), ["it has no weights in safetensors format"]),
        (shutil.rmtree, ["there is no such directory"]),
    ],
)
def test_a_step_that_does_not_belong_is_refused_before_anything_is_written(
    published: Path, without_torch: WithoutTorch, damage: Callable[[Path], None], sentences: list[str]
) -> None:
    for name in NAMES[:2]:
        damage(Path(name))
    outcome = without_torch("import", *NAMES, "--steps")
    assert outcome.returncode in (2, 4)
    for name in NAMES[:2]:
        for sentence in sentences:
            assert f'"{name}": {sentence.format(last=json.dumps(NAMES[2]))}' in outcome.stderr
    assert not Path("runs").exists()


def test_a_step_with_another_tokenizer_is_refused(published: Path, run: RunCommand) -> None:
    other = sharp_checkpoint("model.qkv_bias=true", "model.activation=gelu_tanh", tokenizer=LEARNED)
    write_for_transformers(Path(NAMES[1]), other)
    outcome = run("import", *NAMES, "--steps")
    assert (outcome.code, 'its tokenizer differs from that of "toy/step2000"' in outcome.err) == (2, True)


@pytest.mark.parametrize("fault", ["numbers", "disk", "a write"])
def test_a_failed_import_leaves_the_earlier_run_or_none(
    imported: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    before = {path: path.read_bytes() for path in sorted(imported.rglob("*.safetensors"))}
    if fault == "numbers":
        path = Path(NAMES[2], "model.safetensors")
        path.write_bytes(path.read_bytes()[:-4] + b"\xff\xff\xff\xff")
    elif fault == "disk":  # a free byte for each that all need, but one
        needed = 3 * 4 * sum(weight.numel() for weight in gpt_cli.load(imported).model.parameters())
        own = sum(map(len, before.values()))
        monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(0, 0, needed - own - 1))
    else:
        write = module.write_durably

        def write_two(path: Path, content: Any) -> None:
            if "2000" in path.name:
                raise KeyboardInterrupt
            write(path, content)

        with monkeypatch.context() as patch:
            patch.setattr(module, "write_durably", write_two)
            with pytest.raises(KeyboardInterrupt):
                gpt_cli.import_model(NAMES, steps=True, overwrite=True)
        assert not [*imported.rglob("*.safetensors"), *imported.rglob("config.yaml")]
        assert json.loads(run("runs", "--json").out)["runs"] == []
        run("import", *NAMES, "--steps", exits=0)
    outcome = run("import", *NAMES, "--steps", *(["--overwrite"] if fault != "a write" else []))
    assert outcome.code == {"numbers": 4, "disk": 5, "a write": 2}[fault], outcome.err
    assert {path: path.read_bytes() for path in sorted(imported.rglob("*.safetensors"))} == before
