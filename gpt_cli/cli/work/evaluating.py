"""What `gpt eval` does with the models: measure them, and print what was found."""

from __future__ import annotations

import sys
from dataclasses import asdict
from itertools import pairwise
from json import dumps
from math import log
from typing import Any

import numpy as np

from gpt_cli.amounts import with_error
from gpt_cli.checkpoints.discovery import Loaded, load
from gpt_cli.checkpoints.verified import ReadVerified
from gpt_cli.cli.terminal import Console, colourful
from gpt_cli.cli.work.texts import given_text, is_own_text, joined, own_text
from gpt_cli.cli.work.wanted import MeasurementWanted
from gpt_cli.errors import DataError, counted, inert, shown, visible
from gpt_cli.inspecting.heads.removing import head_names, remove_heads
from gpt_cli.machine.devices import choose_device, choose_dtype, use_threads
from gpt_cli.machine.memory import available_memory
from gpt_cli.machine.room import require_room
from gpt_cli.sampling.decoder import Decoder, row_bytes
from gpt_cli.sampling.generate import continuations
from gpt_cli.sampling.memorised import copied_share, longest_shared_run
from gpt_cli.sampling.next_token import SamplingParameters
from gpt_cli.sampling.quantise import round_weights, rounding_bytes
from gpt_cli.sampling.scoring import (
    Stretches,
    byte_lengths,
    count_windows,
    in_stretches,
    score,
    scoring_bytes,
    surprisals,
    windows_at_once,
)
from gpt_cli.sampling.streaming import TextStream
from gpt_cli.tables import table
from gpt_cli.text.corpus import Corpus
from gpt_cli.text.encoding import encode
from gpt_cli.text.reading import SourceCorpus
from gpt_cli.text.token_files import Ids, chunks
from gpt_cli.text.tokenizer import Tokenizer

NGRAM = 8  # tokens
BYTES_PER_TOKEN = 4  # of a stretch of text on which tokenizers are compared; few have more on average
# nats below which a token gets a ground of the 256 colours, from none to red
GRADES = ((1, 0), (2, 58), (4, 94), (6, 130), (float("inf"), 124))


def evaluate_and_show(wanted: MeasurementWanted, console: Console, read: ReadVerified) -> None:
    """Measure runs on a text, or each on its own, and print a table of their losses; `read` may have read ahead."""
    use_threads(wanted.threads)
    where = choose_device(wanted.device)
    results: list[dict[str, Any]] = []
    texts: list[str] = []
    paired: list[Stretches] = []
    given = dict[tuple[str, int, bool], SourceCorpus]()  # --data, as the runs read text
    if wanted.without:
        console.notice(f"heads switched off: {', '.join(head_names(wanted.without))}")
    for path, text in zip(wanted.runs, wanted.texts, strict=True):
        loaded = load(path, wanted.checkpoint, console.warn, read)
        remove_heads(loaded.model, wanted.without)
        sizes, tokenizer = loaded.config.model, loaded.tokenizer
        name = str(path or loaded.path.parent.parent)
        found = {"run": name, "checkpoint": str(loaded.path), "step": loaded.step}
        own = own_text(name, text, console) if not wanted.data or wanted.memorised else None
        same = own is None or is_own_text(name, own, loaded, console)
        if wanted.data:
            how = (text.text_field, text.max_expansion, text.skip_bad)
            if how not in given:
                given[how] = given_text(wanted.data, text, console)
            measured: Corpus = given[how]
        else:
            assert own
            measured = own.validation
            found |= {"text": own.validated_on, "same_text": same}
        texts.append(measured.digest)
        with console.counting("tokenizing", measured.num_bytes, "B") as count:
            ids = encode(measured, tokenizer, count, console.notice)
        if len(ids) < 2:
            place = "--data" if wanted.data else name
            raise DataError(place, "the text is one token long, so there is nothing to predict")
        number_type = choose_dtype(wanted.dtype, where, sizes.d_model)
        stride, batch_size = wanted.stride or sizes.context_length, None
        if where.type == "cpu":  # a GPU refuses by itself
            batch_size = _require_room(loaded, len(ids), stride, number_type, wanted)
        with console.counting("evaluating", len(ids) - 1, "tokens") as count:
            model = round_weights(loaded.model) if wanted.quantize else loaded.model
            options = {"dtype": number_type, "batch_size": batch_size, "count": count}
            parts = surprisals(model.to(where), ids, stride=stride, **options)
            windows = Stretches(sizes.context_length, ids)
            paired.append(_stretches_to_pair(wanted, ids, tokenizer))
            parts = in_stretches(parts, ids, (windows, paired[-1]))
            parts = [*parts] if wanted.per_token else parts
            found |= asdict(score(parts, ids, tokenizer, shown(loaded.path)))
            found["loss_error"] = windows.standard_error()
        if wanted.memorised:
            assert own
            with console.working("looking for copies of the training text"):
                found["memorised"] = _memorised(loaded, own.training, wanted)
        nats = np.concatenate([*parts]) if wanted.per_token else np.empty(0)
        if wanted.per_token and wanted.json:
            found["per_token"] = [
                {"token": int(i), "text": tokenizer.token_text(int(i)), "nats": float(n)}
                for i, n in zip(ids[1:], nats, strict=True)
            ]
        elif wanted.per_token:
            show = coloured_text if colourful(sys.stdout) else _as_table
            console.result(show(tokenizer, ids[:].tolist(), nats.tolist()))
        results.append(found)
        if len(results) > 1 and texts[0] == texts[-1]:
            found["difference"] = _difference(results[0], found, paired[0], paired[-1], wanted)
    if len(set(texts)) > 1:
        console.warn("these runs are measured on different texts; --data SOURCE measures all on one")
    if wanted.json:
        off = {"without": head_names(wanted.without)} if wanted.without else {}
        console.json({"data": wanted.data, **off, "runs": results})
        return
    console.result(_summary(results))
    for found in results:
        if "difference" in found:
            console.result(_about_difference(found["run"], found["difference"]))
    for found in results if wanted.memorised else []:
        console.result(_about_copies(found["run"], found["memorised"]))


