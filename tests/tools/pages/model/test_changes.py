"""Activations that the engine replaces, and what it reads of each layer, beside hooks in plain PyTorch and the commands."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from support.engine import answers, opening_of, random_ids, rounded
from support.exchange import sharp_checkpoint
from support.heads import FORMS
from support.patches import hooked, kept
from support.scripts import RunScript
from torch import Tensor

from gpt_cli.model import GPT
from gpt_cli.tools.interpret.lens.lens import look
from gpt_cli.tools.pages.html_page import ENGINE

IDS, OTHER = random_ids(24)[:12], random_ids(24)[12:]
PARTS = ("head", "attention", "feed_forward", "residual")
K = 12  # of a head
LEFT = """async ({ opening, wanted }) => {
  engine.open(opening);
  const told = [];
  const found = await engine.patch(wanted, async (done, total) => told.push([done, total]) < 4);
  return { found, told };
}"""
REFUSED = """async ({ opening, wanted }) => {
  engine.open(opening);
  try { await engine.patch(wanted); } catch ({ reason, values }) { return { reason, values }; }
}"""


def change(part: str, layer: int, head: int | None, position: int | None, how: str) -> dict[str, Any]:
    return {"part": part, "layer": layer, "head": head, "position": position, "how": how}


@torch.no_grad()
def changed(model: GPT, ids: list[int], other: list[int], wanted: dict[str, Any]) -> Tensor:
    """The logits after all ids [T, V], with one change made by a hook."""
    part, layer, head, position, how = (wanted[name] for name in ("part", "layer", "head", "position", "how"))
    own = kept(model, torch.tensor(ids), part, layer)
    if how == "patch":
        values = torch.cat([kept(model, torch.tensor(other), part, layer), own[len(other) :]])[: len(ids)]
    elif how == "mean":
        values = own[:-1].mean(0).expand_as(own)
    else:  # a block is skipped, so its stream is that of the block before
        skipped = part == "residual"
        values = kept(model, torch.tensor(ids), part, layer - 1) if skipped else torch.zeros_like(own)
    columns = slice(None) if head is None else slice(head * K, (head + 1) * K)
    places = slice(None) if position is None else slice(position, position + 1)

    def replaced(made: Tensor) -> Tensor:
        made = made.clone()
        made[0, places, columns] = values[places, columns]
        return made

    with hooked(model, part, layer, replaced):
        return model(torch.tensor([ids]))[0]


@pytest.mark.parametrize("form", [FORMS[0], FORMS[4], *FORMS[7:9]])
def test_changed_activations_are_those_of_hooks_in_plain_torch(form: str, run_script: RunScript) -> None:
    checkpoint = sharp_checkpoint(*form.split())
    model = rounded(checkpoint, "float16")
    wanted = [
        change(part, 1, 2 if part == "head" else None, position, how)
        for part in PARTS
        for how in ("zero", "mean", "patch")
        for position in (None, 5)
    ]
    calls = [("run", {"ids": IDS, "other": OTHER, "changes": [each]}) for each in wanted]
    for each, found in zip(wanted, answers(run_script, checkpoint, *calls), strict=True):
        expected = changed(model, IDS, OTHER, each)
        np.testing.assert_allclose(found["logits"], expected[-1].numpy(), rtol=0, atol=1e-4, err_msg=str(each))
        surprisals = torch.nn.functional.cross_entropy(expected[:-1], torch.tensor(IDS[1:]), reduction="none")
        np.testing.assert_allclose(found["surprisals"][1:], surprisals.numpy(), rtol=0, atol=1e-4)


def test_a_changed_text_is_read_on_as_a_new_one_and_other_texts_may_be_shorter(run_script: RunScript) -> None:
    checkpoint = sharp_checkpoint("model.positions=rope")
    model = rounded(checkpoint, "float16")
    wanted = [change("head", 1, 2, None, "mean"), change("attention", 0, None, None, "patch")]
    texts = [(IDS, OTHER[:7]), ([*IDS, 3], OTHER[:7]), (IDS, OTHER), (IDS[:4], OTHER), (IDS, OTHER[:7])]
    calls = [("run", {"ids": ids, "other": other, "changes": [one]}) for ids, other in texts for one in wanted]
    expected = [changed(model, ids, other, one)[-1].numpy() for ids, other in texts for one in wanted]
    found = [answer["logits"] for answer in answers(run_script, checkpoint, *calls)]
    np.testing.assert_allclose(found, np.array(expected), rtol=0, atol=1e-4)


def test_the_lens_is_that_of_the_command(run_script: RunScript) -> None:
    checkpoint = sharp_checkpoint("model.norm_position=post")
    model, ids = rounded(checkpoint, "float16"), torch.tensor(IDS)
    calls = [("lens", {"ids": IDS, "first": first, "count": 3}) for first in range(12)]
    found = [rows[0] for rows in answers(run_script, checkpoint, *calls)]
    seen = look(model, ids, ids[1:], range(3))
    for layer in range(3):
        rows = [row[layer] for row in found]
        for name in ("loss", "rank", "probability"):
            np.testing.assert_allclose([row[name] for row in rows[:-1]], getattr(seen, name)[layer], atol=1e-4)
        np.testing.assert_allclose([row["divergence"] for row in rows], seen.divergence[layer], atol=1e-4)
        np.testing.assert_allclose([row["top"][0]["chance"] for row in rows], seen.token_probability[layer], atol=1e-4)
        assert all(row["top"][0]["chance"] >= row["top"][1]["chance"] >= row["top"][2]["chance"] for row in rows)
    assert [row["loss"] for row in found[-1]] == [None] * 3, "nobody knows what comes after the last token"


def test_texts_of_two_lengths_have_no_patch_map(run_script: RunScript) -> None:
    wanted = {"ids": IDS, "other": OTHER[:7], "part": "head"}
    found = run_script(ENGINE, REFUSED, {"opening": opening_of(sharp_checkpoint()), "wanted": wanted})
    assert found == {"reason": "lengths", "values": [12, 7]}


def test_a_map_that_nobody_waits_for_ends(run_script: RunScript) -> None:
    wanted = {"ids": IDS, "other": OTHER, "part": "residual"}
    answer = run_script(ENGINE, LEFT, {"opening": opening_of(sharp_checkpoint()), "wanted": wanted})
    read = [[8, 12], [8, 12]]  # of both texts, read in pieces
    assert answer == {"found": None, "told": [*read, [1, 36], [2, 36]]}


def test_a_map_compares_the_tokens_that_the_reader_names(run_script: RunScript) -> None:
    checkpoint = sharp_checkpoint()
    wanted = {"ids": IDS, "other": OTHER, "part": "residual", "answer": "xyz", "against": "y"}
    (found,) = answers(run_script, checkpoint, ("patch", wanted))
    with torch.no_grad():
        corrupt, clean = rounded(checkpoint, "float16")(torch.tensor([IDS, OTHER]))[:, -1]
    expected = [float(logits[ord("x")] - logits[ord("y")]) for logits in (clean, corrupt)]
    assert [found["clean"], found["corrupt"]] == pytest.approx(expected, abs=1e-3)
    assert [found["answer"], found["against"]] == ["x", "y"]


def test_texts_that_the_model_hardly_tells_apart_have_no_shares(run_script: RunScript) -> None:
    wanted = {"ids": IDS, "other": IDS, "part": "residual", "answer": "x", "against": "y"}
    (found,) = answers(run_script, sharp_checkpoint(), ("patch", wanted))
    assert found["clean"] == found["corrupt"]
    assert {share["recovered"] for share in found["shares"]} == {None}, "NaN, as of gpt patch"


@pytest.mark.parametrize("form", [FORMS[0], FORMS[7]])
def test_a_patch_map_has_the_shares_of_hooks(form: str, run_script: RunScript) -> None:
    checkpoint = sharp_checkpoint(*form.split())
    model, ids, other = rounded(checkpoint, "float16"), IDS[:6], [*IDS[:2], *OTHER[2:6]]
    asked = [*((part, None) for part in PARTS), ("head", 1)]
    calls = [("patch", {"ids": ids, "other": other, "part": part, "layer": layer}) for part, layer in asked]
    with torch.no_grad():
        corrupt, clean = model(torch.tensor([ids, other]))[:, -1]
    answer = int(clean.argmax())
    against = next(token for token in corrupt.argsort(descending=True).tolist() if token != answer)

    def metric(logits: Tensor) -> float:
        return float(logits[answer] - logits[against])

    for (part, layer), found in zip(asked, answers(run_script, checkpoint, *calls), strict=True):
        assert [found["clean"], found["corrupt"]] == pytest.approx([metric(clean), metric(corrupt)], abs=1e-3)
        assert len(found["shares"]) == (3 * (4 if part == "head" else 6) if layer is None else 4 * 6)
        for share in found["shares"][::3]:
            place = {key: None if share[key] < 0 else share[key] for key in ("layer", "head", "position")}
            logits = changed(model, ids, other, {**place, "part": part, "how": "patch"})[-1]
            expected = (metric(logits) - metric(corrupt)) / (metric(clean) - metric(corrupt))
            assert share["recovered"] == pytest.approx(expected, abs=1e-3), json.dumps(share)
