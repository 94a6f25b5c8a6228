"""Explain one attention head of a trained model step by step, in float64."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gpt_cli.common.drawing.token_labels import label_of
from gpt_cli.model import GPT
from gpt_cli.model.attention import Stages, causal_mask
from gpt_cli.model.block import Block
from gpt_cli.tools.explain.explanation import Explanation, Note
from gpt_cli.tools.explain.projections import HeadSteps, as_array, norm_formula, norm_note, projections

_NUM_LARGEST = 3


@torch.no_grad()
def explain_head(
    model: GPT, tokens: Sequence[str], ids: Sequence[int], *, layer: int, head: int, queries: Sequence[int]
) -> Explanation:
    """Explain one head at the positions `queries`, from the embeddings to the residual stream after attention.

    `tokens` are the texts of ids [T]. The model is converted to float64 in place. From the residual stream on, each
    step can be computed from the steps before it and the parameters of the explanation, except the outputs of other
    heads.
    """
    model = model.double().eval()
    names = [f"{position} {label.strip() or label}" for position, label in enumerate(map(label_of, tokens))]
    steps = HeadSteps(head, names, queries, model.rotary)
    sizes, block = model.config, model.blocks[layer]

    x, rotation = _add_embeddings(steps, model, torch.tensor([list(ids)]), layer)
    seen, source = block.attention_input(x), "x"
    if block.pre_norm:
        source = "a"
        steps.of_all("normalised", f"a = {norm_formula(block.norm_1)}", seen, norm_note(block.norm_1))
    stages = block.attention.head_stages(head, seen, rotation)
    product, root, used = projections(steps, block.attention, seen, source, rotation)
    _add_scores(steps, stages, product, root if sizes.scale == "head" else None, block.attention.window)
    _add_values(steps, stages)
    _add_outputs(steps, block, x, block.attention.separate_heads(seen, rotation))

    T, D, H, K = len(ids), sizes.d_model, sizes.num_heads, sizes.value_size
    numbers = {"T": T, "D": D, "H": H, "K": K}
    if sizes.attention == "latent":
        numbers |= {"C": sizes.key_value_latent, "R": sizes.turned_size}
    elif 0 < sizes.turned_size < sizes.value_size:
        numbers["R"] = sizes.turned_size
    facts = {"layer": layer, "head": head, "queries": steps.places, "tokens": list(tokens), "token_ids": list(ids)}
    facts["sizes"] = numbers
    parameters = dict(used)
    for name, module in (("norm_1", block.norm_1), ("projection_layer", block.attention.projection_layer)):
        parameters |= {f"{name}.{part}": parameter for part, parameter in module.named_parameters()}
    if rotation is not None:
        parameters |= {"rotation.cosines": rotation[0], "rotation.sines": rotation[1]}
    exact = {name: as_array(parameter) for name, parameter in parameters.items()}
    title = f"layer {layer}, head {head}: T = {T} tokens of D = {D} numbers, H = {H} heads of K = {K}"
    return Explanation(title, steps.steps, facts, exact)


def _add_embeddings(steps: HeadSteps, model: GPT, batch: Tensor, layer: int) -> tuple[Tensor, Tensor | None]:
    """Add the steps up to the residual stream into `layer`; return that stream, and the rope rotation or None."""
    x, rotation = model.embed(batch)
    embedded = model.token_embedding(batch)
    id_text = " ".join(map(str, batch[0].tolist()))
    steps.of_all("token_embedding", "E[id]", embedded, Note("ids_said", f"ids: {id_text}", {"ids": id_text}))
    parts = ["E[id]"]
    if (ngrams := model.ngram_embedding) is not None:
        added = [table(rows) for table, rows in zip(ngrams.tables, ngrams.rows(batch), strict=True)]
        tables = " + ".join(f"N{n}" for n in range(2, len(added) + 2))
        steps.of_all("ngram_embedding", tables, torch.stack(added).sum(0))
        formula = "e = (z - mean(z)) / √(var(z) + 1e-05), z = E[id] + " + tables
        steps.of_all("ngram_normalised", formula, ngrams(embedded, batch))
        parts = ["e"]
    if model.position_embedding is not None:
        steps.of_all("position_embedding", "P[t]", model.position_embedding(torch.arange(batch.shape[1]))[None])
        parts.append("P[t]")
    rotation = None if rotation is None else rotation.double()
    for earlier in model.blocks[:layer]:
        x = earlier(x, rotation)
    steps.of_all("stream", f"x = block_{layer - 1}(...)" if layer else "x = " + " + ".join(parts), x)
    return x, rotation


def _add_scores(steps: HeadSteps, stages: Stages, product: str, root: str | None, window: int | None) -> None:
    """Add the steps from scores to weights; `product` is the formula of scores, `root` of their divisor, if any."""
    scores, weights = stages.scores[0, steps.places], stages.weights[0, steps.places]
    steps.of_pairs("scores", product, scores)
    term, divisor = "s", stages.queries.shape[-1] ** 0.5
    if root is not None:
        term, scores = f"s / {root}", scores / divisor
        steps.of_pairs("divided", f"{term} = s / {divisor:.4g}", scores)
    masked = scores.masked_fill(causal_mask(len(steps.names), window=window)[steps.places], -torch.inf)
    hidden = "j > i" if window is None else f"j > i, j ≤ i - {window}"
    steps.of_pairs("masked", f"m = {term}; {hidden}: -∞", masked)
    notes = [Note("places_said", "i: the position of the token that looks; j: of the token it looks at")]
    for name, row in zip(steps.query_names, weights, strict=True):
        notes.append(_largest("most_weight", f"{name} looks most at", name, row, steps.names))
    steps.of_pairs("weights", "w = exp(m) / Σ exp(m)", weights, *notes)


def _add_values(steps: HeadSteps, stages: Stages) -> None:
    """Add the steps of the weighted sum of the values; for a single query, also the terms of the sum."""
    weights, values = stages.weights[0, steps.places], stages.values[0]
    if len(weights) == 1:
        steps.of_all("weighted_values", "wⱼ vⱼ", weights[..., None] * values)
    lengths = weights * values.norm(dim=1)  # of each part of the sum, since no weight is negative
    notes = [
        _largest("largest_parts", f"longest terms for {name}", name, row, steps.names)
        for name, row in zip(steps.query_names, lengths, strict=True)
    ]
    steps.of_queries("head_output", "h = Σ wⱼ vⱼ", stages.heads, *notes)


def _add_outputs(steps: HeadSteps, block: Block, x: Tensor, mixed: Tensor) -> None:
    """Add the steps from `mixed` [1, T, H K], the outputs of all heads, back to the residual stream."""
    projection, last = block.attention.projection_layer, block.attention.num_heads - 1
    heads = ", ".join(dict.fromkeys(["h0", *(["..."] if last > 1 else []), f"h{last}"]))
    steps.of_queries("concatenated", f"hs = ({heads})", mixed)
    bias = " + b" if projection.bias is not None else ""
    attended = projection(mixed)
    steps.of_queries("projected", f"o = projection_layer hs{bias}", attended)
    notes = [Note("parallel_said", "The feed-forward part of this block reads x, not y.")] if block.parallel else []
    steps.of_queries("residual", "y = x + o", x + attended, *(notes if block.pre_norm else ()))
    if not block.pre_norm:
        formula = norm_formula(block.norm_1).replace("x", "y")
        steps.of_queries("normalised_after", formula, block.norm_1(x + attended), *notes)


def _largest(key: str, beginning: str, query: str, numbers: Tensor, names: Sequence[str]) -> Note:
    """Return a note `key` on `query`: `beginning`, then tokens with the largest positive numbers, as text and data."""
    order = torch.argsort(numbers, descending=True, stable=True)[:_NUM_LARGEST].tolist()
    largest_pairs = [(position, float(numbers[position])) for position in order if numbers[position] > 0]
    text = ", ".join(f"{names[position]} {number:.4f}" for position, number in largest_pairs)
    largest = [{"place": position, "number": number} for position, number in largest_pairs]
    return Note(key, f"{beginning}: {text}", {"query": query, "list": text, "largest": largest})
