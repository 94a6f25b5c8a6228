"""No text of a token, a prompt or a path does anything on the page."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
from support.browsers import OpenPage, ShowPage
from support.hostile import CALL, PAYLOADS
from support.pages import dump_of, keep, random_weights, snapshots_of

from gpt_cli.attention_maps.logit_attribution import Writes
from gpt_cli.attention_maps.patterns import Origin, Prediction
from gpt_cli.attention_maps.snapshots import kept_steps
from gpt_cli.tools.interpret.attention_files import attention_page
from gpt_cli.tools.interpret.over_training import make_film


def every_text_written() -> Writes:
    """Each head raises at each position the text of that position, and lowers the one after it."""
    ids = np.broadcast_to(np.arange(len(PAYLOADS))[:, None], (1, 2, len(PAYLOADS), 1))
    by = np.ones(ids.shape, np.float32)
    return Writes(ids, by, (ids + 1) % len(PAYLOADS), -by)


def test_no_text_of_a_film_does_anything(show: ShowPage, tmp_path: Path) -> None:
    run = keep(snapshots_of(2, 1, 2, PAYLOADS), tmp_path / "<img src=x onerror=fired(1)>")
    page = show(make_film(kept_steps(run)).as_page().encode()).page
    page.press("#frame", "Home")
    page.click("#language")
    assert page.locator("h1, #film, #origin").locator("script, img, svg svg, iframe").count() == 0
    assert page.evaluate("window.num_fired") == 0


# points at each token and focuses it; what it and the word that it raised have
_RAISED = """spans => spans.map(span => {
  span.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
  span.focus();
  return [span, ...document.querySelectorAll("#raised .word")].map(each => [each.childElementCount, each.textContent]);
})"""


def test_no_token_text_does_anything(open_page: OpenPage, tmp_path: Path) -> None:
    assert len(set(PAYLOADS)) >= 60
    path = tmp_path / "<img src=x onerror=fired(1)>.html"
    origin = Origin(f"<img src=x onerror={CALL}>", 5, f"</script><script>{CALL}</script>")
    weights = random_weights(1, 2, len(PAYLOADS))
    dump = replace(
        dump_of(PAYLOADS, weights, (Prediction(0.5, 1),) * 3, origin),
        writes=every_text_written(),
        texts=dict(enumerate(PAYLOADS)),
    )
    path.write_bytes(attention_page(dump))
    opened = open_page(path)
    page = opened.page
    for payload, found in zip(PAYLOADS, page.locator(".token").evaluate_all(_RAISED), strict=True):
        assert [number for number, _ in found] == [0, 0]
        assert not payload.isprintable() or [text for _, text in found] == [payload, payload]
    assert page.inner_text("#origin") == f"“\u2068{origin.prompt}\u2069” · {origin.checkpoint}, step 5"
    page.click("#language")
    page.select_option("#order", "induction")
    page.select_option("#role", "induction")
    labels = page.evaluate("parseFloat(document.getElementById('map').style.width)") - len(PAYLOADS) * 2
    page.locator("#map").hover(position={"x": labels + 5, "y": labels + 60})
    assert page.inner_text("#cell") != ""
    assert [line[5] for line in opened.copied() if line[2] == "0"] == [PAYLOADS[0]]
    allowed = {"script": 2, "style": 1, "img": 0, "iframe": 0, "link": 0, "a": 0, "object": 0, "embed": 0, "form": 0}
    assert {name: page.locator(name).count() for name in allowed} == allowed
    assert page.evaluate("window.num_fired") == 0
    assert opened.requests == [path.as_uri()]


def test_the_test_notices_a_payload_that_fires(open_page: OpenPage, tmp_path: Path) -> None:
    """The same document with its policy taken out and a payload as markup: the watch above would see it."""
    page = attention_page(dump_of(["a"], random_weights(1, 1, 1))).decode()
    page = re.sub(r"<meta http-equiv.*?>", "", page).replace("<noscript>", "<img src=x onerror=fired(1)><noscript>")
    path = tmp_path / "a.html"
    path.write_text(page)
    opened = open_page(path)
    assert opened.page.evaluate("window.num_fired") == 1
    assert len(opened.requests) == 2
    assert opened.complaints == ["Failed to load resource: net::ERR_FILE_NOT_FOUND"]
    opened.complaints.clear()
