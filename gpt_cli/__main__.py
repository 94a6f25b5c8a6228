"""Where `gpt` and `python -m gpt_cli` start. Ctrl-C ends them without a traceback from here on."""

import os
import signal
import sys
from types import FrameType


def main() -> int:
    """Run one command; returns its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # it may be ignored, as under nohup
        signal.signal(signal.SIGINT, interrupt)
    from gpt_cli.cli.app import main as run

    return run()


def interrupt(_: int, frame: FrameType | None) -> None:
    """Leave at once while a module is imported, when nothing has begun; raise KeyboardInterrupt afterwards.

    Libraries swallow a KeyboardInterrupt during their import, or make another error of it.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, b"stopped\n")
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
