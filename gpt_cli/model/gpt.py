"""The whole model, from token ids to logits: embeddings, blocks, final norm and output layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt_cli.config import ModelConfig
from gpt_cli.errors import CheckpointError
from gpt_cli.model.attention import Kernel, MultiHeadAttention, Stages, document_mask_of, join_heads
from gpt_cli.model.block import Block, make_norm
from gpt_cli.model.dropout import DropMasks, Dropout, Keep
from gpt_cli.model.forms.grouped_query import GroupedQueryAttention
from gpt_cli.model.forms.ngrams import NgramEmbedding
from gpt_cli.model.positions import RopeScaling, RotaryPositions, SinusoidalPositions


class GPT(nn.Module):
    """A decoder-only transformer: ids [B, T] -> logits [B, T, V], at each position the logits of the next token.

    By default, layers are in GPT-2's order (Radford et al. 2019). `generator` (None: torch's) draws initial weights.
    """

    where = "checkpoint"  # the file of the weights, as errors name it

    def __init__(self, config: ModelConfig, vocab_size: int, generator: torch.Generator | None = None):
        super().__init__()
        self.config = config
        self.token_embedding = _embedding(vocab_size, config.d_model)
        self.ngram_embedding: NgramEmbedding | None = None
        if config.ngram_embedding is not None:
            self.ngram_embedding = NgramEmbedding(config.ngram_embedding, config.ngram_rows, vocab_size, config.d_model)
        self.position_embedding: nn.Module | None = None
        self.rotary: RotaryPositions | None = None
        if config.positions == "learned":
            self.position_embedding = _embedding(config.context_length, config.d_model)
        elif config.positions == "sinusoidal":
            self.position_embedding = SinusoidalPositions(config.context_length, config.d_model)
        elif config.positions == "rope":
            scaling = None
            if config.rope_scaling is not None:
                low, high = config.rope_low_frequency, config.rope_high_frequency
                scaling = RopeScaling(config.rope_scaling, config.rope_original_length, low, high)
            self.rotary = RotaryPositions(config.context_length, config.rotated_size, config.rope_base, scaling)
        self.blocks = cast("Sequence[Block]", nn.ModuleList(Block(config, n) for n in range(config.num_blocks)))
        self._compiled: list[Callable[..., Tensor]] = []  # not in the state dict
        self.final_norm = make_norm(config)
        self.output_layer = None if config.tie_embeddings else nn.Linear(config.d_model, vocab_size, bias=False)
        if not self.token_embedding.weight.is_meta:
            self._initialise(generator)

    @property
    def vocab_size(self) -> int:
        return self.token_embedding.num_embeddings

    @property
    def output_weight(self) -> Tensor:
        """The matrix [V, D] of the output layer; with tie_embeddings, the matrix of the token embedding."""
        return (self.token_embedding if self.output_layer is None else self.output_layer).weight

    def forward(self, ids: Tensor, masks: DropMasks | None = None, positions: Tensor | None = None) -> Tensor:
        """Compute the logits of the next token at each position: ids [B, T] -> [B, T, V], T at most context_length.

        In training, `masks` gives the dropout masks (None: torch draws them). Rows of several packed texts need
        `positions` [B, T], which restart at 0 where a text begins; each token then attends only to its own text.
        """
        x, rotation = self.embed(ids, positions)
        document_mask = None if positions is None else document_mask_of(positions)
        masks = masks if self.training and self.config.dropout > 0 else None
        compiled = self.training and bool(self._compiled)
        by_keys = masks is not None and isinstance(masks.keys, Tensor)
        if masks is not None and by_keys:  # torch.compile recompiles for new ints, and a recorded step may send none
            first = torch.full((), int(masks.first_sequence), dtype=torch.int32, device=ids.device)
            masks = masks._replace(first_sequence=first)
        for number, block in enumerate(self._compiled if compiled else self.blocks):
            keep: Keep | DropMasks | None = None if masks is None else masks._replace(keys=masks.keys[number])
            if keep is not None and compiled and not by_keys:  # compiled code draws masks only from keys on the device
                keep = self.blocks[number].draw_masks(keep, x, document_mask)
            x = block(x, rotation, keep, document_mask)
        return self.logits(x)

    def next_logits(self, ids: Tensor) -> Tensor:
        """Compute logits of the next token: ids [B, T] -> [B, V]; the output layer runs on the last position only."""
        return self.logits(self.last_residual(ids)[:, -1])

    def last_residual(self, ids: Tensor) -> Tensor:
        """Compute the residual stream after the last block, for a model in evaluation mode: ids [B, T] -> [B, T, D]."""
        x, rotation = self.embed(ids)
        for block in self.blocks:
            x = block(x, rotation)
        return x

    def residual_streams(self, ids: Tensor) -> Iterator[Tensor]:
        """Yield the residual stream after each block: ids [B, T] -> [B, T, D]; `logits` maps each stream to logits."""
        x, rotation = self.embed(ids)
        for block in self.blocks:
            x = block(x, rotation)
            yield x

    @torch.no_grad()
    def attention_stages(
        self, ids: Tensor, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None
    ) -> Iterator[Stages]:
        """Yield the intermediate tensors of attention, [B, heads, T, ...], of each layer in `layers`, in model order.

        None means all. Dropout is off, even in training mode. Blocks after the last of `layers` do not run.
        """
        layers = range(len(self.blocks)) if layers is None else layers
        heads = range(self.config.num_heads) if heads is None else heads
        assert layers, "choose at least one layer"
        assert heads, "choose at least one head"
        assert {*layers} <= {*range(len(self.blocks))}, f"choose from layers 0 to {len(self.blocks) - 1}"
        x, rotation = self.embed(ids)
        whole = list(heads) == list(range(self.config.num_heads))
        for number, block in enumerate(self.blocks[: max(layers) + 1]):
            attention = block.attention
            stages = attention.stages(block.attention_input(x), rotation, heads) if number in layers else None
            if stages is not None:
                yield stages
            if number < max(layers):
                with without_dropout(block):
                    if stages is not None and whole:  # the outputs of all heads are known
                        x = block.after_attention(x, attention.projection_layer(join_heads(stages.heads)))
                    else:
                        x = block(x, rotation)

    def attention_weights(
        self, ids: Tensor, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None
    ) -> Tensor:
        """Compute weights of `layers` (in model order), `heads` (None: all): ids [B, T] -> [layers, B, heads, T, T]."""
        return torch.stack([stages.weights for stages in self.attention_stages(ids, layers, heads)])

    def take_weights(self, weights: Mapping[str, Tensor]) -> GPT:
        """Replace parameters, by name, with the tensors in `weights` (no copies); return the model.

        `load_state_dict` would compare each block with all names, which takes seconds for a thousand blocks.
        """
        for name, tensor in weights.items():
            module, _, parameter = name.rpartition(".")
            self.get_submodule(module).register_parameter(parameter, nn.Parameter(tensor))
        return self

    def turn_off_dropout(self) -> None:
        """Set the dropout rate to 0 in the config and in all layers."""
        self.config = self.config.changed(dropout=0.0)
        for module in self.modules():
            if isinstance(module, Dropout):
                module.p = 0.0

    def compile_blocks(self, compiled: bool = True) -> GPT:
        """Use blocks compiled by torch.compile in training, or, if not `compiled`, plain blocks; return the model."""
        options = {"cpp.simdlen": 256}  # GCC 12 miscompiles transpositions of bfloat16 by 512 bits (note 0001)
        blocks = self.blocks if compiled else []
        self._compiled = [torch.compile(block.forward, options=options) for block in blocks]  # type: ignore[arg-type]
        return self

    def use_fused(self, fused: bool) -> GPT:
        """Let every block compute all heads at once if `fused`, else each head by itself; return the model."""
        for block in self.blocks:
            block.attention.fused = fused
        return self

    def use_kernel(self, kernel: Kernel | None) -> GPT:
        """Let `kernel` (None: torch) compute attention with dropout in blocks without a window; return the model."""
        for block, window in zip(self.blocks, self.config.windows, strict=True):
            block.attention.kernel = kernel if window is None else None
        return self

    @contextmanager
    def shared_matrices(self, dtype: torch.dtype | None = None) -> Iterator[None]:
        """Cast each block's matrices to `dtype` (None: no cast) and join Wq, Wk and Wv, once for the whole context.

        Without this context, compiled blocks cast the matrices in each call. Gradients still reach the parameters.
        """
        with ExitStack() as stack:
            for block in self.blocks:
                attention, layers = block.attention, [*block.attention.children(), *block.feed_forward.children()]
                for layer in layers if dtype is not None else ():
                    if isinstance(layer, nn.Linear):
                        weights: dict[str, Any] = layer._parameters  # replacing a value keeps the order of the keys
                        stack.callback(weights.update, weight=layer.weight)
                        weights["weight"] = layer.weight.to(dtype)
                if isinstance(attention, (MultiHeadAttention, GroupedQueryAttention)):
                    parts = attention.projection_weights(range(attention.num_heads))
                    weight, bias = (part if part is None or dtype is None else part.to(dtype) for part in parts)
                    assert weight is not None
                    stack.callback(setattr, attention, "shared_weights", None)
                    attention.shared_weights = weight, bias
            yield

    def embed(self, ids: Tensor, positions: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Embed ids [B, T] -> [B, T, D], and compute RoPE's cosines and sines [2, T, rotated_size] (None without RoPE).

        With `positions` [B, T] instead of 0..T-1, the cosines and sines are [2, B, 1, T, rotated_size].
        """
        num_tokens = ids.shape[1]
        assert num_tokens <= self.config.context_length, "the caller cuts to context_length"
        x = self.token_embedding(ids)
        if self.ngram_embedding is not None:
            x = self.ngram_embedding(x, ids, positions)
        if self.position_embedding is not None:
            indices = torch.arange(num_tokens, device=ids.device) if positions is None else positions
            x = x + self.position_embedding(indices)
        rotation = None if self.rotary is None else self.rotary(num_tokens)
        return x, rotation if rotation is None or positions is None else rotation[:, positions, None].transpose(2, 3)

    def logits(self, x: Tensor) -> Tensor:
        """Apply the final norm and output layer to the last block's residual stream: [..., D] -> logits [..., V]."""
        return F.linear(self.final_norm(x), self.output_weight)

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator | None) -> None:
        """Draw weights with standard deviation 0.02, or 0.02 / sqrt(2 L) in a branch's last layer; set biases to 0.

        Tables of n-gram embeddings stay zero, because training meets most n-grams a few times or never.
        """
        for name, parameter in self.named_parameters():
            if name.startswith("ngram_embedding"):
                continue
            if parameter.dim() == 2:
                ends_branch = name.endswith(("projection_layer.weight", "contract.weight"))
                deviation = 0.02 * ((2 * len(self.blocks)) ** -0.5 if ends_branch else 1)
                parameter.normal_(0, deviation, generator=generator)
            elif name.endswith("bias"):
                parameter.zero_()


@contextmanager
def without_dropout(module: nn.Module) -> Iterator[None]:
    """Turn off the dropout of a model or block inside the context; restore training or evaluation mode afterwards."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)


def _embedding(num_rows: int, d_model: int) -> nn.Embedding:
    """Return an embedding layer without initial weights: on the meta device, drawing them imports torch's compiler."""
    return nn.Embedding.from_pretrained(torch.empty(num_rows, d_model), freeze=False)


def require_finite(numbers: Tensor, what: str, where: str) -> None:
    """Raise CheckpointError if any of `numbers` is NaN or infinite, which means that weights are damaged or too large.

    The message calls the numbers `what`, and the checkpoint `where`.
    """
    lowest, highest = numbers.aminmax()  # one pass, and NaN passes through
    if not (math.isfinite(lowest) and math.isfinite(highest)):
        sentence = f"its weights give {what} that are not finite, so it cannot be used"
        hint = "use another ‹checkpoint›, or train again with a smaller learning rate"
        raise CheckpointError(where, sentence, hint=hint)
