"""What many tests share: an own cache, an empty folder, a small trained run, a table of how many cases held."""

import contextlib
import gc
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

# before torch: no test takes an NVIDIA or AMD GPU, and no thread of several spins while it waits
os.environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_WAIT_POLICY": "passive", "TRITON_INTERPRET": "1"}

import hypothesis
import pytest
import torch
from support.accelerator import Accelerator, missing
from support.accelerator.twin import DEVICES, FIXTURE, Twin
from support.faults import SCALE
from support.forks import Servers
from support.helpers import TRAINING_HERE, RunCommand, run_command
from support.light import LightServer, WithoutTorch
from support.messages import HEARD
from support.users import hand_over
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from gpt_cli.cli import train_worker
from gpt_cli.cli.train_worker import leave_picture
from gpt_cli.common.machine.cpu_contention import sharing

Tally = Callable[[str, int], None]
# fixtures of browsers, of processes that fork, and of a shell for all commands of the pages
_SLOW = frozenset({"browser", "run_script", "opened", "servers", "theirs", "shell"})
# folders whose tests kill, serve, render or start many processes; elsewhere a file has the mark slow
_SLOW_FOLDERS = frozenset({"reliability", "loggers", "pages", "docs", "distributed", "benchmarks"})
# the files that take longest begin, so that no process is left with one at the end
_LONGEST = (
    "docs/test_commands.py",
    "distributed/test_equal.py",
    "reliability/test_kills.py",
    "reliability/test_strangers_audited.py",
    "devices/test_training.py",
    "cli/test_train.py",
    "training/test_cuda_graphs.py",
    "tools/pages/model/test_writing.py",
    "cli/test_signals.py",
    "reliability/test_strangers_memory.py",
    "training/test_init_from.py",
    "tools/exchange/test_families.py",
    "cli/test_sweep.py",
)
# files whose fixtures take seconds to make: a browser, transformers, a process that forks, the parsed source. One
# process runs all of a group, so that each of these is made once
_GROUPS = {
    "tools/pages": ("tools/pages/",),
    "tools/exchange": ("tools/exchange/",),
    "source": ("test_layers.py", "common/language/test_every_message.py"),
    "servers": (
        *("reliability/test_kills.py", "reliability/test_power_cut.py", "reliability/test_refusals.py"),
        *("reliability/test_company.py", "reliability/test_signals.py", "reliability/test_stops.py"),
        *("reliability/test_strangers_permissions.py", "distributed/test_equal.py", "devices/test_training.py"),
    ),
}
_COUNTS = pytest.StashKey[dict[str, int]]()
_TWIN = pytest.StashKey[Twin]()

# a process for each core and more computes already; a second thread would spin beside it (note 0002)
torch.set_num_threads(1)
# a slow machine is no failure
hypothesis.settings.register_profile("patient", deadline=None, max_examples=100 if SCALE >= 1 else 40)
hypothesis.settings.load_profile("patient")


def pytest_configure() -> None:
    """Commands that tests start hear signals also where the tests themselves do not: `nohup make test &`."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU):
        if signal.getsignal(number) == signal.SIG_IGN:
            # which this process goes on to do; what it executes inherits the default, instead of being deaf too
            signal.signal(number, lambda *_: None)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """As trainings have on most machines; tests have one."""
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _own_surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests depend neither on the caches of the user who runs them nor on what else the machine does.

    The processes that run tests share the compiled C code alone, which takes seconds to make. Trainings in this process
    draw no picture of their losses, which takes longer than they do; see `drawing`.
    """
    cache, own = tmp_path_factory.mktemp("cache"), tmp_path_factory.getbasetemp()
    compiled = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "compiled"
    compiled.mkdir(exist_ok=True)
    (cache / "gpt-cli").mkdir()
    (cache / "gpt-cli/compiled").symlink_to(compiled)
    with sharing(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_worker, "leave_picture", lambda *_: None)
        patch.setattr(os, "fsync", lambda _: None)  # no test cuts the power, and each would take some 7 ms
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.delenv("NO_COLOR", raising=False)
        patch.setenv("GPT_LANGUAGE", "en")  # whatever the locale is
        patch.setattr(subprocess.Popen, "__exit__", _leave)
        yield


def _leave(process: subprocess.Popen[Any], kind: object, *rest: Any, wait: Any = subprocess.Popen.__exit__) -> None:
    """End a process that a failed test has begun, instead of waiting for it."""
    if kind is not None:
        process.kill()
    wait(process, kind, *rest)


@pytest.fixture(name="run")
def _run() -> RunCommand:
    return run_command


