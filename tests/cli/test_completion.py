"""What shells offer after TAB, in the shells themselves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.faults import some_of
from support.helpers import RunCommand, run_command

pytestmark = pytest.mark.slow

# how a shell reads what `gpt completion` prints
BEGIN = {
    "bash": 'eval "$(gpt completion bash)"\n',  # as documented; in one shell only, since gpt takes a while to start
    "zsh": """
        autoload -Uz compinit; compinit -D -u
        source <(print -r -- "$SCRIPT")
        _arguments() { print -r -- "$1" }
        _files() { print }
    """,
    "fish": "printf '%s' $SCRIPT | source\n",
}
# $WORDS stands for the words before the last, $LAST for the last
ASK = {
    "bash": """
        COMP_WORDS=($WORDS "$LAST") COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
        _gpt_completion gpt
        printf '%s\\n' "${COMPREPLY[@]}"
    """,
    "zsh": """
        words=($WORDS "$LAST") CURRENT=${#words}
        _gpt_completion
    """,
    "fish": """
        complete -C '$WORDS $LAST' | string split -f 1 \\t
    """,
}
BETWEEN = "----"
BEGINNING = b'{"__metadata__":{"format":"gpt-cli checkpoint"'  # by which a run is known
WITHOUT_SETTINGS = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}


@pytest.fixture
def folder(here: Path) -> Path:
    """A folder with two runs, one of them in a sweep, and a text."""
    for name in ("tiny", "rates/001"):
        checkpoints = here / "runs" / name / "checkpoints"
        checkpoints.mkdir(parents=True)
        (checkpoints / "best.safetensors").write_bytes(bytes(8) + BEGINNING)
    (here / "text.txt").touch()
    return here


def offered(shell: str, *lines: str) -> list[list[str]]:
    """What a shell offers after the words of each line, of which the last one may have begun."""
    program = shutil.which(shell)
    if program is None:
        assert not os.environ.get("CI"), "tests/debian-packages.txt names the shells"
        pytest.skip(f"this machine has no {shell}")
    commands = BEGIN[shell]
    for line in lines:
        words, _, last = line.rpartition(" ")
        commands += ASK[shell].replace("$WORDS", words).replace("$LAST", last) + f"\necho; echo {BETWEEN}\n"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    asked = subprocess.run(
        [program, *WITHOUT_SETTINGS[shell], "-c", commands],
        env={**os.environ, "PATH": path, "SCRIPT": run_command("completion", shell).out},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    *answers, rest = asked.stdout.split(f"{BETWEEN}\n")
    assert (len(answers), rest) == (len(lines), ""), asked.stderr
    if shell == "zsh":  # "name":"explanation", in one line
        return [sorted(name for name, _ in re.findall(r'"([^"]+)"(:"[^"]*")?', answer)) for answer in answers]
    return [sorted(line for line in answer.splitlines() if line) for answer in answers]


OFFERED = {
    "gpt exp": ["explain", "export"],
    "gpt train --config sha": ["shakespeare", "shakespeare-cpu"],
    "gpt sample --run runs/": ["runs/rates/001", "runs/tiny"],
    "gpt data stats pyt": ["python-docs"],
    "gpt train --dtype b": ["bfloat16"],
    "gpt runs rm ti": ["tiny"],
}


@pytest.mark.parametrize("shell", ASK)
def test_a_shell_offers_commands_and_the_names_of_configs_runs_and_texts(shell: str, folder: Path) -> None:
    lines = list(OFFERED) if shell == "bash" else some_of(list(OFFERED))
    assert offered(shell, *lines) == [OFFERED[line] for line in lines]


@pytest.mark.parametrize("shell", ASK)
def test_the_name_of_a_run_is_never_run(shell: str, folder: Path) -> None:
    for name in (r"x\$(touch harm)", "$(touch harm)", "my run"):
        shutil.copytree(folder / "runs" / "tiny", folder / "runs" / name)
    assert offered(shell, "gpt sample --run runs/") == [["runs/rates/001", "runs/tiny"]]
    assert not (folder / "harm").exists()


def test_all_words_that_a_flag_takes_are_offered(here: Path) -> None:
    lines = "gpt explain --study s", "gpt heads --ablate ", "gpt runs r", "gpt help at", "gpt train --config a"
    assert offered("bash", *lines) == [["scaling"], ["layer", "mean", "zero"], ["rm"], ["attn-dump"], ["auto"]]


def test_what_a_shell_offers_is_explained_in_the_language_of_the_user(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPT_LANGUAGE", "zh")
    monkeypatch.setenv("_GPT_COMPLETE", "complete_zsh")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "gpt info --")
    asked = subprocess.run(
        [sys.executable, "-m", "gpt_cli"], capture_output=True, text=True, encoding="utf-8", check=False
    )
    explained = dict(re.findall(r'"(--[^"]+)":"([^"]*)"', asked.stdout))
    assert explained["--help"] == "显示这段帮助。"
    assert explained.keys() >= {"--checkpoint", "--json", "--quiet"}
    assert not [flag for flag, does in explained.items() if not re.search("[\u4e00-\u9fff]", does)]


@pytest.mark.parametrize("shell", ASK)
def test_a_shell_completes_files_where_gpt_knows_no_name(shell: str, folder: Path) -> None:
    assert offered(shell, "gpt train --data te") in ([[]], [["text.txt"]])


def test_another_shell_is_refused_with_those_that_work(run: RunCommand) -> None:
    assert run("completion", "csh", exits=2).err == 'error: SHELL: "csh" is not allowed; use bash | zsh | fish\n'
