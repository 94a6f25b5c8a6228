from __future__ import annotations

from gpt_cli.config.comparing import likeness, read_shipped
from gpt_cli.config.reading import read_config

SHIPPED = read_shipped()


def test_a_run_is_compared_with_the_config_of_its_name() -> None:
    tiny = read_config("tiny", ["model.d_model=64", "train.learning_rate=3e-4"])
    assert likeness(tiny, "tiny", SHIPPED) == ("tiny", {"model.d_model": "64", "train.learning_rate": "0.0003"})
    assert likeness(SHIPPED["smoke"], "tiny", SHIPPED).shipped == "tiny"


def test_a_run_of_another_name_is_compared_with_the_nearest_config() -> None:
    for name in SHIPPED:
        assert likeness(read_config(name, ["train.seed=5"]), "mine", SHIPPED) == (name, {"train.seed": "5"})


def test_of_two_that_are_equally_near_the_plain_one_is_named() -> None:
    between = read_config("tiny", ["train.max_steps=100"])  # tiny has 1,000 steps, and multi-head 400
    assert likeness(between, "mine", SHIPPED) == ("tiny", {"train.max_steps": "100"})


def test_what_a_run_chose_for_auto_is_no_difference() -> None:
    resolved = SHIPPED["tiny"].changed(train={"device": "cpu", "dtype": "bfloat16", "compile": "off"})
    assert likeness(resolved, "tiny", SHIPPED) == ("tiny", {})
