"""The pages that a reader opens: README and docs, their commands, and what the commands print."""

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpt_cli.common.language import chinese
from support.helpers import Outcome, run_command

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ENGLISH = sorted(page for page in [*ROOT.glob("*.md"), *DOCS.glob("*.md")] if ".zh-CN" not in page.name)
CHINESE = sorted(page for page in [*ROOT.glob("*.md"), *DOCS.glob("*.md")] if ".zh-CN" in page.name)
# corpora that need a network, for which the reader's text stands in
FETCHED = ("lunyu", "shijing", "songci-300")
# their tests compare what the commands print, so they run them with the configs that they name, or with models of others
WITH_OUTPUTS = (
    *("lesson.md", "lesson.zh-CN.md", "forms.md", "forms.zh-CN.md"),
    *("induction.md", "induction.zh-CN.md"),
    *("real-model.md", "real-model.zh-CN.md"),
    *("circuit.md", "circuit.zh-CN.md", "evidence.md", "evidence.zh-CN.md"),
)


def blocks(page: Path, kind: str) -> list[str]:
    """The fenced blocks of a kind: console, text, python."""
    return re.findall(rf"^```{kind}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[str]:
    """The lines `$ ...` of a page that call `gpt`, without the prompt sign."""
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    typed = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [line for line in typed if line.startswith("gpt ") or "| gpt " in line]


def shown(page: str) -> list[tuple[str, list[str]]]:
    """The commands of a page of docs/ in order, and all lines of output that follow each; `...` is where some are left out."""
    found: list[tuple[str, list[str]]] = []
    for kind, block in re.findall(
        r"^```(console|text)\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE
    ):
        lines = block.splitlines()
        if kind == "console":
            found.append((lines.pop(0).removeprefix("$ "), []))
        found[-1][1].extend(line for line in lines if line != "...")
    return found


def smaller(command: str) -> str:
    """A command of a page that takes a moment: with the smoke config in the shape of `tiny`, and a few steps."""
    command = command.split(" > ")[0]
    before, pipe, command = command.rpartition("| ")
    words = shlex.split(command)
    config = next((word for word in words if word in ("small", "tiny", "configs/tiny.yaml")), None)
    words = ["smoke" if word == config else "my.txt" if word in FETCHED else word for word in words]
    if "--processes" in words:  # tests of ranks start many
        words[words.index("--processes") + 1] = "1"
    if words[1] == "train" and "--resume" in words and "--max-steps" in words:
        words[words.index("--max-steps") + 1] = "6"
    whole = {"--prompt", "--max-tokens", "--per-token", "runs/scratch"}  # the last has questions and answers
    reads_text = words[1] in ("eval", "heads", "compare") and not whole & {*words}
    if reads_text and ("--over-training" not in words or "--passages" in words):
        words += ["--max-tokens", "200"]
    less = {"4000": "1000", "data.validation_fraction=0.5": "data.validation_fraction=0.05"}
    words = [less.get(word) or re.sub(r"(?<=^train\.batch_size=)\d+", "4", word) for word in words]
    if words[1] == "train" and "--resume" not in words:
        words += ["--set", "train.sample_every=null", "--set", "data.validation_tokens=200"]
        words += ["--max-steps", "4", "--overwrite"]
        if "--max-time" in words:
            words[-3:-1] = []
            words[words.index("--max-time") + 1] = "0.3s"
        chooses = "--config" not in words and "--init-from" not in words
        if config or chooses:
            words += ["--set", "model.num_heads=4", "--set", "model.num_blocks=4"]
            words += ["--set", "model.d_model=32"] if chooses else []
        if not config and "train.batch_size=4" not in words:
            words += ["--set", "train.batch_size=4"]
        if "--out" not in words and config:
            words += ["--out", f"runs/{config}"]
    if words[1] == "bench" and "--check-device" not in words:
        words += ["--config", "smoke", "--rounds", "1", "--tokens", "3"]
    return f"{before}{pipe}{shlex.join(words)}"


_MAKES = ("train", "sweep", "export", "import", "data prepare", "data fetch")


def shape(command: str) -> str:
    """A command without its texts, numbers and runs: its name, its flags and the kinds of its files, in order of the flags.

    Of commands that write what others read, all of it.
    """
    words = shlex.split(smaller(command).rpartition("| ")[2])[1:]
    name = " ".join(words[: next((n for n, word in enumerate(words) if word.startswith("-")), len(words))])
    if name.startswith(_MAKES):
        return command
    endings = (Path(word).suffix for word in words)
    kinds = {ending for ending in endings if ending[1:].isalpha()}
    return " ".join([name, *sorted(word for word in words if word.startswith("--")), *sorted(kinds)])


@dataclass
class Shell:
    """A folder in which the commands of all pages run, equal ones once."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def run(self, command: str, exits: int = 0) -> Outcome:
        """The outcome of `gpt ...`, or of `echo "..." | gpt ...`; the working folder is the shell's."""
        if command not in self.outcomes:
            before, _, command_itself = command.rpartition("| ")
            stdin = "".join(f"{word}\n" for word in shlex.split(before)[1:]).encode()
            self.outcomes[command] = run_command(*shlex.split(command_itself)[1:], stdin=stdin, exits=exits)
        return self.outcomes[command]


def output(command: str) -> list[str]:
    """The lines that `gpt ...` writes: those of stdout, then those of stderr."""
    outcome = run_command(*shlex.split(command)[1:], exits=0)
    return [line.rstrip() for line in (outcome.out + outcome.err).splitlines()]


def reported(command: str) -> dict[str, Any]:
    """What `gpt ... --json` reports."""
    return json.loads(output(f"{command} --json --quiet")[-1])


def reads_the_same_text(shell: Shell) -> bool:
    """Whether this Python's language reference is the one that the pages were written with; each version has its own."""
    return "464,970" in shell.run("gpt data stats python-docs").out


def anchors(page: Path) -> set[str]:
    """What a link to a heading of a page may name, as GitHub does."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def form(line: str) -> str:
    """A line without what another training would change: numbers, shades, and tokens listed by what was trained."""
    line = re.sub(r"((?:looks most at|最关注|longest terms.*|加权和中，长度最大的几项)\s*[:：]).*", r"\1", line)
    line = re.sub(r"[░▒▓█]+", " ", line)
    line = re.sub(r"-?\d[\d.,]*( min \d+)?", "#", line).replace("-∞", "#").replace("…", " ")
    return re.sub(r"#( #)+", "#", " ".join(line.split()))  # as many as fit


def in_both_languages(lines: list[str]) -> list[str]:
    """The lines that a command printed in English, each before what it says in Chinese where that differs."""
    return [said for line in lines for said in dict.fromkeys((line, chinese().say(line)))]


def is_in_order(lines: list[str], all_lines: list[str]) -> bool:
    """Whether the lines are among all lines in the same order, others between them."""
    rest = iter(all_lines)
    return all(line in rest for line in lines)


def looking(lines: list[str], num_rows: int, size: int) -> np.ndarray:
    """The table of a head's steps from scores to weights; each column follows from the one left of it to four decimals."""
    rows = [re.findall(r"-?\d+\.\d{4}", line) for line in lines]
    numbers = np.array([row for row in rows if len(row) == 4], dtype=float)
    assert numbers.shape == (num_rows, 4)
    scores, divided, masked, weights = numbers.T
    np.testing.assert_allclose(scores / size**0.5, divided, atol=1e-4)
    np.testing.assert_array_equal(divided, masked)
    powers = np.exp(masked)
    np.testing.assert_allclose(powers / powers.sum(), weights, atol=1e-4)
    return numbers
