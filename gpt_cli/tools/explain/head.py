"""Explain a head of a trained model (multi-head, grouped-query or latent attention), step by step in float64."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from gpt_cli.attention_maps.activations import projections_of
from gpt_cli.common.drawing.token_labels import label_of
from gpt_cli.model import GPT, LatentAttention
from gpt_cli.model.attention import SelfAttention, Stages, causal_mask
from gpt_cli.model.block import Block
from gpt_cli.model.positions import RotaryPositions, rotate
from gpt_cli.tools.explain.explanation import Explanation, Note, Step

_NUM_LARGEST = 3

# the formulas of scores and of their divisor, and the parameters that queries, keys and values use
Projections = tuple[str, str, Mapping[str, Tensor]]


@torch.no_grad()
def explain_head(
    model: GPT, tokens: Sequence[str], ids: Sequence[int], *, layer: int, head: int, queries: Sequence[int]
) -> Explanation:
    """Explain one head at the positions `queries`, from the embeddings to the residual stream after attention.

    `tokens` are the texts of ids [T]. The model is converted to float64 in place. Each step after the residual stream
    can be recomputed from earlier steps and the explanation's parameters, except the outputs of other heads.
    """
    model = model.double().eval()
    names = [f"{position} {label.strip() or label}" for position, label in enumerate(map(label_of, tokens))]
    steps = HeadSteps(head, names, queries, model.rotary)
    sizes, block = model.config, model.blocks[layer]

    x, rotation = _add_embeddings(steps, model, torch.tensor([list(ids)]), layer)
    seen, source = block.attention_input(x), "x"
    if block.pre_norm:
        source = "a"
        steps.of_all("normalised", f"a = {_norm_formula(block.norm_1)}", seen, _norm_note(block.norm_1))
    stages = block.attention.head_stages(head, seen, rotation)
    product, root, used = _add_projections(steps, block.attention, seen, source, rotation)
    _add_scores(steps, stages, product, root if sizes.scale == "head" else None, block.attention.window)
    _add_values(steps, stages)
    _add_outputs(steps, block, x, block.attention.separate_heads(seen, rotation))

    T, D, H, K = len(ids), sizes.d_model, sizes.num_heads, sizes.value_size
    numbers = {"T": T, "D": D, "H": H, "K": K}
    if sizes.attention == "latent":
        numbers |= {"C": sizes.key_value_latent, "R": sizes.rotated_size}
    elif 0 < sizes.rotated_size < sizes.value_size:
        numbers["R"] = sizes.rotated_size
    facts = {"layer": layer, "head": head, "queries": steps.positions, "tokens": list(tokens), "token_ids": list(ids)}
    facts["sizes"] = numbers
    parameters = dict(used) | dict(block.norm_1.named_parameters("norm_1"))
    parameters |= block.attention.projection_layer.named_parameters("projection_layer")
    if rotation is not None:
        parameters |= {"rotation.cosines": rotation[0], "rotation.sines": rotation[1]}
    exact = {name: _as_array(parameter) for name, parameter in parameters.items()}
    title = f"layer {layer}, head {head}: T = {T} tokens of D = {D} numbers, H = {H} heads of K = {K}"
    return Explanation(title, steps.steps, facts, exact)


class HeadSteps:
    """Collects steps that explain a head for queries at `positions`; `names` label tokens, `rotary` is rope or None."""

    def __init__(self, head: int, names: Sequence[str], positions: Sequence[int], rotary: RotaryPositions | None):
        self.head, self.names, self.positions, self.rotary = head, names, list(positions), rotary
        self.query_names = [names[position] for position in positions]
        self.steps: list[Step] = []

    def of_queries(self, name: str, formula: str, numbers: Tensor, *notes: Note) -> None:
        """Add a step with a row for each query token, from `numbers` [1, T, size] of all tokens."""
        self.steps.append(Step(name, formula, _as_array(numbers[0, self.positions]), self.query_names, notes=notes))

    def of_all(self, name: str, formula: str, numbers: Tensor, *notes: Note) -> None:
        """Add a step with a row for each token, from `numbers` [1, T, size]."""
        self.steps.append(Step(name, formula, _as_array(numbers[0]), self.names, notes=notes))

    def of_pairs(self, name: str, formula: str, numbers: Tensor, *notes: Note) -> None:
        """Add a step with a row for each query token and a column for each key token, from `numbers` [queries, T]."""
        beside = len(self.positions) == 1
        step = Step(name, formula, _as_array(numbers), self.query_names, self.names, notes=notes, beside=beside)
        self.steps.append(step)


def _add_embeddings(steps: HeadSteps, model: GPT, batch: Tensor, layer: int) -> tuple[Tensor, Tensor | None]:
    """Add the steps up to the stream into block `layer`; return this stream [1, T, D] and rope's rotation, if any."""
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


