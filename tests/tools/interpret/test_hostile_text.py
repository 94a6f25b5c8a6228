"""Tokens of strangers are inert text in every kind of output."""

import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import safetensors
from support.hostile import CALL, PAYLOADS
from support.pages import dump_of, random_weights, write_dump

from gpt_cli.attention_maps.file_formats import FORMATS
from gpt_cli.attention_maps.patterns import AttentionDump
from gpt_cli.attention_maps.terminal_map import draw_text_map

CONTROLS = ["\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\r", "\u202eoverride", "\u2066isolate", "\x00", "\x7f", "\u2028"]
FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(1)", "\t=1+1", "\r=1+1", "\n@x", "＝1+1", '=cmd|"/c calc"!A1']
TOKENS = [*CONTROLS, *FORMULAS, *PAYLOADS[::4], "--><script>fired(1)</script>", "nan", "NaN"]


@pytest.fixture(scope="module")
def hostile() -> AttentionDump:
    return dump_of(TOKENS, random_weights(1, 2, len(TOKENS)))


# a png and a pdf are drawn as the svg is, and hold no words
@pytest.mark.parametrize("ending", [each for each in FORMATS if each not in (".png", ".pdf")])
def test_a_file_holds_every_token_as_text(ending: str, hostile: AttentionDump, tmp_path: Path) -> None:
    path = tmp_path / f"a{ending}"
    write_dump(path, hostile)
    if ending == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            # numpy cuts zeros at the end of a text
            assert arrays["tokens"].tolist() == [token.rstrip("\x00") for token in TOKENS]
    elif ending == ".safetensors":
        with safetensors.safe_open(path, "np") as file:
            assert json.loads(file.metadata()["tokens"]) == TOKENS
    elif ending == ".json":
        content = path.read_text()
        assert json.loads(content, parse_constant=pytest.fail)["tokens"] == TOKENS
        assert not any(ord(c) < 32 for c in content)
    elif ending == ".csv":
        with open(path, newline="") as file:
            rows = list(csv.reader(file))
        assert {len(row) for row in rows} == {7}
        assert not [
            cell for row in rows[1:] for cell in row[4:6] if len(s := cell.lstrip("\t\r\n")) > 1 and s[0] in "=+-@＝"
        ]
    elif ending == ".svg":
        root = ElementTree.parse(path).getroot()
        assert {part.tag.rpartition("}")[2] for part in root.iter()} & {"script", "a", "text", "foreignObject"} == set()
        assert not [name for part in root.iter() for name in part.attrib if name.lower().startswith("on")]
    else:
        page = path.read_text()
        assert "\x1b" not in page
        assert f"<script>{CALL}" not in page
        assert "<img" not in page


@pytest.mark.parametrize("colour", [False, True])
def test_a_drawing_holds_nothing_that_a_terminal_obeys(hostile: AttentionDump, colour: bool) -> None:
    for width in (40, 400):
        drawing, _ = draw_text_map(hostile.tokens, hostile.weights[0, 0], width, colour=colour)
        assert all(c.isprintable() or c == "\n" for c in drawing.plain)
