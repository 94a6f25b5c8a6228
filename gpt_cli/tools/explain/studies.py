"""Four studies, each an Explanation of one idea: division of scores, causal mask, dropout, padding."""

import numpy as np
import torch
from torch import Tensor

from gpt_cli.checkpoints.load import Loaded
from gpt_cli.common.limits import HEADS_WINDOW
from gpt_cli.errors import visible
from gpt_cli.model import CrossAttention
from gpt_cli.model.attention import attention_scores, causal_mask
from gpt_cli.model.dropout import drop_out
from gpt_cli.model.forms.cross_attention import padding_mask
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.generate import continuations
from gpt_cli.sampling.next_token import SamplingParameters
from gpt_cli.tools.explain.explanation import Explanation, Note, Step
from gpt_cli.tools.explain.worked_example import EMBEDDINGS, WORDS, linear_head, step_of

SIZES = (1, 4, 16, 64, 256, 1024)  # of queries and keys
_NUM_KEYS = 64
_NUM_ROWS = 200
_NUM_NORMAL = 20_000
_NUM_DRAWS = 10_000
_FACTS = ("entropy", "largest", "gradient")  # three pairs fit into 80 cells
_MEASURES = [note for name in _FACTS for note in (Note(name, name), Note(f"{name}_divided", "(÷√K)"))]
SENTENCES = ((5, 2, 1, 0, 0), (1, 3, 1, 4, 0))


@torch.no_grad()
def scaling(loaded: Loaded | None) -> Explanation:
    """Compare softmax of undivided and of divided scores: its entropy in nats, largest weight, and gradient.

    Scores of random queries and keys, and of the model `loaded` (None: left out), are divided by √K; normal random
    numbers are divided by 100. The gradient is the Frobenius norm of softmax's Jacobian.
    """
    generator = torch.Generator().manual_seed(0)
    rows = []
    for K in SIZES:
        queries, keys = (torch.randn(count, K, generator=generator).double() for count in (_NUM_ROWS, _NUM_KEYS))
        rows.append(_measured(attention_scores(queries, keys), K).mean(0))
    labels = [f"K = {K}" for K in SIZES]
    title = f"softmax of random queries and keys: mean of {_NUM_ROWS} rows of {_NUM_KEYS} scores"
    said = (
        "Undivided scores grow with √K: softmax picks one key, and its entropy (in nats) falls to 0. The gradient, the "
        "norm of the derivative of softmax with respect to its scores, first grows and then vanishes too."
    )
    formula, notes = "softmax(q · k), softmax(q · k / √K)", [Note("random_said", said)]
    steps = [Step("random_scores", formula, np.stack(rows), labels, _MEASURES, title=title, notes=notes)]
    if loaded is not None:
        steps.append(_model_scores(loaded))
    numbers = 100 * torch.randn(_NUM_NORMAL, generator=generator).double()
    both = torch.stack([_facts(numbers[None]), _facts(numbers[None] / 100)])[:, 0].numpy()
    rows = [Note("before", "undivided"), Note("after", "divided by 100")]
    title = f"softmax of {_NUM_NORMAL:,} normal numbers with standard deviation 100"
    said = "Undivided, the largest number takes all the weight; divided by 100, every number keeps a share."
    formula, notes = "softmax(z), softmax(z / 100)", [Note("normal_said", said)]
    steps.append(Step("normal_numbers", formula, both, rows, _MEASURES[::2], title=title, notes=notes))
    return Explanation("why scores are divided by √K", steps, {"study": "scaling"})


def _facts(scores: Tensor) -> Tensor:
    """Compute entropy in nats, largest weight and gradient norm of the softmax of each row: [rows, n] -> [rows, 3]."""
    weights = scores.softmax(dim=-1)
    entropy = torch.special.entr(weights).sum(-1)
    squares = weights.square().sum(-1)
    # the gradient is the norm of the Jacobian diag(w) - w wᵀ: the root of the sum of its squared entries
    derivative = (squares - 2 * weights.pow(3).sum(-1) + squares.square()).clamp(min=0).sqrt()
    return torch.stack([entropy, weights.amax(-1), derivative], dim=-1)


def _measured(scores: Tensor, K: int) -> np.ndarray:
    """Compute entropy, largest weight and gradient norm of softmax, each for `scores` and scores / √K: [rows, 6]."""
    return torch.stack([_facts(scores), _facts(scores / K**0.5)], dim=-1).flatten(1).numpy()


def _model_scores(loaded: Loaded) -> Step:
    """Measure softmax of attention scores on a text that the model generates: a row per layer, means over its heads."""
    model, start = loaded.model, loaded.tokenizer.begin([])
    count = min(loaded.config.model.context_length, HEADS_WINDOW) - len(start)
    (written,) = continuations(Decoder(model), [start], SamplingParameters(), max_new_tokens=count)
    ids = [*start, *written]
    K = loaded.config.model.query_size
    rows = []
    for block, stages in zip(model.blocks, model.double().attention_stages(torch.tensor([ids])), strict=True):
        hidden = stages.scores[0].masked_fill(causal_mask(len(ids), window=block.attention.window), -torch.inf)
        rows.append(_measured(hidden.flatten(0, 1), K).mean(0))
    layers = [Note("layer", f"layer {layer}", {"number": layer}) for layer in range(len(rows))]
    title = f"the heads of {visible(loaded.path)}, on {len(ids)} tokens that the model wrote"
    return Step("model_scores", f"K = {K}", np.stack(rows), layers, _MEASURES, title=title)