@pytest.fixture
def sweeping_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps train in this process."""
    monkeypatch.setattr("gpt_cli.tools.sweeps.processes.subprocess", TRAINING_HERE)


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings leave their picture, as they do for users."""
    monkeypatch.setattr(train_worker, "leave_picture", leave_picture)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the smoke config trained in runs/smoke."""
    folder = tmp_path_factory.mktemp("trained")
    with contextlib.chdir(folder):
        run_command("train", "--config", "smoke", "--quiet", exits=0)
    return folder


@pytest.fixture
def smoke_run(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The trained smoke run, to be read; the working folder is the one that holds runs/."""
    monkeypatch.chdir(trained)
    return Path("runs/smoke")


@pytest.fixture
def copied(smoke_run: Path, here: Path, trained: Path) -> Path:
    """A copy of the trained run that may be damaged, in runs/ of the working folder."""
    shutil.copytree(trained / "runs", here / "runs")
    return Path("runs/smoke")


@pytest.fixture
def accelerator(request: pytest.FixtureRequest) -> Iterator[Accelerator]:
    """Two simulated devices, sim:0 and sim:1, which torch knows within the test; it runs in another process."""
    if why := missing():
        pytest.skip(why)
    with request.config.stash[DEVICES].lent() as lent:
        yield lent


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    items = getattr(session, "items", [])
    if not missing() and any(FIXTURE in getattr(item, "fixturenames", ()) for item in items):
        session.config.stash[_TWIN] = Twin(session, _COUNTS)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if FIXTURE not in getattr(item, "fixturenames", ()) or _TWIN not in item.config.stash:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    item.config.stash[_TWIN].run(item)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    item.session._setupstate.teardown_exact(nextitem)
    return True


@pytest.fixture
def theirs() -> Iterator[Path]:
    """An empty folder that the other user of permission tests can reach, as those of pytest are closed to others."""
    folder = Path(tempfile.mkdtemp()).resolve()
    hand_over(folder)
    yield folder
    for above, names, _ in os.walk(folder):  # what is closed is opened before the walk enters it
        for name in names:
            os.chmod(os.path.join(above, name), 0o700)
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Processes that fork one that runs `gpt`, for each case."""
    servers = Servers()
    yield servers
    servers.close()


@pytest.fixture(scope="session")
def without_torch() -> Iterator[WithoutTorch]:
    """Runs `gpt` in a process that fails where the command loads torch."""
    server = LightServer()
    yield server.without_torch
    server.close()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare Python's collector what is imported and collected: it would look through all of it again and again."""
    gc.disable()
    collected = yield
    gc.enable()
    gc.collect()
    gc.freeze()
    return collected


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help="leave out tests with a browser, with forks, of pages, and those marked slow",
    )


def _is_slow(item: pytest.Item) -> bool:
    folders = item.path.relative_to(Path(__file__).parent).parts
    by_name = not _SLOW_FOLDERS.isdisjoint(folders) or _SLOW & {*getattr(item, "fixturenames", ())}
    return bool(by_name) or item.get_closest_marker("slow") is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the tests that cannot be shortened at full scale only, and with --quick those that take a moment."""
    if config.getoption("--quick"):
        slow = [item for item in items if _is_slow(item)]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
    rank = {path: place for place, path in enumerate(_LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.relative_to(Path(__file__).parent).as_posix(), len(rank)))
    if SCALE < 1:
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


class _ByGroup(LoadFileScheduling):
    """Gives a process whole files, as --dist loadfile does, and whole groups of them."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        name = file.removeprefix("tests/")
        groups = _GROUPS if SCALE < 1 else {}  # every case of one group would take a process half an hour longer
        return next((group for group, starts in groups.items() if name.startswith(starts)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _ByGroup | None:
    return _ByGroup(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """Call it at the end of a test, with what held and the number of cases to add."""

    def count(what: str, cases: int) -> None:
        counts = request.config.stash.setdefault(_COUNTS, {})
        counts[what] = counts.get(what, 0) + cases

    return count


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of many that run tests hands what it counted and heard to the one that reports."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["counts"] = session.config.stash.get(_COUNTS, {})
        output["unsaid"] = sorted(HEARD)
    elif HEARD:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    HEARD.update(getattr(node, "workeroutput", {}).get("unsaid", []))
    counts = node.config.stash.setdefault(_COUNTS, {})
    for what, cases in getattr(node, "workeroutput", {}).get("counts", {}).items():
        counts[what] = counts.get(what, 0) + cases


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if HEARD:
        terminalreporter.section("commands said what the Chinese catalogue lacks; fill these lines in")
        for text in sorted(HEARD):
            terminalreporter.write_line(f'{json.dumps(text, ensure_ascii=False)} = ""')
    if counts := config.stash.get(_COUNTS, {}):
        terminalreporter.write_line(f"cases tried, all of which held (GPT_TEST_SCALE={SCALE:g}):")
        for what, cases in counts.items():
            terminalreporter.write_line(f"  {cases:>7,}  {what}")
