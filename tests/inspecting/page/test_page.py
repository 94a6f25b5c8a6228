"""The page as bytes: what it may do, how large it is, how exact. What it does in a browser: test_in_browser.py."""

from __future__ import annotations

import base64
import hashlib
import re

import numpy as np
import pytest
from support.pages import content_of, dump_of, random_weights, restored

from gpt_cli.inspecting.dump import Chance
from gpt_cli.inspecting.page import build_page, quantise


@pytest.mark.parametrize(("levels", "largest_error"), [(255, 1 / 255), (65535, 1 / 65535)])
def test_a_weight_is_held_as_finely_as_the_docstring_says(levels: int, largest_error: float) -> None:
    weights = np.concatenate([np.linspace(0, 1, 100_001), np.logspace(-9, 0, 100_001)])
    errors = np.abs((quantise(weights, levels) / levels) ** 2 - weights)
    assert (errors <= np.sqrt(weights) / levels + 1 / (4 * levels**2) + 1e-15).all()
    assert largest_error / 2 < errors.max() <= largest_error
    # of a hundredth a tenth of that: long texts have many small weights
    assert errors[weights <= 0.01].max() <= largest_error * 0.11


def test_nothing_and_everything_are_exact() -> None:
    for levels in (255, 65535):
        np.testing.assert_array_equal((quantise(np.array([0.0, 1.0]), levels) / levels) ** 2, [0, 1])


@pytest.mark.parametrize(("shape", "levels"), [((2, 3, 20), 65535), ((12, 8, 128), 255)])
def test_the_page_holds_every_weight_of_every_head(shape: tuple[int, int, int], levels: int) -> None:
    weights = random_weights(*shape)
    page = build_page(dump_of(["x"] * shape[2], weights))
    assert content_of(page)["levels"] == levels
    expected = weights[:, :, *np.tril_indices(shape[2])]
    allowed = np.sqrt(expected) / levels + 1 / (4 * levels**2) + 1e-9
    assert (np.abs(restored(page) - expected) <= allowed).all()


def test_all_heads_of_the_default_model_stay_below_a_megabyte() -> None:
    assert len(build_page(dump_of(["expression"] * 128, random_weights(12, 8, 128)))) < 1_000_000


def test_it_may_run_only_its_own_script_and_load_nothing() -> None:
    page = build_page(dump_of(["a", "b"], random_weights(1, 1, 2))).decode()
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', page)
    assert policy
    hashes = {}
    for kind in ("script", "style"):
        inside = re.search(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        assert inside
        hashes[kind] = f"'sha256-{base64.b64encode(hashlib.sha256(inside[1].encode()).digest()).decode()}'"
    assert policy[1].split("; ") == [
        "default-src 'none'",
        f"script-src {hashes['script']}",
        f"style-src {hashes['style']}",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    assert re.findall(r"(?:https?:)?//[a-z]+\.[a-z]+(?!3\.org)", page) == []


def test_the_script_puts_text_on_the_page_as_text_alone() -> None:
    page = build_page(dump_of(["a"], random_weights(1, 1, 1))).decode()
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert way not in page


def test_token_text_is_data_that_no_parser_takes_for_markup() -> None:
    tokens = ["</script><script>alert(1)</script>", "<!--", "&lt;", "\u2028", "{{policy}}", "今"]
    page = build_page(dump_of(tokens, random_weights(1, 1, 6)))
    inside = re.search(rb'id="content">(.*?)</script>', page, re.DOTALL)
    assert inside
    assert not set(inside[1]) & set(b"<>&")
    assert content_of(page)["tokens"] == tokens
    assert inside[1].isascii()


def test_the_same_dump_gives_the_same_page() -> None:
    dump = dump_of(["a", "b"], random_weights(1, 1, 2), (Chance(0.25, 3),))
    assert build_page(dump) == build_page(dump)
    assert content_of(build_page(dump))["generated"] == [{"probability": 0.25, "rank": 3}]
