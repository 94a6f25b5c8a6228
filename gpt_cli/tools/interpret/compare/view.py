"""How `gpt compare` shows the differences of two models: tables, CSV and pictures. Needs no torch."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from gpt_cli.attention_maps.head_metrics import Row, head_label
from gpt_cli.common.drawing.panels import Curves, Panel, PlotLine
from gpt_cli.common.drawing.token_labels import COLOURS, Origin, quoted
from gpt_cli.common.language import say
from gpt_cli.common.results import WIDTH
from gpt_cli.common.tables import Rows
from gpt_cli.common.units import with_error
from gpt_cli.errors import visible
from gpt_cli.tools.interpret.figure import Figure, cell, curve, heat_map, matrix, names_along
from gpt_cli.tools.interpret.finding import Finding

MAX_HEADS = 10  # in the terminal
_TEXT = 44  # characters of a passage there
CHANGES = ("attention_change", "write_change")
_POINT = {"fmt": "o", "color": COLOURS[0], "markersize": 4}


def comparison_figures(comparison: Row) -> tuple[Figure, ...]:
    """Return a comparison (a finding's `lists`) as arrays: losses, head changes [layer, head], weight changes."""
    difference, apart, ends = comparison["difference"], comparison["divergence"], {"run": ("first", "second")}
    keys = "loss", "loss_error", "bits_per_byte"  # None is NaN
    loss, loss_error, bits = (np.array([one[key] for one in comparison["runs"]], float) for key in keys)
    value, error = (np.array(difference[key], float) for key in ("value", "error"))
    figures = [Figure("loss", ends, loss, loss_error, "nats/token"), Figure("bits_per_byte", ends, bits)]
    figures.append(Figure("difference", {}, value, error, difference["unit"]))
    if apart is not None:
        mean, error = (np.array(apart[key], float) for key in ("mean", "error"))
        figures.append(Figure("divergence", {}, mean, error, "nats/token"))
    if comparison["heads"]:
        figures += [Figure.of_rows(comparison["heads"], name, "layer", "head", scale="share") for name in CHANGES]
    if blocks := [row for row in comparison["weights"] if row["layer"] is not None]:
        figures.append(Figure.of_rows(blocks, "weight_change", "layer", "part", key="change"))
    if others := [row for row in comparison["weights"] if row["layer"] is None]:
        figures.append(Figure.of_rows(others, "other_weight_change", "part", key="change"))
    return (*figures,)


class CompareFinding(Finding):
    """Result of `gpt compare`: `lists` has rows of runs, heads, weights and passages.

    Differences are values of the second model minus those of the first.
    """

    beside: ClassVar = (5, 5)

    def parts(self, width: int = WIDTH) -> list[Rows | str]:
        """Return tables of losses, of the heads that changed most, of weights and passages, and the loss difference."""
        lists = self.lists
        losses = [("run", "step", "tokens", "nats/token", "bits/byte")]
        for one in lists["runs"]:
            loss = with_error(one["loss"], one["loss_error"])
            figures = (f"{one['step']:,}", f"{one['tokens']:,}", loss, f"{one['bits_per_byte']:.4f}")
            losses.append((visible(one["run"]), *figures))
        difference, apart = lists["difference"], lists["divergence"]
        more = with_error(difference["value"], difference["error"], signed=True)
        parts: list[Rows | str] = [losses, f"second - first: {more} {difference['unit']}"]
        if apart is not None:
            mean = with_error(apart["mean"], apart["error"])
            parts.append(f"divergence, KL(first || second): {mean} nats/token")
        if lists["heads"]:
            changes = [
                (head_label(row), *(cell(row[name], row[f"{name}_error"], 4) for name in CHANGES))
                for row in lists["heads"][:MAX_HEADS]
            ]
            parts.append([("head", "attention", "writes"), *changes])
        outside = [(row["part"], cell(row["change"], decimals=4)) for row in lists["weights"] if row["layer"] is None]
        parts += [[("weights", "change"), *outside]] if outside else []
        if "weight_change" in self:
            change = self["weight_change"]
            layers = names_along("layer", change.coords["layer"])
            parts.append(matrix("layer", layers, change, len(change.coords["part"]), 4))
        if passages := lists["passages"]:
            names = [name for name in ("divergence", "first", "second") if name in passages[0]]
            cells = ((*(f"{each[name]:.3f}" for name in names), quoted(each["text"], _TEXT)) for each in passages)
            parts.append([(*names, "passage"), *cells])
        return parts

    def legend(self) -> Iterator[str]:
        """Yield lines that name the text that both models read, and explain the columns."""
        yield f"both models read {visible(self.source)}; ±: standard error"
        if heads := self.lists["heads"]:
            yield "attention: total variation distance of its rows (0 to 1); writes, weights: ||b - a|| / ||a||"
            if len(heads) > MAX_HEADS:
                yield f"{MAX_HEADS} of {len(heads)} heads are shown; --json and --out have all"
        if self.lists["passages"]:
            unit = "nats/token" if "divergence" in self else "bits/byte"
            yield f"passages where the predictions differ most, and what they cost each model ({unit})"

    def csv_rows(self) -> list[Row]:
        """Return a row for each number of the comparison, except for the numbers of single passages."""
        empty = {"run": None, "layer": None, "head": None, "part": None}
        lists, places = self.lists, []
        for one in lists["runs"]:
            places.append(("loss", {"run": one["run"]}, one["loss"], one["loss_error"]))
            places.append(("bits_per_byte", {"run": one["run"]}, one["bits_per_byte"], None))
        difference, apart = lists["difference"], lists["divergence"]
        places.append((f"difference ({difference['unit']})", {}, difference["value"], difference["error"]))
        places += [] if apart is None else [("divergence", {}, apart["mean"], apart["error"])]
        for row in lists["heads"]:
            labels = {"layer": row["layer"], "head": row["head"]}
            places += [(name, labels, row[name], row[f"{name}_error"]) for name in CHANGES]
        for row in lists["weights"]:
            places.append(("weight_change", {"layer": row["layer"], "part": row["part"]}, row["change"], None))
        return [
            {"what": what, **empty, **labels, "value": value, "error": error} for what, labels, value, error in places
        ]

    def panels(self) -> Iterator[Panel]:
        """Yield plots of loss difference, losses, and weight changes by layer, and heat maps of head changes."""
        difference, same = self["difference"], "divergence" in self
        none = PlotLine("", (-0.5, 0.5), (0, 0), style={"color": "#777777", "linewidth": 0.8})
        error = None if difference.error is None else difference.error[None]
        point = PlotLine("", (0,), difference.values[None], error, _POINT)
        ticks = [with_error(float(difference.values), self.lists["difference"]["error"], signed=True)]
        yield Curves(f"second - first ({difference.unit})", [none, point], "", ticks=ticks)
        losses = self["loss" if same else "bits_per_byte"]
        points = PlotLine("", (0, 1), losses.values, losses.error, _POINT)
        yield Curves("loss (nats/token)" if same else "bits per byte", [points], "", ticks=losses.coords["run"])
        for name in CHANGES:
            if name in self and not np.isnan(self[name].values).all():
                yield heat_map(self[name])
        if "weight_change" in self:
            change = self["weight_change"]
            lines = [curve(change.at(part=part), part, marker="o") for part in change.coords["part"]]
            yield Curves("change of the weights", lines, "layer", (0, None))

    def origin(self) -> Origin:
        """Return the caption of the picture: both runs with their steps, and the text."""
        first, second = self.lists["runs"]
        of_first = say(f"{first['run']}, step {first['step']:,}")
        return Origin(f"{of_first}; {second['run']}", second["step"], self.source)
