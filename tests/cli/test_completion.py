"""What shells offer after TAB, in the shells themselves."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.helpers import RunCommand, run_command
from support.light import WithoutTorch

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
    "gpt train --config a": ["auto"],
    "gpt sample --run runs/": ["runs/rates/001", "runs/tiny"],
    "gpt data stats pyt": ["python-docs"],
    "gpt train --dtype b": ["bfloat16"],
    "gpt runs rm ti": ["tiny"],
    "gpt runs r": ["rm"],
    "gpt explain --study s": ["scaling"],
    "gpt heads --ablate ": ["layer", "mean", "zero"],
    "gpt help at": ["attn-dump"],
}


def test_commands_names_of_configs_runs_and_texts_and_the_words_of_flags_are_offered(
    folder: Path, without_torch: WithoutTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_GPT_COMPLETE", "complete_bash")
    for line, words in OFFERED.items():
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        assert sorted(without_torch().stdout.split()) == words


@pytest.mark.parametrize("shell", ["bash", *(pytest.param(name, marks=pytest.mark.long) for name in ("zsh", "fish"))])
def test_a_shell_offers_what_gpt_does_and_files_and_never_runs_the_name_of_a_run(shell: str, folder: Path) -> None:
    for name in (r"x\$(touch harm)", "$(touch harm)", "my run"):
        shutil.copytree(folder / "runs" / "tiny", folder / "runs" / name)
    runs, files = offered(shell, "gpt sample --run runs/", "gpt train --data te")
    assert runs == OFFERED["gpt sample --run runs/"]
    assert files in ([], ["text.txt"])
    assert not (folder / "harm").exists()


def test_what_a_shell_offers_is_explained_in_the_language_of_the_user(
    without_torch: WithoutTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPT_LANGUAGE", "zh")
    monkeypatch.setenv("_GPT_COMPLETE", "complete_zsh")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "gpt info --")
    explained = dict(re.findall(r'"(--[^"]+)":"([^"]*)"', without_torch().stdout))
    assert explained["--help"] == "显示这段帮助。"
    assert explained.keys() >= {"--checkpoint", "--json", "--quiet"}
    assert not [flag for flag, does in explained.items() if not re.search("[\u4e00-\u9fff]", does)]


def test_another_shell_is_refused_with_those_that_work(run: RunCommand) -> None:
    assert run("completion", "csh", exits=2).err == 'error: SHELL: "csh" is not allowed; use bash | zsh | fish\n'
