"""`gpt eval`: measure models on texts and conversations, and report the losses."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from math import log
from typing import Any, NamedTuple

import numpy as np
import torch

from gpt_cli.checkpoints.load import Loaded, load_for
from gpt_cli.common.host import Host
from gpt_cli.common.machine.devices import choose_device, choose_dtype
from gpt_cli.common.machine.memory import available_memory, require_available
from gpt_cli.common.results import WIDTH, Result
from gpt_cli.common.tables import Rows, table
from gpt_cli.common.units import percentage, with_error
from gpt_cli.errors import DataError, UsageError, blaming, counted, visible
from gpt_cli.evaluation.answers import about_answers, measure_answers
from gpt_cli.evaluation.memorization import copied_share, longest_shared_run
from gpt_cli.evaluation.nll import (
    Observations,
    Stretches,
    byte_lengths_on,
    count_windows,
    in_stretches,
    score,
    scoring_bytes,
    surprisals,
    windows_at_once,
)
from gpt_cli.evaluation.texts import (
    BYTES_PER_TOKEN,
    beginning,
    is_run_text,
    read_named_text,
    read_run_text,
    remark_on_shares,
    training_share,
)
from gpt_cli.evaluation.token_losses import Surprisals
from gpt_cli.sampling.decoder import Decoder, row_bytes
from gpt_cli.sampling.fast.int8 import round_weights, rounding_bytes
from gpt_cli.sampling.generate import continuations
from gpt_cli.sampling.head_ablation import head_names, remove_heads
from gpt_cli.sampling.next_token import SamplingParameters
from gpt_cli.sampling.request import LEAVE_OUT_MEMORISED, EvaluateRequest, ToEvaluate
from gpt_cli.text.corpus import Corpus
from gpt_cli.text.encode import encode
from gpt_cli.text.load import SourceCorpus
from gpt_cli.text.sft_examples import ConversationCorpus
from gpt_cli.text.sources import source_names
from gpt_cli.text.token_files import Ids, chunks, validation_windows

NGRAM = 8  # tokens


@dataclass(frozen=True)
class Evaluation(Result):
    """The result of `gpt eval`: losses of `runs` on the text `data` or, if None, on each run's validation text."""

    data: list[str] | None
    without: list[str]  # heads that were switched off
    runs: list[dict[str, Any]]
    per_token: Surprisals | None = None  # the token losses of a single run, if requested

    def as_dict(self) -> dict[str, Any]:
        off = {"without": self.without} if self.without else {}
        each = {"per_token": self.per_token.as_list()} if self.per_token else {}
        return {"data": self.data, **off, "runs": [{**result, **each} for result in self.runs]}

    def as_text(self, width: int = WIDTH) -> str:
        """Return the table of runs; with `per_token`, a table with a line for each token comes before it."""
        return "\n".join([*([self.per_token.as_table()] if self.per_token else []), super().as_text(width)])

    def as_coloured_text(self, width: int = WIDTH) -> str:
        """Return the table of runs; with `per_token`, the text, on colours that show surprisals, comes before it."""
        return "\n".join([*([self.per_token.as_coloured_text()] if self.per_token else []), super().as_text(width)])

    def as_page(self) -> str | None:
        """Return an HTML page of the text, its background showing each token's surprisal; None without `per_token`."""
        return self.per_token.as_page(table(_summary(self.runs))) if self.per_token else None

    def key_figures(self) -> dict[str, Any]:
        """Return what `repr` shows: a list of the names of the runs, and a list of their losses."""
        return {name: [result[key] for result in self.runs] for name, key in (("runs", "run"), ("losses", "loss"))}

    def parts(self) -> list[Rows | str]:
        """Return a table of runs, then lines on answers to questions, differences of losses, copied training text."""
        differences = [_about_difference(one["run"], one["difference"]) for one in self.runs if "difference" in one]
        copies = [_about_copies(one["run"], one["memorised"]) for one in self.runs if "memorised" in one]
        answers = [about_answers(one["run"], one["answers"]) for one in self.runs if "answers" in one]
        return [_summary(self.runs), *answers, *differences, *copies]


