"""Settings of models on which tests of heads run, and what `gpt heads` reports."""

import json
from pathlib import Path
from typing import Any

from gpt_cli.model import GPT
from support.faults import SCALE
from support.helpers import RunCommand

# each form of attention and each kind of norm, position and part
FORMS = [
    "",
    "model.bias=false",
    "model.norm_position=post",
    "model.attention=grouped_query model.num_heads=4 model.num_key_value_heads=2",
    "model.attention=latent model.positions=rope",
    "model.positions=rope model.norm=rmsnorm model.activation=relu2 model.bias=false",
    "model.tie_embeddings=true model.ngram_embedding=3 model.ngram_rows=300",
    "model.norm=rmsnorm model.norm_position=post model.qkv_bias=true model.positions=sinusoidal",
    "model.positions=rope model.rotary_size=4 model.parallel_branches=true model.qkv_bias=true",
    "model.attention_window=[null,3] model.scale=none model.activation=gelu_tanh model.head_size=5",
    "model.attention=grouped_query model.num_heads=4 model.num_key_value_heads=2 model.qk_norm=true model.head_size=6 "
    "model.positions=rope model.rope_base=500 model.rope_scaling=8 model.rope_original_length=16 model.norm=rmsnorm "
    "model.norm_epsilon=0.01 model.activation=swiglu model.bias=false",
]
# those whose attention reads in ways of its own; tests/attention_maps tries all
SOME_FORMS = FORMS if SCALE >= 1 else [*FORMS[2:5], *FORMS[8:]]


def reported(run: RunCommand, *flags: str | Path) -> dict[str, Any]:
    """What `gpt heads --json` reports, with nothing else said."""
    outcome = run("heads", *flags, "--json", "--quiet", exits=0)
    assert outcome.err == ""
    return json.loads(outcome.out)


def all_heads(model: GPT) -> dict[str, Any]:
    """The arguments that name every layer and every head of a model."""
    return {"layers": range(model.config.num_blocks), "heads": range(model.config.num_heads)}
