"""What the user may not read or write ends with exit code 5 and one sentence, also where the tests run as root."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.forks import Servers


@pytest.fixture(name="shared")
def _shared(copied: Path, here: Path) -> Iterator[Path]:
    """A folder with a run, a text and a config, and others that are secret; `locked` may not be written."""
    for name in ("a.txt", "secret.txt"):
        (here / name).write_text("the value of it\n" * 100)
    (here / "secret.yaml").write_text("model:\n  d_model: 32\n")
    shutil.copytree(copied, here / "secret-run")
    shutil.copytree(copied, here / "locked/run")
    closed = [here / "locked/run/checkpoints", here / "locked/run", here / "locked"]
    for path in here.glob("secret*"):
        path.chmod(0)
    for path in closed:
        path.chmod(0o500)
    yield here
    for path in (*here.glob("secret*"), *reversed(closed)):
        path.chmod(0o700)


SAMPLE = ["sample", "--max-new-tokens", "1", "--prompt", "The"]


@pytest.mark.parametrize(
    "command",
    [
        "data stats secret.txt",
        "data stats secret-run",
        "config check secret.yaml",
        "train --config secret.yaml",
        "info secret-run",
        "sample --prompt The --run secret-run",
        "sample --prompt The --run secret-run/checkpoints/best.safetensors",
        "sample --run runs/smoke --prompt-file secret.txt",
        "eval --run runs/smoke --data secret.txt",
        "import secret-run --out run",
        "report secret-run",
        "sweep secret.yaml",
        "attn-dump --run runs/smoke --prompt The --out locked/a.png",
        "export --run runs/smoke --out locked/exported",
        "report runs/smoke --out locked/report.html",
        "train --config smoke --data secret.txt --out run",
        "train --config smoke --data a.txt --out locked/new",
        "train --out locked/run --resume --max-steps 30",
        "runs rm locked/run --yes",
    ],
)
def test_what_may_not_be_read_or_written_is_one_sentence(command: str, shared: Path, servers: Servers) -> None:
    ended = servers.gpt(shared, *command.split(" "), unprivileged=True)
    assert ended.code == 5, ended.err
    assert "permission is denied" in ended.err
    assert sum(line.startswith("error: ") for line in ended.err.splitlines()) == 1
    assert "Traceback" not in ended.err
    assert (shared / "locked/run/config.yaml").exists()


def test_a_cache_that_may_not_be_written_costs_nothing_but_time(
    shared: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shared / "cache").mkdir(mode=0o500)
    (shared / "long.txt").write_text("the value of it\n" * 140_000)
    cached = {"gpt_cli.text.encoding.CACHE_FROM": 1}  # the cache is then in the folder
    command = ["train", "--config", "smoke", "--data", "long.txt", "--out", "run", "--max-steps", "1"]
    ended = servers.gpt(shared, *command, unprivileged=True, constants=cached)
    assert ended.code == 0, ended.err
    assert "the tokens of this text are not kept for the next start" in ended.err
