"""Compute attention on a prompt: with generated tokens (`gpt attn-dump`), or at each checkpoint of a run."""

import io
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from rich.console import Console

from gpt_cli.attention_maps.file_formats import num_written
from gpt_cli.attention_maps.head_scores import num_repeats, repeated_length, score_heads, take_snapshot
from gpt_cli.attention_maps.logit_attribution import head_writes
from gpt_cli.attention_maps.patterns import AttentionDump, Origin, dump_attention, require_room_for_dump
from gpt_cli.attention_maps.snapshots import Snapshot, Steps
from gpt_cli.attention_maps.terminal_map import colour_scale, draw_text_map, maps_to_draw
from gpt_cli.checkpoints.load import Loaded, load, load_for
from gpt_cli.checkpoints.run_paths import run_name
from gpt_cli.common.drawing.token_labels import label_of
from gpt_cli.common.files import write_durably
from gpt_cli.common.host import Host, Notify, ignored
from gpt_cli.common.language import say
from gpt_cli.common.machine.devices import choose_device
from gpt_cli.common.results import WIDTH, Result, Screen
from gpt_cli.common.tables import table
from gpt_cli.errors import counted, visible
from gpt_cli.evaluation.nll import surprisals
from gpt_cli.model import GPT
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.generate import continuations
from gpt_cli.sampling.next_token import SamplingParameters
from gpt_cli.sampling.prompts import encode_prompt
from gpt_cli.text.tokenizers import Tokenizer
from gpt_cli.tools.interpret.attention_files import attention_page, encode_dump, num_rows, page_bytes
from gpt_cli.tools.interpret.lens.lens import lens_of_ids
from gpt_cli.tools.interpret.request import STDOUT, AttentionRequest, ToInspect, step_files
from gpt_cli.tools.interpret.text_windows import each_checkpoint, encode_prompt_of


