import numpy as np
import pytest
import torch
from support.attribution import attribute
from support.pages import ORIGIN

from gpt_cli.attention_maps.file_formats import num_written
from gpt_cli.attention_maps.head_scores import COLUMNS, score_heads
from gpt_cli.attention_maps.patterns import dump_attention
from gpt_cli.config import ModelConfig
from gpt_cli.model import GPT
from gpt_cli.text.tokenizers import ByteTokenizer
from gpt_cli.tools.interpret.attention import with_heads

TOKENIZER = ByteTokenizer()
SIZES = ModelConfig(context_length=16, d_model=24, num_heads=3, num_blocks=4)
MODEL = GPT(SIZES, TOKENIZER.vocab_size, torch.Generator().manual_seed(0)).eval()
IDS = list(b"abcab")
DUMP = dump_attention(MODEL, TOKENIZER, IDS, layers=(1, 3), heads=(0, 2), origin=ORIGIN)


def test_a_dump_gets_the_scores_of_its_heads_on_its_tokens() -> None:
    how = {"end_of_text": TOKENIZER.end_of_text, "layers": (1, 3), "heads": (0, 2)}
    expected = score_heads(MODEL, np.array(IDS), [(0, len(IDS))], **how)
    scores = with_heads(DUMP, MODEL, TOKENIZER).scores
    assert scores is not None
    for column in COLUMNS:
        np.testing.assert_array_equal(scores[column], expected[column])


def test_a_dump_gets_what_its_heads_write_and_the_texts_of_those_tokens() -> None:
    dump = with_heads(DUMP, MODEL, TOKENIZER)
    assert dump.writes is not None
    assert dump.writes.raised.shape == (2, 2, 5, 5)
    found = attribute(MODEL, IDS, 2)
    logits = found.logits[found.names.index("L3 H2")]
    strongest = (logits - logits.mean()).topk(5)
    assert dump.writes.raised[1, 1, 2].tolist() == strongest.indices.tolist()
    np.testing.assert_allclose(dump.writes.raised_by[1, 1, 2], strongest.values, rtol=1e-3, atol=1e-6)
    assert {int(token): TOKENIZER.token_text(int(token)) for token in dump.writes.lowered.flat}.items() <= (
        dump.texts.items()
    )


def test_of_long_texts_less_is_written_and_then_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [num_written(96, tokens) for tokens in (16, 128, 512, 1024, 2048)] == [5, 5, 2, 1, 0]
    monkeypatch.setattr("gpt_cli.tools.interpret.attention.num_written", lambda *_: 0)
    notices: list[str] = []
    assert with_heads(DUMP, MODEL, TOKENIZER, notices.append).writes is None
    assert notices == [
        "the page does not show what heads write, which is too much here; fewer ‹layers› or ‹heads› make room"
    ]
