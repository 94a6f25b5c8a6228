"""The commands of `gpt` as Python functions, whose keywords are the fields of request classes. Needs no torch."""

from __future__ import annotations

import inspect
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from gpt_cli.common.host import Host, drawn, ignored
from gpt_cli.common.machine.cpu_contention import sharing
from gpt_cli.common.machine.memory import returned_memory
from gpt_cli.common.machine.torch_modes import default_modes
from gpt_cli.common.results import Result
from gpt_cli.common.spelling import as_keywords, described
from gpt_cli.config.request import LoadedRun, Request, flags_of, read_request
from gpt_cli.errors import UsageError, keywords_named, name_keywords
from gpt_cli.sampling.request import EvaluateRequest, SampleRequest
from gpt_cli.tools.bench.request import BenchRequest, InfoRequest
from gpt_cli.tools.exchange.request import ExportRequest, ImportRequest, read_model_directory
from gpt_cli.tools.explain.request import ExplainRequest
from gpt_cli.tools.interpret.compare.request import CompareRequest
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
    from gpt_cli.tools.interpret.attention import AttentionResult
    from gpt_cli.tools.interpret.finding import Finding
    from gpt_cli.tools.interpret.tokens import Tokens
    from gpt_cli.tools.reports.report import RunReport
    from gpt_cli.tools.reports.run_table import Removed, Runs
    from gpt_cli.tools.sweeps.sweep import Swept
    from gpt_cli.training.events import Training

P = ParamSpec("P")
R = TypeVar("R")
# takes a request, its inputs on this disk, and the host
Work = Callable[[Any, Any, Host], Any]
# the packages of frames between a warning and the user's call: gpt_cli, its contexts and its generators
_NOT_THE_CALLER = ("gpt_cli", "contextlib", "_collections_abc")


