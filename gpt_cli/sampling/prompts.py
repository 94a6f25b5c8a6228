"""Read prompts from the command line, a file or a pipe, and encode them to ids."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from gpt_cli.checkpoints.training_text import readable_prompt
from gpt_cli.common.limits import PROMPT_BYTES
from gpt_cli.common.untrusted_files import read_bytes
from gpt_cli.errors import DataError, UsageError, blaming, counted, shown

if TYPE_CHECKING:
    from gpt_cli.checkpoints.header import Header
    from gpt_cli.text.tokenizers import Tokenizer


def read_prompt(
    prompt: str | None, file: Path | None, header: Header | None, stdin: TextIO | None, may_be_empty: bool = False
) -> tuple[str, str]:
    """Return a prompt (the content of `file`, else `prompt`, else piped `stdin`), and the name of its source in errors.

    The `prompt` "-" means `stdin`, unless `stdin` is None, as in calls from Python. A line break at the end of a file
    or stdin is dropped. Errors suggest a prompt in characters that the model of `header` knows. Raises UsageError if
    there is no prompt, DataError if file or stdin is unreadable, too long, or empty (unless `may_be_empty`).
    """
    if file is not None:
        content, where, source = _content_of(file), str(file), "‹prompt_file›"
    elif prompt is not None and (prompt != "-" or stdin is None):
        with contextlib.suppress(UnicodeError):  # a locale without UTF-8 turns its bytes into lone surrogates
            prompt = prompt.encode("utf-8", "surrogateescape").decode()
        return prompt, "‹prompt›"
    elif stdin is None or (prompt is None and stdin.isatty()):
        sentence = "there is no prompt; use ‹prompt=TEXT› or ‹prompt_file=FILE›"
        if stdin is not None:
            sentence = "there is no prompt; use ‹prompt=TEXT›, ‹prompt_file=FILE› or a pipe"
        raise UsageError("‹prompt›", sentence, hint=f"‹prompt={_offered(header)}›")
    else:
        content, where, source = stdin.buffer.read(PROMPT_BYTES + 1), "stdin", "stdin"
        if len(content) > PROMPT_BYTES:
            raise DataError(where, f"a prompt has at most {PROMPT_BYTES:,} bytes, but this one has more")
    from gpt_cli.text.documents import decode_utf8

    text = decode_utf8(content, where).removesuffix("\n").removesuffix("\r")
    if not text and not may_be_empty:
        raise DataError(where, "the prompt is empty", hint=f"‹prompt={_offered(header)}›")
    return text, source


def read_prompts(
    prompt: str | None, prompt_file: Path | None, header: Header, stdin: TextIO | None
) -> tuple[list[str], str]:
    """Read prompts as `read_prompt` does, but one per nonempty line of `prompt_file`; return prompts and source."""
    text, source = read_prompt(prompt, prompt_file, header, stdin, may_be_empty=True)
    if prompt_file is None:
        return [text], source
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if not any(lines):
        raise DataError(str(prompt_file), "the file contains no prompt; write one per line")
    return [line for line in lines if line], source


def encode_text(tokenizer: Tokenizer, text: str, source: str) -> list[int]:
    """Encode a prompt, which may be empty; raise DataError, naming `source`, for a character not in the vocabulary."""
    with blaming(source):
        return tokenizer.encode(text)


def encode_prompt(
    tokenizer: Tokenizer, text: str, context_length: int, num_generated: int = 0, *, source: str, truncate: bool | None
) -> list[int]:
    """Encode a prompt to at most context_length - `num_generated` ids, which begin with `tokenizer.starts_with`.

    An empty prompt becomes the id of end-of-text if `starts_with` is empty. If the ids do not fit, `truncate` drops the
    first ones, which include `starts_with`; None means that the command has no such flag. Raises UsageError if there is
    no room for a prompt, DataError for too many ids unless `truncate` is True, or for characters not in the vocabulary.
    """
    ids = tokenizer.begin(encode_text(tokenizer, text, source))
    max_length = context_length - num_generated
    if max_length < 1:
        room = f"no room for a prompt before {num_generated} new tokens; use at most {context_length - 1}"
        raise UsageError("‹generate›", f"this model sees {context_length} tokens, so there is {room}")
    if len(ids) > max_length and not truncate:
        of = f" and {num_generated} to generate" if num_generated else ""
        sentence = f"it has {counted(len(ids), 'token')}{of}, but this model sees {context_length}"
        hint = None if truncate is None else "‹truncate=True› keeps the last tokens"
        raise DataError("prompt", sentence, hint=hint)
    return ids[-max_length:]


def _offered(header: Header | None) -> str:
    """Return an example of a prompt that the model can read, for an error's hint."""
    return "The value of" if header is None else readable_prompt(header)


def _content_of(file: Path) -> bytes:
    """Return the bytes of a prompt file, with compressed texts and documents such as PDF converted to plain text."""
    from gpt_cli.text.file_formats import Reading, is_packed_text, read_file
    from gpt_cli.text.remarks import Remarks

    if not is_packed_text(file):
        return read_bytes(file, DataError, most=("a prompt", PROMPT_BYTES))
    parts = [block.content for block in read_file(file, Reading(), Remarks(), named=True)]
    if sum(map(len, parts)) > PROMPT_BYTES:
        raise DataError(shown(file), f"a prompt has at most {PROMPT_BYTES:,} bytes, but this one has more")
    return b"".join(parts)
