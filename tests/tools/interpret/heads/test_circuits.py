"""Composition of heads and their singular directions, beside plain products of D x D matrices."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from support.circuit import INDUCTION, LENGTH, PREVIOUS, VOCAB_SIZE, two_head_circuit
from support.forms import UNHEARD_OF, register
from support.heads import SOME_FORMS
from support.helpers import sharp_model, small_config
from torch import Tensor, nn

from gpt_cli.errors import CheckpointError, UsageError
from gpt_cli.model import GPT
from gpt_cli.tools.interpret.heads.circuits import DIRECTIONS, KINDS, baseline, composition, directions

V, D = 11, 16
THREE = "model.num_blocks=3"
CLOSE: Any = {"rtol": 1e-10, "atol": 1e-12}


def linear_part(norm: nn.Module) -> Tensor:
    """What a norm does, but for its scale and its bias, as a matrix [D, D]."""
    gain = torch.diag(dict(norm.named_parameters())["weight"].detach())
    return gain if isinstance(norm, nn.RMSNorm) else gain @ (torch.eye(D) - torch.ones(D, D) / D).double()


@torch.no_grad()
def plain(model: GPT, layer: int, head: int) -> tuple[Tensor, Tensor]:
    """QK and OV of a head as D x D matrices, from what its own code makes of the unit vectors at position 0."""
    block, config = model.blocks[layer], model.config
    attention = deepcopy(block.attention)
    for name, parameter in attention.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
    gains = torch.ones(()), torch.ones(())
    if attention.query_norm is not None and attention.key_norm is not None:
        gains = attention.query_norm.weight, attention.key_norm.weight
        attention.query_norm = attention.key_norm = None
    R = config.rotated_size
    rotation = torch.stack((torch.ones(D, R), torch.zeros(D, R))).double() if R else None
    queries, keys, values = (found[0] for found in attention.project_head(head, torch.eye(D).double()[None], rotation))
    columns = attention.projection_layer.weight.unflatten(1, (config.num_heads, -1))[:, head]
    QK, OV = attention.scale * (queries * gains[0]) @ (keys * gains[1]).T, columns @ values.T
    if not block.pre_norm:
        return QK, OV
    norm = linear_part(block.norm_1)
    return norm.T @ QK @ norm, OV @ norm


def path(model: GPT, below: int, layer: int) -> Tensor:
    """What norms between two layers make of what the lower one writes, [D, D]."""
    found = torch.eye(D).double()
    for block in model.blocks[below:layer]:
        if not block.pre_norm:
            found = linear_part(block.norm_2) @ linear_part(block.norm_1) @ found
    return found


@pytest.mark.parametrize("settings", SOME_FORMS)
def test_scores_are_those_of_products_of_whole_matrices(settings: str) -> None:
    model = sharp_model(V, *settings.split(), THREE)
    heads = range(model.config.num_heads)
    found = {(below, layer): scores for below, layer, scores in composition(model, range(3), heads, lambda _: None)}
    assert [*found] == [(0, 1), (1, 2), (0, 2)]
    for layer in (1, 2):
        for head in heads:
            QK, OV = plain(model, layer, head)
            for below in range(layer):
                for other in heads:
                    _, written = plain(model, below, other)
                    way = path(model, below, layer)
                    for kind, matrix in enumerate((QK.T, QK, OV)):
                        whole = matrix @ way
                        expected = (whole @ written).norm() / (whole.norm() * written.norm())
                        assert 0 < expected < 1
                        torch.testing.assert_close(found[below, layer][kind, head, other], expected, **CLOSE)


@pytest.mark.parametrize("settings", SOME_FORMS)
def test_directions_are_those_of_the_svd_of_whole_matrices(settings: str) -> None:
    model = sharp_model(V, *settings.split(), THREE)
    E, U = model.token_embedding.weight.detach(), model.output_weight.detach()
    for layer in (0, 2):
        before = path(model, 0, layer)
        after = linear_part(model.final_norm) @ path(model, layer, 3)
        for head, (ov, qk) in enumerate(directions(model, layer, range(model.config.num_heads))):
            QK, OV = plain(model, layer, head)
            QK, OV = before.T @ QK @ before, OV @ before
            for found, matrix, first, second in (
                (ov, OV.T, E, (U - U.mean(0)) @ after),  # its left vectors are read
                (qk, QK, E, E),
            ):
                left, values, right = torch.linalg.svd(matrix)
                assert len(found) == DIRECTIONS
                for n, each in enumerate(found):
                    assert each.singular_value == pytest.approx(values[n].item(), rel=1e-9)
                    read, written = first @ left[:, n], second @ right[n]
                    sign = 1 if read.abs().max() == read.max() else -1
                    torch.testing.assert_close(each.first, sign * read, rtol=1e-6, atol=1e-8)
                    torch.testing.assert_close(each.second, sign * written, rtol=1e-6, atol=1e-8)
                    assert each.first.abs().max() == each.first.max()


def test_the_baseline_is_the_root_of_the_mean_square_over_random_rotations() -> None:
    """Of matrices with any spectrum; sampled with 20,000 turns, whose mean square is within 3 % of 1 / D."""
    draw = torch.Generator().manual_seed(3)
    size, rank = 6, 2
    A, B = (torch.randn(size, rank, generator=draw) @ torch.randn(rank, size, generator=draw) for _ in range(2))
    turns, root = torch.linalg.qr(torch.randn(20_000, size, size, generator=draw))
    turns = turns * root.diagonal(dim1=1, dim2=2).sign()[:, None]  # even over all rotations
    squares = (A @ turns @ B).square().sum((1, 2)) / (A.norm() * B.norm()) ** 2
    assert squares.mean().sqrt().item() == pytest.approx(baseline(size), rel=0.03)


def test_only_the_chosen_layers_and_heads_are_paired() -> None:
    model = sharp_model(V, THREE)
    every = {(below, layer): scores for below, layer, scores in composition(model, range(3), range(2), lambda _: None)}
    done = list[int]()
    ((below, layer, scores),) = composition(model, [0, 2], [1], done.append)
    assert (below, layer) == (0, 2)
    torch.testing.assert_close(scores, every[0, 2][:, 1:, 1:], **CLOSE)
    assert sum(done) == 1


def test_a_previous_token_head_and_an_induction_head_compose_by_keys() -> None:
    """By as much as eight equal directions can, 1 / sqrt(8); heads of other parts of the stream do not."""
    model = two_head_circuit()
    ((_, _, scores),) = composition(model, [0, 1], [0, 1], lambda _: None)
    assert KINDS[1] == "K"
    assert scores[1, INDUCTION[1], PREVIOUS[1]].item() == pytest.approx(VOCAB_SIZE**-0.5)
    assert scores.count_nonzero() == 1
    (ov, qk), _ = directions(model, 1, [0, 1])
    copied = ov[0]
    assert copied.first.argmax() == copied.second.argmax(), "it writes the token that it reads"
    assert [each.singular_value for each in qk] == pytest.approx([400 / LENGTH**0.5] * 3), "divided by the root of K"


def test_a_head_that_writes_nothing_composes_with_none() -> None:
    model = sharp_model(V)
    with torch.no_grad():
        model.blocks[0].attention.projection_layer.weight[:, :8] = 0
    ((_, _, scores),) = composition(model, [0, 1], [0, 1], lambda _: None)
    assert (scores[:, :, 0] == 0).all()
    assert (scores[:, :, 1] > 0).all()


def test_weights_that_are_not_finite_are_refused() -> None:
    model = sharp_model(V)
    with torch.no_grad():
        model.blocks[0].attention.projection_layer.weight[0, 0] = torch.nan
    with pytest.raises(CheckpointError, match="composition scores"):
        list(composition(model, [0, 1], [0, 1], lambda _: None))
    with pytest.raises(CheckpointError, match="matrices of heads"):
        list(directions(model, 0, [0]))


def test_a_form_that_nobody_wrote_this_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch)
    model = GPT(small_config().model.changed(attention=UNHEARD_OF), V)
    with pytest.raises(UsageError, match="gpt heads --circuits does not support the form UnheardOf"):
        list(composition(model, [0, 1], [0], lambda _: None))
