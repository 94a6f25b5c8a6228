"""The commands of `gpt data` as Python functions. Needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpt_cli.api import command
from gpt_cli.text.request import FetchRequest, ListRequest, PrepareRequest, StatsRequest, VerifyRequest

if TYPE_CHECKING:
    from gpt_cli.text.datasets import Corpora, Fetched
    from gpt_cli.text.prepare import Preparation, Verification
    from gpt_cli.tools.bench.text_stats import Stats

__all__ = ["fetch", "list", "prepare", "stats", "verify"]


def __dir__() -> tuple[str, ...]:
    return tuple(__all__)


@command(ListRequest, "text.datasets:list_corpora")
def list() -> Corpora: ...  # noqa: A001 - as the command is named
@command(FetchRequest, "text.datasets:fetch_corpora")
def fetch() -> Fetched: ...
@command(StatsRequest, "tools.bench.text_stats:stats")
def stats() -> Stats: ...
@command(PrepareRequest, "text.prepare:prepare_text")
def prepare() -> Preparation: ...
@command(VerifyRequest, "text.prepare:verify")
def verify() -> Verification: ...
