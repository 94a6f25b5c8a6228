"""File endings of pictures and reports, and the check of the ending of an output file. Needs no numpy."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpt_cli.errors import UsageError, shown, visible

PICTURES = (".png", ".svg", ".pdf")
REPORTS = (".json", ".csv", *PICTURES)
_MEANT = {".eps": ".pdf", ".ps": ".pdf", ".tsv": ".csv", ".jsonl": ".json", ".htm": ".html", ".markdown": ".md"}
_MEANT |= dict.fromkeys((".gif", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp"), ".png")


def ending_of(out: Path, endings: Sequence[str], hints: Mapping[str, str | None] | None = None) -> str:
    """Return the file ending of `out` in lower case, such as .png; raise UsageError if it is none of `endings`.

    The hint of the error is `hints[ending]` if `hints` has the ending of `out`. Otherwise the hint is a corrected name,
    such as x.png, or the flag --json if `out` is - or ends in .json.
    """
    ending = out.suffix.lower()
    if ending in endings:
        return ending
    hint = (hints or {}).get(ending)
    if hint is None and (out.name == "-" or ending == ".json"):
        hint = "‹json› has the figures"
    if hint is None:
        meant = _MEANT[ending] if _MEANT.get(ending) in endings else endings[0]
        hint = f"‹out={visible(out.with_name((out.stem or 'report') + meant))}›"
    raise UsageError("‹out›", f"{shown(out.name)} ends in none of {', '.join(endings)}", hint=hint)
