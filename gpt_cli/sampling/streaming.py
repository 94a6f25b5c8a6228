"""Decode token ids to text, one id at a time, in whole characters."""

import codecs
from collections.abc import Sequence

from gpt_cli.text.tokenizers import Tokenizer


class TextStream:
    """Decoder of tokens to text that returns only complete characters; bytes that are not UTF-8 become U+FFFD.

    The text ends before the first string of `stops`, even if this string begins or ends within a token; `feed` holds
    back text that may be its start. With `begins`, the first token loses the space that some tokenizers add in front.
    """

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str] = (), *, begins: bool = True):
        self.stopped = False
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stops = stops
        self._held = ""
        self._begins = begins

    def feed(self, token_id: int) -> str:
        """Return the text that a token completes: "" while a character, or what may be a stop string, is incomplete."""
        content = self._tokenizer.decode_bytes([token_id])
        if self._begins and content:
            content, self._begins = self._tokenizer.at_the_start(content), False
        return self._pass_on(self._decoder.decode(content))

    def finish(self) -> str:
        """Return the rest of the text: an incomplete character, or the start of a stop string that never came."""
        text = self._pass_on(self._decoder.decode(b"", final=True))
        return text if self.stopped else text + self._held

    def _pass_on(self, text: str) -> str:
        if self.stopped:
            return ""
        text = self._held + text
        # the one that ends first, which does not depend on where tokens end
        ends = [(start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0]
        if ends:
            self.stopped = True
            return text[: min(ends)[1]]
        starts = (len(text) - n for stop in self._stops for n in range(1, len(stop)) if text.endswith(stop[:n]))
        safe = min(starts, default=len(text))
        self._held = text[safe:]
        return text[:safe]
