from __future__ import annotations

import pytest
from support.helpers import small_config

from gpt_cli.training.loop import diverged_error, lower_rates
from gpt_cli.training.step import Diverged


def test_lower_rates_are_flags_for_every_rate() -> None:
    assert lower_rates(small_config("train.optimizer=muon")) == (
        "‹train.learning_rate=0.0003› ‹train.muon_learning_rate=0.007›"
    )


@pytest.mark.parametrize(("rate", "lower"), [(100, 0.03), (0.1, 0.03), (0.03, 0.01), (1e-3, 0.0003)])
def test_a_lower_rate_is_the_usual_one_or_a_third(rate: float, lower: float) -> None:
    """At a width of 16 the usual one is 0.03."""
    assert lower_rates(small_config(f"train.learning_rate={rate}")) == f"‹train.learning_rate={lower:g}›"


def test_the_error_of_a_divergence_contains_its_figures() -> None:
    of_a_step = diverged_error(Diverged(7, float("inf"), 2.0, 1e-3), "try another rate", "nothing was saved yet")
    assert str(of_a_step) == (
        "step 7: the loss is inf and the gradient norm is 2 at learning rate 0.001; nothing was saved yet"
    )
    assert of_a_step.hint == "try another rate"
    of_an_evaluation = diverged_error(Diverged(8000, float("nan")), "")
    assert (str(of_an_evaluation), of_an_evaluation.exit_code) == ("step 8,000: the validation loss is nan", 6)
