"""Write a model as a directory that transformers loads: model card, config, weights and tokenizer."""

import json
import os
from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpt_cli.checkpoints.checkpoint import Checkpoint, bytes_of, type_of
from gpt_cli.checkpoints.header import Progress
from gpt_cli.common import __version__
from gpt_cli.common.files import Buffer, remove, write_directory, write_durably
from gpt_cli.common.safetensors_header import header_bytes
from gpt_cli.config import Config
from gpt_cli.config.load import write_config
from gpt_cli.errors import counted, visible
from gpt_cli.text.chat_templates import template_for
from gpt_cli.text.datasets import ENTRIES, Dataset
from gpt_cli.text.sources import source_names
from gpt_cli.text.tokenizers import Tokenizer
from gpt_cli.tools.exchange.export_tensors import Fit, Part, Recipe
from gpt_cli.tools.exchange.families import fit
from gpt_cli.tools.exchange.request import FILES
from gpt_cli.tools.exchange.tokenizer_json import chat_template, json_bytes, padding_id, tokenizer_files

FORMAT_VERSION = 2  # of the key gpt_cli in config.json and in GGUF
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


def write_for_transformers(out: Path, checkpoint: Checkpoint, prompt: str = "The") -> Fit:
    """Write a directory that AutoModelForCausalLM and AutoTokenizer load; return a `Fit` with the model class's name.

    The example in the model card continues `prompt`. The key `gpt_cli` of config.json contains the gpt_cli config, and
    the split pattern and kind of the tokenizer. Raises UsageError if no transformers class computes the model,
    CheckpointError for weights that do not fit their config, EnvironmentFailure if a file cannot be written.
    """
    tokenizer, progress, config = checkpoint.tokenizer, checkpoint.progress, shareable(checkpoint.config)
    stock = fit(config.model, tokenizer.vocab_size)
    ours = dict(checkpoint.weights) | dict(checkpoint.build_model().named_buffers())
    stored = {name: (type_of(dtype_of(recipe, ours)), recipe.shape) for name, recipe in stock.tensors.items()}
    number_type = str(ours["token_embedding.weight"].dtype).removeprefix("torch.")
    ends, pad = {"bos_token_id": tokenizer.begin([])[0], "eos_token_id": tokenizer.end_of_text}, padding_id(tokenizer)
    # in transformers, the embedding of pad_token_id gets no gradient, so end-of-text is not named
    padding = {} if pad == tokenizer.end_of_text else {"pad_token_id": pad}
    # generation begins where padding on the left ends, but training counts learned positions from the very first token
    padding_side = "left" if config.model.positions in ("rope", "none") else "right"
    template, chat = chat_template(config, tokenizer), template_for(config.data.template, tokenizer)
    stops = {} if chat.end is None else {"eos_token_id": [tokenizer.end_of_text, chat.end_id(tokenizer)]}
    # one tensor at a time is in memory beside the model
    weights = (bytes_of(computed(recipe, ours)) for recipe in stock.tensors.values())
    name = os.path.basename(os.path.realpath(out))
    card = model_card(name, config, stock, progress, prompt=prompt, end_pads=pad == tokenizer.end_of_text)
    contents = (
        [card.encode("utf-8", "backslashreplace")],
        [json_bytes({**stock.config, **ends, **padding, "dtype": number_type, "gpt_cli": own_keys(config, tokenizer)})],
        [json_bytes({**ends, **stops, "pad_token_id": pad})],
        # several libraries look for the key format
        chain([header_bytes(stored, {"format": "pt"})], weights),
        *([content] for content in tokenizer_files(tokenizer, config.model.context_length, template, padding_side)),
    )
    write_export(out, dict(zip(FILES, contents, strict=True)), FILES)
    return stock


