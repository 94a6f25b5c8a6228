"""The commands of `gpt` as functions of Python: the keywords of each are the fields of its request. Needs no torch."""

from __future__ import annotations

import inspect
import sys
import textwrap
import warnings
from collections.abc import Callable, Container, Generator
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from gpt_cli.common.host import Host, drawn, ignored
from gpt_cli.common.machine.cpu_contention import sharing
from gpt_cli.common.results import Result
from gpt_cli.config.request import LoadedRun, Request, flags_of, read_request
from gpt_cli.config.spelling import described, in_keywords, keywords_named, name_keywords, spelled_as_flag
from gpt_cli.errors import UsageError
from gpt_cli.sampling.request import EvaluateRequest, SampleRequest
from gpt_cli.tools.bench.request import BenchRequest, InfoRequest
from gpt_cli.tools.exchange.request import ExportRequest, ImportRequest, read_foreign
from gpt_cli.tools.explain.request import ExplainRequest
from gpt_cli.tools.interpret.compare.request import CompareRequest, ToCompare
from gpt_cli.tools.interpret.heads.request import HeadsRequest
from gpt_cli.tools.interpret.lens.request import LensRequest
from gpt_cli.tools.interpret.patching.request import PatchRequest
from gpt_cli.tools.interpret.request import AttentionRequest, TokensRequest
from gpt_cli.tools.loggers.processes import Followers
from gpt_cli.tools.reports.request import RemoveRequest, ReportRequest, RunsRequest
from gpt_cli.tools.sweeps.request import SweepRequest
from gpt_cli.training.request import Plan, TrainRequest

if TYPE_CHECKING:
    from gpt_cli.evaluation.evaluate import Evaluation
    from gpt_cli.sampling.sample import Samples
    from gpt_cli.tools.bench.bench import Bench
    from gpt_cli.tools.bench.model_info import Info
    from gpt_cli.tools.exchange.export_model import Exported
    from gpt_cli.tools.exchange.import_model import Imported
    from gpt_cli.tools.explain.explain import Explained
    from gpt_cli.tools.interpret.attention import Attention
    from gpt_cli.tools.interpret.compare.report import Comparison
    from gpt_cli.tools.interpret.heads.report import HeadReport
    from gpt_cli.tools.interpret.lens.report import LensReport
    from gpt_cli.tools.interpret.patching.report import PatchReport
    from gpt_cli.tools.interpret.tokens import Tokens
    from gpt_cli.tools.reports.report import Report
    from gpt_cli.tools.reports.run_table import Removed, Runs
    from gpt_cli.tools.sweeps.sweep import Swept
    from gpt_cli.training import events as of_training
    from gpt_cli.training.events import Training

P = ParamSpec("P")
R = TypeVar("R")
# a training is a generator, and work happens in contexts
_NOT_THE_CALLER = ("gpt_cli", "contextlib", "_collections_abc")


