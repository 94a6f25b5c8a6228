"""What a config may ask for that came with a model."""

from __future__ import annotations

from gpt_cli.config import Config
from gpt_cli.config.load import without_untrusted_settings

# what leads beyond the model: it is read, runs, connects, or is this machine's
TAKEN = {
    "data": {"source", "validation_source", "skip_bad"},
    "train": {"device", "threads", "dtype", "compile", "graph", "sample_prompt", "log_to"},
}


def test_nothing_that_leads_beyond_the_model_is_kept() -> None:
    asked, default = Config(), Config()
    for section in ("data", "train"):
        part = getattr(asked, section)
        marked = part.model_copy(update={key: f"{section}.{key}" for key in type(part).model_fields})
        asked = asked.model_copy(update={section: marked})
    asked = asked.changed(model={"d_model": 8}, tokenizer={"kind": "char"}, inspect={"prompt": "a text"})
    kept = without_untrusted_settings(asked)
    for section, taken in TAKEN.items():
        for key in type(getattr(asked, section)).model_fields:
            named = getattr(default, section) if key in taken else getattr(asked, section)
            assert getattr(getattr(kept, section), key) == getattr(named, key), (
                f"{section}.{key}: a stranger's config may set it if LEARNING stands beside its type; "
                "else TAKEN of this test has it, because it leads beyond the model"
            )
    assert (kept.model, kept.tokenizer, kept.inspect) == (asked.model, asked.tokenizer, default.inspect)
