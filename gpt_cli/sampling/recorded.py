"""Draw tokens on a GPU by replays of a recorded step (a CUDA graph): one launch a token instead of hundreds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gpt_cli.common.host import Notify
from gpt_cli.common.machine.devices import beside, record_graph, recording_failure, synchronize, to_device
from gpt_cli.model.gpt import require_finite
from gpt_cli.sampling.kv_cache import Cache, DecodeStep
from gpt_cli.sampling.next_token import CpuDraws, Draw, draw_next, to_draws

TRIAL_TOKENS = 48  # on an H200, a trial takes as long as a graph saves in so many tokens (note 0068)
# difference of logits, keys or values that rounding may cause, relative to the largest number
_TOLERANCE = {torch.bfloat16: 0.03, torch.float32: 1e-3, torch.float64: 1e-9}
_FASTER = 1.15  # a graph must be this many times as fast as the host, because a busy machine may delay the host once


@dataclass(frozen=True, kw_only=True)
class RecordedStep(DecodeStep):
    """A decoding step of one token per row, which a CUDA graph can replay because slot numbers are tensors, not ints.

    Scores are computed for all slots in memory, so shapes stay equal; the attention mask hides later and too old slots.
    """

    positions: Tensor  # in the windows of the rows: int64 [R, 1]
    slots: Mapping[int, Tensor]  # by reach, the token's slot, counted from the first in memory: int64 [1]
    num_layers: Mapping[int, int]  # by reach
    masks: dict[int, list[Tensor]] = field(default_factory=dict)  # copies of the mask, by reach

    def hidden(self, first: int, start: int, end: int, reach: int, like: Tensor) -> Tensor:
        """Return the mask to add to scores, -inf where the token must not attend, else 0: [R, 1, 1, end - first]."""
        keys, slot = torch.arange(end - first, device=like.device), self.slots[reach]
        visible = keys == keys.clamp(slot - self.positions.clamp(max=reach - 1), slot)
        return visible.log().to(like.dtype)[:, None, None]  # log 1 or log 0

    def visible_slots(self, cache: Cache) -> slice:
        """Return all slots in memory; the mask hides the slots to which the token may not attend."""
        return slice(None)

    def write(self, cache: Cache, slots: Tensor, new: Tensor) -> None:
        """Write keys, values or latents [R, ..., 1, size] to the slot of this token."""
        slots.index_copy_(slots.dim() - 2, self.slots[cache.reach], new)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, scale: float) -> Tensor:
        """Compute what `DecodeStep.attend` does, but add the scores in place to a copy of the mask `bias`.

        Among layers with equal reach (number of visible tokens), the first makes the copies for all.
        """
        assert bias is not None
        reach = next(reach for reach, mask in self.biases.items() if mask is bias)
        if not (masks := self.masks.setdefault(reach, [])):
            num_layers = self.num_layers[reach]
            masks += bias.repeat(num_layers * len(queries) // len(bias), 1, 1).chunk(num_layers)
        weights = masks.pop().baddbmm_(queries, keys.transpose(1, 2), alpha=scale).softmax(dim=-1)
        return torch.bmm(weights, values)


class RecordedDraws:
    """Sampler that draws tokens on the GPU: a CUDA graph runs the model on the last tokens and draws the next ones.

    The CPU launches each step before it reads the tokens of the previous step, so the GPU never waits. A step with a
    full sequence (`Decoder.is_full`) runs without the graph.
    """

    @torch.inference_mode()
    def __init__(self, cpu_draws: CpuDraws, num_tokens: int):
        self._decoder = decoder = cpu_draws.decoder
        self._parameters, self._device = cpu_draws.parameters, decoder.device
        self._first_slot, self._bases = decoder.end, dict[int, int]()  # by reach, as last sent to the device
        # what changes from token to token, apart from the caches
        num_rows, num_recent = decoder.recent_ids(1).shape
        sizes = [num_rows * num_recent, num_rows, 1, *(1 for _ in decoder.caches_by_reach())]
        self._numbers = torch.zeros(sum(sizes), dtype=torch.int64, device=self._device)
        recent, self._positions, self._step, *slots = self._numbers.split(sizes)
        self._recent, self._counters = recent.view(num_rows, num_recent), self._numbers[len(recent) :]
        self._slots = dict(zip(decoder.caches_by_reach(), slots, strict=True))
        self._num_layers = Counter(layer.cache.reach for layer in decoder.layers)
        self._seen = to_device(cpu_draws.seen, self._device)
        self._uniforms = to_device(
            cpu_draws.uniforms.of_steps(cpu_draws.step, cpu_draws.step + num_tokens + 2), self._device
        )
        self._drawn = torch.zeros(4, num_rows, dtype=torch.float64, device=self._device)
        self._last_position = decoder.end + num_tokens if decoder.positions is None else len(decoder.positions) - 1
        self._replay: Callable[[], None] | None = None  # of the recorded step
        self._rotations: Tensor | None = None
        if decoder.rotary is not None:
            rotations = decoder.rotary.at(torch.arange(self._last_position + 1)).to(decoder.plain_dtype)
            self._rotations = to_device(rotations, self._device)

    @torch.inference_mode()
    def trial(self, tokens: Sequence[int]) -> _Trial | None:
        """Replay the step after `tokens`, the last token of each row; the first call records the step as a graph.

        The graph is replayed twice, and the step then computed without it. Returns None if this gives other numbers, or
        if the step changes cache slots other than its own; such slots are restored. Raises torch's RuntimeError if
        recording fails or memory is too small; then all tensors are restored.
        """
        self._decoder.make_room()
        if self._replay is None:
            self._send(self._decoder.end)
            self._append(to_device(torch.tensor(tokens), self._device))
        self._refresh()
        caches = [layer.cache for layer in self._decoder.layers]
        changing = [self._numbers, self._seen, *(cache.slots for cache in caches)]
        before = [tensor.clone() for tensor in changing]

        def restore() -> None:
            for tensor, old in zip(changing, before, strict=True):
                tensor.copy_(old)

        results, seconds = list[Tensor](), list[float]()
        try:
            replay = self._replay = self._replay or self._record()
            for compute in (replay, replay, self._compute):  # the first replay takes longer
                restore()
                synchronize(self._device)
                started = time.perf_counter()
                compute()
                synchronize(self._device)
                seconds.append(time.perf_counter() - started)
                sums = torch.stack([tensor.sum(dtype=torch.float64) for tensor in changing])
                results.append(torch.cat((self._drawn.flatten(), self._numbers.double(), sums)))
        except RuntimeError:
            restore()
            raise
        agrees, new = torch.equal(results[1], results[2]), list[Tensor]()
        for cache, old in zip(caches, before[2:], strict=True):
            slot = self._decoder.end - cache.base
            new.append(cache.slots[..., slot, :].clone())
            old[..., slot, :] = new[-1]
            agrees = agrees and torch.equal(cache.slots, old)
            cache.slots.copy_(old)
        return _Trial(self._drawn.cpu(), self._logits.cpu(), new, seconds[1]) if agrees else None

    @torch.inference_mode()
    def begin(self, tokens: Sequence[int]) -> None:
        """Start to draw on the GPU after trials: launch the step after `tokens`, which CpuDraws drew last."""
        if self._decoder.is_full():
            self._recompute(tokens)
        else:
            self._launch()
            self._decoder.append(tokens)

    @torch.inference_mode()
    def next(self) -> list[Draw]:
        """Launch a step; return the draws of the step before; raise CheckpointError if logits are not finite."""
        launched = self._pending
        if self._decoder.is_full():
            drawn = self._read(*launched)
            self._recompute([draw.token for draw in drawn])
        else:
            self._launch()
            drawn = self._read(*launched)
            self._decoder.append([draw.token for draw in drawn])
        return drawn

    def _read(self, drawn: Tensor, arrival: torch.Event) -> list[Draw]:
        arrival.synchronize()
        return to_draws(drawn, self._decoder.where)

    def _recompute(self, tokens: Sequence[int]) -> None:
        """Run the step after `tokens` without the graph, because the decoder must recompute windows of full rows."""
        logits = self._decoder.decode(tokens)
        self._send(self._decoder.end - 1)
        self._draw(logits)
        self._copy_to_host()

    def _launch(self) -> None:
        assert self._replay is not None
        self._decoder.make_room()
        self._refresh()
        self._replay()
        self._decoder.end += 1
        self._copy_to_host()

    def _copy_to_host(self) -> None:
        """Start to copy the drawn tokens to the host; an event marks the end of the copy, for which `_read` waits."""
        self._pending = self._drawn.to("cpu", non_blocking=True), torch.Event(self._device)
        with torch.accelerator.device_index(self._device.index):  # an event is recorded on the current device
            self._pending[1].record()

    def _send(self, slot: int) -> None:
        """Copy to the device the last ids of each row, and the position, step and slot numbers of a token in `slot`."""
        self._bases = {reach: cache.base for reach, cache in self._decoder.caches_by_reach().items()}
        origins = torch.tensor([*self._decoder.starts, self._first_slot, *self._bases.values()])
        self._numbers.copy_(to_device(torch.cat([self._decoder.recent_ids(1).flatten(), slot - origins]), self._device))

    def _refresh(self) -> None:
        """If the `base` of a cache (the number of its first slot) has changed, update the slot number on the device."""
        for reach, cache in self._decoder.caches_by_reach().items():
            if self._bases[reach] != cache.base:
                self._slots[reach].fill_(self._decoder.end - cache.base)
                self._bases[reach] = cache.base

    def _record(self) -> Callable[[], None]:
        """Compute a sampling step to warm up, then record the same operations; return a function that repeats them."""
        with beside(self._device):
            self._compute()
            return record_graph(self._device, self._compute)[0]

    def _compute(self) -> None:
        """Run the model on the last tokens, draw the next ones, and go on to the next slot."""
        # before a step that recomputes windows, a recording after this step would read beyond the last position
        positions = self._positions[:, None].clamp(max=self._last_position)
        rotation = None if self._rotations is None else self._rotations[:, positions][:, :, None]
        fixed = slice(None), self._decoder.starts, 0, 1, rotation
        step = RecordedStep(*fixed, positions=positions, slots=self._slots, num_layers=self._num_layers)
        self._draw(self._decoder.compute(self._decoder.embed(self._recent, positions)[:, 0], step))

    def _draw(self, logits: Tensor) -> None:
        self._logits = logits
        uniform = self._uniforms.index_select(1, self._step)[:, 0]
        torch.stack(draw_next(logits, self._parameters, self._seen, uniform), out=self._drawn)
        self._append(self._drawn[0])
        self._counters.add_(1)

    def _append(self, tokens: Tensor) -> None:
        self._recent[:, :-1] = self._recent[:, 1:].clone()
        self._recent[:, -1] = tokens


@dataclass(frozen=True)
class _Trial:
    """A replayed step: its `draw_next` results [4, R], logits [R, V], new slots of each layer's cache, and seconds."""

    drawn: Tensor
    logits: Tensor
    new_slots: list[Tensor]
    seconds: float

    def agrees(self, cpu_draws: CpuDraws, logits: Tensor) -> bool:
        """Return whether this trial equals the step of `cpu_draws` that computed `logits`, up to rounding."""
        decoder = cpu_draws.decoder
        caches = (layer.cache for layer in decoder.layers)
        pairs = [(self.logits, logits)]
        for mine, cache in zip(self.new_slots, caches, strict=True):
            # first keys, then values; or the latents of each row
            pairs += zip(mine, cache.slots[..., decoder.end - 1 - cache.base, :], strict=True)
        tolerance = _TOLERANCE[decoder.dtype]
        close = [bool((a - b).abs().max() <= tolerance * b.abs().max()) for a, b in pairs]
        expected = cpu_draws.draw_results(self.logits, cpu_draws.seen.clone())
        return all(close) and torch.allclose(self.drawn, expected, rtol=1e-9, atol=1e-9)


