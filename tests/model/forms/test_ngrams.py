import torch
import torch.nn.functional as F

from gpt_cli.config import ModelConfig
from gpt_cli.model import GPT
from gpt_cli.model.forms.ngrams import NgramEmbedding

V, D = 5, 4


def filled(longest: int, num_rows: int) -> NgramEmbedding:
    embedding = NgramEmbedding(longest, num_rows, V, D).double()
    with torch.no_grad():
        for number, table in enumerate(embedding.tables):
            table.weight.copy_(torch.randn(table.weight.shape, generator=torch.Generator().manual_seed(number)))
    return embedding


def test_each_ngram_has_its_own_row_if_there_are_enough() -> None:
    embedding = filled(3, 125)
    assert [table.num_embeddings for table in embedding.tables] == [25, 125]
    ids, x = torch.tensor([[1, 2, 3]]), torch.ones(1, 3, D, dtype=torch.float64)
    pairs, triples = (table.weight for table in embedding.tables)
    # the first token follows the last of the vocabulary, 4
    expected = [
        pairs[4 * 5 + 1] + triples[4 * 25 + 4 * 5 + 1],
        pairs[1 * 5 + 2] + triples[4 * 25 + 1 * 5 + 2],
        pairs[2 * 5 + 3] + triples[1 * 25 + 2 * 5 + 3],
    ]
    expected = F.layer_norm(1 + torch.stack(expected), (D,))
    torch.testing.assert_close(embedding(x, ids)[0], expected)


def test_more_ngrams_than_rows_share_them_evenly() -> None:
    embedding = NgramEmbedding(4, 64, V, D)
    assert [table.num_embeddings for table in embedding.tables] == [25, 64, 64]
    ids = torch.cartesian_prod(*[torch.arange(V)] * 4)
    *_, rows = embedding.rows(ids)
    counts = rows[:, -1].bincount(minlength=64)  # of 625 n-grams, so 9.8 a row
    assert len(counts) == 64
    assert counts.min() >= 4
    assert counts.max() <= 20


def test_long_ngrams_of_a_large_vocabulary_wrap_into_the_table() -> None:
    embedding = NgramEmbedding(8, 16, 200_000, D)
    ids = torch.randint(200_000, (2, 9), generator=torch.Generator().manual_seed(0))
    assert embedding(torch.zeros(2, 9, D), ids).shape == (2, 9, D)


def test_a_model_starts_with_empty_tables_and_learns_the_rows_of_its_text() -> None:
    config = ModelConfig(context_length=8, d_model=8, num_heads=2, num_blocks=1, ngram_embedding=2)
    model = GPT(config, V, torch.Generator().manual_seed(0))
    plain = GPT(config.changed(ngram_embedding=None), V, torch.Generator().manual_seed(0))
    # no table draws first weights, so that all others are those of a model without
    for name, tensor in plain.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor)
    assert model.ngram_embedding is not None
    (table,) = model.ngram_embedding.tables
    assert not table.weight.any()
    model(torch.tensor([[1, 2]])).square().sum().backward()
    assert table.weight.grad is not None
    assert table.weight.grad.abs().sum(dim=1).nonzero().flatten().tolist() == [1 * V + 2, 4 * V + 1]
