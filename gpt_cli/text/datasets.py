"""The catalogue of corpora that gpt knows by name, and the commands `gpt data list` and `gpt data fetch`."""

import contextlib
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from gpt_cli.common.files import cache_directory, make_directory, write_durably
from gpt_cli.common.host import Host
from gpt_cli.common.language import say
from gpt_cli.common.limits import DOWNLOAD_BYTES
from gpt_cli.common.mistyped import nearest
from gpt_cli.common.results import WIDTH, Result
from gpt_cli.common.tables import Rows, narrow_table
from gpt_cli.common.untrusted_files import read_bytes
from gpt_cli.errors import DataError, EnvironmentFailure, UsageError, shown
from gpt_cli.text.conversations import Conversation, Turn, read_conversation

TIMEOUT = 15  # seconds without an answer


@dataclass(frozen=True)
class Dataset:
    """A corpus of the catalogue. `to_documents` makes documents from the download, or from b"" if there is no `url`."""

    name: str
    description: str
    licence: str
    to_documents: Callable[[bytes], list[str]]
    language: str | None = None  # of its text, as a code of ISO 639-1
    url: str | None = None
    sha256: str | None = None
    has_answers: bool = False  # whether its documents are conversations, of `Conversation.to_json`

    @property
    def cached(self) -> Path:
        """The path of the cached download, named by sha256 so that a new version gets a new path."""
        return cache_directory("corpora") / f"{self.name}-{(self.sha256 or '')[:16]}"

    @property
    def state(self) -> str:
        """The state that `gpt data list` prints: "needs no network", "fetched" or "not fetched yet"."""
        if self.url is None:
            return "needs no network"
        return "fetched" if self.is_here() else "not fetched yet"

    def is_here(self) -> bool:
        """Return whether the corpus can be read without network."""
        return self.url is None or self.read_cached() is not None

    def read_cached(self) -> bytes | None:
        """Return the bytes of the cached download, or None if it is missing or damaged."""
        with contextlib.suppress(DataError, EnvironmentFailure):  # a user without a home directory has no cache
            content = read_bytes(self.cached, DataError)
            return content if hashlib.sha256(content).hexdigest() == self.sha256 else None
        return None


def read_entry(entry: Dataset) -> list[str]:
    """Return the documents of a catalogue entry, downloaded if they are not cached; raise the errors of `fetch`."""
    return entry.to_documents(b"" if entry.url is None else fetch(entry))


def fetch(entry: Dataset) -> bytes:
    """Return the bytes of a catalogue entry from the cache, or else from the network, checked by sha256.

    Raises EnvironmentFailure if the download fails, DataError if the download is too large or its digest differs.
    """
    if (cached := entry.read_cached()) is not None:
        return cached
    content = _download(entry)
    if (digest := hashlib.sha256(content).hexdigest()) != entry.sha256:
        raise DataError(entry.name, f"the download has sha256 {digest}, but the catalogue expects {entry.sha256}")
    with contextlib.suppress(EnvironmentFailure):  # without a cache the next use fetches it again
        make_directory(entry.cached.parent)
        write_durably(entry.cached, [content])
    return content


def find(name: str) -> Dataset:
    """Return the catalogue entry called `name`; for an unknown name, raise UsageError that suggests the nearest one."""
    if name in ENTRIES:
        return ENTRIES[name]
    close = nearest(name, ENTRIES)
    sentence = f"the catalogue has no text of this name; it has {', '.join(ENTRIES)}"
    raise UsageError(shown(name), sentence, hint=close and f"did you mean {close}?")


@dataclass(frozen=True)
class Corpora(Result):
    """The result of `gpt data list`: name, description, licence, URL, sha256 and state of each corpus."""

    corpora: list[dict[str, str | None]]

    def parts(self) -> list[Rows]:
        rows = [
            (str(each["name"]), *(say(str(each[key])) for key in ("licence", "state", "description")))
            for each in self.corpora
        ]
        return [[(say("name"), say("licence"), say("state"), say("text")), *rows]]

    def as_text(self, width: int = WIDTH) -> str:
        (rows,) = self.parts()
        return narrow_table(rows, width, ())


