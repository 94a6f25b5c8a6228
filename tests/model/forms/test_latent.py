import pytest
import torch
from support.attention import close, draw

from gpt_cli.model import LatentAttention, MultiHeadAttention
from gpt_cli.model.positions import RotaryPositions, rotate


def latent(C: int, query_latent_size: int | None = None, R: int = 0) -> LatentAttention:
    torch.manual_seed(0)
    return LatentAttention(24, 4, C, query_latent_size=query_latent_size, rotary_size=R).double()


ROTATION = RotaryPositions(5, 4)(5).double()
BOTH = 30, 7, 4


def multi_head_of(ours: LatentAttention) -> MultiHeadAttention:
    """Multi-head attention with the products of the matrices of latent attention without a rotary part."""
    plain = MultiHeadAttention(24, 4).double()
    with torch.no_grad():
        for head, own in zip(plain.heads, ours.heads, strict=True):
            Wq = own.W_UQ.weight if ours.W_DQ is None else own.W_UQ.weight @ ours.W_DQ.weight
            head.Wq.weight.copy_(Wq)
            head.Wk.weight.copy_(own.W_UK.weight @ ours.W_DKV.weight)
            head.Wv.weight.copy_(own.W_UV.weight @ ours.W_DKV.weight)
        plain.projection_layer.load_state_dict(ours.projection_layer.state_dict())
    return plain


@pytest.mark.parametrize("query_latent_size", [None, 24])
def test_full_rank_without_a_rotary_part_is_multi_head_attention(query_latent_size: int | None) -> None:
    """In values, and in the gradients of everything that both have: the input and the projection layer."""
    ours = latent(24, query_latent_size)
    plain = multi_head_of(ours)
    found = []
    for attention in (ours, plain):
        x = draw(2, 5, 24).requires_grad_()
        output = attention(x)
        output.square().sum().backward()
        assert x.grad is not None
        assert attention.projection_layer.weight.grad is not None
        found.append((output, x.grad, attention.projection_layer.weight.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


def test_a_head_is_the_paper_s_equations() -> None:
    """DeepSeek-AI 2024, equations 9 to 18, with the names of their matrices."""
    ours, h = latent(*BOTH), draw(1, 5, 24)
    assert ours.W_DQ is not None
    assert ours.W_KR is not None
    head = ours.heads[2]
    assert head.W_QR is not None
    c_kv, c_q = h @ ours.W_DKV.weight.T, h @ ours.W_DQ.weight.T
    k_r, q_r = rotate(h @ ours.W_KR.weight.T, ROTATION), rotate(c_q @ head.W_QR.weight.T, ROTATION)
    q = torch.cat([c_q @ head.W_UQ.weight.T, q_r], dim=-1)
    k = torch.cat([c_kv @ head.W_UK.weight.T, k_r], dim=-1)
    scores = q @ k.mT / (6 + 4) ** 0.5
    weights = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf).softmax(-1)
    stages = ours.stages(h, ROTATION, [2])
    close(stages.weights[:, 0], weights)
    close(stages.heads[:, 0], weights @ (c_kv @ head.W_UV.weight.T))
