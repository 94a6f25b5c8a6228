"""Train a tokenizer on a text, or load a stored, cached or published one."""

import base64
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np

from gpt_cli.common.host import NOBODY, Host
from gpt_cli.common.rng import random_words, stream_key
from gpt_cli.config import TokenizerConfig
from gpt_cli.errors import CheckpointError, EnvironmentFailure, UsageError, shown
from gpt_cli.text.cache import cached, read_cached_json, write_json
from gpt_cli.text.corpus import Corpus
from gpt_cli.text.documents import TextBlock, bytes_counted, in_pieces, split_document
from gpt_cli.text.hf_tokenizer import HuggingFaceTokenizer
from gpt_cli.text.split_patterns import BY_NAME, PATTERNS, WORD_PATTERN
from gpt_cli.text.tokenizers import BytePairTokenizer, ByteTokenizer, CharTokenizer, Tokenizer, code_points

NETWORK_TIMEOUT = 60  # seconds for a whole vocabulary, of up to 4 MB
# byte pairs of a larger text are learned from a sample: the library counts pairs in 32 bits, and would overflow
SAMPLE_BYTES = 2**28
_WORDS_AT_ONCE = 2**12
_BUFFERED = 64  # pieces that the library holds in memory


def learn_tokenizer(config: TokenizerConfig, training: Corpus, validation: Corpus, host: Host = NOBODY) -> Tokenizer:
    """Train or load the tokenizer of a config; cache on disk a tokenizer that was trained on a large text."""
    if config.kind in ("byte", "tiktoken", "imported") or not training.is_large:
        return make_tokenizer(config, training, validation)
    path = None
    # a user without a home directory has no cache, and a file there may be missing or damaged
    with contextlib.suppress(EnvironmentFailure, CheckpointError, KeyError, TypeError):
        # earlier versions had a single pattern, which the key does not contain
        pattern = [config.pattern] if config.kind == "bpe" and BY_NAME[config.pattern] != WORD_PATTERN else []
        path = cached("tokenizers", config.kind, config.vocab_size, *pattern, training.digest, validation.digest)
        stored = read_cached_json(path)
        tokenizer = tokenizer_from_dict(stored["tokenizer"])
        if tokenizer.digest == stored["sha256"]:
            return tokenizer
    num_bytes = training.num_bytes + (validation.num_bytes if config.kind == "char" else 0)
    if config.kind == "bpe" and num_bytes > SAMPLE_BYTES:
        host.notice(f"gpt learns byte pairs from a sample of {SAMPLE_BYTES / 1e6:.0f} MB of the text")
    with host.counting("learning the vocabulary", num_bytes, "B") as count:
        tokenizer = make_tokenizer(config, training, validation, count)
        training.whole.require_unchanged()
        validation.whole.require_unchanged()
    if path:
        write_json(path, {"tokenizer": tokenizer.to_dict(), "sha256": tokenizer.digest})
    return tokenizer


def make_tokenizer(
    config: TokenizerConfig, training: Corpus, validation: Corpus, count: Callable[[int], object] = lambda _: None
) -> Tokenizer:
    """Train or load the tokenizer of a config, without the cache of `learn_tokenizer`.

    Byte pairs are learned from the training part, characters from both, so that no character is unknown. `count`
    receives the bytes of text read since its last call. Raises EnvironmentFailure if a published vocabulary is neither
    in the cache nor downloadable, UsageError for the kind `imported` (of an imported model).
    """
    if config.kind == "imported":
        sentence = "imported is the tokenizer of an imported model, which gpt cannot learn from a text"
        hint = "gpt train --init-from RUN begins with an imported model and its tokenizer"
        raise UsageError("tokenizer.kind", sentence, hint=hint)
    if config.kind == "byte":
        return ByteTokenizer()
    if config.kind == "char":
        present = np.zeros(sys.maxunicode + 1, bool)
        for block in bytes_counted(chain(training.blocks(), validation.blocks()), count):
            present[code_points(block.text)] = True
        return CharTokenizer([chr(point) for point in np.flatnonzero(present)])
    if config.kind == "tiktoken":
        return published_tokenizer(config.name)
    learned = sample_texts(bytes_counted(training.blocks(), count), SAMPLE_BYTES / max(1, training.num_bytes))
    return train_byte_pairs(learned, config.vocab_size, BY_NAME[config.pattern])


def sample_texts(blocks: Iterable[TextBlock], share: float) -> Iterator[str]:
    """Yield about a fraction `share` of the pieces of a text at random, the same in every call; all if `share` >= 1."""
    key, chosen = stream_key(0, "tokenizer"), np.empty(0, bool)
    for number, piece in enumerate(in_pieces(blocks)):
        at = number % _WORDS_AT_ONCE
        if at == 0:
            chosen = random_words(key, number, _WORDS_AT_ONCE) < share * 2**32
        if chosen[at]:
            yield piece.text


