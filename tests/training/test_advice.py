from __future__ import annotations

from support.helpers import small_config

from gpt_cli.training.advice import diverged_error, lower_rates
from gpt_cli.training.step import Diverged


def test_a_hint_for_a_diverged_run_names_every_rate() -> None:
    assert lower_rates(small_config("train.optimizer=muon").train) == (
        "start anew with --overwrite and --set train.learning_rate=0.0003 --set train.muon_learning_rate=0.007, "
        "or with --dtype float32"
    )


def test_the_error_of_a_divergence_contains_its_figures() -> None:
    settings = small_config().train
    of_a_step = diverged_error(Diverged(7, float("inf"), 2.0, 1e-3), settings, "nothing was saved yet")
    assert str(of_a_step) == (
        "step 7: the loss is inf and the gradient norm is 2 at learning rate 0.001; nothing was saved yet"
    )
    of_an_evaluation = diverged_error(Diverged(8, float("nan")), settings)
    assert (str(of_an_evaluation), of_an_evaluation.exit_code) == ("step 8: the validation loss is nan", 6)
