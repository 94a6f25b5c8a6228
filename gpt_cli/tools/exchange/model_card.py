"""The model card of an export: what the model is, what it learned from, and how to load it. Needs no torch."""

from __future__ import annotations

import json
from pathlib import Path

from gpt_cli.checkpoints.header import Progress
from gpt_cli.common import __version__
from gpt_cli.config import Config
from gpt_cli.config.load import write_config
from gpt_cli.errors import counted, visible
from gpt_cli.text.datasets import ENTRIES, Dataset
from gpt_cli.text.sources import source_names
from gpt_cli.tools.exchange.export_tensors import Fit

_CARD = """\
---
library_name: transformers
pipeline_tag: text-generation
{language}tags:
- gpt-cli
- {kind}
---

# {title}

{origin}
{losses}
In transformers its class is `{class_name}`, with {num_parameters:,} parameters:

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained({name})
tokenizer = AutoTokenizer.from_pretrained({name})
ids = tokenizer({prompt}, return_tensors="pt")
written = model.generate(**ids, max_new_tokens={num_new}, do_sample=True)
print(tokenizer.decode(written[0], skip_special_tokens=True))
```

Its context is {context_length:,} tokens long, so prompt and continuation together should have no more. To train
it further, end each text with the token `tokenizer.eos_token_id`{padding}. The library peft takes all matrices with
`LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear")`.
{characters}{notes}
{licence}
## Settings

```yaml
{settings}```
"""
_CHARACTERS = """
Each token is a character of its training text. A prompt with any other character is an error of the tokenizer:
`WordLevel error: Missing [UNK] token from the vocabulary`.
"""
_END_PADS = """, and take the collator
`DataCollatorForSeq2Seq(tokenizer)` with `labels` equal to `input_ids`. No other token is spare, so this one fills
batches too, and `DataCollatorForLanguageModeling` would never learn it: in a test, 0 of 8 answers then ended, not 8"""
_LICENCE = "gpt-cli gives these weights no licence; whoever shares them may name one here."


def model_card(
    name: str, config: Config, fit: Fit, progress: Progress, *, prompt: str = "The", end_pads: bool = False
) -> str:
    """Return the README.md of an export, with code that continues `prompt`; `end_pads`: end-of-text also pads."""
    figures = {"Loss of the last step": progress.loss, "Lowest validation loss until then": progress.best_loss}
    losses = [f"{name}: {loss:.4f} nats/token.\n" for name, loss in figures.items() if loss is not None]
    num_steps, num_tokens = progress.step, progress.num_training_tokens
    sources = ", ".join(f"`{visible(source)}`" for source in source_names(config.data.source))
    origin = f"A GPT, trained with gpt-cli {__version__} on {sources} ({counted(num_tokens, 'token')}) for "
    origin += f"{counted(num_steps, 'step')}."
    imported = num_steps == 0 or num_tokens == 0
    if imported:  # its sources are a default
        origin = f"A GPT, written by gpt-cli {__version__}, which did not train it."
        origin += f" Its step is {num_steps:,}." if num_steps else ""
    if progress.began_from is not None:
        origin += f" It began with the weights of `{visible(progress.began_from)}`."
    half = max(1, config.model.context_length // 2)
    lines = "".join(f"- {note}\n" for note in fit.notes)
    datasets = [] if imported else _catalogued(config)
    is_complete = datasets and len(datasets) == len(source_names(config.data.source))
    languages = {entry.language for entry in datasets} if is_complete else set()
    return _CARD.format(
        language=f"language: {languages.pop()}\n" if len(languages) == 1 and None not in languages else "",
        kind=config.tokenizer.kind,
        padding=_END_PADS if end_pads else "",
        characters=_CHARACTERS if config.tokenizer.kind == "char" else "",
        licence=_LICENCE + (f" Licences of its texts: {licences(config)}.\n" if datasets else "\n"),
        title=visible(name),
        origin=origin,
        losses="".join(losses),
        class_name=fit.class_name,
        num_parameters=fit.num_parameters,
        name=json.dumps(name, ensure_ascii=False),
        prompt=json.dumps(prompt[:half], ensure_ascii=False),
        num_new=min(60, half),
        context_length=config.model.context_length,
        notes=f"\nIt computes what it computed in gpt, some of it in another way:\n\n{lines}" if lines else "",
        settings=write_config(config),
    )


def licences(config: Config) -> str:
    """Return the licences of the training texts that are in the dataset catalogue; an empty text if none is."""
    return "; ".join(f"`{entry.name}`: {entry.licence}" for entry in _catalogued(config))


def _catalogued(config: Config) -> list[Dataset]:
    return [ENTRIES[source] for source in source_names(config.data.source) if source in ENTRIES]


def shareable(config: Config) -> Config:
    """Return a copy of a config with only file names as paths of texts, since folder names are private."""
    data = config.data
    names = {
        key: [_name(source) for source in value] if isinstance(value, list) else value and _name(value)
        for key, value in (("source", data.source), ("validation_source", data.validation_source))
    }
    return config.model_copy(update={"data": data.model_copy(update=names)})


def _name(source: str) -> str:
    """Return the file name of a path, with ./ in front if the dataset catalogue has a text of that name."""
    name = Path(source).name or source
    return f"./{name}" if name in ENTRIES and source not in ENTRIES else name
