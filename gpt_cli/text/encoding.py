"""From a corpus to the ids that a model is trained on, and those that are kept for validation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpt_cli.config import Config
from gpt_cli.text.corpus import Corpus
from gpt_cli.text.tokenizer import Tokenizer, make_tokenizer
from gpt_cli.text.tokens import check_length, data_digest, encode_documents


@dataclass(frozen=True)
class EncodedText:
    """A text as its tokenizer sees it: ids [tokens] of the training part and of the validation part."""

    tokenizer: Tokenizer
    ids: np.ndarray
    validation_ids: np.ndarray

    @property
    def digest(self) -> str:
        """The sha256 by which a run recognises its text."""
        return data_digest(self.ids, self.validation_ids)


def encode_corpus(
    corpus: Corpus,
    config: Config,
    tokenizer: Tokenizer | None = None,
    count: Callable[[int], object] = lambda _: None,
) -> EncodedText:
    """Split a corpus and encode both parts, with a tokenizer of their own where none is given.

    `count` receives the number of characters encoded since its last call. Raises DataError for too little text.
    """
    training, validation = corpus.split(config.data.validation_fraction)
    if tokenizer is None:
        tokenizer = make_tokenizer(config.tokenizer, training.documents, validation.documents)
    ids = encode_documents(training.documents, tokenizer, count)
    validation_ids = encode_documents(validation.documents, tokenizer, count)
    check_length(ids, validation_ids, config.model.context_length)
    return EncodedText(tokenizer, ids, validation_ids)
