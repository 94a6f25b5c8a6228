"""The scores of heads on the page of a model, and what they write, are those of `gpt heads` and of the attention page."""

import numpy as np
import pytest
from playwright.sync_api import Page
from support.engine import answers, random_ids, rounded
from support.exchange import sharp_checkpoint
from support.heads import FORMS
from support.model_pages import choose, plain, press, press_key, settle, write
from support.scripts import RunScript
from support.tokenizers import LEARNED

from gpt_cli.attention_maps.head_metrics import COLUMNS, PATTERNS, HeadScores, role_of
from gpt_cli.attention_maps.head_scores import induction_scores, score_heads
from gpt_cli.attention_maps.logit_attribution import head_writes
from gpt_cli.common.drawing.token_labels import label_of
from gpt_cli.model import GPT
from gpt_cli.sampling.head_ablation import remove_heads

CHECKPOINT = sharp_checkpoint("model.positions=rope", "model.norm=rmsnorm", tokenizer=LEARNED)
TEXT = "The value of 今天\n is the value of"
IDS = LEARNED.encode(TEXT)


def scores_on(model: GPT, ids: list[int], end_of_text: int) -> HeadScores:
    return score_heads(model, np.array(ids), [(0, len(ids))], end_of_text=end_of_text)


@pytest.mark.parametrize("form", [FORMS[3], FORMS[4], *FORMS[7:10]])
def test_the_engine_scores_heads_and_says_what_they_write_as_python_does(form: str, run_script: RunScript) -> None:
    checkpoint, ids = sharp_checkpoint(*form.split()), [*random_ids(20), *random_ids(7)]
    model = rounded(checkpoint, "float16")
    head = {"layer": 1, "head": 2, "count": 5}
    calls = [("run", {"ids": ids[:9]}), ("run", {"ids": ids}), ("run", {"ids": ids[:1]})]
    asked = [("writes", {"ids": ids, "query": query, **head}) for query in (0, 26)]
    _, found, single, *written = answers(run_script, checkpoint, *calls, *asked)
    expected = scores_on(model, ids, checkpoint.tokenizer.end_of_text)
    columns = np.stack([expected[name] for name in PATTERNS], -1)
    np.testing.assert_allclose(np.array(found["patterns"], float).reshape(columns.shape), columns, rtol=0, atol=1e-5)
    assert set(single["patterns"]) == {None}, "a single token can only look at itself"
    writes = head_writes(model, ids, queries=[0, 26], layers=[1], heads=[2], top=5)
    for place, (raised, lowered) in enumerate(written):
        for tokens, texts, logits in (
            (raised, writes.raised, writes.raised_by),
            (lowered, writes.lowered, writes.lowered_by),
        ):
            names = [label_of(checkpoint.tokenizer.token_text(token), None) for token in texts[0, 0, place].tolist()]
            assert [token["text"] for token in tokens] == names
            np.testing.assert_allclose([token["logit"] for token in tokens], logits[0, 0, place], rtol=0, atol=1e-4)


def shown_scores(page: Page) -> dict[str, str]:
    return dict(zip(COLUMNS, page.locator("#scores dd").all_inner_texts(), strict=True))


def expected_scores(model: GPT, ids: list[int]) -> HeadScores:
    """Of the text as the page computes them; induction of the whole model as it was written."""
    scores = scores_on(model, ids, LEARNED.end_of_text)
    induction = induction_scores(CHECKPOINT.build_model(), end_of_text=LEARNED.end_of_text)
    return {**scores, "induction": induction}


def test_the_scores_and_the_label_of_a_head_follow_the_text_and_the_heads_that_are_off(page: Page) -> None:
    model = rounded(CHECKPOINT, "float16")
    for text in (TEXT, "The value"):
        write(page, text)
        expected = expected_scores(model, LEARNED.encode(text))
        for layer, head in ((0, 1), (2, 3)):
            choose(page, f"layer {layer} head {head}")
            of_head = {name: scores[layer, head] for name, scores in expected.items()}
            texts = {name: "–" if np.isnan(score) else f"{score:.3f}" for name, score in of_head.items()}
            assert shown_scores(page) == texts
            role = role_of(of_head, len(LEARNED.encode(text)))
            assert page.inner_text("#head-role") == (f"· {role}" if role else "")
    choose(page, "layer 0 head 1")
    press_key(page, "x")
    choose(page, "layer 2 head 3")
    remove_heads(model, [(0, 1)])
    without = {name: scores[2, 3] for name, scores in expected_scores(model, LEARNED.encode("The value")).items()}
    assert shown_scores(page)["entropy"] == f"{without['entropy']:.3f}"
    assert shown_scores(page)["induction"] == f"{without['induction']:.3f}"


