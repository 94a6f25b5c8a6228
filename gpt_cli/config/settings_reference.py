"""Describe the allowed values of settings, for errors and for the table of all settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from gpt_cli.config.field_types import LoggerName
from gpt_cli.config.schema import Config

# values that a JSON schema cannot describe
_DEVICES = ["auto", "cpu", "cuda", "cuda:N", "mps", "xpu"]
_NOUNS_BY_KEY = {
    "model.attention_window": ["a whole number from 1 to 65,536", "a list of them and null", "null"],
    "data.source": ["a source of text", "a list of sources"],
    "data.validation_source": ["a source of text", "a list of sources", "null"],
    "train.device": _DEVICES,
    "device": _DEVICES,
    "check_device": _DEVICES,
    "train.log_to": [*get_args(LoggerName), "a list of them"],
    "train.max_time": ["a duration, such as 90s or 1h30m, up to 10,000 hours", "null"],
    "max_time": ["a duration, such as 90s or 1h30m, up to 10,000 hours"],
}
_NOUNS = {"string": "text", "null": "null", "array": "a list of texts"}


def shipped_configs() -> dict[str, Path]:
    """Return the configs that come with the program: name -> file."""
    package = Path(__file__).parent.parent
    folder = package / "configs" if (package / "configs").is_dir() else package.parent / "configs"
    return dict(sorted((path.stem, path) for path in folder.glob("*.yaml")))


def setting_schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON schema of every setting (type, range, default, description): section.key -> schema."""
    schema = Config.model_json_schema()
    return {
        f"{section}.{key}": details
        for section, reference in schema["properties"].items()
        for key, details in schema["$defs"][reference["$ref"].split("/")[-1]]["properties"].items()
    }


def key_names() -> list[str]:
    """Return the name of every setting as `section.key`; faster than `setting_schemas`, which builds a JSON schema."""
    return [f"{section}.{key}" for section, values in Config() for key in type(values).model_fields]


def allowed_values(key: str, details: Mapping[str, Any]) -> list[str]:
    """Describe the values that the setting `key` allows: ["a number above 0", "null"]; `details` is its JSON schema."""
    return _NOUNS_BY_KEY.get(key) or [word for kind in details.get("anyOf", [details]) for word in _alternatives(kind)]


def is_none_of(alternatives: list[str]) -> str:
    """Return the end of an error's sentence that names the allowed values: "is neither a nor b"."""
    if len(alternatives) == 1:
        return f"is not {alternatives[0]}"
    if len(alternatives) == 2:
        return f"is neither {' nor '.join(alternatives)}"
    return f"is not one of {', '.join(alternatives)}"


def _alternatives(schema: Mapping[str, Any]) -> list[str]:
    if "items" in schema:  # a list allows what each element allows
        return _alternatives(schema["items"])
    if "enum" in schema:
        return list(schema["enum"])
    if "const" in schema:
        return [schema["const"]]
    if schema["type"] in ("integer", "number"):
        noun = "a whole number" if schema["type"] == "integer" else "a number"
        return [" ".join([noun, *_limits(schema)])]
    return ["true", "false"] if schema["type"] == "boolean" else [_NOUNS[schema["type"]]]


def _limits(schema: Mapping[str, Any]) -> list[str]:
    if "minimum" in schema and "maximum" in schema:
        return [f"from {schema['minimum']:,} to {schema['maximum']:,}"]
    words = {"minimum": "of at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    limits = [f"{word} {schema[key]:,}" for key, word in words.items() if key in schema]
    return [" and ".join(limits)] if limits else []
