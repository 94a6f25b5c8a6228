"""What commands answer: figures, which show themselves as text, and in a notebook as a page or a picture too."""

from __future__ import annotations

import html
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, TypeVar

from gpt_cli.errors import GptError, inert_json

WIDTH = 80  # columns, where nobody knows better
_FRAME_HEIGHT = 640  # pixels
_MOST_PAGE = 8_000_000  # characters of a page in a notebook, which keeps them in its file

Made = TypeVar("Made", str, bytes)


class Result(ABC):
    """What a command answers; subclasses are dataclasses of figures."""

    def as_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return asdict(self)  # pyright: ignore[reportArgumentType] - every subclass is a dataclass

    def as_json(self) -> Iterable[str]:
        """The same as JSON, in pieces that memory can hold."""
        yield inert_json(json.dumps(self.as_dict(), ensure_ascii=False, allow_nan=False))

    @abstractmethod
    def as_text(self, width: int = WIDTH) -> str:
        """What a terminal of so many columns shows."""

    def __str__(self) -> str:
        return self.as_text()

    def failure(self) -> GptError | None:
        """What the command line raises once it has shown this: the damage that was found, where it looked for some."""
        return None

    def as_coloured_text(self, width: int = WIDTH) -> str:
        """What a terminal shows that has colours, where they tell something."""
        return self.as_text(width)

    def as_page(self) -> str | None:
        """A page of HTML that works offline, where there is one."""
        return None

    def page_bytes(self) -> int:
        """About how many bytes the page has, where that is known before the page is made."""
        return 0

    def as_picture(self) -> bytes | None:
        """A PNG, where there is one."""
        return None

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str | bytes]:
        """What Jupyter shows: the richest of these that it can.

        A page of more than 8 MB is left out, and so is what memory cannot hold: a plainer form is shown instead.
        """
        found: dict[str, str | bytes] = {}
        page = _unless_refused(self.as_page) if self.page_bytes() <= _MOST_PAGE else None
        if page and len(page) <= _MOST_PAGE:
            # in a frame of its own, so that the page's styles and scripts meet nothing of the notebook
            found["text/html"] = (
                f'<iframe srcdoc="{html.escape(page)}" style="width: 100%; height: {_FRAME_HEIGHT}px; border: 0" '
                'sandbox="allow-scripts allow-downloads"></iframe>'
            )
        if picture := _unless_refused(self.as_picture):
            found["image/png"] = picture
        failure = self.failure()
        text = "\n".join(filter(None, [self.as_text(), *(failure.lines() if failure else [])]))
        return found | {"text/plain": text}


def _unless_refused(make: Callable[[], Made | None]) -> Made | None:
    try:
        return make()
    except GptError:
        return None
