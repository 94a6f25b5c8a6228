"""Seeded random models of the families of transformers, with weights as sharp as trained ones, saved as others do."""

from pathlib import Path
from typing import Any

import torch

TEXT = "the quick brown fox jumps over the lazy dog, and it's a fine day: 1234 5678 你好世界. "
V = 300
_SIZES = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
_SIZES |= {"intermediate_size": 100, "max_position_embeddings": 80}
_GROUPED = {"num_key_value_heads": 2}
_GPT2 = {"n_positions": 80, "n_embd": 48, "n_layer": 2, "n_head": 4}
_NEO = {"hidden_size": 48, "num_layers": 3, "num_heads": 4, "max_position_embeddings": 80}
_LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "original_max_position_embeddings": 32}
_LLAMA3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
_TIED = {"tie_word_embeddings": True}


def _rope(**parameters: Any) -> dict[str, Any]:
    return {"rope_parameters": parameters}


# the name of a class without ForCausalLM, and its config; small versions of published shapes, and what is unusual
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", _GPT2),
    "gpt2, not scaled and not tied": ("GPT2", {**_GPT2, "scale_attn_weights": False, "tie_word_embeddings": False}),
    "gpt2 with relu": ("GPT2", {**_GPT2, "n_inner": 100, "activation_function": "relu"}),
    "gpt2 with another epsilon": (
        "GPT2",
        {**_GPT2, "layer_norm_epsilon": 3e-4, "activation_function": "gelu_pytorch_tanh"},
    ),
    "TinyStories-1M": (
        "GPTNeo",
        _NEO
        | {"hidden_size": 64, "num_layers": 4, "num_heads": 16}
        | {"attention_types": [[["global", "local"], 2]], "window_size": 9},
    ),
    "gpt_neo, odd": (
        "GPTNeo",
        _NEO | {"attention_types": [[["global"], 1], [["local"], 2]], "window_size": 1, "intermediate_size": 50},
    ),
    "gpt_neo, all global": ("GPTNeo", _NEO | {"attention_types": [[["global"], 3]], "activation_function": "relu"}),
    "Pythia-14M": ("GPTNeoX", _SIZES | {"hidden_size": 128} | _rope(partial_rotary_factor=0.25)),
    "gpt_neox, one after the other": (
        "GPTNeoX",
        _SIZES
        | {"use_parallel_residual": False, "attention_bias": False, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3}
        | _rope(partial_rotary_factor=1.0, rope_theta=500.0),
    ),
    "gpt_neox, tied": ("GPTNeoX", _SIZES | _TIED | {"hidden_act": "relu"} | _rope(partial_rotary_factor=0.17)),
    "SmolLM2": (
        "Llama",
        _SIZES
        | _TIED
        | {"hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3, "rms_norm_eps": 1e-5}
        | _rope(rope_type="default", rope_theta=1e5),
    ),
    "Llama-3.2": ("Llama", _SIZES | _GROUPED | _TIED | _rope(**_LLAMA3, rope_theta=5e5)),
    "SimpleStories": ("Llama", _SIZES | _GROUPED | {"hidden_size": 64}),
    "llama with biases": ("Llama", _SIZES | {"attention_bias": True, "mlp_bias": True, "head_dim": 10}),
    "llama with half of them": ("Llama", _SIZES | {"attention_bias": True, "hidden_act": "gelu"}),
    "mistral": ("Mistral", _SIZES | _GROUPED | {"sliding_window": 7}),
    "mistral without a window": ("Mistral", _SIZES | _GROUPED | {"sliding_window": None, "head_dim": 6}),
    "Qwen2.5-0.5B": (
        "Qwen2",
        _SIZES
        | _GROUPED
        | _TIED
        | {"hidden_size": 112, "num_attention_heads": 14}
        | _rope(rope_type="default", rope_theta=1e6),
    ),
    "qwen2 with windows": (
        "Qwen2",
        _SIZES | _GROUPED | {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    ),
    "Qwen3-0.6B": ("Qwen3", _SIZES | _GROUPED | _TIED | {"head_dim": 24}),
    "starcoder2": ("Starcoder2", _SIZES | _GROUPED | {"sliding_window": 11}),
    "starcoder2 without biases": ("Starcoder2", _SIZES | _GROUPED | {"use_bias": False, "norm_epsilon": 1e-4}),
    "arcee": ("Arcee", _SIZES | _GROUPED),
}


def sharp_model(transformers: Any, name: str, **changes: Any) -> Any:
    """A model of MODELS, whose attention is not uniform."""
    kind, settings = MODELS[name]
    torch.manual_seed(0)
    ids = {"vocab_size": V, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
    config = getattr(transformers, f"{kind}Config")(**{**ids, **settings, **changes})
    name_of_class = "GPT2LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM"
    model = getattr(transformers, name_of_class)._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.12 * torch.randn(parameter.shape))
    return model


def save_tokenizer(folder: Path, transformers: Any) -> Any:
    """Byte pairs trained by the library tokenizers, as GPT-2's but for end-of-text, which has id 0."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=V, special_tokens=["<|endoftext|>"], initial_alphabet=letters, show_progress=False
    )
    trained.train_from_iterator([TEXT] * 30, trainer)
    found = transformers.PreTrainedTokenizerFast(tokenizer_object=trained, eos_token="<|endoftext|>")
    found.save_pretrained(folder)
    return found


def exact(theirs: Any, rotary: Any) -> None:
    """Let a model compute in float64 all that it rounds: norms, softmax and the angles of rope, which are `rotary`'s."""
    theirs.double().set_attn_implementation("eager" if theirs.config.model_type == "gpt_neo" else "sdpa")
    for module in list(theirs.modules()):
        for name, child in module.named_children():
            if type(child).__name__.endswith("RMSNorm"):
                norm = torch.nn.RMSNorm(len(child.weight), child.variance_epsilon, dtype=torch.float64)
                norm.weight = child.weight
                setattr(module, name, norm)
    if rotary is not None:
        theirs.base_model.rotary_emb = _Angles(rotary)


class _Angles(torch.nn.Module):
    """Our cosines and sines, handed over as their module does."""

    def __init__(self, rotary: Any):
        super().__init__()
        self.rotary = rotary

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cosines, sines = self.rotary.at(position_ids)
        return cosines.to(x.dtype), sines.to(x.dtype)
