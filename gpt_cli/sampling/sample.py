"""`gpt sample`: continuations of prompts."""

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from json import dumps
from typing import Any, NamedTuple

import torch

from gpt_cli.checkpoints.load import load_for
from gpt_cli.common.host import Host, Notify, ignored
from gpt_cli.common.limits import SAMPLING_BYTES
from gpt_cli.common.machine.devices import choose_device, choose_dtype, product_dtype, restored_threads, use_threads
from gpt_cli.common.machine.memory import available_memory, require_available
from gpt_cli.common.results import WIDTH, Result
from gpt_cli.errors import DataError, UsageError, blaming, counted, inert_json
from gpt_cli.model import GPT
from gpt_cli.sampling.decoder import DRAW_BYTES, Decoder, cache_bytes, row_bytes
from gpt_cli.sampling.generate import generate
from gpt_cli.sampling.head_ablation import head_names, remove_heads
from gpt_cli.sampling.next_token import SamplingParameters
from gpt_cli.sampling.prompts import encode_text
from gpt_cli.sampling.request import SampleRequest, ToSample
from gpt_cli.sampling.streaming import TextStream
from gpt_cli.text.chat_templates import Template, template_for
from gpt_cli.text.conversations import Turn
from gpt_cli.text.tokenizers import Tokenizer

COMPILED_FROM = 2**33  # bytes of float32 weights that a sample reads, from which compiling saves time
_TOKEN_BYTES = 20  # of a sample: an id, a log-probability, a few characters


class Prompt(NamedTuple):
    """The text of a prompt or a chat's last question; the ids to read (at most context_length); the id to end at."""

    text: str
    ids: Sequence[int]
    end: int | None = None  # the token that ends an answer; None for a prompt that the model continues to end-of-text


@dataclass(frozen=True)
class Sample:
    """A continuation of a prompt: its text, its token ids, and each token's log-probability under the model itself.

    Log-probabilities are in nats, before temperature, penalty, top_k, top_p and min_p.
    """

    prompt: str
    text: str
    tokens: Sequence[int]
    log_probabilities: Sequence[float]


