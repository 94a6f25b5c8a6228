"""How `gpt patch` shows the shares that patches recover, for one model or by training step. Needs no torch."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from gpt_cli.attention_maps.head_metrics import Row, head_label
from gpt_cli.common.drawing.panels import Curves, Panel
from gpt_cli.common.drawing.token_labels import label_of, quoted
from gpt_cli.common.language import say
from gpt_cli.common.results import WIDTH
from gpt_cli.common.tables import Rows
from gpt_cli.errors import counted
from gpt_cli.tools.interpret.figure import Figure, cell, cell_at, curve, farthest, heat_map, matrix, named_curves
from gpt_cli.tools.interpret.finding import Finding, steps_shown, table_by_step
from gpt_cli.tools.interpret.patching.request import PARTS
from gpt_cli.tools.pages.html_page import PATCH, build_page, packed

MOST_TOKENS = 24  # of a map; the last ones of longer prompts
LABEL = 10  # characters of a token
STRONGEST = 3  # places of a part in the terminal
LEAST = 0.005  # of a share in the terminal, which shows two decimals
_CELL = 7
_HEADS = 12  # of the map of heads by positions: those with the largest shares, above or below 0
_LIMITS = -0.5, 1.5  # of shares before the last step, which mean little while the metric hardly differs
PLACES = ("part", "layer", "position")
_SIDES = ("clean", "corrupt")
_OF_PAGE = ("recovered", "recovered_error", "estimate")  # NaN where a row has none
_TITLES = {
    "residual": "residual stream after a block",
    "attention": "output of attention",
    "feed_forward": "output of the feed-forward",
    "head": "output of heads, all positions",
}


class PatchFinding(Finding):
    """Result of `gpt patch`: the share of the metric that each patch recovers, by part, layer, position.

    A part is residual, attention, feed_forward or a head, such as H3. Position None means all positions at once. If one
    edge (head to reader) is patched, axes are [input, position]: all, or queries, keys or values of a reading head.
    """

    tabled: ClassVar = {"rows": PLACES}

    def rows_along(self, *axes: str) -> list[Row]:
        """Return a row for each patch: part, layer, head, position, share, error, and the estimate or input, if any."""
        shares: Row = {"recovered": None, "recovered_error": None}
        if path := self.about.get("path"):
            layer, _, head = path.partition(":")[2].strip().partition(".")
            reader = {"part": "path", "layer": _number(layer), "head": _number(head)}
            read = super().rows_along("input", "position")
            return [reader | {key: row[key] for key in ("position", "input")} | shares | row for row in read]
        rows = list[Row]()
        for row in super().rows_along(*axes):
            part = row.pop("part")
            place = {"part": _kind(part), "layer": row["layer"], "head": _number(part[1:]), "position": row["position"]}
            rows.append(place | shares | row)
        return sorted(rows, key=lambda row: (PARTS.index(row["part"]), row["layer"], row["head"] or 0))

    def parts(self, width: int = WIDTH) -> list[Rows]:
        """Return a table of the residual stream, positions by layers, and a table of the other parts' largest shares.

        For an edge (from a head to its reader), the table has the shares when the head's output is patched at all
        positions together, and the largest shares of single positions. For several training steps, it has the metric
        on both prompts and, for each part, such as attention, the layer or head with the largest share.
        """
        parts = parts_by_step(self)
        if self.stacked:
            metrics = [f"{prompt}_metric" for prompt in _SIDES]

            def of_step(at: Finding) -> list[str]:
                return [*(cell_at(at[name], decimals=3) for name in metrics), *(best_place(at, part) for part in parts)]

            return [table_by_step(self, (*_SIDES, *parts), of_step)]
        rows, names = self.rows_along(*PLACES), [_shown(self).name]
        if path := self.about.get("path"):
            best = [row for row in rows if row["position"] is None]
            best += strongest(rows, "path", names[0], 0, 2 * STRONGEST)
            cells = (_cells(self, row, names, path, row["input"]) for row in best)
            return [[("edge", "read as", "position", *names), *cells]]
        names += ["estimate"] if "recovered" in self and "estimate" in self else []
        best = [row for part in PARTS[1:] for row in strongest(rows, part, names[0])]
        places = [_cells(self, row, names, row["part"], head_label(row)) for row in best]
        maps: list[Rows] = [_map(self, width)] if "residual" in parts else []
        return maps + ([[("part", "place", "position", *names), *places]] if places else [])

    def legend(self) -> Iterator[str]:
        """Yield lines on the metric, the model and the meaning of the columns."""
        about, pairs = self.about, self.about.get("pairs")
        if self.stacked:
            yield f"{about['run']}; metric: {metric_words(self)}"
            yield "of each part, the place with the largest share, above or below 0, at all positions together"
            if "residual" in parts_by_step(self):
                yield "residual: the first layer after which the last position alone recovers half"
            yield from steps_shown(self, "checkpoint")
            return
        clean, corrupt = (float(self[f"{prompt}_metric"].values) for prompt in _SIDES)
        yield f"{self._model}; metric: {metric_words(self)}"
        yield f"clean {clean:.4f}, corrupt {corrupt:.4f}; recovered: 0 like corrupt, 1 like clean"
        if pairs is not None and pairs["number"] > 1:
            yield f"{counted(pairs['number'], 'pair')}: mean change over mean difference, ± standard error"
        if about["correlation"] is not None:
            yield f"correlation of estimates and exact shares: {about['correlation']:.4f}"

    def panels(self) -> Iterator[Panel]:
        """Yield heat maps of shares for each part, and of heads by position; for several steps, curves by step.

        All maps have the same colour scale. If only estimates were computed, the maps show estimates.
        """
        if self.stacked:
            metrics = [curve(self[f"{prompt}_metric"], prompt, marker="o") for prompt in _SIDES]
            yield Curves(self.about["metric"].replace("_", " "), metrics)
            for part in parts_by_step(self):
                shares = shares_by_unit(self, part)
                last = np.nan_to_num(shares.values[-1])
                named = {unit: {} for unit in farthest(shares.at(step=self.coords["step"][-1]), STRONGEST)}
                limits = min(_LIMITS[0], *last), max(_LIMITS[1], *last)
                yield named_curves(shares, part.replace("_", "-"), named, limits)
            return
        shares, reached = _shown(self), _reached(_shown(self))
        columns = {"position": [label(self, position, 8).replace(" / ", "\n") for position in reached]}
        placed = shares.at(position=reached or None)
        if "path" in self.about:
            names = {"input": [*map(say, shares.coords["input"])], **columns}
            yield heat_map(placed, "share of the edge", names, shares.ends)
        for kind, parts in _by_kind(self).items():
            if kind != "head":
                yield heat_map(placed.at(part=kind), _TITLES[kind], columns, shares.ends)
                continue
            yield heat_map(shares.at(part=parts, position=None).over("layer", "part"), _TITLES[kind], ends=shares.ends)
            if reached:
                of_heads = placed.at(part=parts).over("layer", "part", "position").by_place("layer", "part")
                best = of_heads.at(place=farthest(of_heads, _HEADS))
                yield heat_map(best, "output of the strongest heads", columns, shares.ends)

    @property
    def source(self) -> str:
        """Both prompts, or the file of pairs."""
        about = self.about
        return about["pairs"]["file"] if "pairs" in about else f"{about['clean']} / {about['corrupt']}"

    def as_page(self) -> str | None:
        """Return an HTML page that shows the shares as heat maps; None for an edge (head to reader)."""
        if "path" in self.about:
            return None
        return patch_page({"checkpoint": self.about.get("run"), **self.as_dict()}).decode()


def metric_words(finding: Finding) -> str:
    """Describe the metric, such as logit of " a" minus logit of " b"; tokens are named only if all pairs share them."""
    answer, against = (finding.about[key] and quoted(finding.about[key], LABEL) for key in ("answer", "against"))
    if finding.about["metric"] == "log_probability":
        return f"log probability of {answer or 'the answer'}"
    if not answer or not against:
        return "logit of the answer minus logit of the other token"
    return f"logit of {answer} minus logit of {against}"


def label(finding: Finding, position: int | None, limit: int = LABEL) -> str:
    """Return the label of a position: its number, and its tokens in both prompts, as in 4 "a" / "b"; `all` for None."""
    if position is None:
        return "all"
    clean, corrupt = (finding.about["tokens"][position][prompt] for prompt in _SIDES)
    if clean is None:
        return str(position)
    return f"{position} {quoted(clean, limit)}" + ("" if clean == corrupt else f" / {quoted(corrupt, limit)}")


def strongest(
    rows: Sequence[Row], part: str, figure: str, together: int = STRONGEST, each: int = STRONGEST
) -> list[Row]:
    """Return a part's rows of largest |row[figure]|: up to `together` for all positions at once, `each` for one."""
    of_part = sorted((row for row in rows if row["part"] == part), key=lambda row: -abs(row[figure]))
    placed = [row for row in of_part if row["position"] is not None and abs(row[figure]) >= LEAST]
    return [row for row in of_part if row["position"] is None][:together] + placed[:each]


