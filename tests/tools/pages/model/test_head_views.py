"""The views of attention on the page of a model, the heads that are switched off, and the steps of one."""

import numpy as np
import pytest
import torch
from playwright.sync_api import Page
from support.browsers import Opened
from support.engine import rounded
from support.exchange import sharp_checkpoint
from support.model_pages import candidates, choose, plain, press, press_key, settle, shown, write
from support.tokenizers import LEARNED

from gpt_cli.model import GPT
from gpt_cli.sampling.head_ablation import remove_heads
from gpt_cli.sampling.next_token import SamplingParameters, probabilities
from gpt_cli.tools.explain.explanation import title_of
from gpt_cli.tools.explain.head import explain_head

CHECKPOINT = sharp_checkpoint("model.positions=rope", "model.norm=rmsnorm", tokenizer=LEARNED)
TEXT = "The value of 今天\n is the function"
IDS = LEARNED.encode(TEXT)
ROW, COLUMN = np.tril_indices(len(IDS))


@torch.no_grad()
def likelihood(model: GPT) -> tuple[float, np.ndarray]:
    """The loss of the text, and the chances of the token after it."""
    logits = model(torch.tensor([IDS]))[0]
    loss = float(torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(IDS[1:])))
    return loss, probabilities(logits[-1:], SamplingParameters())[0].numpy()


def without(*heads: tuple[int, int]) -> GPT:
    model = rounded(CHECKPOINT, "float16")
    remove_heads(model, heads)
    return model


def copied(opened: Opened) -> np.ndarray:
    return np.array([float(line[6]) for line in opened.copied()[1:]])


def test_the_weights_of_a_head_and_their_mean_are_the_models(page: Page, opened: Opened) -> None:
    weights = rounded(CHECKPOINT, "float16").attention_weights(torch.tensor([IDS]))[:, 0].detach().numpy()
    for layer, head in ((0, 0), (1, 2), (2, 3)):
        choose(page, f"layer {layer} head {head}")
        np.testing.assert_allclose(copied(opened), weights[layer, head][ROW, COLUMN], atol=2e-5)
    choose(page, "mean of all 12 heads")
    np.testing.assert_allclose(copied(opened), weights.mean((0, 1))[ROW, COLUMN], atol=2e-5)


def test_the_views_follow_the_text(page: Page) -> None:
    choose(page, "layer 1 head 2")
    for text in ("The value", "The value of", "今天"):
        write(page, text)
        assert page.locator("#text .token").count() == len(LEARNED.encode(text))
        assert page.inner_text("#head-name") == "layer 1 head 2"
        last = len(LEARNED.encode(text)) - 1
        assert f"(token {last}) looks at: " in plain(page.inner_text("#details")), "the last token stays the chosen one"
    write(page, TEXT)
    page.locator("#text .token").nth(2).focus()
    press(page, "#step")
    assert "(token 2) looks at: " in plain(page.inner_text("#details"))


def test_a_head_that_is_switched_off_changes_the_loss_and_the_chances(page: Page) -> None:
    assert page.inner_text("#effect").startswith("Nothing is changed.")
    (before, others), (after, chances) = likelihood(without()), likelihood(without((1, 2)))
    choose(page, "layer 1 head 2")
    press_key(page, "x")
    said = page.inner_text("#effect")
    assert said.startswith(f"Off: L1 H2. The loss of the text goes from {before:.4f} to {after:.4f} nats per token")
    assert page.locator("#maps button.off").count() == 1
    numbers = page.locator(".candidate").first.locator(".number").all_inner_texts()
    best = int(chances.argmax())
    assert numbers == [f"{100 * chances[best]:.1f}%", f"{100 * others[best]:.1f}%"]
    most = int(np.abs(chances - others).argmax())
    assert f"{100 * others[most]:.1f}% → {100 * chances[most]:.1f}%" in page.inner_text("#changes").split(" · ")[0]
    press_key(page, "x")
    assert page.locator("#maps button.off").count() == 0
    assert len(page.locator(".candidate").first.locator(".number").all()) == 1


def test_the_mean_of_a_layer_stands_for_all_its_heads_without_which_it_writes(page: Page) -> None:
    choose(page, "layer 0 mean of 4 heads")
    assert page.inner_text("#off") == "switch off layer 0 mean of 4 heads"
    press(page, "#off")
    loss, chances = likelihood(without(*((0, head) for head in range(4))))
    assert "Off: L0 H0, L0 H1, L0 H2, L0 H3." in page.inner_text("#effect")
    assert f"to {loss:.4f} nats" in page.inner_text("#effect")
    write(page, "0", "#temperature")
    press(page, "#step")
    assert page.input_value("#prompt") == TEXT + shown(LEARNED, [int(chances.argmax())])
    assert candidates(page)[0][1] == "100%"
    assert page.inner_text("#off").startswith("switch on")
    press(page, "#all-on")
    assert page.inner_text("#effect").startswith("Nothing is changed.")
    assert page.is_disabled("#all-on")


def test_the_steps_of_a_head_are_those_of_the_command(page: Page) -> None:
    page.click("#explaining summary")
    choose(page, "layer 1 head 2")
    page.locator("#text .token").nth(4).focus()
    settle(page)
    tokens = [LEARNED.token_text(token) for token in IDS]
    expected = explain_head(rounded(CHECKPOINT, "float16"), tokens, IDS, layer=1, head=2, queries=[4]).steps
    titles = page.locator("#steps h3").all_inner_texts()
    assert titles == [f"{number}. {title_of(step.name)}" for number, step in enumerate(expected, 1)]
    codes = page.locator("#steps code").all_inner_texts()
    assert codes[::2] == [step.formula for step in expected]
    assert codes[1::2] == [f"[{step.numbers.shape[0]}, {step.numbers.shape[1]}]" for step in expected]
    by_name = {step.name: step.numbers for step in expected}
    sections = page.locator("#steps section")
    output = sections.filter(has_text="output of the head").locator("td").all_inner_texts()
    assert [number(text) for text in output] == pytest.approx(by_name["head_output"][0].tolist(), abs=1e-4)
    looking = sections.filter(has_text="masked").locator("tr").all()[1:]
    for token, row in enumerate(looking):
        cells = [number(text) for text in row.locator("td").all_inner_texts()]
        names = ("scores", "divided", "masked", "weights")
        assert cells == pytest.approx([by_name[name][0, token] for name in names], abs=1e-4)
    choose(page, "layer 1 mean of 4 heads")
    assert page.inner_text("#steps") == "Choose a single head to see its steps."


def number(text: str) -> float:
    return float(text.replace("−", "-").replace("∞", "inf"))
