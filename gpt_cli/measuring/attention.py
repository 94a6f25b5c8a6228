"""The forms of attention beside each other: one layer by itself, and whole models of equally many parameters."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor, nn

from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.config import Config, ModelConfig
from gpt_cli.measuring.bench import Form, sample_once, take_turns, training_step, vocab_size_of
from gpt_cli.measuring.estimate import cache_bytes_by_attention, parameters_by_part
from gpt_cli.measuring.roof import synchronize
from gpt_cli.model import GPT, CrossAttention
from gpt_cli.model.attention import causal_mask
from gpt_cli.model.block import make_attention
from gpt_cli.model.device import autocast
from gpt_cli.model.dropout import DropMasks
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.text.corpus import Corpus
from gpt_cli.text.tokens import validation_windows
from gpt_cli.training.evaluation import cross_entropy, evaluate
from gpt_cli.training.session import begin
from gpt_cli.training.step import take_step

Counting = Callable[[str, int, str], AbstractContextManager[Callable[[int], object]]]
FORMS: tuple[str, ...] = get_args(ModelConfig.model_fields["attention"].annotation)
NUM_LAYERS = len(FORMS) + 2  # multi_head is compared in three ways


@dataclass(frozen=True)
class Layer:
    """What a layer of attention costs by itself, forward and backward; the ratio is of speeds, to the first form's."""

    form: str
    parameters: int
    seconds: float
    ratio: float


@dataclass(frozen=True)
class Model:
    """What a model with a form of attention costs, and what it learns.

    `training_bytes`: weights, gradients, two moments, and what a step's forward pass keeps for its backward pass.
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


def with_form(config: ModelConfig, form: str) -> ModelConfig:
    """A config with another form of attention, whose feed-forward parts take what the form saves, or give it.

    The number of parameters comes as near to that of multi-head attention as one width for all blocks can bring it.
    """
    plain = config.model_copy(update={"attention": "multi_head"})
    changed = config.model_copy(update={"attention": form})
    saved = _num_parameters(plain) - _num_parameters(changed)
    wider = changed.model_copy(update={"feed_forward_size": changed.hidden_size + 1})
    width = changed.hidden_size + round(saved / (_num_parameters(wider) - _num_parameters(changed)))
    return changed.model_copy(update={"feed_forward_size": max(1, width)})


def _num_parameters(config: ModelConfig) -> int:
    return sum(parameters_by_part(config, 1).values())


def compare_layers(config: Config, device: torch.device, rounds: int, progress: Callable[[int], object]) -> list[Layer]:
    """One layer of each form on a batch, in float32, without dropout and positions; all take turns.

    Multi-head attention is there three times: fused, each head by itself, and in the general form, whose query, key
    and value are three inputs, here the same one, and whose causal mask is given.
    """
    sizes = config.model.model_copy(update={"positions": "none", "dropout": 0.0})
    shape = (config.train.batch_size, sizes.context_length, sizes.d_model)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)
    fused = {form: make_attention(sizes.model_copy(update={"attention": form})).to(device) for form in FORMS}
    separate = make_attention(sizes.model_copy(update={"attention": "multi_head"})).to(device)
    separate.fused = False
    general = CrossAttention(sizes.d_model, sizes.num_heads, bias=sizes.bias).to(device)
    mask = causal_mask(sizes.context_length, device)
    layers: dict[str, tuple[nn.Module, Callable[[Tensor], Tensor]]] = {
        "multi_head": (fused["multi_head"], fused["multi_head"]),
        "multi_head, each head by itself": (separate, separate),
        "query, key, value": (general, lambda x: general(x, x, x, mask)),
        **{form: (layer, layer) for form, layer in fused.items() if form != "multi_head"},
    }
    turns = [
        Form(name, "float32", _forward_and_backward(layer, run, x), shape[0] * shape[1], 0.0)
        for name, (layer, run) in layers.items()
    ]
    return [
        Layer(timing.form, sum(p.numel() for p in layers[timing.form][0].parameters()), timing.seconds, timing.ratio)
        for timing in take_turns(turns, lambda _: 1.0, rounds, progress)
    ]


def _forward_and_backward(layer: nn.Module, run: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], None]:
    def step() -> None:
        layer.zero_grad()
        run(x.detach().requires_grad_()).sum().backward()
        synchronize(x.device)

    return step


def compare_models(
    config: Config, corpus: Corpus, device: torch.device, rounds: int, num_tokens: int, counting: Counting
) -> list[Model]:
    """A model of each form, equally large: a training step and sampling in turns, memory, and the loss after training.

    Speed of sampling is that of one sequence, in float32. `counting` opens a bar for what lasts.
    """
    configs = {form: config.model_copy(update={"model": with_form(config.model, form)}) for form in FORMS}
    trained_tokens = config.train.batch_size * config.model.context_length
    training, sampling = [], []
    for form, changed in configs.items():
        run = training_step(changed, device, config.train.dtype)
        training.append(Form(form, config.train.dtype, run, trained_tokens, 0.0))
        decoder = Decoder(GPT(changed.model, vocab_size_of(config), torch.Generator().manual_seed(0)).to(device).eval())
        sampling.append(Form(form, "float32", partial(sample_once, decoder, num_tokens), num_tokens, 0.0))
    timings = []
    for what, turns in (("training steps", training), ("sampling", sampling)):
        with counting(what, len(FORMS) * (rounds + 1), "runs") as progress:
            timings.append(take_turns(turns, lambda _: 1.0, rounds, progress))
    models = []
    for form, step, sample in zip(FORMS, *timings, strict=True):
        changed = configs[form]
        with counting(form, config.train.max_steps, "steps") as progress:
            model, loss = learn(changed, corpus, progress)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        size = changed.train.micro_batch_size or changed.train.batch_size
        kept = kept_bytes(model, size, changed.train.dtype)
        models.append(
            Model(
                form, changed.model.hidden_size, parameters, step.tokens_per_second, step.ratio,
                16 * parameters + kept, sample.tokens_per_second, sample.ratio,
                cache_bytes_by_attention(changed.model)[form], loss,
            )
        )  # fmt: skip
    return models


def learn(config: Config, corpus: Corpus, progress: Callable[[int], object]) -> tuple[GPT, float]:
    """A model trained for max_steps, and its loss on the whole validation text; nothing is written.

    `progress` is told steps.
    """
    session = begin(config, corpus, RunDirectory(Path("none")))
    session.begin_clock()
    for _ in range(config.train.max_steps):
        take_step(session)
        progress(1)
    windows = validation_windows(len(session.validation_ids), config.model.context_length)
    found = evaluate(
        session.model, session.tokenizer, session.validation_ids, windows,
        batch_size=config.train.batch_size, dtype=config.train.dtype,
    )  # fmt: skip
    return session.model, found.loss


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
    masks = DropMasks(model.config.dropout, seed=0, step=0)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), autocast(device, dtype):
        loss = cross_entropy(model.train()(ids[:, :-1], masks), ids[:, 1:])
    assert loss.requires_grad  # the graph, and all that it keeps, lives until here: no storage was counted twice
    return sum(found.values())
