"""The page on models of others: its commands run on small random models of the same classes."""

import glob
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from support.documents import DOCS, commands
from support.families import save_tokenizer, sharp_model
from support.helpers import run_command

STEPS = (0, 1000, 143000)
# what makes a command quick, and shows the same
SMALLER = {"--max-steps 200": "--max-steps 2", "model.context_length=128": "model.context_length=16"}
SMALLER |= {"--max-tokens 2048": "--max-tokens 200", "--max-tokens 1024": "--max-tokens 200"}
SMALLER |= {"--context-length 512": "--context-length 60"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TinyStories-1M, three steps of pythia-14m, and a text, as the page names them."""
    folder = tmp_path_factory.mktemp("reader")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        import transformers

        transformers.utils.logging.disable_progress_bar()
        sharp_model(transformers, "TinyStories-1M", num_heads=4, num_layers=4).save_pretrained(
            folder / "TinyStories-1M"
        )
        save_tokenizer(folder / "TinyStories-1M", transformers)
        pythia: Any = sharp_model(transformers, "Pythia-14M")
        for step in STEPS:
            with torch.no_grad():
                for parameter in pythia.parameters():
                    parameter.mul_(0.9)
            pythia.save_pretrained(folder / f"pythia-14m/step{step}")
            save_tokenizer(folder / f"pythia-14m/step{step}", transformers)
    (folder / "my.txt").write_text("one two three one two three. Tom had a red ball.\n" * 20)
    return folder


@pytest.mark.long
def test_every_command_of_the_page_runs_on_random_models(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    english, chinese = (commands(DOCS / page) for page in ("real-model.md", "real-model.zh-CN.md"))
    assert english == chinese
    for command in english:
        for whole, part in SMALLER.items():
            command = command.replace(whole, part)
        words = [found for word in shlex.split(command)[1:] for found in (sorted(glob.glob(word)) or [word])]
        run_command(*words, exits=0)
    assert json.loads(run_command("runs", "--json").out)["runs"][-1]["steps"] == STEPS[-1]
    assert all(Path(name).stat().st_size > 1000 for name in ("stories.html", "film.html", "heads.png"))
