"""Read and write the rope keys of config.json, as in versions 4 and 5 of transformers. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpt_cli.config import ModelConfig
from gpt_cli.tools.exchange.families.config_fields import ConfigFields, brief

# settings of ours, with their keys there
LLAMA3 = {
    "rope_scaling": "factor",
    "rope_original_length": "original_max_position_embeddings",
    "rope_low_frequency": "low_freq_factor",
    "rope_high_frequency": "high_freq_factor",
}


def read_rope(
    fields: ConfigFields, context_length: int | None, *, of_neox: bool = False
) -> tuple[dict[str, Any], float]:
    """Return the gpt_cli rope settings of a config.json, and the fraction of each head that rope rotates.

    Version 4 has rope_theta and rope_scaling (GPT-NeoX: rotary_emb_base, rotary_pct), version 5 rope_parameters.
    """
    parameters = fields.get("rope_parameters")
    held = fields.get("rope_scaling") or parameters or {}  # in this order, as version 5 reads both
    if not isinstance(held, dict):
        fields.refuse(f"its rope has {brief(held)}, which is not an object of JSON")
        held = {}
    inner = ConfigFields(held, fields.where, fields.hint, known_keys="")
    older = inner.get("type")
    kind = inner.get("rope_type") or older or "default"
    names = ["rope_theta", "rotary_emb_base"] if of_neox else ["rope_theta"]
    base = _agreed(fields, inner, names, 10000.0)
    share = _agreed(fields, inner, ["partial_rotary_factor", "rotary_pct"], 0.25) if of_neox else 1.0
    settings: dict[str, Any] = {"positions": "rope", "rope_base": base}
    if kind == "llama3":
        for ours, key in LLAMA3.items():
            is_length = ours == "rope_original_length"
            settings[ours] = inner.whole(key, context_length) if is_length else inner.number(key)
    elif kind != "default":
        fields.refuse(f"its rope is of type {brief(kind)}, but gpt has default, llama3")
        return settings, share
    fields.take_problems(inner)
    return settings, share


def _agreed(fields: ConfigFields, inner: ConfigFields, names: Sequence[str], default: float) -> float:
    """Return the number under the keys `names` of `inner` (rope object) or `fields`; record a problem if two differ."""
    values = [held.number(name, default) for name in names for held in (inner, fields) if held.get(name) is not None]
    if any(value != values[0] for value in values):
        fields.refuse(f"{' and '.join(names)} disagree: {', '.join(map(str, values))}")
    return next((value for value in values if value is not None), default)


def rope_keys(model: ModelConfig) -> dict[str, Any]:
    """Return the rope keys of config.json, for versions 4 and 5 of transformers."""
    parameters: dict[str, Any] = {"rope_type": "default"}
    if model.rope_scaling is not None:
        parameters = {"rope_type": "llama3", **{key: getattr(model, ours) for ours, key in LLAMA3.items()}}
    keys = {"rope_theta": model.rope_base, "rope_parameters": {**parameters, "rope_theta": model.rope_base}}
    return keys if model.rope_scaling is None else {**keys, "rope_scaling": parameters}
