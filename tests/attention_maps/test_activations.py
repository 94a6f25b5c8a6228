"""Sites of a walk beside the plain forward of the model, and touches of them beside hooks of plain PyTorch."""

import pytest
import torch
from support.attention import close
from support.heads import FORMS
from support.helpers import sharp_model
from support.patches import hooked, kept

from gpt_cli.attention_maps.activations import Activations, walk

V, LAST = 11, 1
IDS = torch.tensor([3, 1, 4, 1, 5, 9])
SITES = {"residual": "resid_post", "attention": "attn_out", "feed_forward": "mlp_out", "head": "heads"}


@pytest.mark.parametrize("settings", FORMS)
@torch.no_grad()
def test_a_walk_makes_what_the_model_makes(settings: str) -> None:
    model = sharp_model(V, *settings.split())
    walked = list(walk(model, *model.embed(IDS[None])))
    close(model.logits(walked[LAST].resid_post), model(IDS[None]))
    for layer, stages in enumerate(model.attention_stages(IDS[None])):
        for name in ("queries", "keys", "values", "heads", "weights"):
            close(getattr(walked[layer], name), getattr(stages, name))
        for part, site in SITES.items():
            made = getattr(walked[layer], site)
            close(made.transpose(1, 2).flatten(2)[0] if part == "head" else made[0], kept(model, IDS, part, layer))


@pytest.mark.parametrize("part", SITES)
@pytest.mark.parametrize("settings", ["", FORMS[2], FORMS[4], FORMS[8]])  # the kinds of block: post, latent, parallel
@torch.no_grad()
def test_a_touch_is_what_a_hook_does_there(settings: str, part: str) -> None:
    model = sharp_model(V, *settings.split())
    for layer in range(2):
        x, rotation = model.embed(IDS[None])
        for number, made in enumerate(walk(model, x, rotation)):
            if number == layer:
                setattr(made, SITES[part], getattr(made, SITES[part]).abs())
            x = made.resid_post
        with hooked(model, part, layer, torch.abs):
            expected = model(IDS[None])
        close(model.logits(x), expected)
        assert (expected - model(IDS[None])).abs().max() > 1e-3


@torch.no_grad()
def test_weights_and_what_makes_them_may_be_touched() -> None:
    model = sharp_model(V)
    block, (x, rotation) = model.blocks[0], model.embed(IDS[None])
    plain, even = Activations(block, x, rotation), Activations(block, x, rotation)
    even.weights = torch.ones(6, 6, dtype=torch.float64).tril().div(torch.arange(1, 7)[:, None]).expand(1, 2, 6, 6)
    close(even.heads, plain.values.cumsum(2) / torch.arange(1, 7)[:, None])
    swapped = Activations(block, x, rotation)
    swapped.values = plain.values.flip(1)
    close(swapped.heads, plain.weights @ plain.values.flip(1))


@pytest.mark.parametrize("settings", FORMS)
@torch.no_grad()
def test_one_head_and_the_last_positions_are_those_of_all(settings: str) -> None:
    model = sharp_model(V, *settings.split())
    x, rotation = model.embed(IDS[None])
    whole, one, last = (Activations(model.blocks[1], x, rotation, chosen) for chosen in (None, [1], None))
    close(one.heads, whole.heads[:, 1:2])
    last.queries, last.resid_pre = last.queries[:, :, -2:], x[:, -2:]
    close(last.resid_post, whole.resid_post[:, -2:])
