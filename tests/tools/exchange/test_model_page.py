"""What the page of a model contains. What its engine computes: tests/tools/pages/model."""

import base64
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.exchange import sharp_checkpoint
from support.helpers import small_config
from support.pages import content_of

from gpt_cli.errors import UsageError
from gpt_cli.sampling.fast.int8 import to_int8
from gpt_cli.text.tokenizers import ByteTokenizer, CharTokenizer
from gpt_cli.tools.exchange.model_page import first_prompt, model_page, stored
from gpt_cli.tools.exchange.page_data import Kind, layout, model_page_bytes
from gpt_cli.tools.pages.html_page import MODEL, build_page


def test_a_page_has_each_weight_once_and_where_it_comes_from_but_no_paths() -> None:
    checkpoint = sharp_checkpoint("data.source=/home/ann/secret/diary.txt", "model.tie_embeddings=true")
    page = model_page(checkpoint, None, "diary", title="", prompt="a")
    written = build_page(MODEL, *page)
    assert b"secret" not in written
    content = content_of(written)
    about = {"run": "diary", "step": 0, "best_loss": None, "context_length": 80, "kind": "float16"}
    num_parameters = sum(weight.numel() for weight in checkpoint.weights.values())
    assert content["origin"] == about | {"parameters": num_parameters}
    # tied embeddings are there once
    assert not any(tensor["name"].startswith("output_layer") for tensor in content["tensors"])
    assert len(base64.b64decode(page.weights)) == content["tensors"][-1]["at"] + 4 * 48  # the final norm's vector


def test_the_size_of_a_page_is_known_before() -> None:
    checkpoint = sharp_checkpoint()
    for kind in ("float16", "int8"):
        page = model_page(checkpoint, kind, "x", title="", prompt="a")
        shapes = {name: weight.shape for name, weight in checkpoint.weights.items()}
        expected = model_page_bytes(layout(shapes, kind), page.content["tokenizer"])
        assert len(build_page(MODEL, *page)) == pytest.approx(expected, rel=0.02)


def test_weights_are_rounded_as_they_are_when_sampling() -> None:
    weights = {"a.weight": torch.randn(3, 5, generator=torch.Generator().manual_seed(1)), "b": torch.arange(3.0)}
    shapes = {name: weight.shape for name, weight in weights.items()}
    found = stored(layout(shapes, "int8"), weights)
    numbers, scales = to_int8(weights["a.weight"])
    assert np.frombuffer(found, np.int8, 15, 0).tolist() == numbers.reshape(-1).tolist()
    assert np.frombuffer(found, "<f4", 3, 16).tolist() == scales.float().tolist()
    assert np.frombuffer(found, "<f4", 3, 28).tolist() == [0, 1, 2]
    halves = stored(layout(shapes, "float16"), weights)
    assert np.frombuffer(halves, "<f2", 15, 0).tolist() == weights["a.weight"].half().reshape(-1).tolist()


@pytest.mark.parametrize("kind", ["float16", "int8"])
def test_weights_in_bfloat16_are_stored_as_their_numbers(kind: Kind) -> None:
    halved = {name: weight.bfloat16() for name, weight in sharp_checkpoint("model.num_blocks=1").weights.items()}
    found = layout({name: weight.shape for name, weight in halved.items()}, kind)
    assert stored(found, halved) == stored(found, {name: weight.float() for name, weight in halved.items()})


def test_weights_beyond_float16_are_refused() -> None:
    checkpoint = sharp_checkpoint()
    weights = dict(checkpoint.weights)
    weights["output_layer.weight"] = weights["output_layer.weight"] * 1e6
    huge = replace(checkpoint, weights=weights)
    with pytest.raises(
        UsageError, match=r"output_layer.weight has a weight of .*, but float16 ends at 65,504"
    ) as refused:
        model_page(huge, None, "x", title="", prompt="a")
    assert refused.value.hint == "‹quantize=int8›"
    assert model_page(huge, "int8", "x", title="", prompt="a").content["origin"]["kind"] == "int8"


@pytest.mark.parametrize(
    ("settings", "characters", "opening", "prompt"),
    [
        ([], None, "", "The value of"),
        (["inspect.prompt=kqz"], None, "", "kqz"),
        (["inspect.prompt=kqz"], "kq", "", "kq"),
        ([], "今天好", "", "今天"),
        ([], "\n abcdefgh", "", "\n a"),
        ([], None, "To be", "To be"),
        (["inspect.prompt=or not"], None, "To be", "or not"),
        ([], "今天", "To be", "今天"),
    ],
)
def test_the_first_prompt_is_that_of_the_run_which_the_model_can_read(
    settings: list[str], characters: str | None, opening: str, prompt: str
) -> None:
    """Unless the run watched another text."""
    tokenizer = ByteTokenizer() if characters is None else CharTokenizer(characters)
    assert first_prompt(small_config(*settings), tokenizer, opening) == prompt


def test_the_first_prompt_of_a_vocabulary_of_digits_is_a_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an imported model, whose tokenizer drops what it does not know."""
    monkeypatch.setattr(ByteTokenizer, "encode", lambda self, text: [ord(c) for c in text if c.isdigit()])
    assert first_prompt(small_config(), ByteTokenizer()) == "0"
