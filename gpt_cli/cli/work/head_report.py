"""What `gpt heads` does with the model: score its heads, remove them in turn, and show what was found."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gpt_cli.checkpoints.discovery import Loaded, load
from gpt_cli.checkpoints.run_files import run_name
from gpt_cli.checkpoints.verified import ReadVerified
from gpt_cli.cli.terminal import Console
from gpt_cli.cli.work.head_tables import in_tables, legend
from gpt_cli.cli.work.wanted import HeadsWanted
from gpt_cli.errors import DataError, UsageError, counted, shown, visible
from gpt_cli.files import write_durably
from gpt_cli.inspecting.heads.ablation import ablate
from gpt_cli.inspecting.heads.attribution import head_writes
from gpt_cli.inspecting.heads.report import Row, as_csv, as_json, change_rows, head_rows, sort_rows
from gpt_cli.inspecting.heads.scores import BYTES_PER_WEIGHT, repeated_length, score_windows
from gpt_cli.inspecting.stages import parse_selection
from gpt_cli.machine.devices import choose_device, choose_dtype, use_threads
from gpt_cli.machine.memory import available_memory
from gpt_cli.machine.room import require_room
from gpt_cli.model.finite import require_finite
from gpt_cli.sampling.prompts import encode_prompt
from gpt_cli.sampling.texts import given_text, is_own_text, joined, own_text
from gpt_cli.text.corpus import Corpus
from gpt_cli.text.encoding import encode
from gpt_cli.text.token_files import Ids
from gpt_cli.text.tokens import validation_windows

TOP = 5  # tokens that a head raises or lowers most


@dataclass(frozen=True)
class Text:
    """What the heads read: the ids of `windows` (start, end); those of `targets` have a token after each of them."""

    about: str | list[str]
    ids: Ids
    windows: list[tuple[int, int]]
    targets: list[tuple[int, int]]

    @property
    def num_tokens(self) -> int:
        return sum(end - start for start, end in self.windows)


@dataclass(frozen=True)
class Subject:
    """What a report is about: heads of a model, and what they read."""

    loaded: Loaded
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    text: Text


def report_and_show(wanted: HeadsWanted, console: Console, read: ReadVerified) -> None:
    """Report on the heads of a model, as a table, a file or JSON; `read` may have read the checkpoint ahead."""
    use_threads(wanted.threads)
    device = choose_device(wanted.device)
    loaded = load(wanted.run, wanted.checkpoint, console.warn, read)
    sizes = loaded.config.model
    layers = parse_selection(wanted.layers, sizes.num_blocks, "--layers")
    heads = parse_selection(wanted.heads, sizes.num_heads, "--heads")
    text = _source(wanted, loaded, console) if wanted.prompt is None else _prompt(wanted, wanted.prompt, loaded)
    query = None if wanted.query is None else _position(wanted.query, text.num_tokens)
    # what heads are worth, and what they write, is computed with all heads of a layer
    whole = wanted.ablate is not None or query is not None
    longest = max(end - start for start, end in text.windows)
    repeated = repeated_length(loaded.model.vocab_size, sizes.context_length)
    _require_room(max(longest, repeated), range(sizes.num_heads) if whole else heads, may_choose=not whole)
    loaded.model.to(device)
    subject = Subject(loaded, layers, heads, text)
    found: dict[str, Any] = {"checkpoint": str(loaded.path), "step": loaded.step}
    found |= {"text": text.about, "tokens": text.num_tokens}
    rows = _scores(subject, console)
    if wanted.ablate:
        dtype = choose_dtype(wanted.dtype, device, sizes.d_model)
        found["loss"], changes = _changes(subject, wanted.ablate, dtype, console)
        if wanted.ablate == "layer":
            found["layers"] = [{"layer": layer, **change} for layer, change in zip(layers, changes, strict=True)]
        else:
            rows = [row | change for row, change in zip(rows, changes, strict=True)]
    if query is not None:
        found["query"] = {"position": query, "token": loaded.tokenizer.token_text(int(text.ids[query : query + 1][0]))}
        rows = [row | tokens for row, tokens in zip(rows, _writes(subject, query), strict=True)]
    found["heads"] = sort_rows(rows, wanted.sort)
    _show(wanted, found, run_name(loaded.path), console)


def _prompt(wanted: HeadsWanted, prompt: str, loaded: Loaded) -> Text:
    """The prompt; raises DataError where it does not fit, or has a single token and the model reads more."""
    longest = loaded.config.model.context_length
    ids = encode_prompt(loaded.tokenizer, prompt, longest, source=wanted.prompt_source, truncate=wanted.truncate)
    if len(ids) < min(2, longest):
        raise DataError("prompt", "it has 1 token, which can only look at itself; use at least 2")
    if len(ids) < 2 and wanted.ablate:
        sentence = "this model reads 1 token at a time, so a prompt has none to predict; use --data"
        raise UsageError("--ablate", sentence)
    return Text(prompt, np.array(ids), [(0, len(ids))], [(0, len(ids) - 1)])


def _source(wanted: HeadsWanted, loaded: Loaded, console: Console) -> Text:
    """Evenly spaced windows of --data, or of the run's own validation text; raises DataError for too little text."""
    text, name = wanted.text, str(wanted.run or loaded.path.parent.parent)
    if wanted.data:
        corpus: Corpus = given_text(wanted.data, text, console.host())
        about = wanted.data
    else:
        own = own_text(name, text, console.host())
        is_own_text(name, own, loaded, console.host())
        corpus, about = own.validation, own.validated_on
    with console.counting("tokenizing", corpus.num_bytes, "B") as count:
        ids = encode(corpus, loaded.tokenizer, count, console.notice)
    if len(ids) < 3:
        place = "--data" if wanted.data else name
        raise DataError(place, f"the text has {counted(len(ids), 'token')}; use at least 3")
    longest = min(loaded.config.model.context_length, wanted.max_tokens)
    windows = validation_windows(len(ids), longest, wanted.max_tokens)
    return Text(about, ids, windows, windows)