def recorded_draws(cpu_draws: CpuDraws, num_tokens: int, warn: Notify) -> Iterator[list[Draw]]:
    """Yield the next draws of each row. After trials with two tokens, use a recorded graph if it is right and fast.

    `cpu_draws` draws the two tokens, and a new RecordedDraws, for up to `num_tokens` tokens, replays a graph for each.
    The RecordedDraws draws all later tokens if, both times, its logits, keys and values equal those of `cpu_draws`, its
    tokens fit its logits, and it takes at most 1 / _FASTER of the time. If the graph fails or its numbers differ,
    `warn` receives the reason. Raises CheckpointError if logits are not finite.
    """
    recorded: RecordedDraws | None = None
    for _ in range(2):
        trial, reason = None, "because the replay gives other numbers"
        try:
            recorded = recorded or RecordedDraws(cpu_draws, num_tokens)
            trial = recorded.trial(cpu_draws.tokens)
        except RuntimeError as error:
            reason = recording_failure(error)
        started = time.perf_counter()
        logits = cpu_draws.logits()
        require_finite(cpu_draws.draw_results(logits, cpu_draws.seen.clone())[2:], "logits", cpu_draws.decoder.where)
        seconds = time.perf_counter() - started
        agrees = trial is not None and trial.agrees(cpu_draws, logits)
        if not agrees:
            device = cpu_draws.decoder.device
            warn(f"{device} cannot replay a recorded token, {reason}; computing each token anew, with the same result")
        if trial is None or not agrees or _FASTER * trial.seconds > seconds:
            recorded = None
            yield cpu_draws.draw(logits)
            break
        yield cpu_draws.draw(trial.logits)  # so that both go on from one token, where rounding decides a draw
    if recorded is not None:
        recorded.begin(cpu_draws.tokens)
    while True:
        yield cpu_draws.next() if recorded is None else recorded.next()