@dataclass(frozen=True, eq=False, kw_only=True)
class AttentionResult(AttentionDump, Result):
    """Result of `gpt attn-dump`: the attention of a model on a prompt.

    `stages` maps names of tensors, such as `weights`, to arrays. `as_page` runs the model `loaded` to score its heads.
    """

    loaded: Loaded = field(repr=False)
    out: str | None
    ending: str | None  # the format of `out`
    num_generated: int  # tokens that the request asked for; the model may have ended the text earlier

    @property
    def generated(self) -> list[dict[str, Any]]:
        """The tokens that the model generated, each with its text, probability, and rank (1: the most probable)."""
        texts = self.tokens[len(self.tokens) - len(self.predictions) :]
        return [{"text": text, **asdict(each)} for text, each in zip(texts, self.predictions, strict=True)]

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `gpt attn-dump --json` prints: tokens, layers, heads, stage names, but no arrays."""
        return {
            "checkpoint": str(self.loaded.path),
            "out": self.out,
            "layers": [*self.layers],
            "heads": [*self.heads],
            "tokens": [*self.tokens],
            "stages": [*self.stages],
            **({"generated": self.generated} if self.num_generated else {}),
        }

    def as_text(self, width: int = WIDTH) -> str:
        """Return text that draws a map of attention for each head, or, for more than 4 heads, one map of their mean."""
        return self.drawing(width)[0]

    def as_coloured_text(self, width: int = WIDTH) -> str:
        """Return the attention maps as text in colours, or in shades if the terminal has at most 16 colours."""
        return self.drawing(width, coloured=True)[0]

    def drawing(self, width: int, *, coloured: bool = False) -> tuple[str, int]:
        """Return the attention maps as text of at most `width` columns, and the number of (last) tokens they show."""
        terminal = Console(
            file=io.StringIO(),
            force_terminal=coloured,
            force_jupyter=False,  # there rich would show what it captures
            width=width,
            highlight=False,
            soft_wrap=True,
        )
        # with sixteen colours, the shades of one scale look alike
        colour = coloured and terminal.color_system in ("256", "truecolor")
        num_shown = len(self.tokens)
        with terminal.capture() as capture:
            for title, weights in maps_to_draw(self).items():
                drawn, num_shown = draw_text_map(self.tokens, weights, width, colour=colour)
                drawn.right_crop()
                terminal.print(title)
                terminal.print(drawn)
            if colour:
                terminal.print(colour_scale(say("yellow: large weight, violet: small weight")))
        return capture.get().rstrip("\n"), num_shown

    def show(self, screen: Screen) -> None:
        """Show the attention maps, or write the arrays to stdout if `out` is -; do nothing if `out` is a file."""
        if self.out is None:
            drawing, num_shown = self.drawing(screen.width, coloured=screen.coloured)
            if num_shown < len(self.tokens):
                screen.notice(f"the last {num_shown} of {len(self.tokens)} tokens fit here; ‹out=FILE.png› shows all")
            screen.result(drawing)
        elif self.out == str(STDOUT):
            screen.pieces(piece.decode() for piece in encode_dump(self, self.ending or ".json"))

    def as_page(self) -> str:
        """Return an HTML page: attention, head scores, each layer's predictions, and how heads change logits.

        Raises EnvironmentFailure if memory is short."""
        self._require_room(".html")
        dump = self if self.scores else with_heads(self, self.loaded.model, self.loaded.tokenizer)
        return attention_page(dump).decode()

    def page_bytes(self) -> int:
        """Estimate the size in bytes of the page that `as_page` returns."""
        return page_bytes(len(self.layers) * len(self.heads), len(self.tokens))

    def as_picture(self, kind: str = "png", notice: Notify = ignored) -> bytes:
        """Return a picture with an attention map for each head; each layer has its own row if it has several maps.

        `notice` receives a line on what the picture leaves out. Raises EnvironmentFailure if memory is short."""
        self._require_room(ending := f".{kind}")
        (picture,) = encode_dump(self, ending, notice)
        return picture

    def _require_room(self, ending: str) -> None:
        model, layers, heads = self.loaded.model, self.layers, self.heads
        require_room_for_dump("attn-dump", model, len(self.tokens), layers=layers, heads=heads, ending=ending, out=None)


def attention(request: AttentionRequest, target: ToInspect, host: Host) -> AttentionResult:
    """Run a model on a prompt and return its attention; write the attention to `request.out`, if set.

    Raises CheckpointError (damaged checkpoint; NaN or inf), DataError (prompt that is too long or cannot be encoded),
    UsageError (numbers that float16 cannot hold) and EnvironmentFailure (too little memory or disk space).
    """
    device = choose_device(request.device or "auto")
    loaded = load_for(host, request.run, request.checkpoint, target.header)
    loaded.model.to(device)
    dump = _dumped(request, target, loaded, host)
    result = AttentionResult(
        **vars(dump),
        loaded=loaded,
        out=request.out and str(request.out),
        ending=request.ending,
        num_generated=request.generate or 0,
    )
    if result.generated:
        headings = say("generated"), say("probability"), say("rank")
        rows = ((label_of(each["text"]), f"{each['probability']:.4f}", str(each["rank"])) for each in result.generated)
        host.notice(table([headings, *rows]))
    if request.out is None:
        num_read = counted(len(dump.tokens) - len(dump.predictions), "token")
        host.notice(f"{run_name(loaded.path)}, step {loaded.step:,}: {num_read} of the prompt")
    elif request.out != STDOUT:
        assert request.ending
        started = host.started(f"writing {visible(request.out)}", num_rows(dump, request.ending), "rows")
        with host.writing(), started as count:
            write_durably(request.out, encode_dump(dump, request.ending, host.notice, count))
        numbers = (("layer", dump.layers), ("head", dump.heads), ("token", dump.tokens))
        said = ", ".join(counted(len(items), noun) for noun, items in numbers)
        host.notice(f"wrote {visible(request.out)}: {said}")
    return result


def _dumped(request: AttentionRequest, target: ToInspect, loaded: Loaded, host: Host) -> AttentionDump:
    """Generate the requested tokens, and return the attention on the prompt and these tokens."""
    prompt, longest = target.prompt, loaded.config.model.context_length
    assert prompt is not None
    model, tokenizer, num_generated = loaded.model, loaded.tokenizer, request.generate or 0
    ids = encode_prompt(tokenizer, prompt, longest, num_generated, source=target.source, truncate=request.truncate)
    chosen: dict[str, Any] = {"layers": target.layers, "heads": target.heads, "stages": request.stages}
    out = None if request.out == STDOUT else request.out
    shorter = "use a shorter prompt or a smaller ‹generate›" if num_generated else "use a shorter prompt"
    require_room_for_dump(
        "attn-dump", model, len(ids) + num_generated, **chosen, ending=request.ending, out=out, shorter=shorter
    )
    added: list[int] = []
    with host.working("generating"):
        if num_generated:
            (added,) = continuations(  # until the model ends the text
                Decoder(model),
                [ids],
                SamplingParameters(temperature=0.8 if request.temperature is None else request.temperature),
                max_new_tokens=num_generated,
                seed=request.seed or 0,
                end_of_text=tokenizer.end_of_text,
            )
    with host.working("computing attention"):
        origin = Origin(str(loaded.path), loaded.step, prompt)
        about = {"file_dtype": request.file_dtype, "num_generated": len(added), "origin": origin}
        dump = dump_attention(model, tokenizer, ids + added, **chosen, **about)
    if request.ending != ".html":
        return dump
    num_tokens = num_repeats(model) * repeated_length(model) + (1 + dump.weights[..., 0, 0].size) * len(dump.token_ids)
    with host.counting("scoring heads", num_tokens, "tokens") as count:
        return with_heads(dump, model, tokenizer, host.notice, count)


def with_heads(
    dump: AttentionDump,
    model: GPT,
    tokenizer: Tokenizer,
    notice: Notify = ignored,
    count: Callable[[int], object] = lambda _: None,
) -> AttentionDump:
    """Return `dump` with head scores, logit-lens predictions, and the tokens whose logits each head changes most.

    If an HTML page has no room for these tokens, `notice` receives a line. `count` receives the number of tokens done
    since its last call; each head counts all tokens once more. Raises CheckpointError for NaN or inf.
    """
    chosen: dict[str, Any] = {"layers": dump.layers, "heads": dump.heads}
    ids, end_of_text = np.array(dump.token_ids), tokenizer.end_of_text
    scores = score_heads(model, ids, [(0, len(ids))], end_of_text=end_of_text, count=count, **chosen)
    dump = replace(dump, scores=scores, lens=lens_of_ids(model, tokenizer, dump.token_ids, dump.layers))
    top = num_written(len(dump.layers) * len(dump.heads), len(dump.tokens))
    if top == 0:
        notice("the page does not show what heads write, which is too much here; fewer ‹layers› or ‹heads› make room")
        return dump
    writes = head_writes(model, dump.token_ids, top=top, count=count, **chosen)
    token_ids = np.unique([writes.raised, writes.lowered]).tolist()
    return replace(dump, writes=writes, texts={token: tokenizer.token_text(token) for token in token_ids})


def computed_steps(target: ToInspect, device: torch.device, host: Host) -> Steps:
    """Return snapshots (`Steps`) of a run's attention on a prompt and of the prompt's loss, one for each checkpoint.

    The newest is computed at once, each other one when it is read. At most two models are in memory. Raises
    CheckpointError (no checkpoint, or one of another model), DataError (prompt of one token or too long).
    """
    paths = step_files(target.header.run)
    loaded = load(paths[-1], None, host.warn)
    loaded.model.to(device)
    newest = _snapshot(loaded, target)

    def read(every: int) -> Iterator[Snapshot]:
        chosen = paths[::-1][::every][::-1]
        with host.counting("computing attention", len(chosen), "checkpoints") as count:
            for each in each_checkpoint(chosen, loaded, device, host):
                yield newest if each is loaded else _snapshot(each, target)
                count(1)

    return Steps(str(target.header.run.path), newest, len(paths), read, losses=None)


def _snapshot(loaded: Loaded, target: ToInspect) -> Snapshot:
    """Run one checkpoint on the prompt; return attention weights, loss, head scores and predictions of all layers."""
    model, sizes = loaded.model, loaded.config.model
    text = encode_prompt_of(target, loaded, truncate=None, least=2)
    ids, layers, heads = text.ids[:].tolist(), range(sizes.num_blocks), range(sizes.num_heads)
    require_room_for_dump("‹over_training›", model, len(ids), layers=layers, heads=heads, ending=None, out=None)
    assert target.prompt is not None
    loss = float(np.concatenate([*surprisals(model, text.ids, stride=sizes.evaluation_window)]).mean())
    snapshot = take_snapshot(model, loaded.tokenizer, ids, prompt=target.prompt, step=loaded.step, loss=loss)
    return replace(snapshot, lens=lens_of_ids(model, loaded.tokenizer, ids, layers))
