"""Base classes of commands' results, which print as text and appear in notebooks also as a page or a picture."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from gpt_cli.common.host import Notify
from gpt_cli.common.tables import Rows, html_of, table
from gpt_cli.errors import GptError, counted, inert_json, shown, visible

WIDTH = 80  # columns, if the width is unknown
_FRAME_HEIGHT = 640  # pixels
_FEW = 4  # elements that a repr shows
_MOST_PAGE = 8_000_000  # characters of a page in a notebook, which keeps them in its file


class Screen(NamedTuple):
    """Where a result prints itself: `result` and `pieces` write to stdout, and `notice` writes a line to stderr."""

    width: int  # columns
    is_terminal: bool
    coloured: bool
    result: Notify  # to stdout, as `pieces`
    pieces: Callable[[Iterable[str]], object]
    notice: Notify  # to stderr


class Result:
    """Base class of a command's result; subclasses are dataclasses that format their fields in `parts` or `as_text`."""

    _repr_keys: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.__repr__ = Result.__repr__  # dataclasses keep one that a class has

    def __repr__(self) -> str:
        """Return the class name and the key figures in one line."""
        figures = {name: value for name, value in self.key_figures().items() if value not in (None, "", (), [], {})}
        return f"{type(self).__name__}({', '.join(f'{name}={_brief(value)}' for name, value in figures.items())})"

    if not TYPE_CHECKING:  # a checker knows the fields

        def __getattr__(self, name: str) -> Any:
            """Return the entry `name` of `as_dict`, so that each key that --json prints is an attribute."""
            if not name.startswith("_") and name in (figures := self.as_dict()):
                return figures[name]
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __dir__(self) -> list[str]:
        """Return the attribute names for completion, the keys of `as_dict` included."""
        return [*super().__dir__(), *self.as_dict()]

    def key_figures(self) -> Mapping[str, Any]:
        """Return name -> value for `repr`: the keys of `as_dict` in `_repr_keys`, or all fields if that is empty."""
        if self._repr_keys:
            return {name: value for name, value in self.as_dict().items() if name in self._repr_keys}
        return {each.name: getattr(self, each.name) for each in fields(self) if each.repr}  # pyright: ignore[reportArgumentType]

    def as_dict(self) -> dict[str, Any]:
        """Return the result as the JSON object that `--json` prints."""
        return asdict(self)  # pyright: ignore[reportArgumentType] - every subclass is a dataclass

    def as_json(self) -> Iterable[str]:
        """Yield the JSON text of `as_dict` in pieces, so that a long text need not fit in memory."""
        yield inert_json(json.dumps(self.as_dict(), ensure_ascii=False, allow_nan=False))

    def parts(self) -> Sequence[Rows | str]:
        """Return the result's tables and lines of text; a table's first row has the headings, which may be empty."""
        return ()

    def as_text(self, width: int = WIDTH) -> str:
        """Return the result as text for a terminal of `width` columns."""
        return "\n".join(
            part if isinstance(part, str) else table(part if any(part[0]) else part[1:]) for part in self.parts()
        )

    def __str__(self) -> str:
        return self.as_text()

    def failure(self) -> GptError | None:
        """Return the error that a command raises after it shows the result, as for a damaged file; None: no error."""
        return None

    def as_coloured_text(self, width: int = WIDTH) -> str:
        """Return the result as text, with terminal colours where colours carry information."""
        return self.as_text(width)

    def show(self, screen: Screen) -> None:
        """Print the result as text, if any; some subclasses print more, or nothing if the result went to a file."""
        if text := (self.as_coloured_text if screen.coloured else self.as_text)(screen.width):
            screen.result(text)

    def as_page(self) -> str | None:
        """Return the result as an HTML page that works offline; None if the result has no page."""
        return None

    def page_bytes(self) -> int:
        """Estimate the size of the result's page in bytes before it is made; 0 if there is no estimate."""
        return 0

    def as_picture(self, kind: str = "png") -> bytes | None:
        """Return the bytes of a picture of type `kind`: png, svg or pdf; None if the result has no picture."""
        return None

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str | bytes]:
        """Return the result as MIME type -> content, of which Jupyter shows the richest.

        Leaves out a page of more than 8 MB, and a page or a picture that fails, such as for lack of memory.
        """
        bundle: dict[str, str | bytes] = {}
        page = picture = None
        with suppress(GptError):
            page = self.as_page() if self.page_bytes() <= _MOST_PAGE else None
        with suppress(GptError):
            picture = self.as_picture()
        if page and len(page) <= _MOST_PAGE:
            # in an iframe, so that the page's styles and scripts do not affect the notebook
            bundle["text/html"] = (
                f'<iframe srcdoc="{html.escape(page)}" style="width: 100%; height: {_FRAME_HEIGHT}px; border: 0" '
                'sandbox="allow-scripts allow-downloads"></iframe>'
            )
        if picture:
            bundle["image/png"] = picture
        if "text/html" not in bundle and (tables := html_of(self.parts())):
            data = base64.b64encode(picture).decode() if picture else ""
            image = f'<img src="data:image/png;base64,{data}" alt="" style="max-width: 100%">' if data else ""
            bundle = {"text/html": image + tables, **bundle}
        failure = self.failure()
        text = "\n".join(filter(None, [self.as_text(), *(failure.lines() if failure else [])]))
        return bundle | {"text/plain": text}


class Figures(Result):
    """Base class of results whose attributes are known only at run time; type checkers accept any attribute."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def _brief(value: Any) -> str:
    """Describe a value in a few words: an array by its dtype and shape, a long list by its length."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}{[*value.shape]}".removeprefix("torch.")
    if isinstance(value, str) or hasattr(value, "__fspath__"):
        return shown(value, 40)
    if isinstance(value, Mapping) and len(value) <= _FEW:
        return f"{{{', '.join(f'{visible(key)}: {_brief(each)}' for key, each in value.items())}}}"
    if isinstance(value, Sequence) and len(value) <= _FEW and all(isinstance(e, int | float | str) for e in value):
        return f"[{', '.join(map(_brief, value))}]"
    if hasattr(value, "__len__"):
        return f"[{counted(len(value), 'item')}]"
    return (
        f"{value:.6g}" if isinstance(value, float) else str(value) if isinstance(value, int) else type(value).__name__
    )