class _Measured(NamedTuple):
    """A run's measurements on a text; `costs` has the nats of each piece or answer (None: an example was too long)."""

    figures: dict[str, Any]
    costs: Observations | None
    per_token: Surprisals | None = None


@dataclass(frozen=True)
class _Measure:
    """Settings that all measurements of an evaluation share."""

    request: EvaluateRequest
    target: ToEvaluate
    host: Host
    device: torch.device

    def answers(self, loaded: Loaded, corpus: ConversationCorpus) -> _Measured:
        """Measure a model on the answers of conversations; raise UsageError for options that need plain text."""
        request, device = self.request, self.device
        for name in ("per_token", "memorised", "stride", "max_tokens"):
            if getattr(request, name):
                raise UsageError(f"‹{name}›", "it needs text other than questions and answers; leave it out")
        dtype = choose_dtype(request.dtype, device, loaded.config.model.d_model, self.host.notice)
        loaded = replace(loaded, model=round_weights(loaded.model)) if request.quantize else loaded
        by_bytes = not self.target.one_tokenizer
        return _Measured(*measure_answers(loaded, corpus, dtype, self.host, by_bytes=by_bytes, device=device))

    def text(self, loaded: Loaded, corpus: Corpus, name: str, source: str | list[str]) -> _Measured:
        """Measure a model on a text; `name` and `source` name the model and the text in errors."""
        request, target, host, device = self.request, self.target, self.host, self.device
        sizes, tokenizer = loaded.config.model, loaded.tokenizer
        if request.max_tokens and not target.one_tokenizer:
            corpus = beginning(corpus, request.max_tokens)
        # names the text, and the model whose vocabulary lacks a character
        of_several = f"{visible(name)}: {visible(', '.join(source_names(source)))}"
        with host.counting("tokenizing", corpus.num_bytes, "B") as count, blaming(of_several, instead_of="text"):
            ids = encode(corpus, tokenizer, count, host.notice)
        if len(ids) < 2:
            where = "‹data›" if request.data else name
            raise DataError(where, "the text is one token long, so there is nothing to predict")
        dtype = choose_dtype(request.dtype, device, sizes.d_model, host.notice)
        lengths = byte_lengths_on(corpus, ids, tokenizer)
        parts, ids = _spaced(ids, target, request)
        length = sizes.evaluation_window
        stride, batch_size = request.stride or length, None
        if length < min(sizes.context_length, len(ids) - 1):
            windows_of = f"the text is read in windows of {counted(length, 'token')}"
            host.notice(f"{windows_of}, since the attention of all {sizes.context_length:,} would take too much memory")
        if device.type == "cpu":  # a GPU refuses by itself
            batch_size = _require_room(loaded, len(parts[0]), stride, dtype, request)
        with host.counting("evaluating", len(ids) - 1, "tokens") as count:
            model = (round_weights(loaded.model) if request.quantize else loaded.model).to(device)
            options = {"dtype": dtype, "batch_size": batch_size, "count": count}
            nats = chain.from_iterable(surprisals(model, part, stride=stride, **options) for part in parts)
            windows = Stretches(min(length, len(parts[0]) - 1), ids)
            if target.one_tokenizer:  # runs are compared in windows, else in about as much text, in bytes
                paired = Stretches(target.longest_window, ids)
            else:
                paired = Stretches(BYTES_PER_TOKEN * target.longest_window, ids, lengths)
            nats = in_stretches(nats, ids, (windows, paired))
            nats = [*nats] if request.per_token else nats
            figures = asdict(score(nats, ids, lengths, model.where)) | {"loss_error": windows.standard_error()}
        each = Surprisals(tokenizer, ids[:].tolist(), np.concatenate([*nats]).tolist()) if request.per_token else None
        return _Measured(figures, paired, each)


