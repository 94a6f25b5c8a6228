"""The entry point of `gpt` and `python -m gpt_cli`; once it runs, Ctrl-C ends the process without a traceback."""

from __future__ import annotations

# only modules that Python itself has loaded, because nothing catches Ctrl-C before `main`
import _signal as signal  # pyright: ignore[reportMissingImports]
import os
import sys

TYPE_CHECKING = False  # as in typing, which takes a while to import
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

EXIT_CODE_NO_MEMORY = 5
EXIT_CODE_STOPPED = 130  # by INT


def main() -> int:
    """Run the command line in sys.argv; return exit code 0, or end the process directly with another exit code."""
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # it may be ignored, as under nohup
            # of many processes, only the one that has started the others reports the stop
            signal.signal(signal.SIGINT, signal.SIG_DFL if "GPT_MEETING" in os.environ else interrupt)
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # just before the command, or just after it
        code = _stopped()
    if code > 128:  # the sender of the signal may repeat it while Python exits
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU):
            signal.signal(number, signal.SIG_IGN)
    if code:
        _leave(code)
    return code


def _stopped() -> int:
    from gpt_cli.common.language import say

    _hurry()
    print(say("stopped"), file=sys.stderr)
    return EXIT_CODE_STOPPED


def _hurry() -> None:
    """Let each write to stderr wait at most one second for a slow reader, if a `console.Patient` wraps stderr."""
    getattr(sys.stderr, "hurry", lambda: None)()


def _leave(code: int) -> None:
    """Flush stdout and stderr, and end the process with exit code `code`, without Python's own cleanup.

    The cleanup would lose the exit code: after a KeyboardInterrupt inside eval(), Python would end the process by a
    signal; while other processes wait for this process, torch.distributed would abort it by SIGABRT.
    """
    import contextlib

    if code > 128:
        _end_soon(code)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # its reader is gone, or it is closed
            stream.flush()
    os._exit(code)


def _end_soon(code: int) -> None:
    """Set an alarm that ends the process with exit code `code` in one second, even if a slow reader blocks output."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(code))
    signal.alarm(1)


def run(words: Sequence[str]) -> int:
    """Run the command line `words`; return its exit code, also after Ctrl-C or when an import runs out of memory."""
    try:
        from gpt_cli.cli.app import main as run_command

        return run_command(words)
    except KeyboardInterrupt:
        return _stopped()
    except MemoryError:  # while our own modules were imported
        sentence = "error: memory: gpt ran out of memory"
        try:
            from gpt_cli.common.language import say

            sentence = say(sentence)
        except MemoryError:  # the Chinese sentence needs more
            pass
        print(sentence, file=sys.stderr)
        return EXIT_CODE_NO_MEMORY


def interrupt(_: int, frame: FrameType | None) -> None:
    """Handle SIGINT: end the process at once if a module is being imported, otherwise raise KeyboardInterrupt.

    Libraries swallow a KeyboardInterrupt during their import, or turn it into another error.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            # the catalogue cannot be read in the middle of an import
            _end_soon(EXIT_CODE_STOPPED)
            language = getattr(sys.modules.get("gpt_cli.common.language"), "language", lambda: "en")
            said = "已停止\n" if language() == "zh" else "stopped\n"
            os.write(2, said.encode(sys.stderr.encoding, "backslashreplace"))
            os._exit(EXIT_CODE_STOPPED)
        frame = frame.f_back
    _hurry()
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