@torch.no_grad()
def mask() -> Explanation:
    """Show that a mask after softmax leaks later tokens unless rows are renormalised; a mask before it does not."""
    x = torch.tensor(EMBEDDINGS, dtype=torch.float64)
    head = linear_head().double()
    future = causal_mask(len(WORDS))

    def forms(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        stages = head.stages(x)
        zeroed = (stages.scores * 2**-0.5).softmax(-1).masked_fill(future, 0)
        return stages.weights, zeroed, zeroed / zeroed.sum(-1, keepdim=True)

    before, zeroed, renormalised = forms(x)
    difference = float((before - renormalised).abs().max())
    other = x.clone()
    other[-1] = x[0]
    changed = torch.stack([(a - b)[:-1].abs().amax(-1) for a, b in zip(forms(other), (before, zeroed), strict=False)])
    sums = torch.stack([before.sum(-1), zeroed.sum(-1)])
    rows = [Note("before_softmax", "masked before softmax"), Note("not_renormalised", "masked after, not renormalised")]
    said = f"Masking before softmax and renormalising after it differ by at most {difference:.1e}."
    same = Note("mask_same", said, {"difference": difference})
    said = (
        "Rows that are masked but not renormalised sum to less than 1. The missing share depends on tokens still to "
        "come: they leak."
    )
    swapped, leak = f"{WORDS[-1]} → {WORDS[0]}", Note("mask_leak", said)
    steps = [
        step_of("masked_before_softmax", "softmax(s / √K; j > i: -∞)", before, title="masked before softmax"),
        step_of("masked_weights", "softmax(s / √K); j > i: 0", zeroed),
        step_of("renormalised", "w / Σ w", renormalised),
        Step("row_sums", "Σ w", sums.numpy(), rows, WORDS, notes=[same]),
        Step("leak_change", swapped, changed.numpy(), rows, WORDS[:-1], notes=[leak]),
    ]
    title = "masking before softmax, or renormalising after it"
    return Explanation(title, steps, {"study": "mask", "difference": difference})


@torch.no_grad()
def dropout() -> Explanation:
    """Show a row of attention weights, five random draws of dropout on it, and the mean of many draws."""
    row = linear_head().double().weights(torch.tensor(EMBEDDINGS, dtype=torch.float64))[-1]
    generator = torch.Generator().manual_seed(123)
    rows = [
        Note("row", "the row"),
        *(Note("draw", f"draw {number}", {"number": number}) for number in range(1, 6)),
        Note("dropout_mean", f"mean of {_NUM_DRAWS:,}", {"count": f"{_NUM_DRAWS:,}"}),
    ]
    said = (
        "Dropout multiplies the remaining weights by 1 / (1 - p), so the mean of many draws is the row itself. A "
        "single draw no longer sums to 1."
    )
    steps = []
    for p in (0.1, 0.5):
        draws = drop_out(row.expand(_NUM_DRAWS, -1), torch.rand(_NUM_DRAWS, len(row), generator=generator) >= p, p)
        shown = torch.cat([row[None], draws[:5], draws.mean(0, keepdim=True)])
        numbers = torch.cat([shown, shown.sum(-1, keepdim=True)], dim=1).numpy()
        notes = [Note("dropout_said", said)] if p == 0.5 else []
        title = f"a row of weights, and five draws of dropout with p = {p}"
        formula = f"w · keep / (1 - {p})"
        steps.append(Step(f"dropout_{p}", formula, numbers, rows, [*WORDS, "Σ"], title=title, notes=notes))
    return Explanation("what dropout does to a row of weights", steps, {"study": "dropout"})


@torch.no_grad()
def padding() -> Explanation:
    """Show the attention weights of two padded sentences in one batch, in two heads with random parameters."""
    ids = torch.tensor(SENTENCES)
    torch.default_generator.manual_seed(0)
    x = torch.randn(6, 8)[ids].double()  # an embedding of 6 tokens
    attention = CrossAttention(d_model=8, num_heads=2).double()
    weights = attention.weights(x, x, padding_mask(ids, 0))
    said = (
        "Padding gets a weight of exactly 0, because its scores are -∞ before softmax. Rows of padding look at the "
        "words too, but nothing uses them. There is no causal mask here; embeddings and heads are random (seed 0). A "
        "label is position: id."
    )
    steps = []
    for number, sentence in enumerate(SENTENCES):
        names = [f"{index}: {token}" for index, token in enumerate(sentence)]
        for index, of_head in enumerate(weights[number]):
            name, formula = f"sentence_{number}_head_{index}", "softmax(s / √K; id = 0: -∞)"
            title = f"sentence {' '.join(map(str, sentence))}, head {index}"
            notes = [Note("padding_said", said)] if number == index == 1 else []
            steps.append(Step(name, formula, of_head.numpy(), names, names, title=title, notes=notes))
    return Explanation("two sentences in one batch, where id 0 is padding", steps, {"study": "padding"})
