"""Labels of heads."""

from __future__ import annotations

from math import nan

from gpt_cli.inspecting.heads.roles import role_of


def test_a_head_gets_the_first_label_whose_threshold_it_reaches() -> None:
    assert role_of({"previous_token": 0.5, "induction": 0.39}) == "previous token"
    assert role_of({"first_token": 0.9, "induction": 0.4}) == "induction"


def test_a_head_that_does_nothing_clearly_has_no_label() -> None:
    assert role_of({"previous_token": 0.49, "first_token": 0.3, "self": 0.21, "duplicate_token": nan}) is None