class Function(Protocol[P, R]):
    """A command as a function: Python calls it with keywords, of which the first may lack its name, `cli/` `answer`."""

    request: type[Request]
    answer: Callable[[Any, Host], R]
    on: Callable[[Any], Function[P, R]]  # the same for a model that is loaded, of whose run it is then

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the result; raise a GptError of `gpt_cli.errors`."""
        ...


def function(request: Callable[P, Request]) -> Callable[[Callable[[Any, Any, Host], R]], Function[P, R]]:
    """Make a function of keywords of one that takes a request, what it finds on this disk, and who asks.

    The inner function imports what does the work, after the request has been checked.
    """
    assert isinstance(request, type)
    assert issubclass(request, Request)
    fields = [(name, field) for name, field, _ in flags_of(request)]
    leading = fields[0][0] if fields else "progress"
    place = "run" if "run" in request.model_fields else "path"  # what names a run

    def decorated(work: Callable[[Any, Any, Host], R]) -> Function[P, R]:
        named = f"{work.__module__.removesuffix('.api')}.{work.__name__}"

        def answer(asked: Request, host: Host) -> R:
            return work(asked, asked.find(host), host)

        def on(loaded: Any) -> Function[P, R]:
            chosen = {} if loaded is None else {place: loaded.path, "checkpoint": None}

            def call(*first: Any, **given: Any) -> R:
                if len(first) > 1 or (first and leading in given):
                    raise TypeError(f"all arguments but {leading} need their names")
                values = {**dict(zip([leading], first, strict=False)), **given}
                if wrong := [name for name in chosen if name in values]:
                    raise TypeError(f"{wrong[0]} is that of the model, which is loaded")
                if isinstance(values.get(place), LoadedRun):
                    return on(values.pop(place))(**values)  # pyright: ignore[reportCallIssue] - values are of P
                values = {name: value for name, value in {**values, **chosen}.items() if value is not None}
                with keywords_named(request, named):
                    asked = read_request(request, values, spelled_as_flag)
                    hears = (getattr(asked, "notice", None) or ignored, getattr(asked, "warn", None) or _warned)
                    notice, warn = (lambda line, hear=hear: hear(in_keywords(line, request)) for hear in hears)
                    host = Host(notice, warn, loaded=loaded, read_foreign=read_foreign, loggers=Followers)
                    result: Any = answer(asked, drawn(host) if asked.progress else host)
                if isinstance(result, Result) and (failure := result.failure()):
                    name_keywords(failure, request, named)
                return result  # pyright: ignore[reportReturnType] - it is of R

            returned = work.__annotations__["return"]
            signature = inspect.Signature(_keywords(request, chosen), return_annotation=returned)
            vars(call).update(request=request, answer=answer, on=on, __signature__=signature)
            about, what = inspect.getdoc(work), (inspect.getdoc(request) or "").replace("\n\n", "\f").replace("\n", " ")
            paragraphs = [textwrap.fill(part, 100) for text in what.split("\f") if (part := described(text, request))]
            others = [(name, request.model_fields[name]) for name in request.of_python]
            meanings = [_meaning(name, field, request) for name, field in fields + others if name not in chosen]
            call.__doc__ = "\n\n".join(filter(None, [*paragraphs, about, "\n".join(meanings)]))
            call.__name__ = call.__qualname__ = work.__name__
            return call  # pyright: ignore[reportReturnType] - it has the attributes since four lines

        return on(None)

    return decorated


def _meaning(name: str, field: Any, request: type[Request]) -> str:
    said = described(field.description, request) or "For the command line; a function has no use for it."
    return textwrap.fill(f"{name}: {said}", 100, initial_indent=4 * " ", subsequent_indent=8 * " ")


def _warned(line: str) -> None:
    """Warn at the line of the caller, however deep in the package this is said."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals["__name__"].partition(".")[0] in _NOT_THE_CALLER:
        frame, level = frame.f_back, level + 1
    warnings.warn(line, stacklevel=level)


def _keywords(request: type[Request], chosen: Container[str]) -> list[inspect.Parameter]:
    """The signature that Python shows: the first may come without its name."""
    found = []
    for name, field in [*((name, field) for name, field, _ in flags_of(request)), *request.model_fields.items()]:
        if name not in chosen and name not in [parameter.name for parameter in found]:
            kind = inspect.Parameter.KEYWORD_ONLY if found else inspect.Parameter.POSITIONAL_OR_KEYWORD
            default = inspect.Parameter.empty if field.is_required() else field.default
            found.append(inspect.Parameter(name, kind, default=default))
    return found


@function(TrainRequest)
def train(request: TrainRequest, plan: Plan, host: Host) -> Training:
    """In Python, this is a generator of reports, the classes of gpt_cli.training.events; the last is Finished.

        training = gpt_cli.train("tiny", data="my.txt", out="runs/mine", max_steps=500)
        for report in training:
            print(report)
        print(training.finish().as_dict()["validation_loss"])

    `finish()` trains to the end where reports are left, and returns Finished. Wrong arguments are refused at once; the
    training runs as the reports are taken. The first is Prepared, and files are written after it; of a run with nothing
    left to train, Finished is the only one. The run directory is locked until then. Ctrl-C raises KeyboardInterrupt and
    saves nothing; resume=True continues from the last checkpoint. With dry_run=True nothing is trained, and this is no
    generator: it returns the config, the reasons of what gpt chose, and Prepared.
    """
    if request.processes not in (None, 1):
        sentence = "from Python one process trains; only the command line starts several"
        raise UsageError("--processes", sentence, hint=f"gpt train --processes {request.processes}")

    if request.dry_run:
        with host.importing():
            from gpt_cli.training.dry_run import dry_run

        rarer: Any = dry_run(plan, host)
        return rarer
    with host.importing():
        from gpt_cli.training.events import Training
        from gpt_cli.training.loop import train_whole

    def reports() -> Generator[of_training.Report, None, None]:
        with keywords_named(TrainRequest, "gpt_cli.train"):
            yield from train_whole(request, plan, host)

    return Training(reports())


@function(InfoRequest)
def info(request: InfoRequest, found: Any, host: Host) -> Info:
    """It raises CheckpointError for a damaged checkpoint, where others warn and take the next: it is there to tell."""
    with host.importing():
        from gpt_cli.tools.bench.model_info import info
    return info(request, found, host)


