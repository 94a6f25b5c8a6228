import functools
import math
import shutil
import traceback
from pathlib import Path

import numpy as np
import pytest
import torch
from support.attention import by_products
from torch import Tensor

import gpt_cli.model
from gpt_cli.config import ModelConfig
from gpt_cli.model import GPT
from gpt_cli.model.dropout import DropMasks, drop_keys, key_halves

VOCAB = 17
MODEL_FILES = Path(gpt_cli.model.__file__).parent


def make(**choices: object) -> GPT:
    sizes: dict[str, object] = {"context_length": 8, "d_model": 24, "num_heads": 3, "num_blocks": 2, "dropout": 0.3}
    return GPT(ModelConfig.model_validate(sizes | choices), VOCAB, torch.Generator().manual_seed(0))


def ids(batch: int = 2, length: int = 8) -> Tensor:
    return torch.randint(VOCAB, (batch, length), generator=torch.Generator().manual_seed(1))


def outputs_and_gradients(model: GPT, masks: DropMasks | None) -> list[Tensor]:
    model.zero_grad()
    logits = model(ids(), masks)
    logits.square().mean().backward()
    gradients = (parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None)
    return [logits.detach(), *gradients]


@pytest.mark.parametrize(
    "form", [{"attention": "multi_head"}, {"attention": "grouped_query", "num_key_value_heads": 1, "positions": "rope"}]
)
def test_biases_of_queries_keys_and_values_are_parameters_that_begin_at_zero(form: dict[str, object]) -> None:
    plain, model = make(**form).eval(), make(**form, qkv_bias=True).eval()
    assert torch.equal(model(ids()), plain(ids())), "the same weights are drawn, and the biases are zero"
    biases = {name: p for name, p in model.named_parameters() if name.endswith(("Wq.bias", "Wk.bias", "Wv.bias"))}
    assert len(biases) == len(list(model.parameters())) - len(list(plain.parameters()))
    assert all(bias.shape == (8,) and not bias.any() for bias in biases.values())


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "separate"])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rope", "none"])
def test_no_token_sees_the_future(positions: str, fused: bool) -> None:
    """The gradient of the prediction at t is zero for later embeddings, and not zero for earlier ones."""
    model = make(positions=positions).eval().use_fused(fused)
    embedded: list[Tensor] = []
    model.token_embedding.register_forward_hook(lambda *call: (call[2].retain_grad(), embedded.append(call[2]))[0])
    model(ids(1))[0, 4].square().sum().backward()
    assert embedded[0].grad is not None
    by_token = embedded[0].grad[0].abs().sum(-1)
    assert (by_token[5:] == 0).all()
    assert (by_token[:5] > 0).all()


def test_without_positions_the_tokens_before_the_last_may_change_places_in_one_layer() -> None:
    """Both orders give the same sums. Positions change them; so do more layers, which read the order from the mask."""
    for positions, same in (("none", True), ("rope", False), ("learned", False)):
        model = make(positions=positions, num_blocks=1).double().eval()
        one, other = (model.next_logits(torch.tensor([order])) for order in ([1, 2, 3, 4], [3, 1, 2, 4]))
        assert torch.allclose(one, other, rtol=0, atol=1e-12) == same
    deep = make(positions="none", num_blocks=2).double().eval()
    one, other = (deep.next_logits(torch.tensor([order])) for order in ([1, 2, 3, 4], [3, 1, 2, 4]))
    assert not torch.allclose(one, other, rtol=0, atol=1e-9)


