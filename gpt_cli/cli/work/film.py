"""What `gpt attn-dump --over-training` does: the snapshots of a run as a film. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gpt_cli.checkpoints.find import find_header
from gpt_cli.checkpoints.lock import require_foreign
from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.cli.terminal import Console
from gpt_cli.cli.work.flags import refuse_beside
from gpt_cli.errors import UsageError, counted, visible
from gpt_cli.files import write_durably
from gpt_cli.inspecting.film import make_film, tell_omissions


def film(
    run: Path | None,
    out: Path | None,
    layers: str | None,
    heads: str | None,
    *,
    others: Mapping[str, object],
    json: bool,
    console: Console,
) -> None:
    """Write the film of a run; `others` are the flags that do not go with it, with what the user gave for them."""
    refuse_beside("--over-training", others)
    if out is None or out.suffix.lower() != ".html":
        raise UsageError("--over-training", "a film is a page, so it needs a name in .html", hint="--out film.html")
    require_foreign(out)
    files = RunFiles(find_header(run).path.parent.parent)
    with console.working(f"writing {visible(out)}"):
        made = make_film(files, layers, heads)
        write_durably(out, [made.page])
    tell_omissions(made, console.notice)
    numbers = (("step", made.steps), ("layer", made.layers), ("head", made.heads), ("token", made.tokens))
    console.notice(f"wrote {visible(out)}: {', '.join(counted(len(found), noun) for noun, found in numbers)}")
    if json:
        content = {"layers": made.layers, "heads": made.heads, "tokens": made.tokens, "steps": made.steps}
        console.json({"run": str(files.path), "out": str(out), **content})
