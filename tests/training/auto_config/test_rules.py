"""The rules as a function: figures of texts and budgets in, settings and reasons out."""

import math
import re
from dataclasses import replace
from typing import Any

import pytest

from gpt_cli.config.load import validate
from gpt_cli.errors import UsageError
from gpt_cli.training.auto_config.choice import Budget, Choice
from gpt_cli.training.auto_config.model_sizes import REFERENCE, SIZES
from gpt_cli.training.auto_config.rules import choose_settings, minutes_that_pay
from gpt_cli.training.auto_config.text_statistics import TextFigures

MINUTE = 0.06  # seconds of a reference step on two cores, so that a minute has a thousand


def english(num_bytes: int) -> TextFigures:
    return TextFigures(num_bytes, num_bytes, 80, 4.8)


def chinese(num_bytes: int) -> TextFigures:
    return TextFigures(num_bytes, num_bytes // 3, 3000, 9.0)


def chosen(text: TextFigures, seconds: float = 60.0, step: float = MINUTE, **fixed: dict[str, Any]) -> Choice:
    return choose_settings(text, Budget(seconds, step_seconds=step), fixed)


def test_a_text_of_long_tokens_is_read_more_often() -> None:
    """Twice as many bytes a token are half as many tokens, which the same steps read twice as often."""
    text = english(2_000_000)
    longer = replace(text, pairs=tuple((size, 2 * length) for size, length in text.pairs))

    def figures(each: TextFigures) -> tuple[str, str]:
        reasons = chosen(each, model={"d_model": 96, "num_blocks": 3}).reasons
        tokens, times = re.findall(r"about (\d+) k tokens|read about ([\d.]+) times", " ".join(reasons))
        return tokens[0], times[1]

    assert [figures(text), figures(longer)] == [("545", "5.2"), ("273", "10")]


def test_the_script_and_the_size_choose_the_tokenizer() -> None:
    def kind(text: TextFigures, seconds: float = 60.0) -> tuple[str, int]:
        tokenizer = chosen(text, seconds).config.tokenizer
        return tokenizer.kind, tokenizer.vocab_size

    assert kind(english(60_000))[0] == "char"
    assert kind(english(60_000), 5.0) == ("bpe", 512)  # there is no time to read every letter ten times
    assert kind(english(460_000)) == ("bpe", 1024)
    assert kind(english(300_000_000))[1] > kind(english(460_000))[1]
    assert kind(chinese(380_000))[0] == "char"
    assert kind(chinese(20_000_000))[0] == "bpe"
    assert kind(english(300_000_000), 10.0)[1] < kind(english(300_000_000))[1]  # there is no time to learn more
    dna = TextFigures(300_000_000, 300_000_000, 4, 2.0, pair_saving=-0.05)
    assert [kind(dna)[0], kind(replace(dna, pair_saving=0.06))[0]] == ["char", "bpe"]
    assert kind(replace(english(460_000), num_distinct=300, pair_saving=0.0))[0] == "bpe"  # many letters, not few


def test_more_time_gives_larger_models_and_never_smaller_ones() -> None:
    for size in (20_000, 200_000, 2_000_000, 20_000_000):
        widths = [chosen(english(size), seconds).config.model.d_model for seconds in (1, 10, 60, 600, 6000, 60_000)]
        assert widths == sorted(widths)
    assert chosen(english(10**9), 10**6).config.model.d_model == SIZES[-1][0]
    assert list(SIZES) == sorted(SIZES)
    assert (REFERENCE.d_model, REFERENCE.num_blocks) in SIZES


def test_small_changes_of_a_text_and_a_machine_change_little() -> None:
    """Of 1 % of text and 10 % of speed, few choices pass a limit, and those go one size up or down."""
    ladder = list(SIZES)
    changed = total = 0
    for size in (30_000, 61_000, 470_000, 1_115_394, 10_100_000, 300_000_000):
        for seconds in (20.0, 60.0, 180.0, 300.0, 600.0):
            base = chosen(english(size), seconds).config
            for other in (
                chosen(english(round(size * 1.01)), seconds).config,
                chosen(english(size), seconds, MINUTE * 1.1).config,
                chosen(english(size), seconds, MINUTE / 1.1).config,
            ):
                total += 1
                changed += other.model.changed(dropout=0) != base.model.changed(dropout=0)
                places = [ladder.index((c.model.d_model, c.model.num_blocks)) for c in (base, other)]
                assert abs(places[0] - places[1]) <= 1
                assert other.tokenizer == base.tokenizer
                assert abs(other.model.dropout - base.model.dropout) <= 0.1
    assert changed <= total // 10


def test_a_small_text_is_not_learned_by_heart() -> None:
    """Steps end where a model would begin to know the text, and more time changes nothing then."""
    short, long = chosen(english(40_000), 1200), chosen(english(40_000), 6000)
    assert (short.config.train.max_time, long.config.train.max_time) == (1200.0, 6000.0)  # which may still end it
    assert short.config.train.max_steps == long.config.train.max_steps == short.num_steps
    assert (short.config.model.dropout, short.config.train.teacher_share) == (0.2, 0.11)
    assert f", context {short.config.model.context_length}: " in short.reasons[2]
    assert "probably memorise the text" in short.reasons[-1]
    whole = chosen(english(10_000_000), 60)
    assert whole.config.train.max_time == 60.0
    assert whole.config.model.dropout == 0.0  # of ten megabytes, a minute reads a part


def test_letters_of_three_bytes_are_no_words() -> None:
    """Hindi has as many bytes a character as Chinese, and as few letters as English."""
    letters = TextFigures(400_000, 150_000, 48, 5.1)
    assert chosen(letters).config.tokenizer.kind == "bpe"
    assert chosen(replace(letters, entropy=9.0)).config.tokenizer.kind == "char"
    few = replace(letters, num_bytes=100_000, num_characters=37_500)  # letters, but read as often as those of English
    assert chosen(few, 600).num_steps == 1000  # two models, together 60 times 33,750 tokens


def test_short_documents_get_a_short_context_and_as_many_tokens_a_step() -> None:
    lines = replace(english(300_000), num_documents=6000)  # of 50 bytes, about 19 tokens
    config = chosen(lines).config
    assert (config.model.context_length, config.train.batch_size) == (64, 32)
    tokens = re.findall(r"about ([\d.]+) k tokens", chosen(lines).reasons[2])  # with 6,000 ends of documents
    assert float(tokens[0]) == pytest.approx(0.9 * (300_000 / 2.7 + 5_999) / 1000, abs=0.5)
    assert chosen(replace(lines, num_documents=1)).config.model.context_length == 128
    assert chosen(replace(lines, num_documents=100_000)).config.model.context_length == 16


def test_what_is_kept_for_validation_is_not_trained_on() -> None:
    text = english(60_000)  # of letters as tokens: 90 % of them are read twelve times in 316.4 steps of 2,048
    alone = {"teacher_share": None}
    assert chosen(text, train=alone).num_steps == 320
    assert chosen(text, train=alone, data={"validation_fraction": 0.5}).num_steps == 180
    assert chosen(text, train=alone, data={"validation_source": "other.txt"}).num_steps == 350


def test_two_models_read_a_text_for_which_there_is_time() -> None:
    text = english(300_000)  # 100,000 tokens, of which 90 % are read twelve times in 527 steps
    one, two, longer = (chosen(text, seconds) for seconds in (60, 180, 3600))
    assert [choice.config.train.teacher_share for choice in (one, two, longer)] == [None, 0.11, 0.1]
    assert longer.num_steps == 3000  # of 111,000 tokens, 90 % are read 60 times, six times by the teacher
    assert "2 models, the first of which trains for 11% of the run and teaches the second, read" in two.reasons[3]
    assert chosen(text, 180, train={"patience": None}).config.train.teacher_share == 0.11
    conversations = replace(text, example_bytes=100)
    for other in (chosen(conversations, 180), chosen(text, 180, train={"patience": 2})):
        assert other.config.train.teacher_share is None
    steps = [choose_settings(text, Budget(steps=n), {"train": {"max_steps": n}}).config.train for n in (2000, 20_000)]
    assert [(each.teacher_share, each.patience) for each in steps] == [(0.15, None), (None, 3)]


def test_an_hour_buys_two_larger_models_with_a_higher_weight_decay() -> None:
    text = english(300_000)  # 256 x 6, 4.2 times the time of a step of 128 x 4, reads it 60 times in 15 minutes
    shorter, longer = (chosen(text, seconds).config.model for seconds in (600, 1200))
    assert [(model.d_model, model.num_blocks) for model in (shorter, longer)] == [(128, 4), (256, 6)]
    assert chosen(text, 3600, model={"num_heads": 12}).config.model.d_model == 240  # pairs of numbers in 12 heads
    hour = chosen(text, 3600)
    assert (hour.config.train.weight_decay, hour.config.model.context_length, hour.num_steps) == (1.0, 128, 3000)
    assert "hence dropout 0.1 and weight decay 1" in hour.reasons[3]
    assert hour.config.train.ema_decay == 0.99
    for model, train in (({"d_model": 128}, {}), ({}, {"weight_decay": 0.3}), ({}, {"patience": 2})):
        assert chosen(text, 3600, model=model, train=train).config.train.weight_decay < 1
    small, large = (chosen(english(num_bytes), 3600).config for num_bytes in (20_000, 1_100_000))
    assert small.train.weight_decay == large.train.weight_decay == 0.1  # nobody has measured more
    assert [(each.model.d_model, each.model.dropout, each.train.ema_decay) for each in (small, large)] == [
        (64, 0.2, None),
        (256, 0.1, 0.99),
    ]
    once = chosen(english(10**9), 3600, train={"teacher_share": 0.2}).config
    assert (once.model.d_model, once.model.dropout) == (256, 0.0)
    little = choose_settings(text, Budget(3600, step_seconds=0.06), {}, most_parameters=1e6)
    assert little.config.model.d_model == 128


def test_still_more_time_buys_several_models_of_characters_that_teach_the_last() -> None:
    text = chinese(60_000)  # 18,000 tokens, which two models read 20 times in 180 steps, the first 2.5 times in 22
    two, four, eight = (chosen(text, seconds) for seconds in (200, 250, 600))
    assert [choice.config.train.num_models for choice in (two, four, eight)] == [2, 4, 8]
    assert [choice.num_steps for choice in (two, four, eight)] == [180, 650, 1300]  # 22 and n times 158
    assert (
        "8 models, the first of which trains for 2% of the run and teaches the next 6, which teach" in eight.reasons[3]
    )
    assert eight.reasons[3].endswith("hence dropout 0.1 and weight decay 1 for all models but the last")
    three = chosen(text, 250, train={"num_models": 3})
    assert (
        "3 models, the first of which trains for 4% of the run and teaches the second, which teaches the last, read"
        in (three.reasons[3])
    )
    assert two.reasons[3].endswith("hence dropout 0.1 and weight decay 1")
    assert {choice.config.train.ema_decay for choice in (two, four, eight)} == {0.98}
    assert eight.config.train.warmup_steps == two.config.train.warmup_steps == 18
    assert chosen(text, 600, train={"num_models": 5}).num_steps == 810
    letters = chosen(english(60_000), 1800).config.train
    assert (letters.num_models, letters.teacher_share, letters.ema_decay) == (4, 0.02, 0.98)
    assert chosen(english(300_000), 36_000).config.train.num_models == 2  # nobody has measured byte pairs


def test_more_time_is_offered_where_more_or_larger_models_are_known_to_pay() -> None:
    def offered(text: TextFigures, seconds: float, **train: object) -> tuple[int, str] | None:
        pays = minutes_that_pay(text, Budget(seconds, step_seconds=0.06), {"train": train})
        return None if pays is None else (pays[0], pays[1].split(":")[0])

    text = english(300_000)
    two, larger = "two models train, the first of which teaches the second", "both models are larger"
    assert [offered(text, seconds) for seconds in (60, 180, 3600)] == [(3, two), (30, larger), None]
    assert offered(chinese(60_000), 180) == (10, "several models teach the last")
    assert offered(text, 60, teacher_share=None) is None
    assert offered(english(1_100_000), 60) is None  # nobody has measured it


def test_a_text_that_any_training_learns_by_heart_says_so() -> None:
    reasons = chosen(english(1000)).reasons
    assert reasons[-1] == "length    100 steps, which memorise so short a text; more text makes a better model"


def test_ngrams_are_for_short_trainings_that_hardly_read_a_text_twice() -> None:
    assert chosen(english(10_000_000)).config.model.ngram_embedding == 2
    assert chosen(english(460_000)).config.model.ngram_embedding is None
    assert chosen(english(300_000_000)).config.model.ngram_embedding == 2
    assert chosen(english(300_000_000), 180.0).config.model.ngram_embedding is None
    given = choose_settings(english(300_000_000), Budget(steps=2000), {"train": {"max_steps": 2000}})
    assert given.config.model.ngram_embedding is None
    assert "dropout 0 and n-grams of up to 2 tokens" in chosen(english(10_000_000)).reasons[3]


def test_without_ngrams_a_larger_model_wants_more_tokens() -> None:
    large = english(300_000_000)
    assert [chosen(large, seconds).config.model.d_model for seconds in (60.0, 180.0, 600.0)] == [96, 128, 128]


def test_without_ngrams_blocks_are_as_in_qwen3_and_their_steps_take_longer() -> None:
    often, once = chosen(english(1_000_000)), chosen(english(10_000_000))
    model = often.config.model
    assert (model.norm, model.qk_norm, model.activation) == ("rmsnorm", True, "swiglu")
    model = once.config.model
    assert (model.norm, model.qk_norm, model.activation) == ("layernorm", False, "relu2")
    both = chosen(english(1_000_000), model={"ngram_embedding": 2})
    assert (both.config.model.activation, both.num_steps) == ("relu2", round(1.15 * often.num_steps))
    # what somebody set is another form, or has no such norm
    assert "Qwen3" not in chosen(english(1_000_000), model={"activation": "gelu"}).reasons[3]
    latent = chosen(english(1_000_000), model={"attention": "latent"}).config.model
    assert (latent.norm, latent.qk_norm) == ("rmsnorm", False)


def test_steps_that_are_given_stay_and_need_no_clock() -> None:
    choice = choose_settings(
        english(1_000_000), Budget(steps=700, step_seconds=float("nan")), {"train": {"max_steps": 700}}
    )
    assert (choice.config.train.max_steps, choice.config.train.max_time, choice.num_steps) == (700, None, 700)
    by_heart = choose_settings(english(5_000), Budget(steps=10_000), {"train": {"max_steps": 10_000}})
    assert (by_heart.config.train.max_steps, by_heart.config.train.patience) == (10_000, 3)
    assert by_heart.reasons[4] == (
        "length    10,000 steps, or fewer: 3 evaluations in a row without a better loss end it"
    )
    one = choose_settings(english(5_000), Budget(steps=1), {"train": {"max_steps": 1}})
    assert one.reasons[4] == "length    1 step"


def test_what_somebody_set_stays_and_the_rest_follows() -> None:
    fixed = {
        "tokenizer": {"kind": "char"},
        "model": {"d_model": 48, "dropout": 0.3},
        "train": {"batch_size": 6, "optimizer": "adamw", "device": "cpu"},
        "data": {"source": "my.txt"},
    }
    config = chosen(english(1_000_000), **fixed).config
    assert (config.tokenizer.kind, config.model.d_model, config.model.dropout) == ("char", 48, 0.3)
    assert (config.train.batch_size, config.train.optimizer, config.data.source) == (6, "adamw", "my.txt")
    assert config.model.d_model % (2 * config.model.num_heads) == 0
    assert list(config.unused()) == []
    assert chosen(english(1_000_000), tokenizer={"vocab_size": 700}).config.tokenizer.vocab_size == 700
    assert chosen(chinese(100_000), tokenizer={"vocab_size": 700}).config.tokenizer.kind == "bpe"
    assert chosen(english(10**6), model={"num_heads": 5}).config.model.d_model % 10 == 0
    nothing = {"num_heads": 5, "head_size": None, "num_key_value_heads": None}  # as if they were not given
    assert chosen(english(10**6), model=nothing).config.model.d_model % 10 == 0
    assert chosen(english(10**6), train={"micro_batch_size": 3}).config.train.batch_size % 3 == 0
    with pytest.raises(UsageError, match=r"rope needs an even head size|is not a multiple of num_heads"):
        chosen(english(10**6), model={"num_heads": 5, "d_model": 101})


def test_a_context_is_as_long_as_a_validation_text_of_any_share_allows() -> None:
    """Of 1,500 characters, which are tokens here, 150 hold four windows of 32, 750 and 1,350 of 128."""

    def lengths(size: int, *shares: float, **tokenizer: str) -> list[int]:
        choices = [chosen(english(size), data={"validation_fraction": f}, tokenizer=tokenizer) for f in shares]
        return [choice.config.model.context_length for choice in choices]

    assert lengths(1_500, 0.1, 0.5, 0.9, kind="char") == [32, 128, 128]
    assert lengths(200_000, 0.1, 0.002) == [128, 32]  # 0.2 % are 148 tokens


def test_a_given_width_or_depth_chooses_the_other() -> None:
    """By itself, a minute of 0.5 MB gets 192 x 5."""
    text = english(500_000)
    assert chosen(text, model={"num_blocks": 100}).config.model.d_model == 64
    assert chosen(text, model={"d_model": 1024}).config.model.num_blocks == 3
    assert chosen(text, model={"num_blocks": 2}).config.model.d_model >= 192
    wide = chosen(text, model={"feed_forward_size": 32_768})
    assert wide.config.model.d_model == 64  # with three blocks of which more weights are than text
    assert "12.7 M parameters" in wide.reasons[2]  # 3 x 2 x 64 x 32,768 and 115 k others


def test_what_a_setting_needs_is_chosen_with_it() -> None:
    text = english(50_000)
    assert chosen(text).config.tokenizer.kind == "char"
    assert chosen(text, tokenizer={"pattern": "gpt2"}).config.tokenizer.kind == "bpe"
    assert chosen(text, tokenizer={"name": "cl100k_base"}).config.tokenizer.kind == "tiktoken"
    assert chosen(text, model={"ngram_rows": 1000}).config.model.ngram_embedding == 4
    for number in (5, 7):
        odd = chosen(text, model={"num_key_value_heads": number}).config.model
        assert odd.d_model % (2 * odd.num_heads) == odd.num_heads % number == 0
    grouped = chosen(text, model={"num_key_value_heads": 3}).config.model
    assert (grouped.attention, grouped.num_heads % 3) == ("grouped_query", 0)
    for odd in ({"d_model": 65}, {"d_model": 1}, {"head_size": 33}):  # rope turns pairs
        assert chosen(text, model=odd).config.model.positions == "learned"
    alone, beside = (chosen(text, train={"optimizer": name}).config.train for name in ("adamw", "muon"))
    assert (alone.learning_rate, beside.learning_rate) == (0.005, 0.008)  # 0.5 and 1 by a width of 96, at most 0.008
    config = chosen(text, train={"micro_batch_size": 24}).config
    assert config.train.batch_size == 24


def test_a_given_vocabulary_has_shorter_or_longer_tokens() -> None:
    """Half a megabyte of English is about 282,000 tokens of 300 byte pairs and 167,000 of 1,024 (measured)."""

    def tokens(size: int) -> float:
        model = chosen(english(500_000), tokenizer={"vocab_size": size}).reasons[2]
        return float(re.findall(r"for about ([\d.]+) k tokens", model)[0])

    assert 250 < tokens(300) < 350
    assert tokens(1024) == 167
    assert tokens(4096) < tokens(2048) < tokens(1024) < tokens(512)


def test_a_published_vocabulary_has_its_own_size() -> None:
    sizes = [chosen(english(10**6), tokenizer={"kind": "tiktoken", "name": name}) for name in ("gpt2", "o200k_base")]
    assert [choice.vocab_size for choice in sizes] == [50_257, 199_999]


def test_most_examples_fit_into_the_context() -> None:
    text = TextFigures(200_000, 200_000, 80, 4.8, example_bytes=700)
    assert chosen(text).config.model.context_length == 512  # 259 tokens of 2.7 bytes
    assert chosen(TextFigures(200_000, 200_000, 80, 4.8, example_bytes=100_000)).config.model.context_length == 1024


def test_every_choice_is_a_valid_config_with_at_most_five_reasons() -> None:
    for text in (english(3), english(60_000), chinese(400_000), chinese(60_000_000), english(10**10)):
        for seconds in (0.1, 60.0, 10**7):
            for step in (1e-4, MINUTE, 60.0):
                choice = chosen(text, seconds, step)
                assert validate(choice.config.model_dump(mode="json"), "choice") == choice.config
                assert list(choice.config.unused()) == []
                assert 1 <= len(choice.reasons) <= 5


def test_reasons_name_the_figures_of_the_config() -> None:
    choice = chosen(english(1_115_394))
    text, budget, model, training, length = choice.reasons
    settings = choice.config
    assert re.findall(r"vocabulary of ([\d,]+)", text) == [f"{settings.tokenizer.vocab_size:,}"]
    assert "enough for about 1,000 steps of the config tiny" in budget
    assert f"{settings.model.d_model} wide, {settings.model.num_blocks} blocks" in model
    assert (
        f"{settings.tokens_per_step:,} tokens a step; the text is read about 4.8 times, hence dropout 0.1" in training
    )
    assert length == f"length    about {choice.num_steps:,} steps at that speed"
    own = chosen(english(1_115_394), model={"dropout": 0.7}, train={"learning_rate": 1e-5})
    assert "training  muon, 2,048 tokens a step; the text is read about 4.8 times, with dropout 0.7" in own.reasons[3]
    once = chosen(english(1_115_394), 11.0, model={"d_model": 128, "num_blocks": 4})
    assert "the text is read about 1 time, hence" in once.reasons[3]
    often = choose_settings(english(1_115_394), Budget(steps=18_100), {"train": {"teacher_share": None}})  # 99.6 times
    assert "the text is read about 100 times, hence" in often.reasons[3]


def test_less_memory_gives_a_smaller_model() -> None:
    text, budget = english(10**9), Budget(6000, step_seconds=MINUTE)
    whole, bounded = (choose_settings(text, budget, {}, most_parameters=most).config.model for most in (math.inf, 3e6))
    assert bounded.d_model < whole.d_model
    assert (
        choose_settings(text, budget, {}, most_parameters=3e6).reasons[2].endswith(", as large as there is memory for")
    )
    given = choose_settings(text, budget, {"model": {"d_model": 4000}}, most_parameters=3e6)
    assert "memory" not in given.reasons[2]  # somebody else chose that width