def test_attention_weights_have_a_row_for_each_token_and_follow_the_selection() -> None:
    model = make().double().eval()
    weights = model.attention_weights(ids())
    assert weights.shape == (2, 2, 3, 8, 8)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 3, 8, dtype=torch.float64))
    assert (weights.triu(1) == 0).all()
    assert torch.equal(model.attention_weights(ids(), layers=[1], heads=[2, 0]), weights[1:, :, [2, 0]])
    assert not weights.requires_grad


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"layers": []}, "choose at least one layer"),
        ({"layers": [2]}, "choose from layers 0 to 1"),
        ({"layers": [-1]}, "choose from layers 0 to 1"),
        ({"heads": []}, "choose at least one head"),
    ],
)
def test_a_selection_without_attention_is_named(chosen: dict[str, list[int]], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        make().attention_weights(ids(), **chosen)


def test_attention_weights_are_those_without_dropout_in_training_too() -> None:
    model = make(dropout=0.5, num_blocks=3).train()
    seen, chosen = (model.attention_weights(ids(), heads=heads) for heads in (None, [2, 0]))
    last = model.attention_weights(ids(), layers=[2])
    assert all(part.training for part in model.modules()), "the mode stays"
    expected = model.eval().attention_weights(ids())
    assert torch.equal(seen, expected)
    torch.testing.assert_close(chosen, expected[:, :, [2, 0]])
    torch.testing.assert_close(last, expected[2:])


def test_the_model_runs_no_further_than_the_last_chosen_layer() -> None:
    model = make().eval()
    ran: list[int] = []
    model.blocks[1].register_forward_hook(lambda *_: ran.append(1))
    model.attention_weights(ids(), layers=[0])
    assert ran == []


def test_the_first_loss_is_near_that_of_guessing() -> None:
    model = make(d_model=96).eval()
    loss = torch.nn.functional.cross_entropy(model(ids(64)).flatten(0, 1), ids(64).roll(1).flatten())
    assert abs(loss.item() - math.log(VOCAB)) < 0.05


def test_bias_false_leaves_no_bias_in_the_model() -> None:
    assert [name for name in make(bias=False).state_dict() if name.endswith("bias")] == []


def test_four_calls_lead_from_the_model_to_the_product_of_queries_and_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in the files of the model; torch's own way from a module to its `forward` is not."""
    found: list[list[str]] = []
    product = torch.baddbmm

    def watched(*given: Tensor, alpha: float) -> Tensor:
        frames = [(Path(frame.filename), frame.name) for frame in traceback.extract_stack()]
        found.append([f"{file.stem}.{name}" for file, name in frames if file.parent == MODEL_FILES])
        return product(*given, alpha=alpha)

    monkeypatch.setattr(torch, "baddbmm", watched)
    model = make()
    model(ids())
    # the fourth call is the product itself
    assert found == [["gpt.forward", "block.forward", "attention.forward", "attention.attend"]] * len(model.blocks)


@pytest.mark.parametrize(
    ("activation", "expected"),
    [("relu", [0, 2]), ("relu2", [0, 4]), ("gelu", [-0.1587, 1.9545]), ("gelu_tanh", [-0.1588, 1.9546])],
)
def test_activations(activation: str, expected: list[float]) -> None:
    feed_forward = make(activation=activation).blocks[0].feed_forward
    found = feed_forward.activation(torch.tensor([-1.0, 2.0]))
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float32), atol=1e-4, rtol=0)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # of torch itself
def test_masks_that_compiled_code_draws_are_those_of_plain_blocks() -> None:
    """As many numbers of a sequence as lanes of a word, and one fewer; compiled by torch's own compiler."""
    for T in (8, 7):
        plain, compiled = make(dropout=0.3).train(), make(dropout=0.3).train().compile_blocks()
        for step, first in ((0, 0), (1, 2), (1, 4)):
            keys = key_halves(torch.from_numpy(drop_keys(5, step, len(plain.blocks)).view(np.int64)))
            masks = DropMasks(keys, first, 0.3)
            one, other = (model(ids(2, T), masks) for model in (plain, compiled))
            torch.testing.assert_close(one, other)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # of torch itself
def test_gradients_of_compiled_blocks_in_bfloat16_are_those_of_plain_blocks() -> None:
    """Rotary positions in heads of 64 x 64 numbers: in vectors of 512 bits, GCC 12 gave NaN for the gradient of Wk."""
    sizes = {"context_length": 64, "d_model": 64, "num_heads": 1, "num_blocks": 1, "dropout": 0.0}
    model, gradients = make(**sizes, positions="rope").train(), list[list[Tensor]]()
    for compiled in (False, True):
        model.compile_blocks(compiled).zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            model(ids(2, 64)).float().square().mean().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    for plain, other in zip(*gradients, strict=True):
        torch.testing.assert_close(other, plain, rtol=0, atol=0.02 * plain.abs().max().item())


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # of torch itself
def test_compiled_blocks_train_the_same_parameters_and_compile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a backend that compiles nothing further; three steps with different masks, two blocks, one compilation."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch.compiler.reset()  # what other tests compiled with other shapes
    backend = CompileCounterWithBackend("eager")
    compile_function = functools.partial(torch.compile, backend=backend)
    monkeypatch.setattr(torch, "compile", lambda function, **_: compile_function(function))
    plain, compiled = make(positions="rope").double().train(), make(positions="rope").double().train().compile_blocks()
    assert compiled.state_dict().keys() == plain.state_dict().keys()
    for step in range(3):
        masks = DropMasks(drop_keys(5, step, len(plain.blocks)), 0, 0.3)
        for one, other in zip(outputs_and_gradients(plain, masks), outputs_and_gradients(compiled, masks), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
    assert backend.frame_count == 1
    for step in range(6):  # where the keys are on the device, compiled blocks draw the same masks themselves
        if step == 3:  # or leave that of the weights to a kernel
            assert backend.frame_count == 2
            compiled.use_kernel(by_products)
        keys = drop_keys(5, step, len(plain.blocks))
        masks = DropMasks(keys, 2 * step, 0.3)
        by_keys = DropMasks(key_halves(torch.from_numpy(keys.view(np.int64))), 2 * step, 0.3)
        found = outputs_and_gradients(compiled, by_keys)
        for one, other in zip(outputs_and_gradients(plain, masks), found, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
    assert backend.frame_count == 3
    compiled.eval()(ids())  # not compiled, for any length
    compiled(ids(1, 3))
    assert backend.frame_count == 3
