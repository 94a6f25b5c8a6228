"""The engine of a model's page computes what PyTorch computes with the weights that the page has."""

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from support.engine import LIKELIEST, answers, off, opening_of, random_ids, rounded
from support.exchange import sharp_checkpoint
from support.faults import SCALE
from support.scripts import RunScript

from gpt_cli.config.load import read_config
from gpt_cli.config.model import ModelConfig
from gpt_cli.model.forms.ngrams import NgramEmbedding
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.generate import continuations
from gpt_cli.sampling.next_token import SamplingParameters, probabilities
from gpt_cli.tools.pages.html_page import ENGINE

_LLAMA = "model.norm=rmsnorm model.norm_epsilon=1e-3 model.activation=swiglu model.bias=false model.positions=rope "
_LLAMA += "model.attention=grouped_query model.num_key_value_heads=2 "
KINDS = {  # settings as other people's models have them
    "gpt_neo": "model.scale=none model.attention_window=[null,5] model.activation=gelu_tanh model.tie_embeddings=true",
    "gpt_neox": "model.positions=rope model.rotary_size=4 model.parallel_branches=true model.qkv_bias=true "
    "model.norm_epsilon=0.01",
    # pairs of a head turn 80 / 2 pi = 12.7 times in 80 tokens, 4.4, 1.5, 0.5, 0.2 and 0.06 times: all three kinds
    "llama": _LLAMA + "model.rope_base=600 model.rope_scaling=8 model.rope_original_length=80",
    "qwen3": _LLAMA + "model.qk_norm=true model.head_size=18 model.rope_base=1000000",
    "mistral": _LLAMA + "model.attention_window=7 model.qkv_bias=true",
}
FORMS = [
    "model.activation=gelu",
    "model.attention=grouped_query model.qkv_bias=true",
    "model.attention=grouped_query model.num_key_value_heads=2 model.positions=rope",
    "model.attention=latent",
    "model.attention=latent model.positions=rope model.query_latent_size=20 model.rotary_size=10",
    "model.attention=latent model.positions=rope model.scale=none",
    "model.positions=rope model.norm=rmsnorm model.activation=relu2 model.bias=false",
    "model.positions=sinusoidal model.norm_position=post",
    "model.positions=none model.norm=rmsnorm model.norm_position=post model.activation=relu",
    "model.activation=gelu_tanh model.qkv_bias=true model.tie_embeddings=true",
    "model.ngram_embedding=4 model.ngram_rows=300 model.positions=rope",
    "model.ngram_embedding=8 model.ngram_rows=1000 model.tie_embeddings=true",
    "model.d_model=27 model.num_heads=3 model.feed_forward_size=33 model.bias=false model.scale=none",
    *KINDS.values(),
    "model.activation=geglu model.attention=latent model.positions=rope model.attention_window=9 model.head_size=7",
]
CONFIGS = sorted(path.stem for path in (Path(__file__).parents[4] / "configs").glob("*.yaml"))
GREEDY = SamplingParameters(temperature=0)
V = 257


def test_the_forms_are_all_that_a_config_can_name() -> None:
    named = {setting for form in FORMS for setting in form.split()}
    defaults = ModelConfig()
    for key in ("attention", "positions", "norm", "norm_position", "activation", "scale"):
        for value in get_args(ModelConfig.model_fields[key].annotation):
            assert f"model.{key}={value}" in named or getattr(defaults, key) == value
    sizes = {"context_length", "d_model", "num_heads", "num_blocks", "latent_size", "dropout"}
    bounds = {"rope_low_frequency", "rope_high_frequency"}
    keys = {setting.split("=")[0].removeprefix("model.") for setting in named}
    assert {key for key in ModelConfig.model_fields if key not in keys} <= sizes | bounds


# without those whose surprisals or likeliest tokens a test below has
@pytest.mark.parametrize("form", FORMS if SCALE >= 1 else [*FORMS[3:12:2], KINDS["gpt_neox"], KINDS["llama"]])
def test_logits_are_those_of_the_model(form: str, run_script: RunScript) -> None:
    checkpoint, ids = sharp_checkpoint(*form.split()), random_ids(37)
    with torch.no_grad():
        own = checkpoint.build_model()(torch.tensor([ids]))[0].numpy()
        assert own.std() > 0.5  # the test can fail
        for kind in ("float16", "int8"):
            (found,) = answers(run_script, checkpoint, ("allLogits", {"ids": ids}), kind=kind)
            expected = rounded(checkpoint, kind)(torch.tensor([ids]))[0].numpy()
            logits = np.reshape(found, (37, V))
            np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)
            if kind == "float16":
                np.testing.assert_allclose(logits, own, rtol=0, atol=2e-2)