def parts_by_step(finding: Finding) -> list[str]:
    """Return the parts, such as attention, to show by step; residual only if positions were patched one by one."""
    return [kind for kind in _by_kind(finding) if kind != "residual" or len(finding.coords["position"]) > 1]


def shares_by_unit(finding: Finding, kind: str) -> Figure:
    """Return the share that each layer, or head, of part `kind` recovers at all positions: [place] or [step, place].

    For the residual stream, only the last position is patched, since all positions together recover everything.
    """
    position = finding.coords["position"][-1] if kind == "residual" else None
    shares = finding["recovered"].at(position=position, part=_by_kind(finding)[kind])
    if kind != "head":
        return shares.at(part=kind).by_place("layer")
    return shares.over(*shares.axes[:-2], "layer", "part").by_place("layer", "part")


def best_place(finding: Finding, kind: str) -> str:
    """Return the layer or head with the largest |share| of a part (`kind`), as in "L0 H1 0.85"; "-" if all are NaN.

    For the residual stream, whose last layer recovers all, return the first layer that recovers half; "-" if none does.
    """
    shares = shares_by_unit(finding, kind)
    best = farthest(shares, 1)
    if kind == "residual":
        best = [unit for unit, share in zip(shares.coords["place"], shares.values, strict=True) if share >= 0.5][:1]
    return f"{best[0]} {cell_at(shares.at(place=best[0]))}" if best else "-"


