"""Direct logit attribution of one position, written to be read: the twin of what `gpt attn-dump` shows of each head."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gpt_cli.attention_maps.activations import head_results, walk
from gpt_cli.attention_maps.logit_attribution import Norm, centred, scale
from gpt_cli.model import GPT


@dataclass(frozen=True)
class Attribution:
    """What the parts of a model add to the logits at one position: `logits` [terms, V], a name for each term."""

    names: tuple[str, ...]
    logits: Tensor


@torch.no_grad()
def attribute(model: GPT, ids: Sequence[int], query: int) -> Attribution:
    """What each part adds to the logits of the token after position `query` of ids; their sum is these logits."""
    assert 0 <= query < len(ids)
    assert not model.training
    batch = torch.tensor([list(ids)[: query + 1]], device=model.token_embedding.weight.device)
    x, rotation = model.embed(batch)  # later tokens change nothing
    stream = _Stream(["embedding"], x[:, -1])
    for layer, made in enumerate(walk(model, x, rotation)):
        block, outputs, projection = made.block, made.heads, made.block.attention.projection_layer
        heads, before = range(block.attention.num_heads), stream.sum()
        stream.add([f"L{layer} H{head}" for head in heads], head_results(block, outputs[:, :, -1:], heads)[:, 0, 0])
        if projection.bias is not None:
            stream.add([f"L{layer} projection bias"], projection.bias[None])
        if not block.pre_norm:
            stream.normalise(block.norm_1, f"L{layer} norm 1 bias")
        seen = before if block.parallel else stream.sum()
        branch = block.norm_2(seen) if block.pre_norm else seen
        stream.add([f"L{layer} feed-forward"], block.feed_forward(branch)[None])
        if not block.pre_norm:
            stream.normalise(block.norm_2, f"L{layer} norm 2 bias")
    stream.normalise(model.final_norm, "final norm bias")
    return Attribution(tuple(stream.names), stream.terms @ model.output_weight.T)


class _Stream:
    """The residual stream at one position, as a sum of terms [terms, D]."""

    def __init__(self, names: list[str], terms: Tensor):
        self.names, self.terms = names, terms

    def add(self, names: list[str], terms: Tensor) -> None:
        self.names += names
        self.terms = torch.cat((self.terms, terms))

    def sum(self) -> Tensor:
        return self.terms.sum(0)

    def normalise(self, norm: Norm, bias_name: str) -> None:
        """Put each term through a norm; the bias becomes a term of its own."""
        self.terms = centred(norm, self.terms) * norm.weight * scale(norm, self.sum())
        if isinstance(norm, nn.LayerNorm) and norm.bias is not None:
            self.add([bias_name], norm.bias[None])
