"""Multi-head latent attention, which computes keys and values from one small, cached vector (latent) per token."""

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt_cli.model.attention import Projections, SelfAttention, score_scale
from gpt_cli.model.dropout import Dropout
from gpt_cli.model.positions import rotate


class LatentHead(nn.Module):
    """The projections of one head: W_UQ and W_QR for queries, W_UK for keys, W_UV for values.

    W_UQ, W_UK and W_UV project a latent up to K numbers, W_QR to `rotary_size` (0: no W_QR). If queries have no latent,
    W_UQ and W_QR read x.
    """

    def __init__(self, query_source: int, latent_size: int, rotary_size: int, head_size: int):
        super().__init__()
        self.W_UQ = nn.Linear(query_source, head_size, bias=False)
        self.W_QR = nn.Linear(query_source, rotary_size, bias=False) if rotary_size else None
        self.W_UK = nn.Linear(latent_size, head_size, bias=False)
        self.W_UV = nn.Linear(latent_size, head_size, bias=False)


class LatentAttention(SelfAttention):
    """Multi-head latent attention (MLA): [B, T, D] -> [B, T, D]. DeepSeek-AI 2024, section 2.1 (arXiv 2405.04434).

    The matrices have the names of the paper's equations 9 to 19. The latent c = W_DKV x has C = `latent_size` numbers
    per token. In each head, the key is W_UK c (width K) concatenated with rope(W_KR x) (width R = `rotary_size`), which
    all heads share; the value is W_UV c; the query is W_UQ d concatenated with rope(W_QR d), where d = W_DQ x has
    `query_latent_size` numbers (None: d = x). Scores are divided by sqrt(K + R). The projection layer is W_O. Unlike
    the paper's models, this class does not normalise latents, so C = D and R = 0 give multi-head attention.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        latent_size: int,
        dropout: float = 0.0,
        *,
        query_latent_size: int | None = None,
        rotary_size: int = 0,
        bias: bool = True,
        scaled: bool = True,
        head_size: int | None = None,
    ):
        super().__init__()
        K, C, R = head_size or d_model // num_heads, latent_size, rotary_size
        self.W_DKV = nn.Linear(d_model, C, bias=False)
        self.W_KR = nn.Linear(d_model, R, bias=False) if R else None
        self.W_DQ = nn.Linear(d_model, query_latent_size, bias=False) if query_latent_size else None
        heads = (LatentHead(query_latent_size or d_model, C, R, K) for _ in range(num_heads))
        self.heads = cast("Sequence[LatentHead]", nn.ModuleList(heads))
        self.num_heads = num_heads
        self.projection_layer = nn.Linear(num_heads * K, d_model, bias=bias)
        self.dropout = Dropout(dropout)
        self.scale = score_scale(K + R, scaled)

    def project_head(self, head: int, x: Tensor, rotation: Tensor | None) -> Projections:
        """Return a head's queries, keys [B, T, K + R], values [B, T, K]; `rotation` [2, T, R]: RoPE; None if R = 0."""
        weights = self.heads[head]
        latent, source = self.W_DKV(x), self.query_source(x)
        queries, keys = weights.W_UQ(source), weights.W_UK(latent)
        if weights.W_QR is not None and self.W_KR is not None:
            assert rotation is not None
            queries = torch.cat([queries, rotate(weights.W_QR(source), rotation)], dim=-1)
            keys = torch.cat([keys, rotate(self.W_KR(x), rotation)], dim=-1)
        return queries, keys, weights.W_UV(latent)

    def project(self, x: Tensor, rotation: Tensor | None, heads: Sequence[int] | None = None) -> Projections:
        """Compute queries and keys, [B, heads, T, K + rotary_size], and values, [B, heads, T, K]; `heads` None: all."""
        chosen = range(self.num_heads) if heads is None else heads
        # W_UK of all `chosen` heads, then W_UV: [2 x heads x K, latent_size]
        ups = torch.cat([getattr(self.heads[head], name).weight for name in ("W_UK", "W_UV") for head in chosen])
        keys, values = F.linear(self.W_DKV(x), ups).unflatten(2, (2, len(chosen), -1)).permute(2, 0, 3, 1, 4)
        queries = F.linear(self.query_source(x), self.query_weights(chosen))
        queries = queries.unflatten(2, (len(chosen), -1)).transpose(1, 2)
        if self.W_KR is None:
            return queries, keys, values
        assert rotation is not None
        K = keys.shape[-1]
        queries = torch.cat([queries[..., :K], rotate(queries[..., K:], rotation)], dim=-1)
        shared = rotate(self.W_KR(x)[:, None], rotation).expand(-1, len(chosen), -1, -1)
        return queries, torch.cat([keys, shared], dim=-1), values

    def query_source(self, x: Tensor) -> Tensor:
        """Return the input of the query matrices: the query latent W_DQ x, or x if queries have no latent."""
        return x if self.W_DQ is None else self.W_DQ(x)

    def query_weights(self, heads: Sequence[int]) -> Tensor:
        """Concatenate W_UQ and W_QR of `heads`, head by head: [heads x (K + rotary_size), query latent or D]."""
        parts = [part for head in heads for part in (self.heads[head].W_UQ, self.heads[head].W_QR)]
        return torch.cat([part.weight for part in parts if part is not None])
