"""Files of sweeps: their points, and what is wrong with them."""

import math
from pathlib import Path

import pytest
from support.helpers import small_config

from gpt_cli.config.load import write_config
from gpt_cli.errors import UsageError
from gpt_cli.tools.sweeps.sweep_file import read_sweep


def written(folder: Path, text: str) -> Path:
    (folder / "c.yaml").write_text(write_config(small_config()))
    path = folder / "s.yaml"
    path.write_text(text)
    return path


def problems(path: Path, max_time: str | None = None) -> list[str]:
    with pytest.raises(UsageError) as raised:
        read_sweep(path, max_time)
    return [line.removeprefix(f"error: {path.parent}/") for line in raised.value.lines()]


def require_problems(path: Path, *beginnings: str) -> None:
    """Let a file be refused in lines that begin so, beside hints."""
    found = [line for line in problems(path) if not line.startswith("hint: ")]
    assert len(found) == len(beginnings), found
    for line, beginning in zip(found, beginnings, strict=True):
        assert line.startswith(beginning), line


def test_a_grid_has_every_combination_the_last_setting_fastest(here: Path) -> None:
    grid = "grid:\n  train.learning_rate: [1e-3, 3e-3]\n  model.d_model: [16, 32, 64]\n"
    found = read_sweep(written(here, f"base: c.yaml\nsettings: {{train.seed: 5}}\n{grid}"))
    points = [(rate, width) for rate in ("1e-3", "3e-3") for width in ("16", "32", "64")]
    assert [tuple(point.values()) for point in found.points] == points
    assert [config.train.learning_rate for config in found.configs] == [1e-3] * 3 + [3e-3] * 3
    assert [config.model.d_model for config in found.configs] == [16, 32, 64] * 2
    assert {config.train.seed for config in found.configs} == {5}
    assert found.base == here / "c.yaml"
    assert found.settings == {"train.seed": "5"}
    assert found.points[0] == {"train.learning_rate": "1e-3", "model.d_model": "16"}


def test_the_base_is_beside_the_file_or_shipped(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "below").mkdir()
    path = written(here / "below", "base: c.yaml\ngrid: {train.seed: [1]}\n")
    assert read_sweep(Path("below/s.yaml")).configs[0].model.d_model == 16
    path.write_text("base: tiny\ngrid: {train.seed: [1]}\n")
    assert read_sweep(path).configs[0].model.d_model == 128
    path.write_text("base: tinny\ngrid: {train.seed: [1]}\n")
    assert problems(path)[1].startswith("hint: did you mean tiny?")
    path.write_text("base: ~nosuchuser/c.yaml\ngrid: {train.seed: [1]}\n")
    assert problems(path)[0].endswith('~nosuchuser/c.yaml": there is no such config file')