@dataclass(frozen=True)
class Samples(Result):
    """Continuations of prompts: all of the first prompt, then all of the second, and so on.

    `seed` reproduces the samples, even if gpt chose the seed; None means that greedy sampling needed no seed.
    """

    checkpoint: str
    step: int
    seed: int | None
    prompts: list[str]
    samples: list[Sample]
    without: list[str]  # heads that were switched off

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `gpt sample --json` prints."""
        about: dict[str, Any] = {"checkpoint": self.checkpoint, "step": self.step, "seed": self.seed}
        off = {"without": self.without} if self.without else {}
        prompt = {"prompt": self.prompts[0]} if len(self.prompts) == 1 else {}
        return {**about, "samples": [*map(self._as_dict, self.samples)], **off, **prompt}

    def as_json(self) -> Iterator[str]:
        """Yield the JSON text that `gpt sample --json` prints, in pieces of one sample each."""
        around = inert_json(dumps(replace(self, samples=[]).as_dict(), ensure_ascii=False))
        head, tail = around.split('"samples": []')  # which no text contains, as its quotes are escaped
        yield f'{head}"samples": ['
        for number, sample in enumerate(self.samples):
            content = dumps(self._as_dict(sample), ensure_ascii=False, allow_nan=False)
            yield f"{', ' if number else ''}{inert_json(content)}"
        yield f"]{tail}"

    def as_text(self, width: int = WIDTH) -> str:
        """Return the continuations alone, with a line of --- between them."""
        return "\n---\n".join(sample.text for sample in self.samples)

    def _as_dict(self, sample: Sample) -> dict[str, Any]:
        fields = {"text": sample.text, "tokens": [*sample.tokens], "log_probabilities": [*sample.log_probabilities]}
        return {**fields, "prompt": sample.prompt} if len(self.prompts) > 1 else fields


@restored_threads()
def sample(request: SampleRequest, target: ToSample, host: Host) -> Samples:
    """Sample in batches that fit in memory; raise UsageError, DataError, CheckpointError or EnvironmentFailure."""
    num_samples, num_tokens = len(target.prompts) * request.num_samples, request.max_new_tokens
    # all samples stay in memory until the last one is drawn
    about = f"{counted(num_samples, 'sample')} of {counted(num_tokens, 'token')}"
    _require_memory("max_new_tokens", num_tokens, _TOKEN_BYTES * num_samples, about)
    sampler = Sampler(request, target, host)
    prompts = sampler.accept_all(request, target)
    batches, samples = list(sampler.batches(prompts, request)), list[Sample]()
    with host.counting("sampling", request.max_new_tokens * len(batches), "tokens") as count:
        for batch in batches:
            samples += sampler.draw(batch, request, target.seed, count=count)
    loaded, off = sampler.loaded, head_names(target.without)
    return Samples(str(loaded.path), loaded.step, target.seed, [*target.prompts], samples, off)


class Sampler:
    """A loaded model with its decoder, ready to continue one list of prompts after another.

    Raises CheckpointError for a damaged model, EnvironmentFailure for a device that is missing, and UsageError if
    `quantize` is set for a device that is not a CPU.
    """

    def __init__(self, request: SampleRequest, target: ToSample, host: Host):
        use_threads(request.threads)
        where = choose_device(request.device or "auto")
        if request.quantize and where.type != "cpu":
            wrong = f"{request.quantize} works only on CPUs, not on {where}"
            raise UsageError("‹quantize›", wrong, hint="‹device=cpu›")
        self._host = host
        self.loaded = load_for(host, request.run, request.checkpoint, target.header, as_stored=True)
        if target.without:
            remove_heads(self.loaded.model, target.without)
            host.notice(f"heads switched off: {', '.join(head_names(target.without))}")
        number_type = product_dtype(choose_dtype(request.dtype, where, self.loaded.config.model.d_model, host.notice))
        num_rows, int8 = max(1, len(target.prompts)) * request.num_samples, request.quantize is not None
        compiled = _pays(self.loaded.model, request)
        on_device = self.loaded.model.to(where)
        self._decoder = Decoder(on_device, number_type, int8=int8, num_rows=num_rows, compiled=compiled)

    def accept(self, prompts: Sequence[str], source: str, seed: int | None = None) -> list[Prompt]:
        """Encode prompts; notify the user of the `seed`, if any, and of prompts that are too long or end with a space.

        An empty prompt starts a new document. Raises DataError, naming `source`, for a character not in the vocabulary.
        """
        loaded, notice, length = self.loaded, self._host.notice, self._decoder.config.context_length
        tokenizer = loaded.tokenizer
        encoded = [array("i", tokenizer.begin(encode_text(tokenizer, text, source))) for text in prompts]
        if seed is not None:
            notice(f"{loaded.path}, step {loaded.step:,}, ‹seed={seed}›")
        if tokenizer.kind not in ("byte", "char") and any(re.search(r"\S +\Z", text) for text in prompts):
            learned = "which this model learned as the beginning of the next word"
            notice(f"the prompt ends with a space, {learned}; it continues better without the space")
        if too_long := [len(ids) for ids in encoded if len(ids) > length]:
            longest = max(too_long)
            one = f"the prompt has {longest:,} tokens; the model sees the last {length}"
            number = f"{len(too_long):,} of these {len(encoded):,}; the longest has {longest:,} tokens"
            some = f"the model sees the last {length} tokens of a prompt, which shortens {number}"
            notice(one if len(encoded) == 1 else some)
        return [Prompt(text, ids[-length:]) for text, ids in zip(prompts, encoded, strict=True)]

    def accept_all(self, request: SampleRequest, target: ToSample) -> list[Prompt]:
        """Encode prompts or chats of `target`; DataError for unknown characters or a last question that is too long."""
        seed = target.seed if request.seed is None else None
        if target.conversations is None:
            return self.accept(target.prompts, target.source, seed)
        self.tell(seed)
        return [self.ask(one.turns, request.max_new_tokens, target.source) for one in target.conversations]

    def tell(self, seed: int | None) -> None:
        """Notify the user of checkpoint and `seed` if `seed` is set, and if the model was not trained to answer."""
        if seed is not None:
            self._host.notice(f"{self.loaded.path}, step {self.loaded.step:,}, ‹seed={seed}›")
        if self.loaded.config.data.loss is None and self._template.end is None:
            self._host.notice("this model was not trained to answer, so it continues the question like any other text")

    def ask(self, turns: Sequence[Turn], num_new_tokens: int, source: str) -> Prompt:
        """Encode a conversation so that the model answers; if it is too long, drop first messages and notify the user.

        Raises DataError, naming `source`, if the last question is too long, or for a character not in the vocabulary.
        """
        tokenizer, length = self.loaded.tokenizer, self._decoder.config.context_length
        with blaming(source):
            ids, num_left_out = _fit_history(turns, self._template, tokenizer, length, num_new_tokens)
        if num_left_out:
            self._host.notice(f"the model no longer sees the first {counted(num_left_out, 'message')}")
        return Prompt(turns[-1].content, array("i", ids), self._template.end_id(tokenizer))

    @cached_property
    def _template(self) -> Template:
        return template_for(self.loaded.config.data.template, self.loaded.tokenizer, self._host.notice)

    def batches(self, prompts: Sequence[Prompt], request: SampleRequest) -> Iterator[list[Prompt]]:
        """Yield the prompts in batches of one or more, as large as SAMPLING_BYTES and half of free memory allow."""
        free, batch, longest, config = available_memory(), list[Prompt](), 0, self._decoder.config
        most = SAMPLING_BYTES if free is None else min(SAMPLING_BYTES, free // 2)
        for prompt in prompts:
            longest = max(longest, len(prompt.ids))
            of_row = row_bytes(config, self.loaded.tokenizer.vocab_size, longest, longest + request.max_new_tokens)
            if batch and (len(batch) + 1) * request.num_samples * of_row > most:
                yield batch
                batch, longest = [], len(prompt.ids)
            batch.append(prompt)
        yield batch

    def draw(
        self,
        prompts: Sequence[Prompt],
        request: SampleRequest,
        seed: int | None,
        *,
        show: Notify = ignored,
        count: Callable[[int], object] = lambda _: None,
    ) -> list[Sample]:
        """Draw the samples of all prompts in one batch.

        Each step calls `count(1)`, and `show` with the new text of each sample. Raises EnvironmentFailure if memory is
        short, CheckpointError if the weights give logits that are not finite.
        """
        tokenizer, several = self.loaded.tokenizer, request.num_samples
        num_tokens = max(len(prompt.ids) for prompt in prompts) + request.max_new_tokens
        if self._decoder.device.type == "cpu":
            about = f"{counted(len(prompts) * several, 'sequence')} of {counted(num_tokens, 'token')}"
            of_row = cache_bytes(self._decoder.config, num_tokens, self._decoder.plain_dtype.itemsize)
            of_row += DRAW_BYTES * tokenizer.vocab_size
            _require_memory("num_samples", several, of_row * len(prompts), about, self._decoder.cached_bytes())
        rows = [
            _Row(prompt.text, TextStream(tokenizer, request.stop, begins=not prompt.text or prompt.end is not None))
            for prompt in prompts
            for _ in range(several)
        ]
        temperature = 0.0 if request.greedy else request.temperature
        steps = generate(
            self._decoder,
            [prompt.ids for prompt in prompts],
            SamplingParameters(temperature, request.top_k, request.top_p, request.min_p, request.repetition_penalty),
            max_new_tokens=request.max_new_tokens,
            num_samples=several,
            seed=seed or 0,
            end_of_text=tokenizer.end_of_text if prompts[0].end is None else prompts[0].end,
            done=lambda number: rows[number].stream.stopped or rows[number].tokens[-1] == tokenizer.end_of_text,
            warn=self._host.warn,
        )
        for draws in steps:
            count(1)
            for row, draw in zip(rows, draws, strict=True):
                if draw is not None:
                    row.tokens.append(draw.token)
                    row.log_probabilities.append(draw.log_probability)
                    show(row.add(row.stream.feed(draw.token)))
        for row in rows:
            show(row.add(row.stream.finish()))
        return [Sample(row.prompt, row.text, row.tokens, row.log_probabilities) for row in rows]


class _Row:
    """A sample that is being drawn, with its text and tokens so far."""

    def __init__(self, prompt: str, stream: TextStream):
        self.prompt, self.stream, self.text = prompt, stream, ""
        self.tokens, self.log_probabilities = array("i"), array("d")

    def add(self, text: str) -> str:
        self.text += text
        return text


def _fit_history(
    turns: Sequence[Turn], template: Template, tokenizer: Tokenizer, context_length: int, num_new_tokens: int
) -> tuple[list[int], int]:
    """Encode a conversation so that the model answers; return the ids, and how many of the oldest turns do not fit.

    A system turn stays. The ids leave room for `num_new_tokens`, at most half of the context; only the last question
    may use this room. Raises DataError if the last question is too long, or has a character not in the vocabulary.
    """
    max_length = context_length - min(num_new_tokens, context_length // 2)
    system = turns[:1] if turns[0].role == "system" else ()
    rest = turns[len(system) :]
    starts = [i for i, turn in enumerate(rest) if turn.role == "user" or i == 0]
    ids = list[int]()
    for start in starts:
        ids = template.encode([*system, *rest[start:]], tokenizer).ids
        if len(ids) <= (max_length if start != starts[-1] else context_length - 1):
            return ids, start
    sentence = f"it has {counted(len(ids), 'token')} in the template, but this model sees {context_length}"
    raise DataError("message", sentence, hint="ask in fewer words")


def _pays(model: GPT, request: SampleRequest) -> bool:
    """Return whether compiled C code saves more time than compiling takes; for a model in bfloat16, always True.

    Without C code, a model in bfloat16 needs a copy in float32. The result does not depend on earlier
    compilations, so that a command gives the same sample each time.
    """
    num_weights = sum(parameter.numel() for parameter in model.parameters())
    is_half = model.token_embedding.weight.dtype == torch.bfloat16
    return is_half or 4 * num_weights * request.max_new_tokens >= COMPILED_FROM


def _require_memory(field: str, number: int, each: int, about: str, reused: int = 0) -> None:
    """Raise EnvironmentFailure, naming `about`, if `number` x `each` bytes exceed memory; hint at a smaller `field`.

    `reused` bytes of this process count as free.
    """
    free = None if (unused := available_memory()) is None else unused + reused
    fits = (free or 0) // each
    hint = f"‹{field}={fits}›" if fits else "lower ‹num_samples› or ‹max_new_tokens›, or give fewer prompts"
    require_available(f"‹{field}›", about, number * each, free, hint=hint)
