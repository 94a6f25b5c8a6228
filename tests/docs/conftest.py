"""The folder in which the commands of the pages run."""

import sys
from pathlib import Path

import pytest
from support.documents import DOCS, Shell, blocks, smaller

TEXT = (
    "曾子曰：“学而时习之，不亦说乎？吾日三省吾身：为人谋而不忠乎？与朋友交而不信乎？君子”\n今天天气很好。 The weather is fine today.\nThe value of the function is 3.\n\n"
    * 100
)
# what pages take for granted
BEFORE = (
    "gpt train --config tiny",
    "gpt train --config tiny --data my.txt --set tokenizer.kind=char --out runs/mine",
    "gpt train --config tiny --data lunyu --set tokenizer.kind=char --max-steps 200 --out runs/lunyu",
)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reader")


@pytest.fixture(scope="session")
def _shell(folder: Path) -> Shell:
    """A shell in a folder with what the pages name: a text, a conversation, pairs and sweeps."""
    (folder / "my.txt").write_text(TEXT)
    (folder / "talk.json").write_text(
        next(part for part in blocks(DOCS / "answers.md", "text") if part.startswith("["))
    )
    for sweep in blocks(DOCS / "runs.md", "yaml"):
        name = sweep.splitlines()[0].removeprefix("# ")
        for whole, part in {"base: tiny": "base: smoke", "steps: 100": "steps: 4", ", 1e-3, 3e-3]": "]"}.items():
            sweep = sweep.replace(whole, part)
        (folder / name).write_text(sweep)
    (folder / "pairs.jsonl").write_text(blocks(DOCS / "patching.md", "json")[0])
    return Shell()


@pytest.fixture
def shell(_shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch, sweeping_here: None) -> Shell:
    """That shell, in its folder."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("gpt_cli.tools.bench.bench._SIZE", 64)
    monkeypatch.setattr("gpt_cli.tools.interpret.lens.tuned_lens.MOST_STEPS", 5)
    monkeypatch.setattr("gpt_cli.training.evaluate_and_log.SAMPLE_NEW_TOKENS", 8)
    # a second of steps for each training without a config and each sweep, which tests of auto_config take
    monkeypatch.setattr("gpt_cli.training.auto_config.auto_config.reference_seconds", lambda _: 0.06)
    # its import takes seconds, and tests of bench have it
    monkeypatch.setitem(sys.modules, "transformers", None)
    # each takes longer than most commands; tests of pictures and of pages look at them
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda _, buffer, **__: buffer.write(b"drawn"))
    monkeypatch.setattr("gpt_cli.tools.exchange.page_data.javascript_pattern", lambda pattern: pattern)
    return _shell


@pytest.fixture
def trained_shell(shell: Shell) -> Shell:
    """That shell, after the trainings that pages take for granted."""
    for command in BEFORE:
        shell.run(smaller(command))
    return shell