def _add_projections(
    steps: HeadSteps, attention: SelfAttention, x: Tensor, source: str, rotation: Tensor | None
) -> Projections:
    """Add the steps of a head's queries, keys and values, for the input x [1, T, D], which formulas call `source`.

    Returns the formulas of the scores and of their divisor, and the parameters used, by name.
    """
    if type(attention) is LatentAttention:  # not isinstance: a subclass may compute something else
        return _add_latent_projections(steps, attention, x, source, rotation)
    Wq, Wk, Wv = projections_of(attention, steps.head, "gpt explain")
    queries, keys = Wq(x), Wk(x)
    matrices = {"Wq": Wq, "Wk": Wk, "Wv": Wv}
    biases = {name.replace("W", "b"): layer.bias for name, layer in matrices.items() if layer.bias is not None}
    plus_q, plus_k, plus_v = (f" + {bias}" if bias in biases else "" for bias in ("bq", "bk", "bv"))
    steps.of_queries("queries", f"q = Wq {source}{plus_q}", queries)
    steps.of_all("keys", f"k = Wk {source}{plus_k}", keys)
    parameters = {name: layer.weight for name, layer in matrices.items()} | biases
    query, key = "q", "k"
    if attention.query_norm is not None and attention.key_norm is not None:
        query, key = "q̂", "k̂"
        queries, keys = attention.query_norm(queries), attention.key_norm(keys)
        steps.of_queries("normalised_queries", f"q̂ = {_norm_formula(attention.query_norm, 'q')}", queries)
        key_formula = f"k̂ = {_norm_formula(attention.key_norm, 'k')}"
        steps.of_all("normalised_keys", key_formula, keys, _norm_note(attention.key_norm))
        parameters |= {"query_norm.weight": attention.query_norm.weight, "key_norm.weight": attention.key_norm.weight}
    product = f"s = {query} · {key}"
    if rotation is not None:
        product = "s = q′ · k′"
        _add_rotated(steps, query, key, queries, keys, rotation)
    steps.of_all("values", f"v = Wv {source}{plus_v}", Wv(x))
    return product, "√K", parameters


def _add_latent_projections(
    steps: HeadSteps, attention: LatentAttention, x: Tensor, source: str, rotation: Tensor | None
) -> Projections:
    head = attention.heads[steps.head]
    latent, query_source = attention.W_DKV(x), attention.query_source(x)
    taken: dict[str, nn.Linear | None] = {"W_DKV": attention.W_DKV, "W_DQ": attention.W_DQ, "W_UQ": head.W_UQ}
    taken |= {"W_UK": head.W_UK, "W_UV": head.W_UV, "W_QR": head.W_QR, "W_KR": attention.W_KR}
    steps.of_all("latent", f"c = W_DKV {source}", latent)
    looked_from = source
    if attention.W_DQ is not None:
        looked_from = "d"
        steps.of_queries("query_latent", f"d = W_DQ {source}", query_source)
    steps.of_queries("queries", f"q = W_UQ {looked_from}", head.W_UQ(query_source))
    steps.of_all("keys", "k = W_UK c", head.W_UK(latent))
    product, root = "s = q · k", "√K"
    if head.W_QR is not None and attention.W_KR is not None and rotation is not None:
        product, root = "s = q · k + r′ · u′", "√(K + R)"
        queries, keys = head.W_QR(query_source), attention.W_KR(x)
        steps.of_queries("rotary_queries", f"r = W_QR {looked_from}", queries)
        steps.of_all("rotary_keys", f"u = W_KR {source}", keys)
        _add_rotated(steps, "r", "u", queries, keys, rotation)
    steps.of_all("values", "v = W_UV c", head.W_UV(latent))
    return product, root, {name: matrix.weight for name, matrix in taken.items() if matrix is not None}


def _add_rotated(steps: HeadSteps, query: str, key: str, queries: Tensor, keys: Tensor, rotation: Tensor) -> None:
    """Add the steps where rope rotates queries and keys, or R numbers of each; formulas call them `query` and `key`."""
    assert steps.rotary is not None
    part = rotation.shape[-1] < keys.shape[-1]
    turned = f"{key}[:R]" if part else key
    base, size = f"{steps.rotary.base:.10g}", "R" if part or key == "u" else "K"
    said = f"{key}₁ and {key}₂ are the halves of {turned}; pair n of them rotates by t θₙ, θₙ = {base}^(-2n / {size})"
    notes = [Note("rotation_said", said, {"key": key, "turned": turned, "base": base, "size": size})]
    if (scaling := steps.rotary.scaling) is not None:
        values = {name: f"{number:.10g}" for name, number in scaling._asdict().items()}
        said = (
            f"Slow pairs are slower here, as in Llama 3: θₙ is divided by {values['factor']} where a pair turns fewer "
            f"than {values['low']} times in {values['original_length']} tokens, not where it turns more than "
            f"{values['high']} times, and partly between."
        )
        notes.append(Note("scaling_said", said, values))
    steps.of_queries("rotated_queries", _turning(query, part=part), rotate(queries, rotation))
    steps.of_all("rotated_keys", _turning(key, part=part), rotate(keys, rotation), *notes)


