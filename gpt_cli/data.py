"""The commands of `gpt data` as Python functions. Needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpt_cli.api import command
from gpt_cli.common.host import Host
from gpt_cli.text.request import FetchRequest, ListRequest, PrepareRequest, StatsRequest, VerifyRequest

if TYPE_CHECKING:
    from gpt_cli.text.datasets import Corpora, Fetched
    from gpt_cli.text.prepare import Preparation, Verification
    from gpt_cli.tools.bench.text_stats import Stats

__all__ = ["fetch", "list", "prepare", "stats", "verify"]


def __dir__() -> tuple[str, ...]:
    return tuple(__all__)


@command(ListRequest)
def list(request: ListRequest, inputs: Any, host: Host) -> Corpora:  # noqa: A001 - as the command is named
    from gpt_cli.text.datasets import list_corpora

    return list_corpora()


@command(FetchRequest)
def fetch(request: FetchRequest, inputs: Any, host: Host) -> Fetched:
    from gpt_cli.text.datasets import fetch_corpora

    return fetch_corpora(inputs, request.out, host)


@command(StatsRequest, "tools.bench.text_stats:stats")
def stats() -> Stats: ...


@command(PrepareRequest)
def prepare(request: PrepareRequest, inputs: Any, host: Host) -> Preparation:
    from gpt_cli.text.prepare import prepare_text

    return prepare_text(inputs, host)


@command(VerifyRequest)
def verify(request: VerifyRequest, inputs: Any, host: Host) -> Verification:
    from gpt_cli.text.prepare import verify

    return verify(inputs, host)
