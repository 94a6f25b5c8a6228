"""The forms of attention beside each other: one layer by itself, and whole models of equally many parameters.

Part of `make bench`. It trains a model of each form for train.max_steps.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import get_args

import torch
from torch import Tensor, nn

from benchmarks.laboratory import CONSOLE, asked, finish, flags, machine, resolved, show
from gpt_cli.common.host import Counting
from gpt_cli.common.machine.devices import autocast, synchronize
from gpt_cli.common.units import size
from gpt_cli.config import Config, ModelConfig
from gpt_cli.errors import DivergedError, GptError, UsageError, counted
from gpt_cli.model import GPT, CrossAttention
from gpt_cli.model.attention import SelfAttention, causal_mask
from gpt_cli.model.block import make_attention
from gpt_cli.model.costs import cache_bytes_by_attention, parameters_by_part
from gpt_cli.model.dropout import DropMasks, drop_keys
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.text.corpus import Corpus
from gpt_cli.text.encode import encode_parts
from gpt_cli.text.load import read_data
from gpt_cli.text.token_files import validation_windows
from gpt_cli.tools.bench.baselines import sample_once, training_step, vocab_size_of
from gpt_cli.tools.bench.bench import time_in_turns
from gpt_cli.training.loop import lower_rates
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import Diverged, read_outcomes, take_step
from gpt_cli.training.validation import cross_entropy, validation_score

FORMS: tuple[str, ...] = get_args(ModelConfig.model_fields["attention"].annotation)
NUM_LAYERS = len(FORMS) + 3  # multi_head is compared in four ways


@dataclass(frozen=True)
class LayerCosts:
    """The cost of a layer of attention by itself, forward and backward; `ratio` is of speeds, to the first form's."""

    form: str
    parameters: int
    seconds: float
    ratio: float


@dataclass(frozen=True)
class ModelCosts:
    """What a model with a form of attention costs, and what it learns; ratios are of speeds, to the first form's.

    `training_bytes`: weights, gradients, moments, and what a step's forward pass keeps for its backward pass.
    """

    form: str
    feed_forward_size: int
    parameters: int
    training_tokens_per_second: float
    training_ratio: float
    training_bytes: int
    sampling_tokens_per_second: float
    sampling_ratio: float
    cache_bytes_per_token: int
    validation_loss: float


def with_forms(config: Config) -> dict[str, Config]:
    """A config for each form of attention, all equally large; raises UsageError for sizes that do not fit one of them.

    The clock is left out of them, so that all are trained for max_steps.
    """
    found = {}
    plain = with_form(config.model, "multi_head")
    for form in FORMS:
        changed = with_form(config.model, form)
        for misfit in changed.misfits():
            sentence = f"{misfit.sentence} (with model.attention {form})"
            raise UsageError(f"model.{misfit.keys[0]}", sentence, hint=misfit.hint)
        if (too_many := _num_parameters(changed) - _num_parameters(plain)) > changed.d_model * changed.num_blocks * 2:
            sentence = f"it has {too_many:,} parameters more than the feed-forward part can give back"
            raise UsageError(f"model.attention {form}", sentence, hint="choose smaller sizes for this form")
        found[form] = config.changed(model=dict(changed), train={"max_time": None})
    return found


def with_form(config: ModelConfig, form: str) -> ModelConfig:
    """A config with another form of attention, whose feed-forward parts take what the form saves, or give it.

    The number of parameters comes as near to that of multi-head attention as one width for all blocks can bring it.
    """
    plain = config.changed(attention="multi_head")
    changed = config.changed(attention=form)
    if any(changed.misfits()):
        return changed
    saved = _num_parameters(plain) - _num_parameters(changed)
    wider = changed.changed(feed_forward_size=changed.hidden_size + 1)
    width = changed.hidden_size + round(saved / (_num_parameters(wider) - _num_parameters(changed)))
    return changed.changed(feed_forward_size=max(1, width))


def _num_parameters(config: ModelConfig) -> int:
    return sum(parameters_by_part(config, 1).values())


def compare_layers(
    config: Config, device: torch.device, rounds: int, count: Callable[[int], object]
) -> list[LayerCosts]:
    """One layer of each form on a batch, in float32, without dropout and positions; all take turns.

    Multi-head attention is timed in three ways: fused, each head by itself, and so in the general form, whose query,
    key and value are three inputs, here the same one, and whose causal mask is given.
    """
    sizes = config.model.changed(positions="none", dropout=0.0)
    shape = (config.train.batch_size, sizes.context_length, sizes.d_model)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)
    mask = causal_mask(sizes.context_length, device)

    def of(form: str) -> SelfAttention:
        return make_attention(sizes.changed(attention=form))

    alone = ", each head by itself"
    layers: dict[str, SelfAttention | CrossAttention] = {"multi_head": of("multi_head")}
    layers["multi_head" + alone] = of("multi_head")
    layers["query, key, value" + alone] = CrossAttention(sizes.d_model, sizes.num_heads, bias=sizes.bias)
    layers |= {form: of(form) for form in FORMS if form != "multi_head"}
    runs = []
    for name, layer in layers.items():
        layer.to(device)
        if isinstance(layer, SelfAttention):
            layer.fused = not name.endswith(alone)
        runs.append(_forward_and_backward(layer, partial(_on_itself, layer, mask), x))
    seconds = time_in_turns(runs, rounds, count)
    return [
        LayerCosts(name, sum(parameter.numel() for parameter in layer.parameters()), taken, seconds[0] / taken)
        for (name, layer), taken in zip(layers.items(), seconds, strict=True)
    ]


def _on_itself(layer: SelfAttention | CrossAttention, mask: Tensor, x: Tensor) -> Tensor:
    return layer(x, x, x, mask) if isinstance(layer, CrossAttention) else layer(x)