def _position(query: int, num_tokens: int) -> int:
    """The position that --query names, from 0; raises UsageError where the prompt does not have it."""
    if not -num_tokens <= query < num_tokens:
        wrong = f"this prompt has tokens 0 to {num_tokens - 1}, so {query} is out of range"
        raise UsageError("--query", wrong, hint="--query -1 is the last token")
    return query % num_tokens


def _require_room(num_tokens: int, heads: Sequence[int], *, may_choose: bool) -> None:
    """Before the model runs, refuse what memory cannot hold; `may_choose` says that fewer heads take less.

    Layers are computed one by one.
    """
    per_head, free = BYTES_PER_WEIGHT * num_tokens**2, available_memory()
    fewer = ",".join(map(str, heads[: (free or 0) // per_head])) if may_choose else ""
    require_room(
        "heads",
        f"{counted(len(heads), 'head')} on {counted(num_tokens, 'token')}",
        per_head * len(heads),
        free,
        what="memory",
        hint=f"--heads {fewer}" if fewer else "use a shorter --prompt, or fewer --max-tokens",
    )


def _scores(subject: Subject, console: Console) -> list[Row]:
    """A row for each head; raises CheckpointError where the model computes numbers that are not finite."""
    loaded, text = subject.loaded, subject.text
    with console.counting("scoring heads", text.num_tokens, "tokens") as count:
        scores = score_windows(
            loaded.model,
            text.ids,
            text.windows,
            end_of_text=loaded.tokenizer.end_of_text,
            layers=subject.layers,
            heads=subject.heads,
            count=count,
        )
    if max(end - start for start, end in text.windows) > 1:  # otherwise no head has anything to choose
        require_finite(torch.from_numpy(scores.columns["entropy"]), "attention weights", shown(loaded.path))
    return head_rows(scores)


def _changes(subject: Subject, how: str, dtype: str, console: Console) -> tuple[float, list[Row]]:
    """The loss of the whole model, and how much it rises without each head or layer."""
    text = subject.text
    with console.counting("removing heads", sum(end - start for start, end in text.targets), "tokens") as count:
        found = ablate(
            subject.loaded.model,
            text.ids,
            text.targets,
            how=how,
            layers=subject.layers,
            heads=subject.heads,
            dtype=dtype,
            count=count,
        )
    return found.loss, change_rows(found.changes, found.errors)


def _writes(subject: Subject, query: int) -> list[Row]:
    """The tokens that each head raises and lowers most at a position."""
    tokenizer, layers, heads = subject.loaded.tokenizer, subject.layers, subject.heads
    ids = subject.text.ids[:].tolist()
    found = head_writes(subject.loaded.model, ids, queries=[query], layers=layers, heads=heads, top=TOP)

    def tokens(ids: np.ndarray, logits: np.ndarray) -> list[Row]:
        pairs = zip(ids.tolist(), logits.tolist(), strict=True)
        return [{"token": tokenizer.token_text(id_), "id": id_, "logit": logit} for id_, logit in pairs]

    return [
        {
            "raises": tokens(found.raised[at][0], found.raised_by[at][0]),
            "lowers": tokens(found.lowered[at][0], found.lowered_by[at][0]),
        }
        for at in np.ndindex(len(layers), len(heads))
    ]


def _show(wanted: HeadsWanted, found: dict[str, Any], run: str, console: Console) -> None:
    """A file, a table on stdout, or JSON on stdout."""
    if wanted.out is not None:
        with console.working(f"writing {visible(wanted.out)}"):
            write_durably(wanted.out, [_as_file(found, wanted.out.suffix.lower(), console)])
        console.notice(f"wrote {visible(wanted.out)}: {counted(len(found['heads']), 'head')}")
    if wanted.json:
        console.json(found)
    elif wanted.out is None:
        source = "the prompt" if wanted.prompt is not None else joined(found["text"])
        console.notice(f"{run}, step {found['step']:,}: {counted(found['tokens'], 'token')} of {source}")
        for line in legend(found):
            console.notice(line)
        console.result(in_tables(found, shutil.get_terminal_size().columns))


def _as_file(found: dict[str, Any], ending: str, console: Console) -> bytes:
    """The report as the content of a file of that ending, one of FORMATS."""
    if ending == ".json":
        return as_json(found)
    if ending == ".csv":
        return as_csv(found["heads"], found.get("layers", ()))
    from gpt_cli.inspecting.heads.picture import draw_report  # loads matplotlib, which takes half a second

    return draw_report(found, console.notice)
