"""Tables of figures that a training has before its first step, and what they are answered with."""

from dataclasses import replace

import pytest
from support.prepared import prepared

from gpt_cli.common.spelling import as_flags
from gpt_cli.config.load import read_config
from gpt_cli.training.advice.sizes import before_training


def advice(name: str, *settings: str, vocab_size: int, tokens: int, documents: int = 79) -> list[str]:
    """The lines, after a check that a user may type their flags."""
    start = prepared(name, *settings, vocab_size=vocab_size, tokens=tokens, documents=documents)
    found = before_training(start)
    for one in found:
        typed = [word for word in as_flags(one.flags).replace(",", "").split() if "=" in word]
        read_config(name, [*settings, *typed])  # raises for a size that does not fit
    return [str(one) for one in found]


@pytest.mark.parametrize(
    ("name", "vocab_size", "tokens", "documents"),
    [
        ("tiny", 1024, 143_569, 79),
        ("smoke", 512, 196_489, 79),
        ("multi-head", 1024, 143_569, 79),
        ("grouped-query", 1024, 143_569, 79),
        ("latent", 1024, 143_569, 79),
        ("shakespeare", 66, 1_003_854, 1),
        ("shakespeare-cpu", 66, 1_003_854, 1),
        ("induction", 27, 1_861_770, 40_000),
    ],
)
def test_shipped_configs_on_their_texts_need_no_advice(name: str, vocab_size: int, tokens: int, documents: int) -> None:
    assert advice(name, vocab_size=vocab_size, tokens=tokens, documents=documents) == []


def test_the_default_model_is_too_large_for_the_default_text() -> None:
    assert advice("small", vocab_size=4096, tokens=105_000) == [
        "a model of 42.1 M parameters reads 105 k tokens 39 times, and will memorise them; "
        "try --set model.d_model=64 --max-steps 1000"
    ]
    assert advice("small", "train.teacher_share=0.2", vocab_size=4096, tokens=105_000) == []
    # a text of 100 million tokens is read a 25th of once
    assert advice("small", vocab_size=4096, tokens=100_000_000) == []


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        (["train.max_steps=20000"], "--max-steps 2000"),
        (["model.dropout=0"], "--set model.dropout=0.1"),
        (["model.d_model=1024"], "--set model.d_model=128"),
        (["model.d_model=96", "model.num_heads=12", "model.num_blocks=64"], "--set model.d_model=48"),
        (["train.max_steps=20000", "train.max_time=1h"], "--set train.patience=3"),
    ],
)
def test_a_model_that_would_learn_its_text_by_heart_is_made_to_fit(settings: list[str], flags: str) -> None:
    """`tiny` has 1.05 M parameters, and its text 0.14 M tokens, which it reads 14 times."""
    (line,) = advice("tiny", *settings, vocab_size=1024, tokens=143_569)
    assert line.endswith(f" times, and will memorise them; try {flags}")


def test_a_text_of_a_page_needs_more_text() -> None:
    assert advice("tiny", vocab_size=716, tokens=476, documents=1) == [
        "a model of 971 k parameters reads 476 tokens 4,303 times, and will memorise them; "
        "try more text, another --data FILE beside the first"
    ]


@pytest.mark.parametrize(
    ("settings", "vocab_size", "share", "times", "flags"),
    [
        (["tokenizer.kind=tiktoken"], 50_257, 94, 2, "tokenizer.kind=bpe --set tokenizer.vocab_size=2048"),
        (["tokenizer.vocab_size=20000"], 20_000, 87, 6, "tokenizer.vocab_size=2048"),
        (
            ["tokenizer.kind=char", "model.num_blocks=1"],
            5000,
            87,
            24,
            "model.tie_embeddings=true, which halves this share",
        ),
    ],
)
def test_a_vocabulary_that_dwarfs_the_model_is_named_alone(
    settings: list[str], vocab_size: int, share: int, times: int, flags: str
) -> None:
    assert advice("tiny", *settings, vocab_size=vocab_size, tokens=120_000) == [
        f"the vocabulary of {vocab_size:,} tokens takes {share}% of the parameters, and an entry occurs "
        f"{times} times in the text on average; try --set {flags}"
    ]


def test_a_vocabulary_larger_than_the_text_has_entries_that_occur_less_than_once() -> None:
    (line,) = advice("tiny", "tokenizer.kind=tiktoken", "model.d_model=8", vocab_size=199_999, tokens=12_000)
    assert "takes 99% of the parameters, and an entry occurs 0.06 times in the text" in line


def test_the_vocabulary_that_is_suggested_is_half_of_the_model() -> None:
    parts = prepared("tiny", vocab_size=2048, tokens=120_000, documents=79).costs.parameters_by_part
    of_tokens = parts["token embedding"] + parts["output layer"]
    assert 0.35 < of_tokens / sum(parts.values()) < 0.5


@pytest.mark.parametrize(
    ("settings", "documents", "found"),
    [
        ([], 30_000, ["8", "--set model.context_length=16 --set train.batch_size=128"]),  # names
        ([], 9000, ["27", "--set model.context_length=64 --set train.batch_size=32"]),  # short poems
        ([], 7000, []),  # a window has fewer than four of them
        # another text for validation, whose tokens are in none of these documents
        (["data.validation_source=v.txt"], 7000, ["31", "--set model.context_length=64 --set train.batch_size=32"]),
        (["model.context_length=16"], 30_000, []),
    ],
)
def test_a_context_longer_than_the_documents(settings: list[str], documents: int, found: list[str]) -> None:
    lines = advice("tiny", "train.max_steps=100", *settings, vocab_size=66, tokens=220_000, documents=documents)
    assert lines == [
        "the model reads 128 tokens at once, but a document has {} on average, so most of what it reads belongs to "
        "other documents; try {}".format(*found)
        for _ in found[:1]
    ]


@pytest.mark.parametrize(
    ("rate", "how_far"),
    [
        ("100", "25,000 times"),
        ("1e-05", "1/400 of"),
        ("0.03", None),  # ends well: 3.96 after 200 steps
        ("3e-4", None),  # what many programs have
    ],
)
def test_a_rate_far_from_what_is_usual(rate: str, how_far: str | None) -> None:
    assert advice("tiny", f"train.learning_rate={rate}", vocab_size=1024, tokens=143_569) == [
        f"a learning rate of {rate} is {far} what is usual at a width of 128; try --set train.learning_rate=0.004"
        for far in filter(None, [how_far])
    ]


def test_with_muon_its_rate_counts_and_not_that_of_embeddings_and_norms_alone() -> None:
    def told(rate: str) -> list[str]:
        return advice("tiny", "train.optimizer=muon", rate, vocab_size=1024, tokens=143_569)

    flag = "--set train.muon_learning_rate=0.02"
    assert told("train.muon_learning_rate=5") == [f"Muon's learning rate of 5 is 250 times what is usual; try {flag}"]
    assert told("train.learning_rate=0.3") == []


def test_a_run_that_continues_or_began_with_another_hears_nothing() -> None:
    start = prepared("tiny", "train.learning_rate=100", vocab_size=716, tokens=476, documents=1)
    assert len(before_training(start)) == 2
    assert before_training(replace(start, step=10)) == []
    assert before_training(replace(start, began_from="runs/other")) == []
    assert before_training(replace(start, steps_left=0)) == []
