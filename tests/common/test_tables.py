"""Tables for terminals."""

from __future__ import annotations

from gpt_cli.common.tables import narrow_table


def test_names_that_differ_deep_in_their_middle_stay_distinct() -> None:
    names = [f"experiment-with-a-long-name-lr{number}-and-a-very-long-ending-of-it-all" for number in (1, 2)]
    rows = [("name", "state", "settings"), *((name, "finished", "") for name in [*names, "short"])]
    assert narrow_table(rows, 36, ["state"]).split("\n") == [
        "name                        state",
        "    settings",
        "experime…1-and-a-very-lon…  finished",
        "experime…2-and-a-very-lon…  finished",
        "short                       finished",
    ]
