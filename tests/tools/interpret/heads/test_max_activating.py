"""Where heads act most, beside a plain search over what each head writes."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from support.heads import SOME_FORMS
from support.helpers import sharp_model
from support.kept import save

from gpt_cli.attention_maps import head_scores
from gpt_cli.attention_maps.activations import head_results, walk
from gpt_cli.attention_maps.head_scores import score_heads
from gpt_cli.errors import CheckpointError
from gpt_cli.evaluation.token_losses import Surprisals
from gpt_cli.model import GPT
from gpt_cli.text.tokenizers import ByteTokenizer
from gpt_cli.tools.exchange.tokenizer_json import read_tokenizer
from gpt_cli.tools.interpret.heads.max_activating import AFTER, BEFORE, LOOKS, Passages, whole_characters

V, T = 257, 16
IDS = np.random.default_rng(4).integers(0, 256, 3 * T + 6)
WINDOWS = [(0, T), (T, 2 * T), (2 * T, 3 * T), (3 * T, 3 * T + 5)]


def passages_of(model: GPT, most: int, windows: list[tuple[int, int]] = WINDOWS) -> Passages:
    layers, heads = range(len(model.blocks)), range(model.config.num_heads)
    found = Passages(model, layers, heads, most)
    score_heads(model, IDS, windows, end_of_text=256, watch=found.add)
    return found


@torch.no_grad()
def plain_sizes(model: GPT, layer: int, head: int) -> dict[int, float]:
    """The norm of what a head writes at each token but the first of a window, from [D] numbers each."""
    sizes = {}
    for start, end in WINDOWS:
        made = list(walk(model, *model.embed(torch.from_numpy(IDS[None, start:end]))))[layer]
        (rows,) = head_results(made.block, made.heads, [head])[0]
        sizes |= {start + place: float(rows[place].norm()) for place in range(1, end - start)}
    return sizes


@pytest.mark.parametrize("settings", SOME_FORMS)
def test_the_passages_of_a_head_are_around_the_largest_that_it_writes(settings: str) -> None:
    model = sharp_model(V, *settings.split())
    found = passages_of(model, 3)
    means = iter(found.mean_sizes().values.ravel())
    for layer in range(2):
        for head in range(model.config.num_heads):
            left, expected = plain_sizes(model, layer, head), []
            assert next(means) == pytest.approx(np.mean([*left.values()]), rel=1e-9)
            while left and len(expected) < 3:
                peak = max(left, key=lambda place: left[place])
                expected.append((peak, pytest.approx(left[peak], rel=1e-9)))
                window = peak // T  # of 16 tokens, so that one passage fills it
                left = {place: size for place, size in left.items() if place // T != window}
            assert [(each.peak, each.value) for each in found.top[layer][head]] == expected


def test_a_passage_knows_its_surroundings_and_where_the_head_looks() -> None:
    model = sharp_model(V)
    (best, *_) = passages_of(model, 1).top[1][0]
    start, end = WINDOWS[best.peak // T]
    assert (best.start, best.end) == (max(start, best.peak - BEFORE), min(end, best.peak + AFTER + 1))
    assert best.sizes[best.peak - best.start] == best.value
    weights = model.attention_weights(torch.from_numpy(IDS[None, start:end]))[1, 0, 0, best.peak - start].detach()
    keys = weights.argsort(descending=True)[: min(LOOKS, best.peak - start + 1)].tolist()
    assert [place - start for place, _ in best.looks_at] == keys
    assert [weight for _, weight in best.looks_at] == pytest.approx(weights[keys].tolist())


def test_passages_of_a_head_do_not_overlap_and_their_number_is_bounded() -> None:
    model = sharp_model(V, "model.context_length=64")
    windows = [(0, len(IDS) - 1)]
    for of_layer in passages_of(model, 9, windows).top:
        for of_head in of_layer:
            assert 2 <= len(of_head) <= 3, "the text has no room for more"
            assert [each.value for each in of_head] == sorted((each.value for each in of_head), reverse=True)
            spans = sorted((each.start, each.end) for each in of_head)
            assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_equal_peaks_come_in_the_order_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the batches are: a window that comes again is the later one."""
    model, again = sharp_model(V), np.concatenate((IDS[:T], IDS[:T], IDS[:T], IDS[: T + 1]))
    windows = [(T * n, T * n + T) for n in range(4)]
    for at_once in (1, 2**20):
        monkeypatch.setattr(head_scores, "WEIGHTS_AT_ONCE", at_once)
        found = Passages(model, [0], [0, 1], 2)
        score_heads(model, again, windows, end_of_text=256, layers=[0], watch=found.add)
        for of_head in found.top[0]:
            first, second = of_head
            assert (first.peak // T, second.peak) == (0, first.peak + T)


def test_a_head_that_writes_nothing_has_no_passages_and_no_numbers_are_refused() -> None:
    model = sharp_model(V)
    with torch.no_grad():
        model.blocks[0].attention.projection_layer.weight[:, :8] = 0
    assert [len(of_head) for of_head in passages_of(model, 1).top[0]] == [0, 1]
    with torch.no_grad():
        model.blocks[0].attention.projection_layer.weight[:, :8] = torch.inf
    with pytest.raises(CheckpointError, match="outputs of heads"):
        passages_of(model, 1)


def test_shades_are_shares_of_the_largest_and_places_are_of_the_text() -> None:
    found = passages_of(sharp_model(V), 3)
    for of_head in found.rows(IDS, ByteTokenizer()):
        rows = of_head["passages"]
        values = [row["value"] for row in rows]
        for row in rows:
            assert len(row["tokens"]) == len(row["shades"]) <= BEFORE + AFTER + 1
            assert min(row["shades"]) >= 0
            assert max(row["shades"]) <= 1
            assert row["shades"][row["peak"]] == pytest.approx(row["value"] / values[0], abs=1e-4)
            assert row["place"] + row["peak"] in range(len(IDS))
            assert {*row["looks_at"][0]} == {"token", "index", "weight"}
        assert rows[0]["shades"][rows[0]["peak"]] == 1


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([*"今a".encode()], ["今", "", "", "a"]),
        ([*"a今".encode()][:3], ["a", "\ufffd", "\ufffd"]),
        ([97, 256, 0], ["a", "<|endoftext|>", "<0x00>"]),
        ([*"é\n".encode()], ["é", "", "\n"]),
    ],
)
def test_a_character_of_several_tokens_stands_whole_at_the_first(ids: list[int], expected: list[str]) -> None:
    assert whole_characters(ByteTokenizer(), ids) == expected


def test_special_tokens_of_an_imported_tokenizer_have_their_names(tmp_path: Path) -> None:
    tokenizer = read_tokenizer(save("llama2", tmp_path), None, None)
    ids = [*tokenizer.starts_with, *tokenizer.encode("The"), tokenizer.end_of_text]
    texts = whole_characters(tokenizer, ids)
    assert (texts[0], texts[-1]) == ("<s>", "</s>")
    assert "".join(texts[1:-1]).strip() == "The"
    nats = [0.5, *[1.0] * (len(ids) - 3), 9.0]
    assert "<s>" in Surprisals(tokenizer, ids, nats).as_coloured_text()


def test_a_passage_that_begins_or_ends_within_a_character_shows_no_half_of_it() -> None:
    text = np.array([*("今天天气" * 8).encode()])
    model = sharp_model(V, "model.context_length=64")
    found = Passages(model, [0], [0, 1], 2)
    score_heads(model, text, [(0, 64), (64, 95)], end_of_text=256, layers=[0], watch=found.add)
    for of_head in found.rows(text, ByteTokenizer()):
        for row in of_head["passages"]:
            assert "\ufffd" not in "".join(row["tokens"])
            assert "".join(row["tokens"]) in "今天天气" * 8
