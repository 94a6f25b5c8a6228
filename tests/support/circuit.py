"""The smallest circuit that copies: a head that finds the previous token, and one that finds what came after it.

Every weight is set by hand. The residual stream has four parts side by side: which token this is, where it is, which
token came before it (written by head 0.0), and which token comes next (written by head 1.0, read by the output layer).
Heads 0.1 and 1.1 and both feed-forwards write nothing. Olsson et al. 2022 describe the circuit.
"""

import torch

from gpt_cli.model import GPT, MultiHeadAttention
from support.helpers import small_config

VOCAB_SIZE, LENGTH = 8, 10
PREVIOUS, INDUCTION = (0, 0), (1, 0)  # layer and head
_SHARP = 400.0  # so large that a head looks at one token alone


def two_head_circuit() -> GPT:
    """The model, in float64: after `e a b ... a` it predicts b, for token ids 0 to 7 and at most 10 tokens.

    The first token counts as the one before itself, so a prompt begins with one that does not come again.
    """
    V, T, K = VOCAB_SIZE, LENGTH, LENGTH
    D = 3 * V + T
    settings = f"model.context_length={T} model.d_model={D} model.num_heads=2 model.head_size={K} model.norm=rmsnorm"
    model = GPT(small_config(*settings.split(), "model.tie_embeddings=false", "model.positions=learned").model, V)
    token, place, before, following = range(V), range(V, V + T), range(V + T, 2 * V + T), range(2 * V + T, D)
    model = model.double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
        model.token_embedding.weight[:, token] = torch.eye(V, dtype=torch.float64)
        assert isinstance(model.position_embedding, torch.nn.Embedding)
        model.position_embedding.weight[:, place] = torch.eye(T, dtype=torch.float64)
        assert model.output_layer is not None
        model.output_layer.weight[:, following] = torch.eye(V, dtype=torch.float64)
        for (layer, head), reads, finds, writes in (
            (PREVIOUS, list(place)[1:], list(place)[:-1], before),
            (INDUCTION, token, before, following),
        ):
            attention = model.blocks[layer].attention
            assert isinstance(attention, MultiHeadAttention)
            own = attention.heads[head]
            for row, (query, key) in enumerate(zip(reads, finds, strict=True)):
                own.Wq.weight[row, query] = own.Wk.weight[row, key] = _SHARP**0.5
            for row in range(V):
                own.Wv.weight[row, token[row]] = 1.0
                attention.projection_layer.weight[writes[row], head * K + row] = 1.0
    return model