def test_random_points_lie_in_their_ranges_and_follow_the_seed(here: Path) -> None:
    text = (
        "base: c.yaml\nnum_runs: 200\nseed: {}\nrandom:\n"
        "  train.learning_rate: {{from: 1e-4, to: 1e-2, scale: log}}\n"
        "  model.dropout: {{from: 0, to: 1}}\n  train.warmup_steps: {{from: 1, to: 4}}\n  train.schedule: [linear, "
        "cosine]\n"
    )
    path = written(here, text.format(3).replace("to: 1}", "to: 0.9}"))
    points = read_sweep(path).points
    rates = [float(point["train.learning_rate"]) for point in points]
    assert all(1e-4 <= rate <= 1e-2 for rate in rates)
    # by scale log, half of the rates lie below the geometric mean of the ends, and by a linear scale 9 percent
    assert 80 <= sum(rate < math.sqrt(1e-4 * 1e-2) for rate in rates) <= 120
    drops = [float(point["model.dropout"]) for point in points]
    assert 80 <= sum(drop < 0.45 for drop in drops) <= 120
    warmups = [point["train.warmup_steps"] for point in points]
    assert {warmups.count(number) // 30 for number in "1234"} == {1}  # each about 50 times
    assert {point["train.schedule"] for point in points} == {"linear", "cosine"}
    assert read_sweep(path).points == points
    path.write_text(text.format(4).replace("to: 1}", "to: 0.9}"))
    assert read_sweep(path).points != points


def test_of_many_unknown_keys_the_first_are_named(here: Path) -> None:
    path = written(here, "base: c.yaml\ngrid: {train.seed: [1]}\n" + "".join(f"k{i}: 1\n" for i in range(60)))
    found = [line for line in problems(path) if not line.startswith("hint: ")]
    assert found[0] == 's.yaml:3: a sweep has no key "k0"'
    assert found[49:] == ['s.yaml:52: a sweep has no key "k49"', "s.yaml: 10 more keys cannot be read"]


def test_random_points_are_different(here: Path) -> None:
    path = written(here, "base: c.yaml\nnum_runs: 4\nrandom: {train.seed: [1, 2], model.d_model: [16, 32]}\n")
    assert len({tuple(point.values()) for point in read_sweep(path).points}) == 4
    path.write_text(path.read_text().replace("4", "5"))
    assert problems(path) == ["s.yaml:2: num_runs is 5, but there are only 4 different points"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("grid: {train.seed: [1]}\nrandom: {}", ": grid and random cannot be combined; leave one of them out"),
        ("grid: {train.seed: [1]}\nnum_runs: 3", ":3: num_runs belongs to random"),
        ("random: {train.seed: [1]}", ": num_runs is missing"),
        ("random: {train.seed: [1]}\nnum_runs: 0", ':3: num_runs: "0" is not a whole number'),
        ("settings: {train.seed: {from: 1, to: 2}}\ngrid: {model.d_model: [16]}", ":2: train.seed: settings has one"),
        ("settings: {train.seed: [1, 2]}\ngrid: {model.d_model: [16]}", ":2: train.seed: settings has one value"),
        ("grid:", ":2: grid must have lines `section.key: list`"),
        ("grid: {train.sead: [1]}", ':2: there is no setting "train.sead"'),
        ("grid: {seed: [1]}", ':2: "seed" is not a setting'),
        ("grid: {train.seed: 1}", ":2: train.seed: a grid needs a list of values"),
        ("grid: {train.seed: [1, 2, 1]}", ':2: train.seed: "1" is listed twice'),
        ('grid: {train.sample_prompt: ["[a] b"]}', ':2: train.sample_prompt: "[a] b" is a text that --set would'),
        ('grid: {train.sample_prompt: ["null"]}', ':2: train.sample_prompt: "null" is a text that --set would read'),
        ("grid: {train.seed: []}", ":2: train.seed: the list is empty"),
        ("settings: {train.seed: 1}\ngrid: {train.seed: [1]}", ":3: train.seed is already set by settings"),
        (
            "grid:\n  model.d_model: [16, 30]\n  model.num_heads: [2, 4]",
            ":3: model.d_model: d_model 30 is not a multiple of",
        ),
        ("grid: {train.learning_rate: [1, fast]}", ':2: train.learning_rate: "fast" is not a number above 0'),
        ("repeats: 0\ngrid: {model.d_model: [16]}", ':2: repeats: "0" is not a whole number'),
        ("repeats: 3\ngrid: {train.seed: [1]}", ":3: train.seed contradicts repeats"),
        (
            "repeats: 600\ngrid: {model.d_model: [16, 32]}",
            ":2: 2 points with 600 repeats are 1,200 runs, but a sweep has",
        ),
        (
            f"repeats: 2\nsettings: {{train.seed: {2**63 - 1}}}\ngrid: {{model.d_model: [16]}}",
            f": train.seed: {2**63} is",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_line(here: Path, text: str, expected: str) -> None:
    require_problems(written(here, f"base: c.yaml\n{text}\n"), f"s.yaml{expected}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train.seed: {from: 1.5, to: 3}", "from and to of this setting must be whole numbers"),
        ("train.seed: {from: 3, to: 3}", "from 3 must be below to 3"),
        (
            f"model.d_model: {{from: 1, to: 1{400 * '0'}}}",
            "from and to of this setting must lie between -1e300 and 1e300",
        ),
        ("train.learning_rate: {from: -inf, to: 1}", "from and to of this setting must lie between -1e300 and 1e300"),
        ("model.dropout: {from: 0, to: 0.5, scale: log}", "a range with scale log must begin above 0"),
        ("train.schedule: {from: 1, to: 2}", "this setting is not a number"),
        ("train.seed: {from: 1, too: 2}", 'a range has from, to and scale, but no "too"'),
    ],
)
def test_what_is_wrong_with_a_range_is_said_with_its_line(here: Path, text: str, expected: str) -> None:
    path = written(here, f"base: c.yaml\nnum_runs: 2\nrandom: {{{text}}}\n")
    require_problems(path, f"s.yaml:3: {text.partition(':')[0]}: {expected}")


def test_one_malformed_part_hides_no_other_mistake(here: Path) -> None:
    """A word in place of a list, beside mistakes of every other kind."""
    text = """base: c.yaml
num_runs: many
nun_runs: 3
repeats: -1
settings:
  train.batch_size: x
random:
  train.learning_rate: 高
  model.dropout: [0, 2, none]
  train.seed: {from: 9, to: 1}
  model.num_heds: [1]
"""
    require_problems(
        written(here, text),
        's.yaml:2: num_runs: "many" is not a whole number',
        's.yaml:3: a sweep has no key "nun_runs"',
        's.yaml:4: repeats: "-1" is not a whole number',
        's.yaml:6: train.batch_size: "x" is not a whole number',
        "s.yaml:8: train.learning_rate: random needs a list of values",
        "s.yaml:9: model.dropout: 2 is not",
        's.yaml:9: model.dropout: "none" is not',
        "s.yaml:10: train.seed: from 9 must be below to 1",
        's.yaml:11: there is no setting "model.num_heds"',
    )


def test_a_malformed_setting_is_no_reason_to_say_that_others_do_not_fit(here: Path) -> None:
    """The base has d_model 16, which 3 heads do not fit; the width that the file means to give may fit them."""
    path = written(here, "base: c.yaml\nsettings: {model.num_heads: 3}\ngrid: {model.d_model: 48}\n")
    assert problems(path) == ["s.yaml:3: model.d_model: a grid needs a list of values, such as [1e-3, 3e-3]"]
    path.write_text("base: lost.yaml\ngrid: {model.d_model: 48}\n")
    assert len([line for line in problems(path) if not line.startswith("hint: ")]) == 2


def test_repeats_train_each_point_with_one_seed_after_the_other(here: Path) -> None:
    path = written(here, "base: c.yaml\nrepeats: 3\nsettings: {train.seed: 5}\ngrid: {model.d_model: [16, 32]}\n")
    found = read_sweep(path)
    assert [(point["model.d_model"], point["train.seed"]) for point in found.points] == [
        *(("16", "5"), ("16", "6"), ("16", "7")),
        *(("32", "5"), ("32", "6"), ("32", "7")),
    ]
    assert [(config.model.d_model, config.train.seed) for config in found.configs[2:4]] == [(16, 7), (32, 5)]
    assert found.record["repeats"] == "3"
    path.write_text("base: c.yaml\nrepeats: 1\ngrid: {model.d_model: [16]}\n")
    assert read_sweep(path).points == ({"model.d_model": "16"},)


def test_the_nearest_key_is_named(here: Path) -> None:
    path = written(here, "bass: c.yaml\n")
    require_problems(path, 's.yaml:1: a sweep has no key "bass"', "s.yaml: base is missing", "s.yaml: grid or random")
    assert "hint: bass: did you mean base?" in problems(path)
    assert "hint: did you mean train.seed?" in problems(written(here, "base: c.yaml\ngrid: {train.sead: [1]}\n"))


def test_a_time_for_each_run_replaces_the_steps_and_contradicts_settings_of_them(here: Path) -> None:
    path = written(here, "base: c.yaml\ngrid: {train.seed: [1]}\n")
    assert read_sweep(path, "90s").configs[0].train.max_time == 90
    assert problems(path, "soon")[0].startswith('error: --max-time: "soon" is not a duration')
    path.write_text("base: c.yaml\ngrid: {train.max_steps: [1]}\n")
    assert problems(path, "90s") == [
        "s.yaml:2: train.max_steps and --max-time cannot be combined; leave one of them out"
    ]


def test_a_grid_of_too_many_points_is_refused(here: Path) -> None:
    many = ", ".join(map(str, range(101)))
    path = written(
        here, f"base: c.yaml\ngrid:\n  train.seed: [{many}]\n  train.save_every: [{', '.join('123456789')}, 10]\n"
    )
    assert problems(path)[0].startswith("s.yaml: the grid has 1,010 points, but a sweep has at most 1,000")


def test_a_setting_may_be_null_or_a_list(here: Path) -> None:
    path = written(here, "base: c.yaml\nsettings: {data.source: [a, b]}\ngrid: {train.sample_every: [null, 5]}\n")
    found = read_sweep(path)
    assert [config.train.sample_every for config in found.configs] == [None, 5]
    assert found.configs[0].data.source == ["a", "b"]


def test_the_record_tells_one_sweep_from_another(here: Path) -> None:
    path = written(here, "base: c.yaml\ngrid: {train.seed: [1]}\n")
    record = read_sweep(path).record
    assert record["grid.train.seed"] == ["1"]
    assert record["base.model.d_model"] == "16"
    path.write_text("# a remark\nbase: c.yaml\ngrid:\n  train.seed: [1]\n")
    assert read_sweep(path).record == record
    assert read_sweep(path, "5m").record != record


def test_of_thousands_of_wrong_settings_fifty_are_named(here: Path) -> None:
    path = written(here, "base: c.yaml\ngrid:\n" + "".join(f"  train.k{i}: [1]\n" for i in range(3_000)))
    assert len(problems(path)) - 1 == 50
