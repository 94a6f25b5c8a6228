"""What a reader changes on the page of a model, the map of patches and the lens, beside the commands."""

import re

import numpy as np
import pytest
import torch
from playwright.sync_api import Page
from support.engine import rounded
from support.exchange import sharp_checkpoint
from support.heads import all_heads
from support.model_pages import candidates, choose, plain, press, shown, write
from support.tokenizers import LEARNED

from gpt_cli.tools.interpret.heads.ablation import ablate
from gpt_cli.tools.interpret.lens.lens import look

CHECKPOINT = sharp_checkpoint("model.positions=rope", tokenizer=LEARNED)
TEXT, SECOND = "The value of 今天", "The value is 今天"
IDS = LEARNED.encode(TEXT)


def select(page: Page, part: str, how: str, position: str = "all") -> None:
    for name, value in (("part", part), ("how", how), ("position", position)):
        page.select_option(f"#change-{name}", value)


def test_the_loss_with_the_mean_of_a_head_is_that_of_gpt_heads(page: Page) -> None:
    model = rounded(CHECKPOINT, "float16")
    change, loss = ablate(model, np.array(IDS), [(0, len(IDS) - 1)], how="mean", **all_heads(model))
    choose(page, "layer 1 head 2")
    select(page, "head", "mean")
    press(page, "#off")
    said = page.inner_text("#effect")
    assert said.startswith("Mean: L1 H2.")
    losses = [float(number) for number in re.findall(r"\d\.\d{4} ", said)]
    assert losses == pytest.approx([float(loss.values), float(loss.values + change.values[1, 2])], abs=2e-4)
    assert page.locator("#maps button.off").count() == 1
    press(page, "#off")
    assert page.inner_text("#effect").startswith("Nothing is changed.")


def test_parts_of_a_block_change_at_one_token_and_with_others(page: Page) -> None:
    choose(page, "layer 0 head 1")
    page.locator("#text .token").nth(2).focus()
    select(page, "attention", "zero", "one")
    assert page.inner_text("#off") == "switch off layer 0 attention at token 2"
    press(page, "#off")
    page.keyboard.press("Escape")
    last = len(IDS) - 1
    assert page.inner_text("#off") == f"switch off layer 0 attention at token {last}", "without a choice, the last"
    page.locator("#text .token").nth(2).focus()
    select(page, "feed_forward", "mean")
    press(page, "#off")
    said = "Off: L0 attention @2. Mean: L0 feed-forward. The loss of the text goes"
    assert page.inner_text("#effect").startswith(said)
    told = r"Logit of .* minus logit of .*: ([+−]\d+\.\d{3}) → ([+−]\d+\.\d{3})\."
    logits = re.search(told, page.inner_text("#changes"))
    assert logits
    assert logits[1] != logits[2]


def test_the_last_block_of_a_second_text_predicts_as_that_does(page: Page) -> None:
    write(page, SECOND)
    expected = candidates(page)[:3]
    write(page, TEXT)
    assert candidates(page)[:3] != expected
    choose(page, "layer 2 head 0")
    select(page, "residual", "patch")
    page.fill("#other", SECOND)
    press(page, "#off")
    assert page.inner_text("#effect").startswith("From the second text: L2 block.")
    assert candidates(page)[:3] == expected
    write(page, "", "#other")
    assert page.inner_text("#effect").startswith("Nothing is changed."), "nothing is there to take"


def test_a_map_has_what_each_patch_recovers_and_a_text_that_has_none_says_why(page: Page) -> None:
    page.evaluate("document.getElementById('second').open = true")
    hostile = "<img src=x onerror=fired()>"
    write(page, hostile, "#other")
    count = len(LEARNED.encode(hostile))
    expected = f"The first text has {len(IDS)} tokens, the second {count}; a map needs the same number in both."
    assert page.inner_text("#other-told") == expected
    assert page.evaluate("window.num_fired") == 0
    assert not page.is_visible("#patches")
    write(page, TEXT, "#other")
    assert page.inner_text("#other-told") == "The two texts are the same."
    assert not page.is_visible("#patches")
    assert len(LEARNED.encode(SECOND)) == len(IDS)
    write(page, SECOND, "#other")
    press(page, "#patch-go")
    page.press("#patch-grid .grid-view", "End")
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    told = plain(page.inner_text("#patch-grid .grid-told"))
    assert told.startswith(f"Layer 2 residual stream at position {len(IDS) - 1} (“{shown(LEARNED, IDS[-1:])}” for ")
    assert "recovers 1.0000 of the difference" in told, "the last block at the last token is the whole prediction"
    model = rounded(CHECKPOINT, "float16")
    with torch.no_grad():
        corrupt, clean = model(torch.tensor([IDS, LEARNED.encode(SECOND)]))[:, -1]
    answer = int(clean.argmax())
    against = next(token for token in corrupt.argsort(descending=True).tolist() if token != answer)
    metrics = re.findall(r"(−?\d+\.\d{4}) on", page.inner_text("#patch-told"))
    figures = [float(each.replace("−", "-")) for each in metrics]
    assert figures == pytest.approx([float(of[answer] - of[against]) for of in (corrupt, clean)], abs=1e-3)
    page.select_option("#patch-map", "heads")
    assert page.inner_text("#patch-grid .grid-told").startswith("Layer "), "its cells are empty"
    press(page, "#patch-go")
    assert "recovers " in page.inner_text("#patch-grid .grid-told")
    page.select_option("#patch-map", "heads of 2")
    press(page, "#patch-go")
    told = plain(page.inner_text("#patch-grid .grid-told"))
    assert re.match(r"Layer 2 head \d at position \d+ .*: recovers ", told), "a head at one position"
    write(page, TEXT + " is")
    assert not page.is_visible("#patches"), "a map of other texts is gone"


def test_the_lens_follows_the_text(page: Page) -> None:
    model = rounded(CHECKPOINT, "float16")
    for text in (TEXT, TEXT + " is"):
        write(page, text)
        ids = torch.tensor(LEARNED.encode(text))
        page.focus("#lens .grid-view")
        for _ in range(100):  # it is computed once it is in view
            page.keyboard.press("End")
            if f"(token {len(ids) - 1})" in page.inner_text("#lens .grid-told"):
                break
            page.wait_for_timeout(20)
        page.keyboard.press("ArrowLeft")
        seen = look(model, ids, ids[1:], range(3))
        told = page.locator("#lens .grid-told p").all_inner_texts()
        place = len(ids) - 2
        assert f"(token {place})" in told[0]
        assert told[0].endswith(f"with probability {seen.token_probability[-1, place]:.4f}.")
        assert f"rank {seen.rank[-1, place]:,} and probability {seen.probability[-1, place]:.4f}" in told[1]
        assert told[2] == "Divergence from the last layer: 0.0000 nats."