@pytest.mark.parametrize("name", CONFIGS if SCALE >= 1 else ("latent", "tiny"))
def test_shipped_configs_run(name: str, run_script: RunScript) -> None:
    """With their own widths and settings, but few ids and small tables of n-grams; all blocks at full scale only."""
    model = read_config(name).model
    model = model.model_copy(update={"num_blocks": model.num_blocks if SCALE >= 1 else 2, "ngram_rows": 500})
    settings = [f"model.{key}={'null' if value is None else value}" for key, value in model.model_dump().items()]
    checkpoint, ids = sharp_checkpoint(*settings), random_ids(20)
    kind = "int8" if name == "small" else "float16"
    with torch.no_grad():
        expected = rounded(checkpoint, kind)(torch.tensor([ids]))[0].numpy()
    (found,) = answers(run_script, checkpoint, ("allLogits", {"ids": ids}), kind=kind)
    np.testing.assert_allclose(np.reshape(found, (20, V)), expected, rtol=0, atol=1e-3)


# without one that repeats a single token
@pytest.mark.parametrize(
    "form", [*FORMS[:4], *FORMS[5:]] if SCALE >= 1 else [KINDS["mistral"], FORMS[2], *FORMS[6:13:2]]
)
def test_the_likeliest_tokens_are_those_of_the_decoder(form: str, run_script: RunScript) -> None:
    """For 50 tokens, each computed with the keys and values of those before."""
    checkpoint, prompt = sharp_checkpoint(*form.split()), random_ids(20)
    decoder = Decoder(rounded(checkpoint, "float16"), torch.float64)
    (expected,) = continuations(decoder, [prompt], GREEDY, max_new_tokens=50)
    assert len(set(expected)) > 2
    calls = [("run", {"ids": prompt + expected[:count]}) for count in range(50)]
    assert answers(run_script, checkpoint, *calls, part=LIKELIEST) == expected


def test_a_text_beyond_the_context_begins_later_as_in_the_decoder(run_script: RunScript) -> None:
    checkpoint, prompt = sharp_checkpoint("model.context_length=16"), random_ids(12)
    decoder = Decoder(rounded(checkpoint, "float16"), torch.float64)
    (expected,) = continuations(decoder, [prompt], GREEDY, max_new_tokens=50)
    calls = [("run", {"ids": prompt + expected[:count]}) for count in range(50)]
    assert answers(run_script, checkpoint, *calls, part=LIKELIEST) == expected
    found = answers(run_script, checkpoint, *calls[:15])
    # a full context of 16 keeps its last 8 tokens
    assert [result["start"] for result in found] == 5 * [0] + 9 * [9] + [18]
    last = found[6]  # 18 tokens, of which 9 are read; the first of these has none before it
    assert [surprisal is None for surprisal in last["surprisals"]] == 10 * [True] + 8 * [False]
    assert len(last["attention"]) == 3 * 4 * 9 * 10 / 2


def test_an_edited_text_gives_what_a_new_one_gives(run_script: RunScript) -> None:
    ids, settings = random_ids(30), ("model.positions=rope", "model.ngram_embedding=3", "model.ngram_rows=300")
    checkpoint = sharp_checkpoint(*settings)
    texts = [ids[:5], ids[:6], ids[:6], ids[:4], ids, [*ids[:10], 3, 4], ids[20:], [9], ids]
    calls = [{"ids": text, "changes": changes} for text in texts for changes in ([], off([1, 2]))]
    function = """async ({ opening, calls }) => {
      const apart = (one, other) => Math.max(...Array.from(one, (number, place) => Math.abs(number - other[place]) || 0));
      engine.open(opening);
      const results = [];
      for (const call of calls) {
        const fresh = new Engine();
        fresh.open(opening);
        const [found, anew] = [await engine.run(call), await fresh.run(call)];
        results.push(["logits", "surprisals", "attention"].map((name) => [found[name].length - anew[name].length, apart(found[name], anew[name])]));
      }
      return results;
    }"""
    found = np.array(run_script(ENGINE, function, {"opening": opening_of(checkpoint), "calls": calls}))
    np.testing.assert_allclose(found, np.zeros((18, 3, 2)), rtol=0, atol=1e-5)


