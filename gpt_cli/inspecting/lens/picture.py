"""What layers would predict as a picture: a map of layers by tokens, or the curves of a text."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpt_cli.callbacks import Notify, ignored
from gpt_cli.drawing.canvas import Axes, Figure, LogFormatter, colormaps
from gpt_cli.drawing.labels import label_of
from gpt_cli.inspecting.dump import Origin
from gpt_cli.inspecting.lens.request import MEASURES
from gpt_cli.inspecting.picture import draw_panels, known
from gpt_cli.language import say
from gpt_cli.text.sources import names_of

MOST_TOKENS = 24  # of a map; the last ones of a longer prompt
_LETTERS = 7
_UNITS = {"loss": " (nats)", "divergence": " (nats)"}


def draw_lens(report: dict[str, Any], notice: Notify = ignored) -> bytes:
    """The report that `gpt lens --json` prints, as a png.

    A cell of a map has the likeliest next token, and its colour is the probability. `notice` receives a line when no
    installed font has a character.
    """
    positions = report.get("positions", [])[-MOST_TOKENS:]
    origin = Origin(report["checkpoint"], report["step"], ", ".join(names_of(report["text"])))
    tuned = "tuned_" if "tuned" in report else ""
    labels = [each["token"] for each in positions]
    labels += [row[f"{tuned}token"] for each in positions for row in each["layers"]]
    width, height = (0.62 * len(positions) + 1.6, 0.24 * len(report["layers"]) + 1.3) if positions else (7.0, 2.6)

    def draw_all(figure: Figure, missing: set[str], spoken: str) -> None:
        if positions:
            _draw_map(figure, report, positions, missing, spoken, tuned)
        else:
            _draw_curves(figure, report, spoken, ["", tuned][: 1 + bool(tuned)])

    written = "".join(label_of(label, _LETTERS) for label in labels)
    return draw_panels(origin, (max(width, 4.0), height), draw_all, notice, written)


def _draw_map(
    figure: Figure, report: dict[str, Any], positions: list[Any], missing: set[str], spoken: str, tuned: str
) -> None:
    """Layers upwards, tokens across; `tuned` begins the keys of predictions."""
    chances = np.array([[row[f"{tuned}token_probability"] for row in each["layers"]] for each in positions]).T
    axes = figure.subplots()
    image = axes.imshow(chances, vmin=0, vmax=1, cmap="viridis", aspect="auto", origin="lower")

    def label(token: str) -> str:
        return known(label_of(token, _LETTERS), missing)

    for (layer, place), chance in np.ndenumerate(chances):
        ink = "black" if chance > 0.5 else "white"
        token = label(positions[place]["layers"][layer][f"{tuned}token"])
        axes.text(place, layer, token, ha="center", va="center", fontsize=6, color=ink, parse_math=False)
    axes.set_yticks(range(len(chances)), [f"L{row['layer']}" for row in report["layers"]])
    axes.set_xticks(range(len(positions)), [label(each["token"]) for each in positions], parse_math=False)
    axes.tick_params(length=0, pad=2)
    title = "the likeliest next token after each layer, and its probability"
    title = "tuned lens: the likeliest next token, and its probability" if tuned else title
    axes.set_title(say(title, spoken), fontsize=8)
    figure.colorbar(image, ax=axes, fraction=0.03, pad=0.02).ax.tick_params(labelsize=6)


def _draw_curves(figure: Figure, report: dict[str, Any], spoken: str, lenses: list[str]) -> None:
    """For each measure a curve of each lens, with two standard errors to both sides."""
    layers = [row["layer"] for row in report["layers"]]
    for axes, name in zip(figure.subplots(1, len(MEASURES)), MEASURES, strict=True):
        for lens, label in zip(lenses, ("logit lens", "tuned lens"), strict=False):
            numbers = [row[lens + name] for row in report["layers"]]
            errors = [2 * (row[f"{lens}{name}_error"] or 0) for row in report["layers"]]
            style = {"marker": "o", "markersize": 3, "linewidth": 1, "capsize": 2, "label": say(label, spoken)}
            axes.errorbar(layers, numbers, yerr=errors, **style)
        if name == MEASURES[0] and len(lenses) > 1:
            axes.legend(frameon=False, fontsize=6)
        axes.set_title(say(name + _UNITS.get(name, ""), spoken), fontsize=7)
        axes.set_xlabel(say("layer", spoken))
        axes.set_xticks(layers if len(layers) <= 8 else layers[:: -(-len(layers) // 8)])
        if name == "rank":
            _scale_ranks(axes)


def _scale_ranks(axes: Axes) -> None:
    """A logarithmic scale whose labels are plain numbers, such as 450."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(LogFormatter())
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.4)))


def draw_lens_history(history: dict[str, Any], notice: Notify = ignored) -> bytes:
    """The history that `gpt lens --over-training --json` prints, as a png: for each measure a curve of each layer.

    Bands are two standard errors to both sides. `notice` receives a line when no installed font has a character.
    """
    steps, rows = [at["step"] for at in history["steps"]], history["steps"][-1]["layers"]
    origin = Origin(history["run"], steps[-1], ", ".join(names_of(history["text"])))

    def draw_all(figure: Figure, _: set[str], spoken: str) -> None:
        panels = figure.subplots(1, len(MEASURES))
        for axes, name in zip(panels, MEASURES, strict=True):
            for place, layer in enumerate(row["layer"] for row in rows):
                found = [at["layers"][place] for at in history["steps"]]
                numbers = np.array([np.nan if row[name] is None else row[name] for row in found])
                errors = 2 * np.array([row[f"{name}_error"] or 0.0 for row in found])
                colour = colormaps["viridis"](place / max(1, len(rows) - 1) * 0.9)
                axes.plot(steps, numbers, color=colour, marker="o", markersize=2, linewidth=1, label=f"L{layer}")
                axes.fill_between(steps, numbers - errors, numbers + errors, color=colour, alpha=0.2, linewidth=0)
            axes.set_title(say(name + _UNITS.get(name, ""), spoken), fontsize=7)
            axes.set_xlabel(say("step", spoken))
            if name == "rank" and any(row["rank"] is not None for at in history["steps"] for row in at["layers"]):
                _scale_ranks(axes)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right", frameon=False, fontsize=6)

    return draw_panels(origin, (7.0, 3.0), draw_all, notice)
