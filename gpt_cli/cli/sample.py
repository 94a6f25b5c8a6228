"""Print the text of `gpt sample`, or run a session that continues each line that the user types."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from gpt_cli.checkpoints.select import newest_run
from gpt_cli.cli.console import Console, colourful, for_stdout
from gpt_cli.common.host import Host
from gpt_cli.common.language import say
from gpt_cli.common.machine.cpu_contention import sharing
from gpt_cli.common.mistyped import nearest
from gpt_cli.common.spelling import as_flags
from gpt_cli.config.request import read_request
from gpt_cli.config.settings_reference import allowed_values
from gpt_cli.errors import DataError, GptError, UsageError, shown, visible
from gpt_cli.sampling.request import SampleRequest, new_seed
from gpt_cli.text.conversations import Turn

if TYPE_CHECKING:
    from gpt_cli.sampling.sample import Prompt, Sampler

# the settings that a session may change, and the text that unsets each
SETTINGS = {
    "seed": "random",
    "temperature": "",
    "top_k": "off",
    "top_p": "off",
    "min_p": "off",
    "repetition_penalty": "",
    "max_new_tokens": "",
    "stop": "off",
    "without": "off",
    "checkpoint": "best",
}
NO_STOP = "/stop TEXT ends answers before that text; /stop off cancels it"
_MOST_NAMED = 100  # prompts at most for which stderr names the sample that continues them
LEAVING = ("quit", "exit", "bye", "exit()", "quit()")
WELCOME = (
    "Type the beginning of a text. Ctrl-C ends the answer, Ctrl-D or /quit exits, /help lists what you can change."
)
WELCOME_TO_CHAT = (
    "Ask the model something. Ctrl-C ends the answer, an empty line starts a new conversation, Ctrl-D or "
    "/quit exits, /help lists what you can change."
)

Answer = Callable[[str, SampleRequest], object]


def drive(request: SampleRequest, console: Console, *, json: bool, words: Sequence[str]) -> None:
    """Print continuations of the prompts (as JSON if `json`); on a terminal without a prompt, run a session instead.

    `words`, the command line, is not used.
    """
    host = console.host()
    unasked = request.prompt is None and request.prompt_file is None and request.messages is None and not json
    if unasked and sys.stdin.isatty() and sys.stdout.isatty():
        with sharing():
            turns = list[Turn]()
            converse(console, in_session(request), lambda changed: _open(changed, console, host, turns))
        return
    inputs = request.find(host)
    with sharing():
        with host.importing():
            from gpt_cli.sampling.sample import Sampler, sample  # not earlier, because this loads torch
        if json or not request.stream or len(inputs.prompts) * request.num_samples > 1:
            samples = sample(request, inputs, host)
            if json:
                console.show(samples, json=True)
            else:
                for number, prompt in enumerate(inputs.prompts[:_MOST_NAMED] if len(inputs.prompts) > 1 else []):
                    last = request.num_samples * (number + 1)
                    which = f"sample {last} continues"
                    if request.num_samples > 1:
                        which = f"samples {last - request.num_samples + 1} to {last} continue"
                    console.notice(f"{which}: {visible(prompt)}")
                console.result(for_stdout(samples.as_text()))
            return
        sampler = Sampler(request, inputs, host)
        prompts = sampler.accept_all(request, inputs)
        if sys.stdout.isatty() and sys.stderr.isatty() and not console.quiet:
            # on a terminal the continuation follows its prompt, which is no part of the result
            bold, plain = ("\033[1m", "\033[0m") if colourful(sys.stderr) else ("", "")
            end = "" if inputs.conversations is None else "\n"
            print(f"{bold}{for_stdout(inputs.prompts[0])}{plain}", end=end, file=sys.stderr, flush=True)
        _print_samples(sampler, prompts, request, inputs.seed)


def _print_samples(sampler: Sampler, prompts: Sequence[Prompt], request: SampleRequest, seed: int | None) -> str:
    """Print one continuation of a prompt while it is generated, or several at the end; return the text of the first."""
    if request.num_samples == 1 and request.stream:
        texts = sampler.draw(prompts, request, seed, show=lambda text: print(for_stdout(text), end="", flush=True))
        print(flush=True)
    else:
        texts = sampler.draw(prompts, request, seed)
        print(for_stdout("\n---\n".join(sample.text for sample in texts)), flush=True)
    return texts[0].text


def _open(request: SampleRequest, console: Console, host: Host, turns: list[Turn]) -> Answer:
    """Load a session's model; return a function that continues a line or, in a chat, answers it and updates `turns`."""
    target = request.find_model(host)
    with host.importing():
        from gpt_cli.sampling.sample import Sampler
    sampler = Sampler(request, target, host)
    console.notice(f"{sampler.loaded.path}, step {sampler.loaded.step:,}")

    if request.chat:
        sampler.tell(None)

    def answer(line: str, current: SampleRequest) -> None:
        seed, question = new_seed() if current.seed is None else current.seed, Turn("user", line)
        if not request.chat:
            _print_samples(sampler, sampler.accept([line], "prompt"), current, seed)
        elif not line:
            turns.clear()
        else:
            prompt = sampler.ask([*turns, question], current.max_new_tokens, "message")
            # after Ctrl-C, the question and its partial answer are not part of the conversation
            turns.extend([question, Turn("assistant", _print_samples(sampler, [prompt], current, seed))])

    return answer


