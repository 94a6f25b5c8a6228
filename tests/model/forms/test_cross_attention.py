import pytest
import torch
from support.attention import close, draw
from torch import nn

from gpt_cli.model import CrossAttention, MultiHeadAttention
from gpt_cli.model.attention import causal_mask
from gpt_cli.model.forms.cross_attention import masked_weights, padding_mask

IDS = torch.tensor([[5, 2, 1, 0, 0], [1, 3, 1, 4, 0]])


def attention(d_model: int = 8, num_heads: int = 2) -> CrossAttention:
    torch.manual_seed(0)
    return CrossAttention(d_model, num_heads).double()


@pytest.mark.parametrize("masked", [False, True])
def test_it_agrees_with_the_attention_of_torch(masked: bool) -> None:
    """With the same matrices, in output, weights and gradients."""
    ours, query, key, value = attention(), draw(2, 3, 8), draw(2, 5, 8), draw(2, 5, 8) + 1
    theirs = nn.MultiheadAttention(8, 2, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([getattr(h, n).weight for n in ("Wq", "Wk", "Wv") for h in ours.heads]))
        theirs.in_proj_bias.zero_()
        theirs.out_proj.load_state_dict(ours.projection_layer.state_dict())
    padding = (IDS == 0) if masked else None
    inputs = [one.requires_grad_() for one in (query, key, value)]
    expected, weights = theirs(query, key, value, key_padding_mask=padding, average_attn_weights=False)
    found = ours(query, key, value, padding_mask(IDS, 0) if masked else None)
    close(found, expected)
    close(ours.weights(query, key, padding_mask(IDS, 0) if masked else None), weights)
    gradients = (torch.autograd.grad(out.square().sum(), inputs) for out in (found, expected))
    for one, other in zip(*gradients, strict=True):
        close(one, other)


def test_with_a_causal_mask_it_is_the_attention_of_the_model() -> None:
    ours, x = attention(), draw(2, 5, 8)
    model = MultiHeadAttention(8, 2).double().eval()
    model.load_state_dict(ours.state_dict())
    close(ours(x, x, x, causal_mask(5)), model(x))


def test_a_row_without_visible_keys_is_zero_in_value_and_gradient() -> None:
    scores = draw(1, 3, 4).requires_grad_()
    mask = torch.zeros(1, 3, 4, dtype=torch.bool)
    mask[0, 1] = True
    weights = masked_weights(scores, mask, 1 / 2)
    assert weights[0, 1].tolist() == [0, 0, 0, 0]
    (gradient,) = torch.autograd.grad((weights * draw(1, 3, 4)).sum(), scores)
    assert gradient[0, 1].tolist() == [0, 0, 0, 0]
    assert gradient.isfinite().all()
    close(weights[0, 0], (scores[0, 0] / 2).softmax(-1))


def test_dropout_acts_in_training_only() -> None:
    torch.manual_seed(0)
    ours, x = CrossAttention(8, 2, dropout=0.5).double(), draw(1, 4, 8)
    assert not torch.equal(ours(x, x, x), ours(x, x, x))
    assert torch.equal(ours.eval()(x, x, x), ours(x, x, x))