# `request` is Any because text/request.py, which has its class, imports this module
def list_corpora(request: Any, inputs: Any, host: Host) -> Corpora:
    """Return all corpora that gpt knows by name (ENTRIES), and for each whether it is fetched or needs no network."""
    keys = ("name", "description", "licence", "url", "sha256")
    return Corpora([{key: getattr(each, key) for key in keys} | {"state": each.state} for each in ENTRIES.values()])


@dataclass(frozen=True)
class Fetched(Result):
    """The result of `gpt data fetch`: paths of corpora; a corpus without a download has a path only with --out."""

    paths: list[Path]

    def as_dict(self) -> dict[str, Any]:
        return {"paths": [*map(str, self.paths)]}

    def as_text(self, width: int = WIDTH) -> str:
        return "\n".join(map(str, self.paths))


def fetch_corpora(request: Any, entries: Sequence[Dataset], host: Host) -> Fetched:
    """Download uncached corpora; also write all to the folder `request.out` (None: no copy). Errors: as in `fetch`."""
    paths = list[Path]()
    for entry in entries:
        with host.working(f"fetching {entry.name}"):
            documents = read_entry(entry)
        if request.out is not None:
            paths.append(_write_text(entry, documents, request.out))
        elif entry.url is None:
            host.notice(f"{entry.name} needs no download")
        elif entry.cached.exists():
            paths.append(entry.cached)
        else:
            sentence = f"the download succeeded, but {entry.cached.parent} is not writable"
            raise EnvironmentFailure(entry.name, sentence, hint=f"gpt data fetch {entry.name} --out DIR")
    return Fetched(paths)


def _write_text(entry: Dataset, documents: list[str], folder: Path) -> Path:
    """Write a corpus to `folder`: a single document as .txt, several or conversations as .jsonl. Return the path."""
    make_directory(folder)
    if len(documents) == 1:
        path, text = folder / f"{entry.name}.txt", documents[0]
    else:
        path, records = folder / f"{entry.name}.jsonl", [{"text": document} for document in documents]
        if entry.has_answers:
            turns = [read_conversation(document).turns for document in documents]
            records = [{"prompt": question.content, "response": answer.content} for question, answer in turns]
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    write_durably(path, [text.encode()])
    return path


def _download(entry: Dataset) -> bytes:
    """Return the bytes at the entry's URL; raise EnvironmentFailure if the download fails, DataError if too large."""
    import requests  # half a second that only a download costs

    assert entry.url is not None
    content = bytearray()
    try:
        with requests.get(entry.url, timeout=TIMEOUT, stream=True) as response:
            response.raise_for_status()
            for chunk in response.iter_content(2**16):
                content += chunk
                if len(content) > DOWNLOAD_BYTES:
                    raise DataError(entry.name, f"the download is larger than {DOWNLOAD_BYTES:,} bytes")
    except OSError as error:  # all exceptions of requests are
        hint = "use python-docs, which needs no network"
        with contextlib.suppress(EnvironmentFailure):  # where there is no folder for a cache
            hint += f", or save that file as {entry.cached}"
        sentence = f"gpt downloads this text once, from {entry.url}, but the download failed: {_cause(error)}"
        raise EnvironmentFailure(entry.name, sentence, hint=hint) from error
    return bytes(content)


