"""Choose settings by rules, from statistics of a text and a budget of steps, and give reasons. Imports no torch.

The measurements behind the rules are in the notes 0013 to 0019.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpt_cli.config import DataConfig
from gpt_cli.config.load import validate
from gpt_cli.training.advice.rates import RATE_TIMES_WIDTH, one_digit
from gpt_cli.training.auto_config.choice import LARGE_DECAY, PATIENCE, Budget, Choice, reasons_of, two_digits
from gpt_cli.training.auto_config.model_sizes import (
    NGRAMS_UP_TO,
    REFERENCE_COST,
    REFERENCE_TOKENS,
    context_of,
    cost_of,
    fitting_width,
    heads_of,
    parameters_of,
    shape_of,
)
from gpt_cli.training.auto_config.text_statistics import TextFigures
from gpt_cli.training.auto_config.tokenizer_choice import choose_tokenizer, estimate_vocab_size, has_wide_characters

_MOST_EPOCHS, _OF_CHARACTERS = 12.0, 5.0  # before a text is known by heart; of characters of a wide script, sooner
# if there is time for so many times these epochs, a first model reads half as often and teaches a second, which may
# train longer (note 0066)
_TEACHING_PAYS, _MOST_TAUGHT_TOKENS = 2.5, 1_000_000
_OF_TEACHER, _OF_TWO, _OF_TWO_OF_CHARACTERS = 0.5, 5, 4
# if there is time, both models have this size and read as often, on short texts with LARGE_DECAY; two or more
# models of this width have this dropout and averaged weights, over more steps if tokens are byte pairs (note 0072)
_LARGE, _LARGE_DROPOUT, _LARGE_EMA, _LARGE_EMA_OF_PAIRS = (256, 6), 0.1, 0.98, 0.99
# if tokens are characters and there is even more time, so many models train in turn, and teach the last (note 0073)
_SEVERAL = range(4, 9)
_FIXES_SIZE = {"d_model", "num_blocks", "feed_forward_size", "ngram_embedding", "weight_decay", "teacher_share"}
_MINUTES, _MEASURED = (3, 10, 30, 60), range(50_000, 500_001)  # to offer; bytes of the texts of note 0066
_GAINS = (
    "two models train, the first of which teaches the second: 1 to 6 % fewer bits per byte",
    "both models are larger: 1 to 4 % fewer bits per byte",
    "several models teach the last: 1 to 2 % fewer bits per byte",
)
_DROPOUTS = ((6.0, 0.2), (2.0, 0.1), (0.0, 0.0))  # epochs from which a dropout pays
# of AdamW, which beside Muon moves embeddings and the output layer
_RATE_TIMES_WIDTH, _HIGHEST_RATE = 1.0, 8e-3
# block settings: with n-grams, whose tables learn much, and without, where Qwen3's learn more in slower steps
_BESIDE_NGRAMS: Mapping[str, Any] = {"activation": "relu2"}
_ALONE: Mapping[str, Any] = {"norm": "rmsnorm", "qk_norm": True, "activation": "swiglu"}
_SLOWER = 1.15  # the time of a step of the second
_NGRAMS_BELOW = 1.5  # tables of n-grams pay below so many epochs
_FEWEST_STEPS = 20
# periods of evaluations and saves, in steps: the one nearest to a tenth of the training
_CADENCES = (10, 25, 50, 100, 250, 500, 1000, 2500)


def choose_settings(
    text: TextFigures, budget: Budget, fixed: Mapping[str, Any], *, most_parameters: float = math.inf
) -> Choice:
    """Choose settings for a text and a budget; keep those in `fixed` (section -> key -> value) as they are.

    `most_parameters` limits the weights of blocks and output layer, for a machine with little memory. Raises UsageError
    if fixed settings contradict each other.
    """
    of_model, of_tokenizer, of_train = (dict(fixed.get(section, {})) for section in ("model", "tokenizer", "train"))
    steps = budget.reference_steps
    tokenizer, why_tokenizer, bytes_per_token = choose_tokenizer(text, steps, of_tokenizer)
    vocabulary = estimate_vocab_size(tokenizer, text.num_distinct)
    tokens, validation = _num_tokens(text, bytes_per_token, fixed.get("data", {}))

    # the size of the model and of a batch
    width, blocks = shape_of(tokens, steps, vocabulary, of_model, most_parameters)
    bounded = (width, blocks) != shape_of(tokens, steps, vocabulary, of_model, math.inf)
    length = of_model.get("context_length") or context_of(text, bytes_per_token, validation, width)
    batch = of_train.get("batch_size") or _batch(length, of_train.get("micro_batch_size"))
    wide = has_wide_characters(text, tokenizer["kind"])
    most_epochs, times = (_OF_CHARACTERS, _OF_TWO_OF_CHARACTERS) if wide else (_MOST_EPOCHS, _OF_TWO)
    large = (
        width < _LARGE[0]
        and parameters_of(*_LARGE, vocabulary) <= most_parameters
        and not {*of_model, *of_train} & _FIXES_SIZE
        and _large_pays(text, budget, times * most_epochs * tokens, vocabulary, of_train)
    )
    by_characters = tokenizer["kind"] == "char"
    if large:  # rounded to the heads that are fixed
        width, blocks = fitting_width(_LARGE[0], of_model), _LARGE[1]

    # the number of models, and of their steps together
    sizes, tokens_per_step = (width, blocks, vocabulary, of_model.get("feed_forward_size")), batch * length
    parameters, cost = parameters_of(*sizes), cost_of(*sizes) * tokens_per_step
    possible = budget.steps or max(1, round(steps * REFERENCE_COST * REFERENCE_TOKENS / cost))
    useful = max(_FEWEST_STEPS, two_digits(most_epochs * tokens / tokens_per_step))
    reads = _lasting(budget, possible, useful) * tokens_per_step / tokens
    ngrams_pay = reads < _NGRAMS_BELOW and steps <= NGRAMS_UP_TO
    of_blocks = _block_settings(text, tokenizer["kind"], of_model, ngrams_pay=ngrams_pay)
    if not of_blocks["ngram_embedding"] and budget.steps is None:
        possible = max(1, round(possible / _SLOWER))
    of_two = two_digits(times * useful)
    in_time = possible >= _TEACHING_PAYS * useful and (budget.steps is None or of_two >= 0.9 * possible)
    teaching_pays = in_time and tokens <= _MOST_TAUGHT_TOKENS and _may_teach(text, of_train)
    taught = of_train.get("teacher_share", teaching_pays)
    num_models, of_first = of_train.get("num_models", 2), _OF_TEACHER * most_epochs * tokens / tokens_per_step
    if taught:
        if large and by_characters and "num_models" not in of_train:
            fitting = int((possible - of_first) / (of_two - of_first))
            num_models = min(fitting, _SEVERAL[-1]) if fitting >= _SEVERAL[0] else 2
        useful = of_two if num_models == 2 else two_digits(of_first + num_models * (of_two - of_first))
    num_steps = _lasting(budget, possible, useful)
    epochs = num_steps * tokens_per_step / tokens

    # the settings that follow
    heads = of_model.get("num_heads") or heads_of(width, of_model.get("num_key_value_heads") or 1)
    averaged = taught and width >= fitting_width(_LARGE[0], of_model)
    dropout = next(each for least, each in _DROPOUTS if epochs >= least)
    model = {
        "context_length": length,
        "d_model": width,
        "num_heads": heads,
        "num_blocks": blocks,
        "positions": "learned" if (of_model.get("head_size") or width // heads) % 2 else "rope",
        "bias": False,
        "dropout": min(dropout, _LARGE_DROPOUT) if averaged else dropout,
        **of_blocks,
    } | of_model
    often = min(_CADENCES, key=lambda usual: abs(usual - num_steps / 10))
    train = {
        "batch_size": batch,
        "optimizer": "muon",
        "learning_rate": _rate(of_train.get("optimizer", "muon"), width),
        "warmup_steps": min(100, min(num_steps, of_two) // 10 if taught else num_steps // 10),
        "eval_every": often,
        "save_every": often,
        "sample_every": 5 * often,
        "teacher_share": max(0.01, round(_OF_TEACHER * most_epochs / epochs, 2)) if taught else None,
        **({"num_models": num_models} if num_models > 2 else {}),
        **({"weight_decay": LARGE_DECAY} if large else {}),
        **({"ema_decay": _LARGE_EMA if by_characters else _LARGE_EMA_OF_PAIRS} if averaged else {}),
    } | of_train
    if budget.steps is None:
        fewer = {"max_steps": num_steps} if num_steps < possible else {}
        train = {"max_steps": None, **train, **fewer, "max_time": budget.seconds}
    elif useful < 0.9 * possible and not taught:
        train.setdefault("patience", PATIENCE)
    sections = {**{name: dict(values) for name, values in fixed.items()}, "model": model, "train": train}
    choice = Choice(
        validate(sections | {"tokenizer": tokenizer}, "auto"),
        num_steps,
        vocabulary,
        budget.seconds if budget.steps is None else None,
        num_tokens=tokens,
        num_parameters=parameters,
        possible_steps=possible,
        memory_limits=bounded,
        memorises=not large and epochs > 1.5 * (times if taught else 1) * most_epochs,
    )
    return replace(choice, reasons=reasons_of(choice, text, budget, fixed, why_tokenizer))


def minutes_that_pay(text: TextFigures, budget: Budget, fixed: Mapping[str, Any]) -> tuple[int, str] | None:
    """Return (minutes, gain in words) for the shortest of 3, 10, 30 and 60 minutes that beats the time of `budget`.

    A longer time beats `budget` if it lets a first model teach a second, makes these two larger, or lets several models
    teach the last. Returns None if no time does so, or for over 500,000 bytes of text. `fixed` has the user's settings.
    """

    def models(seconds: float) -> tuple[bool, bool, bool]:
        train = choose_settings(text, replace(budget, seconds=seconds), fixed).config.train
        return train.teacher_share is not None, "weight_decay" in train.model_fields_set, train.num_models > 2

    if text.num_bytes >= _MEASURED.stop:
        return None
    before = models(budget.seconds)
    for minutes in (each for each in _MINUTES if 60 * each > budget.seconds):
        if (after := models(60.0 * minutes)) > before:
            return minutes, next(gain for gain, a, b in zip(_GAINS, after, before, strict=True) if a > b)
    return None


def _num_tokens(text: TextFigures, bytes_per_token: float, data: Mapping[str, Any]) -> tuple[float, float]:
    """Estimate the numbers of tokens to train on and to validate on, with an end-of-text token between documents."""
    fraction = data.get("validation_fraction", DataConfig.model_fields["validation_fraction"].default)
    share = 1.0 if data.get("validation_source") else 1 - fraction
    training = max(1.0, share * (text.num_bytes / bytes_per_token + text.num_documents - 1))
    return training, training / share * (1 - share or 0.1)  # another text is about as long as a share of this one


def _block_settings(text: TextFigures, kind: str, of_model: Mapping[str, Any], *, ngrams_pay: bool) -> dict[str, Any]:
    """Return n-grams, and the forms of blocks beside them, for the tokenizer `kind`; keep settings in `of_model`."""
    letters = kind in ("char", "byte") and not has_wide_characters(text, "char")
    ngrams = (4 if letters else 2) if ngrams_pay or "ngram_rows" in of_model else None  # tokens of the longest
    ngrams = of_model.get("ngram_embedding", ngrams)
    attention = of_model.get("attention", "grouped_query" if "num_key_value_heads" in of_model else None)
    form = _BESIDE_NGRAMS if ngrams else {**_ALONE, "qk_norm": attention != "latent"}
    return {**form, "ngram_embedding": ngrams, **({"attention": attention} if attention else {})}


def _lasting(budget: Budget, possible: int, useful: int) -> int:
    """Return how many steps to take: all `possible` ones, or the `useful` ones if a time budget allows clearly more."""
    return useful if budget.steps is None and useful < 0.9 * possible else possible


def _may_teach(text: TextFigures, settings: Mapping[str, Any]) -> bool:
    """Return whether one model may teach another: on a text without conversations, and if `patience` is not set."""
    return not text.example_bytes and settings.get("patience") is None


def _large_pays(
    text: TextFigures, budget: Budget, most_tokens: float, vocabulary: int, of_train: Mapping[str, Any]
) -> bool:
    """Return whether time and settings let two models of size _LARGE read `most_tokens` tokens (text: 50 to 500 kB)."""
    if budget.steps is not None or text.num_bytes not in _MEASURED:
        return False
    trained = REFERENCE_TOKENS * budget.reference_steps * REFERENCE_COST / (_SLOWER * cost_of(*_LARGE, vocabulary))
    return trained >= most_tokens and _may_teach(text, of_train)


def _rate(optimizer: str, width: int) -> float:
    """Return AdamW's learning rate for d_model `width`, lower if AdamW also updates the matrices inside blocks."""
    times = _RATE_TIMES_WIDTH if optimizer == "muon" else RATE_TIMES_WIDTH
    return min(_HIGHEST_RATE, one_digit(times / width))


def _batch(context_length: int, at_once: int | None) -> int:
    """Return a batch size for about REFERENCE_TOKENS tokens, a multiple of micro-batch size `at_once` (None: any)."""
    batch = max(1, REFERENCE_TOKENS // context_length)
    return batch if not at_once else at_once * -(-batch // at_once)
