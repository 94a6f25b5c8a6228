from __future__ import annotations

import pytest
import torch

from gpt_cli.model import LatentAttention, LatentSizes, MultiHeadAttention
from gpt_cli.model.positions import RotaryPositions, rotate


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def latent(sizes: LatentSizes, dropout: float = 0.0, *, scaled: bool = True) -> LatentAttention:
    torch.manual_seed(0)
    return LatentAttention(24, 4, sizes, dropout, scaled=scaled).double()


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


ROTATION = RotaryPositions(5, 4)(5).double()
SIZES = {
    "plain": LatentSizes(10),
    "turned": LatentSizes(10, rotary_size=4),
    "query latent": LatentSizes(10, query_latent_size=7),
    "both": LatentSizes(30, query_latent_size=7, rotary_size=4),
}


def rotation_of(sizes: LatentSizes) -> torch.Tensor | None:
    return ROTATION if sizes.rotary_size else None


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
    ours = latent(LatentSizes(24, query_latent_size))
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
    # and of those matrices that are products, by the chain rule
    down_gradients = {"W_DKV": torch.zeros(24, 24).double(), "W_DQ": torch.zeros(24, 24).double()}
    for head, own in zip(plain.heads, ours.heads, strict=True):
        for whole, up, down in (
            (head.Wk, own.W_UK, "W_DKV"),
            (head.Wv, own.W_UV, "W_DKV"),
            (head.Wq, own.W_UQ, "W_DQ"),
        ):
            assert whole.weight.grad is not None
            below = getattr(ours, down)
            expected = whole.weight.grad if below is None else whole.weight.grad @ below.weight.T
            torch.testing.assert_close(up.weight.grad, expected, rtol=1e-11, atol=1e-11)
            down_gradients[down] += up.weight.detach().T @ whole.weight.grad
    for name, expected in down_gradients.items():
        if (below := getattr(ours, name)) is not None:
            torch.testing.assert_close(below.weight.grad, expected, rtol=1e-11, atol=1e-11)


def test_any_multi_head_attention_has_an_equal_of_full_rank() -> None:
    torch.manual_seed(1)
    plain, ours = MultiHeadAttention(24, 4).double(), latent(LatentSizes(24))
    with torch.no_grad():
        ours.W_DKV.weight.copy_(torch.eye(24))
        for head, own in zip(plain.heads, ours.heads, strict=True):
            for source, target in ((head.Wq, own.W_UQ), (head.Wk, own.W_UK), (head.Wv, own.W_UV)):
                target.weight.copy_(source.weight)
        ours.projection_layer.load_state_dict(plain.projection_layer.state_dict())
    x = draw(2, 5, 24)
    close(ours(x), plain(x))


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
@pytest.mark.parametrize("keep", [None, draw(2, 4, 5, 5, seed=1) > 0], ids=["all", "dropout"])
def test_fused_is_per_head_in_values_and_gradients(sizes: LatentSizes, keep: torch.Tensor | None) -> None:
    ours, x = latent(sizes, dropout=0.5 if keep is not None else 0.0), draw(2, 5, 24)
    found = []
    for fused in (True, False):
        ours.zero_grad()
        ours.fused = fused
        output = ours(x, rotation_of(sizes), keep)
        output.square().sum().backward()
        gradients = [parameter.grad.clone() for parameter in ours.parameters() if parameter.grad is not None]
        assert len(gradients) == len(list(ours.parameters()))
        found.append([output.detach(), *gradients])
    for one, other in zip(*found, strict=True):
        close(one, other)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_stages_of_chosen_heads_are_those_of_each(sizes: LatentSizes) -> None:
    ours, x = latent(sizes), draw(2, 5, 24)
    chosen = ours.stages(x, rotation_of(sizes), heads=[3, 0])
    for place, number in enumerate([3, 0]):
        for stage, found in ours.head_stages(number, x, rotation_of(sizes))._asdict().items():
            close(getattr(chosen, stage)[:, place], found)


def test_a_head_is_the_paper_s_equations() -> None:
    """DeepSeek-AI 2024, equations 9 to 18, with the names of their matrices."""
    ours, h = latent(SIZES["both"]), draw(1, 5, 24)
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


def test_values_and_what_does_not_turn_know_no_position() -> None:
    """The same token everywhere: only the rotary parts of queries and keys differ from place to place."""
    sizes = SIZES["turned"]
    stages = latent(sizes).stages(draw(1, 1, 24).expand(1, 5, 24), ROTATION, range(4))
    close(stages.values, stages.values[:, :, :1].expand_as(stages.values))
    for part in (stages.queries, stages.keys):
        still = part[..., :6]
        close(still, still[:, :, :1].expand_as(still))
        assert not torch.allclose(part[:, :, 0, 6:], part[:, :, 1, 6:])


def test_all_heads_share_the_rotary_key() -> None:
    keys = latent(SIZES["turned"]).stages(draw(1, 5, 24), ROTATION, range(4)).keys
    close(keys[:, :, :, 6:], keys[:, :1, :, 6:].expand(1, 4, 5, 4))


def test_scores_are_divided_by_the_root_of_the_whole_width_or_by_nothing() -> None:
    x = draw(1, 5, 24)
    for scaled, divisor in ((True, (6 + 4) ** 0.5), (False, 1)):
        stages = latent(SIZES["turned"], scaled=scaled).stages(x, ROTATION, [0])
        expected = (stages.scores / divisor).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf).softmax(-1)
        close(stages.weights, expected)


def test_it_has_the_parameters_of_the_paper_by_name() -> None:
    shapes = {name: tuple(parameter.shape) for name, parameter in latent(SIZES["both"]).named_parameters()}
    of_heads = {"W_UQ": (6, 7), "W_QR": (4, 7), "W_UK": (6, 30), "W_UV": (6, 30)}
    assert shapes == {
        "W_DKV.weight": (30, 24),
        "W_KR.weight": (4, 24),
        "W_DQ.weight": (7, 24),
        **{f"heads.{number}.{name}.weight": shape for number in range(4) for name, shape in of_heads.items()},
        "projection_layer.weight": (24, 24),
        "projection_layer.bias": (24,),
    }
    plain = {name.split(".")[-2] for name, _ in latent(SIZES["plain"]).named_parameters()}
    assert plain == {"W_DKV", "W_UQ", "W_UK", "W_UV", "projection_layer"}
