"""`gpt heads`: score heads; on request, ablate them, and list circuits, promoted tokens, passages of largest output."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpt_cli.attention_maps.head_metrics import Row
from gpt_cli.attention_maps.head_scores import (
    BYTES_PER_WEIGHT,
    num_repeats,
    repeated_length,
    score_heads,
    window_batches,
)
from gpt_cli.attention_maps.logit_attribution import head_writes, head_writes_bytes
from gpt_cli.checkpoints.load import Loaded, load, load_for
from gpt_cli.common.host import Host
from gpt_cli.common.machine.devices import choose_device, choose_dtype
from gpt_cli.common.machine.memory import available_memory, require_available, reuse_memory
from gpt_cli.errors import UsageError, counted
from gpt_cli.model.gpt import require_finite
from gpt_cli.text.tokenizers import Tokenizer
from gpt_cli.tools.interpret.figure import Figure
from gpt_cli.tools.interpret.finding import Finding, stack
from gpt_cli.tools.interpret.heads.ablation import ablate, num_models
from gpt_cli.tools.interpret.heads.circuits import KINDS, Direction, baseline, composition, directions
from gpt_cli.tools.interpret.heads.max_activating import Passages
from gpt_cli.tools.interpret.heads.request import HeadsRequest
from gpt_cli.tools.interpret.heads.view import HeadsFinding, head_figures, labels_of
from gpt_cli.tools.interpret.request import ToInspect, step_files
from gpt_cli.tools.interpret.text_windows import Text, each_checkpoint, encode_prompt_of, read_text

_SHORTER = "use a shorter ‹prompt›, or fewer ‹max_tokens›"
TOP = 5  # tokens that a head raises or lowers most, and those of a direction


def heads(request: HeadsRequest, target: ToInspect, host: Host) -> Finding:
    """Score how each head attends on a text; on request, ablate heads, find promoted tokens, passages and circuits.

    Passages are pieces of text around large outputs of a head. Writes to `request.out`, if set. Raises CheckpointError
    (damage, NaN), DataError (unfit prompt or text), UsageError (no such position), EnvironmentFailure (memory).
    """
    device = choose_device(request.device or "auto")
    loaded = load_for(host, request.run, request.checkpoint, target.header)
    sizes, tokenizer = loaded.config.model, loaded.tokenizer
    text = read_text(request, target, loaded, host) if target.prompt is None else _prompt(request, target, loaded)
    query = request.query
    if query is not None and not -text.num_tokens <= query < text.num_tokens:
        wrong = f"this prompt has tokens 0 to {text.num_tokens - 1}, so {query} is out of range"
        raise UsageError("‹query›", wrong, hint="‹query=-1› is the last token")
    query = None if query is None else query % text.num_tokens
    # ablation and promoted tokens are computed with all heads of a layer
    whole = request.ablate is not None or query is not None
    longest = max(end - start for start, end in text.windows)
    repeated = repeated_length(loaded.model)
    computed = range(sizes.num_heads) if whole else target.heads
    hint = _SHORTER if longest > repeated else "close other programs"  # induction has a text of its own
    require_room_for_heads(max(longest, repeated), computed, may_choose=not whole, hint=hint)
    if query is not None:
        need = head_writes_bytes(loaded.model, 1)
        require_available("heads", "the tokens that heads promote", need, available_memory(), hint="leave out ‹query›")
    loaded.model.to(device)
    chosen: dict[str, Any] = {"layers": target.layers, "heads": target.heads}
    passages = None
    if request.passages:
        passages = Passages(loaded.model, target.layers, target.heads, request.passages)
    watch = passages.add if passages else (lambda *_: None)
    with host.counting("scoring heads", text.num_tokens + num_repeats(loaded.model) * repeated, "tokens") as count:
        end = tokenizer.end_of_text
        scores = score_heads(loaded.model, text.ids, text.windows, end_of_text=end, watch=watch, count=count, **chosen)
    if longest > 1:  # otherwise a query has only one key
        require_finite(torch.from_numpy(scores["entropy"]), "attention weights", loaded.model.where)
    about = {"checkpoint": str(loaded.path), "step": loaded.step, "text": text.about, "tokens": text.num_tokens}
    about |= {} if text.training_share is None else {"training_share": text.training_share}
    figures, texts, lists = head_figures(scores, **chosen), labels_of(scores, text.num_tokens), dict[str, Any]()
    if request.ablate:
        figures += _without(request, loaded, text, device, host, chosen)
    if query is not None:
        about["query"] = {"position": query, "token": tokenizer.token_text(int(text.ids[query : query + 1][0]))}
        texts = _joined(texts, _promoted(loaded, text.ids[:].tolist(), query, **chosen))
    if passages is not None:
        figures.append(passages.mean_sizes())
        texts = _joined(texts, passages.rows(text.ids, tokenizer))
    if request.circuits:
        lists["circuits"], more = _circuits(loaded, host, **chosen)
        texts = _joined(texts, more)
        if pairs := lists["circuits"]["composition"]:
            places = ("kind", "from_layer", "from_head", "to_layer", "to_head")
            figures.append(Figure.of_rows(pairs, "composition", *places, key="score", scale="share"))
    lists["heads"] = texts
    finding = HeadsFinding(about, (*figures,), lists, sort=request.sort, of_prompt=target.prompt is not None)
    return finding.saved(host, request.out, (len(texts), "head"))


def passage_history(request: HeadsRequest, target: ToInspect, host: Host) -> Finding:
    """Find, at each checkpoint, the passages with each head's largest outputs; write them to `request.out`, if set.

    For each checkpoint, the result also has output norms at the last checkpoint's peaks (tokens of largest norm). At
    most two models are in memory. Raises CheckpointError for a run without checkpoints, DataError for a prompt that is
    too long, and for a prompt or text that is too short.
    """
    assert request.passages
    paths, layers, heads = step_files(target.header.run), target.layers, target.heads
    device = choose_device(request.device or "auto")
    reuse_memory()
    loaded = load(paths[-1], None, host.warn, target.header)
    if target.prompt is None:
        text = read_text(request, target, loaded, host)
    else:
        text = encode_prompt_of(target, loaded, truncate=None, least=2)
    require_room_for_heads(max(end - start for start, end in text.windows), heads, may_choose=True, hint=_SHORTER)
    last: Passages | None = None
    steps = list[Finding]()
    with host.counting("reading checkpoints", len(paths) * text.num_tokens, "tokens") as count:
        # the last checkpoint first, because the others are measured at its peaks
        for at in each_checkpoint((paths[-1], *paths[:-1]), loaded, device, host):
            model = at.model
            passages = Passages(model, layers, heads, request.passages, last)
            for starts, _, batch in window_batches(model, text.ids, text.windows):
                for row, stages in enumerate(model.attention_stages(batch, layers, heads)):
                    passages.add(row, stages, starts)
                count(batch.numel())
            sizes, texts = passages.mean_sizes(), passages.rows(text.ids, loaded.tokenizer)
            last = last or passages
            of_heads = [each for of_layer in passages.values for each in of_layer]
            values = [[each["value"] for each in row["passages"]] for row in texts] if last is passages else of_heads
            of_step = [row | {"values": each} for row, each in zip(texts, values, strict=True)]
            # of the mean at the passages to the mean of all tokens, NaN where a head writes nothing
            means = np.array([sum(each) / len(each) if each else np.nan for each in values]).reshape(sizes.values.shape)
            ratios = means / np.where(sizes.values > 0, sizes.values, np.nan)
            figures = sizes, Figure("ratio", sizes.coords, ratios)
            steps.append(HeadsFinding({"step": at.step}, figures, {"heads": of_step}))
    keys = ("layer", "head", "mean_size", "passages")
    of_last = [{key: row[key] for key in keys} for row in steps[0].rows_along("layer", "head")]
    about = {"run": str(target.header.run.path), "text": text.about, "tokens": text.num_tokens}
    finding = stack([*steps[1:], steps[0]], about, {"heads": of_last})
    return finding.saved(host, request.out, (len(steps), "checkpoint"), (len(of_last), "head"))


def _without(
    request: HeadsRequest, loaded: Loaded, text: Text, device: torch.device, host: Host, chosen: dict[str, Any]
) -> tuple[Figure, Figure]:
    """Return the change of the loss without each head or layer in `chosen` (`layers`, `heads`), and the loss itself."""
    how = request.ablate
    assert how
    dtype = choose_dtype(request.dtype or "auto", device, loaded.config.model.d_model, host.notice)
    # the token after a prompt is unknown
    windows = [(start, min(end, len(text.ids) - 1)) for start, end in text.windows]
    num_tokens = num_models(how, **chosen) * sum(end - start for start, end in windows)
    with host.counting("removing heads", num_tokens, "tokens") as count:
        return ablate(loaded.model, text.ids, windows, how=how, dtype=dtype, count=count, **chosen)


def _promoted(loaded: Loaded, ids: Sequence[int], query: int, layers: Sequence[int], heads: Sequence[int]) -> list[Row]:
    """Return, for each head, the tokens whose logits it raises and lowers most at position `query`."""
    writes = head_writes(loaded.model, ids, queries=[query], top=TOP, layers=layers, heads=heads)

    def tokens(ids: np.ndarray, logits: np.ndarray) -> list[Row]:
        pairs = zip(ids.tolist(), logits.tolist(), strict=True)
        return [{"token": loaded.tokenizer.token_text(id_), "id": id_, "logit": logit} for id_, logit in pairs]

    return [
        {
            "raises": tokens(writes.raised[at][0], writes.raised_by[at][0]),
            "lowers": tokens(writes.lowered[at][0], writes.lowered_by[at][0]),
        }
        for at in np.ndindex(writes.raised.shape[:2])
    ]


def _circuits(
    loaded: Loaded, host: Host, layers: Sequence[int], heads: Sequence[int]
) -> tuple[dict[str, Any], list[Row]]:
    """Return composition scores of pairs of heads, and a row per head: tokens of its strongest OV and QK directions."""
    model, tokenizer, pairs = loaded.model, loaded.tokenizer, list[Row]()
    expected, num_pairs = baseline(model.config.d_model), len(layers) * (len(layers) - 1) // 2
    with host.counting("composing heads", num_pairs, "pairs of layers") as count:
        for below, layer, scores in composition(model, layers, heads, count):
            for (kind, reader, writer), score in np.ndenumerate(scores.numpy()):
                ends = {"from_layer": below, "from_head": heads[writer], "to_layer": layer, "to_head": heads[reader]}
                pairs.append({"kind": KINDS[kind], **ends, "score": float(score), "excess": float(score) - expected})
    rows = list[Row]()
    with host.counting("reading directions", len(layers) * len(heads), "attention heads") as count:
        for layer in layers:
            for ov, qk in directions(model, layer, heads):
                of_ov = [_named(each, "reads", "writes", tokenizer) for each in ov]
                of_qk = [_named(each, "queries", "keys", tokenizer) for each in qk]
                rows.append({"ov": of_ov, "qk": of_qk})
                count(1)
    pairs.sort(key=lambda row: -row["score"])  # the order of equal scores stays
    return {"baseline": expected, "composition": pairs}, rows


def _named(direction: Direction, first: str, second: str, tokenizer: Tokenizer) -> Row:
    def strongest(numbers: Tensor) -> list[str]:
        order = numbers.argsort(descending=True, stable=True)[:TOP]
        return [tokenizer.token_text(token) for token in order.tolist()]

    tokens = {first: strongest(direction.first), second: strongest(direction.second)}
    return {"singular_value": direction.singular_value, **tokens}


def _joined(rows: Sequence[Row], more: Sequence[Row]) -> list[Row]:
    return [row | added for row, added in zip(rows, more, strict=True)]


def _prompt(request: HeadsRequest, target: ToInspect, loaded: Loaded) -> Text:
    """Encode the prompt; raise DataError if it is too long or too short, UsageError for --ablate with one token."""
    text = encode_prompt_of(target, loaded, truncate=request.truncate, least=min(2, loaded.config.model.context_length))
    if text.num_tokens < 2 and request.ablate:
        raise UsageError("‹ablate›", "this model reads 1 token at a time, so a prompt has none to predict; use ‹data›")
    return text


def require_room_for_heads(num_tokens: int, heads: Sequence[int], *, may_choose: bool, hint: str) -> None:
    """Raise EnvironmentFailure, before the model runs, if memory cannot hold the attention of one layer's heads.

    If `may_choose`, the error may advise fewer heads in place of `hint`. The model computes one layer at a time.
    """
    per_head, free = BYTES_PER_WEIGHT * num_tokens**2, available_memory()
    fewer = ",".join(map(str, heads[: (free or 0) // per_head])) if may_choose else ""
    about = f"{counted(len(heads), 'head')} on {counted(num_tokens, 'token')}"
    require_available("heads", about, per_head * len(heads), free, hint=f"‹heads={fewer}›" if fewer else hint)
