"""`gpt explain`: explain a model's head, a published example or one idea (a study) as text, page, JSON or picture."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from gpt_cli.attention_maps.file_formats import STAGES
from gpt_cli.attention_maps.patterns import Origin, dump_attention
from gpt_cli.checkpoints.header import Header
from gpt_cli.checkpoints.load import load_for
from gpt_cli.common.drawing.file_types import PICTURES
from gpt_cli.common.files import write_durably
from gpt_cli.common.host import Host, Notify, ignored
from gpt_cli.common.language import language
from gpt_cli.common.machine.memory import available_memory, require_available
from gpt_cli.common.results import WIDTH, Result, Screen
from gpt_cli.errors import CheckpointError, UsageError, counted, shown, visible
from gpt_cli.sampling.prompts import encode_prompt
from gpt_cli.tools.explain import studies
from gpt_cli.tools.explain.explanation import Explanation
from gpt_cli.tools.explain.head import explain_head
from gpt_cli.tools.explain.render import to_html, to_markdown, to_terminal
from gpt_cli.tools.explain.request import ExplainRequest
from gpt_cli.tools.explain.worked_example import journey

# bytes of memory for each attention weight: to compute a head, and to write the requested rows as text and as JSON
_COMPUTING, _AS_TEXT, _AS_JSON = 100, 400, 50


@dataclass(frozen=True, eq=False)
class Explained(Result):
    """Result of `gpt explain`, shown as `form` (terminal, markdown, html); `study` is None for a head or an example."""

    explanation: Explanation
    study: str | None
    form: str
    language: str
    out: str | None = None

    def show(self, screen: Screen) -> None:
        """Show the explanation on `screen`, unless it was written to the file `out`."""
        if self.out is None:
            super().show(screen)

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as a dict with unrounded numbers; minus infinity becomes None."""
        return json.loads("".join(self.as_json()))

    def as_json(self) -> Iterable[str]:
        """Yield the explanation as JSON, in pieces, with unrounded numbers; minus infinity is null."""
        return self.explanation.to_json()

    def as_text(self, width: int = WIDTH) -> str:
        """Return plain text, Markdown or HTML, as `self.form` says; raises EnvironmentFailure if memory is short."""
        if queries := self.explanation.facts.get("queries"):
            _require_room(len(self.explanation.facts["tokens"]), queries, each=_AS_TEXT)
        if self.form == "terminal":
            return to_terminal(self.explanation, self.language, width)
        return (to_markdown if self.form == "markdown" else to_html)(self.explanation, self.language)

    def as_file(self, ending: str, notice: Notify) -> Iterable[bytes]:
        """Return the bytes of an .html, .md, .json or picture file, by `ending`; `notice` reports missing fonts."""
        if ending in PICTURES:
            return [self.as_picture(ending[1:], notice) or b""]
        if ending == ".json":
            return (piece.encode("utf-8", "backslashreplace") for part in (self.as_json(), "\n") for piece in part)
        return [f"{replace(self, form={'.html': 'html', '.md': 'markdown'}[ending]).as_text()}\n".encode()]

    def as_page(self) -> str:
        """Return the explanation as an HTML page that runs no script and makes no network request."""
        return replace(self, form="html").as_text()

    def as_picture(self, kind: str = "png", notice: Notify = ignored) -> bytes | None:
        """Return a png, svg or pdf of a study, None without a study; `notice` receives a line on missing fonts."""
        if self.study is None:
            return None
        from gpt_cli.tools.explain.plots import plot

        return plot(self.study, self.explanation, self.language, kind=kind, notice=notice)


def explain(request: ExplainRequest, target: tuple[str, str, Header] | None, host: Host) -> Explained:
    """Compute the requested explanation, and write it to `request.out`, if set.

    `target` is the result of `request.find`. Raises CheckpointError for an unusable checkpoint, UsageError for a query
    beyond the prompt, EnvironmentFailure if memory is short or the file cannot be written.
    """
    with host.working("computing"), torch.random.fork_rng(devices=[]):  # the example and the studies seed torch
        explanation = _head(request, host, *target) if target else _study(request, host) if request.study else journey()
    out = request.out and str(request.out)
    result = Explained(explanation, request.study, request.form or "terminal", request.language or language(), out)
    if request.out:
        write_durably(request.out, result.as_file(request.out.suffix.lower(), host.notice))
        host.notice(f"wrote {visible(request.out)}")
    return result


def _head(request: ExplainRequest, host: Host, prompt: str, source: str, header: Header) -> Explanation:
    """Explain the requested head of a trained model on `prompt`; errors about the prompt name its `source`."""
    loaded = load_for(host, request.run, request.checkpoint, header)
    context_length = loaded.config.model.context_length
    ids = encode_prompt(loaded.tokenizer, prompt, context_length, source=source, truncate=request.truncate)
    tokens = [loaded.tokenizer.token_text(token) for token in ids]
    queries = _queries(request.query, len(ids))
    _require_room(len(ids), queries, each=_AS_JSON, besides=_COMPUTING * len(ids) ** 2)
    # raises CheckpointError if the model overflows in float32, which the explanation in float64 would hide
    origin = Origin(str(loaded.path), loaded.step, prompt)
    layer, head = request.layer or 0, request.head or 0
    dump_attention(loaded.model, loaded.tokenizer, ids, layers=[layer], heads=[head], stages=STAGES, origin=origin)
    explanation = explain_head(loaded.model, tokens, ids, layer=layer, head=head, queries=queries)
    facts = {"checkpoint": str(loaded.path), **explanation.facts}
    return replace(explanation, facts=facts, source=f"{visible(loaded.path)}: {shown(prompt)}")


def _require_room(num_tokens: int, queries: Sequence[int], *, each: int, besides: int = 0) -> None:
    """Raise EnvironmentFailure unless memory holds `each` bytes per pair of query and token, plus `besides` bytes."""
    what = f"{counted(1, 'head')} on {counted(num_tokens, 'token')}"
    num_bytes = besides + each * num_tokens * len(queries)
    free = available_memory()
    one_fits = len(queries) > 1 and besides + each * num_tokens <= (free or 0)
    hint = f"‹query={queries[-1]}›" if one_fits else "use a shorter prompt"
    require_available("explain", what, num_bytes, free, hint=hint)


def _queries(text: str | None, num_tokens: int) -> list[int]:
    """Return the positions in a prompt that --query (`text`; None: the last) selects; UsageError if it is too large."""
    if text == "all":
        return list(range(num_tokens))
    position = num_tokens - 1 if text is None else int(text)
    if position >= num_tokens:
        tokens = f"the prompt has {counted(num_tokens, 'token')}"
        raise UsageError("‹query›", f"{tokens}, so use a position from 0 to {num_tokens - 1} instead of {position}")
    return [position]


def _study(request: ExplainRequest, host: Host) -> Explanation:
    """Return the requested study (scaling, mask, dropout or padding); scaling also measures a trained model, if any."""
    if request.study != "scaling":
        return {"mask": studies.mask, "dropout": studies.dropout, "padding": studies.padding}[str(request.study)]()
    try:
        loaded = load_for(host, request.run, request.checkpoint)
    except CheckpointError as error:
        if request.run is not None or request.checkpoint is not None:
            raise
        host.notice(f"the study shows no trained model: {error}")
        loaded = None
    return studies.scaling(loaded)
