"""Find the text that a model was trained on, if gpt may read it again. Needs no torch.

The config.yaml of a run names the text. A checkpoint outside a run names a text too, but a stranger may have made the
checkpoint: gpt then reads only texts of the catalogue that are already on this disk.
"""

import contextlib
import glob
import itertools
import os
import re
from pathlib import Path

from gpt_cli.checkpoints.header import Header, read_header
from gpt_cli.checkpoints.metrics_files import samples_of
from gpt_cli.checkpoints.run_paths import RunFiles, run_of_checkpoint
from gpt_cli.common.file_signatures import holds_run
from gpt_cli.common.host import Notify
from gpt_cli.common.strict_json import strict_json
from gpt_cli.common.untrusted_files import open_regular
from gpt_cli.config import Config, DataConfig
from gpt_cli.config.load import read_run_config, without_untrusted_settings
from gpt_cli.errors import CheckpointError, DataError, GptError, UsageError, shown
from gpt_cli.text.datasets import ENTRIES
from gpt_cli.text.sources import STDIN, reads_stdin, source_names

NAME_ONE = "‹data=FILE›"
# a word, or as much of a text that has no spaces between words
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]{1,4}|[^\W\u3040-\u30ff\u3400-\u9fff]{1,16}")
_SUM = re.compile(r"\d{1,16}[^\w\s]?")  # of a text without letters, such as 38+
_SAMPLE_BYTES = 8192  # of samples.txt, enough to recognise the kind of text
_OPENING = 100  # characters, at most


def is_imported(run: RunFiles) -> bool:
    """Return whether the weights of a run come from `gpt import`."""
    path = next(reversed(run.steps().values()), run.best)
    with contextlib.suppress(CheckpointError):  # the reader of the whole file reports the damage
        return path.exists() and read_header(path).progress.imported
    return False


def config_with_text(header: Header, advice: str = NAME_ONE, *, stdin: bool = False) -> Config:
    """Return the config of a model, including the sources (files, catalogue names) of its training text.

    Raises UsageError if that text is unknown or not fetched yet, or if only a checkpoint outside a run names its files,
    which gpt does not trust. Raises DataError for text from stdin, unless `stdin`. `advice` ends the errors' hints.
    """
    run = run_of_checkpoint(header.path)
    if run is None:
        return _of_a_checkpoint(header, advice)
    where = shown(run.path)
    if _of_transformers(run):
        sentence = "there is a config.json beside its checkpoints, so gpt does not treat it as a run of yours"
        raise UsageError(where, sentence, hint=advice)
    if is_imported(run):
        raise UsageError(where, "this run was imported, so it has no text of its own", hint=advice)
    try:
        config = read_run_config(run.config)
    except UsageError as error:
        error.hint = f"{error.hint} else {advice}" if error.hint and error.hint.endswith("?") else advice
        raise
    if reads_stdin(config.data) and not stdin:
        raise DataError(where, "this run was trained on text from stdin, which gpt did not save", hint=advice)
    return config


def trusted_config(header: Header) -> Config:
    """Return the valid config.yaml of the checkpoint's run, or else the safe part of the checkpoint's own config.

    The safe part has the model, the tokenizer and settings marked LEARNING; other settings, like paths, get defaults.
    """
    run = run_of_checkpoint(header.path)
    run_config = None if run is None or _of_transformers(run) or is_imported(run) else valid_config(run)
    return run_config or without_untrusted_settings(header.config)


def valid_config(run: RunFiles) -> Config | None:
    """Return the config in a run's config.yaml; None if the file is missing, damaged or not valid."""
    with contextlib.suppress(UsageError):
        return read_run_config(run.config)
    return None


def located(data: DataConfig, run: Path, notice: Notify) -> DataConfig:
    """Return a run's data settings; if relative paths do not all exist, resolve them from a folder above the run.

    The folder is the nearest one from which all relative paths exist, such as the directory where the user called
    `gpt train`; `notice` receives a line with its name. Without such a folder, the paths stay as they are.
    """
    files = (name for name in source_names(data.source, data.validation_source) if name not in (STDIN, *ENTRIES))
    relative = [name for name in files if not os.path.isabs(os.path.expanduser(name))]
    if all(map(_leads_somewhere, relative)):
        return data
    for folder in Path(os.path.abspath(run)).parents:
        paths = {name: os.path.join(glob.escape(str(folder)), name) for name in relative}
        paths |= {name: str(folder / name) for name in relative if os.path.lexists(folder / name)}
        if all(map(_leads_somewhere, paths.values())):
            notice(f"the text of this run is not in the current directory; gpt reads it in {shown(folder)}")
            source, validation = (
                [paths.get(name, name) for name in named] if isinstance(named, list) else paths.get(named or "", named)
                for named in (data.source, data.validation_source)
            )
            return data.changed(source=source, validation_source=validation)
    return data


