"""What `gpt explain` does with torch: compute the explanation, then write it in the wanted form."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from gpt_cli.checkpoints.discovery import load
from gpt_cli.checkpoints.verified import ReadVerified
from gpt_cli.cli.terminal import Console
from gpt_cli.cli.work.wanted import HeadWanted, StudyWanted
from gpt_cli.errors import CheckpointError, UsageError, counted, shown, visible
from gpt_cli.explaining import studies
from gpt_cli.explaining.explanation import Explanation
from gpt_cli.explaining.head import explain_head
from gpt_cli.explaining.journey import journey
from gpt_cli.explaining.writing import to_html, to_markdown, to_terminal
from gpt_cli.files import write_durably
from gpt_cli.inspecting.dump import Origin, dump_attention
from gpt_cli.inspecting.stages import STAGES
from gpt_cli.machine.memory import available_memory
from gpt_cli.machine.room import require_room
from gpt_cli.sampling.prompts import encode_prompt

# bytes for each weight: of the head, and of the positions that are asked for
_COMPUTING, _AS_TEXT, _AS_JSON = 100, 400, 50


def explain_and_show(
    wanted: HeadWanted | StudyWanted | None,
    console: Console,
    *,
    out: Path | None,
    form: str | None,
    language: str,
    read: ReadVerified,
) -> None:
    """Print what is wanted (None: the example) in one of FORMATS, or as JSON where `form` is None; draw it in `out`.

    `read` may have read the checkpoint ahead.
    """
    with console.working("computing"):
        if wanted is None:
            explanation = journey()
        elif isinstance(wanted, StudyWanted):
            explanation = _study(wanted, console, read)
        else:
            explanation = _head(wanted, console, read, as_text=form is not None)
        text = "" if form is None else _as_text(explanation, form, language)
    if out is not None:
        assert isinstance(wanted, StudyWanted)
        from gpt_cli.explaining.plots import plot  # loads matplotlib, which takes half a second

        kind = out.suffix.lower()[1:]
        write_durably(out, [plot(wanted.name, explanation, language, kind=kind, notice=console.notice)])
        console.notice(f"wrote {visible(out)}")
    if form is None:
        console.pieces(explanation.to_json())
    else:
        console.result(text)


def _as_text(explanation: Explanation, form: str, language: str) -> str:
    if form == "terminal":
        return to_terminal(explanation, language, shutil.get_terminal_size().columns)
    return (to_markdown if form == "markdown" else to_html)(explanation, language)


def _head(wanted: HeadWanted, console: Console, read: ReadVerified, *, as_text: bool) -> Explanation:
    """The explanation of a head of a trained model, to be shown as text or as JSON.

    Raises UsageError for a position that the prompt does not have, CheckpointError for a model that is not finite,
    EnvironmentFailure for what memory cannot hold.
    """
    loaded = load(wanted.run, wanted.checkpoint, console.warn, read)
    context_length = loaded.config.model.context_length
    ids = encode_prompt(
        loaded.tokenizer, wanted.prompt, context_length, source=wanted.prompt_source, truncate=wanted.truncate
    )
    tokens = [loaded.tokenizer.token_text(token) for token in ids]
    queries = _queries(wanted.query, len(ids))
    require_room(
        "explain",
        f"{counted(1, 'head')} on {counted(len(ids), 'token')}",
        len(ids) * (_COMPUTING * len(ids) + (_AS_TEXT if as_text else _AS_JSON) * len(queries)),
        available_memory(),
        what="memory",
        hint=f"--query {queries[-1]}" if len(queries) > 1 else "use a shorter prompt",
    )
    # refuses a model that overflows in float32, which the float64 of an explanation would hide
    origin = Origin(str(loaded.path), loaded.step, wanted.prompt)
    dump_attention(
        loaded.model, loaded.tokenizer, ids, layers=[wanted.layer], heads=[wanted.head], stages=STAGES, origin=origin
    )
    explanation = explain_head(loaded.model, tokens, ids, layer=wanted.layer, head=wanted.head, queries=queries)
    facts = {"checkpoint": str(loaded.path), **explanation.facts}
    return replace(explanation, facts=facts, source=f"{loaded.path}: {shown(wanted.prompt)}")


def _queries(text: str | None, num_tokens: int) -> list[int]:
    """The positions that --query means among so many tokens."""
    if text is None:
        return [num_tokens - 1]
    if text == "all":
        return list(range(num_tokens))
    if int(text) >= num_tokens:
        tokens = f"the prompt has {counted(num_tokens, 'token')}"
        raise UsageError("--query", f"{tokens}, so use a position from 0 to {num_tokens - 1} instead of {int(text)}")
    return [int(text)]


def _study(wanted: StudyWanted, console: Console, read: ReadVerified) -> Explanation:
    """A study; the one of scaling looks into a model too, where there is one."""
    if wanted.name != "scaling":
        return {"mask": studies.mask, "dropout": studies.dropout, "padding": studies.padding}[wanted.name]()
    try:
        loaded = load(wanted.run, wanted.checkpoint, console.warn, read)
    except CheckpointError as error:
        if wanted.run is not None or wanted.checkpoint is not None:
            raise
        console.notice(f"the study leaves out a trained model: {error}")
        loaded = None
    return studies.scaling(loaded)