@function(ExplainRequest)
def explain(request: ExplainRequest, found: Any, host: Host) -> Explained:
    with host.importing():
        from gpt_cli.tools.explain.explain import explain
    return explain(request, found, host)


@function(TokensRequest)
def tokens(request: TokensRequest, found: Any, host: Host) -> Tokens:
    from gpt_cli.tools.interpret.tokens import tokens

    return tokens(request, found, host)


@function(AttentionRequest)
def attention(request: AttentionRequest, found: Any, host: Host) -> Attention:
    if request.over_training:
        from gpt_cli.tools.interpret.training_film import film

        rarer: Any = film(request, found, host)  # type checkers know the result that is asked for more often
        return rarer
    with sharing():
        with host.importing():
            from gpt_cli.tools.interpret.attention import attention
        return attention(request, found, host)


@function(HeadsRequest)
def heads(request: HeadsRequest, found: Any, host: Host) -> HeadReport:
    if request.over_training and request.passages:
        with sharing():
            with host.importing():
                from gpt_cli.tools.interpret.heads.passage_history import passage_history
            of_steps: Any = passage_history(request, found, host)
            return of_steps
    if request.over_training:
        from gpt_cli.tools.interpret.heads.history import head_history

        rarer: Any = head_history(request, found, host)
        return rarer
    with sharing():
        with host.importing():
            from gpt_cli.tools.interpret.heads.heads import heads
        return heads(request, found, host)


@function(LensRequest)
def lens(request: LensRequest, found: Any, host: Host) -> LensReport:
    with sharing():
        with host.importing():
            from gpt_cli.tools.interpret.lens.lens import lens
        work: Any = lens  # whose result over a training is another
        return work(request, found, host)


@function(PatchRequest)
def patch(request: PatchRequest, found: Any, host: Host) -> PatchReport:
    with sharing():
        with host.importing():
            from gpt_cli.tools.interpret.patching.patch import patch
        work: Any = patch  # whose result over a training is another
        return work(request, found, host)


@function(CompareRequest)
def compare(request: CompareRequest, found: ToCompare, host: Host) -> Comparison:
    with sharing():
        with host.importing():
            from gpt_cli.tools.interpret.compare.compare import compare
        return compare(request, found, host)


@function(BenchRequest)
def bench(request: BenchRequest, found: Any, host: Host) -> Bench:
    if request.check_device:
        with host.importing():
            from gpt_cli.tools.bench.device_check import check_device

        rarer: Any = check_device(request, host)
        return rarer
    with sharing(host.notice):
        with host.importing():
            from gpt_cli.tools.bench.bench import bench
        return bench(request, found, host)


@function(SampleRequest)
def sample(request: SampleRequest, found: Any, host: Host) -> Samples:
    with sharing():
        with host.importing():
            from gpt_cli.sampling.sample import sample
        return sample(request, found, host)


@function(EvaluateRequest)
def evaluate(request: EvaluateRequest, found: Any, host: Host) -> Evaluation:
    with sharing():
        with host.importing():
            from gpt_cli.evaluation.evaluate import evaluate
        return evaluate(request, found, host)


@function(ImportRequest)
def import_model(request: ImportRequest, found: Any, host: Host) -> Imported:
    with host.importing():
        from gpt_cli.tools.exchange.import_model import adopt
    return adopt(request, found, host)


@function(ExportRequest)
def export_model(request: ExportRequest, found: Any, host: Host) -> Exported:
    """A file that is there already is replaced, as every file that `out` of a function names."""
    with host.importing():
        from gpt_cli.tools.exchange.export_model import export
    return export(request, found, host)


@function(RunsRequest)
def runs(request: RunsRequest, found: Any, host: Host) -> Runs:
    from gpt_cli.tools.reports.run_table import list_runs

    return list_runs(request, found, host)


@function(RemoveRequest)
def remove_runs(request: RemoveRequest, found: Any, host: Host) -> Removed:
    from gpt_cli.tools.reports.run_table import remove_runs

    return remove_runs(request, found, host)


@function(ReportRequest)
def report(request: ReportRequest, found: Any, host: Host) -> Report:
    from gpt_cli.tools.reports.report import report

    return report(request, found, host)


@function(SweepRequest)
def sweep(request: SweepRequest, found: Any, host: Host) -> Swept:
    from gpt_cli.tools.sweeps.sweep import sweep

    either: Any = sweep(request, found, host)  # with dry_run it is Planned
    return either
