"""Stands in for wandb: it writes what it is given to its folder, and misbehaves where the environment asks for that."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any


def _note(**content: Any) -> None:
    with (Path(os.environ["WANDB_DIR"]) / "given.jsonl").open("a") as file:
        file.write(json.dumps(content) + "\n")


def _misbehave(where: str) -> None:
    print("chatter of a package")
    how = os.environ.get(f"FAKE_{where}")
    if how == "raise":
        raise RuntimeError("no more quota\nand a second line")
    if how == "hang":
        time.sleep(3600)
    if how in ("SIGTERM", "SIGUSR1", "SIGKILL"):
        os.kill(os.getpid(), signal.Signals[how])
    if how == "exit":
        raise SystemExit(3)


def Settings(**_: Any) -> None: ...


def Html(text: str) -> str:
    return text


class _Run:
    def log(self, figures: dict[str, Any], step: int) -> None:
        _misbehave("LOG")
        _note(step=step, **figures)

    def finish(self) -> None:
        _misbehave("FINISH")
        _note(finished=True)


def init(**asked: Any) -> _Run:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _misbehave("INIT")
    _note(mode=os.environ["WANDB_MODE"], **asked)
    return _Run()


def teardown() -> None: ...


_misbehave("IMPORT")
