"""Compare runs: means over seeds, mean curves, and settings. Needs no torch."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gpt_cli.checkpoints.run_list import RunLoss, have_one_tokenizer
from gpt_cli.common.tables import Rows
from gpt_cli.common.units import with_error
from gpt_cli.config.field_types import as_yaml
from gpt_cli.config.schema import SEED
from gpt_cli.errors import visible
from gpt_cli.tools.reports.run_record import RunRecord

MOST_DRAWN = 12  # groups of runs that six colours, in solid and dashed lines, distinguish
_FEW = 4  # settings that a legend can hold
_LONGEST = 30  # characters of a value in a legend


def evaluated_tokens(records: Sequence[RunRecord]) -> int | None:
    """Return how many tokens evaluations in training read; None if runs differ or the final evaluation read as many."""
    read = {tuple(record.curve("validation_tokens")[1][-1:]) for record in records}
    whole = {(tokens,) for one in records if (tokens := one.overview.outcome.get("validation_tokens")) is not None}
    return int(*read.pop()) if len(read) == 1 and read not in ({()}, whole) else None


def of_tokens(records: Sequence[RunRecord]) -> str:
    """Return text to end a title, such as " (of 4,096 tokens)"; "" if `evaluated_tokens` returns None."""
    return "" if (number := evaluated_tokens(records)) is None else f" (of {number:,} tokens)"


def by_token(records: Sequence[RunRecord]) -> bool:
    """Return whether all runs with a loss have equal tokenizers; if not, only bits per byte can be compared."""
    return have_one_tokenizer(record.overview for record in records)


class Mean(NamedTuple):
    """Mean and standard error of the losses after training of runs that differ only in their seed.

    `losses` and `seeds` are those of the runs with such a loss; `places` are the indices of all these runs.
    """

    settings: Mapping[str, Any]  # in which these runs differ from others
    num_runs: int  # with a closing loss
    mean: float | None  # nats per token or bits per byte; None without such a run
    error: float | None  # None for fewer than two runs
    seeds: tuple[Any, ...]  # of these runs, in the order of `losses`
    losses: tuple[float, ...]
    places: tuple[int, ...]  # indices of all its runs among the compared runs

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that `gpt report --json` and `gpt sweep --json` print."""
        return {name: value for name, value in self._asdict().items() if name != "places"}


def means(runs: Sequence[tuple[Mapping[str, Any], RunLoss | None]], *, by_token: bool) -> list[Mean]:
    """Return the mean loss after training of each group of runs that differ only in their seed, the lowest first.

    `runs` are (settings, loss); means are in nats per token with `by_token`, else in bits per byte. A group has no
    seed twice: of two runs with equal settings and equal seed, the second is in another group.
    """
    groups, equal = dict[Any, list[int]](), Counter[Any]()
    for index, (settings, _) in enumerate(runs):
        key = tuple((name, as_yaml(value)) for name, value in settings.items() if name != SEED)
        whole = key, settings.get(SEED)
        groups.setdefault((key, equal[whole]), []).append(index)
        equal[whole] += 1
    averages = [_mean([runs[index] for index in indices], tuple(indices), by_token) for indices in groups.values()]
    return sorted(averages, key=lambda one: math.inf if one.mean is None else one.mean)


def _mean(runs: Sequence[tuple[Mapping[str, Any], RunLoss | None]], places: tuple[int, ...], by_token: bool) -> Mean:
    closed = [(own.get(SEED), one) for own, one in runs if one is not None and one.closed]
    pairs = [(seed, one.loss if by_token else one.bits_per_byte) for seed, one in closed]
    known = [pair for pair in pairs if pair[1] is not None]
    seeds, losses = zip(*known, strict=True) if known else ((), ())
    return Mean(
        settings={name: value for name, value in runs[0][0].items() if name != SEED},
        num_runs=len(losses),
        mean=statistics.fmean(losses) if losses else None,
        error=statistics.stdev(losses) / math.sqrt(len(losses)) if len(losses) > 1 else None,
        seeds=seeds,
        losses=losses,
        places=places,
    )


def means_of_records(records: Sequence[RunRecord]) -> list[Mean]:
    """Return the mean loss after training of each group of `records` that differ only in their seed, lowest first."""
    differing, configs = [row.name for row in differing_settings(records)], [record.config for record in records]
    settings = [{name: config.get(name) for name in differing} for config in configs]
    return means([(one, run.result) for one, run in zip(settings, records, strict=True)], by_token=by_token(records))


class RunGroup(NamedTuple):
    """Runs that differ only in their seed; a drawing shows them in one colour (number `rank`) under one `label`."""

    label: str
    records: Sequence[RunRecord]
    mean: Mean
    rank: int  # index of its colour: in the order of the runs, or, for over MOST_DRAWN groups, lowest loss first


