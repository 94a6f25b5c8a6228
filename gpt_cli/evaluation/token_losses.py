"""Surprisal of each token of a text: as a list, as a table, and as the text on coloured backgrounds."""

import html
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from json import dumps
from typing import Any

from gpt_cli.common.tables import table
from gpt_cli.errors import inert, inert_json
from gpt_cli.sampling.streaming import TextStream
from gpt_cli.text.tokenizers import Tokenizer

# limits of surprisal in nats, each with a background: one of 256 colours, and on a page a percentage of red
GRADES = ((1, 0, 0), (2, 58, 15), (4, 94, 30), (6, 130, 50), (float("inf"), 124, 75))
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.7 system-ui, "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", sans-serif; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
"""


@dataclass(frozen=True)
class Surprisals:
    """The surprisal of each token of a text: ids [N], nats [N - 1], because nothing predicts the first token."""

    tokenizer: Tokenizer
    ids: list[int]
    nats: list[float]

    def as_list(self) -> list[dict[str, Any]]:
        """Return a dict for each predicted token, with its id (`token`), text and nats."""
        predicted = zip(self.ids[1:], self.nats, strict=True)
        text = self.tokenizer.token_text
        return [{"token": token, "text": text(token), "nats": nats} for token, nats in predicted]

    def as_table(self) -> str:
        """Format a line for each predicted token: its text, in quotes because most begin with a space, and its nats."""
        rows = (
            (inert_json(dumps(token["text"], ensure_ascii=False)), f"{token['nats']:.3f}") for token in self.as_list()
        )
        return table([("token", "nats"), *rows])

    def as_coloured_text(self) -> str:
        """Format the text for a terminal, on background colours that show each token's surprisal, with a legend."""
        text = "".join(_on_ground(piece, nats) for piece, nats in self._texts_and_nats())
        return f"{text}\n\nnats per token: {' '.join(_on_ground(f' {name} ', low) for name, low in _grades())}"

    def as_page(self, summary: str) -> str:
        """Return an HTML page without scripts or requests: the text on coloured backgrounds, then `summary`."""
        text = "".join(_marked(piece, nats, f"{nats:.3f}") for piece, nats in self._texts_and_nats())
        legend = " ".join(_marked(f" {name} ", low) for name, low in _grades())
        return (
            '<!doctype html><html><head><meta charset="utf-8">'
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
            f"<title>gpt eval</title><style>{_STYLE}</style></head><body>"
            f"<pre>{text}</pre><p>nats per token: {legend}</p><pre>{html.escape(inert(summary))}</pre></body></html>"
        )

    def _texts_and_nats(self) -> Iterator[tuple[str, float]]:
        """Yield (text, nats) of each token; tokens that only together form a character are merged, their nats added."""
        stream, sum_of_nats = TextStream(self.tokenizer), 0.0
        for token, surprisal in zip(self.ids, [0.0, *self.nats], strict=True):
            sum_of_nats += surprisal
            named = token in (self.tokenizer.end_of_text, *self.tokenizer.starts_with)
            if text := self.tokenizer.token_text(token) if named else stream.feed(token):
                yield inert(text), sum_of_nats
                sum_of_nats = 0.0
        yield stream.finish(), sum_of_nats


def _grades() -> Iterator[tuple[str, float]]:
    """Yield the name, such as "1 to 2", and the lower limit in nats of each colour's range of surprisal (GRADES)."""
    for low, high in pairwise([0, *(limit for limit, _, _ in GRADES)]):
        yield f"{low} to {high}" if high < float("inf") else f"{low} and more", low


def _on_ground(text: str, nats: float) -> str:
    ground = next(colour for limit, colour, _ in GRADES if nats < limit)
    # a background ends before the line does, or some terminals fill the next line with it
    return "\n".join(f"\033[48;5;{ground}m{line}\033[0m" if ground and line else line for line in text.split("\n"))


def _marked(text: str, nats: float, title: str = "") -> str:
    if not text:
        return ""
    share = next(percent for limit, _, percent in GRADES if nats < limit)
    return f'<span title="{title}" style="background:rgb(200 40 0/{share}%)">{html.escape(text)}</span>'
