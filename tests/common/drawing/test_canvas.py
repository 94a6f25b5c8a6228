"""Pictures come out the same whatever canvas the environment names for matplotlib."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.faults import some_of

pytestmark = pytest.mark.slow

DRAW = """
import os, sys
from gpt_cli.common.drawing.canvas import as_file, new_figure
figure = new_figure(2, 2, 100)
figure.text(0.5, 0.5, "a")
sys.stdout.buffer.write(as_file(figure, "png"))
import matplotlib
named = os.environ.get("MPLBACKEND")
print(named, matplotlib.rcParams._get("backend") == named, file=sys.stderr)
assert "matplotlib.pyplot" not in sys.modules
"""


def draw(environment: dict[str, str]) -> tuple[bytes, list[str]]:
    clean = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    done = subprocess.run([sys.executable, "-c", DRAW], capture_output=True, env=clean | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr.decode().splitlines()[-1].split()


@pytest.fixture(scope="module")
def plain() -> bytes:
    return draw({})[0]


NAMED = ("module://matplotlib_inline.backend_inline", "TkAgg")


@pytest.mark.parametrize("named", some_of(NAMED))
def test_a_picture_is_the_same_with_any_canvas_in_the_environment(named: str, plain: bytes) -> None:
    picture, (variable, kept) = draw({"MPLBACKEND": named})
    assert picture == plain
    assert plain.startswith(b"\x89PNG")
    assert variable == named, "the variable is as it was"
    assert kept == "True" or named != "TkAgg", "other code in the process draws on the canvas that its user chose"


def test_nothing_is_said_where_the_home_directory_may_not_be_written() -> None:
    script = "import logging, gpt_cli.common.drawing.canvas\nassert logging.getLogger('matplotlib').level == 0"
    environment = os.environ | {"HOME": "/dev/null", "XDG_CONFIG_HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.long
def test_the_command_draws_in_the_shell_of_a_notebook(smoke_run: Path, tmp_path: Path) -> None:
    environment = os.environ | {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    for words in (["attn-dump", "--prompt", "The value of"], ["explain", "--study", "mask"]):
        out = tmp_path / f"{words[0]}.png"
        command = [sys.executable, "-m", "gpt_cli", *words, "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        assert out.read_bytes().startswith(b"\x89PNG")