def evaluate(request: EvaluateRequest, target: ToEvaluate, host: Host) -> Evaluation:
    """Measure runs on --data or on their own text; raise UsageError, CheckpointError, DataError, EnvironmentFailure."""
    measure = _Measure(request, target, host, choose_device(request.device or "auto"))
    results: list[dict[str, Any]] = []
    measured: list[_Measured] = []
    texts: list[str] = []  # a digest of the text of each run
    corpora = dict[tuple[str, bool], SourceCorpus]()  # --data, as the runs read text
    if target.without:
        host.notice(f"heads switched off: {', '.join(head_names(target.without))}")
    for path, text, header in zip(request.run or [None], target.texts, target.headers, strict=True):
        loaded = load_for(host, path, request.checkpoint, header)
        remove_heads(loaded.model, target.without)
        name = str(path or loaded.header.run.path)
        result = {"run": name, "checkpoint": str(loaded.path), "step": loaded.step}
        of_run = request.memorised or not request.data
        advice = LEAVE_OUT_MEMORISED if request.memorised else None
        run_text = read_run_text(name, text, host, advice) if of_run else None
        same = run_text is None or is_run_text(name, text, run_text, loaded, host)
        if request.data:
            how = (text.text_field, text.skip_bad)
            if how not in corpora:
                corpora[how] = read_named_text(request.data, text, host)
            corpus: Corpus = corpora[how].with_template(None)
            result["training_share"] = training_share(name, corpora[how], loaded, host)
        else:
            assert run_text
            _, corpus = run_text
            result |= {"text": text.validation_source or text.source, "same_text": same}
        if isinstance(corpus, ConversationCorpus):
            texts.append(corpus.of_conversations)
            measured.append(measure.answers(loaded, corpus))
        else:
            texts.append(corpus.digest)
            measured.append(measure.text(loaded, corpus, name, list(request.data) or result["text"]))
        results.append(result | measured[-1].figures)
        if request.memorised:
            assert run_text
            training, _ = run_text
            with host.working("looking for copies of the training text"):
                results[-1]["memorised"] = _memorised(loaded, training, request)
        first, last = measured[0].costs, measured[-1].costs
        if len(results) > 1 and texts[0] == texts[-1] and first and last:
            results[-1]["difference"] = _difference(results[0], results[-1], first, last, target.one_tokenizer)
    remark_on_shares(((one["run"], one.get("training_share", 0.0)) for one in results), host)
    if len(set(texts)) > 1:
        host.warn("these runs are measured on different texts; ‹data=SOURCE› measures all on the same text")
    return Evaluation(list(request.data) or None, head_names(target.without), results, measured[-1].per_token)


def _spaced(ids: Ids, target: ToEvaluate, request: EvaluateRequest) -> tuple[Sequence[Ids], Ids]:
    """Return parts of the ids, about --max-tokens in all, and one array: the first id, then each part's predicted ids.

    Runs with one tokenizer read the same parts, each as long as the longest window of all runs; with --stride, which
    advances within a part, the only part is the beginning of the text. Without --max-tokens, or if tokenizers differ,
    the only part is the whole text.
    """
    if request.max_tokens is None or not target.one_tokenizer:
        return [ids], ids
    length = request.max_tokens if request.stride else min(target.longest_window, request.max_tokens)
    parts = [ids[start : end + 1] for start, end in validation_windows(len(ids), length, request.max_tokens)]
    return parts, np.concatenate([parts[0][:1], *(part[1:] for part in parts)])


def _difference(
    first: dict[str, Any], result: dict[str, Any], first_costs: Observations, costs: Observations, one_tokenizer: bool
) -> dict[str, Any]:
    """Return the loss of `result` minus the loss of `first`, as {from, value, error, unit}; `from` is the first run.

    The unit is nats/token if `one_tokenizer`, else bits/byte. The error is the standard error of the difference.
    """
    key, unit, nats = ("loss", "nats/token", 1.0) if one_tokenizer else ("bits_per_byte", "bits/byte", log(2))
    error = costs.error_of_difference(first_costs)
    return {"from": first["run"], "value": result[key] - first[key], "error": error and error / nats, "unit": unit}


