import pytest

from gpt_cli.common.units import duration, percentage, size, with_error


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.7, "1 min 0 s"),
        (3599.4, "59 min 59 s"),
        (3599.7, "1 h 0 min"),
    ],
)
def test_a_duration_that_rounds_up_to_the_next_unit_has_that_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (999_999_999, "1.0 GB"),
    ],
)
def test_a_size_that_rounds_up_to_the_next_unit_has_that_unit(num_bytes: int, text: str) -> None:
    assert size(num_bytes) == text


def test_a_change_that_rounds_to_zero_is_not_negative() -> None:
    assert with_error(-0.00001, 0.00002, signed=True) == "+0.0000 ± 0.0000"
    assert with_error(-0.0001, None, signed=True) == "-0.0001"


def test_a_small_share_is_not_rounded_to_zero() -> None:
    shares = (1.0, 0.456, 0.0994, 0.0996, 0.034, 0.00012, 0.0)
    assert [*map(percentage, shares)] == ["100%", "46%", "9.9%", "10%", "3.4%", "0.012%", "0%"]
