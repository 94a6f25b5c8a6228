"""`gpt sample`"""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gpt_cli.cli import options
from gpt_cli.cli.prompts import read_prompt
from gpt_cli.cli.terminal import Console, colourful

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpt_cli.text.tokenizer import Tokenizer


def sample(
    prompt: options.Prompt = None,
    prompt_file: options.PromptFile = None,
    run: options.Run = None,
    checkpoint: options.Checkpoint = None,
    max_new_tokens: Annotated[
        int, typer.Option(parser=options.whole_number(1, 1_000_000), help="How many tokens to add.")
    ] = 200,
    temperature: Annotated[
        float,
        typer.Option(parser=options.number(0), help="Below 1 is more careful, above 1 more daring, 0 is --greedy."),
    ] = 0.8,
    top_k: Annotated[
        int | None,
        typer.Option(parser=options.whole_number(1), help="Choose among the N likeliest tokens only."),
    ] = None,
    num_samples: Annotated[
        int, typer.Option(parser=options.whole_number(1, 10_000), help="How many continuations.")
    ] = 1,
    seed: Annotated[
        int | None,
        typer.Option(parser=options.whole_number(0), help="Makes the draws repeatable. Default: another each time."),
    ] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always take the likeliest token.")] = False,
    stream: Annotated[
        bool, typer.Option("--stream/--no-stream", help="Show text while it comes, for one sample.")
    ] = True,
    device: options.Device = None,
    dtype: options.Dtype = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Continue a prompt. stdout gets the continuation alone; several are separated by lines of ---.

    An empty prompt starts a new document. Past the context length the model sees the last tokens.
    """
    console = Console(quiet)
    text = read_prompt(prompt, prompt_file)

    from gpt_cli.checkpoints.discovery import load
    from gpt_cli.model.device import choose_device, choose_dtype
    from gpt_cli.sampling.generate import generate
    from gpt_cli.sampling.next_token import SamplingParameters

    where = choose_device(device or "auto")
    loaded = load(run, checkpoint, console.warn)
    tokenizer, context_length = loaded.tokenizer, loaded.config.model.context_length
    ids = tokenizer.encode(text) or [tokenizer.end_of_text]
    if len(ids) > context_length:
        console.notice(f"the prompt has {len(ids)} tokens; the model sees the last {context_length}")
    if seed is None and not greedy:
        seed = secrets.randbelow(2**31)
        console.notice(f"{loaded.path}, step {loaded.step}, --seed {seed}")
    tokens = generate(
        loaded.model.to(where), ids[-context_length:], SamplingParameters(0.0 if greedy else temperature, top_k),
        max_new_tokens=max_new_tokens, num_samples=num_samples, seed=seed or 0, end_of_text=tokenizer.end_of_text,
        dtype=choose_dtype(dtype or "float32", where, loaded.config.model.d_model),
    )  # fmt: skip
    if num_samples == 1 and stream and not json:
        _echo_prompt(text, quiet)
        _stream(tokens, tokenizer)
        return
    with console.counting("sampling", max_new_tokens, "tokens") as count:
        samples: list[list[int]] = [[] for _ in range(num_samples)]
        for step in tokens:
            count(1)
            for found, token in zip(samples, step, strict=True):
                if token is not None:
                    found.append(token)
    if json:
        texts = [{"text": tokenizer.decode(found), "tokens": found} for found in samples]
        console.json(
            {
                "checkpoint": str(loaded.path),
                "step": loaded.step,
                "prompt": text,
                "seed": seed,
                "samples": texts,
            }
        )
    else:
        console.result("\n---\n".join(_for_stdout(tokenizer.decode(found)) for found in samples))


def _echo_prompt(text: str, quiet: bool) -> None:
    """On a terminal the continuation reads on from its prompt, which goes to stderr."""
    if sys.stdout.isatty() and sys.stderr.isatty() and not quiet:
        bold, plain = ("\033[1m", "\033[0m") if colourful(sys.stderr) else ("", "")
        print(f"{bold}{_for_stdout(text)}{plain}", end="", file=sys.stderr, flush=True)


def _stream(tokens: Iterator[list[int | None]], tokenizer: Tokenizer) -> None:
    from gpt_cli.sampling.streaming import TextStream

    stream = TextStream(tokenizer)
    for (token,) in tokens:
        if token is not None:
            print(_for_stdout(stream.feed(token)), end="", flush=True)
    print(_for_stdout(stream.finish()), flush=True)


def _for_stdout(text: str) -> str:
    """Text as it is for a file or a pipe, with control characters escaped for a terminal."""
    from gpt_cli.sampling.streaming import printable

    return printable(text) if sys.stdout.isatty() else text
