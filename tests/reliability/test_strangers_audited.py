"""Under Python's audit, hostile files run, import, connect, read and write nothing of their own choice."""

import contextlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support import package, suspects
from support.audited import ANSWERS, Heard, Job, audited
from support.exchange import sharp_checkpoint
from support.faults import SCALE, scaled, some_of
from support.helpers import run_command, small_config
from support.suspects import STRINGS

from gpt_cli.checkpoints.checkpoint import read_checkpoint, save_checkpoint
from gpt_cli.config.load import write_config
from gpt_cli.text.datasets import ENTRIES
from gpt_cli.tools.exchange.export_hf import write_for_transformers

TEXT = "ab今" * 60
SETTINGS = ["data.source=text.txt", "tokenizer.kind=char", "model.num_blocks=1", "train.eval_tokens=16"]
PROMPT = ["--prompt", "ab"]
ONE_STEP = ["--max-steps", "1", "--out", "out/t", "--overwrite"]
IMPORT = ["import", "--out", "out/imported", "--overwrite"]
# on the text that a model names
OWN_TEXT = [
    ["heads", "--run", "FILE", "--json"],
    ["lens", "--run", "FILE", "--json"],
    ["eval", "--run", "FILE"],
    ["eval", "--run", "FILE", "--data", "text.txt", "--memorised", "--num-samples", "1", "--max-new-tokens", "2"],
    ["train", "--init-from", "FILE", *ONE_STEP],
    *(
        [*IMPORT, "FILE", "&&", *words]
        for words in (
            ["heads", "--run", "out/imported"],
            ["eval", "--run", "out/imported"],
            ["train", "--init-from", "out/imported", *ONE_STEP],
        )
    ),
]
A_DIRECTORY_AS_A_RUN = ["sample", "--run", "FILE", *PROMPT]
FETCHING = [
    ["data", "fetch", "tinyshakespeare"],
    ["data", "stats", "text.txt", "--config", "good.yaml", "--set", "tokenizer.kind=tiktoken"],
]
# by what FILE is; what they write lies in the folder `out`
COMMANDS = {
    "models": [
        ["tokens", "--run", "FILE", "x"],
        ["info", "FILE"],
        ["sample", "--run", "FILE", *PROMPT, "--max-new-tokens", "1"],
        ["attn-dump", "--run", "FILE", *PROMPT, "--out", "out/a.html"],
        ["attn-dump", "--run", "FILE", *PROMPT, "--out", "out/a.png"],
        ["explain", "--run", "FILE", *PROMPT, "--format", "html"],
        ["heads", "--run", "FILE", *PROMPT, "--out", "out/h.csv"],
        ["lens", "--run", "FILE", *PROMPT, "--out", "out/l.csv"],
        ["lens", "--run", "FILE", "--data", "text.txt", "--json"],
        ["patch", "--run", "FILE", "--clean", "ab", "--corrupt", "bb", "--answer", "a", "--out", "out/p.csv"],
        ["compare", "FILE", "FILE", "--data", "text.txt", "--json"],
        ["heads", "--run", "FILE", *PROMPT, "--passages", "1", "--circuits", "--out", "out/h.html"],
        ["eval", "--run", "FILE", "--data", "text.txt"],
        ["export", "--run", "FILE", "--format", "hf", "--out", "out/hf"],
        ["export", "--run", "FILE", "--format", "html", "--out", "out/m.html"],
        ["train", "--init-from", "FILE", "--data", "text.txt", *ONE_STEP],
        ["train", "--init-from", "FILE", "--data", "text.txt", *ONE_STEP, "--set", "tokenizer.vocab_size=300"],
        *OWN_TEXT[:5],
    ],
    "directories": [
        [*IMPORT, "FILE", "&&", "train", "--init-from", "out/imported", "--data", "text.txt", *ONE_STEP],
        ["train", "--init-from", "FILE", "--data", "text.txt", *ONE_STEP],
        A_DIRECTORY_AS_A_RUN,
        *OWN_TEXT[4:],
    ],
    "runs": [
        ["runs", "FILE"],
        ["report", "FILE", "--json"],
        ["report", "FILE", "--out", "out/r.html", *PROMPT],
        ["report", "FILE", "--out", "out/r.png"],
        ["heads", "--run", "FILE", "--over-training"],
        ["attn-dump", "--run", "FILE", "--over-training", "--out", "out/film.html"],
        ["train", "--out", "FILE", "--resume", "--data", "text.txt", "--max-steps", "9"],
        ["runs", "rm", "FILE", "--yes"],
    ],
    "configs": [
        ["config", "check", "FILE"],
        ["data", "stats", "text.txt", "--config", "FILE"],
        ["train", "--config", "FILE", "--data", "text.txt", *ONE_STEP],
    ],
    "sweeps": [["sweep", "FILE", "--dry-run"]],
    "records": [["sweep", "good.sweep", "--out", "FILE"]],
    "texts": [
        ["data", "stats", "FILE"],
        ["data", "prepare", "FILE", "--config", "good.yaml"],
        ["sample", "--run", "good.safetensors", "--prompt-file", "FILE", "--max-new-tokens", "1"],
    ],
}
# with the harmless file too: a directory has no text, and the record is another sweep's
REFUSED = {"directories": [A_DIRECTORY_AS_A_RUN, *OWN_TEXT[4:]], "records": COMMANDS["records"]}
OTHER_COMMANDS = [
    *(["config", name] for name in ("settings", "schema")),
    ["config", "show", "good.yaml"],
    ["data", "list"],
    ["data", "verify", "text.txt", "--config", "good.yaml"],
    ["completion", "bash"],
    ["help", "sample"],
    *([["bench", "--config", "good.yaml", "--rounds", "1", "--tokens", "1"]] if SCALE >= 1 else []),  # 9 s
    *FETCHING,
]
LINKED = "linked"
LOADED = ("models", "directories")


