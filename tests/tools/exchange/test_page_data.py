import pytest

from gpt_cli.config import ModelConfig
from gpt_cli.errors import EnvironmentFailure
from gpt_cli.tools.exchange.page_data import chosen_layout, layout, model_page_bytes, page_context

SHAPES = {"a.weight": (3, 5), "b": (3,), "c.weight": (2, 2)}


def test_tensors_begin_where_javascript_can_read_them() -> None:
    halves, bytes_ = layout(SHAPES, "float16"), layout(SHAPES, "int8")
    # 15 numbers of two bytes end at 30, and the next array begins at 32
    assert [(tensor["name"], tensor["kind"], tensor["at"]) for tensor in halves.tensors] == [
        ("a.weight", "float16", 0),
        ("b", "float32", 32),
        ("c.weight", "float16", 44),
    ]
    assert halves.num_bytes == 52
    assert [(tensor["at"], tensor.get("scales_at")) for tensor in bytes_.tensors] == [(0, 16), (28, None), (40, 44)]
    assert bytes_.num_bytes == 52


def test_a_page_takes_a_context_whose_attention_it_can_hold() -> None:
    gpt2 = ModelConfig(context_length=1024, d_model=768, num_heads=12, num_blocks=12)
    assert page_context(gpt2) == 1024
    # 270 heads have 270 x 769 x 770 / 2 = 79.9 million weights
    assert page_context(ModelConfig(context_length=8192, d_model=576, num_heads=9, num_blocks=30)) == 769


def matrix(num_millions: int) -> dict[str, tuple[int, ...]]:
    return {"weight": (1000, num_millions * 1000)}


def test_float16_is_chosen_while_the_page_is_small() -> None:
    # four thirds of two bytes: 11 million numbers take 29.3 MB, 12 million 32
    kinds = {millions: chosen_layout(matrix(millions), {}, None)[0].kind for millions in (1, 11, 12, 40)}
    assert kinds == {1: "float16", 11: "float16", 12: "int8", 40: "int8"}
    found, num_bytes = chosen_layout(matrix(40), {}, "float16")
    assert found.kind == "float16"
    assert num_bytes == model_page_bytes(found, {}) == pytest.approx(40e6 * 8 / 3, rel=0.01)


@pytest.mark.parametrize(
    ("millions", "wanted", "sentence", "hint"),
    [
        (99, "float16", "264 MB with weights in float16", "‹quantize=int8›, with which it has 132 MB"),
        (159, "float16", "424 MB", "a page holds about 150 million parameters"),
        (159, None, "212 MB with weights in int8", "a page holds about 150 million parameters"),
    ],
)
def test_too_large_a_page_is_refused_with_what_fits(
    millions: int, wanted: str | None, sentence: str, hint: str
) -> None:
    with pytest.raises(EnvironmentFailure) as refused:
        chosen_layout(matrix(millions), {}, wanted)  # type: ignore[arg-type]
    assert refused.value.sentence.startswith(f"the page would have {sentence}")
    assert refused.value.sentence.endswith("browsers open pages of at most 200 MB")
    assert refused.value.hint is not None
    assert refused.value.hint.startswith(hint)
    assert refused.value.exit_code == 5
