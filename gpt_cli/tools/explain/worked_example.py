"""The published example: six tokens of three numbers each, and attention over them in seven forms.

The inputs, the seeds and the order of the random draws are those of courses on building a GPT from scratch; the
attention of this package computes everything else.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt_cli.model import Attention
from gpt_cli.model.attention import attention_scores, causal_mask, score_scale
from gpt_cli.tools.explain.explanation import Explanation, Label, Step, title_of

WORDS = ("Your", "journey", "starts", "with", "one", "step")
EMBEDDINGS = (
    (0.43, 0.15, 0.89),
    (0.55, 0.87, 0.66),
    (0.57, 0.85, 0.64),
    (0.22, 0.58, 0.33),
    (0.77, 0.25, 0.10),
    (0.05, 0.80, 0.55),
)
# the steps of one form of attention, and the random parameters it uses
StepsAndMatrices = tuple[list[Step], dict[str, Tensor]]


def step_of(name: str, formula: str, numbers: Tensor, *, title: str = "") -> Step:
    """Return a Step with a row for each of the example's six WORDS; if it has six columns, the words label them too."""
    columns: tuple[Label, ...] = WORDS if numbers.shape[1] == len(WORDS) else ()
    return Step(name, formula, numbers.double().numpy(), WORDS, columns, title=title)


@torch.no_grad()
def journey() -> Explanation:
    """Explain the published example, six tokens, in seven forms of attention; seeds torch's global generator."""
    x = torch.tensor(EMBEDDINGS)
    steps = [replace(step_of("token_embedding", "x", x), part="inputs")]
    parameters: dict[str, np.ndarray] = {}
    for name, (_, part) in _PARTS.items():
        torch.default_generator.manual_seed(123)
        part_steps, used = part(x)
        steps += (replace(step, part=name) for step in part_steps)
        parameters |= {f"{name}.{key}": matrix.double().numpy() for key, matrix in used.items()}
    titles = {"inputs": "the embeddings"} | {name: title for name, (title, _) in _PARTS.items()}
    title = "six tokens of three numbers: attention from scratch"
    return Explanation(title, steps, {"example": "journey"}, parameters, parts=titles)


def _simple(x: Tensor) -> StepsAndMatrices:
    scores = attention_scores(x, x)
    weights = scores.softmax(dim=-1)
    return [
        step_of("scores", "s = x xᵀ", scores),
        step_of("shares", "s / Σ s", scores / scores.sum(dim=-1, keepdim=True)),
        step_of("weights", "w = softmax(s)", weights),
        step_of("contexts", "w x", weights @ x),
    ], {}


def _projected(source: str, queries: Tensor, keys: Tensor, values: Tensor) -> list[Step]:
    """Return the steps of attention without a causal mask; in the formula `source`, "x W{0}", {0} becomes q, k or v."""
    scores = attention_scores(queries, keys)
    weights = (scores * score_scale(queries.shape[-1])).softmax(dim=-1)
    return [
        step_of("queries", f"q = {source.format('q')}", queries),
        step_of("keys", f"k = {source.format('k')}", keys),
        step_of("values", f"v = {source.format('v')}", values),
        step_of("scores", "s = q kᵀ", scores),
        step_of("weights", "w = softmax(s / √2)", weights),
        step_of("contexts", "w v", weights @ values),
    ]


def _trainable(x: Tensor) -> StepsAndMatrices:
    Wq, Wk, Wv = (torch.rand(3, 2) for _ in range(3))
    return _projected("x W{0}", x @ Wq, x @ Wk, x @ Wv), {"Wq": Wq, "Wk": Wk, "Wv": Wv}


def linear_head() -> Attention:
    """Return a new head (D = 3, K = 2) with the same weights at each call; seeds torch's global generator with 789."""
    torch.default_generator.manual_seed(789)
    return Attention(3, 2)


def _linear(x: Tensor) -> StepsAndMatrices:
    head = linear_head()
    return _projected("W{0} x", head.Wq(x), head.Wk(x), head.Wv(x)), _matrices(head)


