"""What the user may not read or write ends with exit code 5 and one sentence; where the tests are root's, as another user."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.faults import some_of
from support.forks import Ended, Servers
from support.users import hand_over, other_user, who

from gpt_cli.checkpoints.run_paths import RunFiles

Ask = Callable[..., Ended]


def close(path: Path, mode: int = 0) -> None:
    """Take a file from the other user."""
    os.chown(path, os.geteuid(), -1)
    path.chmod(mode)


@pytest.fixture(name="shared")
def _shared(trained: Path, theirs: Path) -> Path:
    """A folder in which the other user owns a run and a text, and root keeps some files to itself.

    The other user may not read `secret*`, write in `locked`, or enter the run `runs/secret`.
    """
    for name in ("a.txt", "secret.txt"):
        (theirs / name).write_text("the value of it\n" * 100)
    (theirs / "secret.yaml").write_text("model:\n  d_model: 32\n")
    (theirs / "texts/secret").mkdir(parents=True)
    shutil.copy(theirs / "a.txt", theirs / "texts")
    shutil.copytree(trained / "runs", theirs / "runs")
    hand_over(theirs)
    for name in ("runs/secret", "secret-run", "locked/run"):
        shutil.copytree(trained / "runs/smoke", theirs / name)
    for path in (*theirs.rglob("secret*"), *theirs.glob("*/secret")):
        path.chmod(0)
    for path in (*theirs.glob("locked/run/checkpoints"), theirs / "locked/run", theirs / "locked"):
        path.chmod(0o555)
    return theirs


@pytest.fixture
def ask(shared: Path, servers: Servers) -> Ask:
    """Runs a command there as the other user."""
    return lambda command, **how: servers.gpt(shared, *command.split(" "), unprivileged=True, **how)


def require_refused(err: str) -> None:
    """One sentence says that permission is denied."""
    assert [line for line in err.splitlines() if line.startswith("error: ") and "permission is denied" in line]
    assert err.count("error: ") == 1
    assert "Traceback" not in err


REFUSED = [
    "data stats secret.txt", "data stats secret-run", "data stats texts", "data stats texts/**/*.txt",
    "data stats texts/*/*.txt", "data stats texts/*/sub/**/*.txt", "data stats texts/secret --set data.skip_bad=true",
    "data stats texts/secret/*.txt --set data.skip_bad=true", "data fetch repeats --out locked",
    "config check secret.yaml", "config check secret-run/config.yaml", "train --config secret.yaml", "info secret-run",
    "info runs/secret", "sample --prompt The --run secret-run",
    "sample --prompt The --run secret-run/checkpoints/best.safetensors",
    "sample --run runs/smoke --prompt-file secret.txt", "eval --run runs/smoke --data secret.txt",
    "import secret-run --out run", "import secret-run/sub/x --out run", "report secret-run", "runs secret-run",
    "sweep secret.yaml", "attn-dump --run runs/smoke --prompt The --out locked/a.png",
    "explain --study mask --out locked/a.png", "heads --run runs/smoke --prompt The_value --out locked/a.csv",
    "export --run runs/smoke --out locked/exported", "export --run runs/smoke --format html --out locked/a.html",
    "report runs/smoke --out locked/report.html", "train --config smoke --data secret.txt --out run",
    "train --config smoke --data a.txt --out locked/new",
    "train --config smoke --data a.txt --out locked/run --overwrite", "train --out locked/run --resume --max-steps 30",
    "runs rm locked/run --yes", "runs rm secret-run/sub/x --yes",
]  # fmt: skip


def test_what_may_not_be_read_or_written_is_one_sentence(shared: Path, ask: Ask, tally) -> None:
    before, commands = RunFiles(shared / "locked/run").files(), some_of(REFUSED, 12)
    for command in commands:
        require_refused(ask(command, exits=5).err)
        assert RunFiles(shared / "locked/run").files() == before, command
    tally(f"what may not be read or written, {who()}", len(commands))


@pytest.mark.parametrize("source", ["texts", "texts/**/*.txt", "t*/*/*.txt"])
def test_closed_directories_are_left_out_with_bad_files(source: str, shared: Path, ask: Ask) -> None:
    (shared / "texts/open").mkdir()
    shutil.copy(shared / "a.txt", shared / "texts/open/b.txt")
    hand_over(shared / "texts/open")
    ended = ask(f"data stats {source}", exits=5)
    assert ended.err.endswith("make it readable; --set data.skip_bad=true leaves such directories out\n")
    ended = ask(f"data stats {source} --set data.skip_bad=true", exits=0)
    assert ended.err == "left out 1 bad file: texts/secret\n"
    assert re.search(r"bad files +1\n", (shared / "stdout").read_text())


def test_a_closed_file_of_a_directory_is_left_out_with_bad_files(shared: Path, ask: Ask) -> None:
    (shared / "two").mkdir()
    for name in ("a.txt", "secret.txt"):
        shutil.copy(shared / "a.txt", shared / "two" / name)
    (shared / "two/secret.txt").chmod(0)
    require_refused(ask("data stats two", exits=5).err)
    ended = ask("data stats two --set data.skip_bad=true", exits=0)
    assert ended.err == "left out 1 bad file: two/secret.txt\n"


def test_a_run_whose_files_may_not_be_read_is_not_removed_in_part(shared: Path, ask: Ask) -> None:
    before = RunFiles(shared / "runs/smoke").files()
    close(shared / "runs/smoke/checkpoints/best.safetensors")
    require_refused(ask("runs rm smoke --yes", exits=5).err)
    assert RunFiles(shared / "runs/smoke").files() == before


@pytest.mark.parametrize("name", ["checkpoints", "metrics.jsonl", "checkpoints/best.safetensors"])
def test_a_run_of_which_a_part_is_closed_is_one_sentence(name: str, shared: Path, ask: Ask) -> None:
    close(shared / "runs/smoke" / name)
    command = "eval --run runs/smoke"
    if name == "metrics.jsonl":
        ask(command, exits=0)  # which needs none
        command = "report runs/smoke"
    require_refused(ask(command, exits=5).err)


def test_the_message_says_who_owns_the_place(shared: Path, ask: Ask) -> None:
    ended = ask("report runs/smoke --out locked/report.html", exits=5)
    owner, asker = os.geteuid(), other_user() or os.geteuid()
    place = f'"locked" belongs to user {owner}, and you are user {asker}'
    assert ended.err == f'error: writing "locked/report.html": permission is denied; {place}\n'


def test_the_list_of_runs_leaves_out_those_that_are_closed(shared: Path, ask: Ask) -> None:
    for command in ("runs", "report runs"):
        assert ask(command, exits=0).err == ""
        assert "smoke" in (shared / "stdout").read_text()
        assert "secret" not in (shared / "stdout").read_text()
    assert ask("sample --prompt The --max-new-tokens 1", exits=0).err.startswith("runs/smoke")


def test_a_part_that_a_report_lacks_is_said_once(shared: Path, ask: Ask) -> None:
    close(shared / "runs/smoke/checkpoints/step-00000020.safetensors")
    place = '"runs/smoke/checkpoints/step-00000020.safetensors"'
    assert ask("report runs/smoke", exits=0).err == f"warning: reading {place}: permission is denied\n"
    close(shared / "runs/smoke/checkpoints")
    assert ask("report runs", exits=0).err == 'warning: "runs/smoke": permission is denied\n'


def test_a_lock_of_another_user_is_named(shared: Path, ask: Ask) -> None:
    """Where a killed training of theirs has left it, others may write to the directory and not to the lock."""
    (shared / "runs/smoke/.lock").touch(mode=0o444)
    ended = ask("train --out runs/smoke --resume --max-steps 30", exits=5)
    assert 'error: writing "runs/smoke/.lock": permission is denied; "runs/smoke/.lock" belongs to' in ended.err


def test_a_directory_that_may_be_written_but_not_listed_takes_files_and_gives_up_runs(shared: Path, ask: Ask) -> None:
    """As a box into which students hand in."""
    (shared / "box").mkdir()
    shutil.copytree(shared / "runs/smoke", shared / "box/run")
    hand_over(shared / "box")
    close(shared / "box", 0o333)
    assert ask("report runs/smoke --out box/a.html --quiet", exits=0).err == ""
    assert ask("runs rm box/run --yes", exits=0).err == ""


@pytest.mark.skipif(other_user() is None, reason="only root makes files of two users")
def test_in_a_directory_for_all_the_files_of_others_stay(shared: Path, ask: Ask) -> None:
    """As in /tmp: everyone adds files there, and only their owners replace or remove them."""
    (shared / "all").mkdir()
    close(shared / "all", 0o1777)
    (shared / "all/a.png").write_text("of root")
    shutil.copytree(shared / "locked/run", shared / "all/run")
    for command in (
        "attn-dump --run runs/smoke --prompt The --out all/a.png",
        "train --out all/run --resume --max-steps 30",
        "runs rm all/run --yes",
    ):
        require_refused(ask(command, exits=5).err)
    assert (shared / "all/a.png").read_text() == "of root"
    assert sorted(path.name for path in (shared / "all").iterdir()) == ["a.png", "run"]
    for path in (shared / "all/run", *(shared / "all/run").rglob("*")):  # all may change it, but not remove it
        path.chmod(0o777)
    assert ask("runs rm all/run --yes", exits=0).err == "warning: all/run stays, empty: permission is denied\n"


@pytest.mark.parametrize("closed", ["cache", pytest.param("cache/gpt-cli", marks=pytest.mark.long)])
def test_a_cache_that_may_not_be_written_costs_nothing_but_time(closed: str, shared: Path, ask: Ask) -> None:
    (shared / "cache").mkdir()
    (shared / closed).mkdir(exist_ok=True)
    hand_over(shared / "cache")
    close(shared / closed, 0o500)
    cached = {"gpt_cli.text.corpus.CACHE_FROM": 1}  # the cache is then in the folder
    words = "train --config smoke --set tokenizer.kind=byte --data a.txt --out run --max-steps 1"
    ended = ask(words, exits=0, constants=cached)
    assert "the tokens of this text are not kept for the next start" in ended.err
