"""Models as large as those that tests of exchange need, with weights as sharp as trained ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gpt_cli.checkpoints.checkpoint import Checkpoint, read_checkpoint
from gpt_cli.checkpoints.header import Progress
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.common.host import uncounted
from gpt_cli.config import Config
from gpt_cli.model import GPT
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.generate import generate
from gpt_cli.sampling.next_token import SamplingParameters
from gpt_cli.text.tokenizers import ByteTokenizer, Tokenizer
from gpt_cli.tools.exchange.export_hf import write_for_transformers
from gpt_cli.tools.exchange.import_hf import read_foreign
from gpt_cli.tools.exchange.import_model import write_run
from support.helpers import small_config

_SIZES = ["model.context_length=80", "model.d_model=48", "model.num_heads=4", "model.num_blocks=3"]

# a chat template as models have it: chatml with a system message of its own
CHATML = (
    "{% for message in messages %}{% if loop.first and message.role != 'system' %}"
    "{{ '<|im_start|>system\\nYou add numbers.<|im_end|>\\n' }}{% endif %}"
    "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def sharp_checkpoint(*settings: str, tokenizer: Tokenizer | None = None) -> Checkpoint:
    """A model 48 wide with 3 blocks, whose weights are as large as trained ones; `settings` are of a config."""
    tokenizer = tokenizer or ByteTokenizer()
    config = small_config(*_SIZES, *settings)
    generator = torch.Generator().manual_seed(1)
    model = GPT(config.model, tokenizer.vocab_size, generator)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.12 * torch.randn(parameter.shape, generator=generator))
    progress = Progress.at_the_start(1000, "", {"torch": "of this machine"})
    return Checkpoint(config, tokenizer, progress, dict(model.state_dict()), {})


def with_config(**changes: Any) -> Callable[[Path], None]:
    """A change of config.json; None removes a key."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        config = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))

    return change


def write_as_others(folder: Path, checkpoint: Checkpoint) -> Path:
    """A directory as anyone may have written it: an export of ours that no longer says so."""
    write_for_transformers(folder, checkpoint)
    with_config(gpt_cli=None)(folder)
    return folder


def imported(model: Path, out: Path) -> Checkpoint:
    """The run that `gpt import` writes."""
    write_run(RunDirectory(out), read_foreign(model), uncounted, {})
    return read_checkpoint(out / "checkpoints" / "best.safetensors", everything=True)


def read_into_memory(model: Path) -> tuple[Config, dict[str, torch.Tensor]]:
    """The config and the weights of a directory or a file of others, of which no run is written."""
    found = read_foreign(model)
    names = [*found.weights.places, *found.weights.zeros]
    return found.config, {name: torch.from_numpy(found.weights[name].copy()) for name in names}


def greedy(model: GPT, ids: list[int], num_tokens: int = 64) -> list[int]:
    """What the model writes after a prompt."""
    steps = generate(Decoder(model), [ids], SamplingParameters(temperature=0), max_new_tokens=num_tokens)
    return [draw.token for (draw,) in steps if draw]


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
