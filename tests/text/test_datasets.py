import hashlib
import http.server
import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.texts import no_home

import gpt_cli
from gpt_cli.errors import DataError, EnvironmentFailure
from gpt_cli.text import datasets
from gpt_cli.text.conversations import read_conversation
from gpt_cli.text.datasets import ENTRIES, fetch, find, read_entry

CONTENT = json.dumps(
    [{"title": "关雎", "chapter": "国风", "section": "周南", "content": ["关关雎鸠", "在河之洲"]}]
).encode()


Served = tuple[datasets.Dataset, list[str]]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Served]:
    """An entry whose url is a server on this machine, and the requests that it gets."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(404 if self.path == "/missing" else 200)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT[:2] if self.path == "/cut" else CONTENT)

        def log_message(self, format: str, *arguments: object) -> None: ...  # noqa: A002

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/x"
        yield replace(ENTRIES["shijing"], url=url, sha256=hashlib.sha256(CONTENT).hexdigest()), asked
        server.shutdown()


def test_a_corpus_is_fetched_once_and_again_where_its_copy_is_damaged(served: Served) -> None:
    entry, asked = served
    assert read_entry(entry) == read_entry(entry) == ["关雎 国风 周南\n关关雎鸠\n在河之洲\n"]
    assert asked == ["/x"]
    entry.cached.write_bytes(b"damaged")
    assert fetch(entry) == CONTENT
    assert len(asked) == 2


def test_another_content_is_refused_and_not_kept(served: Served) -> None:
    entry, _ = served
    other = replace(entry, sha256="0" * 64)
    with pytest.raises(DataError, match=f"sha256 {entry.sha256}, but the catalogue expects {'0' * 64}"):
        fetch(other)
    assert not other.cached.exists()


def test_without_an_answer_the_error_names_the_way_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = replace(served[0], url="http://127.0.0.1:1/x")
    sentence = r"gpt downloads this text once, from .*, but the download failed: Connection refused"
    with pytest.raises(EnvironmentFailure, match=sentence) as raised:
        fetch(entry)
    assert raised.value.exit_code == 5
    assert raised.value.hint == f"use python-docs, which needs no network, or save that file as {entry.cached}"
    monkeypatch.setattr(datasets, "cache_directory", no_home)
    with pytest.raises(EnvironmentFailure, match=sentence) as raised:
        fetch(entry)
    assert raised.value.hint == "use python-docs, which needs no network"


def test_a_server_that_hangs_is_left_after_the_timeout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import socket

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(datasets, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        entry = replace(ENTRIES["lunyu"], url=f"http://127.0.0.1:{silent.getsockname()[1]}/x")
        with pytest.raises(EnvironmentFailure, match="timed out"):
            fetch(entry)


@pytest.mark.parametrize(("path", "cause"), [("/missing", "404"), ("/cut", "2 bytes read")])
def test_an_answer_that_is_an_error_or_ends_early_is_no_text(path: str, cause: str, served: Served) -> None:
    entry = replace(served[0], url=(served[0].url or "").removesuffix("/x") + path)
    with pytest.raises(EnvironmentFailure, match=cause):
        fetch(entry)
    assert not entry.cached.exists()


def test_a_download_that_is_too_large_is_left(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "DOWNLOAD_BYTES", 10)
    with pytest.raises(DataError, match="larger than 10 bytes"):
        fetch(served[0])


def test_a_text_in_the_cache_needs_no_downloader(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    entry, _ = served
    fetch(entry)
    monkeypatch.setitem(sys.modules, "requests", None)
    assert fetch(entry) == CONTENT
    assert not hasattr(datasets, "requests"), "only a download loads it"


def test_without_a_cache_folder_or_a_home_directory_the_text_is_fetched_all_the_same(
    served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert fetch(served[0]) == CONTENT
    monkeypatch.setattr(datasets, "cache_directory", no_home)
    assert fetch(served[0]) == CONTENT
    assert not served[0].is_here()


def test_every_entry_from_the_network_has_a_digest_and_a_secure_url() -> None:
    for entry in ENTRIES.values():
        if entry.url is not None:
            assert entry.url.startswith("https://")
            assert len(entry.sha256 or "") == 64


def test_poems_keep_title_and_lines() -> None:
    poem = [{"author": "李煜", "rhythmic": "虞美人", "paragraphs": ["春花秋月何时了。", "往事知多少。"]}]
    text = ENTRIES["songci-300"].to_documents(json.dumps(poem).encode())
    assert text == ["虞美人 李煜\n春花秋月何时了。\n往事知多少。\n"]


def test_no_sum_that_is_asked_is_in_the_text_of_sums(tmp_path: Path) -> None:
    told, asked = read_entry(find("sums")), [read_conversation(one).turns for one in read_entry(find("sums-asked"))]
    pairs = [tuple(map(int, question.content.split("+"))) for question, _ in asked]
    known = set(pairs)
    assert (len(set(told)), len(known)) == (8000, 2000)
    assert [answer.content for _, answer in asked] == [str(one + two) for one, two in pairs]
    assert set(told) == {f"{i}+{j}={i + j}" for i in range(100) for j in range(100) if (i, j) not in known}
    (path,) = gpt_cli.data.fetch("sums-asked", out=tmp_path).paths
    one, two = pairs[0]
    assert json.loads(path.read_text().splitlines()[0]) == {"prompt": f"{one}+{two}", "response": f"{one + two}"}


def test_every_document_of_repeats_comes_two_to_four_times_and_is_the_same_everywhere() -> None:
    documents = read_entry(find("repeats"))
    assert len(set(documents)) == len(documents) == 40_000
    seen = set()
    for document in documents[::10]:
        times = next(n for n in (4, 3, 2) if document == document[: len(document) // n] * n)
        seen.add((len(document) // times, times))
    assert seen == {(length, times) for length in range(8, 25) for times in (2, 3, 4)}
    digest = hashlib.sha256("\n".join(documents).encode()).hexdigest()
    assert digest == "96cc82fde2c6ab26b56d698d738c345b33647c05887cdd194fd9b57c1705b035"
