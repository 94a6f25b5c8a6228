import pytest
import torch
from torch import Tensor, nn

from gpt_cli.training.muon import MOMENTUM, Muon, orthogonalise

GENERATOR = torch.Generator().manual_seed(0)


def plain_orthogonalise(matrix: Tensor) -> Tensor:
    """The iteration of Jordan et al. 2024, one matrix by itself."""
    x = matrix / matrix.norm()
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x


def plain_steps(name: str, weight: Tensor, gradients: list[Tensor], rate: float, decay: float) -> Tensor:
    """One matrix by itself, its squares one after another."""
    weight, momentum = weight.clone(), torch.zeros_like(weight)
    for gradient in gradients:
        momentum = MOMENTUM * momentum + (1 - MOMENTUM) * gradient
        direction = MOMENTUM * momentum + (1 - MOMENTUM) * gradient
        rows, columns = weight.shape
        if rows > columns and "feed_forward" not in name:
            step = plain_orthogonalise(direction.T).T
        elif "odd" in name:
            step = torch.cat([plain_orthogonalise(part) for part in direction.split([5, 4], dim=1)], dim=1)
        elif "feed_forward" in name and rows > columns:
            step = torch.cat([plain_orthogonalise(part) for part in direction.split(columns)])
        elif "feed_forward" in name:
            step = torch.cat([plain_orthogonalise(part) for part in direction.split(rows, dim=1)], dim=1)
        else:
            step = plain_orthogonalise(direction)
        weight = weight * (1 - rate * decay) - rate * step
    return weight


def test_singular_values_come_near_one_and_singular_vectors_stay() -> None:
    matrices = torch.randn(3, 4, 6, generator=GENERATOR, dtype=torch.float64)
    found = orthogonalise(matrices, torch.float64)
    for before, after in zip(matrices, found, strict=True):
        u, _, v = torch.linalg.svd(before, full_matrices=False)
        values = u.T @ after @ v.T
        assert values.diagonal().min() > 0.6
        assert values.diagonal().max() < 1.3
        torch.testing.assert_close(values, values.diagonal().diag(), rtol=0, atol=1e-9)


def test_a_gradient_of_zero_moves_nothing() -> None:
    assert torch.equal(orthogonalise(torch.zeros(1, 2, 2), torch.float32), torch.zeros(1, 2, 2))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.bfloat16, 0.1)])
def test_all_matrices_at_once_step_as_each_by_itself(dtype: torch.dtype, tolerance: float) -> None:
    shapes = {
        "blocks.0.attention.heads.0.Wq.weight": (2, 4),
        "blocks.0.attention.heads.0.W_UK.weight": (4, 3),
        "blocks.0.attention.projection_layer.weight": (4, 4),
        "blocks.0.feed_forward.odd.weight": (4, 9),
        "blocks.0.feed_forward.expand.weight": (16, 4),
        "blocks.0.attention.heads.1.Wq.weight": (2, 4),
        "blocks.0.feed_forward.contract.weight": (4, 16),
    }
    weights = {n: torch.randn(s, generator=GENERATOR, dtype=torch.float64) for n, s in shapes.items()}
    gradients = {
        n: [torch.randn(s, generator=GENERATOR, dtype=torch.float64) for _ in range(3)] for n, s in shapes.items()
    }
    parameters = {name: nn.Parameter(weight.clone()) for name, weight in weights.items()}
    muon = Muon(parameters, 0.2, dtype)
    for step in range(3):
        for name, parameter in parameters.items():
            parameter.grad = gradients[name][step].clone()
        muon.step(0.1)
    for name, parameter in parameters.items():
        expected = plain_steps(name, weights[name], gradients[name], 0.1, 0.2)
        torch.testing.assert_close(parameter.detach(), expected, rtol=0, atol=tolerance)
        assert not torch.allclose(expected, weights[name], atol=0.1)


def test_a_rate_on_the_device_gives_the_bits_of_the_same_number() -> None:
    """Though 0.02 times a step has to be rounded: a recorded step reads its rate from a tensor."""
    rate, weights = torch.tensor(0.02), []
    for learning_rate in (rate, float(rate)):
        generator = torch.Generator().manual_seed(1)
        parameter = nn.Parameter(torch.randn(8, 8, generator=generator))
        muon = Muon({"blocks.0.attention.projection_layer.weight": parameter}, 0.0, torch.float32)
        for _ in range(3):
            parameter.grad = torch.randn(8, 8, generator=generator)
            muon.step(learning_rate)
        weights.append(parameter.detach())
    assert torch.equal(*weights)