def on(words: list[str], path: Path | str, *named: str, watched: bool = True, answers: Sequence[int] = ANSWERS) -> Job:
    """A job for a command on a file, which may name others that it is to read."""
    name = Path(path).name
    own = [name] if {"--resume", "rm"} & {*words} else []
    reads = [name, "text.txt", "good.safetensors", "good.sweep", *named]
    return Job([name if word == "FILE" else word for word in words], reads, ["out", *own], watched, answers)


def hostile_files(folder: Path) -> dict[str, list[Path]]:
    def written(name: str, content: bytes | str) -> Path:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder / name

    numbered = list(enumerate(STRINGS))
    return {
        "models": [written(f"{name}.safetensors", content) for name, content in suspects.checkpoints().items()],
        "directories": [
            *suspects.exports(folder, read_checkpoint(folder / "good.safetensors")),
            *suspects.directories(folder),
        ],
        "runs": [suspects.run_directory(folder / f"run-{i}", folder / "good", text) for i, text in numbered],
        "configs": [written(f"{i}.yaml", suspects.config(text)) for i, text in numbered],
        "sweeps": [written(f"{i}.sweep", suspects.sweep(text)) for i, text in numbered],
        "records": [suspects.sweep_directory(folder / f"sweep-{i}", text) for i, text in numbered],
        "texts": [written(f"{i}.txt", f"{text}\n{TEXT}") for i, text in numbered],
    }


def harmless_files(folder: Path) -> dict[str, str]:
    """The name of a file of each kind with which all commands work."""
    (folder / "text.txt").write_text(TEXT)
    sizes = ("model.d_model=4", "model.num_heads=2", "model.num_blocks=1", "model.context_length=16")
    amounts = ("data.validation_fraction=0.01", "data.validation_tokens=16", "train.eval_tokens=16")
    good = sharp_checkpoint("data.source=python-docs", "tokenizer.kind=byte", *sizes, *amounts)
    good = replace(good, progress=replace(good.progress, step=7))
    save_checkpoint(folder / "good.safetensors", good)
    # nobody may fetch it again because a checkpoint names it
    damaged = folder / "cache/gpt-cli/corpora" / ENTRIES["tinyshakespeare"].cached.name
    damaged.parent.mkdir(parents=True)
    damaged.write_text("damaged")
    (folder / "good.yaml").write_text(write_config(small_config(*SETTINGS)))
    (folder / "hf").mkdir()
    (folder / "good.sweep").write_text("base: smoke\ngrid:\n  train.learning_rate: [0.1, 0.2]\n")
    with contextlib.chdir(folder):
        run_command("train", "--config", "good.yaml", "--out", "good", "--watch", "ab", "--quiet", exits=0)
    shutil.copytree(folder / "good", folder / "spare")
    suspects.sweep_directory(folder / "good-record", "x")
    write_for_transformers(folder / "hf", good)
    names = ["good.safetensors", "hf", "good", "good.yaml", "good.sweep", "good-record", "text.txt"]
    return dict(zip(COMMANDS, names, strict=True))


