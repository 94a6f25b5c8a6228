"""N-gram embeddings: the first block receives the previous tokens, so it need not learn to attend to them."""

from collections.abc import Iterator, Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt_cli.common.rng import signed

_MIXER = 0x9E3779B97F4A7C15 - (1 << 64)  # 2^64 / golden ratio, as a signed number (Knuth, vol. 3, section 6.4)


class NgramEmbedding(nn.Module):
    """Layer that adds to each token the embeddings of the n-grams that end there, n = 2..longest, then normalises.

    The table for each n has a row for each n-gram; if there are more than `num_rows` n-grams, a hash maps them to
    `num_rows` rows. modded-nanogpt has such tables for bigrams. In n-grams that begin before their text, the
    vocabulary's last id, which is end-of-text in the tokenizers of gpt, replaces the missing tokens.
    """

    def __init__(self, longest: int, num_rows: int, vocab_size: int, d_model: int):
        super().__init__()
        self.vocab_size = vocab_size
        sizes = [min(vocab_size**n, num_rows) for n in range(2, longest + 1)]
        tables = nn.ModuleList(nn.Embedding.from_pretrained(torch.zeros(size, d_model), freeze=False) for size in sizes)
        self.tables = cast("Sequence[nn.Embedding]", tables)

    def forward(self, x: Tensor, ids: Tensor, positions: Tensor | None = None) -> Tensor:
        """Add n-gram embeddings to x [B, T, D], then apply layer norm; `ids` [B, at least T] end with x's tokens.

        A text begins where `positions` is 0 (None: at the first id); no n-gram contains ids from before its text.
        """
        for table, rows in zip(self.tables, self.rows(ids, positions), strict=True):
            x = x + table(rows[:, -x.shape[1] :])
        return F.layer_norm(x, x.shape[-1:])

    def rows(self, ids: Tensor, positions: Tensor | None = None) -> Iterator[Tensor]:
        """Yield for each table the row numbers [B, T] of the n-grams that end at `ids`; position 0 begins a text."""
        code, earlier = ids, ids
        for n, table in enumerate(self.tables, start=2):
            earlier = torch.cat([torch.full_like(ids[:, :1], self.vocab_size - 1), earlier[:, :-1]], dim=1)
            if positions is not None:
                earlier = earlier.masked_fill(positions == 0, self.vocab_size - 1)
            # a hash may wrap beyond 64 bits
            code = code + earlier * signed(self.vocab_size ** (n - 1), 64)
            exact = table.num_embeddings == self.vocab_size**n
            yield code if exact else (code * _MIXER >> 32) % table.num_embeddings
