"""Read the keys of a transformers config.json, report unread keys, and write the keys of rope. Needs no torch."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpt_cli.config import ModelConfig
from gpt_cli.errors import CheckpointError, GptError, visible

_MOST_NAMED = 12
_MOST_SHOWN = 60  # characters of a value
# keys that change no logit: special ids, options of generation, classification, initialisation and storage
_IRRELEVANT = """
    architectures model_type transformers_version torch_dtype dtype vocab_size use_cache initializer_range gpt_cli
    bos_token_id eos_token_id pad_token_id sep_token_id cls_token_id mask_token_id unk_token_id decoder_start_token_id
    tokenizer_class prefix _name_or_path name_or_path _commit_hash attn_implementation _attn_implementation
    _attn_implementation_autoset _flash_attn_2_enabled gradient_checkpointing pretraining_tp is_decoder is_llama_config
    transformers.js_config unsloth_version unsloth_fixed output_past torchscript use_bfloat16 tf_legacy_loss return_dict
    output_hidden_states output_attentions output_scores return_dict_in_generate chunk_size_feed_forward
    task_specific_params problem_type finetuning_task id2label label2id num_labels predict_special_tokens
    classifier_dropout summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout
    max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p
    typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids
    num_return_sequences exponential_decay_length_penalty suppress_tokens begin_suppress_tokens remove_invalid_values
    forced_bos_token_id forced_eos_token_id embd_pdrop embed_dropout embedding_dropout
"""
# settings of Llama 3's rope -> keys of config.json
LLAMA3 = {
    "rope_scaling": "factor",
    "rope_original_length": "original_max_position_embeddings",
    "rope_low_frequency": "low_freq_factor",
    "rope_high_frequency": "high_freq_factor",
}


class ConfigFields:
    """Reader of a config.json: reading a key marks it as known, and `problems` reports all unknown keys.

    Errors name the file `where` and end with `hint`. `notices` are sentences on values that gpt changes.
    """

    def __init__(self, content: Mapping[str, Any], where: str, hint: str, known_keys: str = _IRRELEVANT):
        self.content, self.where, self.hint = content, where, hint
        self._known_keys = set(known_keys.split())
        self.notices: list[str] = []
        self._problems: list[GptError] = []

    def refuse(self, sentence: str, key: str | None = None) -> None:
        """Record the error `sentence` about `key` or, if None, about the whole config; `problems` returns it later."""
        where = self.where if key is None else f"{self.where}: {key}"
        self._problems.append(CheckpointError(where, sentence, hint=self.hint))

    def ignore(self, *keys: str) -> None:
        """Mark `keys` as known without reading them, since no logit depends on them."""
        self._known_keys.update(keys)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of `key`, of any type, or `default` if the key is absent."""
        self._known_keys.add(key)
        return self.content.get(key, default)

    def number(self, key: str, default: float | None = None) -> float | None:
        """Return the number at `key`, else `default`; record an error for a wrong type, or if there is neither."""
        value = self.get(key)
        if value is None and default is None:
            self.refuse(f"it has no {key}")
        elif value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            self.refuse(f"{brief(value)} is not a number", key)
            return default
        return default if value is None else value

    def whole(self, key: str, default: int | None = None, *, optional: bool = False) -> int | None:
        """Return the integer at `key`, or `default` if it is absent; record an error for any other type.

        Returns None for null, and for an absent key without default; both are errors unless `optional`.
        """
        value = self.get(key, default)
        if value is None and not optional:
            self.refuse(f"it has no {key}")
        elif value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            self.refuse(f"{brief(value)} is not a whole number", key)
            return default
        return value

    def switch(self, key: str, default: bool) -> bool:
        """Return the boolean at `key`, or `default` for an absent key or null; record an error for any other value."""
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            self.refuse(f"{brief(value)} is neither true nor false", key)
        return value if isinstance(value, bool) else default

    def choice(self, key: str, names: Mapping[str, str], default: str) -> str:
        """Translate the value of `key` (or `default`) to gpt_cli's name by `names`; record an error if unknown."""
        if not isinstance(name := self.get(key, default), str) or name not in names:
            self.refuse(f"{key} is {brief(name)}, but gpt supports {', '.join(names)}")
            return names[default]
        return names[name]

    def problems(self) -> list[GptError]:
        """Return the recorded errors, and errors about unknown keys whose value is not null, false, {} or []."""
        unknown = [key for key, value in self.content.items() if key not in self._known_keys and not _is_neutral(value)]
        for key in unknown[:_MOST_NAMED]:
            self.refuse(f"{brief(key)[1:-1]} is {brief(self.content[key])}, which gpt does not support")
        if len(unknown) > _MOST_NAMED:
            self.refuse(f"{len(unknown) - _MOST_NAMED:,} more keys are unknown")
        return self._problems


def brief(value: Any) -> str:
    """Format a value as JSON for a message; cut long text and end it with an ellipsis."""
    return visible(json.dumps(value, ensure_ascii=False), _MOST_SHOWN)


def _is_neutral(value: Any) -> bool:
    return value is None or value is False or value == {} or value == []


def read_rope(
    fields: ConfigFields, context_length: int | None, *, of_neox: bool = False
) -> tuple[dict[str, Any], float]:
    """Return the gpt_cli rope settings of a transformers config.json, and the fraction of each head that rope rotates.

    Reads the keys of transformers 4 and 5, with `of_neox` also those of GPT-NeoX, rotary_emb_base and rotary_pct.
    `context_length` replaces a missing original_max_position_embeddings of Llama 3.
    """
    parameters = fields.get("rope_parameters")
    held = fields.get("rope_scaling") or parameters or {}  # in this order, as version 5 reads both
    if not isinstance(held, dict):
        fields.refuse(f"its rope has {brief(held)}, which is not a JSON object")
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
        fields.refuse(f"its rope is of type {brief(kind)}, but gpt supports default, llama3")
        return settings, share
    fields._problems += inner.problems()
    return settings, share


def _agreed(fields: ConfigFields, inner: ConfigFields, names: Sequence[str], default: float) -> float:
    """Return the number under any of `names` in `fields` or its rope object `inner`; record an error if two differ."""
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
