"""The preparation of a large text: killed at any file operation it continues, and it needs little memory."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.corpora import read_split
from support.faults import Fault, KilledError, Operations, some_of
from support.helpers import small_config
from support.texts import identity

from gpt_cli.common import files
from gpt_cli.text.encode import EncodedText, encode_parts
from gpt_cli.text.token_files import TokensOnDisk

# with these a text of 200 lines is prepared as one of 100 GB: pieces, groups, parts, a manifest, ids on disk
LARGE = {
    "gpt_cli.text.documents.MAX_PIECE": 100,
    "gpt_cli.text.documents.GROUP_CHARACTERS": 300,
    "gpt_cli.text.token_files.PART_TOKENS": 1000,
    "gpt_cli.text.corpus.CACHE_FROM": 1,
    "gpt_cli.text.encode.IN_MEMORY": 0,
    "gpt_cli.text.cache.REMEMBER_FROM": 1,
    "gpt_cli.text.cache.RACY_SECONDS": -3600,
}
TEXT = "".join(f"{number} squared is {number**2}. 今天天气很好🙂\n" for number in range(120))


def prepare() -> EncodedText:
    config = small_config("data.source=corpus.txt", "tokenizer.kind=char")
    return encode_parts(*read_split(config.data), config)


def cached() -> list[Path]:
    return [path for path in Path("cache/gpt-cli").rglob("*") if path.is_file()]


def test_killed_at_any_file_operation_it_continues_and_writes_no_part_again(
    here: Path, tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real writer dies in this process, half way through a write, and leaves what a killed process would leave."""
    (here / "corpus.txt").write_text(TEXT)
    for name, value in LARGE.items():
        monkeypatch.setattr(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
    operations = Operations(lambda *_: None)
    with monkeypatch.context() as patch:
        patch.setattr(files, "os", operations)
        expected = prepare()
    assert isinstance(expected.ids, TokensOnDisk)
    assert len(expected.ids.parts) > 3
    contents = {path: path.read_bytes() for path in cached()}
    numbers = some_of(range(1, operations.count + 1), 15)
    for number in numbers:
        shutil.rmtree(here / "cache")
        with monkeypatch.context() as patch:
            patch.setattr(files, "os", Operations(Fault(number, "dies", ever_after=True)))
            with pytest.raises(KilledError):
                prepare()
        parts = {path: identity(path) for path in cached() if path.name.startswith("part-")}
        assert prepare().digest == expected.digest, f"operation {number}"
        assert {path: identity(path) for path in parts} == parts, (
            f"operation {number}: a finished part is written again"
        )
        assert contents.items() <= {path: path.read_bytes() for path in cached()}.items(), f"operation {number}"
        assert not [path for path in cached() if "part-" in path.name and path.name.endswith(".tmp")]
    tally(f"kills of a preparation at a file operation of {operations.count}: same ids, no part twice", len(numbers))


# a process that may take this many bytes more than it has once all is imported
_LIMITED = """
import os, re, resource, sys, threading
from pathlib import Path
import numpy as np
from gpt_cli.config import DataConfig, TokenizerConfig
from gpt_cli.text import compressed, documents, file_formats, token_files
from gpt_cli.text import encode as encoding
from gpt_cli.text.load import read_data
from gpt_cli.text.encode import encode
from gpt_cli.text.train_tokenizer import learn_tokenizer

threading.stack_size(2**18)  # which counts whole, however little of it is used
limit, block = int(sys.argv[1]), int(sys.argv[2])
compressed.BLOCK = file_formats.BLOCK = documents.GROUP_CHARACTERS = block
token_files.PART_TOKENS, encoding.IN_MEMORY = 8 * block, 0
used = int(re.search(r"VmSize:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (used + limit, used + limit))
corpus = read_data(DataConfig(source="texts"))
assert corpus.num_bytes >= 10 * limit, corpus.num_bytes
parts = corpus.split(0.001)
tokenizer = learn_tokenizer(TokenizerConfig(kind="char"), *parts)
num_ids = sum(len(encode(part, tokenizer)) for part in parts)
assert num_ids == corpus.num_characters + corpus.survey.num_documents - 1, num_ids
print(num_ids)
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells how large a process is")
def test_a_text_ten_times_as_large_as_the_memory_is_prepared(here: Path) -> None:
    limit = 400 * 10**6 + 15 * 10**6 * len(os.sched_getaffinity(0))
    (here / "texts").mkdir()
    paragraph = "今天天气很好，The weather is fine today.🙂\n"
    # one document as large as the limit, and links to it, which count as files of their own
    (here / "texts" / "0.txt").write_text(paragraph * (limit // len(paragraph.encode()) + 1))
    for number in range(1, 10):
        os.link("texts/0.txt", f"texts/{number}.txt")
    environment = os.environ | {"XDG_CACHE_HOME": str(here / "cache"), "MALLOC_ARENA_MAX": "1"}
    command = [sys.executable, "-c", _LIMITED, str(limit), str(2**20)]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stderr