def groups_of(records: Sequence[RunRecord]) -> list[RunGroup]:
    """Group the runs that differ only in their seed; labels are settings that differ between groups, or run names."""
    by_loss = means_of_records(records)
    averages = sorted(by_loss, key=lambda mean: mean.places)
    labels = [settings_in_words(mean.settings) for mean in averages]
    if len(averages[0].settings) > _FEW or len(set(labels)) < len(averages) or len(averages) == 1:
        ends = [dict.fromkeys((records[mean.places[0]].name, records[mean.places[-1]].name)) for mean in averages]
        labels = [" … ".join(names) for names in ends]
    ranks = {mean.places: rank for rank, mean in enumerate(by_loss if len(averages) > MOST_DRAWN else averages)}
    return [
        RunGroup(label, [records[index] for index in mean.places], mean, ranks[mean.places])
        for label, mean in zip(labels, averages, strict=True)
    ]


def rows_of_means(means: Sequence[Mean], unit: str) -> Rows:
    """Return a table with a row for each mean: the mean loss in `unit`, the number of runs, the settings."""
    losses = ("" if mean.mean is None else with_error(mean.mean, mean.error) for mean in means)
    rows = [(loss, str(one.num_runs), settings_in_words(one.settings)) for loss, one in zip(losses, means, strict=True)]
    return [(f"mean {unit}", "runs", "settings"), *rows]


def swept(groups: Sequence[RunGroup]) -> list[str]:
    """Return the differing settings of groups, to plot losses against; [] for over 4 settings or under 3 groups."""
    names = [*groups[0].mean.settings]
    return names if len(groups) > 2 and len(names) <= _FEW else []


def settings_in_words(settings: Mapping[str, Any]) -> str:
    """Return settings as text for a legend, such as learning_rate=0.001 dropout=0.1."""
    return " ".join(f"{key.partition('.')[2]}={visible(as_yaml(value), _LONGEST)}" for key, value in settings.items())


def mean_curve(group: RunGroup, quantity: str, axis: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean curve of a group: arrays x, y and standard error of y (0 for one run), each [points].

    `axis` (x) and `quantity` (y) are keys of RunRecord.metrics. The curve covers the range of x that all runs have; a
    run that logged nothing is left out. Without such a range, the curve is that of the run with the most points.
    """
    curves = [curve for record in group.records if len((curve := record.curve(quantity, axis))[0])]
    if len(curves) > 1:
        every = np.unique(np.concatenate([x for x, _ in curves]))
        x = every[(every >= max(x[0] for x, _ in curves)) & (every <= min(x[-1] for x, _ in curves))]
        if len(x):
            values = np.stack([np.interp(x, *curve) for curve in curves])
            return x, values.mean(0), values.std(0, ddof=1) / math.sqrt(len(curves))
    x, y = max(curves, key=lambda curve: len(curve[0]), default=(np.empty(0), np.empty(0)))
    return x, y, np.zeros(len(y))


def repeated(means: Sequence[Mean]) -> bool:
    """Return whether any mean covers several runs, that is, several seeds."""
    return any(len(mean.places) > 1 for mean in means)


class Row(NamedTuple):
    """A row of a table: a name, and each run's value as text, None if the run has no such value."""

    name: str
    values: tuple[str | None, ...]

    @property
    def differs(self) -> bool:
        """Whether two runs have different values; a missing value (None) does not count."""
        return len({value for value in self.values if value is not None}) > 1


def differing_settings(records: Sequence[RunRecord]) -> list[Row]:
    """Return the settings, `section.key`, in which runs differ; an empty list for one run."""
    return [row for row in rows([record.config for record in records]) if row.differs]


def rows(contents: Sequence[Mapping[str, Any]], text: Callable[[Any], str] = as_yaml) -> list[Row]:
    """Return a table row for each name; contents[i] maps names to the values of run i, and `text` formats a value."""
    names = dict.fromkeys(name for content in contents for name in content)
    return [
        Row(name, tuple(text(content[name]) if name in content else None for content in contents)) for name in names
    ]


def models_in_turn(records: Sequence[RunRecord]) -> list[Row]:
    """Return a row for each model that runs train in turn (teachers, student): steps and lowest validation loss."""

    def cell(model: Mapping[str, Any]) -> str:
        loss = "" if model["validation_loss"] is None else f": {model['validation_loss']:.3f}"
        return f"{model['first_step']:,}-{model['last_step']:,}{loss}"

    models = [record.models if record.teachers else [] for record in records]
    return rows([{str(number): model for number, model in enumerate(of_run, 1)} for of_run in models], cell)
