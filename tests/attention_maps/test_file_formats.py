import tracemalloc
from pathlib import Path

import pytest
from support.pages import dump_of, random_weights, write_dump

from gpt_cli.attention_maps.file_formats import FORMATS, check_format, num_dots, tokens_per_dot, writing_bytes
from gpt_cli.errors import UsageError


# an svg and a pdf are drawn as a png is, which takes seconds
@pytest.mark.parametrize(
    "ending", [*FORMATS[:-2], *(pytest.param(each, marks=pytest.mark.long) for each in FORMATS[-2:])]
)
def test_what_a_file_takes_is_predicted(tmp_path: Path, ending: str) -> None:
    """Never too little, and of memory at most ten times too much."""
    side = 2 if ending == ".png" else 3  # of more, it takes seconds
    dump = dump_of(["word"] * 64, random_weights(side, side, 64))
    path = tmp_path / f"a{ending}"
    write_dump(path, dump_of(["word"], random_weights(1, 1, 1)))  # imports and caches are no part of it
    memory, disk = (side**2 * share for share in writing_bytes(ending, 64 * 64, 64 * 64))
    tracemalloc.start()
    write_dump(path, dump)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= memory + 400_000  # the page has its script too
    assert memory <= 10 * peak
    assert path.stat().st_size <= disk + 80_000  # likewise


@pytest.mark.parametrize("ending", [".json", ".csv", ".html", ".png", ".svg"])
def test_half_precision_and_other_stages_are_refused_where_a_file_has_none(ending: str) -> None:
    with pytest.raises(UsageError, match=f"^file_dtype: a {ending} file has no float16; use .npz or .safetensors$"):
        check_format(ending, ("weights",), "float16")
    if ending != ".json":
        with pytest.raises(UsageError, match=f"^stage: a {ending} file holds weights only; use .npz, .safetensors or "):
            check_format(ending, ("weights", "scores"))
    for holding in (".npz", ".safetensors"):
        check_format(holding, ("weights", "scores"), "float16")


@pytest.mark.parametrize(
    ("num_tokens", "num_layers", "num_heads", "each"),
    [
        (128, 12, 8, 1),
        (415, 12, 12, 1),  # 1.5 inches of 300 dots, of which the gap takes one in 13
        (416, 12, 12, 2),
        (1024, 12, 12, 3),
        (886, 4, 4, 1),  # 3.2 inches
        (2400, 1, 1, 1),  # 8 inches
        (4096, 2, 2, 5),
        (4096, 1024, 64, 76),  # a row of maps for each layer: 54 dots each, or the picture is too high
    ],
)
def test_long_texts_and_large_grids_share_dots(num_tokens: int, num_layers: int, num_heads: int, each: int) -> None:
    assert tokens_per_dot(num_tokens, num_layers, num_heads) == each
    assert num_dots(num_tokens, num_layers, num_heads) >= (-(-num_tokens // each)) ** 2
