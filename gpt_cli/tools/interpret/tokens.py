"""`gpt tokens`: a text split into tokens, shown above their ids. Needs no torch."""

import os
from dataclasses import dataclass
from functools import partial

from rich.cells import cell_len

from gpt_cli.checkpoints.run_paths import run_name
from gpt_cli.checkpoints.select import first_usable
from gpt_cli.checkpoints.verify import read_verified
from gpt_cli.common.drawing.token_labels import label_of
from gpt_cli.common.host import Host
from gpt_cli.common.results import WIDTH, Result, Screen
from gpt_cli.common.tables import Rows
from gpt_cli.errors import GptError, counted, shown
from gpt_cli.sampling.prompts import encode_text, read_prompt
from gpt_cli.text.tokenizers import ByteTokenizer, Tokenizer
from gpt_cli.text.train_tokenizer import published_tokenizer
from gpt_cli.tools.interpret.request import TokensRequest

_GROUNDS = ("\033[30;46m", "\033[30;43m")  # by turns: black on cyan and on yellow, which every colour terminal has


@dataclass(frozen=True)
class Token:
    """A token: its id, its text (such as <0xE4> if its bytes are not whole characters), and its bytes."""

    id: int
    text: str
    bytes: list[int]


@dataclass(frozen=True)
class Tokens(Result):
    """Result of `gpt tokens`: the tokens of a text; `tokenizer` is the name of a run or of a published vocabulary."""

    tokenizer: str
    tokens: list[Token]
    num_tokens: int
    num_characters: int
    bytes_per_token: float | None  # None without tokens

    @property
    def summary(self) -> str:
        """A line with the tokenizer, the numbers of tokens and characters, and the bytes per token."""
        each = "" if self.bytes_per_token is None else f", {self.bytes_per_token:.2f} bytes per token"
        tokens, characters = counted(self.num_tokens, "token"), counted(self.num_characters, "character")
        return f"{self.tokenizer}: {tokens} for {characters}{each}"

    def parts(self) -> list[Rows | str]:
        """Return the summary, and a table with a row for each token."""
        rows = [(str(each.id), label_of(each.text.replace(" ", "␣"), None)) for each in self.tokens]
        return [self.summary, [("id", "token"), *rows]]

    def as_text(self, width: int = WIDTH, *, coloured: bool = False) -> str:
        """Return rows of tokens' texts, wrapped at `width` columns, with ids below; if `coloured`, on two colours."""
        rows, upper, lower, length = list[str](), "", "", 0
        for number, token in enumerate(self.tokens):
            # a space, which is part of a token, would be invisible
            piece = label_of(token.text.replace(" ", "␣"), None)
            cells = max(cell_len(piece), len(str(token.id)))
            if length and length + cells > width:
                rows.append(f"{upper.rstrip()}\n{lower.rstrip()}\n")
                upper, lower, length = "", "", 0
            ground, plain = (_GROUNDS[number % 2], "\033[0m") if coloured else ("", "")
            upper += f"{ground}{piece}{plain}{' ' * (cells - cell_len(piece) + 1)}"
            lower += f"{token.id:<{cells}} "
            length += cells + 1
        return "\n".join([*rows, f"{upper.rstrip()}\n{lower.rstrip()}"] if self.tokens else [])

    def as_coloured_text(self, width: int = WIDTH) -> str:
        """Return rows of the tokens' texts on two alternating background colours, with the ids below the texts."""
        return self.as_text(width, coloured=True)

    def show(self, screen: Screen) -> None:
        """Show the tokens and their ids on `screen`, and the summary on stderr."""
        screen.notice(self.summary)
        super().show(screen)


def tokens(request: TokensRequest, target: None, host: Host) -> Tokens:
    """Split the text of a request into tokens; raises DataError for a character that the tokenizer lacks."""
    if request.tokenizer is None:
        verify = partial(read_verified, keep=False)
        read = None if host.loaded else first_usable(request.run, request.checkpoint, verify, host.warn)
        header = host.loaded.header if read is None else read[0]
        cutter, name = header.tokenizer, run_name(header.path)
    else:
        header, cutter, name = None, _named(request.tokenizer), request.tokenizer
    prompt = request.prompt if request.text is None else request.text
    if request.text not in (None, "-") and os.path.isfile(request.text):
        host.notice(f"{shown(request.text)} is also a file; to tokenize its text: ‹prompt_file={request.text}›")
    whole, source = read_prompt(prompt, request.prompt_file, header, host.stdin)
    ids = encode_text(cutter, whole, "‹text›" if request.text not in (None, "-") else source)
    return Tokens(
        tokenizer=name,
        tokens=[Token(i, cutter.token_text(i), list(cutter.token_bytes[i])) for i in ids],
        num_tokens=len(ids),
        num_characters=len(whole),
        bytes_per_token=len(whole.encode()) / len(ids) if ids else None,
    )


def _named(name: str) -> Tokenizer:
    """Load the tokenizer `name`: byte, or a published one such as gpt2; errors name the flag --tokenizer."""
    try:
        return ByteTokenizer() if name == "byte" else published_tokenizer(name)
    except GptError as error:
        error.where, error.hint = "‹tokenizer›", "‹tokenizer=byte›, which needs no vocabulary"
        raise
