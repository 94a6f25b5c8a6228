"""Every part of the package that treats forms of attention in ways of their own computes a form, or refuses it by name.

A form added in this test, derived from multi-head attention, stands for the next one that somebody adds.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from support.attribution import attribute
from support.forms import UNHEARD_OF, register
from support.helpers import small_config
from support.pages import ORIGIN

import gpt_cli
from gpt_cli.attention_maps.patterns import dump_attention
from gpt_cli.config import ModelConfig
from gpt_cli.config.load import build_config
from gpt_cli.config.strict_yaml import Document
from gpt_cli.errors import GptError
from gpt_cli.model import GPT
from gpt_cli.model.attention import join_heads
from gpt_cli.model.costs import cache_bytes_by_attention, estimate
from gpt_cli.model.positions import RotaryPositions
from gpt_cli.sampling.decoder import Decoder, cache_bytes
from gpt_cli.sampling.head_ablation import remove_heads
from gpt_cli.text.tokenizers import ByteTokenizer
from gpt_cli.tools.exchange.families import fit
from gpt_cli.tools.exchange.page_data import FORMS as ON_PAGES
from gpt_cli.tools.exchange.page_data import require_known_form
from gpt_cli.tools.explain.head import explain_head
from gpt_cli.tools.interpret.heads.ablation import ablate

IDS = [10, 250, 3, 77, 3, 10, 99]
FORMS = get_args(ModelConfig.model_fields["attention"].annotation)
BATCH = torch.tensor([IDS, IDS[::-1]])


def model_of(form: str) -> GPT:
    """A model in float64 with weights as large as trained ones."""
    config = small_config("model.num_heads=4", "model.positions=none").changed(model={"attention": form}).model
    model = GPT(config, 257, torch.Generator().manual_seed(1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2))
    return model.double().eval()


def close(found: object, expected: object) -> None:
    torch.testing.assert_close(torch.as_tensor(found), torch.as_tensor(expected), rtol=0, atol=1e-10)


def in_training(model: GPT) -> None:
    """Fused and head by head, logits and gradients."""
    found = []
    for fused in (True, False):
        logits = model.use_fused(fused)(BATCH)
        found.append([logits, *torch.autograd.grad(logits.square().sum(), list(model.parameters()))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def in_stages(model: GPT) -> None:
    """Of chosen heads those of each, and the way on from them."""
    attention, x = model.blocks[0].attention, torch.randn(2, 5, 16, dtype=torch.float64)
    rotation = RotaryPositions(5, 4)(5).double()
    for heads in ([3, 0], [0, 1, 2, 3]):
        stages = attention.stages(x, rotation, heads)
        for place, head in enumerate(heads):
            for name, found in attention.head_stages(head, x, rotation)._asdict().items():
                close(getattr(stages, name)[:, place], found)
    close(attention.projection_layer(join_heads(stages.heads)), attention(x, rotation))


def in_a_dump(model: GPT) -> None:
    dump = dump_attention(model, ByteTokenizer(), IDS, layers=[0, 1], heads=[1, 3], origin=ORIGIN, file_dtype="float64")
    close(dump.weights, model.attention_weights(BATCH[:1])[:, 0, [1, 3]].numpy())
    assert (dump.tokens[1], dump.tokens[3]) == ("<0xFA>", "M")


def in_decoding(model: GPT) -> None:
    decoder = Decoder(model, torch.float64)
    logits = [decoder.prefill(BATCH[:, :3].tolist()), *(decoder.decode(BATCH[:, t].tolist()) for t in range(3, 7))]
    close(torch.stack(logits, 1), model(BATCH)[:, 2:])
    num_bytes = sum(layer.cache.slots.nbytes for layer in decoder.layers)
    assert num_bytes == 2 * cache_bytes(model.config, 2 * model.config.context_length, decoder.plain_dtype.itemsize)


def in_costs(model: GPT) -> None:
    config = model.config
    costs = estimate(config, 257, micro_batch_size=1, dtype="float32")
    assert costs.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert cache_bytes_by_attention(config)[config.attention] == 4 * 2 * config.cached_size


@torch.no_grad()
def in_scores_of_heads(model: GPT) -> None:
    """What the parts write adds up to the logits; the change of loss is that of a model without the head."""
    close(attribute(model, IDS, 6).logits.sum(0), model(BATCH[:1])[0, 6])
    change, _ = ablate(model, np.array(IDS, np.uint16), [(0, 6)], how="zero", layers=[1], heads=[2])

    def loss() -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(BATCH[:1, :-1])[0], BATCH[0, 1:])

    before = loss()
    remove_heads(model, [(1, 2)])
    close(change.values[0, 0], loss() - before)


def in_an_explanation(model: GPT) -> None:
    weights = model.attention_weights(BATCH[:1])[1, 0, 2]
    steps = explain_head(model, list(map(str, IDS)), IDS, layer=1, head=2, queries=range(7)).steps
    (found,) = [step.numbers for step in steps if step.name == "weights"]
    close(found, weights.numpy())


def in_transformers(model: GPT) -> None:
    """Every matrix of ours is part of some tensor there."""
    recipes = fit(model.config, 257).tensors.values()
    used = {name for recipe in recipes for part in recipe.parts for name in part.names}
    assert used >= {name for name, parameter in model.named_parameters() if parameter.dim() == 2}


def on_a_page(model: GPT) -> None:
    require_known_form(model.config)


def in_a_config(model: GPT) -> None:
    build_config(Document({}), "test", [f"model.attention={model.config.attention}"])


# who treats forms, and what of a new one it refuses until it has learned it
PLACES: dict[Callable[[GPT], None], str | None] = {
    in_training: None,
    in_stages: None,
    in_a_dump: None,
    in_costs: None,
    in_scores_of_heads: None,
    in_decoding: "sampling does not support the form UnheardOf",
    in_an_explanation: "gpt explain does not support the form UnheardOf",
    in_transformers: "transformers does not support the form unheard_of",
    on_a_page: "the page of a model does not support the form unheard_of",
    in_a_config: f'"unheard_of" is not one of {", ".join(FORMS)}',
}
# the same of forms that configs have: what a place never learned
REFUSED: dict[tuple[str, Callable[[GPT], None]], str] = {}


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_every_place_computes_a_form_or_refuses_it_by_name(
    place: Callable[[GPT], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch)
    for form in (*FORMS, UNHEARD_OF):
        refusal = PLACES[place] if form == UNHEARD_OF else REFUSED.get((form, place))
        if refusal is None:
            place(model_of(form))
            continue
        with pytest.raises(GptError) as refused:
            place(model_of(form))
        assert refused.value.where.removeprefix("‹settings›: ") == "model.attention"
        assert refused.value.sentence == refusal


def test_an_unknown_form_is_no_model() -> None:
    with pytest.raises(GptError, match="the model does not support the form unheard_of"):
        model_of(UNHEARD_OF)


def test_a_page_promises_the_forms_that_its_engine_computes() -> None:
    script = (Path(gpt_cli.__file__).parent / "tools/pages/model/engine/attention.js").read_text("utf-8")
    (listed,) = re.findall(r"^const FORMS = \{(.*)\};", script, re.MULTILINE)
    assert tuple(re.findall(r"(\w+):", listed)) == ON_PAGES
