from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import small_config
from support.pages import ORIGIN
from torch.utils.flop_counter import FlopCounterMode

from gpt_cli.attention_maps import patterns
from gpt_cli.attention_maps.file_formats import STAGES
from gpt_cli.attention_maps.patterns import count_numbers
from gpt_cli.config import ModelConfig
from gpt_cli.errors import CheckpointError
from gpt_cli.model import GPT, MultiHeadAttention
from gpt_cli.model.attention import Stages
from gpt_cli.text.tokenizers import ByteTokenizer

SIZES = ModelConfig(context_length=16, d_model=24, num_heads=3, num_blocks=4)
MODEL = GPT(SIZES, 257, torch.Generator().manual_seed(0)).eval()
IDS = list("今ab".encode())
dump_attention = partial(patterns.dump_attention, origin=ORIGIN)


def test_every_stage_has_its_shape_and_follows_from_the_ones_before() -> None:
    stages = dump_attention(MODEL, ByteTokenizer(), IDS, layers=(0, 1, 2), heads=(1,), stages=STAGES).stages
    for name in ("queries", "keys", "values", "heads"):
        assert stages[name].shape == (3, 1, 5, 8)
    np.testing.assert_allclose(stages["scores"], stages["queries"] @ stages["keys"].swapaxes(-1, -2), atol=1e-6)
    np.testing.assert_allclose(stages["heads"], stages["weights"] @ stages["values"], atol=1e-6)


def test_the_flag_knows_every_stage() -> None:
    assert set(STAGES) == set(Stages._fields)


def test_half_precision_keeps_a_weight_as_finely_as_the_readme_says() -> None:
    model, tokenizer = GPT(small_config().model, 257, torch.Generator().manual_seed(0)).eval(), ByteTokenizer()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("heads.0.Wq.weight"):
                parameter.mul_(300)  # weights from next to nothing to nearly one
    single, half = (
        dump_attention(model, tokenizer, list(range(16)), layers=range(2), heads=range(2), file_dtype=dtype).weights
        for dtype in ("float32", "float16")
    )
    assert single[single > 0].min() < 6e-5 < 0.99 < np.delete(single, 0, axis=2).max()
    assert half.dtype == np.float16
    assert (np.abs(half.astype(np.float64) - single) <= np.maximum(single / 2048, 3e-8)).all()


def test_the_work_of_one_head_is_a_small_part_of_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """In operations: of attention for the dump, and of the whole beside a forward pass."""
    config = small_config("model.num_heads=8", "model.num_blocks=8", "model.d_model=64", "model.context_length=64")
    model, tokenizer = GPT(config.model, 257, torch.Generator().manual_seed(0)).eval(), ByteTokenizer()
    ids = list(range(64))
    of_stages: list[int] = []
    stages = MultiHeadAttention.stages

    def counted(*call: Any) -> Any:
        with FlopCounterMode(display=False) as counter:
            found = stages(*call)
        of_stages.append(counter.get_total_flops())
        return found

    monkeypatch.setattr(MultiHeadAttention, "stages", counted)

    def work(layers: range, heads: range) -> tuple[int, int]:
        of_stages.clear()
        with FlopCounterMode(display=False) as counter:
            dump_attention(model, tokenizer, ids, layers=layers, heads=heads)
        return sum(of_stages), counter.get_total_flops()

    with FlopCounterMode(display=False) as forward, torch.no_grad():
        model(torch.tensor([ids]))
    one, whole_of_one = work(range(7, 8), range(1))
    all_heads, whole_of_all = work(range(8), range(8))
    assert 0 < 50 * one < all_heads
    assert whole_of_one < forward.get_total_flops()
    assert whole_of_all < 1.05 * forward.get_total_flops(), "what the dump computes is not computed again"


@pytest.mark.parametrize("settings", [[], ["model.attention=latent", "model.positions=rope", "model.rotary_size=6"]])
def test_numbers_are_counted_before_they_are_there(settings: list[str]) -> None:
    sizes = small_config(*settings).model
    model, tokenizer = GPT(sizes, 257, torch.Generator().manual_seed(0)).eval(), ByteTokenizer()
    for stages in (("weights",), ("weights", "scores", "queries", "keys", "values", "heads")):
        dump = dump_attention(model, tokenizer, list(range(9)), layers=range(2), heads=range(2), stages=stages)
        assert sum(array.size for array in dump.stages.values()) == 4 * count_numbers(stages, 9, sizes)


def test_a_model_that_computes_no_finite_attention_is_refused() -> None:
    model = GPT(SIZES, 257, torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        # each is finite, their products are not
        model.state_dict()["blocks.1.attention.heads.2.Wq.weight"].fill_(1e38)
    wrong = r'^"runs/a/best.safetensors": its weights give \w+ in layer 1 that are not finite, so it cannot be used$'
    model.where = '"runs/a/best.safetensors"'
    with pytest.raises(CheckpointError, match=wrong):
        dump_attention(model, ByteTokenizer(), IDS, layers=(0, 1), heads=(1, 2))
    dump_attention(model, ByteTokenizer(), IDS, layers=(0,), heads=(0,))