def write_export(out: Path, files: Mapping[str, Iterable[Buffer]], export_names: Collection[str]) -> None:
    """Write `files` (name -> chunks), all named in `export_names`, into `out`; delete the others of `export_names`."""
    if not out.is_dir() or set(os.listdir(out)) <= set(export_names):
        write_directory(out, files)
    else:
        for name in export_names:
            write_durably(out / name, files[name]) if name in files else remove(out / name)


def model_card(name: str, config: Config, fit: Fit, progress: Progress, *, prompt: str, end_pads: bool) -> str:
    """Return an export's README.md: the model's losses and settings, and example code that continues `prompt`.

    `fit` describes the transformers class, `progress` the training. With `end_pads`, end-of-text also pads batches.
    """
    figures = {"Loss of the last step": progress.loss, "Lowest validation loss until then": progress.best_loss}
    losses = [f"{name}: {loss:.4f} nats/token.\n" for name, loss in figures.items() if loss is not None]
    num_steps, num_tokens = progress.step, progress.num_training_tokens
    sources = ", ".join(f"`{visible(source)}`" for source in source_names(config.data.source))
    origin = f"A GPT, trained with gpt-cli on {sources} ({counted(num_tokens, 'token')}) for "
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
    """Return "`name`: licence; ..." of the training texts that the dataset catalogue lists; "" if it lists none."""
    return "; ".join(f"`{entry.name}`: {entry.licence}" for entry in _catalogued(config))


def _catalogued(config: Config) -> list[Dataset]:
    return [ENTRIES[source] for source in source_names(config.data.source) if source in ENTRIES]


def shareable(config: Config) -> Config:
    """Return a copy of a config with file names instead of the paths of texts, so that exports show no folder names."""
    data = config.data
    names = {
        key: [_name(source) for source in value] if isinstance(value, list) else value and _name(value)
        for key, value in (("source", data.source), ("validation_source", data.validation_source))
    }
    return config.model_copy(update={"data": data.model_copy(update=names)})


def _name(source: str) -> str:
    """Return the file name of a text, but ./NAME for a file that is named like a text of the dataset catalogue."""
    name = Path(source).name or source
    return f"./{name}" if name in ENTRIES and source not in ENTRIES else name


def own_keys(config: Config, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the value of an export's key `gpt_cli`: format version, config, and the tokenizer's kind and pattern."""
    about_tokenizer = {key: value for key, value in tokenizer.to_dict().items() if key in ("kind", "pattern")}
    return {"format": FORMAT_VERSION, "config": config.model_dump(mode="json"), "tokenizer": about_tokenizer}


@torch.no_grad()
def computed(recipe: Recipe, ours: Mapping[str, Tensor]) -> Tensor:
    """Build an exported tensor by its recipe (copies, products) from `ours`, gpt_cli's weights and buffers by name."""
    dtype = dtype_of(recipe, ours)
    if not recipe.parts:
        return torch.zeros(recipe.shape, dtype=dtype)
    rows = torch.cat([_rows(part, ours) for part in recipe.parts])
    tensor = (rows.T if recipe.transposed else rows).contiguous()
    assert (tensor.shape, tensor.dtype) == (recipe.shape, dtype)
    return tensor


def dtype_of(recipe: Recipe, ours: Mapping[str, Tensor]) -> torch.dtype:
    """Return the dtype of an exported tensor: float32 for products and scaled weights, else that of the weights."""
    copies = [ours[part.names[0]].dtype if _is_copy(part) else torch.float32 for part in recipe.parts]
    return reduce(torch.promote_types, copies) if copies else next(iter(ours.values())).dtype


def _is_copy(part: Part) -> bool:
    return len(part.names) == 1 and part.factor == 1


def _rows(part: Part, ours: Mapping[str, Tensor]) -> Tensor:
    """Compute rows of an exported tensor: a copy from `ours`, or a matrix product in float64, rounded to float32."""
    if _is_copy(part):
        return ours[part.names[0]]
    return (reduce(torch.matmul, (ours[name].double() for name in part.names)) * part.factor).float()