def damaged_files(folder: Path) -> dict[str, list[str]]:
    """The names of files of each kind that contain nothing to run, and are refused, or tell less: cut, empty, wrong."""

    def directory(name: str, **files: str) -> str:
        (folder / name).mkdir()
        for file, text in files.items():
            (folder / name / file.replace("_", ".")).write_text(text)
        return name

    content = (folder / "good.safetensors").read_bytes()
    for name, damaged in {
        "cut.safetensors": content[: len(content) // 2],
        "wrong.safetensors": content.replace(b"d_model", b"d_modle"),
        "wrong.yaml": b"data: x\nmodle: x\n",
        "wrong.sweep": b"base: x\ngrid:\n  data.source: [x, y]\n",
        "wrong.txt": b"x\n" + TEXT.encode() + b"\xff",
    }.items():
        (folder / name).write_bytes(damaged)
    for name, pattern in (("cut-run", "**/*"), ("cut-notes-run", "*.*")):  # of the latter, the checkpoints are whole
        shutil.copytree(folder / "good", folder / name)
        for path in (folder / name).glob(pattern):
            if path.is_file():
                os.truncate(path, path.stat().st_size // 2)
    return {
        "models": ["cut.safetensors", "wrong.safetensors"],
        "directories": [directory("empty-hf"), directory("wrong-hf", config_json='{"model_type": "x"}')],
        "runs": ["cut-run", "cut-notes-run"],
        "configs": ["wrong.yaml"],
        "sweeps": ["wrong.sweep"],
        "records": [directory("wrong-record", sweep_json='{"base": "x"}')],
        "texts": ["wrong.txt"],
    }


@dataclass(frozen=True)
class Audit:
    """What one process heard of many jobs, and the files that would show that something ran."""

    heard: list[tuple[Job, Heard]]
    canaries: list[Path]

    def events(self, *, loading: bool) -> list[str]:
        """All that was heard of jobs that load a file, or of commands, each behind its words."""
        chosen = [
            (job, heard) for job, heard in self.heard if loading == (job.words[0] == "load") and LINKED not in job.words
        ]
        return [f"{job.words}: {event}" for job, heard in chosen for event in heard.events]

    def number(self, *, loading: bool) -> int:
        """How many jobs were watched that load a file, or are commands."""
        watched = [job for job, _ in self.heard if job.watched and LINKED not in job.words]
        return sum(loading == (job.words[0] == "load") for job in watched)


@pytest.fixture(scope="module", name="audit")
def _audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    """One process for all: half of its time goes into imports."""
    folder = tmp_path_factory.mktemp("audit")
    (folder / "out").mkdir()
    harmless, damaged, hostile = harmless_files(folder), damaged_files(folder), hostile_files(folder)
    # what is usual is learned from nothing hostile, or a part of it that ran would be usual later
    jobs = [
        on(
            words,
            name,
            watched=False,
            answers=[0] if name in ("spare", harmless[kind]) and words not in REFUSED.get(kind, []) else ANSWERS,
        )
        for kind, commands in COMMANDS.items()
        for words in commands
        for name in ("spare" if "rm" in words else harmless[kind], *damaged[kind])
    ]
    jobs += [Job(words, watched=False, answers=[*ANSWERS, 5]) for words in OTHER_COMMANDS]  # 5: there is no network
    loaded = ["good.safetensors", "hf", *damaged["models"], *damaged["directories"]]
    jobs += [on(["load", "FILE"], path, watched=False) for path in loaded]
    jobs += [on(["load", "FILE"], path) for kind in LOADED for path in some_of(hostile[kind], 20)]
    for kind, commands in COMMANDS.items():
        every = max(1, len(hostile[kind]) // scaled(len(hostile[kind]), 1))
        for number, path in enumerate(hostile[kind]):
            bases = [STRINGS[number]] if kind == "sweeps" else []  # the config that a sweep begins from
            jobs += [on(words, path, *bases) for i, words in enumerate(commands) if (number + i) % every == 0]
    # following a link that leads outside is what the user asked for, and the audit hears it
    (folder / LINKED).mkdir()
    (folder / "secret").write_text("{}")
    (folder / LINKED / "config.json").symlink_to(folder / "secret")
    jobs.append(Job(["load", LINKED], [LINKED]))
    heard = audited(folder, jobs)
    return Audit(list(zip(jobs, heard, strict=True)), list(folder.rglob("canary")))


def test_files_of_strangers_cause_nothing(audit: Audit, tally) -> None:
    assert audit.events(loading=True) == []
    assert audit.canaries == []
    tally("hostile checkpoints and directories: nothing runs, nothing else is opened", audit.number(loading=True))


def test_commands_on_files_of_strangers_write_where_they_are_told_to(audit: Audit, tally) -> None:
    assert audit.events(loading=False) == []
    num_commands = audit.number(loading=False)
    tally("hostile files given to commands: nothing runs, nothing is read or written but what is named", num_commands)


def test_the_audit_can_fail(audit: Audit) -> None:
    (events,) = [heard.events for job, heard in audit.heard if LINKED in job.words]
    assert any("secret" in event for event in events)


def test_only_what_fetches_connects(audit: Audit) -> None:
    """Fetching goes where the catalogue and tiktoken say, with files of strangers and without."""
    connecting = {tuple(job.words): heard.network for job, heard in audit.heard if heard.network}
    fetched = [event for words in FETCHING for event in connecting.pop(tuple(words))]
    hosts = [event.partition(": ")[2] for event in fetched if event.startswith("socket.getaddrinfo")]
    assert hosts == [urlsplit(ENTRIES["tinyshakespeare"].url).hostname, "openaipublic.blob.core.windows.net"]
    assert connecting == {}


def test_every_command_is_heard(audit: Audit) -> None:
    heard = {" ".join(job.words[:count]) for job, _ in audit.heard for count in (1, 2)}
    assert {*package.COMMANDS, "completion", "help"} - heard <= ({"bench"} if SCALE < 1 else set())
