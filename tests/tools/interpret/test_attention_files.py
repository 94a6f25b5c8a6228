"""Attention in every file format: its numbers, and how large and exact pages are. In a browser: tests/tools/pages."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from support.pages import content_of, dump_of, random_weights, restored, scores_of, unpacked, write_dump, writes_of

from gpt_cli.attention_maps.file_formats import num_written, written_bytes
from gpt_cli.attention_maps.head_metrics import COLUMNS, ROLES
from gpt_cli.attention_maps.logit_attribution import Writes
from gpt_cli.attention_maps.patterns import AttentionDump, Origin
from gpt_cli.tools.interpret.attention_files import attention_page, quantise

TOKENS = ("今", 'a,"b"', "\n")
WEIGHTS = np.zeros((2, 1, 3, 3), np.float32)
WEIGHTS[:] = [[1, 0, 0], [0.25, 0.75, 0], [0.1, 0.2, 0.7]]
PLAIN = AttentionDump(TOKENS, (5, 6, 7), (0, 3), (2,), {"weights": WEIGHTS}, Origin("runs/tiny", 5, "a text"))
DUMP = replace(PLAIN, stages={"weights": WEIGHTS, "queries": np.ones((2, 1, 3, 4), np.float32)})


def test_npz_safetensors_and_json_have_the_same(tmp_path: Path) -> None:
    """The first opens without pickle, the second has the tokens as metadata, the last lists with every digit."""
    for ending in ("npz", "safetensors", "json"):
        write_dump(tmp_path / f"a.{ending}", DUMP)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        npz = {**file}
    with safetensors.safe_open(tmp_path / "a.safetensors", "np") as file:
        tokens = json.loads(file.metadata()["tokens"])
    arrays = safetensors.numpy.load_file(tmp_path / "a.safetensors") | {"tokens": tokens}
    for content in (npz, arrays, json.loads((tmp_path / "a.json").read_text())):
        assert set(content) == {"weights", "queries", "token_ids", "tokens", "layers", "heads"}
        np.testing.assert_array_equal(np.array(content["weights"], np.float32), WEIGHTS)
        numbers = [[*content[name]] for name in ("tokens", "token_ids", "layers", "heads")]
        assert numbers == [[*TOKENS], [5, 6, 7], [0, 3], [2]]


def test_csv_has_a_line_for_each_weight_up_to_the_diagonal(tmp_path: Path) -> None:
    write_dump(tmp_path / "a.csv", PLAIN)
    assert (tmp_path / "a.csv").read_text().startswith("layer,head,query,key,query_token,key_token,weight\n0,2,0,0,")
    with open(tmp_path / "a.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["layer", "head", "query", "key", "query_token", "key_token", "weight"]
    assert len(rows) == 2 * 1 * (1 + 2 + 3)
    assert rows[7] == ["3", "2", "1", "0", 'a,"b"', "今", "0.25"]
    assert rows[-1] == ["3", "2", "2", "2", "\n", "\n", "0.7"]
    for layer, _, query, key, _, _, weight in rows:
        assert np.float32(weight) == WEIGHTS[(0, 3).index(int(layer)), 0, int(query), int(key)]


def test_outputs_of_heads_and_numbers_of_heads_have_names_of_their_own(tmp_path: Path) -> None:
    outputs = np.full((2, 1, 3, 4), 9, np.float32)
    write_dump(tmp_path / "a.npz", replace(PLAIN, stages={"weights": WEIGHTS, "heads": outputs}))
    with np.load(tmp_path / "a.npz") as arrays:
        np.testing.assert_array_equal(arrays["heads"], outputs)
        assert arrays["head_numbers"].tolist() == [2]


@pytest.mark.parametrize(("levels", "largest_error"), [(255, 1 / 255), (65535, 1 / 65535)])
def test_a_weight_is_held_as_finely_as_the_docstring_says(levels: int, largest_error: float) -> None:
    weights = np.concatenate([np.linspace(0, 1, 100_001), np.logspace(-9, 0, 100_001)])
    errors = np.abs((quantise(weights, levels) / levels) ** 2 - weights)
    assert (errors <= np.sqrt(weights) / levels + 1 / (4 * levels**2) + 1e-15).all()
    assert largest_error / 2 < errors.max() <= largest_error
    # of a hundredth a tenth of that: long texts have many small weights
    assert errors[weights <= 0.01].max() <= largest_error * 0.11
    assert (errors[weights == 0] == 0).all()
    assert (errors[weights == 1] == 0).all()


@pytest.mark.parametrize(("shape", "levels"), [((2, 3, 20), 65535), ((12, 8, 128), 255)])
def test_the_page_holds_every_weight_of_every_head(shape: tuple[int, int, int], levels: int) -> None:
    weights = random_weights(*shape)
    page = attention_page(dump_of(["x"] * shape[2], weights))
    assert content_of(page)["levels"] == levels
    expected = weights[:, :, *np.tril_indices(shape[2])]
    allowed = np.sqrt(expected) / levels + 1 / (4 * levels**2) + 1e-9
    assert (np.abs(restored(page) - expected) <= allowed).all()


def test_the_page_holds_every_score_and_from_which_one_on_a_label_applies() -> None:
    dump = dump_of(["x"] * 4, random_weights(2, 3, 4))
    content, scores = content_of(attention_page(dump))["scores"], scores_of(2, 3)
    assert content["columns"] == list(COLUMNS)
    numbers = unpacked(content["numbers"], "<f4").reshape(1, 2, 3, len(COLUMNS))
    for place, column in enumerate(COLUMNS):
        np.testing.assert_allclose(numbers[0, ..., place], scores[column], rtol=1e-7)
    assert content["roles"] == [[*role] for role in ROLES.items()]


def test_the_page_holds_what_heads_write() -> None:
    writes, texts = writes_of(2, 3, 4, 50), {token: f"token {token}" for token in range(50)}
    dump = replace(dump_of(["x"] * 4, random_weights(2, 3, 4)), writes=writes, texts=texts)
    content = content_of(attention_page(dump))["writes"]
    found = np.array(content["texts"])[unpacked(content["tokens"], "<u4")].reshape(2, 2, 3, 4, 3)
    logits = (unpacked(content["logits"], "<i2") * content["unit"]).reshape(found.shape)
    for half, (ids, by) in enumerate([(writes.raised, writes.raised_by), (writes.lowered, writes.lowered_by)]):
        assert found[half].tolist() == np.vectorize(texts.get)(ids).tolist()
        assert np.abs(logits[half] - by).max() <= np.abs(writes.lowered_by).max() / 65000


def test_heads_that_write_nothing_have_logits_of_zero() -> None:
    ids, zeros = np.zeros((1, 1, 2, 1), int), np.zeros((1, 1, 2, 1), np.float32)
    dump = replace(dump_of(["x"] * 2, random_weights(1, 1, 2)), writes=Writes(ids, zeros, ids, zeros), texts={0: "a"})
    assert unpacked(content_of(attention_page(dump))["writes"]["logits"], "<i2").tolist() == [0] * 4


def test_all_heads_of_the_default_model_fit_in_a_megabyte_and_what_they_write_in_one_and_a_half() -> None:
    dump = dump_of(["expression"] * 128, random_weights(12, 8, 128))
    writes = writes_of(12, 8, 128, 8192, num_written(96, 128))
    texts = {token: f"token {token}" for token in range(8192)}
    size = len(attention_page(dump))
    more = len(attention_page(replace(dump, writes=writes, texts=texts))) - size
    assert size < 1_000_000
    assert 0 < more < min(1_500_000, 96 * written_bytes(96, 128)[1])
    assert num_written(96, 128) == 5
