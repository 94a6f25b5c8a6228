"""What `gpt eval` does before it loads torch: it refuses what the flags and the headers of the checkpoints rule out."""

from __future__ import annotations

from pathlib import Path

from gpt_cli.checkpoints.ahead import ReadingAhead
from gpt_cli.checkpoints.finding import find_header
from gpt_cli.checkpoints.own_text import NAME_ONE, own_config, trusted_config
from gpt_cli.cli.importing import importing_torch
from gpt_cli.cli.terminal import Console
from gpt_cli.cli.work.flags import refuse
from gpt_cli.cli.work.wanted import MeasurementWanted
from gpt_cli.errors import UsageError
from gpt_cli.inspecting.heads.removing import parse_heads
from gpt_cli.machine.sharing import sharing


def evaluate(
    *,
    data: list[str] | None,
    run: list[Path] | None,
    checkpoint: str | None,
    stride: int | None,
    per_token: bool,
    memorised: bool,
    num_samples: int | None,
    max_new_tokens: int | None,
    seed: int | None,
    without: list[str] | None,
    device: str | None,
    dtype: str | None,
    quantize: str | None,
    threads: int | None,
    json: bool,
    quiet: bool,
) -> None:
    """Measure runs on a text, or each on its own, and print a table of their losses."""
    runs: list[Path | None] = [*run] if run else [None]
    if per_token and len(runs) > 1:
        raise UsageError("--per-token", f"it shows one run, and --run names {len(runs)}; name one")
    if not memorised:
        of_samples = {"--num-samples": num_samples, "--max-new-tokens": max_new_tokens, "--seed": seed}
        refuse(of_samples, "it changes the samples of --memorised, so it needs --memorised", hint="--memorised")
    headers = [find_header(path, checkpoint) for path in runs]
    off: tuple[tuple[int, int], ...] = ()
    for header in headers:
        length = header.config.model.context_length
        if stride and stride > length:
            raise UsageError("--stride", f"{header.path} sees {length} tokens; use 1 to {length}")
        if without:
            off = parse_heads(",".join(without), header.config.model, str(header.path))
    advice = NAME_ONE
    if memorised:
        advice = "leave out --memorised, which reads the text that the model was trained on"
        advice += "" if data else f", and name a text with {NAME_ONE}"
    wanted = MeasurementWanted(
        data=data,
        runs=runs,
        texts=[
            (trusted_config(header) if data and not memorised else own_config(header, advice)).data
            for header in headers
        ],
        checkpoint=checkpoint,
        stride=stride,
        per_token=per_token,
        memorised=memorised,
        num_samples=num_samples or 10,
        max_new_tokens=max_new_tokens or 200,
        seed=seed or 0,
        without=off,
        device=device or "auto",
        dtype=dtype or "float32",
        quantize=quantize,
        threads=threads,
        json=json,
        longest_window=max(header.config.model.context_length for header in headers),
        one_tokenizer=len({header.metadata["tokenizer"] for header in headers}) == 1,
    )
    console, ahead = Console(quiet), ReadingAhead(headers[0].path)
    with sharing():
        with importing_torch():
            from gpt_cli.cli.work.evaluating import evaluate_and_show  # only now torch
        evaluate_and_show(wanted, console, ahead.read)