def _stretches_to_pair(wanted: MeasurementWanted, ids: Ids, tokenizer: Tokenizer) -> Stretches:
    """Stretches in which all runs are compared: windows, or of different tokenizers about as much text, in bytes."""
    if wanted.one_tokenizer:
        return Stretches(wanted.longest_window, ids)
    return Stretches(BYTES_PER_TOKEN * wanted.longest_window, ids, byte_lengths(tokenizer))


def _difference(
    first: dict[str, Any], found: dict[str, Any], of_first: Stretches, of_found: Stretches, wanted: MeasurementWanted
) -> dict[str, Any]:
    """How much more a run costs than the first one on the same text, and how exactly that is known."""
    key, unit, nats = ("loss", "nats/token", 1.0) if wanted.one_tokenizer else ("bits_per_byte", "bits/byte", log(2))
    error = of_found.error_of_difference(of_first)
    return {
        "from": first["run"],
        "value": found[key] - first[key],
        "error": error and error / nats,
        "unit": unit,
    }


def _require_room(loaded: Loaded, num_ids: int, stride: int, dtype: str, wanted: MeasurementWanted) -> int:
    """How many windows at once memory can hold; before the model runs, refuses what it cannot hold at all."""
    free, model = available_memory(), loaded.model
    if wanted.quantize:
        hint = "leave out --quantize"
        require_room("eval", "the weights to be rounded", rounding_bytes(model), free, what="memory", hint=hint)
    length = min(model.config.context_length, num_ids - 1)
    halves = dtype != "bfloat16" and scoring_bytes(model, 1, length, "bfloat16") <= (free or 0)
    require_room(
        "eval",
        f"the activations of one window of {counted(length, 'token')}",
        scoring_bytes(model, 1, length, dtype),
        free,
        what="memory",
        hint="--dtype bfloat16" if halves else "use a shorter text",
    )
    if wanted.memorised:
        _require_room_for_samples(loaded, wanted, free)
    return windows_at_once(model, count_windows(model, num_ids, stride), dtype, free)


