"""Build the report page of runs: curves, samples, settings and attention in one file. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np

from gpt_cli.attention_maps.snapshots import kept_steps
from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.common.drawing.token_labels import STEPS
from gpt_cli.common.language import chinese
from gpt_cli.config.field_types import as_yaml
from gpt_cli.errors import GptError, visible
from gpt_cli.tools.interpret.attention_files import dump_content
from gpt_cli.tools.interpret.over_training import read_frames
from gpt_cli.tools.pages.html_page import REPORT, build_page, packed
from gpt_cli.tools.reports.compare_runs import (
    Row,
    RunGroup,
    by_token,
    evaluated_tokens,
    groups_of,
    means_of_records,
    models_in_turn,
    repeated,
    rows,
)
from gpt_cli.tools.reports.curves import letter_of, thinned
from gpt_cli.tools.reports.run_record import AXES, QUANTITIES, RunRecord

if TYPE_CHECKING:
    from gpt_cli.attention_maps.patterns import AttentionDump

# of all runs together, so that a page has at most a few megabytes
_MOST_POINTS, _FEWEST_POINTS = 12_000, 200  # of each quantity; a curve on the page is at most 2,000 pixels wide
_MOST_POINTS_OF_A_RUN = 3_000
_MOST_SAMPLES, _FEWEST_SAMPLES = 300, 4
_LONGEST_SAMPLE = 2_000  # characters
_MOST_ATTENTION = 2_000_000  # bytes of weights before they are compressed


def report_page(records: Sequence[RunRecord], axis: str, dumps: Mapping[str, AttentionDump]) -> bytes:
    """Return the report page as HTML in UTF-8; `axis`, one of AXES, is the x axis of its curves when it opens.

    The page shows a run's attention from `dumps` (its path -> attention on a prompt), or else from the run's snapshots.
    """
    means, marks = means_of_records(records), _marks(groups_of(records))
    content = {
        "runs": [_run_content(record, len(records)) | marks[index] for index, record in enumerate(records)],
        "axis": axis,
        "byToken": by_token(records),
        "evaluatedTokens": evaluated_tokens(records),
        "means": [mean._asdict() | {"settings": _as_text(mean.settings)} for mean in means] if repeated(means) else [],
        "settings": _rows_content(rows([record.config for record in records])),
        "models": _rows_content(models_in_turn(records)),
        "environment": _rows_content(rows([record.environment for record in records])),
        "corpus": _rows_content(rows([_corpus(record) for record in records])),
        "attention": list(_attention_content(records, dumps)),
        "attentionCommand": f"gpt report {quote(visible(records[0].path, 4096))} --prompt TEXT --out report.html",
        "colours": STEPS,
    }
    return build_page(REPORT, content)


def _as_text(settings: Mapping[str, Any]) -> dict[str, str]:
    return {name: visible(as_yaml(value)) for name, value in settings.items()}


def _marks(groups: Sequence[RunGroup]) -> dict[int, dict[str, Any]]:
    """Map each run's index to its group's index (the colour) and its label: a, or a1 if the group has several runs."""
    marks = dict[int, dict[str, Any]]()
    for number, group in enumerate(groups):
        for nth, index in enumerate(group.mean.places, 1):
            marks[index] = {"group": number, "mark": letter_of(number) + (str(nth) if len(group.records) > 1 else "")}
    return marks


def _run_content(record: RunRecord, num_runs: int) -> dict[str, object]:
    most = max(_FEWEST_SAMPLES, _MOST_SAMPLES // num_runs)
    indices = np.unique(np.linspace(0, len(record.samples) - 1, most).astype(int)) if record.samples else ()
    samples, shared = [record.samples[index] for index in indices], _shared_beginning(record)
    compared = record.result
    return {
        "name": visible(record.name),
        "path": visible(record.path),
        "state": record.state,
        "lastLineAt": record.last_line_at,
        "notes": {"en": record.notes, "zh": [chinese().say(note) for note in record.notes]},
        "alike": record.differs and record.differs.shipped,
        "differs": dict(record.differs.settings) if record.differs else {},
        "figures": record.final_figures(),
        "result": compared and compared._asdict(),
        "curves": curves_content(record, max(_FEWEST_POINTS, min(_MOST_POINTS_OF_A_RUN, _MOST_POINTS // num_runs))),
        "samples": [
            {"step": sample.step, "text": _cut(sample.text), "begins": shared if sample.text.startswith(shared) else ""}
            for sample in samples
        ],
        "numSamples": len(record.samples),
    }


def curves_content(record: RunRecord, most: int) -> dict[str, str]:
    """Map each of QUANTITIES to its curve: a float64 array [axes + 1, points], compressed to text by `packed`.

    Row i has positions on AXES[i], NaN if missing; the last row has finite values. At most `most` points are kept.
    """
    content = {}
    for quantity in QUANTITIES:
        there = np.isfinite(record.metrics[quantity])
        points = np.stack([record.metrics[name][there] for name in (*AXES, quantity)])
        content[quantity] = packed(points[:, thinned(points[-1], most)].astype("<f8").tobytes())
    return content


def _rows_content(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [
        {"name": visible(row.name), "values": [cell and visible(cell) for cell in row.values], "differs": row.differs}
        for row in rows
    ]


def _shared_beginning(record: RunRecord) -> str:
    """Return `train.sample_prompt`, or else the text with which all samples begin (prompt included); "" if unknown."""
    if (prompt := record.config.get("train.sample_prompt")) is not None:
        return str(prompt)[:_LONGEST_SAMPLE]
    texts = [sample.text for sample in record.samples]
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    shared = "".join(letters[0] for letters in alike)
    return "" if shared in texts else shared[:_LONGEST_SAMPLE]  # unknown from one sample, or from equal samples


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_SAMPLE else text[:_LONGEST_SAMPLE] + "…"


def _corpus(record: RunRecord) -> dict[str, Any]:
    """Return facts about a run's training text, such as its number of tokens, and its source unless it was imported."""
    source = None if record.state == "imported" else record.config.get("data.source")
    return ({} if source is None else {"source": source}) | dict(record.corpus)


def _attention_content(records: Sequence[RunRecord], dumps: Mapping[str, AttentionDump]) -> Iterator[dict[str, object]]:
    """Yield what the page shows of the attention of each run that has snapshots or an entry in `dumps`.

    Its key `weights` is None if the arrays are too large or a snapshot is damaged, as its key `problem` then reports.
    """
    most_bytes = _MOST_ATTENTION // len(records)
    for index, record in enumerate(records):
        run, weights, problem = RunFiles(record.path), None, ""
        command = f"gpt attn-dump --run {quote(visible(record.path, 4096))} --over-training --out film.html"
        if (dump := dumps.get(str(record.path))) is not None:
            command = ""
            if dump.weights.size <= 2 * most_bytes:
                weights = dump_content(dump)
        elif run.snapshots():
            try:
                steps = kept_steps(run)
                if steps.newest.weights.size <= 2 * most_bytes:  # a single frame is not too large
                    frames = read_frames(steps, most_bytes)
                    weights = frames.content | {"frames": {"steps": frames.steps, "losses": frames.losses}}
            except GptError as error:
                problem = visible(error)
        else:
            continue
        yield {"run": index, "weights": weights, "problem": problem, "command": command}
