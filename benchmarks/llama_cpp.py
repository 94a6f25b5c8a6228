"""Sampling and reading a prompt beside llama.cpp, with the same random weights; part of `make bench`.

    pip install 'small-gpt[llama-cpp]'    # compiles llama.cpp for this processor, in about five minutes
    python -m benchmarks.llama_cpp [--large]

Both draw at temperature 0.8 after a prompt of 8 tokens, or read one of 1,000, each with its usual settings; the context
has 1,024 tokens. `--large` is a model of half a billion parameters instead of a config's.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.laboratory import CONSOLE, asked, finish, flags, fresh_checkpoint, machine, resolved, show
from gpt_cli.checkpoints.checkpoint import Checkpoint
from gpt_cli.config import Config
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.tools.bench.baselines import NUM_SAMPLES, PROMPT, sample_once
from gpt_cli.tools.bench.bench import time_in_turns
from gpt_cli.tools.exchange.gguf.export_gguf import write_gguf

CONTEXT, LONG = 1024, [number % 256 for number in range(1000)]
AT_ONCE = 512  # tokens that llama.cpp computes together at most, by its defaults
# what `gpt sample` has beside each kind of a file
KINDS = {"float32": None, "bfloat16": "bf16", "int8": "q8_0"}
LARGE = {  # the blocks of Qwen3-0.6B (Qwen Team 2025)
    "d_model": 1024, "num_blocks": 28, "num_heads": 16, "head_size": 128, "feed_forward_size": 3072,
    "attention": "grouped_query", "num_key_value_heads": 8, "qk_norm": True, "activation": "swiglu", "norm": "rmsnorm",
    "positions": "rope", "bias": False, "scale": "none",
}  # fmt: skip
Token = tuple[int, int, int, bool]  # its id, position and sequence, and whether the logits after it are asked for


@dataclass(frozen=True)
class Beside:
    """Tokens a second of both; `ratio` is the rate of gpt by that of llama.cpp."""

    work: str
    dtype: str
    gpt: float
    llama_cpp: float
    ratio: float


class LlamaCpp:
    """A GGUF file in llama.cpp."""

    def __init__(self, there: Any, path: Path, num_rows: int):
        self._there, self._num_rows = there, num_rows
        self._model = there.llama_model_load_from_file(str(path).encode(), there.llama_model_default_params())
        settings = there.llama_context_default_params()
        settings.n_ctx, settings.n_seq_max = CONTEXT * num_rows, num_rows
        settings.n_threads = settings.n_threads_batch = torch.get_num_threads()
        self._context = there.llama_init_from_model(self._model, settings)
        assert self._context, "llama.cpp does not open the file"
        self._batch = there.llama_batch_init(AT_ONCE, 0, 1)

    def close(self) -> None:
        """Free its memory."""
        self._there.llama_batch_free(self._batch)
        self._there.llama_free(self._context)
        self._there.llama_model_free(self._model)

    def read(self, ids: Sequence[int]) -> torch.Tensor:
        """The logits after a prompt."""
        self._forget()
        tokens = [(token, place, 0, place == len(ids) - 1) for place, token in enumerate(ids)]
        for start in range(0, len(tokens), AT_ONCE):
            self._compute(tokens[start : start + AT_ONCE])
        vocab = self._there.llama_model_get_vocab(self._model)
        size = self._there.llama_vocab_n_tokens(vocab)
        return torch.from_numpy(np.ctypeslib.as_array(self._there.llama_get_logits_ith(self._context, -1), (size,)))

    def sample(self, num_tokens: int) -> None:
        """Some sequences of `num_tokens` new tokens after the same prompt."""
        there, rows, length = self._there, range(self._num_rows), len(PROMPT)
        self._forget()
        self._compute([(token, place, row, place == length - 1) for row in rows for place, token in enumerate(PROMPT)])
        where, samplers = [length * (row + 1) - 1 for row in rows], [self._sampler(row) for row in rows]
        for number in range(num_tokens):
            drawn = [there.llama_sampler_sample(samplers[row], self._context, where[row]) for row in rows]
            if number < num_tokens - 1:
                self._compute([(drawn[row], length + number, row, True) for row in rows])
                where = list(rows)
        for sampler in samplers:
            there.llama_sampler_free(sampler)

    def _sampler(self, seed: int) -> Any:
        chain = self._there.llama_sampler_chain_init(self._there.llama_sampler_chain_default_params())
        self._there.llama_sampler_chain_add(chain, self._there.llama_sampler_init_temp(0.8))
        self._there.llama_sampler_chain_add(chain, self._there.llama_sampler_init_dist(seed))
        return chain

    def _forget(self) -> None:
        self._there.llama_memory_clear(self._there.llama_get_memory(self._context), True)

    def _compute(self, tokens: Sequence[Token]) -> None:
        batch = self._batch
        batch.n_tokens = len(tokens)
        for place, (token, position, row, asked_for) in enumerate(tokens):
            batch.token[place], batch.pos[place], batch.logits[place] = token, position, asked_for
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, row
        assert self._there.llama_decode(self._context, batch) == 0, "llama.cpp does not compute the tokens"


def compare(
    there: Any, checkpoint: Checkpoint, dtype: str, rounds: int, num_tokens: int, count: Callable[[int], object]
) -> list[Beside]:
    """Time a model as one kind of numbers; `count` receives 1 for each run."""
    found, model = [], checkpoint.build_model()
    with tempfile.TemporaryDirectory() as folder:
        write_gguf(path := Path(folder) / "model.gguf", checkpoint, "model", KINDS[dtype])
        for num_rows in (1, NUM_SAMPLES):
            theirs = LlamaCpp(there, path, num_rows)
            low = torch.float32 if dtype == "float32" else torch.bfloat16
            ours = Decoder(model, low, int8=dtype == "int8", num_rows=num_rows, compiled=True)
            if dtype == "float32":  # with fewer bits it rounds what it multiplies too
                cosine = torch.cosine_similarity(ours.prefill([PROMPT])[0], theirs.read(PROMPT), dim=0)
                assert cosine > 0.99, f"not the same model: the cosine of the logits is {cosine:.2f}"
            sizes = {f"{num_rows} at once": num_rows * num_tokens}
            runs = [partial(sample_once, ours, num_tokens, num_rows), partial(theirs.sample, num_tokens)]
            if num_rows == 1:
                sizes["a prompt"] = len(LONG)
                runs += [partial(ours.prefill, [LONG]), partial(theirs.read, LONG)]
            seconds = iter(time_in_turns(runs, rounds, count))
            for work, size in sizes.items():
                rate, their_rate = size / next(seconds), size / next(seconds)
                found.append(Beside(work, dtype, rate, their_rate, rate / their_rate))
            theirs.close()
    return found


def shaped(config: Config, *, large: bool) -> Config:
    """The config with the context that all have here, and half a billion parameters if asked for."""
    if large:
        config = config.changed(tokenizer={"vocab_size": 32_000})
    return config.changed(model={"context_length": CONTEXT, **(LARGE if large else {})})


def main() -> None:
    parser = flags(__doc__, config="small")
    parser.add_argument("--large", action="store_true")
    arguments = parser.parse_args()
    try:
        there = importlib.import_module("llama_cpp")
    except ImportError:
        print("llama.cpp is not installed, so it is not timed: pip install 'small-gpt[llama-cpp]'", file=sys.stderr)
        return
    silent = there.llama_log_callback(lambda level, text, data: None)
    there.llama_log_set(silent, ctypes.c_void_p())
    config, device = resolved(asked(arguments))
    checkpoint, found = fresh_checkpoint(shaped(config, large=arguments.large)), list[Beside]()
    with CONSOLE.counting("sampling", 6 * len(KINDS) * (arguments.rounds + 1), "runs") as count:
        for dtype in KINDS:
            found += compare(there, checkpoint, dtype, arguments.rounds, arguments.tokens, count)
    print(f"{machine(device, arguments.rounds)}, llama-cpp-python {there.__version__}")
    show(
        f"{'half a billion' if arguments.large else arguments.config}: {arguments.tokens} new tokens after 8, "
        f"or a prompt of {len(LONG):,}, in tokens/s",
        ("work", "dtype", "gpt", "llama.cpp", "ratio"),
        [(each.work, each.dtype, f"{each.gpt:,.0f}", f"{each.llama_cpp:,.0f}", f"{each.ratio:.2f}") for each in found],
    )
    finish(arguments, llama_cpp=found)


if __name__ == "__main__":
    main()
