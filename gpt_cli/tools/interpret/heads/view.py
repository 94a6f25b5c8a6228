"""How `gpt heads` shows scores, passages and circuits of heads, of one model or by training step. Needs no torch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import ClassVar

import numpy as np

from gpt_cli.attention_maps.head_metrics import (
    COLUMNS,
    LEAST_TOKENS,
    LOSS_CHANGE,
    SHARES,
    HeadScores,
    Row,
    head_label,
    role_of,
)
from gpt_cli.attention_maps.snapshots import Losses
from gpt_cli.common.drawing.panels import Curves, Panel, PlotLine
from gpt_cli.common.drawing.token_labels import COLOURS, label_of, quoted
from gpt_cli.common.results import WIDTH
from gpt_cli.common.tables import Rows, filled
from gpt_cli.errors import counted
from gpt_cli.tools.interpret.figure import Figure, cell, cell_at, farthest, heat_map, named_curves
from gpt_cli.tools.interpret.finding import Finding, joined, steps_shown, table_by_step
from gpt_cli.tools.interpret.heads.writers import BRACKETS, heads_page, of_directions, of_pairs, of_passages, shown_peak

MAX_HEADS = 6  # beside each other in 80 columns
_COLOUR = "\033[30;43m", "\033[0m"  # black on yellow, which every colour terminal has
HEADINGS = {  # short, so that a row fits
    "entropy": "entr",
    "mean_distance": "dist",
    "first_token": "first",
    "previous_token": "prev",
    "self": "self",
    "duplicate_token": "dup",
    "induction": "ind",
}
_BY_STEP = {"previous_token": "previous", "duplicate_token": "duplicate", "first_token": "first token"}
_UNITS = {"entropy": "nats", "mean_distance": "tokens"}
_TITLES = {("layer", "head"): "loss change without it (nats)", ("layer",): "loss change without the layer (nats)"}
_NUM_NAMED = 3  # heads of a panel by step that have a colour and a name
_LEAST = 0.1  # the share that a head must reach for that
_STROKES = ("-", "--", ":")  # more heads than colours have other strokes


def head_figures(scores: HeadScores, layers: Sequence[int], heads: Sequence[int]) -> list[Figure]:
    """Return each score of the heads as a Figure, an array with the axes layer and head."""
    places = {"layer": layers, "head": heads}
    return [
        Figure(name, places, values, unit=_UNITS.get(name, ""), scale="amount" if name in _UNITS else "share")
        for name, values in scores.items()
    ]


def labels_of(scores: HeadScores, num_tokens: int) -> list[Row]:
    """Return {"label": role} for each head: a role such as induction; None for low scores or few tokens."""
    places = np.ndindex(scores["entropy"].shape)
    of_heads = ({name: float(values[place]) for name, values in scores.items()} for place in places)
    return [{"label": role_of(of_head, num_tokens)} for of_head in of_heads]


@dataclass(frozen=True, eq=False)
class HeadsFinding(Finding):
    """Result of `gpt heads`: scores, loss changes, and the list `heads` of labels, tokens and passages.

    `sort` names the column whose highest values come first; `of_prompt` means that the model read a prompt. `losses`
    has a run's training and validation loss by step; if None, the loss of a step is that of the prompt.
    """

    sort: str | None = None
    of_prompt: bool = False
    losses: Losses | None = None
    tabled: ClassVar = {"layers": ("layer",), "heads": ("layer", "head")}
    beside: ClassVar = (4, 1)

    def rows_along(self, *axes: str) -> list[Row]:
        """Return a row for each layer or head: scores, label, and the other measurements."""
        rows = super().rows_along(*axes)
        if axes == ("layer",):
            return rows
        first = ("layer", "head", *COLUMNS, "label")
        both = (row | texts for row, texts in zip(rows, self.lists["heads"], strict=True))
        rows = [{name: row[name] for name in first if name in row} | row for row in both]
        if self.sort is None:
            return rows
        column = self.sort
        return sorted(rows, key=lambda row: -np.inf if row[column] is None else row[column], reverse=True)

    def csv_rows(self) -> list[Row]:
        """Return a row for each head, or, for several training steps, for each step and head.

        Columns layer_... repeat the loss change of a head's layer; columns such as q_L0_H3 have composition scores with
        lower heads. A passage has its peak (the token of largest norm), norm and text. For passages at several steps,
        a row has the positions of the last step's peaks, and the head's norms there at the row's own step.
        """
        if self.stacked:
            rows = super().csv_rows()
            if "ratio" not in self:
                return rows
            places = [[each["place"] + each["peak"] for each in row["passages"]] for row in self.lists["heads"]]
            pairs = ((row, zip(places[n % len(places)], row["values"], strict=True)) for n, row in enumerate(rows))
            return [
                {name: row[name] for name in ("step", "layer", "head", "mean_size")}
                | {"passages": [{"place": position, "value": value} for position, value in sizes]}
                for row, sizes in pairs
            ]
        composed, columns = dict[tuple[int, int], Row](), dict[str, None]()
        pairs = self.lists.get("circuits", {}).get("composition", ())
        for pair in sorted(pairs, key=itemgetter("kind", "from_layer", "from_head")):
            column = f"{pair['kind'].lower()}_L{pair['from_layer']}_H{pair['from_head']}"
            columns[column] = None
            composed.setdefault((pair["to_layer"], pair["to_head"]), {})[column] = pair["score"]
        layers = {row.pop("layer"): row for row in self.rows_along("layer")}
        rows = []
        for row in self.rows_along("layer", "head"):
            if "passages" in row:
                row["passages"] = [_as_text(passage) for passage in row["passages"]]
            scores = composed.get((row["layer"], row["head"]), {})
            of_layer = {f"layer_{name}": number for name, number in layers.get(row["layer"], {}).items()}
            rows.append(row | {column: scores.get(column) for column in columns} | of_layer)
        return rows

    def parts(self, width: int = WIDTH, marks: tuple[str, str] = BRACKETS) -> list[Rows]:
        """Return tables of heads, passages and circuits; `marks` enclose a passage's peak, where the head writes most.

        For several training steps, a table has a row for each step: the strongest head by each score or, with `sort`,
        the scores of the heads that are highest at the last step. If the finding has passages, a row has ratios of a
        few heads: the mean output norm at the peaks of the last step's passages, divided by the head's mean norm over
        the text. A second table shows these heads' passages.
        """
        if self.stacked:
            return self._by_step(width, marks)
        heads, layers = self.rows_along("layer", "head"), self.rows_along("layer")
        parts: list[Rows] = [_of_heads(heads)]
        if layers:
            parts.append([("layer", "loss change"), *((str(row["layer"]), _change(row)) for row in layers)])
        if query := self.about.get("query"):
            title = f"raised most at token {query['position']}, {quoted(query['token'])}"
            parts.append([("head", title), *((head_label(row), _raised(row, width)) for row in heads)])
        if "passages" in heads[0]:
            parts.append(of_passages(heads, width, marks))
        if circuits := self.lists.get("circuits"):
            parts += [*([of_pairs(circuits)] if circuits["composition"] else []), *of_directions(heads, width)]
        return parts

    def as_coloured_text(self, width: int = WIDTH) -> str:
        """Return the tables as text; in each passage, the token at which the head's output is largest is coloured."""
        return joined(self.parts(width, _COLOUR))

    def _by_step(self, width: int, marks: tuple[str, str]) -> list[Rows]:
        column = "ratio" if "ratio" in self else self.sort

        def of(at: Finding, name: str) -> Figure:
            return at[name].by_place("layer", "head")

        def loss(at: Finding) -> str:
            return cell_at(at["loss"], decimals=3)

        if column is None:
            names = ("loss", *(_BY_STEP.get(name, name) for name in SHARES))
            return [table_by_step(self, names, lambda at: [loss(at), *(_best(of(at, name)) for name in SHARES)])]
        last = of(self.stacked[-1], column)
        places = [*dict.fromkeys([*farthest(last, MAX_HEADS), *last.coords["place"]])][:MAX_HEADS]

        def of_places(at: Finding) -> list[str]:
            return [cell_at(of(at, column).at(place=place)) for place in places]

        if column != "ratio":
            return [table_by_step(self, ("loss", *places), lambda at: [loss(at), *of_places(at)])]
        rows = table_by_step(self, places, of_places)
        heads = {head_label(row): row for row in self.lists["heads"]}
        return [rows, of_passages([heads[name] for name in places], width, marks)]

    def legend(self) -> Iterator[str]:
        """Yield lines that name the text that the model read, and explain the headings."""
        about = self.about
        if "ratio" in self:
            read = f"{about['run']}, {counted(about['tokens'], 'token')}"
            yield f"{read}: how much more a head writes at its passages than on average"
            yield "the passages are those of the last checkpoint; --json and --out have all heads and steps"
            return
        if self.stacked:
            yield f"{about['run']}, the attention to “{label_of(about['prompt'], 60)}”"
            if self.losses is None:
                yield "computed from checkpoints; the loss is measured on this prompt"
            yield from steps_shown(self, "checkpoint" if self.losses is None else "snapshot")
            return
        source = "the prompt" if self.of_prompt else self.source
        yield f"{self._model}: {counted(about['tokens'], 'token')} of {source}"
        yield "entr: entropy (nats), dist: mean distance (tokens). Shares of the attention:"
        yield "first: the first token, prev: the token before, self: the token itself,"
        yield "dup: earlier copies of this token, ind: the token after an earlier copy"
        if about["tokens"] < LEAST_TOKENS:
            yield f"labels need a text of at least {LEAST_TOKENS} tokens"
        if "loss" in self:
            yield f"loss change: how much the loss ({self['loss'].values:.4f}) rises without it, ± standard error"
        if "mean_size" in self:
            mean = "mean: over all tokens but the first of a window"
            yield f"size: the norm of what a head adds to the residual stream at the marked token; {mean}"
        if circuits := self.lists.get("circuits"):
            if circuits["composition"]:
                yield f"score of a pair: 0 to 1; {circuits['baseline']:.3f} for heads that are turned at random"
            yield "OV: tokens that a head reads, and those it writes; QK: tokens that look, and those they look at"

    def panels(self) -> Iterator[Panel]:
        """Yield a heat map for each score; for several steps, curves of the losses, and of scores such as induction.

        In each panel of curves, only the heads with the largest scores have labels; the line style of a labelled head
        is the same in all panels. Passages of several steps have no panels.
        """
        if not self.stacked:
            for name in (*COLUMNS, LOSS_CHANGE):
                if name in self:
                    figure = self[name]
                    yield heat_map(figure, _TITLES[figure.axes] if name == LOSS_CHANGE else "")
        elif "ratio" not in self:
            yield Curves("loss (nats/token)", [*self._loss_lines()])
            scores = [self[name].by_place("layer", "head") for name in SHARES]
            measured = [figure for figure in scores if np.isfinite(figure.values).any()]
            named = [farthest(figure, _NUM_NAMED, _LEAST) for figure in measured]
            strokes = [{"color": colour, "linestyle": stroke} for stroke in _STROKES for colour in COLOURS]
            styles = dict(zip(dict.fromkeys(head for heads in named for head in heads), strokes, strict=False))
            for figure, heads in zip(measured, named, strict=True):
                styled = {head: styles[head] for head in heads}
                yield named_curves(figure, figure.title, styled, (-0.02, 1.02))  # so that lines at 0 and 1 are whole

    def _loss_lines(self) -> Iterator[PlotLine]:
        """Yield curves by step: training and validation loss, or, for scores of checkpoints, the loss of the prompt."""
        steps, style = self.coords["step"], {"marker": "o", "color": "#777777", "linewidth": 1}
        of_steps = [*zip(steps, self["loss"].values.tolist(), strict=True)]
        lines = [("this prompt", of_steps, style)]
        if self.losses is not None:
            lines = [("training", self.losses["loss"] or of_steps, style | {"marker": ""})]
            lines.append(("validation", self.losses["validation_loss"], style | {"color": "black"}))
        for label, points, how in lines:
            if shown := [(step, loss) for step, loss in points if step <= steps[-1]]:
                yield PlotLine(label, *zip(*shown, strict=True), style=how)

    def as_page(self) -> str | None:
        """Return an HTML page of scores, passages and circuits, or of passages by step; None for scores by step."""
        if self.stacked and "ratio" not in self:
            return None  # gpt attn-dump --over-training draws the attention too
        return heads_page({"checkpoint": self.about.get("run"), **self.as_dict()}).decode()


