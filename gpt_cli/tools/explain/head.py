"""One head of a trained model, step by step, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gpt_cli.common.drawing.token_labels import label_of
from gpt_cli.model import GPT
from gpt_cli.model.attention import Stages, causal_mask
from gpt_cli.model.block import Block
from gpt_cli.tools.explain.explanation import Explanation, Note, Step
from gpt_cli.tools.explain.projections import Subject, as_array, norm_formula, norm_note, projections

_NUM_LARGEST = 3


@torch.no_grad()
def explain_head(
    model: GPT, tokens: Sequence[str], ids: Sequence[int], *, layer: int, head: int, queries: Sequence[int]
) -> Explanation:
    """Explain one head at some query positions, from the embeddings to the residual stream after its layer's heads.

    `tokens` are the texts of ids [T]. The model changes to float64. From the residual stream on, each step follows
    from the steps before it and the parameters of the explanation; only the outputs of other heads are given.
    """
    model = model.double().eval()
    labels = map(label_of, tokens)
    names = [f"{position} {label.strip() or label}" for position, label in enumerate(labels)]
    subject = Subject(head, names, list(queries), model.rotary)
    sizes, block = model.config, model.blocks[layer]

    batch = torch.tensor([list(ids)])
    steps, x, rotation = _embeddings(model, batch, names, layer)
    seen, source = block.attention_input(x), "x"
    if block.pre_norm:
        source = "a"
        normalised = as_array(seen[0])
        note = norm_note(block.norm_1)
        steps.append(Step("normalised", f"a = {norm_formula(block.norm_1)}", normalised, names, notes=[note]))
    stages = block.attention.head_stages(head, seen, rotation)
    projection_steps, product, root, used = projections(block.attention, seen, source, rotation, subject)
    steps += projection_steps
    root = root if sizes.scale == "head" else None
    steps += _score_steps(stages, product, root, subject, block.attention.window)
    steps += _value_steps(stages, subject)
    steps += _output_steps(block, x, seen, rotation, subject)

    numbers = {"T": len(ids), "D": sizes.d_model, "H": sizes.num_heads, "K": sizes.value_size}
    facts = {"layer": layer, "head": head, "queries": subject.places, "tokens": list(tokens), "token_ids": list(ids)}
    facts["sizes"] = numbers
    if sizes.attention == "latent":
        facts["sizes"] = numbers | {"C": sizes.key_value_latent, "R": sizes.turned_size}
    elif 0 < sizes.turned_size < sizes.value_size:
        facts["sizes"] = numbers | {"R": sizes.turned_size}
    parameters = dict(used)
    for name, module in (("norm_1", block.norm_1), ("projection_layer", block.attention.projection_layer)):
        parameters |= {f"{name}.{part}": parameter for part, parameter in module.named_parameters()}
    if rotation is not None:
        parameters |= {"rotation.cosines": rotation[0], "rotation.sines": rotation[1]}
    exact = {name: as_array(parameter) for name, parameter in parameters.items()}
    T, D, H, K = numbers.values()
    title = f"layer {layer}, head {head}: T = {T} tokens of D = {D} numbers, H = {H} heads of K = {K}"
    return Explanation(title, steps, facts, exact)


def _embeddings(
    model: GPT, batch: Tensor, names: Sequence[str], layer: int
) -> tuple[list[Step], Tensor, Tensor | None]:
    """Compute the parts of the first stream, then the stream into a layer and the rotation, as the model does."""
    x, rotation = model.embed(batch)
    embedded = model.token_embedding(batch)
    id_text = " ".join(map(str, batch[0].tolist()))
    note = Note("ids_said", f"ids: {id_text}", {"ids": id_text})
    steps = [Step("token_embedding", "E[id]", as_array(embedded[0]), names, notes=[note])]
    parts = ["E[id]"]
    if (ngrams := model.ngram_embedding) is not None:
        added = [table(rows) for table, rows in zip(ngrams.tables, ngrams.rows(batch), strict=True)]
        tables = " + ".join(f"N{n}" for n in range(2, len(added) + 2))
        ngrams_sum = torch.stack(added).sum(0)
        steps.append(Step("ngram_embedding", tables, as_array(ngrams_sum[0]), names))
        formula = "e = (z - mean(z)) / √(var(z) + 1e-05), z = E[id] + " + tables
        steps.append(Step("ngram_normalised", formula, as_array(ngrams(embedded, batch)[0]), names))
        parts = ["e"]
    if model.position_embedding is not None:
        positions = model.position_embedding(torch.arange(batch.shape[1]))
        steps.append(Step("position_embedding", "P[t]", as_array(positions), names))
        parts.append("P[t]")
    rotation = None if rotation is None else rotation.double()
    for earlier in model.blocks[:layer]:
        x = earlier(x, rotation)
    formula = f"x = block_{layer - 1}(...)" if layer else "x = " + " + ".join(parts)
    return [*steps, Step("stream", formula, as_array(x[0]), names)], x, rotation


def _score_steps(stages: Stages, product: str, root: str | None, subject: Subject, window: int | None) -> list[Step]:
    """Make the steps from scores to weights, [queries, T] each; `root` names the divisor of the scores, or is None."""
    positions, names, query_names = subject.places, subject.names, subject.query_names
    scores, weights, size = stages.scores[0, positions], stages.weights[0, positions], stages.queries.shape[-1]
    beside = len(query_names) == 1
    steps = [Step("scores", product, as_array(scores), query_names, names, beside=beside)]
    term = "s"
    if root is not None:
        term, scores = f"s / {root}", scores / size**0.5
        formula = f"{term} = s / {size**0.5:.4g}"
        steps.append(Step("divided", formula, as_array(scores), query_names, names, beside=beside))
    masked = scores.masked_fill(causal_mask(len(names), window=window)[positions], -torch.inf)
    hidden = "j > i" if window is None else f"j > i, j ≤ i - {window}"
    formula = "w = exp(m) / Σ exp(m)"
    notes = [Note("places_said", "i: the position of the token that looks; j: of the token it looks at")]
    for name, row in zip(query_names, weights, strict=True):
        notes.append(_largest("most_weight", f"{name} looks most at", name, row, names))
    return [
        *steps,
        Step("masked", f"m = {term}; {hidden}: -∞", as_array(masked), query_names, names, beside=beside),
        Step("weights", formula, as_array(weights), query_names, names, notes=notes, beside=beside),
    ]


def _value_steps(stages: Stages, subject: Subject) -> list[Step]:
    """Make the steps of the weighted sum of the values, for a single query with its parts."""
    weights, values, positions, names = stages.weights[0], stages.values[0], subject.places, subject.names
    lengths = weights[positions] * values.norm(dim=1)  # of each part of the sum, since no weight is negative
    notes = [
        _largest("largest_parts", f"longest terms for {name}", name, row, names)
        for name, row in zip(subject.query_names, lengths, strict=True)
    ]
    steps = []
    if len(positions) == 1:
        steps.append(Step("weighted_values", "wⱼ vⱼ", as_array(weights[positions[0], :, None] * values), names))
    return [*steps, subject.of_queries("head_output", "h = Σ wⱼ vⱼ", stages.heads, *notes)]


def _output_steps(block: Block, x: Tensor, seen: Tensor, rotation: Tensor | None, subject: Subject) -> list[Step]:
    """Make the steps from the outputs of all heads back to the residual stream: [queries, D] each."""
    attention = block.attention
    mixed, last = attention.separate_heads(seen, rotation), attention.num_heads - 1
    heads = ", ".join(dict.fromkeys(["h0", *(["..."] if last > 1 else []), f"h{last}"]))
    attended = attention.projection_layer(mixed)
    bias = " + b" if attention.projection_layer.bias is not None else ""
    notes = [Note("parallel_said", "The feed-forward part of this block reads x, not y.")] if block.parallel else []
    outputs = [
        ("concatenated", f"hs = ({heads})", mixed),
        ("projected", f"o = projection_layer hs{bias}", attended),
        ("residual", "y = x + o", x + attended),
    ]
    if not block.pre_norm:
        outputs.append(("normalised_after", norm_formula(block.norm_1).replace("x", "y"), block.norm_1(x + attended)))
    steps = [subject.of_queries(*output) for output in outputs]
    return [*steps[:-1], replace(steps[-1], notes=notes)]


def _largest(key: str, beginning: str, query: str, numbers: Tensor, names: Sequence[str]) -> Note:
    """The tokens with the largest numbers above zero, in words and as data."""
    order = torch.argsort(numbers, descending=True, stable=True)[:_NUM_LARGEST].tolist()
    largest_pairs = [(position, float(numbers[position])) for position in order if numbers[position] > 0]
    text = ", ".join(f"{names[position]} {number:.4f}" for position, number in largest_pairs)
    largest = [{"place": position, "number": number} for position, number in largest_pairs]
    return Note(key, f"{beginning}: {text}", {"query": query, "list": text, "largest": largest})