def test_heads_are_ordered_by_a_score_of_the_text_and_keep_the_focus(page: Page) -> None:
    page.select_option("#order", "previous_token")
    for text in (TEXT, "of the value"):
        write(page, text)
        scores = expected_scores(rounded(CHECKPOINT, "float16"), LEARNED.encode(text))["previous_token"]
        order = [divmod(place, 4) for place in np.argsort(-scores.reshape(-1), kind="stable").tolist()]
        shown = [caption.split() for caption in page.locator("#sorted .caption").all_inner_texts()]
        assert shown == [[f"L{layer}", f"H{head}", f"{scores[layer, head]:.3f}"] for layer, head in order]
    page.locator("#sorted button").nth(7).focus()
    press(page, "#off")
    page.locator("#sorted button").nth(7).focus()
    focused = page.evaluate("document.activeElement.ariaLabel")
    press_key(page, "Control+Enter")
    assert page.evaluate("document.activeElement.ariaLabel") == focused


def look_at_what_it_writes(page: Page) -> None:
    page.locator("#writes").scroll_into_view_if_needed()
    page.wait_for_selector("#writes:not(.behind)")
    settle(page)


def look_elsewhere(page: Page) -> None:
    """Scroll to the top and wait until the browser has reported to its observers, the page's first, what left view."""
    page.evaluate(
        """() => new Promise((done) => {
          scrollTo(0, 0);
          new IntersectionObserver(([{ isIntersecting }], observer) => {
            if (isIntersecting) return;
            observer.disconnect();
            done();
          }).observe(document.getElementById("writes"));
        })"""
    )


def test_the_chosen_head_tells_what_it_writes_at_the_chosen_token(page: Page) -> None:
    model = rounded(CHECKPOINT, "float16")
    choose(page, "layer 1 head 2")
    for query in (3, len(IDS) - 1):
        page.locator("#text .token").nth(query).focus()
        look_at_what_it_writes(page)
        assert f"(token {query})" in page.inner_text("#writes-name")
        writes = head_writes(model, IDS, queries=[query], layers=[1], heads=[2], top=5)
        for part, ids in (("raised", writes.raised), ("lowered", writes.lowered)):
            texts = [label_of(LEARNED.token_text(token), None) for token in ids[0, 0, 0].tolist()]
            shown = page.locator(f"#{part} .word").all_inner_texts()
            assert [text.replace("␣", " ") for text in shown] == [text.replace("␣", " ") for text in texts]
    press(page, "#off")
    look_at_what_it_writes(page)
    assert plain(page.inner_text("#writes-name")).startswith("What this head would write at “")
    choose(page, "layer 1 mean of 4 heads")
    assert not page.locator("#writes-name").is_visible()


def test_a_key_does_not_wait_for_what_nobody_sees(page: Page) -> None:
    look_at_what_it_writes(page)
    look_elsewhere(page)
    write(page, "The value")
    assert page.locator("#writes.behind").count() == 1
    look_at_what_it_writes(page)
    assert f"(token {len(LEARNED.encode('The value')) - 1})" in page.inner_text("#writes-name")


def test_while_it_plays_heads_keep_their_places_and_what_they_write_waits(page: Page) -> None:
    look_at_what_it_writes(page)
    page.select_option("#order", "previous_token")
    page.evaluate(
        """() => {
          window.moved = 0;
          new MutationObserver(() => { moved += 1; }).observe(document.getElementById("sorted"), { childList: true });
        }"""
    )
    page.click("#play")
    page.wait_for_selector(".read.generated >> nth=2")
    assert page.evaluate("moved") == 0
    assert page.locator("#writes.behind").count() == 1
    page.click("#play")
    settle(page)
    look_at_what_it_writes(page)
    last = page.locator(".read").count() - 1
    assert f"(token {last})" in page.inner_text("#writes-name")


def test_a_step_says_which_heads_are_off_where_they_leave_zeros(page: Page) -> None:
    page.click("#explaining summary")
    choose(page, "layer 1 head 2")
    settle(page)
    assert page.locator("#steps .off").count() == 0
    press_key(page, "x")
    section = page.locator("#steps section").filter(has_text="hs = (h0, ..., h3)")
    assert section.locator(".off").inner_text() == "Switched off: h2, so there are zeros here."
    choose(page, "layer 0 head 2")
    settle(page)
    assert page.locator("#steps .off").count() == 0, "of another layer"
