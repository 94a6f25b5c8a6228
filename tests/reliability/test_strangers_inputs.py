"""Generated configs, corpora, words of a command line and prompts: each ends with a result or with a sentence."""

import gzip
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st
from support.corpora import documents_of, read_corpus
from support.faults import scaled
from support.fuzzing import built_once, inputs, require_answer, require_sentence
from support.helpers import RunCommand, run_command
from support.tokenizers import learned

from gpt_cli.config.load import build_config
from gpt_cli.config.settings_reference import setting_schemas
from gpt_cli.config.strict_yaml import parse
from gpt_cli.errors import DataError, GptError
from gpt_cli.sampling.prompts import encode_prompt
from gpt_cli.text.file_formats import Reading
from gpt_cli.text.tokenizers import ByteTokenizer, CharTokenizer

# parts of any text
ODD = st.sampled_from(
    [
        *("", " ", "\t", "\n", "\r\n", "\0", "\x1b[2J", "\x1b]0;x\x07", "\ufeff", "\u2028", "\u202e", "\x85", "\x7f"),
        *("-", "--", "---", "...", "#", "'", '"', "`", "$(id)", "%s", "{}", "{0.__class__}"),
        *("../../etc/passwd", "~", "~x"),
        *("null", "true", "no", "nan", "-inf", "1e999", "-1", "0", "010", "0x10", "1_000", "12:30", "3e-4", "9" * 5000),
        *("!!python/object/apply:os.system ['id']", "&a [*a]", "*a", "<<: x", "? x", "|", ">-"),
        *("[" * 50, "{" * 50, "a: " * 50),
        *("é", "今天", "\U0001f600", "a\u0301", "<|endoftext|>", "=1+1", "@x", "<script>", "x" * 300),
    ]
)
# mapped, so that hypothesis does not repeat it in what it says about a strategy
LONG = st.just("x").map(lambda letter: letter * scaled(70_000, 7_000))
texts = st.lists(st.one_of(ODD, LONG, st.text(max_size=20)), max_size=4).map("".join)
KEYS = sorted(setting_schemas())
SECTIONS = sorted({key.partition(".")[0] for key in KEYS})
numbers = st.one_of(
    st.integers(-(2**70), 2**70), st.floats(), st.sampled_from([0, -1, 1, 2**31, 2**63, 2**64, 1e-300, 1e300])
).map(str)
values = st.one_of(texts, numbers)


@st.composite
def configs(draw: st.DrawFn) -> str:
    """YAML that nearly is a config: sections and keys that exist, or nearly, with values of any kind."""
    lines = []
    for section in draw(st.lists(st.one_of(st.sampled_from(SECTIONS), texts), max_size=4)):
        lines.append(f"{section}:")
        below = [key.partition(".")[2] for key in KEYS if key.startswith(f"{section}.")]
        keys = draw(st.lists(st.one_of(st.sampled_from(below or ["x"]), texts), max_size=5))
        lines += [f"  {key}: {draw(values)}" for key in keys]
    return "\n".join(draw(st.permutations(lines)) if draw(st.integers(0, 9)) == 0 else lines)


@inputs(10_000)
@given(configs(), st.lists(st.tuples(st.sampled_from(KEYS), values), max_size=3))
@example("model:\n  num_blocks: " + "9" * 5000, [])
@example("a: " * 10_000, [])
@example("a: *" + "x" * 70_000, [])
@example("a: &" + "x" * 70_000, [])
def test_configs(text: str, changes: list[tuple[str, str]]) -> None:
    try:
        build_config(parse(text, "a.yaml"), "a.yaml", [f"{key}={value}" for key, value in changes])
    except GptError as error:
        require_sentence(error, 2)