def _turning(name: str, *, part: bool) -> str:
    turned = f"{name}[:R] cos(t θ)" if part else f"{name} cos(t θ)"
    formula = f"{turned} + (-{name}₂, {name}₁) sin(t θ)"
    return f"{name[0]}′ = ({formula}, {name}[R:])" if part else f"{name[0]}′ = {formula}"


def _add_scores(steps: HeadSteps, stages: Stages, product: str, root: str | None, window: int | None) -> None:
    """Add the steps from scores to weights; `product` is the formula of scores, `root` that of the divisor, if any."""
    scores, weights = stages.scores[0, steps.positions], stages.weights[0, steps.positions]
    steps.of_pairs("scores", product, scores)
    term, divisor = "s", stages.queries.shape[-1] ** 0.5
    if root is not None:
        term, scores = f"s / {root}", scores / divisor
        steps.of_pairs("divided", f"{term} = s / {divisor:.4g}", scores)
    masked = scores.masked_fill(causal_mask(len(steps.names), window=window)[steps.positions], -torch.inf)
    hidden = "j > i" if window is None else f"j > i, j ≤ i - {window}"
    steps.of_pairs("masked", f"m = {term}; {hidden}: -∞", masked)
    notes = [Note("places_said", "i: the position of the token that looks; j: of the token it looks at")]
    for name, row in zip(steps.query_names, weights, strict=True):
        notes.append(_largest("most_weight", f"{name} looks most at", name, row, steps.names))
    steps.of_pairs("weights", "w = exp(m) / Σ exp(m)", weights, *notes)


def _add_values(steps: HeadSteps, stages: Stages) -> None:
    """Add the steps of the weighted sum of the values; for a single query, also the terms of the sum."""
    weights, values = stages.weights[0, steps.positions], stages.values[0]
    if len(weights) == 1:
        steps.of_all("weighted_values", "wⱼ vⱼ", weights[..., None] * values)
    lengths = weights * values.norm(dim=1)  # of the terms wⱼ vⱼ, since no weight is negative
    named = zip(steps.query_names, lengths, strict=True)
    notes = [_largest("largest_parts", f"longest terms for {name}", name, row, steps.names) for name, row in named]
    steps.of_queries("head_output", "h = Σ wⱼ vⱼ", stages.heads, *notes)


def _add_outputs(steps: HeadSteps, block: Block, x: Tensor, mixed: Tensor) -> None:
    """Add the steps that project all heads' outputs, `mixed` [1, T, H K], and add them to the stream x [1, T, D]."""
    projection, last = block.attention.projection_layer, block.attention.num_heads - 1
    heads = ", ".join(dict.fromkeys(["h0", *(["..."] if last > 1 else []), f"h{last}"]))
    steps.of_queries("concatenated", f"hs = ({heads})", mixed)
    bias = " + b" if projection.bias is not None else ""
    attended = projection(mixed)
    steps.of_queries("projected", f"o = projection_layer hs{bias}", attended)
    notes = [Note("parallel_said", "The feed-forward part of this block reads x, not y.")] if block.parallel else []
    steps.of_queries("residual", "y = x + o", x + attended, *(notes if block.pre_norm else ()))
    if not block.pre_norm:
        steps.of_queries("normalised_after", _norm_formula(block.norm_1, "y"), block.norm_1(x + attended), *notes)


def _largest(key: str, beginning: str, query: str, numbers: Tensor, names: Sequence[str]) -> Note:
    """Return a note on the token `query`: `beginning`, then up to 3 tokens with the largest positive `numbers` [T]."""
    order = torch.argsort(numbers, descending=True, stable=True)[:_NUM_LARGEST].tolist()
    largest_pairs = [(position, float(numbers[position])) for position in order if numbers[position] > 0]
    text = ", ".join(f"{names[position]} {number:.4f}" for position, number in largest_pairs)
    largest = [{"place": position, "number": number} for position, number in largest_pairs]
    return Note(key, f"{beginning}: {text}", {"query": query, "list": text, "largest": largest})


def _norm_formula(norm: nn.Module, x: str = "x") -> str:
    """Return the formula of a norm of `x`, with the weight g and, if the norm has one, the bias b."""
    if isinstance(norm, nn.RMSNorm):
        return f"{x} / √(mean({x}²) + {norm.eps:g}) · g"
    assert isinstance(norm, nn.LayerNorm)
    bias = " + b" if norm.bias is not None else ""
    return f"({x} - mean({x})) / √(var({x}) + {norm.eps:g}) · g{bias}"


def _norm_note(norm: nn.Module) -> Note:
    """Return the note that explains g and b, the symbols of parameters in `_norm_formula`."""
    if dict(norm.named_parameters()).keys() >= {"bias"}:
        return Note("norm_bias_said", "g and b: the weights and the bias of the norm")
    return Note("norm_said", "g: the weights of the norm")


def _as_array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().cpu().numpy()