def _best(figure: Figure) -> str:
    """Return the name of the head with the highest score, and the score; a dash if there is none."""
    best = farthest(figure, 1)
    return f"{best[0]} {cell_at(figure.at(place=best[0]))}" if best else "-"


def _as_text(passage: Row) -> Row:
    """Return a passage as CSV cells: text, tokens attended to, and its peak (largest output): position, norm, token."""
    tokens, looks = passage["tokens"], passage["looks_at"]
    cells = {"place": passage["place"] + passage["peak"], "value": passage["value"]}
    cells |= {"token": tokens[shown_peak(passage)], "text": "".join(tokens)}
    return cells | {"looks_at": [{"token": look["token"], "weight": look["weight"]} for look in looks]}


def _of_heads(rows: Sequence[Row]) -> Rows:
    """Return a table with a row for each head: its scores, aligned to the right, and its label."""
    headings = [*HEADINGS.values(), *(["loss change"] if LOSS_CHANGE in rows[0] else [])]
    columns = [[name, *numbers] for name, numbers in zip(headings, zip(*map(_numbers, rows), strict=True), strict=True)]
    widths = [max(map(len, column)) for column in columns]
    aligned = [[number.rjust(width) for number in column] for column, width in zip(columns, widths, strict=True)]
    labels = ["label", *((row["label"] or "").removesuffix(" token") for row in rows)]
    return [*zip(["head", *map(head_label, rows)], *aligned, labels, strict=True)]


def _numbers(row: Row) -> list[str]:
    """Format the score cells of a head; a mean distance of 100 tokens or more has no decimals."""
    far = row["mean_distance"] is not None and row["mean_distance"] >= 99.95
    decimals = dict.fromkeys(HEADINGS, 2) | {"mean_distance": 0 if far else 1}
    scores = [cell(row[name], decimals=decimals[name]).replace(",", "") for name in HEADINGS]
    return [*scores, _change(row)] if LOSS_CHANGE in row else scores


def _change(row: Row) -> str:
    return cell(row[LOSS_CHANGE], row[f"{LOSS_CHANGE}_error"], 4, sign="+")


def _raised(row: Row, width: int) -> str:
    """Join the tokens whose logits a head raises most: as many as fit in `width` beside its name, at least one."""
    tokens = (f"{quoted(entry['token'])} {entry['logit']:+.2f}" for entry in row["raises"])
    return next(filled((part for token in tokens for part in (token, "  ")), width - len(head_label(row)) - 3))
