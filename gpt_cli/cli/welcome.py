"""Suggest first commands, for `gpt` without arguments."""

from __future__ import annotations

import contextlib
import shlex

from gpt_cli.checkpoints.select import find_header, newest_run
from gpt_cli.checkpoints.training_text import readable_prompt
from gpt_cli.common.language import say
from gpt_cli.errors import GptError, visible


def welcome() -> str:
    """Return the first commands to type, each below a line that a shell ignores; some use a run, if there is one."""
    run, prompt = None, "The value of"
    with contextlib.suppress(GptError):
        run = newest_run()
        prompt = readable_prompt(find_header(run))
    of_run = "" if run is None else f" --run {shlex.quote(str(run))}"
    words = f"--prompt {shlex.quote(visible(prompt))}"
    train = [
        ("train a model on a text of your own, in at most five minutes", "gpt train --data my.txt"),
        ("train a small one on the documentation of Python, in a minute", "gpt train --config tiny"),
    ]
    use = [
        ("let the model continue a text", f"gpt sample{of_run} {words}"),
        ("see which tokens it looks at", f"gpt attn-dump{of_run} {words} --out attention.html"),
    ]
    begin = "What to type first:" if run is None else f"Your newest run is {visible(run)}. What to type next:"
    commands = "\n".join(
        f"  # {say(does)}\n  {say(command)}" for does, command in (train + use if run is None else use + train)
    )
    purpose = "Train a small GPT on your own text, sample from it, and see its attention."
    rest = "gpt --help lists all commands; gpt help train lists the flags of one."
    return f"{say(purpose)}\n\n{say(begin)}\n{commands}\n\n{say(rest)}"
