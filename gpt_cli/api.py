"""The commands of `gpt` as functions of Python: the keywords of each are the fields of its request. Needs no torch."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from gpt_cli.callbacks import Host, drawn
from gpt_cli.config.request import Request, flags_of, read_request
from gpt_cli.exchange.request import ExportRequest, ImportRequest
from gpt_cli.explaining.request import ExplainRequest
from gpt_cli.inspecting.request import TokensRequest
from gpt_cli.machine.sharing import sharing
from gpt_cli.measuring.request import BenchRequest, InfoRequest
from gpt_cli.reporting.request import RemoveRequest, ReportRequest, RunsRequest
from gpt_cli.sampling.request import EvaluateRequest
from gpt_cli.sweeping.request import SweepRequest

P = ParamSpec("P")
R = TypeVar("R")


class Function(Protocol[P, R]):
    """A command as a function: Python calls it with keywords, of which the first may lack its name, `cli/` `answer`."""

    request: type[Request]
    answer: Callable[[Any, Host], R]

    @overload
    def __call__(self, first: Any = ..., /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the result; raise a GptError of `gpt_cli.errors`."""
        ...

    @overload  # a required keyword may be the one that lacks its name
    def __call__(self, first: Any, /, **kwargs: Any) -> R: ...


def function(request: Callable[P, Request]) -> Callable[[Callable[[Any, Any, Host], R]], Function[P, R]]:
    """Make a function of keywords of one that takes a request, what it finds on this disk, and who asks.

    The inner function imports what does the work, after the request has been checked.
    """
    assert isinstance(request, type)
    assert issubclass(request, Request)
    fields = [(name, field) for name, field, _ in flags_of(request)]
    leading = fields[0][0] if fields else "progress"

    def decorated(work: Callable[[Any, Any, Host], R]) -> Function[P, R]:
        def answer(asked: Request, host: Host) -> R:
            return work(asked, asked.find(host), host)

        def call(*first: Any, **given: Any) -> R:
            if len(first) > 1 or (first and leading in given):
                raise TypeError(f"all arguments but {leading} need their names")
            values = {**dict(zip([leading], first, strict=False)), **given}
            asked = read_request(request, {name: value for name, value in values.items() if value is not None})
            host = Host(warn=lambda line: warnings.warn(line, stacklevel=2))
            return answer(asked, drawn(host) if asked.progress else host)

        meanings = [f"    {name}: {field.description}" for name, field in fields]
        vars(call).update(request=request, answer=answer, __signature__=inspect.Signature(_keywords(request)))
        call.__doc__ = "\n".join([inspect.getdoc(request) or "", "", *meanings])
        call.__name__ = call.__qualname__ = work.__name__
        return call  # pyright: ignore[reportReturnType] - it has the attributes since two lines

    return decorated


def _keywords(request: type[Request]) -> list[inspect.Parameter]:
    """The signature that Python shows: the first may come without its name."""
    found = []
    for name, field in [*((name, field) for name, field, _ in flags_of(request)), *request.model_fields.items()]:
        if name not in [parameter.name for parameter in found]:
            kind = inspect.Parameter.KEYWORD_ONLY if found else inspect.Parameter.POSITIONAL_OR_KEYWORD
            default = inspect.Parameter.empty if field.is_required() else field.default
            found.append(inspect.Parameter(name, kind, default=default))
    return found


@function(InfoRequest)
def info(request: InfoRequest, found: Any, host: Host):
    with host.importing():
        from gpt_cli.measuring.info import info
    return info(request, found, host)


@function(ExplainRequest)
def explain(request: ExplainRequest, found: Any, host: Host):
    with host.importing():
        from gpt_cli.explaining.explain import explain
    return explain(request, found, host)


@function(TokensRequest)
def tokens(request: TokensRequest, found: Any, host: Host):
    from gpt_cli.inspecting.tokens import tokens

    return tokens(request, found, host)


@function(BenchRequest)
def bench(request: BenchRequest, found: Any, host: Host):
    with sharing(host.notice):
        with host.importing():
            from gpt_cli.measuring.bench import bench
        return bench(request, found, host)


@function(EvaluateRequest)
def evaluate(request: EvaluateRequest, found: Any, host: Host):
    with sharing():
        with host.importing():
            from gpt_cli.sampling.evaluate import evaluate
        return evaluate(request, found, host)


@function(ImportRequest)
def import_model(request: ImportRequest, found: Any, host: Host):
    with host.importing():
        from gpt_cli.exchange.adopting import adopt
    out, foreign = found
    return adopt(out, foreign, host)


@function(ExportRequest)
def export_model(request: ExportRequest, found: Any, host: Host):
    with host.importing():
        from gpt_cli.exchange.exporting import export
    return export(request, found, host)


@function(RunsRequest)
def runs(request: RunsRequest, found: Any, host: Host):
    from gpt_cli.reporting.runs import list_runs

    return list_runs(request, found, host)


@function(RemoveRequest)
def remove_runs(request: RemoveRequest, found: Any, host: Host):
    from gpt_cli.reporting.runs import remove_runs

    return remove_runs(request, found, host)


@function(ReportRequest)
def report(request: ReportRequest, found: Any, host: Host):
    from gpt_cli.reporting.report import report

    return report(request, found, host)


@function(SweepRequest)
def sweep(request: SweepRequest, found: Any, host: Host):
    from gpt_cli.sweeping.sweep import sweep

    return sweep(request, found, host)