def prompts_like(text: str, english: str = "The") -> list[str]:
    """Return prompts that resemble a text, best first: its words, then its single characters.

    If the text has digits but no letters, parts of sums, such as 38+, replace the words. For any other ASCII text, the
    prompt `english` comes first.
    """
    words, letters = _WORD.findall(text), list(filter(str.isalpha, text))
    if not letters and (sums := _SUM.findall(text)):
        return [*sums, *text]
    if text.isascii():
        return [english, *words, *text]
    if 4 * sum(map(str.isascii, letters)) <= 3 * len(letters):
        words.sort(key=lambda word: any(map(str.isascii, word)))  # not codes, such as the xE5 of <0xE5>
    return [*words, *text]


def readable_prompt(header: Header) -> str:
    """Return a prompt that a model can encode: "The value of", or part of a sample if most sample text is not ASCII.

    With a character tokenizer, the prompt has only characters of the vocabulary, if need be its first three letters.
    It has at most context_length characters, so that a model of characters or bytes can read all of it.
    """
    text = "\n".join(_samples(header))
    letters = list(filter(str.isalpha, text))
    is_ascii = 2 * sum(map(str.isascii, letters)) >= len(letters) > 0  # an untrained model generates random bytes
    prompts = prompts_like("" if is_ascii else text.strip(), english="The value of")
    with contextlib.suppress(ValueError, RecursionError, KeyError, TypeError):
        stored = strict_json(header.metadata["tokenizer"])
        if stored["kind"] == "char":
            characters = stored["characters"]
            begin = "".join(filter(str.isalpha, characters))[:3] or characters[:3]
            prompts = [next((prompt for prompt in prompts if set(prompt) <= set(characters)), begin)]
    return prompts[0][: header.config.model.context_length]


def opening(header: Header) -> str:
    """Guess the prompt of a run's samples: the first line, in whole words, that all early samples share; else ""."""
    samples = _samples(header)
    alike = itertools.takewhile(lambda letters: len({*letters}) == 1, zip(*samples, strict=False))
    shared = "".join(letters[0] for letters in alike)
    line = next(filter(str.strip, shared.splitlines()), "")
    cut = len(line) > _OPENING or (shared.endswith(line) and any(text[len(shared) :][:1].isalnum() for text in samples))
    words = line[:_OPENING].rpartition(" ")[0] if cut else ""
    return (words or line[:_OPENING]).strip()


def _samples(header: Header) -> list[str]:
    """Return the texts of the first samples of a checkpoint's run; [] without a run or samples."""
    run = run_of_checkpoint(header.path)
    with contextlib.suppress(GptError, OSError):
        if run is not None:
            with open_regular(run.samples, DataError) as file:
                return [sample.text for sample in samples_of(file.read(_SAMPLE_BYTES).decode("utf-8", "ignore"))]
    return []


def no_text(where: str, advice: str = NAME_ONE) -> UsageError:
    """Return the error for a training text that gpt does not read, because only a checkpoint outside a run names it."""
    sentence = "gpt does not read a text only because a model names it: a stranger may have chosen it"
    return UsageError(where, sentence, hint=advice)


def _of_transformers(run: RunFiles) -> bool:
    """Return whether `run` is a model directory of transformers, which a stranger may have made to look like a run."""
    return (run.path / "config.json").exists()


def _of_a_checkpoint(header: Header, advice: str) -> Config:
    """Return the trusted settings of a checkpoint outside a run; raise UsageError if gpt may not read the text."""
    texts = {"source": header.config.data.source, "validation_source": header.config.data.validation_source}
    sources = source_names(*texts.values())
    if header.progress.imported or not all(source in ENTRIES for source in sources):
        raise no_text(header.where, advice)
    for source in sources:
        if not ENTRIES[source].is_here():
            sentence = f"it was trained on {source} of the catalogue, which gpt has not fetched yet"
            raise UsageError(header.where, sentence, hint=f"gpt data fetch {source}, or {advice}")
    return without_untrusted_settings(header.config).changed(data=texts)


def _leads_somewhere(name: str) -> bool:
    """Return whether a source names an existing path other than a run, or a glob that matches (up to a part **)."""
    if holds_run(Path(name)):
        return False
    above = re.split(r"(?<![^/])\*\*(?![^/])", name, maxsplit=1)[0]
    return os.path.lexists(name) or any(glob.iglob(above or os.curdir))
