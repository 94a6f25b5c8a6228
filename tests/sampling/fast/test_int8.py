import pytest
import torch
from support.helpers import small_config

from gpt_cli.model import GPT
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.fast.int8 import round_weights, rounding_bytes, to_int8
from gpt_cli.sampling.fast.matmul import Products


def test_a_row_is_rounded_to_its_own_scale() -> None:
    numbers, scales = to_int8(torch.tensor([[127.0, -63.6, 0.4], [0.0, 0.0, 0.0], [-254.0, 2.0, 3.1]]))
    assert numbers.tolist() == [[127, -64, 0], [0, 0, 0], [-127, 1, 2]]
    assert scales[[0, 2]].tolist() == [1, 2]


@torch.no_grad()
def test_decoding_with_int8_is_the_model_with_rounded_weights() -> None:
    for setting in ("tie_embeddings=false", "tie_embeddings=true", "attention=latent", "activation=swiglu"):
        config = small_config("model.d_model=64", f"model.{setting}").model
        model = GPT(config, 40, torch.Generator().manual_seed(0)).eval()
        for block in model.blocks:  # as large as the residual stream, so that an error shows
            for parameter in block.attention.parameters():
                parameter.mul_(5)
        ids = [[1, 2, 3, 4, 5, 6], [7, 8]]
        decoded = Decoder(model, int8=True).prefill(ids)
        plain = model.next_logits(torch.tensor(ids[:1]))[0]
        rounded = round_weights(model).next_logits(torch.tensor(ids[:1]))[0]
        assert not torch.equal(plain, rounded)
        # the rest is the rounding of products to bfloat16, and of a tied embedding, which decoding does not round
        assert (decoded[0] - rounded).abs().max() < 0.02 * rounded.abs().max()


def test_rounding_takes_two_copies_of_the_largest_matrix() -> None:
    """A tied embedding of 200 rows is the largest; where it is not tied, the output layer is."""
    for tied in ("true", "false"):
        config = small_config("model.d_model=16", f"model.tie_embeddings={tied}").model
        assert rounding_bytes(GPT(config, 200)) == 2 * 200 * 16 * 4


@pytest.mark.parametrize("width", [1, 6, 15, 16, 33, 40])
def test_products_may_have_any_width(width: int) -> None:
    """Also a width that is no multiple of the kernel's blocks."""
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(5, width, generator=generator), torch.randn(3, width, generator=generator)
    numbers, scales = to_int8(weight)
    expected = x.to(torch.bfloat16).float() @ (numbers * scales.float()[:, None]).T
    found = Products(torch.float32, int8=True).of(weight)(x.to(torch.bfloat16)).float()
    assert (found - expected).abs().max() < 0.01 * expected.abs().max()
