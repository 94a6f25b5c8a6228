from __future__ import annotations

import pytest
import torch
from support.attention import close, draw

from gpt_cli.model import GroupedQueryAttention, MultiHeadAttention
from gpt_cli.model.positions import RotaryPositions


def grouped(num_groups: int) -> GroupedQueryAttention:
    torch.manual_seed(0)
    return GroupedQueryAttention(24, 4, num_groups).double()


ROTATION = RotaryPositions(5, 6)(5).double()


def multi_head_of(ours: GroupedQueryAttention) -> MultiHeadAttention:
    """Multi-head attention whose heads have copies of the matrices of their groups."""
    plain = MultiHeadAttention(24, 4).double()
    with torch.no_grad():
        for number, head in enumerate(plain.heads):
            group = ours.group_of(number)
            for own, shared in ((head.Wq, ours.heads[number].Wq), (head.Wk, group.Wk), (head.Wv, group.Wv)):
                own.weight.copy_(shared.weight)
        plain.projection_layer.load_state_dict(ours.projection_layer.state_dict())
    return plain


@pytest.mark.parametrize("num_groups", [1, 2, 4])
@pytest.mark.parametrize("rotation", [None, ROTATION], ids=["plain", "turned"])
def test_it_is_multi_head_attention_whose_heads_share_matrices(num_groups: int, rotation: torch.Tensor | None) -> None:
    ours = grouped(num_groups)
    plain, x = multi_head_of(ours), draw(2, 5, 24)
    close(ours(x, rotation), plain(x, rotation))
    ours.fused = False
    close(ours(x, rotation), plain(x, rotation))


@pytest.mark.parametrize("num_groups", [1, 2, 4])
def test_gradients_of_a_group_are_the_sums_of_its_heads(num_groups: int) -> None:
    ours = grouped(num_groups)
    plain, x = multi_head_of(ours), draw(2, 5, 24)
    for attention in (ours, plain):
        attention(x, ROTATION).square().sum().backward()
    size = 4 // num_groups
    for number, group in enumerate(ours.groups):
        for name in ("Wk", "Wv"):
            of_heads = [getattr(head, name).weight.grad for head in list(plain.heads)[number * size :][:size]]
            close(getattr(group, name).weight.grad, torch.stack(of_heads).sum(0))


def test_heads_of_one_group_share_keys_and_values_and_those_of_another_do_not() -> None:
    stages = grouped(2).stages(draw(1, 5, 24), None, heads=[0, 1, 2, 3])
    for part in (stages.keys, stages.values):
        close(part[:, 0], part[:, 1])
        close(part[:, 2], part[:, 3])
        assert not torch.allclose(part[:, 1], part[:, 2])
    assert not torch.allclose(stages.queries[:, 0], stages.queries[:, 1])


def test_scores_are_divided_by_the_root_of_the_head_size_or_by_nothing() -> None:
    x = draw(1, 5, 24)
    for scaled, divisor in ((True, 6**0.5), (False, 1)):
        torch.manual_seed(0)
        for ours in (GroupedQueryAttention(24, 4, 2, scaled=scaled), MultiHeadAttention(24, 4, scaled=scaled)):
            stages = ours.double().stages(x, None, [1])
            hidden = torch.ones(5, 5).triu(1).bool()
            close(stages.weights, (stages.scores / divisor).masked_fill(hidden, -torch.inf).softmax(-1))
            fused = ours(x)
            ours.fused = False
            close(ours(x), fused)


def test_it_has_keys_and_values_for_its_groups_only() -> None:
    assert [name for name, _ in grouped(1).named_parameters()] == [
        *(f"heads.{number}.Wq.weight" for number in range(4)),
        "groups.0.Wk.weight",
        "groups.0.Wv.weight",
        "projection_layer.weight",
        "projection_layer.bias",
    ]