def _cause(error: BaseException) -> str:
    """Return the reason of a failed download: the innermost error, which requests and urllib3 wrap in other errors."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return getattr(error, "strerror", None) or str(error)


def _python_docs(_: bytes) -> list[str]:
    """Return the language reference of the running Python, one document per topic, in sorted order."""
    from pydoc_data.topics import topics  # half a megabyte that one corpus needs

    return [topics[name].strip() + "\n" for name in sorted(topics)]


def _repeats(_: bytes) -> list[str]:
    """Return 40,000 documents, each a random string of 8 to 24 letters that is repeated two to four times in a row."""
    from gpt_cli.common.rng import random_words, stream_key  # and with it numpy, which other corpora do without

    words = random_words(stream_key(0, "repeats"), 0, 40_000 * 26).reshape(40_000, 26)
    documents = []
    for length, times, *chosen in words.tolist():
        letters = [ascii_lowercase[word % 26] for word in chosen[: 8 + length % 17]]
        documents.append("".join(letters) * (2 + times % 3))
    return documents


def _sums(_: bytes) -> list[str]:
    """Return 8,000 of the 10,000 sums of two numbers below 100 as documents, such as 12+34=46."""
    return [f"{one}+{two}={one + two}" for one, two in _pairs()[:8000]]


def _sum_questions(_: bytes) -> list[str]:
    """Return the 2,000 sums that `_sums` leaves out, each as a conversation of a question and its answer."""
    pairs = ((Turn("user", f"{one}+{two}"), Turn("assistant", f"{one + two}")) for one, two in _pairs()[8000:])
    return [Conversation(turns).to_json() for turns in pairs]


def _pairs() -> list[tuple[int, int]]:
    """Return all pairs of numbers below 100 in a fixed pseudorandom order."""
    from gpt_cli.common.rng import permutation, stream_key  # and with it numpy, which other corpora do without

    return [divmod(number, 100) for number in permutation(stream_key(0, "sums"), 10_000).tolist()]


_POETRY = "https://raw.githubusercontent.com/chinese-poetry/chinese-poetry/99ebbef7e1345c0985c44b9fd96a3f9e776f117b"


def _poems(
    name: str, description: str, path: str, sha256: str, title: Callable[[dict[str, Any]], str], lines: str
) -> Dataset:
    """Return the catalogue entry for a JSON list of poems at `path`; a document is `title(poem)` and `poem[lines]`."""

    def to_documents(content: bytes) -> list[str]:
        return ["\n".join([title(poem), *poem[lines]]) + "\n" for poem in json.loads(content)]

    return Dataset(name, description, "MIT; texts in the public domain", to_documents, "zh", _POETRY + path, sha256)


_ENTRIES = (
    Dataset(
        "python-docs",
        "the language reference of the running Python, from its standard library",
        "PSF-2.0",
        _python_docs,
        "en",
    ),
    Dataset(
        "repeats",
        "2 MB of random letters in which every document repeats its beginning, made by gpt itself",
        "in the public domain",
        _repeats,
    ),
    Dataset("sums", "8,000 sums of two numbers below 100, made by gpt itself", "in the public domain", _sums),
    Dataset(
        "sums-asked",
        "the other 2,000 sums as questions with answers, made by gpt itself",
        "in the public domain",
        _sum_questions,
        "en",
        has_answers=True,
    ),
    Dataset(
        "tinyshakespeare",
        "1.1 MB of Shakespeare's plays, as prepared for char-rnn",
        "text in the public domain",
        lambda content: [content.decode()],
        "en",
        "https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e"
        "/data/tinyshakespeare/input.txt",
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    ),
    Dataset(
        "sales-textbook",
        "460 KB of a textbook on selling, in modern English",
        "see waylandzhang/Transformer-from-scratch",
        lambda content: [content.decode()],
        "en",
        "https://raw.githubusercontent.com/waylandzhang/Transformer-from-scratch"
        "/def96882f9d009cd704e3db9e6e119e89e00352b/data/sales_textbook.txt",
        "1994f20f5becd3f0b3d7a632e5a68513cc38cf6c9737a9f38243f1b652e962da",
    ),
    _poems(
        "songci-300",
        "宋词三百首, 300 poems of the Song dynasty",
        "/%E5%AE%8B%E8%AF%8D/%E5%AE%8B%E8%AF%8D%E4%B8%89%E7%99%BE%E9%A6%96.json",
        "ca5d74f7fdb9d5a6acc22a7c8b4395228cad4bb8be53df44c19ba83ab6983b20",
        lambda poem: f"{poem['rhythmic']} {poem['author']}",
        "paragraphs",
    ),
    _poems(
        "lunyu",
        "论语, the Analects",
        "/%E8%AE%BA%E8%AF%AD/lunyu.json",
        "bc336a3839706377892719db44c48a09794a493190535a42bf1c7d4c4233e96c",
        lambda chapter: chapter["chapter"],
        "paragraphs",
    ),
    _poems(
        "shijing",
        "诗经, the Book of Songs",
        "/%E8%AF%97%E7%BB%8F/shijing.json",
        "3c7ca54d59424542ada99adfcc85420287fbbd5c8a511e9baf705cb2b04051e7",
        lambda song: f"{song['title']} {song['chapter']} {song['section']}",
        "content",
    ),
)
ENTRIES = {entry.name: entry for entry in _ENTRIES}
