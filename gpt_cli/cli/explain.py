"""`gpt explain`"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpt_cli.cli import options
from gpt_cli.cli.prompts import encode_prompt, read_prompt
from gpt_cli.cli.terminal import Console
from gpt_cli.errors import UsageError, shown

if TYPE_CHECKING:
    from gpt_cli.explaining.report import Report

EXAMPLES = ("journey",)
STUDIES = ("scaling", "mask", "dropout", "padding")


def explain(
    prompt: options.Prompt = None,
    prompt_file: options.PromptFile = None,
    run: options.Run = None,
    checkpoint: options.Checkpoint = None,
    layer: Annotated[
        int | None,
        typer.Option(metavar="N", parser=options.whole_number(0), help="Of the head, from 0. Default: 0."),
    ] = None,
    head: Annotated[
        int | None,
        typer.Option(metavar="N", parser=options.whole_number(0), help="Its number in the layer, from 0. Default: 0."),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(metavar="N|all", help="The place of the token that looks, from 0, or all. Default: the last."),
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(metavar="NAME", parser=options.one_of(*EXAMPLES), help="A classic example instead: journey."),
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", parser=options.one_of(*STUDIES), help=f"A small study instead: {', '.join(STUDIES)}."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Of a study: also draw it, .png or .svg.")
    ] = None,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Keep the last tokens of a prompt that is too long.")
    ] = False,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            parser=options.one_of("terminal", "markdown", "html"),
            help="terminal, markdown or html. Default: terminal.",
        ),
    ] = None,
    language: Annotated[str, typer.Option(metavar="NAME", parser=options.one_of("en", "zh"), help="en or zh.")] = "en",
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """One head, step by step, with every number; or a classic example; or a study of one idea."""
    console = Console(quiet)
    of_head = {
        "--prompt": prompt, "--prompt-file": prompt_file, "--layer": layer, "--head": head, "--query": query,
        "--truncate": truncate or None,
    }  # fmt: skip
    of_model = {"--run": run, "--checkpoint": checkpoint}
    if example:
        _refuse({"--study": study, **of_head, **of_model}, "--example")
    elif study:
        _refuse(of_head | ({} if study == "scaling" else of_model), f"--study {study}")
    if json:
        _refuse({"--format": form}, "--json")
    if out is not None:
        _check_picture(out, study)
    if example:
        from gpt_cli.explaining.journey import journey

        report = journey()
    elif study:
        report = _study(study, run, checkpoint, console)
    else:
        text = read_prompt(prompt, prompt_file)
        report = _head(text, run, checkpoint, layer or 0, head or 0, query, console, truncate=truncate)
    if out is not None:
        assert study
        from gpt_cli.explaining.plots import plot
        from gpt_cli.files import write_durably

        write_durably(out, [plot(study, report, language, kind=out.suffix[1:], notice=console.notice)])
        console.notice(f"wrote {out}")
    if json:
        console.json(report.to_json())
    else:
        console.result(_written(report, form or "terminal", language))


def _written(report: Report, form: str, language: str) -> str:
    from gpt_cli.explaining.writing import to_html, to_markdown, to_terminal

    if form == "terminal":
        return to_terminal(report, language, shutil.get_terminal_size().columns)
    return (to_markdown if form == "markdown" else to_html)(report, language)


def _refuse(given: dict[str, object], beside: str) -> None:
    """Raises UsageError for the first flag that has a value although it does nothing here."""
    for flag, value in given.items():
        if value is not None:
            raise UsageError(flag, f"does not go with {beside}", "leave one of them out")


def _head(
    text: str,
    run: Path | None,
    checkpoint: str | None,
    layer: int,
    head: int,
    query: str | None,
    console: Console,
    *,
    truncate: bool,
) -> Report:
    """The report on a head of a trained model; raises UsageError or DataError for what the model does not have."""
    from gpt_cli.checkpoints.discovery import load
    from gpt_cli.explaining.head import explain_head

    loaded = load(run, checkpoint, console.warn)
    sizes = loaded.config.model
    for flag, value, count in (("--layer", layer, sizes.num_blocks), ("--head", head, sizes.num_heads)):
        if value >= count:
            raise UsageError(flag, f"{value} is out of range", f"this model has 0 to {count - 1}")
    ids = encode_prompt(loaded.tokenizer, text, sizes.context_length, truncate=truncate)
    tokens = [loaded.tokenizer.token_text(token) for token in ids]
    report = explain_head(loaded.model, tokens, ids, layer=layer, head=head, queries=_queries(query, len(ids)))
    facts = {"checkpoint": str(loaded.path), **report.facts}
    return replace(report, facts=facts, source=f"{loaded.path}: {shown(text)}")


def _queries(text: str | None, num_tokens: int) -> list[int]:
    if text is None:
        return [num_tokens - 1]
    if text == "all":
        return list(range(num_tokens))
    if not text.isdecimal() or len(text) > 9 or int(text) >= num_tokens:
        raise UsageError("--query", f"{shown(text)} is out of range", f"use 0 to {num_tokens - 1}, or all")
    return [int(text)]


def _study(name: str, run: Path | None, checkpoint: str | None, console: Console) -> Report:
    """The report of a study; that of scaling looks into a model too, where there is one."""
    from gpt_cli.explaining import studies

    if name != "scaling":
        return {"mask": studies.mask, "dropout": studies.dropout, "padding": studies.padding}[name]()
    from gpt_cli.checkpoints.discovery import load
    from gpt_cli.errors import CheckpointError

    try:
        loaded = load(run, checkpoint, console.warn)
    except CheckpointError as error:
        if run is not None or checkpoint is not None:
            raise
        console.notice(f"without a model of yours: {error}")
        loaded = None
    return studies.scaling(loaded)


def _check_picture(out: Path, study: str | None) -> None:
    if study is None:
        raise UsageError("--out", "needs a study", "use --study NAME, or --format html > FILE")
    if out.suffix not in (".png", ".svg"):
        raise UsageError("--out", f"{shown(out.name)} has no known ending", "use .png .svg")
