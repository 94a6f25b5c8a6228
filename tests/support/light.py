"""`gpt` in forks of a process that has imported its command line alone, as where it decides what else it needs."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

# so that no case spends its time on them
import gpt_cli.api
import gpt_cli.cli.app
import gpt_cli.cli.commands  # noqa: F401
from gpt_cli.__main__ import run as main

WithoutTorch = Callable[..., subprocess.CompletedProcess[str]]


class LightServer:
    """A process without torch, which forks once for each command; started when first needed."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def without_torch(self, *arguments: str | Path, exits: int | None = None) -> subprocess.CompletedProcess[str]:
        """Run `gpt` as it would run here, in a process that fails where the command loads torch, or ends otherwise."""
        self.process = self.process or subprocess.Popen(
            [sys.executable, "-P", __file__],  # without this folder, whose tokenizers.py hides the library
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            # from where the server imports this package, and gpt
            env=os.environ | {"PYTHONPATH": os.pathsep.join(str(Path(__file__).parents[up]) for up in (1, 2))},
        )
        assert self.process.stdin
        assert self.process.stdout
        request = {"arguments": [*map(str, arguments)], "folder": str(Path.cwd()), "environment": dict(os.environ)}
        self.process.stdin.write(json.dumps(request) + "\n")
        answer = self.process.stdout.readline()
        assert answer, f"the server ended with {self.process.wait()} at {request['arguments']}; stderr says why"
        done = subprocess.CompletedProcess(arguments, **json.loads(answer))
        assert exits in (None, done.returncode), done.stderr
        return done

    def close(self) -> None:
        if self.process:
            self.process.communicate()


def _serve() -> None:
    """Answer each request on stdin with the exit code of a fork that runs it, and with what that printed."""
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            pid = os.fork()
            if pid == 0:
                _child(json.loads(line), out.fileno(), err.fileno())
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            out.seek(0)
            err.seek(0)
            print(json.dumps({"returncode": code, "stdout": out.read(), "stderr": err.read()}), flush=True)


def _child(request: dict[str, Any], out: int, err: int) -> None:
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for ours, standard in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (err, 2)):
        os.dup2(ours, standard)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", 1)  # noqa: SIM115
    assert "torch" not in sys.modules
    code = main(request["arguments"])
    if "torch" in sys.modules:
        print("torch was loaded", file=sys.stderr)
        code = 1
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve()