def _causal(x: Tensor) -> StepsAndMatrices:
    stages = linear_head().stages(x)
    mask = causal_mask(len(WORDS))
    before = (stages.scores * 2**-0.5).softmax(dim=-1)
    masked = before.masked_fill(mask, 0)
    hidden = (stages.scores * 2**-0.5).masked_fill(mask, -torch.inf)
    return [
        step_of("weights_before_masking", "softmax(s / √2)", before),
        step_of("masked_weights", "j > i: 0", masked),
        step_of("renormalised", "w / Σ w", masked / masked.sum(dim=-1, keepdim=True)),
        step_of("masked", "s / √2; j > i: -∞", hidden),
        step_of("masked_before_softmax", "softmax", stages.weights),
        step_of("contexts", "w v", stages.heads),
    ], {}


def _dropout(x: Tensor) -> StepsAndMatrices:
    weights = linear_head().weights(x)
    torch.default_generator.manual_seed(123)
    return [step_of("weights", "w", weights), step_of("dropped", "w · keep / (1 - 0.5)", F.dropout(weights, 0.5))], {}


def _multi_head(x: Tensor) -> StepsAndMatrices:
    heads = [Attention(3, 2) for _ in range(2)]
    used = {f"{name}{number}": matrix for number, head in enumerate(heads) for name, matrix in _matrices(head).items()}
    return _of_heads(x, heads)[0], used


def _split(x: Tensor) -> StepsAndMatrices:
    layers = {name: nn.Linear(3, 2, bias=False) for name in ("Wq", "Wk", "Wv")}
    output = nn.Linear(2, 2)
    heads = [Attention(3, 1) for _ in range(2)]
    for number, head in enumerate(heads):
        for name, shared in layers.items():
            getattr(head, name).weight.copy_(shared.weight[number : number + 1])
    named = zip(("queries", "keys", "values"), layers.values(), strict=True)
    whole = [step_of(name, f"{name[0]} = W{name[0]} x = ({name[0]}0, {name[0]}1)", layer(x)) for name, layer in named]
    steps, joined = _of_heads(x, heads)
    used = {name: layer.weight for name, layer in layers.items()} | {"W": output.weight, "b": output.bias}
    return [*whole, *steps, step_of("projected", "o = W c + b", output(joined))], used


def _of_heads(x: Tensor, heads: list[Attention]) -> tuple[list[Step], Tensor]:
    """Return the steps of all `heads` on x [T, D], and the heads' outputs side by side, [T, H K]."""
    of_heads = [head.stages(x) for head in heads]
    steps = [
        step_of(f"{name}_{number}", formula, numbers, title=f"head {number}: {title_of(name)}")
        for number, stages in enumerate(of_heads)
        for name, formula, numbers in (
            ("queries", f"q{number}", stages.queries),
            ("keys", f"k{number}", stages.keys),
            ("values", f"v{number}", stages.values),
            ("scores", f"s = q{number} k{number}ᵀ", stages.scores),
            ("weights", "w = softmax(s / √K; j > i: -∞)", stages.weights),
            ("head_output", f"h{number} = w v{number}", stages.heads),
        )
    ]
    joined = torch.cat([stages.heads for stages in of_heads], dim=-1)
    return [*steps, step_of("concatenated", "c = (h0, h1)", joined)], joined


def _matrices(head: Attention) -> dict[str, Tensor]:
    return {name: getattr(head, name).weight for name in ("Wq", "Wk", "Wv")}


_PARTS: dict[str, tuple[str, Callable[[Tensor], StepsAndMatrices]]] = {
    "simple": ("a. without trainable parameters", _simple),
    "trainable": ("b. with trainable matrices (seed 123, uniform random numbers)", _trainable),
    "linear": ("c. with linear layers (seed 789, torch's initialisation)", _linear),
    "causal": ("d. causal: no token sees a later one (same layers as c)", _causal),
    "dropout": ("e. dropout on the weights of d (p = 0.5, seed 123)", _dropout),
    "multi_head": ("f. two causal heads, side by side (seed 123)", _multi_head),
    "split": ("g. one projection split into two heads, and an output layer (seed 123)", _split),
}