def _map(finding: Finding, width: int) -> Rows:
    """Return a table of the metric's share that residual patches recover: positions with an effect, layers that fit."""
    shares = _shown(finding).at(part="residual")
    reached = [position for position in _reached(shares) if shares.at(position=position).values.any()]
    labels = [label(finding, position) for position in reached]
    shares = replace(shares.at(position=reached).over("position", "layer"), error=None)  # has no room
    return matrix("residual", labels, shares, (width - 2 * LABEL - 12) // _CELL)


def _cells(finding: Finding, row: Row, names: Sequence[str], *first: str) -> tuple[str, ...]:
    shares = (cell(row[name], row.get(f"{name}_error")) for name in names)
    return (*first, label(finding, row["position"]), *shares)


def _shown(finding: Finding) -> Figure:
    """Return the finding's exact shares, or else its estimated shares, of the metric that patches recover."""
    return finding["recovered" if "recovered" in finding else "estimate"]


def _reached(shares: Figure) -> list[int]:
    """Return the positions from the first at which a patch has an effect; of these, at most the last MOST_TOKENS."""
    positions = [position for position in shares.coords["position"] if position is not None]
    changed = [at for at, position in enumerate(positions) if shares.at(position=position).values.any()]
    return positions[min(changed, default=0) :][-MOST_TOKENS:]


def _by_kind(finding: Finding) -> dict[str, list[str]]:
    """Return a finding's parts by kind: the kind `head` has all heads (H0, ...), each other kind has one part."""
    parts = finding.coords.get("part", ())
    return {kind: [part for part in parts if _kind(part) == kind] for kind in dict.fromkeys(map(_kind, parts))}


def _kind(part: str) -> str:
    return part if part in PARTS else "head"


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def patch_page(report: dict[str, Any]) -> bytes:
    """Return an HTML page of `report`, which `gpt patch --json` prints for one pair, or for several pairs on average.

    For a report with `steps`, the page has a frame for each step; all frames share `places` [n, 4]: part, layer, head,
    position (or -1). `numbers` are [frames, n, 3]: share, its error and estimate, NaN where a row has none.
    """
    steps = report.get("steps") or [report]
    rows = ([PARTS.index(row["part"]), row["layer"], row["head"], row["position"]] for row in steps[0]["rows"])
    places = np.array([[-1 if number is None else number for number in row] for row in rows], "<i4")
    # None is NaN
    numbers = np.array([[[row.get(name) for name in _OF_PAGE] for row in at["rows"]] for at in steps], "<f4")
    content = {
        "checkpoint": report["checkpoint"],
        "steps": [at["step"] for at in steps],
        "texts": {kind: _labelled(report.get(kind)) for kind in _SIDES},
        "pairs": report.get("pairs"),
        "metric": report["metric"],
        "answer": _labelled(report.get("answer")),
        "against": _labelled(report.get("against")),
        "metrics": [{kind: at[f"{kind}_metric"] for kind in _SIDES} for at in steps],
        "tokens": [{kind: _labelled(row[kind]) for kind in _SIDES} for row in report.get("tokens") or []],
        "patch": {"parts": PARTS, "places": packed(places.tobytes()), "numbers": packed(numbers.tobytes())},
    }
    return build_page(PATCH, content)


def _labelled(text: str | None) -> str | None:
    return None if text is None else label_of(text, limit=None)