def in_session(request: SampleRequest) -> SampleRequest:
    """Return `request` with the newest run if it names none, and with temperature 0 instead of `greedy`."""
    fields = {name: getattr(request, name) for name in request.model_fields_set - {"greedy"}}
    greedy = {"temperature": 0.0} if request.greedy else {}
    return read_request(SampleRequest, {**fields, **greedy, "run": request.run or newest_run()})


def converse(console: Console, request: SampleRequest, open_model: Callable[[SampleRequest], Answer]) -> None:
    """Run a session until the user leaves it; `open_model` loads a model, and returns a function to answer a line."""
    answer = open_model(request)
    welcome = WELCOME_TO_CHAT if request.chat else WELCOME
    console.notice(welcome)
    for line in _lines():
        word, _, more = line.strip().partition(" ")
        if not more and word.removeprefix("/") in LEAVING:
            return
        try:
            if word == "/help" and more:
                console.result("\n".join(explained(request, more.strip().removeprefix("/"))))
            elif word == "/help":
                about = say("These are the current values; type a line like these to change one, /help NAME for more:")
                values = (line for name in SETTINGS for line in sample_commands(request, name))
                console.result("\n".join([say(welcome), about, *values]))
            elif line.startswith("/"):
                changed = changed_by(request, line)
                # a training may have saved a newer checkpoint under the same name
                if _setting_name(word.removeprefix("/")) == "checkpoint" or changed.without != request.without:
                    answer = open_model(changed)  # which prints the checkpoint
                else:
                    lines = sample_commands(changed, _setting_name(word.removeprefix("/")))
                    console.notice("\n".join(line.removeprefix("/") for line in lines))
                request = changed
            else:
                if not line:
                    new = "an empty line starts a new document"
                    console.notice("an empty line starts a new conversation" if request.chat else new)
                answer(line, request)
        except GptError as error:
            console.warn(error.sentence)
            if error.hint and (isinstance(error, DataError) or "‹" in error.hint):  # other hints name command lines
                console.tell(as_flags(error.hint, {name: f"/{_typed(name)}" for name in SETTINGS}), "hint: ")
        except KeyboardInterrupt:
            console.result("")


def changed_by(request: SampleRequest, line: str) -> SampleRequest:
    """Return a request changed by a line such as `/temperature 1.2`; raise UsageError for a wrong name or value."""
    typed, _, text = line.removeprefix("/").partition(" ")
    name = _setting_name(typed, text)
    fields = {each: getattr(request, each) for each in request.model_fields_set}
    if SETTINGS[name] and text.strip() == SETTINGS[name]:
        fields.pop(name, None)
    elif name == "stop":
        if not text.strip():
            raise UsageError("/stop", NO_STOP)
        # the text counts as it is typed, as spaces are part of it
        fields["stop"] = [*dict.fromkeys((*request.stop, text.replace("\\n", "\n")))]
    elif not text.strip():
        sentence = f"write a value after /{_typed(name)}, as in {sample_commands(request, name)[0]}"
        raise UsageError("/help", f"{sentence}; /help {_typed(name)} lists the allowed values")
    else:
        fields[name] = text.strip()
    return read_request(SampleRequest, fields)


def explained(request: SampleRequest, typed: str) -> list[str]:
    """Return the lines that `/help NAME` prints: value, meaning, allowed values; raise UsageError for a wrong name."""
    name = _setting_name(typed)
    details = SampleRequest.model_json_schema()["properties"][name]
    allowed = [say(f"Allowed: {what}") for what in allowed_values(name, details) if what not in ("text", "null")]
    none = [say(f"Or: /{_typed(name)} {SETTINGS[name]}")] if SETTINGS[name] else []
    return [*sample_commands(request, name), say(as_flags(details["description"])), *allowed, *none]


def sample_commands(request: SampleRequest, name: str) -> list[str]:
    """Return the lines that a user would type to set `name` to its present value, such as `/temperature 1.2`."""
    value = getattr(request, name)
    each = value if name == "stop" else [",".join(value)] if name == "without" else [value]
    return [f"/{_typed(name)} {SETTINGS[name] if one in (None, '') else visible(one)}" for one in each or [None]]


def _typed(name: str) -> str:
    return name.replace("_", "-")


def _setting_name(typed: str, text: str = "") -> str:
    """Return the setting that `typed` names; else raise UsageError, with a hint from `text`, the rest of the line."""
    if (name := typed.replace("-", "_")) not in SETTINGS:
        near = nearest(name, SETTINGS) or next((each for each in SETTINGS if name and each.startswith(name)), None)
        words = [_typed(word) for word in re.split(r"[\s=]+", text)]
        if named := [word for word in words if word.replace("-", "_") in SETTINGS]:
            near = " ".join(words[words.index(named[0]) :])
        names = ", ".join(f"/{_typed(each)}" for each in SETTINGS)
        help_ = f"did you mean /{_typed(near)}?" if near else f"you can change {names}"
        raise UsageError("/help", f"there is no {shown('/' + _typed(typed))}; {help_}")
    return name


def _lines() -> Iterator[str]:
    """Yield the lines that the user types, with history and editing where the system has readline."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - its import gives input() a history
    while True:
        try:
            yield input("> ")
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