def _forward_and_backward(layer: nn.Module, run: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], None]:
    def step() -> None:
        layer.zero_grad()
        run(x.detach().requires_grad_()).sum().backward()
        synchronize(x.device)

    return step


def compare_models(
    configs: Mapping[str, Config],
    corpus: Corpus,
    device: torch.device,
    rounds: int,
    num_tokens: int,
    counting: Counting,
) -> list[ModelCosts]:
    """A model of each of `with_forms`: the loss after training, memory, a training step and sampling in turns.

    Speed of sampling is that of one sequence, in float32. `counting` opens a bar for what lasts. Raises DataError for
    too little text, DivergedError for a form that diverged.
    """
    learned, training, sampling = [], [], []
    for form, config in configs.items():
        with counting(form, config.train.max_steps, "steps") as count:
            learned.append(learn(config, corpus, count))
        training.append(training_step(config, device, config.train.dtype))
        decoder = Decoder(GPT(config.model, vocab_size_of(config), torch.Generator().manual_seed(0)).to(device).eval())
        sampling.append(partial(sample_once, decoder, num_tokens))
    seconds = []
    for what, runs in (("training steps", training), ("sampling", sampling)):
        with counting(what, len(configs) * (rounds + 1), "runs") as count:
            seconds.append(time_in_turns(runs, rounds, count))
    (first_step, *_), (first_sample, *_) = seconds
    models = []
    for (form, config), (state, loss), step, sample in zip(configs.items(), learned, *seconds, strict=True):
        settings, parameters = config.train, state.costs.parameters
        moments = sum(tensor.nbytes for tensor in state.optimizer.state_dict().values())
        kept = kept_bytes(state.model, settings.sequences_at_once, settings.dtype)
        models.append(
            ModelCosts(
                form=form,
                feed_forward_size=config.model.hidden_size,
                parameters=parameters,
                training_tokens_per_second=state.config.tokens_per_step / step,
                training_ratio=first_step / step,
                training_bytes=2 * 4 * parameters + moments + kept,
                sampling_tokens_per_second=num_tokens / sample,
                sampling_ratio=first_sample / sample,
                cache_bytes_per_token=cache_bytes_by_attention(config.model)[form],
                validation_loss=loss,
            )
        )
    return models


def learn(config: Config, corpus: Corpus, count: Callable[[int], object]) -> tuple[TrainingState, float]:
    """A training of max_steps, and the loss of its model on the whole validation text; nothing is written.

    `count` receives 1 for each step. Raises DivergedError.
    """
    text = encode_parts(*corpus.split(config.data.validation_fraction), config)
    state = TrainingState.at_the_start(config, text.ids, text.tokenizer.vocab_size)
    state.start_clock()
    try:
        for _ in range(config.train.max_steps or 0):
            take_step(state)
            count(1)
        read_outcomes(state)
    except Diverged as diverged:
        raise DivergedError(f"step {diverged.step:,}", diverged.sentence, hint=lower_rates(config)) from diverged
    found = validation_score(
        state.model,
        text.tokenizer,
        text.validation_ids,
        validation_windows(len(text.validation_ids), config.model.context_length),
        batch_size=config.train.batch_size,
        dtype=config.train.dtype,
    )
    return state, found.loss


def kept_bytes(model: GPT, batch_size: int, dtype: str) -> int:
    """What the forward pass of a training step keeps for its backward pass, beside the weights."""
    device = model.token_embedding.weight.device
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    found: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.zeros(batch_size, model.config.context_length + 1, dtype=torch.int64, device=device)
    masks = DropMasks(drop_keys(0, 0, model.config.num_blocks), 0, model.config.dropout)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), autocast(device, dtype):
        loss = cross_entropy(model.train()(ids[:, :-1], masks), ids[:, 1:])
    assert loss.requires_grad  # the graph, and all that it keeps, lives until here: no storage was counted twice
    return sum(found.values())


def main() -> None:
    arguments = flags(__doc__, config="multi-head").parse_args()
    config, device = resolved(asked(arguments))
    settings, rounds, counting = config.train, arguments.rounds, CONSOLE.counting
    try:
        configs, corpus = with_forms(config), read_data(config.data)
    except GptError as error:
        sys.exit("\n".join(error.lines()))
    print(machine(device, rounds))
    with counting("layers", NUM_LAYERS * (rounds + 1), "runs") as count:
        layers = compare_layers(config, device, rounds, count)
    shape = f"{settings.batch_size} x {config.model.context_length} tokens of {config.model.d_model}"
    show(
        f"one layer of attention without positions, forward and backward, {shape}, float32",
        ("form", "parameters", "ms", "speed"),
        [(f.form, f"{f.parameters:,}", f"{1000 * f.seconds:.2f}", f"{f.ratio:.2f}") for f in layers],
    )
    models = compare_models(configs, corpus, device, rounds, arguments.tokens, counting)
    show(
        f"whole models of {models[0].parameters:,} parameters, {arguments.config}: "
        f"{counted(settings.max_steps or 0, 'step')} of training in {settings.dtype}, samples in float32",
        ("form", "parameters", "feed-forward", "training", "memory", "sampling", "cache a token", "validation loss"),
        [_row(found) for found in models],
    )
    finish(arguments, layers=layers, models=models)


def _row(found: ModelCosts) -> tuple[str, ...]:
    sizes = found.form, f"{found.parameters:,}", str(found.feed_forward_size)
    training = f"{found.training_ratio:.2f}", size(found.training_bytes)
    sampling = f"{found.sampling_ratio:.2f}", size(found.cache_bytes_per_token)
    return (*sizes, *training, *sampling, f"{found.validation_loss:.4f}")


if __name__ == "__main__":
    main()
