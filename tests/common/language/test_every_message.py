"""Every text for the user has a Chinese one: what the source hands over, and what help prints."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.messages import QUOTED_OR_TYPED, help_texts, messages, missing, nouns, places, refusals, skeleton
from support.package import PACKAGE, trees

from gpt_cli.common.language import chinese
from gpt_cli.common.spelling import as_flags

FILES = sorted((PACKAGE / "common/language/zh").glob("*.toml"))
_CHINESE = re.compile(r"[\u4e00-\u9fff]")


def test_the_catalogue_lacks_nothing() -> None:
    """`make zh` prints the same lines. What commands say beyond them, the end of a test run reports."""
    assert {"corpus", "memory"} <= set(places())
    assert {"blocks", "tokens"} <= set(nouns())
    of_a_config, of_a_view = "low-rank changes need the optimizer adamw", "±: standard error"
    assert {of_a_config, of_a_view} <= {message.text for message in messages()}
    assert not (lines := list(missing())), "fill these in, in gpt_cli/common/language/zh/:\n" + "\n".join(lines)


def test_each_pair_has_the_same_values() -> None:
    for text, said in chinese().pairs.items():
        names = set(re.findall(r"\{(\w*)(?:![tnlm])?\}", text))
        used = set(re.findall(r"\{(\w*)\}", said))
        assert used <= names, text
        assert names - used <= {"s"}, f"{text}: only the ending of a plural, {{s}}, is left out in Chinese"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_of_the_catalogue_is_chinese_and_repeats_no_other(file: Path) -> None:
    pairs = tomllib.loads(file.read_text("utf-8"))
    others = [key for other in FILES if other != file for key in tomllib.loads(other.read_text("utf-8"))]
    assert not set(pairs) & set(others)
    for text, said in pairs.items():
        words = re.sub(r"\{[^{}]*\}", "", said)
        if text.startswith("gpt ") and said.startswith("gpt "):  # a command with other flags
            continue
        assert _CHINESE.search(said) or text == said or not any(map(str.isalpha, words)), f"{text}: {said}"


def test_the_headings_of_the_catalogue_name_files_of_the_package() -> None:
    package = {f"/{path.relative_to(PACKAGE).as_posix()}" for path in PACKAGE.rglob("*.py")}
    headings = [line for file in FILES for line in file.read_text("utf-8").splitlines() if line.startswith("#")]
    named = {name for line in headings for name in re.findall(r"[\w./]+\.py", line)}
    assert not [
        name
        for name in named
        if not any(f"/gpt_cli{path}".endswith(f"/{name.removeprefix('../')}") for path in package)
    ]


def test_messages_outside_the_command_line_name_fields_in_marks() -> None:
    results = ("tools/explain/render.py", *(f"tools/interpret/{name}/view.py" for name in ("compare", "heads")))
    of_a_terminal = ("cli/", *results)  # whose text is that of a terminal too
    outside = [message for message in messages() if not message.where.startswith(of_a_terminal)]
    assert len(outside) > 100
    assert not [one for one in outside if re.search("--[a-z]", QUOTED_OR_TYPED.sub("", one.marked))]


def strings(tree: ast.Module) -> Iterator[str]:
    """The texts of a file, with `\0` for each value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value if " " in node.value else node.value.replace("_", " ")  # steps have names


def test_nothing_in_the_catalogue_is_said_by_nobody() -> None:
    import typer

    of_help = [ast.parse(path.read_text("utf-8")) for path in Path(typer.__file__).parent.rglob("*.py")]
    texts = [text for tree in (*trees().values(), *of_help) for text in strings(tree)]
    texts.append((PACKAGE / "config/elsewhere.toml").read_text("utf-8"))
    # what help joins of several lines is one text here
    said = as_flags("\0".join(dict.fromkeys(re.sub(r"\s+", " ", text) for text in texts)))
    said += "\n".join([*help_texts(), *refusals()])
    foreign = tomllib.loads((FILES[0].parent / "libraries.toml").read_text("utf-8"))
    stale = [
        text
        for text in chinese().pairs.keys() - foreign.keys()
        if not all(_occurs(re.sub(r"\s+", " ", part), said) for part in re.split(r"\{\}|\d+", skeleton(text)))
    ]
    assert not stale, "\n".join(stale)


def _occurs(text: str, said: str) -> bool:
    """Whether a text comes from a source that may put it together from a few pieces, of four words on average."""
    if text in said:
        return True
    piece, num_pieces = "", 0  # marks between pieces cost nothing
    for word in re.findall(r"\w+|\s+|[^\w\s]+", text):
        if piece and piece + word in said:
            piece += word
            continue
        piece = word if word[0].isalnum() else ""
        if piece not in said:
            return False
        num_pieces += bool(piece)
    return num_pieces <= 1 + (len(re.findall(r"\w+", text)) + 2) // 4