def _require_room(loaded: Loaded, num_ids: int, stride: int, dtype: str, request: EvaluateRequest) -> int:
    """Return the number of windows that fit in memory at once; raise EnvironmentFailure if a single window does not."""
    free, model = available_memory(), loaded.model
    if request.quantize:
        require_available("eval", "the weights to be rounded", rounding_bytes(model), free, hint="leave out ‹quantize›")
    length = min(model.config.evaluation_window, num_ids - 1)
    halves = dtype != "bfloat16" and scoring_bytes(model, 1, length, "bfloat16") <= (free or 0)
    about = f"the activations of one window of {counted(length, 'token')}"
    hint = "‹dtype=bfloat16›" if halves else "use a shorter text"
    require_available("eval", about, scoring_bytes(model, 1, length, dtype), free, hint=hint)
    if request.memorised:
        _require_room_for_samples(loaded, request, free)
    return windows_at_once(model, count_windows(model, num_ids, stride), dtype, free)


def _require_room_for_samples(loaded: Loaded, request: EvaluateRequest, free: int | None) -> None:
    """Raise EnvironmentFailure if memory cannot hold the requested samples; the hint names the number that fits."""
    each = row_bytes(loaded.config.model, loaded.model.vocab_size, 1, 1 + request.max_new_tokens)
    weights = sum(parameter.nbytes for parameter in loaded.model.parameters())  # of the decoder, which has its own
    fitting = max(0, (free or 0) - weights) // each
    about = f"{counted(request.num_samples, 'sample')} of {counted(request.max_new_tokens, 'token')}"
    hint = f"‹num_samples={fitting}›" if fitting else "‹max_new_tokens=1›"
    require_available("eval", about, weights + request.num_samples * each, free, hint=hint)


def _memorised(loaded: Loaded, training: Corpus, request: EvaluateRequest) -> dict[str, Any]:
    """Sample from a model; return how much of the samples occurs in the text that the model was trained on."""
    tokenizer = loaded.tokenizer
    samples = continuations(
        Decoder(loaded.model),
        [tokenizer.begin([])],
        SamplingParameters(temperature=1.0),
        seed=request.seed,
        max_new_tokens=request.max_new_tokens,
        num_samples=request.num_samples,
        end_of_text=tokenizer.end_of_text,
    )
    text = ("\n" * (block.starts and number > 0) + block.text for number, block in enumerate(training.blocks()))
    longest = longest_shared_run([tokenizer.decode(sample) for sample in samples], text)
    return {
        "num_samples": request.num_samples,
        "longest": longest,
        "longest_length": len(longest),
        "n": NGRAM,
        "copied_share": copied_share(samples, chunks(encode(training, tokenizer)), NGRAM),
    }


def _about_difference(name: str, difference: dict[str, Any]) -> str:
    value = with_error(difference["value"], difference["error"], signed=True)
    return f"{visible(name)} - {visible(difference['from'])}: {value} {difference['unit']}"


def _about_copies(name: str, memorised: dict[str, Any]) -> str:
    share = "no sample is that long" if memorised["copied_share"] is None else percentage(memorised["copied_share"])
    return (
        f"{visible(name)}: longest run of characters shared with the training text {memorised['longest_length']}: "
        f"{memorised['longest']!r}; {NGRAM}-grams of tokens copied from it: {share}"
    )


def _summary(results: list[dict[str, Any]]) -> Rows:
    """Return a table with a row for each run, and a column for the text if each run was measured on its own text."""
    with_text = any("text" in result for result in results)
    rows = [("run", "step", "tokens", "nats/token", "perplexity", "bits/byte", *(["text"] if with_text else []))]
    for result in results:
        perplexity = result["perplexity"]
        row = (
            visible(result["run"]),
            f"{result['step']:,}",
            f"{result['num_tokens']:,}",
            with_error(result["loss"], result["loss_error"]),
            "too large" if perplexity is None else f"{perplexity:.3f}",
            f"{result['bits_per_byte']:.4f}",
        )
        if with_text:
            changed = "" if result["same_text"] else " (changed)"
            row = (*row, visible(", ".join(source_names(result["text"]))) + changed)
        rows.append(row)
    return rows
