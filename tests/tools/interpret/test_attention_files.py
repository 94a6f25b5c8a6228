from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy
from support.pages import write_dump

from gpt_cli.attention_maps.patterns import AttentionDump

TOKENS = ("今", 'a,"b"', "\n")
WEIGHTS = np.zeros((2, 1, 3, 3), np.float32)
WEIGHTS[:] = [[1, 0, 0], [0.25, 0.75, 0], [0.1, 0.2, 0.7]]
PLAIN = AttentionDump(TOKENS, (5, 6, 7), (0, 3), (2,), {"weights": WEIGHTS})
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
