"""`gpt eval`"""

from __future__ import annotations

import sys
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpt_cli.cli import options
from gpt_cli.cli.terminal import Console, colourful, table
from gpt_cli.errors import DataError, UsageError

if TYPE_CHECKING:
    from gpt_cli.checkpoints.discovery import Loaded
    from gpt_cli.text.corpus import Corpus
    from gpt_cli.text.tokenizer import Tokenizer

NGRAM = 8  # tokens
# nats from which a token is shown on the next ground of the 256 colours, from none to red
GRADES = ((1, 0), (2, 58), (4, 94), (6, 130), (float("inf"), 124))


def evaluate(
    data: Annotated[
        list[str] | None,
        typer.Option("--data", metavar="SOURCE", help="The text. Repeatable. Default: the run's validation text."),
    ] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(
            "--run", metavar="PATH", help="A run directory or checkpoint. Repeatable. Default: the newest run."
        ),
    ] = None,
    checkpoint: options.Checkpoint = None,
    stride: Annotated[
        int | None,
        typer.Option(
            parser=options.whole_number(1),
            help="Tokens by which the window advances; fewer are slower and give more context. Default: the window.",
        ),
    ] = None,
    per_token: Annotated[bool, typer.Option("--per-token", help="Show the surprisal of each token.")] = False,
    memorised: Annotated[
        bool, typer.Option("--memorised", help="Sample, and tell how much of it stands in the training text.")
    ] = False,
    num_samples: Annotated[int, typer.Option(parser=options.whole_number(1, 10_000), help="For --memorised.")] = 10,
    max_new_tokens: Annotated[
        int, typer.Option(parser=options.whole_number(1, 1_000_000), help="For --memorised.")
    ] = 200,
    seed: Annotated[int, typer.Option(parser=options.whole_number(0), help="For --memorised.")] = 0,
    device: options.Device = None,
    dtype: options.Dtype = None,
    quantize: options.Quantize = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Measure how well trained models predict a text: nats per token, perplexity, bits per byte."""
    console = Console(quiet)
    runs: list[Path | None] = [*run] if run else [None]
    if per_token and len(runs) > 1:
        raise UsageError("--per-token", f"is asked for {len(runs)} runs", "name one with --run")

    from gpt_cli.checkpoints.discovery import load
    from gpt_cli.machine import choose_device, choose_dtype, reuse_memory
    from gpt_cli.sampling.quantise import round_weights
    from gpt_cli.sampling.scoring import score, surprisals
    from gpt_cli.text.corpus import read_corpus
    from gpt_cli.text.tokens import encode_documents

    reuse_memory()
    where = choose_device(device or "auto")
    text = read_corpus(data) if data else None
    results: list[dict[str, Any]] = []
    for path in runs:
        loaded = load(path, checkpoint, console.warn)
        sizes, tokenizer = loaded.config.model, loaded.tokenizer
        advance = stride or sizes.context_length
        if advance > sizes.context_length:
            wrong = f"{advance} is more than the context length of {loaded.path}"
            raise UsageError("--stride", wrong, f"use 1 to {sizes.context_length}")
        ids = encode_documents((text or _validation_text(loaded)).documents, tokenizer)
        if len(ids) < 2:
            raise DataError("--data", "is one token long", "nothing can be predicted")
        number_type = choose_dtype(dtype or "float32", where, sizes.d_model)
        with console.counting("evaluating", len(ids) - 1, "tokens") as count:
            model = round_weights(loaded.model) if quantize else loaded.model
            nats = surprisals(model.to(where), ids, stride=advance, dtype=number_type, count=count)
        found = {"run": str(path or loaded.path.parent.parent), "checkpoint": str(loaded.path), "step": loaded.step}
        found |= asdict(score(nats, ids, tokenizer))
        if memorised:
            found["memorised"] = _memorised(loaded, num_samples, max_new_tokens, seed)
        if per_token and json:
            found["per_token"] = [
                {"token": int(i), "text": tokenizer.token_text(int(i)), "nats": float(n)}
                for i, n in zip(ids[1:], nats, strict=True)
            ]
        elif per_token:
            console.result(
                (coloured_text if colourful(sys.stdout) else _as_table)(tokenizer, ids.tolist(), nats.tolist())
            )
        results.append(found)
    if json:
        console.json({"data": data, "runs": results})
        return
    console.result(_summary(results))
    for found in results if memorised else []:
        share = found["memorised"]["copied_share"]
        told = "no sample is that long" if share is None else f"{share:.1%}"
        console.result(
            f"{found['run']}: longest run of characters shared with the training text "
            f"{found['memorised']['longest_length']}: {found['memorised']['longest']!r}; "
            f"{NGRAM}-grams of tokens that stand there: {told}"
        )


def _validation_text(loaded: Loaded) -> Corpus:
    from gpt_cli.text.corpus import read_split

    return read_split(loaded.config.data)[1]


def _memorised(loaded: Loaded, num_samples: int, max_new_tokens: int, seed: int) -> dict[str, Any]:
    """What samples share with the text that the run learned from."""
    from gpt_cli.sampling.decoder import Decoder
    from gpt_cli.sampling.generate import continuations
    from gpt_cli.sampling.memorised import copied_share, longest_shared_run
    from gpt_cli.sampling.next_token import SamplingParameters
    from gpt_cli.text.corpus import read_split
    from gpt_cli.text.tokens import encode_documents

    training, _ = read_split(loaded.config.data)
    tokenizer = loaded.tokenizer
    samples = continuations(
        Decoder(loaded.model), [[tokenizer.end_of_text]], SamplingParameters(temperature=1.0), seed=seed,
        max_new_tokens=max_new_tokens, num_samples=num_samples, end_of_text=tokenizer.end_of_text,
    )  # fmt: skip
    text = "\n".join(training.documents)
    longest = max((longest_shared_run(tokenizer.decode(sample), text) for sample in samples), key=len)
    share = copied_share(samples, encode_documents(training.documents, tokenizer), NGRAM)
    found = {"num_samples": num_samples, "longest": longest, "longest_length": len(longest)}
    return {**found, "n": NGRAM, "copied_share": share}


def _summary(results: list[dict[str, Any]]) -> str:
    head = ("run", "step", "tokens", "nats/token", "perplexity", "bits/byte")
    rows = (
        (
            found["run"], f"{found['step']:,}", f"{found['num_tokens']:,}", f"{found['loss']:.4f}",
            "too large" if found["perplexity"] is None else f"{found['perplexity']:.3f}",
            f"{found['bits_per_byte']:.4f}",
        )
        for found in results
    )  # fmt: skip
    return table([head, *rows])


def _as_table(tokenizer: Tokenizer, ids: list[int], nats: list[float]) -> str:
    """A line for each token, in quotes since most begin with a space."""
    from json import dumps

    texts = (dumps(tokenizer.token_text(token), ensure_ascii=False) for token in ids[1:])
    return table([("token", "nats"), *((text, f"{n:.3f}") for text, n in zip(texts, nats, strict=True))])


def coloured_text(tokenizer: Tokenizer, ids: list[int], nats: list[float]) -> str:
    """The text itself on grounds that tell how surprising each token was: ids [N], nats [N - 1], and a legend below.

    The first token is not predicted. Where a character takes several tokens, its ground tells their sum.
    """
    from gpt_cli.sampling.streaming import TextStream, printable

    stream, pieces, sum_of_nats = TextStream(tokenizer), [], 0.0
    for token, surprisal in zip(ids, [0.0, *nats], strict=True):
        sum_of_nats += surprisal
        text = stream.feed(token) if token != tokenizer.end_of_text else tokenizer.token_text(token)
        if text:
            pieces.append(_on_ground(printable(text), sum_of_nats))
            sum_of_nats = 0.0
    pieces.append(_on_ground(stream.finish(), sum_of_nats))
    limits = [0, *(limit for limit, _ in GRADES)]
    names = [f"{low} to {high}" if high < float("inf") else f"{low} and more" for low, high in pairwise(limits)]
    legend = " ".join(_on_ground(f" {name} ", low) for name, low in zip(names, limits, strict=False))
    return f"{''.join(pieces)}\n\nnats per token: {legend}"


def _on_ground(text: str, nats: float) -> str:
    ground = next(colour for limit, colour in GRADES if nats < limit)
    # a ground ends before a line does, or some terminals fill the next one with it
    lines = [f"\033[48;5;{ground}m{line}\033[0m" if ground and line else line for line in text.split("\n")]
    return "\n".join(lines)
