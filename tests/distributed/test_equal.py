"""The result of a training does not depend on how many processes share it, to the last bit."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.faults import RESUME, START, fingerprint, new_folder, some_of, strays
from support.forks import Servers

from gpt_cli.checkpoints.run_paths import RunFiles

# a step of eight micro-batches; an evaluation of several batches
EIGHT = ("train.batch_size=8", "train.micro_batch_size=1", "train.eval_tokens=640")
# six micro-batches have two branches of three, so two processes at most
CASES = {
    "six micro-batches": "train.batch_size=12 train.micro_batch_size=2 inspect.prompt=squared inspect.every=5",
    "adamw": "",
    "latent, muon": "model.attention=latent model.positions=rope train.optimizer=muon",
    "grouped-query, rmsnorm, post": "model.attention=grouped_query model.norm=rmsnorm model.norm_position=post "
    "model.bias=false",
    "bfloat16": "train.dtype=bfloat16 model.num_blocks=2",
    "taught by models, averaged": "train.teacher_share=0.33 train.num_models=3 train.ema_decay=0.5",
    "best weights not the last": "train.eval_tokens=64 train.learning_rate=1 train.schedule=stable train.patience=1",
    "one block, muon": "train.optimizer=muon model.num_blocks=1 model.num_heads=1",
    "muon in bfloat16, rope, n-grams, tied": "train.dtype=bfloat16 train.optimizer=muon model.positions=rope "
    "model.ngram_embedding=3 model.ngram_rows=300 model.tie_embeddings=true",
}


def trained(
    servers: Servers, folder: Path, processes: int, *settings: str, words: Sequence[str] = ()
) -> tuple[str, float]:
    """What a run of twelve steps leaves, when a number of processes trains it, and the loss of its best weights."""
    new_folder(folder, *EIGHT, *settings)
    ended = servers.gpt(folder, *START, "--json", *words, processes=processes, exits=0)
    assert ended.err.count("error") == 0, ended.err
    assert (f"estimate    {processes} x " in ended.err) == (processes > 1)
    assert strays(folder / "run") == []
    assert len(RunFiles(folder / "run").snapshots()) == 4 * ("inspect.every=5" in settings)
    return fingerprint(folder / "run"), json.loads((folder / "stdout").read_text())["validation_loss"]


@pytest.fixture(scope="module")
def alone(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process."""
    folder = tmp_path_factory.mktemp("alone")
    trained(servers, folder / "1", 1)
    return folder / "1/run"


@pytest.mark.parametrize("case", some_of(list(CASES)))
def test_any_number_of_processes_gives_the_same_run(servers: Servers, tmp_path: Path, case: str) -> None:
    settings = CASES[case].split()
    alone = trained(servers, tmp_path / "1", 1, *settings)
    for processes in (2,) if case == "six micro-batches" else some_of([4, 2, 8], least=1):
        assert trained(servers, tmp_path / str(processes), processes, *settings) == alone, processes


def test_any_number_of_processes_learns_the_same_answers(servers: Servers, tmp_path: Path) -> None:
    """Micro-batches with longer answers count more, wherever they are computed."""
    pairs = [{"prompt": f"{n}", "response": f"{n * n * n}"} for n in range(1, 40)]
    (tmp_path / "cubes.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    alone, together = (trained(servers, tmp_path / str(n), n, "data.source=../cubes.jsonl") for n in (1, 2))
    assert together == alone


def test_any_number_of_processes_changes_a_model_by_the_same_products(
    servers: Servers, alone: Path, tmp_path: Path
) -> None:
    lora = ("--init-from", str(alone), "--set", "train.rank=2")
    one, two = (trained(servers, tmp_path / str(n), n, words=lora) for n in (1, 2))
    assert one == two


def test_a_run_continues_on_another_number_of_processes(servers: Servers, tmp_path: Path) -> None:
    settings = ("train.optimizer=muon", "train.keep_checkpoints=10")
    alone, _ = trained(servers, tmp_path / "run", 1, *settings)
    for processes, stopped_at in some_of([(2, 8), (4, 4)], least=1):
        for path in (tmp_path / "run/run/checkpoints").glob("step-*"):
            if int(path.stem.removeprefix("step-")) > stopped_at:
                path.unlink()  # as if the run had been stopped there
        servers.gpt(tmp_path / "run", *RESUME, processes=processes, exits=0)
        assert fingerprint(tmp_path / "run/run") == alone, processes


def test_processes_that_end_by_the_clock_end_together(servers: Servers, tmp_path: Path) -> None:
    """Each has a clock of its own, and that of the first decides."""
    folder = new_folder(tmp_path / "run", *EIGHT, "train.max_time=0.3")
    servers.gpt(folder, *START, processes=2, exits=0)
    assert strays(folder / "run") == []


def test_processes_read_their_windows_from_the_disk(servers: Servers, alone: Path, tmp_path: Path) -> None:
    """The first one prepares the text; all find it, in a cache of this folder."""
    on_disk = {"gpt_cli.text.corpus.CACHE_FROM": 1, "gpt_cli.text.encode.IN_MEMORY": 0}
    folder = new_folder(tmp_path / "on disk", *EIGHT)
    servers.gpt(folder, *START, processes=2, constants=on_disk, exits=0)
    assert len(list((folder / "cache").rglob("part-*.safetensors"))) == 2  # training and validation
    assert fingerprint(folder / "run") == fingerprint(alone)


def test_a_divergence_of_many_processes_is_recorded(servers: Servers, tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "run", *EIGHT, "train.learning_rate=100", "train.gradient_clip=null")
    ended = servers.gpt(folder, *START, processes=2, exits=6)
    outcome = json.loads((folder / "run" / "outcome.json").read_text())
    assert outcome["stopped_by"] == "diverged"
    assert f"error: step {outcome['step']}: " in ended.err
