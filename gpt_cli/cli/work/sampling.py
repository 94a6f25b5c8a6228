"""What `gpt sample` does with the model: draw continuations and print them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from gpt_cli.amounts import size
from gpt_cli.checkpoints.discovery import Loaded, load
from gpt_cli.checkpoints.verified import ReadVerified
from gpt_cli.cli.interactive import SamplingChoices, converse
from gpt_cli.cli.terminal import Console, colourful
from gpt_cli.cli.work.wanted import SamplesWanted
from gpt_cli.errors import EnvironmentFailure, UsageError, inert, shown
from gpt_cli.inspecting.heads.removing import head_names, parse_heads, remove_heads
from gpt_cli.limits import SAMPLING_BYTES
from gpt_cli.machine.devices import choose_device, choose_dtype, product_dtype, use_threads
from gpt_cli.machine.memory import available_memory
from gpt_cli.sampling.decoder import Decoder, row_bytes
from gpt_cli.sampling.generate import Draw, generate
from gpt_cli.sampling.next_token import SamplingParameters
from gpt_cli.sampling.prompts import encode_text
from gpt_cli.sampling.streaming import TextStream
from gpt_cli.text.tokenizer import BytePairTokenizer, Tokenizer


def sample_and_show(wanted: SamplesWanted, console: Console, read: ReadVerified) -> None:
    """Continue prompts and print the continuations; `read` may have read the checkpoint ahead."""
    use_threads(wanted.threads)
    where = choose_device(wanted.device)
    if wanted.quantize and where.type != "cpu":
        wrong = f"{wanted.quantize} works on processors only, not on {where}"
        raise UsageError("--quantize", wrong, hint="--device cpu")
    prompts, choices, seed = wanted.prompts, wanted.choices, wanted.choices.values["seed"]
    if not prompts:
        converse(console, choices, lambda changed: _opened(wanted, changed, console, where, read)[1].answer)
        return
    loaded, sampling = _opened(wanted, choices, console, where, read)
    num_rows = len(prompts) * wanted.num_samples
    sampling.remark_on_spaces(prompts)
    if num_rows == 1 and wanted.stream and not wanted.json:
        _echo_prompt(prompts[0], console.quiet)
        sampling.show(prompts, choices)
    else:
        max_new_tokens = choices.values["max-new-tokens"]
        if wanted.json:
            _require_memory_for_json(num_rows, max_new_tokens)
        batches = list(sampling.batches(prompts, max_new_tokens))
        with console.counting("sampling", max_new_tokens * len(batches), "tokens") as count:
            rows = (row for batch in batches for row in sampling.rows(batch, choices, count=count))
            # this alone stays of a batch
            samples = [row.as_dict() for row in rows] if wanted.json else []
            texts = [_for_stdout(row.text) for row in rows]
        if wanted.json:
            for number, sample in enumerate(samples if len(prompts) > 1 else []):
                sample["prompt"] = prompts[number // wanted.num_samples]
            about = {"checkpoint": str(loaded.path), "step": loaded.step, "seed": seed, "samples": samples}
            if off := choices.values["without"]:
                about["without"] = head_names(parse_heads(off, loaded.config.model))
            console.json(about if len(prompts) > 1 else {**about, "prompt": prompts[0]})
        else:
            console.result("\n---\n".join(texts))


def _opened(
    wanted: SamplesWanted, choices: SamplingChoices, console: Console, where: torch.device, read: ReadVerified
) -> tuple[Loaded, _Sampling]:
    """The model that is chosen, without the heads that are switched off, and what draws from it."""
    checkpoint, without = choices.model
    loaded = load(wanted.run, checkpoint, console.warn, read)
    if without is not None:
        off = parse_heads(without, loaded.config.model)
        remove_heads(loaded.model, off)
        console.notice(f"heads switched off: {', '.join(head_names(off))}")
    if wanted.seed_is_ours:
        console.notice(f"{loaded.path}, step {loaded.step}, --seed {choices.values['seed']}")
    elif not wanted.prompts:
        console.notice(f"{loaded.path}, step {loaded.step}")
    chosen = product_dtype(choose_dtype(wanted.dtype, where, loaded.config.model.d_model))
    num_rows = max(1, len(wanted.prompts)) * wanted.num_samples
    return loaded, _Sampling(
        console=console,
        tokenizer=loaded.tokenizer,
        decoder=Decoder(loaded.model.to(where), chosen, int8=wanted.quantize is not None, num_rows=num_rows),
        where=shown(loaded.path),
        num_samples=wanted.num_samples,
        prompt_source=wanted.prompt_source,
    )


@dataclass(frozen=True)
class _Sampling:
    """What stays the same from answer to answer."""

    console: Console
    tokenizer: Tokenizer
    decoder: Decoder
    where: str  # the checkpoint, in errors
    num_samples: int
    prompt_source: str

    def batches(self, prompts: list[str], max_new_tokens: int) -> Iterator[list[str]]:
        """The prompts in order, so many at once as take SAMPLING_BYTES of memory, and at least one."""
        free, batch, longest = available_memory(), list[str](), 0
        most = SAMPLING_BYTES if free is None else min(SAMPLING_BYTES, free // 2)
        for prompt in prompts:
            # no token has less than a byte
            length = min(len(prompt.encode("utf-8", "replace")), self.decoder.config.context_length)
            longest = max(longest, length)
            of_row = row_bytes(self.decoder.config, self.tokenizer.vocab_size, longest, longest + max_new_tokens)
            if batch and (len(batch) + 1) * self.num_samples * of_row > most:
                yield batch
                batch, longest = [], length
            batch.append(prompt)
        yield batch

    def rows(
        self,
        prompts: list[str],
        choices: SamplingChoices,
        *,
        show: Callable[[str], object] = lambda _: None,
        count: Callable[[int], object] = lambda _: None,
    ) -> list[_Row]:
        """Draw the samples of all prompts in one batch; `show` receives text as it comes, `count` each step."""
        values = choices.values
        rows = [_Row(TextStream(self.tokenizer, values["stop"])) for _ in range(len(prompts) * self.num_samples)]
        encoded = [self._encoded(text) for text in prompts]
        self._require_memory(max(map(len, encoded)) + values["max-new-tokens"], len(prompts))
        steps = generate(
            self.decoder,
            encoded,
            SamplingParameters(
                values["temperature"], values["top-k"], values["top-p"], values["min-p"], values["repetition-penalty"]
            ),
            max_new_tokens=values["max-new-tokens"],
            num_samples=self.num_samples,
            seed=choices.seed(),
            end_of_text=self.tokenizer.end_of_text,
            done=lambda number: rows[number].stream.stopped,
            where=self.where,
        )
        for draws in steps:
            count(1)
            for row, draw in zip(rows, draws, strict=True):
                if draw is not None:
                    row.draws.append(draw)
                    show(row.add(row.stream.feed(draw.token)))
        for row in rows:
            show(row.add(row.stream.finish()))
        return rows

    def answer(self, line: str, choices: SamplingChoices) -> None:
        """Print what continues a line that the user typed."""
        self.remark_on_spaces([line])
        self.show([line], choices)

    def remark_on_spaces(self, prompts: list[str]) -> None:
        """Say once that a space at the end of a prompt cuts a token in two, where the model learned byte pairs."""
        pairs = isinstance(self.tokenizer, BytePairTokenizer)
        if pairs and any(re.search(r"\S +\Z", prompt) for prompt in prompts):
            self.console.notice(
                "the prompt ends with a space, which this model learned as the beginning of the next word; "
                "it continues better without it"
            )

    def show(self, prompts: list[str], choices: SamplingChoices) -> None:
        """Print continuations: one while it comes, several when they are complete."""
        if self.num_samples == 1:
            self.rows(prompts, choices, show=lambda text: print(_for_stdout(text), end="", flush=True))
            print(flush=True)
        else:
            self.console.result(_together(self.rows(prompts, choices)))

    def _require_memory(self, num_tokens: int, num_prompts: int) -> None:
        """Refuse a batch whose keys and values the machine cannot hold."""
        of_row, free = self.decoder.cache_bytes(num_tokens), available_memory()
        num_rows = num_prompts * self.num_samples
        if self.decoder.device.type == "cpu" and free is not None and of_row * num_rows > free:
            fits = free // of_row // num_prompts
            raise EnvironmentFailure(
                "--num-samples",
                f"{num_rows:,} sequences of {num_tokens:,} tokens take about {size(of_row * num_rows)} of memory, "
                f"but only {size(free)} are free",
                hint=f"--num-samples {fits}" if fits else "give fewer prompts at once",
            )

    def _encoded(self, text: str) -> list[int]:
        """The ids of a prompt that the model sees; those of an empty one start a document."""
        ids = encode_text(self.tokenizer, text, self.prompt_source)
        context_length = self.decoder.config.context_length
        if len(ids) > context_length:
            self.console.notice(f"the prompt has {len(ids)} tokens; the model sees the last {context_length}")
        return ids[-context_length:] or [self.tokenizer.end_of_text]


@dataclass
class _Row:
    """A sample in the making."""

    stream: TextStream
    text: str = ""
    draws: list[Draw] = field(default_factory=list)

    def add(self, text: str) -> str:
        self.text += text
        return text

    def as_dict(self) -> dict[str, Any]:
        tokens = [draw.token for draw in self.draws]
        return {"text": self.text, "tokens": tokens, "log_probabilities": [draw.log_probability for draw in self.draws]}


def _require_memory_for_json(num_rows: int, max_new_tokens: int) -> None:
    """Refuse samples that are too many for one object: 100 bytes a token."""
    needed, free = 100 * num_rows * max_new_tokens, available_memory()
    if free is not None and needed > free:
        fits = free // (100 * num_rows)
        raise EnvironmentFailure(
            "--json",
            f"{num_rows:,} samples of {max_new_tokens:,} tokens take about {size(needed)} of memory, "
            f"but only {size(free)} are free",
            hint=f"--max-new-tokens {fits}" if fits else "give fewer prompts at once",
        )


def _together(rows: list[_Row]) -> str:
    return "\n---\n".join(_for_stdout(row.text) for row in rows)


def _echo_prompt(text: str, quiet: bool) -> None:
    """On a terminal the continuation follows its prompt, which goes to stderr."""
    if sys.stdout.isatty() and sys.stderr.isatty() and not quiet:
        bold, plain = ("\033[1m", "\033[0m") if colourful(sys.stderr) else ("", "")
        print(f"{bold}{_for_stdout(text)}{plain}", end="", file=sys.stderr, flush=True)


def _for_stdout(text: str) -> str:
    """Text as it is for a file or a pipe, with control characters escaped for a terminal."""
    return inert(text) if sys.stdout.isatty() else text