def train_byte_pairs(texts: Iterable[str], vocab_size: int, pattern: str = WORD_PATTERN) -> BytePairTokenizer:
    """Train a byte-pair tokenizer of at most vocab_size tokens, end-of-text included, on words cut by `pattern`."""
    import rustbpe  # only learning byte pairs needs it

    trainer = rustbpe.Tokenizer()  # type: ignore[attr-defined]
    parts = (piece for text in texts for piece in split_document(text))
    trainer.train_from_iterator(parts, vocab_size=vocab_size - 1, buffer_size=_BUFFERED, pattern=pattern)
    ranked = sorted(trainer.get_mergeable_ranks(), key=lambda pair: pair[1])
    return BytePairTokenizer("bpe", pattern, [bytes(token) for token, _ in ranked])


def published_tokenizer(name: str) -> BytePairTokenizer:
    """Load the tiktoken tokenizer `name`; raise UsageError if unknown, EnvironmentFailure if not cached and offline."""
    from tiktoken_ext.openai_public import ENCODING_CONSTRUCTORS  # only published vocabularies need it

    if name not in ENCODING_CONSTRUCTORS:
        sentence = f"tiktoken has no vocabulary {shown(name)}; use one of {', '.join(ENCODING_CONSTRUCTORS)}"
        raise UsageError("tokenizer.name", sentence)
    # tiktoken downloads without a timeout, so we download in a thread, and stop waiting after NETWORK_TIMEOUT
    result: dict[str, Any] = {}

    def construct() -> None:
        try:
            result["vocabulary"] = ENCODING_CONSTRUCTORS[name]()
        except Exception as error:  # whatever the download raises becomes one line below
            result["error"] = error

    thread = threading.Thread(target=construct, daemon=True)
    thread.start()
    thread.join(NETWORK_TIMEOUT)
    if "vocabulary" not in result:
        cause = type(result["error"]).__name__ if "error" in result else f"not done in {NETWORK_TIMEOUT} s"
        cause = "no connection" if cause == "ConnectionError" else cause
        cache = "if you have it, name its folder in TIKTOKEN_CACHE_DIR"
        if folder := os.environ.get("TIKTOKEN_CACHE_DIR"):
            cache = f"the folder TIKTOKEN_CACHE_DIR={folder} lacks it"
        sentence = f"the vocabulary {name} cannot be downloaded ({cause}); {cache}"
        hint = "use ‹tokenizer.kind=bpe›, which needs no network, or fill that folder on a machine with network"
        raise EnvironmentFailure("tokenizer.name", sentence, hint=hint)
    vocabulary = result["vocabulary"]
    if vocabulary["pat_str"] not in PATTERNS:
        sentence = "the installed tiktoken splits texts by a pattern that gpt does not support"
        raise EnvironmentFailure(f"tokenizer.name: {name}", sentence, hint="pip install 'tiktoken<0.15'")
    ranks = vocabulary["mergeable_ranks"]
    if max(ranks.values()) >= len(ranks):
        sentence = f"{name} leaves out ids, which gpt does not support"
        raise UsageError("tokenizer.name", sentence, hint="‹tokenizer.name=gpt2›")
    return BytePairTokenizer("tiktoken", vocabulary["pat_str"], sorted(ranks, key=ranks.__getitem__))


def tokenizer_from_dict(stored: Mapping[str, Any]) -> Tokenizer:
    """Build a tokenizer from the data of `to_dict`; raise CheckpointError for anything else."""
    tokenizer: Tokenizer | None = None
    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError, RecursionError):
        if stored["kind"] == "byte":
            tokenizer = ByteTokenizer()
        elif stored["kind"] == "char":
            if len(set(stored["characters"])) == len(stored["characters"]):
                tokenizer = CharTokenizer(stored["characters"])
        elif stored["kind"] in ("bpe", "tiktoken"):
            if (pattern := stored["pattern"]) not in PATTERNS:
                raise CheckpointError("tokenizer", f"it splits texts by {shown(pattern)}, which gpt does not support")
            tokens = [base64.b64decode(token, validate=True) for token in stored["tokens"].split(" ")]
            distinct = set(tokens)
            if {*ByteTokenizer().token_bytes} <= distinct and len(distinct) == len(tokens) and b"" not in distinct:
                tokenizer = BytePairTokenizer(stored["kind"], pattern, tokens)
        elif stored["kind"] == "imported":
            tokenizer = HuggingFaceTokenizer.of_dict(stored)
    if tokenizer is None or tokenizer.to_dict() != stored:
        raise CheckpointError("tokenizer", "this is not a tokenizer that gpt writes")
    return tokenizer
