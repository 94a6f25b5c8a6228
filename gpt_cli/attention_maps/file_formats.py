"""Check which attention tensors a file can store; estimate its memory, disk space and pixels. Needs no torch."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from gpt_cli.errors import UsageError

Stage = Literal["weights", "scores", "queries", "keys", "values", "heads"]
STAGES: tuple[str, ...] = get_args(Stage)  # the intermediate tensors that a dump can hold
_MOST_WRITTEN, _TOP = 2**18, 5  # on a page: raised and lowered tokens of all heads; raised ones of a head at a position
_WRITTEN_MEMORY, _WRITTEN_DISK = 100, 12  # bytes for each token on a page


class _Costs(NamedTuple):
    """The bytes that a file format takes: of memory while a file is written, and of disk before compression."""

    memory: int  # for each number of a dump
    disk: int
    dot: int = 0  # memory for each dot of a map
    map: tuple[int, int] = (0, 0)  # memory and disk for each map


_COSTS = {
    ".npz": _Costs(memory=16, disk=4),
    ".safetensors": _Costs(memory=16, disk=4),
    # written row by row
    ".json": _Costs(memory=0, disk=24),
    ".csv": _Costs(memory=0, disk=36),
    ".html": _Costs(memory=16, disk=2),
    # the costs of a picture depend on its dots; png and pdf also have a canvas below each map
    ".png": _Costs(memory=0, disk=4, dot=110, map=(11_000_000, 60_000)),
    ".svg": _Costs(memory=0, disk=4, dot=200),
    ".pdf": _Costs(memory=0, disk=4, dot=110, map=(11_000_000, 60_000)),
}
FORMATS = tuple(_COSTS)
_WITH_STAGES = (".npz", ".safetensors", ".json")
_WITH_HALVES = (".npz", ".safetensors")
MOST_DOTS = 60_000  # a picture has fewer than 2^16 on each side
DOTS_PER_INCH = 300  # at most
GAP = 12  # the gap between maps is 1 / GAP of a map


def check_format(ending: str, stages: Sequence[str], file_dtype: str = "float32") -> None:
    """Raise UsageError if a file of type `ending` cannot store the tensors `stages` (weights, ...) as `file_dtype`."""
    if ending not in _WITH_STAGES and set(stages) != {"weights"}:
        wrong = f"a {ending} file holds weights only; use {', '.join(_WITH_STAGES[:-1])} or {_WITH_STAGES[-1]}"
        raise UsageError("‹stage›", wrong)
    if file_dtype != "float32" and ending not in _WITH_HALVES:
        raise UsageError("‹file_dtype›", f"a {ending} file has no {file_dtype}; use {' or '.join(_WITH_HALVES)}")


def num_written(num_heads: int, num_tokens: int) -> int:
    """Return k: at each position, an HTML page lists the k logits that a head raises most, and the k it lowers most.

    k is at most 5, and less for many heads (of all layers) and positions: a page lists at most 2^18 tokens in all.
    """
    return min(_TOP, _MOST_WRITTEN // (2 * num_heads * num_tokens))


def written_bytes(num_heads: int, num_tokens: int) -> tuple[int, int]:
    """Estimate one head's bytes (memory, disk) for its raised and lowered tokens on a page of `num_heads` heads."""
    count = 2 * num_written(num_heads, num_tokens) * num_tokens
    return _WRITTEN_MEMORY * count, _WRITTEN_DISK * count


def writing_bytes(ending: str, num_numbers: int, num_dots: int) -> tuple[int, int]:
    """Estimate the bytes (memory, disk) to write one head's values and pixels to a file with `ending`, such as .png."""
    costs = _COSTS[ending]
    on_map, of_map = costs.map
    return costs.memory * num_numbers + costs.dot * num_dots + on_map, costs.disk * num_numbers + of_map


def map_inches(num_tokens: int, num_maps: int) -> float:
    """Return the edge length of one head's map in inches: large for few maps, small for many."""
    if num_maps == 1:
        return min(max(1.2, 0.32 * num_tokens), 8.0)
    return min(max(1.2, 0.17 * num_tokens), 3.2 if num_maps <= 16 else 1.5)


def columns_of(num_layers: int, num_heads: int) -> int:
    """Return the number of maps in each row of a picture: `num_heads`, or, with one head per layer, at most 6."""
    return num_heads if num_heads > 1 else -(-num_layers // -(-num_layers // 6))


def most_dots(num_tokens: int, num_layers: int, num_heads: int) -> int:
    """Return the largest number of dots (pixels) along the edge of one head's map."""
    num_maps, num_columns = num_layers * num_heads, columns_of(num_layers, num_heads)
    inches = map_inches(num_tokens, num_maps)
    dots = min(DOTS_PER_INCH * inches, MOST_DOTS / max(num_columns, -(-num_maps // num_columns)))
    return max(1, int(dots if num_maps == 1 else dots * GAP / (GAP + 1)))


def tokens_per_dot(num_tokens: int, num_layers: int, num_heads: int) -> int:
    """Return the number of tokens that a dot of a map covers along each axis: 1 if each weight has its own dot."""
    return -(-num_tokens // most_dots(num_tokens, num_layers, num_heads))


def num_dots(num_tokens: int, num_layers: int, num_heads: int) -> int:
    """Return an upper bound of the number of dots (pixels) in one head's map: at most one dot for each weight."""
    return min(num_tokens, most_dots(num_tokens, num_layers, num_heads)) ** 2
