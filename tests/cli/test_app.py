"""The list of commands, --version and help, what `gpt` alone says, Ctrl-C while it starts, and the import of torch."""

import gc
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.helpers import RunCommand, run_command
from support.package import COMMANDS

import gpt_cli
from gpt_cli.cli import app
from gpt_cli.common.machine.memory import importing_torch
from gpt_cli.config.load import shipped_configs


def test_version_and_help_are_commands_that_people_try(run: RunCommand) -> None:
    assert run("--version").out == f"gpt {gpt_cli.__version__}\n"
    assert run("help", "sample") == run("sample", "--help")
    assert run("help", "data", "list") == run("data", "list", "--help")
    assert run("help") == run("--help")


def test_a_command_is_made_when_it_is_named_and_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made, make = list[str](), app._made
    monkeypatch.setattr(app, "_made", lambda name: (made.append(name), make(name))[1])
    gpt = app.build()
    assert len(gpt.commands) > 15
    assert made == []
    assert gpt.commands["data"].commands["list"].name == "list"
    assert made == ["data", "data list"]


def test_every_command_has_an_example_and_a_traceback_to_ask_for(run: RunCommand) -> None:
    for name in [*COMMANDS, "completion", "help"]:
        outcome = run(*name.split(), "--help", exits=0)
        assert f"Example: gpt {name}" in outcome.out
        assert "--debug" in outcome.out


def test_descriptions_of_commands_are_whole_sentences_in_every_list(
    run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    for columns in ("40", "80", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        for group in ([], ["data"], ["config"]):
            listed = run(*group, "--help").out.partition("Commands:")[2]
            assert listed
            assert "..." not in listed


_LONG = ("gpt_cli.cli.app", "typer", "numpy", "gpt_cli.model.gpt")


@pytest.mark.parametrize(
    "moment", ["gpt_cli.cli", "torch._utils", *(pytest.param(name, marks=pytest.mark.long) for name in _LONG)]
)
def test_ctrl_c_while_gpt_starts_prints_no_traceback(moment: str, smoke_run: Path) -> None:
    """`moment` is the module whose import has just ended when the signal is sent."""
    command = [sys.executable, "-X", "importtime", "-m", "gpt_cli", "sample", "--prompt", "x"]
    command += ["--max-new-tokens", "1000000", "--no-stream"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        for line in process.stderr:
            if line.rstrip().endswith(f" {moment}"):
                break
        else:
            raise AssertionError(f"{moment} was never imported")
        process.send_signal(signal.SIGINT)
        rest = [line.rstrip() for line in process.stderr if not line.startswith("import time:")]
    assert process.returncode == 130
    assert rest == ["stopped"]


def test_the_installed_command_starts_where_ctrl_c_is_handled() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"gpt": "gpt_cli.__main__:main"}


def test_a_signal_that_arrives_again_while_python_ends_changes_nothing() -> None:
    script = (
        "import os, signal, sys\nimport gpt_cli.__main__ as entry\n"
        "entry.run = lambda words: 143\ncode = entry.main()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\nos.kill(os.getpid(), signal.SIGINT)\nsys.exit(code)"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 143


def test_a_library_that_swallows_ctrl_c_in_its_import_does_not_keep_gpt_alive(here: Path) -> None:
    Path("swallows.py").write_text(
        "import os, signal\ntry: os.kill(os.getpid(), signal.SIGINT)\nexcept KeyboardInterrupt: pass\n"
    )
    script = "import gpt_cli.__main__ as entry\nentry.run = lambda _: __import__('swallows')\nentry.main()"
    done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (130, "stopped\n")


def test_ctrl_c_inside_eval_ends_with_the_same_code(here: Path) -> None:
    """Python remembers an interrupt that passed through eval(), and would end by the signal although it was caught."""
    script = (
        "import gpt_cli.__main__ as entry, sys\n"
        "def interrupted(words):\n"
        "    try: eval('next(_ for _ in [1] if interrupt())', {'interrupt': lambda: entry.interrupt(2, None)})\n"
        "    except KeyboardInterrupt: return 130\n"
        "entry.run = interrupted\nprint('stdout is flushed')\nsys.exit(entry.main())"
    )
    (here / "interrupted.py").write_text(script)
    done = subprocess.run([sys.executable, "-m", "interrupted"], stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (130, "stdout is flushed\n")


def test_the_help_of_train_names_every_shipped_config() -> None:
    help_text = " ".join(run_command("train", "--help").out.split())
    assert not [name for name in shipped_configs() if name not in help_text], "CONFIG of gpt_cli/config/request.py"


def test_in_chinese_the_commands_of_gpt_alone_take_chinese_texts(
    run: RunCommand, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPT_LANGUAGE", "zh")
    commands = [line.strip() for line in run().out.splitlines() if line.startswith("  gpt")]
    assert commands == [
        "gpt train --data my.txt",
        "gpt train --config tiny",
        "gpt sample --prompt '今天天气'",
        "gpt attn-dump --prompt '今天天气' --out attention.html",
    ]


def test_with_a_run_at_hand_gpt_alone_names_that_run(smoke_run: Path, run: RunCommand) -> None:
    first = next(line for line in run().out.splitlines() if line.startswith("  gpt"))
    assert first == "  gpt sample --run runs/smoke --prompt 'The value of'"
    run(*shlex.split(first)[1:], "--max-new-tokens", "2", exits=0)


def test_the_import_of_torch_waits_for_no_collector_and_takes_no_cores_from_gpt(tmp_path: Path) -> None:
    """In its place is a module with as many objects, which takes cores, as GNU OpenMP does with OMP_PROC_BIND: it binds
    the thread that imports torch to one core, and so all that it starts later. Before, an import fails."""
    lines = ["objects = [[] for _ in range(200_000)]"]
    if sys.platform.startswith("linux"):
        lines.append("import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})")
    (tmp_path / "torch.py").write_text("\n".join(lines))
    script = (
        "import gc, os\nfrom gpt_cli.common.machine.memory import importing_torch\n"
        "try:\n    with importing_torch(): import no_such_module\nexcept ImportError: assert gc.isenabled()\n"
        "cores = getattr(os, 'sched_getaffinity', repr)(0)\n"
        "with importing_torch():\n    assert not gc.isenabled()\n    import torch\n"
        "assert gc.isenabled()\nassert gc.get_freeze_count() > 100_000\n"
        "assert getattr(os, 'sched_getaffinity', repr)(0) == cores"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)


def test_a_folder_that_was_removed_is_one_sentence(tmp_path: Path) -> None:
    """Without one, the import of torch ends the process with a line of MKL and exit code 2."""
    folder = tmp_path / "gone"
    folder.mkdir()
    script = (
        "import os, sys\nfrom gpt_cli.__main__ import run\nos.rmdir(os.getcwd())\n"
        "code = run(['explain', '--study', 'mask'])\nassert 'torch' not in sys.modules\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=folder)
    said = "error: this folder: it was removed, but PyTorch needs it\nhint: cd ~\n"
    assert (done.returncode, done.stderr) == (5, said)


def test_nothing_happens_where_torch_is_there_already() -> None:
    frozen = gc.get_freeze_count()
    with importing_torch():
        assert gc.isenabled()
    assert gc.get_freeze_count() == frozen