class Command(Generic[P, R]):
    """A `gpt` command as a Python function, such as `gpt_cli.sample`; only its first argument may be positional.

    As a method of a model from `gpt_cli.load`, the command takes no keywords that name a run or a checkpoint. A call
    that breaks these rules raises TypeError. `function` gives the command its name; `work` computes its result.
    """

    def __init__(self, request: type[Request], function: Callable[..., R], work: Work, loaded: Any = None):
        self.request, self._function, self._work, self._loaded = request, function, work, loaded
        fields = {name: field for name, field, _ in flags_of(request)} | request.model_fields
        self._leading = next(iter(fields))
        self._run_keyword = "run" if "run" in request.model_fields else "path"
        self._chosen = {} if loaded is None else {self._run_keyword: loaded.path, "checkpoint": None}
        fields = {name: field for name, field in fields.items() if name not in self._chosen}
        self.__name__, self.__qualname__, self.__module__ = function.__name__, function.__name__, function.__module__
        returned = function.__annotations__["return"]
        self.__signature__ = inspect.Signature([*_keywords(fields)], return_annotation=returned)
        about, what = inspect.getdoc(function), (inspect.getdoc(request) or "").replace("\n\n", "\f").replace("\n", " ")
        paragraphs = [textwrap.fill(part, 100) for text in what.split("\f") if (part := described(text))]
        meanings = [_meaning(name, field) for name, field in fields.items()]
        self.__doc__ = "\n\n".join(filter(None, [*paragraphs, about, "\n".join(meanings)]))

    def __get__(self, loaded: Any, owner: type) -> Command[P, R]:
        return self if loaded is None else Command(self.request, self._function, self._work, loaded)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the command and return its result. Raises GptError, or TypeError for a call of a wrong form."""
        if len(args) > 1 or (args and self._leading in kwargs):
            raise TypeError(f"all arguments but {self._leading} need their names")
        values: dict[str, Any] = {**dict(zip([self._leading], args, strict=False)), **kwargs}
        if wrong := [name for name in self._chosen if name in values]:
            raise TypeError(f"{wrong[0]} is that of the model, which is loaded")
        if isinstance(values.get(self._run_keyword), LoadedRun):
            of_run: Any = self.__get__(values.pop(self._run_keyword), LoadedRun)
            return of_run(**values)
        values = {name: value for name, value in {**values, **self._chosen}.items() if value is not None}
        with keywords_named(), default_modes(), returned_memory():
            request = read_request(self.request, values)
            hears = (getattr(request, "notice", None) or ignored, getattr(request, "warn", None) or _warned)
            notice, warn = (lambda line, hear=hear: hear(as_keywords(line)) for hear in hears)
            host = Host(notice, warn, loaded=self._loaded, read_foreign=read_model_directory, loggers=Followers)
            result = self.answer(request, drawn(host) if request.progress else host)
        if isinstance(result, Result) and (failure := result.failure()):
            name_keywords(failure)
        return result

    def __reduce__(self) -> Any:
        return self.__name__ if self._loaded is None else (getattr, (self._loaded, self.__name__))

    def __repr__(self) -> str:
        return f"<function {self.__module__.removesuffix('.api')}.{self.__name__}>"

    def answer(self, request: Request, host: Host) -> R:
        """Run the command on a validated `request` and return its result; `host` shows notices and progress."""
        return self._work(request, request.find(host), host)


def command(
    request: Callable[P, Request], work: str = "", *, torch: bool = False, shares: bool = False
) -> Callable[[Callable[..., R]], Command[P, R]]:
    """Return a decorator that turns a function into a Command, whose arguments are the fields of `request`.

    The Command calls the decorated function with the request, the inputs that `request.find` returns, and a Host, which
    receives notices and warnings. If `work` (module:function) is set, the Command calls that function instead, through
    `done`, which also receives `torch` and `shares`.
    """
    assert isinstance(request, type)
    assert issubclass(request, Request)

    def decorated(function: Callable[..., R]) -> Command[P, R]:
        return Command(request, function, partial(done, work, torch=torch, shares=shares) if work else function)

    return decorated


def done(work: str, request: Request, inputs: Any, host: Host, *, torch: bool = False, shares: bool = False) -> Any:
    """Import the function `work`, call it with `request`, `inputs` and `host`, and return its result.

    `work` is `module:function`, with a module of gpt_cli. Set `torch` or `shares` if this import loads torch; `shares`
    also lets torch's waiting threads sleep during the call while other programs need the cores. If the request names a
    number of `threads`, torch computes with it during the call.
    """
    module, _, name = work.partition(":")
    with sharing() if shares else nullcontext():
        with host.importing() if torch or shares else nullcontext():
            function = getattr(import_module(f"gpt_cli.{module}"), name)
        threads = getattr(request, "threads", None)
        if threads is None:
            return function(request, inputs, host)
        from gpt_cli.common.machine.devices import restored_threads

        with restored_threads(threads):
            return function(request, inputs, host)


def _meaning(name: str, field: Any) -> str:
    said = described(field.description) or "For the command line; a function has no use for it."
    return textwrap.fill(f"{name}: {said}", 100, initial_indent=4 * " ", subsequent_indent=8 * " ")


def _warned(line: str) -> None:
    """Issue the warning `line`; Python then shows it at the statement in the user's code that called gpt_cli."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_THE_CALLER:
        frame, level = frame.f_back, level + 1
    warnings.warn(line, stacklevel=level)


def _keywords(fields: Mapping[str, Any]) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a signature, one for each pydantic field; only the first may be positional."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for name, field in fields.items():
        default = inspect.Parameter.empty if field.is_required() else field.default
        yield inspect.Parameter(name, kind, default=default)
        kind = inspect.Parameter.KEYWORD_ONLY


