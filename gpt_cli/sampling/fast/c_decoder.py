"""Decode one token of one sequence in a single call of compiled C code; `Decoder` computes the same with torch."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from gpt_cli.config import ModelConfig
from gpt_cli.model import GPT, Block, GroupedQueryAttention, MultiHeadAttention
from gpt_cli.sampling.fast.c_library import Address, Layer, Model, Norm, Weight, address_of, library
from gpt_cli.sampling.fast.matmul import Product
from gpt_cli.sampling.kv_cache import Cache, DecodeStep, KeyValueCache

_ACTIVATIONS = {"gelu": 0, "gelu_tanh": 1, "relu": 2, "relu2": 3, "swiglu": 4, "geglu": 0}


def can_compile(model: GPT) -> bool:
    """Return whether C code can decode a model: on a CPU, with a C compiler, float32 norms, and no latent attention."""
    forms = {type(block.attention) for block in model.blocks}
    return (
        forms <= {MultiHeadAttention, GroupedQueryAttention}
        and model.config.activation in _ACTIVATIONS
        and model.token_embedding.weight.device.type == "cpu"
        and all(parameter.dtype == torch.float32 for parameter in model.final_norm.parameters())
        and library() is not None
    )


@dataclass(frozen=True)
class DecodeBlock:
    """A block's norms, key-value cache and products for decoding; each Product is a function [N, in] -> [N, out]."""

    block: Block  # its norms and residual sums alone; attention and feed-forward are None
    cache: Cache
    expand: Product  # preceded by the gate, if there is one
    activation: Callable[[Tensor], Tensor]
    contract: Product


class CompiledToken:
    """A decoder's blocks, final norm and output layer, run by compiled C code for one token of a single sequence."""

    def __init__(
        self, config: ModelConfig, blocks: Sequence[DecodeBlock], final_norm: nn.Module, output_layer: Product
    ):
        compiled = library()
        assert compiled is not None
        # the products and caches that `can_compile` promises
        self._token, self._output_layer = compiled.token, cast("Weight", output_layer)
        self._caches = [cast("KeyValueCache", block.cache) for block in blocks]
        self._alive: list[object] = []  # objects whose memory token.c reads
        first, *_ = self._caches
        H, G, K, F = first.num_heads, first.num_groups, first.head_size, config.hidden_size
        self._layers = (Layer * len(blocks))(*map(self._layer, blocks, self._caches))
        self._scores = torch.empty(0)
        self._model = Model(
            self._layers, self._norm(final_norm), self._output_layer.matrix, len(blocks), config.d_model, H, G, K, F,
            config.rotated_size if config.positions == "rope" else 0, _ACTIVATIONS[config.activation], config.gated,
            config.norm == "rmsnorm", config.norm_position == "pre", config.parallel_branches, 1,
            self._address(torch.empty((H + 2 * G) * K)), None, self._address(torch.empty(H * K)),
            self._address(torch.empty(F)), config.epsilon,
        )  # fmt: skip

    def __call__(self, x: Tensor, step: DecodeStep) -> Tensor:
        """Compute logits [1, V] from a token's embedding x [1, D], and add its keys and values to the caches."""
        x = x.contiguous().clone()
        for layer, cache in zip(self._layers, self._caches, strict=True):
            layer.keys = start = cache.slots.data_ptr()
            layer.values, layer.num_slots = start + 4 * cache.slots[0].numel(), cache.num_slots
            layer.last = step.end - 1 - cache.base
            layer.first = max(step.starts[0] - cache.base, layer.last + 1 - cache.reach, 0)
        num_scores = self._model.H * max(cache.num_slots for cache in self._caches)
        if self._scores.numel() < num_scores:
            self._scores = torch.empty(num_scores)
            self._model.scores = self._scores.data_ptr()
        self._model.num_threads = torch.get_num_threads()
        rotation = None if step.rotation is None else step.rotation.contiguous()
        logits = x.new_empty(1, len(self._output_layer.numbers))
        self._token(
            ctypes.byref(self._model), Address(x.data_ptr()), Address(address_of(rotation)), Address(logits.data_ptr())
        )
        return logits

    def _layer(self, layer: DecodeBlock, cache: KeyValueCache) -> Layer:
        products = cache.queries_keys_values, cache.projection_layer, layer.expand, layer.contract
        weights = [cast("Weight", product) for product in products]
        self._alive += weights
        norms, epsilon = (None, 0.0) if cache.norms is None else (self._address(cache.norms), cache.epsilon)
        norms_1_2 = self._norm(layer.block.norm_1), self._norm(layer.block.norm_2)
        return Layer(*norms_1_2, *(weight.matrix for weight in weights), norms, 0, 0, 0, 0, 0, cache.scale, epsilon)

    def _norm(self, norm: nn.Module) -> Norm:
        parameters = dict(norm.named_parameters())
        return Norm(*(self._address(parameters[name]) if name in parameters else None for name in ("weight", "bias")))

    def _address(self, numbers: Tensor) -> int:
        """Convert `numbers` to float32, keep the result alive in this object, and return its memory address."""
        wide = numbers.detach().float().contiguous()
        self._alive.append(wide)
        return wide.data_ptr()
