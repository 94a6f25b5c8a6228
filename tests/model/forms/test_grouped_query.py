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