@pytest.mark.parametrize("form", [FORMS[1], FORMS[4], FORMS[7], KINDS["gpt_neo"], KINDS["qwen3"]])
def test_attention_and_surprisals_are_those_of_the_model(form: str, run_script: RunScript) -> None:
    checkpoint, ids = sharp_checkpoint(*form.split()), random_ids(40)
    model, batch = rounded(checkpoint, "float16"), torch.tensor([ids])
    (found,) = answers(run_script, checkpoint, ("run", {"ids": ids}))
    weights = model.attention_weights(batch)[:, 0].numpy()[..., *np.tril_indices(40)]
    np.testing.assert_allclose(np.reshape(found["attention"], weights.shape), weights, rtol=0, atol=1e-5)
    with torch.no_grad():
        chances = model(batch)[0].log_softmax(-1)
    expected = -chances[:-1].gather(-1, batch[0, 1:, None])[:, 0].numpy()
    assert found["surprisals"][0] is None
    np.testing.assert_allclose(found["surprisals"][1:], expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "0 tokens, where the model reads 1 to 80"),
        ([1] * 81, "81 tokens, where the model reads 1 to 80"),
        ([3, 257], "there is no token 257"),
        ([3, -1], "there is no token -1"),
        ([0.5], "there is no token 0.5"),
    ],
)
def test_what_is_no_text_of_the_model_is_an_error(ids: list[Any], message: str, run_script: RunScript) -> None:
    with pytest.raises(Exception, match=message):
        answers(run_script, sharp_checkpoint("model.num_blocks=1"), ("allLogits", {"ids": ids}))


def test_logits_that_are_not_finite_are_an_error(run_script: RunScript) -> None:
    checkpoint = sharp_checkpoint("model.num_blocks=1", "model.norm=rmsnorm")
    huge = replace(checkpoint, weights={name: 1e30 * weight for name, weight in checkpoint.weights.items()})
    with pytest.raises(Exception, match="notFinite"):
        answers(run_script, huge, ("run", {"ids": [1, 2]}), kind="int8")


def test_a_text_after_one_whose_logits_are_not_finite_is_read_as_if_it_were_the_first(run_script: RunScript) -> None:
    checkpoint = sharp_checkpoint("model.num_blocks=1", "model.norm_position=post")
    checkpoint.weights["token_embedding.weight"][9] *= 1e30
    function = """async (opening) => {
      engine.open(opening);
      await engine.run({ ids: [1, 2] });
      try { await engine.run({ ids: [1, 2, 9] }); } catch { return (await engine.run({ ids: [1, 2, 4] })).surprisals; }
    }"""
    found = run_script(ENGINE, function, opening_of(checkpoint, "int8"))
    (expected,) = answers(run_script, checkpoint, ("run", {"ids": [1, 2, 4]}), kind="int8")
    assert found[1:] == pytest.approx(expected["surprisals"][1:])


def test_every_float16_is_read(run_script: RunScript) -> None:
    found = run_script(ENGINE, "() => fromHalves(Uint16Array.from({ length: 65536 }, (_, bits) => bits))")
    expected = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float64)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.array(found, float)[finite], expected[finite])


def test_bytes_are_read_by_old_browsers_too(run_script: RunScript) -> None:
    for given in ("", "Uint8Array.fromBase64 = undefined;"):
        found = run_script(ENGINE, f"(text) => {{ {given} return bytesOf(text); }}", "AAEC/f7/KCk=")
        assert found == [0, 1, 2, 253, 254, 255, 40, 41]


@pytest.mark.parametrize("vocab_size", [10, 50_257])
def test_rows_of_long_ngrams_are_those_of_torch(vocab_size: int, run_script: RunScript) -> None:
    """Pairs and triples of 10 ids have rows of their own; the code of 8 ids of 50,257 needs 125 bits, and wraps at 64."""
    embedding, ids = NgramEmbedding(8, 1009, vocab_size, 1), random_ids(40, vocab_size)
    expected = torch.cat([*embedding.rows(torch.tensor([ids]))]).T.tolist()
    sizes = [table.num_embeddings for table in embedding.tables]
    function = """({ vocabSize, sizes, ids }) => {
      const made = Object.assign(Object.create(NgramEmbedding.prototype), { vocabSize, tables: sizes.map((rows) => ({ rows })) });
      return ids.map((_, place) => made.rows(ids, place));
    }"""
    assert run_script(ENGINE, function, {"vocabSize": vocab_size, "sizes": sizes, "ids": ids}) == expected


