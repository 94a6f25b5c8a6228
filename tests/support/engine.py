"""The engine of a model's page, called without the page, and the model that it should compute."""

from collections.abc import Sequence
from typing import Any

import torch

from gpt_cli.checkpoints.checkpoint import Checkpoint
from gpt_cli.model import GPT
from gpt_cli.sampling.fast.int8 import to_int8
from gpt_cli.tools.exchange.model_page import model_page
from gpt_cli.tools.exchange.page_data import Kind
from gpt_cli.tools.pages.html_page import ENGINE
from support.scripts import RunScript

# allLogits is of tests alone: the logits after each token, Float32Array [T, V]
_CALLS = """async ({ opening, calls }) => {
  const part = %s;
  engine.allLogits = ({ ids }) => {
    const { model } = engine;
    return model.logits(model.forward(engine.checked(ids), 0, new Memory(model)), ids.length);
  };
  engine.open(opening);
  const results = [];
  for (const [method, args] of calls) results.push(part(await engine[method](args)));
  return results;
}"""
LIKELIEST = "({ logits }) => logits.indexOf(Math.max(...logits))"


def opening_of(checkpoint: Checkpoint, kind: Kind = "float16") -> dict[str, Any]:
    """What the engine opens for a model."""
    page = model_page(checkpoint, kind, "tested", title="", prompt="")
    return {"content": page.content, "weights": page.weights}


def answers(
    run_script: RunScript,
    checkpoint: Checkpoint,
    *calls: tuple[str, Any],
    kind: Kind = "float16",
    part: str = "(result) => result",
) -> Any:
    """What the engine answers to calls of its methods, each with its argument, after it opened a model.

    `part` is a function of JavaScript that says what of an answer is wanted.
    """
    return run_script(ENGINE, _CALLS % part, {"opening": opening_of(checkpoint, kind), "calls": calls})


def rounded(checkpoint: Checkpoint, kind: Kind) -> GPT:
    """The model with matrices rounded as a page stores them, in float64."""
    model = checkpoint.build_model().double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2 and kind == "int8":
                numbers, scales = to_int8(parameter.float())
                parameter.copy_(numbers.double() * scales.double()[:, None])
            elif parameter.dim() == 2:
                parameter.copy_(parameter.half())
    return model


def off(*heads: Sequence[int]) -> list[dict[str, Any]]:
    """The changes of the engine that switch heads [layer, head] off."""
    return [{"part": "head", "layer": layer, "head": head, "position": None, "how": "zero"} for layer, head in heads]


def random_ids(count: int, vocab_size: int = 257) -> list[int]:
    return torch.randint(0, vocab_size, (count,), generator=torch.Generator().manual_seed(7)).tolist()