contents = st.one_of(texts.map(lambda text: text.encode("utf-8", "replace")), st.binary(max_size=200))
records = st.one_of(
    texts.map(lambda text: json.dumps({"text": text})),
    st.recursive(
        st.none() | st.booleans() | st.floats() | texts,
        lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
        max_leaves=5,
    ).map(json.dumps),
    texts,
    st.sampled_from(['{"text": "\\ud800"}', '{"text": ' + "9" * 5000 + "}", '{"text": "a", "text": 1}']),
)
lines = st.lists(records, max_size=4).map(lambda found: "\n".join(found).encode("utf-8", "surrogatepass"))


def table(column: str, rows: list[Any]) -> bytes:
    """A Parquet table of one column; rows of several kinds become text."""
    try:
        found = arrow.table({column: rows})
    except (arrow.ArrowException, UnicodeError, OverflowError):
        found = arrow.table({column: [ascii(row) for row in rows]})
    memory = io.BytesIO()
    pyarrow.parquet.write_table(found, memory)
    return memory.getvalue()


tables = st.builds(
    table, st.sampled_from(["text", "other", ""]), st.lists(st.none() | texts | st.integers(0, 9), max_size=4)
)


@st.composite
def files(draw: st.DrawFn) -> tuple[str, bytes]:
    """The ending of a file and what is in it: of that format, of another one, or damaged."""
    ending = draw(st.sampled_from(["txt", "jsonl", "txt.gz", "jsonl.gz", "txt.zst", "jsonl.zst", "parquet"]))
    content = draw(tables if ending == "parquet" else lines if "jsonl" in ending else contents)
    if draw(st.integers(0, 5)) == 0:
        ending = draw(st.sampled_from(["txt", "gz", "zst", "parquet", "jsonl", "", "png"]))
    elif ending.endswith("gz"):
        content = gzip.compress(content, 1) * draw(st.integers(1, 2))
    elif ending.endswith("zst"):
        content = zstandard.ZstdCompressor(1).compress(content)
    if content and draw(st.integers(0, 2)) == 0:
        at, how = draw(st.integers(0, len(content) - 1)), draw(st.integers(0, 3))
        part = draw(st.binary(max_size=8))
        content = [
            content[:at],
            content[:at] + part + content[at:],
            content[:at] + part + content[at + len(part) :],
            content + part,
        ][how]
    return ending, content