@command(ExplainRequest, "tools.explain.explain:explain", torch=True)
def explain() -> Explained: ...
@command(TokensRequest, "tools.interpret.tokens:tokens")
def tokens() -> Tokens: ...
@command(LensRequest, "tools.interpret.lens.lens:lens", shares=True)
def lens() -> Finding: ...
@command(PatchRequest, "tools.interpret.patching.patch:patch", shares=True)
def patch() -> Finding: ...
@command(CompareRequest, "tools.interpret.compare.compare:compare", shares=True)
def compare() -> Finding: ...
@command(SampleRequest, "sampling.sample:sample", shares=True)
def sample() -> Samples: ...
@command(EvaluateRequest, "evaluation.evaluate:evaluate", shares=True)
def evaluate() -> Evaluation: ...
@command(ImportRequest, "tools.exchange.import_model:adopt", torch=True)
def import_model() -> Imported: ...
@command(RunsRequest, "tools.reports.run_table:list_runs")
def runs() -> Runs: ...
@command(RemoveRequest, "tools.reports.run_table:remove_runs")
def remove_runs() -> Removed: ...
@command(ReportRequest, "tools.reports.report:report")
def report() -> RunReport: ...
@command(SweepRequest, "tools.sweeps.sweep:sweep")
def sweep() -> Swept: ...


# commands that need a docstring, or in which a flag changes the work and the type of the result


@command(InfoRequest)
def info(request: InfoRequest, inputs: Any, host: Host) -> Info:
    """Describe a config or checkpoint; raise CheckpointError if it is damaged, even if the run has an intact one."""
    return done("tools.bench.model_info:info", request, inputs, host, torch=True)


@command(ExportRequest)
def export_model(request: ExportRequest, inputs: Any, host: Host) -> Exported:
    """Export a model to `out`; overwrite a file there, but raise UsageError for a checkpoint or file of a training."""
    return done("tools.exchange.export_model:export", request, inputs, host, torch=True)


@command(AttentionRequest)
def attention(request: AttentionRequest, inputs: Any, host: Host) -> AttentionResult:
    if request.over_training:
        return done("tools.interpret.over_training:film", request, inputs, host, shares=request.prompted)
    return done("tools.interpret.attention:attention", request, inputs, host, shares=True)


@command(HeadsRequest)
def heads(request: HeadsRequest, inputs: Any, host: Host) -> Finding:
    if request.over_training and not request.passages:
        return done("tools.interpret.over_training:head_history", request, inputs, host, shares=request.prompted)
    work = "passage_history" if request.over_training else "heads"
    return done(f"tools.interpret.heads.heads:{work}", request, inputs, host, shares=True)


@command(BenchRequest)
def bench(request: BenchRequest, inputs: Any, host: Host) -> Bench:
    if request.check_device:
        return done("tools.bench.device_check:check_device", request, inputs, host, torch=True)
    with sharing(host.notice):
        return done("tools.bench.bench:bench", request, inputs, host, torch=True)


@command(TrainRequest)
def train(request: TrainRequest, plan: Plan, host: Host) -> Training:
    """Return a generator of reports, which are objects of the classes in gpt_cli.training.events; the last is Finished.

        training = gpt_cli.train("tiny", data="my.txt", out="runs/mine", max_steps=500)
        for report in training:
            print(report)
        print(training.finish().as_dict()["validation_loss"])

    `finish()` trains to the end and returns Finished. Wrong arguments raise an error at once; the training advances
    only while the caller takes reports. The first report is Prepared, and the run's files are written after it; a run
    with nothing left to train yields only Finished. The run directory is locked until Finished. Ctrl-C raises
    KeyboardInterrupt and saves nothing; resume=True continues from the last checkpoint. dry_run=True trains nothing,
    and returns one object with `config`, `reasons` (for values that gpt chose) and `prepared`, a Prepared or None.
    """
    if request.processes not in (None, 1):
        sentence = "from Python one process trains; only the command line starts several"
        raise UsageError("‹processes›", sentence, hint=f"gpt train --processes {request.processes}")

    with host.importing():
        from gpt_cli.training.events import Training
        from gpt_cli.training.loop import train_whole
        from gpt_cli.training.setup import dry_run

    if request.dry_run:
        return dry_run(plan, host)  # pyright: ignore[reportReturnType] - its type is that of most calls
    return Training(train_whole(plan, host, progress=request.progress))