def _require_room_for_samples(loaded: Loaded, wanted: MeasurementWanted, free: int | None) -> None:
    """Refuse more samples than memory can hold, and name how many it can."""
    each = row_bytes(loaded.config.model, loaded.model.vocab_size, 1, 1 + wanted.max_new_tokens)
    weights = sum(parameter.nbytes for parameter in loaded.model.parameters())  # of the decoder, which has its own
    fitting = max(0, (free or 0) - weights) // each
    require_room(
        "eval",
        f"{counted(wanted.num_samples, 'sample')} of {counted(wanted.max_new_tokens, 'token')}",
        weights + wanted.num_samples * each,
        free,
        what="memory",
        hint=f"--num-samples {fitting}" if fitting else "--max-new-tokens 1",
    )


def _memorised(loaded: Loaded, training: Corpus, wanted: MeasurementWanted) -> dict[str, Any]:
    """What samples share with the text that the run learned from."""
    tokenizer = loaded.tokenizer
    samples = continuations(
        Decoder(loaded.model),
        [[tokenizer.end_of_text]],
        SamplingParameters(temperature=1.0),
        seed=wanted.seed,
        max_new_tokens=wanted.max_new_tokens,
        num_samples=wanted.num_samples,
        end_of_text=tokenizer.end_of_text,
        where=shown(loaded.path),
    )
    text = ("\n" * (block.starts and number > 0) + block.text for number, block in enumerate(training.blocks()))
    longest = longest_shared_run([tokenizer.decode(sample) for sample in samples], text)
    return {
        "num_samples": wanted.num_samples,
        "longest": longest,
        "longest_length": len(longest),
        "n": NGRAM,
        "copied_share": copied_share(samples, chunks(encode(training, tokenizer)), NGRAM),
    }


def _about_difference(name: str, found: dict[str, Any]) -> str:
    written = with_error(found["value"], found["error"], signed=True)
    return f"{visible(name)} - {visible(found['from'])}: {written} {found['unit']}"


def _about_copies(name: str, found: dict[str, Any]) -> str:
    share = "no sample is that long" if found["copied_share"] is None else f"{found['copied_share']:.1%}"
    return (
        f"{visible(name)}: longest run of characters shared with the training text {found['longest_length']}: "
        f"{found['longest']!r}; {NGRAM}-grams of tokens copied from it: {share}"
    )


def _summary(results: list[dict[str, Any]]) -> str:
    """A row for each run; the text is a column where each run was measured on its own."""
    own = any("text" in found for found in results)
    rows = [("run", "step", "tokens", "nats/token", "perplexity", "bits/byte", *(["text"] if own else []))]
    for found in results:
        perplexity = found["perplexity"]
        row = (
            visible(found["run"]),
            f"{found['step']:,}",
            f"{found['num_tokens']:,}",
            with_error(found["loss"], found["loss_error"]),
            "too large" if perplexity is None else f"{perplexity:.3f}",
            f"{found['bits_per_byte']:.4f}",
        )
        rows.append((*row, _text_of(found)) if own else row)
    return table(rows)


def _text_of(found: dict[str, Any]) -> str:
    source = visible(joined(found["text"]))
    return source if found["same_text"] else f"{source} (changed)"


def _as_table(tokenizer: Tokenizer, ids: list[int], nats: list[float]) -> str:
    """A line for each token, in quotes because most begin with a space."""
    texts = (dumps(tokenizer.token_text(token), ensure_ascii=False) for token in ids[1:])
    return table([("token", "nats"), *((text, f"{n:.3f}") for text, n in zip(texts, nats, strict=True))])


def coloured_text(tokenizer: Tokenizer, ids: list[int], nats: list[float]) -> str:
    """The text on grounds that show how surprising each token was, with a legend: ids [N], nats [N - 1].

    The first token is not predicted. Where a character takes several tokens, its ground shows their sum.
    """
    stream, pieces, sum_of_nats = TextStream(tokenizer), [], 0.0
    for token, surprisal in zip(ids, [0.0, *nats], strict=True):
        sum_of_nats += surprisal
        text = stream.feed(token) if token != tokenizer.end_of_text else tokenizer.token_text(token)
        if text:
            pieces.append(_on_ground(inert(text), sum_of_nats))
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
