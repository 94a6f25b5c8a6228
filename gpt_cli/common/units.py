"""Format times, bytes and losses for people."""

import math

from gpt_cli.errors import counted


def duration(seconds: float) -> str:
    """Format seconds: 42 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 59.5:  # more is a minute
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def twice_as_long(seconds: float) -> str:
    """Format twice a duration for `--max-time`, rounded up to whole seconds and at least 1 s."""
    return f"{max(1, math.ceil(2 * seconds))}s"


def size(num_bytes: int) -> str:
    """Format a number of bytes: 12 bytes, 3.4 kB, 5.6 MB, 7.8 GB."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= 0.99995 * factor:  # 999,950 is 1.0 MB
            return f"{num_bytes / factor:.1f} {unit}"
    return counted(num_bytes, "byte")


def quantity(number: int) -> str:
    """Format a number of parameters with three significant digits: 25.1 k, 1.05 M."""
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if float(f"{number:.3g}") >= factor:  # 999,600 is 1 M
            return f"{number / factor:.3g} {unit}"
    return str(number)


def percentage(share: float) -> str:
    """Format a share of 0 to 1 with two significant digits: 56%, 3.4%, 0.012%."""
    return f"{share:.0%}" if share >= 0.0995 else f"{100 * share:.2g}%"


def age(seconds: float) -> str:
    """Format an age in its largest unit: 42 s, 3 min, 5 h, 12 d."""
    for unit, factor in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= factor:
            return f"{seconds // factor:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def with_error(number: float, error: float | None, *, signed: bool = False) -> str:
    """Format a loss, with its standard error if there is one: 3.3530 ± 0.0690; `signed` always shows the sign."""
    text = f"{number:+z.4f}" if signed else f"{number:.4f}"
    return text if error is None else f"{text} ± {error:.4f}"