def test_chances_come_with_texts_and_with_those_before(run_script: RunScript) -> None:
    checkpoint, ids = sharp_checkpoint(), random_ids(20)
    with torch.no_grad():
        logits = rounded(checkpoint, "float16").next_logits(torch.tensor([ids]))
    after = probabilities(logits, SamplingParameters(temperature=0.5, top_k=3))[0]
    before = logits[0].softmax(-1)
    asked = {"temperature": 0.5, "topK": 3, "topP": None, "count": 5}
    _, found = answers(run_script, checkpoint, ("run", {"ids": ids}), ("chances", asked))
    order = before.argsort(descending=True)[:5].tolist()
    assert [chance["id"] for chance in found] == order
    assert [chance["text"] for chance in found] == [checkpoint.tokenizer.token_text(token) for token in order]
    np.testing.assert_allclose([chance["probability"] for chance in found], after[order], atol=1e-5)
    np.testing.assert_allclose([chance["before"] for chance in found], before[order], atol=1e-5)


def test_a_text_comes_back_from_its_ids(run_script: RunScript) -> None:
    text = "今a\n"
    ids = [0xE4, 0xBB, 0x8A, 0x61, 0x0A]
    texts = ["<0xE4>", "<0xBB>", "<0x8A>", "a", "\n"]
    calls = (("encode", {"text": text}), ("decode", {"ids": ids}), ("encode", {"text": ""}))
    assert answers(run_script, sharp_checkpoint("model.num_blocks=1"), *calls) == [
        {"ids": ids, "texts": texts},
        {"text": text, "texts": texts},
        {"ids": [256], "texts": ["<|endoftext|>"]},  # as gpt sample begins
    ]


def test_a_reading_that_nobody_waits_for_ends_and_goes_on_later(run_script: RunScript) -> None:
    """Of 30 tokens, 8 at a time, 16 are read before it is stopped; another text begins with the first 12 of them."""
    checkpoint, ids = sharp_checkpoint("model.ngram_embedding=3", "model.ngram_rows=300"), random_ids(30)
    function = """async ({ opening, ids, other }) => {
      engine.open(opening);
      const told = [];
      const stopped = await engine.run({ ids }, (done, total) => told.push([done, total]) < 2);
      const results = [await engine.run({ ids: other }), await engine.run({ ids }, (done) => told.push(done))];
      return { stopped, told, results };
    }"""
    other = [*ids[:12], 5, 6]
    given = {"opening": opening_of(checkpoint), "ids": ids, "other": other}
    found = run_script(ENGINE, function, given)
    assert found["stopped"] is None
    assert found["told"] == [[8, 30], [16, 30], 19, 27]  # the last token in common is read again
    for text, result in zip((other, ids), found["results"], strict=True):
        (expected,) = answers(run_script, checkpoint, ("run", {"ids": text}))
        for part in ("logits", "surprisals", "attention"):
            np.testing.assert_array_equal(np.array(result[part], float), np.array(expected[part], float))


def test_attention_that_the_page_has_is_not_sent_again(run_script: RunScript) -> None:
    """5 tokens have triangles of 15 weights in 12 heads, of which the rows of the first 3 have 6."""
    checkpoint, ids = sharp_checkpoint(), random_ids(5)
    texts: list[Any] = [[], ids[:3], [*ids[:3], 256], ids, None]
    calls = [("run", {"ids": ids, "had": had}) for had in texts]
    whole, *parts = answers(run_script, checkpoint, *calls)
    assert [whole["first"], *(part["first"] for part in parts)] == [0, 3, 3, 5, 5]
    triangles = np.reshape(whole["attention"], (12, 15))
    for part, start in zip(parts, (6, 6, 15, 15), strict=True):
        np.testing.assert_array_equal(np.reshape(part["attention"], (12, -1)), triangles[:, start:])
