"""Requests of `gpt import` and `gpt export`: their flags and checks. Needs no torch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from gpt_cli.checkpoints.header import Header, read_header
from gpt_cli.checkpoints.lock import require_foreign
from gpt_cli.checkpoints.run_list import require_nothing_lost
from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.checkpoints.select import find_header
from gpt_cli.common.extras import is_installed
from gpt_cli.common.files import require_no_file, require_writable
from gpt_cli.common.host import Host
from gpt_cli.common.limits import FOREIGN_CONFIG_BYTES
from gpt_cli.common.units import size
from gpt_cli.common.untrusted_files import read_bytes
from gpt_cli.config.field_types import Misfit, Size, Switch
from gpt_cli.config.request import (
    NONE,
    Coerced,
    Flag,
    MaybePath,
    PathText,
    ReadPath,
    Request,
    WhichCheckpoint,
    WhichRun,
    read_texts,
)
from gpt_cli.errors import CheckpointError, EnvironmentFailure, GptError, UsageError, shown
from gpt_cli.tools.exchange.families import fit

if TYPE_CHECKING:
    from gpt_cli.tools.exchange.import_hf import Foreign
    from gpt_cli.tools.exchange.import_tensors import Weights

_MOST = ("the config of a model", FOREIGN_CONFIG_BYTES)
Directories = Annotated[Coerced[Sequence[ReadPath], str | Path | Sequence[str | Path]], BeforeValidator(read_texts)]
# names of files in an export for transformers
FILES = (
    "README.md",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)
MODELFILE = "Modelfile"  # beside a GGUF file
_OURS = b"# written by gpt export"
_QUANTIZED = {"gguf": ("q8_0", "bf16", "f16"), "html": ("float16", "int8"), "handout": ("float16", "int8")}
# names of files in a handout
PAGES = ("attention.html", "film.html", "index.html", "model.html")


class ImportRequest(Request):
    """Make a run of an open model, for all commands: sample, attn-dump, explain, train with ‹init_from›.

    GPT-2, GPT-Neo, GPT-NeoX (Pythia), Llama, Mistral, Qwen2, Qwen3, Starcoder2, Arcee. It reads config.json,
    safetensors and the tokenizer, or one GGUF file; nothing is downloaded or unpickled.
    """

    directory: Annotated[Directories, Flag("DIR", position=True)] = Field(
        kw_only=False,
        description="A transformers directory with such a model, a .gguf file, or a directory that gpt export wrote.",
    )
    steps: Switch = Field(
        default=False,
        description="The directories are one model at several steps of its training, and their names contain the step, "
        "such as step1000: make a checkpoint of each.",
    )
    out: Annotated[MaybePath, Flag("RUN")] = Field(
        default=NONE, description="The run directory. Default: runs/<name of DIR>."
    )
    context_length: Size | None = Field(
        default=None,
        description="Tokens that a model with rope sees at once. Default: its own context length, at most 8,192.",
    )
    overwrite: Switch = Field(default=False, description="Replace the run in ‹out›.")

    def misfits(self) -> Iterator[Misfit]:
        """Yield an error (`Misfit`) if the request names no directory, or several directories without `steps`."""
        if not self.directory:
            yield Misfit(("directory",), "it names no directory")
        if len(self.directory) > 1 and not self.steps:
            sentence = "several directories need ‹steps=True›, which makes a checkpoint of each"
            yield Misfit(("directory",), sentence, "‹steps=True›, or import one at a time")

    def find(self, host: Host) -> tuple[Path, Foreign, dict[int, Weights]]:
        """Return the path of the new run, the model, and with `steps` each step's weights, which are read on request.

        Raises UsageError if the import would replace files without `overwrite`, for directories that are not steps of
        one model, or for a context that the model lacks, CheckpointError for a model that gpt cannot represent.
        """
        from gpt_cli.tools.exchange.gguf.reader import is_gguf
        from gpt_cli.tools.exchange.hf_directory import require_model
        from gpt_cli.tools.exchange.import_hf import directories_by_step, read_foreign, read_steps, shared_name

        first, *_ = self.directory
        of_file = is_gguf(first)
        if self.steps and any(map(is_gguf, self.directory)):
            raise UsageError("‹steps›", "it takes directories of transformers, but this is a GGUF file")
        if len(self.directory) == 1 and self.out is None and not of_file:  # the directory names the run
            require_model(first)
        steps = directories_by_step(self.directory) if self.steps else {}
        name = shared_name(first) if steps else os.path.basename(os.path.abspath(first))
        name = Path(name).stem if of_file and name.lower().endswith(".gguf") else name
        run = RunFiles(self.out or Path("runs") / name)
        require_no_file(run.path)
        self.require_free(run)
        if steps:
            return run.path, *read_steps(steps, self.context_length, host)
        return run.path, read_foreign(first, self.context_length), {}

    def require_free(self, run: RunFiles) -> None:
        """Raise UsageError if `run` exists without `overwrite`, has files not written by gpt, or contains runs."""
        if run.exists() and not self.overwrite:
            sentence = "there is a run already; replace it with ‹overwrite=True›, or name another ‹out›"
            raise UsageError(shown(run.path), sentence)
        require_nothing_lost(run)


class ExportRequest(Request):
    """Write a trained model for transformers or Ollama, as one file to share, as a page, or for a class.

    An earlier export of the same name is replaced; any other directory that is not empty is refused.
    """

    out: PathText = Field(
        kw_only=False, description="A directory (hf, handout) or a file that ends in .gguf, .safetensors or .html."
    )
    format: Literal["hf", "gguf", "html", "handout", "safetensors"] = Field(
        default="hf",
        description="hf: a directory that transformers loads; gguf: a file for llama.cpp and Ollama; safetensors: one "
        "file that gpt loads, without what only training needs; html: a page in which the model runs, offline; "
        "handout: a folder for a class, with that page and pages of its attention. Default: hf.",
    )
    quantize: Literal["float16", "int8", "q8_0", "bf16", "f16"] | None = Field(
        default=None,
        description="Weights of a page (html, handout): float16, or int8 in half the space; default: float16 up to "
        "30 MB. Of gguf: q8_0, bf16 or f16; default: as they are.",
    )
    title: str | None = Field(default=None, description="The title of the pages (html, handout).")
    prompt: str | None = Field(default=None, description="The text with which the pages open (html, handout).")
    overwrite: Switch = Field(
        default=False, description="Replace the export in ‹out› even beside files of others, which stay."
    )
    run: WhichRun = NONE
    checkpoint: WhichCheckpoint = NONE

    def misfits(self) -> Iterator[Misfit]:
        """Yield an error (`Misfit`) for each of `quantize`, `title` and `prompt` that the format does not use."""
        kinds = _QUANTIZED.get(self.format, ())
        if self.quantize is not None and not kinds:
            sentence = f"‹format={self.format}› writes weights as they are; only gguf, html and handout convert them"
            yield Misfit(("quantize",), sentence)
        elif self.quantize is not None and self.quantize not in kinds:
            sentence = f"‹format={self.format}› stores weights in {', '.join(kinds)}"
            yield Misfit(("quantize",), sentence, f"‹quantize={kinds[0]}›")
        if self.format in ("html", "handout"):
            return
        for key in ("title", "prompt"):
            if getattr(self, key) is not None:
                sentence = f"‹format={self.format}› does not write a page; only html and handout write pages"
                yield Misfit((key,), sentence, "‹format=html›")

    def find(self, host: Host) -> tuple[Header, str | None]:
        """Return the header of the checkpoint, and the prompt with which web pages open, None for a default.

        Raises UsageError if `out` must not be replaced or no class of transformers fits the model, DataError for a
        prompt that the model cannot encode, CheckpointError if there is no such checkpoint, EnvironmentFailure for a
        page too large for browsers, or for GGUF without the library gguf.
        """
        if self.format in ("hf", "handout"):
            require_directory(self.out, self.format, self.overwrite)
        else:
            require_file(self.out, self.format)
        header, prompt = find_header(self.run, self.checkpoint, host), self.prompt
        if self.format == "gguf":
            from gpt_cli.tools.exchange.gguf.architectures import architecture_of
            from gpt_cli.tools.exchange.gguf.tokenizer import metadata_of

            if not is_installed("gguf"):
                sentence = "writing GGUF needs the library gguf, which is not installed"
                hint = "in the clone of gpt: pip install -e '.[gguf]'"
                raise EnvironmentFailure("‹format=gguf›", sentence, hint=hint)
            architecture_of(header.config.model, header.tokenizer.vocab_size)  # both raise UsageError if nothing fits
            metadata_of(header.tokenizer)
        elif self.format == "hf":
            fit(header.config.model, vocab_size=1)  # raises UsageError if no class fits, whatever the vocabulary
        elif self.format != "safetensors":
            from gpt_cli.sampling.prompts import encode_text, read_prompt
            from gpt_cli.tools.exchange import page_data

            if prompt is not None:
                prompt, _ = read_prompt(prompt, None, header, stdin=host.stdin)
                encode_text(header.tokenizer, prompt, "‹prompt›")  # may raise DataError
            tokenizer = page_data.tokenizer_content(header.tokenizer)
            page_layout, num_bytes = page_data.chosen_layout(header.shapes, tokenizer, self.quantize)
            page_data.require_known_form(header.config.model)
            host.notice(f"the page will have about {size(num_bytes)}, with weights in {page_layout.kind}")
            most = header.config.model.context_length
            if (read := page_data.page_context(header.config.model)) < most:
                why = "since the page holds the attention of every head"
                host.notice(f"the page reads at most {read:,} tokens of a text, while the model reads {most:,}, {why}")
        return header, prompt


def require_directory(out: Path, form: str, overwrite: bool = False) -> None:
    """Raise UsageError unless `out` is new, empty or an export of format `form`; `overwrite` allows other files too.

    Raises EnvironmentFailure if the user may not make or replace `out`.
    """
    our_files = FILES if form == "hf" else PAGES
    replaced = Path(os.path.realpath(out))  # resolves x/.. even if there is no x
    if replaced.is_dir():
        names = sorted(path.name for path in replaced.iterdir())
        foreign = next((name for name in names if name not in our_files), None)
        ours = _is_ours(replaced, form)
        if names and not (ours and (overwrite or foreign is None)):
            contains = f"contains {shown(foreign)}" if foreign else "has files that gpt export did not write"
            hint = "‹overwrite=True› replaces the export in it and leaves the other files" if ours else None
            sentence = f"{shown(out)} {contains}; name a new directory, an empty one or an export"
            raise UsageError("‹out›", sentence, hint=hint)
    elif os.path.lexists(out):
        raise UsageError("‹out›", f"{shown(out)} is not a directory, but ‹format={form}› writes one")
    elif out.suffix in (".safetensors", ".html", ".gguf"):
        sentence = f"{shown(out)} is the name of a file, but ‹format={form}› writes a directory"
        raise UsageError("‹out›", sentence, hint=f"‹format={out.suffix[1:]}› writes one file")
    require_writable(next(path for path in replaced.parents if path.is_dir()))


def require_file(out: Path, form: str) -> None:
    """Raise UsageError if `out` lacks the ending of the format `form`, is a directory, or names a protected file.

    Protected are files of a run, checkpoints except exports, and, beside GGUF, a Modelfile that gpt did not write.
    """
    if out.suffix != f".{form}":
        raise UsageError("‹out›", f"{shown(out.name)} does not end in .{form}, but ‹format={form}› requires it")
    if out.is_dir():
        raise UsageError("‹out›", f"{shown(out)} is a directory, but ‹format={form}› writes a file")
    replaces = False
    with contextlib.suppress(GptError):  # an export does not contain the environment of its training
        replaces = form == "safetensors" and not read_header(out).progress.environment
    require_foreign(out, replaces=replaces)
    if form != "gguf":
        return
    beside = out.with_name(MODELFILE)
    if os.path.lexists(beside) and not read_bytes(beside, UsageError, most=("a Modelfile", 2**20)).startswith(_OURS):
        sentence = "there is a Modelfile beside it that gpt export did not write"
        raise UsageError("‹out›", sentence, hint="name a file in another directory")


def _is_ours(directory: Path, form: str) -> bool:
    """Return whether `directory` is an export in the format `form` that no other program has saved since.

    Transformers writes its version into config.json when it saves a model, and peft replaces the model card.
    """
    from gpt_cli.tools.exchange.hf_directory import read_json

    try:
        if form == "handout":
            first = read_bytes(directory / "index.html", CheckpointError, most=("a page", 2**20))
            return b'<script type="application/json" id="content">{"handout": ' in first
        config = read_json(directory / "config.json", *_MOST)
        card = read_bytes(directory / "README.md", CheckpointError, most=_MOST)
    except GptError:
        return False
    return "gpt_cli" in config and "transformers_version" not in config and b"\n- gpt-cli\n" in card


def read_model_directory(directory: Path) -> Foreign:
    """Return the model in a transformers directory; `import_hf`, which needs numpy, is imported only here."""
    from gpt_cli.tools.exchange import import_hf

    return import_hf.read_foreign(directory)