@inputs(10_000)
@given(
    found=st.lists(files(), min_size=1, max_size=2),
    separator=st.none() | st.text(min_size=1, max_size=8),
    skip_bad=st.booleans(),
)
def test_corpora(found: list[tuple[str, bytes]], separator: str | None, skip_bad: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, (ending, content) in enumerate(found):
            Path(folder, f"{number}.{ending}").write_bytes(content)
        try:
            corpus = read_corpus(folder, Reading(separator=separator, skip_bad=skip_bad))
            assert sum(map(len, documents_of(corpus))) == corpus.num_characters
            CharTokenizer(sorted(set("".join(documents_of(corpus))))).encode("".join(documents_of(corpus))[:100])
        except GptError as error:
            require_sentence(error, 3)


def require_text_or_sentence(path: Path) -> None:
    try:
        read_corpus(str(path))
    except GptError as error:
        require_sentence(error, 3)


def test_a_damaged_page_of_a_table_is_one_sentence(tmp_path: Path) -> None:
    """The library says it in several lines, as an error of the system."""
    content = table("text", ["The value", "of"])
    for at in range(4, 24):
        (tmp_path / "a.parquet").write_bytes(content[:at] + b"\x0f\xff\xff" + content[at + 3 :])
        require_text_or_sentence(tmp_path / "a.parquet")


def test_no_byte_of_the_footer_of_a_table_aborts_the_process(tmp_path: Path) -> None:
    """Found among 10,000 corpora: the library ends the process where a column's statistics have a wrong size."""
    content, path = table("text", ["The value", "of"]), tmp_path / "a.parquet"
    footer = int.from_bytes(content[-8:-4], "little") + 8
    for at in range(len(content) - footer, len(content) - 8):
        path.write_bytes(content[:at] + b"\x40" + content[at + 1 :])
        require_text_or_sentence(path)


def test_a_hint_names_no_field_that_a_terminal_would_obey(tmp_path: Path) -> None:
    """Found among 10,000 corpora: a key of a line went to the terminal as it was, and could set its title."""
    (tmp_path / "a.jsonl").write_text(json.dumps({"\x1b]0;x\x07": "a", "$(id)": "b", "x" * 900: "c"}))
    (tmp_path / "a.parquet").write_bytes(table("\x1b]0;x\x07", ["a"]))
    for name in ("a.jsonl", "a.parquet"):
        with pytest.raises(DataError) as raised:
            read_corpus(str(tmp_path / name))
        require_sentence(raised.value, 3)
        assert "text_field" not in " ".join(raised.value.lines())


COMMANDS = ["train", "sample", "attn-dump", "explain", "heads", "eval", "info", "export", "import", "report", "sweep"]
GROUPS = [
    *("config show", "config check", "config schema", "data stats", "data list", "runs list", "runs rm", "completion"),
    "help",
]
FLAGS = [
    *("--run", "--prompt", "--prompt-file", "--out", "--seed", "--max-new-tokens", "--num-samples", "--temperature"),
    *("--top-k", "--top-p", "--min-p", "--layers", "--heads", "--device", "--dtype", "--threads", "--checkpoint"),
    *("--config", "--data", "--set", "--json", "--quiet", "--overwrite", "--resume", "--max-steps", "--max-time"),
    *("--processes", "--without", "--stop", "--format", "--generate", "--query", "--ablate", "--watch", "--init-from"),
]
words = st.one_of(
    texts, numbers, st.sampled_from(FLAGS), st.builds("{}={}".format, st.sampled_from(FLAGS + KEYS), values)
)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A command with flags and words of any kind; one that trains would fail for want of a text."""
    command = draw(st.sampled_from([*COMMANDS, *GROUPS])).split(" ")
    found = draw(st.lists(words, max_size=5))
    # an argument of a process has no NUL, and characters that are no text come as halves
    found = [
        word.replace("\0", "").encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape") for word in found
    ]
    return [*command, *found, *(["--data", "nothere"] if command == ["train"] else [])]


@pytest.mark.filterwarnings("ignore:Generating overly large repr")  # of a line that fails
def test_command_lines(here: Path) -> None:
    @inputs(3_000)
    @given(command_lines())
    @example(["help", ""])
    @example([""])
    @example(["train", "79", "", "--resume", "", "x" * 5_000])
    def holds(line: list[str]) -> None:
        require_answer(run_command(*line), 0, 2, 3, 4, 5)

    with built_once():
        holds()


TOKENIZERS = [ByteTokenizer(), CharTokenizer(" abcxyz今天"), learned(["the value of the value"], 300)]


@inputs(3_000)
@given(st.one_of(texts, st.text(st.characters(), max_size=50)), st.integers(1, 40), st.booleans())
def test_prompts(text: str, context_length: int, truncate: bool) -> None:
    for tokenizer in TOKENIZERS:
        try:
            ids = encode_prompt(tokenizer, text, context_length, source="--prompt", truncate=truncate)
            assert 0 < len(ids) <= context_length
        except GptError as error:
            require_sentence(error, 3)


def test_prompts_of_commands(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    @inputs(1_200)
    @given(st.one_of(contents, texts.map(lambda text: text.encode("utf-8", "surrogatepass"))), st.booleans())
    def holds(content: bytes, from_file: bool) -> None:
        command = ["sample", "--run", str(smoke_run), "--max-new-tokens", "1", "--json", "--seed", "1", "--quiet"]
        if from_file:
            (tmp_path / "prompt").write_bytes(content)
            require_answer(run(*command, "--prompt-file", str(tmp_path / "prompt")), 0, 3)
        else:
            require_answer(run(*command, stdin=content), 0, 3)

    with built_once():
        holds()
