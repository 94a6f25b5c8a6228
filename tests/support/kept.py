"""Tokenizers of others as directories: each kind of pipeline that published models have, learned from a few texts."""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from gpt_cli.text.split_patterns import OLD_CL100K_PATTERN, QWEN2_PATTERN
from support.tokenizers import HOSTILE

_CORPUS = [
    *HOSTILE * 3,
    "The value of the function is the value of its argument. Don't they run? 今天天气很好。\n" * 20,
]
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def _byte_level(tokenizer: Tokenizer, special: list[str], pattern: str | None = None, *first: Any) -> Tokenizer:
    """Byte pairs as GPT-2's, cut by a pattern of their own or GPT-2's, after other steps."""
    cut = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)]
    if pattern:
        cut = [pre_tokenizers.Split(Regex(pattern), "isolated"), *cut]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*first, *cut]) if first or pattern else cut[0]
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return tokenizer


def gpt2() -> tuple[Tokenizer, dict[str, Any]]:
    return _byte_level(Tokenizer(models.BPE()), ["<|endoftext|>"]), {"eos_token": "<|endoftext|>"}


def pythia() -> tuple[Tokenizer, dict[str, Any]]:
    """NFC, and runs of spaces among the added tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer = _byte_level(tokenizer, ["<|endoftext|>", "<|padding|>"])
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(8, 1, -1)])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B", special_tokens=[])
    return tokenizer, {"eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>"}


def llama3() -> tuple[Tokenizer, dict[str, Any]]:
    """Its pattern, whole words first, and a template that begins every text."""
    tokenizer = _byte_level(Tokenizer(models.BPE(ignore_merges=True)), [], OLD_CL100K_PATTERN)
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    first = tokenizer.token_to_id("<|begin_of_text|>")
    template = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B", special_tokens=[("<|begin_of_text|>", first)]
    )
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer, {"eos_token": "<|end_of_text|>", "bos_token": "<|begin_of_text|>"}


def qwen() -> tuple[Tokenizer, dict[str, Any]]:
    """NFC, its pattern, and added tokens of which some are not special."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer = _byte_level(tokenizer, [], QWEN2_PATTERN)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens(["<tool_call>", "<think>"])
    return tokenizer, {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "add_bos_token": False}


def smollm() -> tuple[Tokenizer, dict[str, Any]]:
    """Digits one by one, and end-of-text first."""
    tokenizer = _byte_level(Tokenizer(models.BPE()), ["<|endoftext|>"], None, pre_tokenizers.Digits(True))
    return tokenizer, {"eos_token": "<|endoftext|>"}


def _sentencepiece() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")  # as its trainer cuts words
    known = trainers.BpeTrainer(vocab_size=600, special_tokens=["<unk>", "<s>", "</s>", *_BYTES], limit_alphabet=70, show_progress=False)  # fmt: skip
    tokenizer.train_from_iterator(_CORPUS, known)
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = content["added_tokens"][:3]  # bytes are tokens of the model alone
    return Tokenizer.from_str(json.dumps(content))


def llama2() -> tuple[Tokenizer, dict[str, Any]]:
    """SentencePiece with byte fallback: a mark before the text and in the place of spaces, no cut into words."""
    tokenizer = _sentencepiece()
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = None  # type: ignore[assignment]
    fallback = [decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), *fallback])
    first = ("<s>", 1)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[first]
    )
    return tokenizer, {"eos_token": "</s>", "bos_token": "<s>", "unk_token": "<unk>", "add_bos_token": True}


def mistral() -> tuple[Tokenizer, dict[str, Any]]:
    """The same in its newer form."""
    tokenizer, settings = llama2()
    tokenizer.normalizer = None  # type: ignore[assignment]
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    return tokenizer, settings


def simplestories() -> tuple[Tokenizer, dict[str, Any]]:
    """Words in lower case; the template ends texts as gpt joins documents."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    steps = [normalizers.Lowercase(), normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    tokenizer.normalizer = normalizers.Sequence(steps)
    cut = [pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits(True)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cut)
    tokenizer.decoder = decoders.WordPiece("##")
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=["[UNK]", "[EOS]"], show_progress=False)
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A [EOS]", special_tokens=[("[EOS]", 1)])
    return tokenizer, {"eos_token": "[EOS]", "unk_token": "[UNK]"}


PIPELINES = {made.__name__: made for made in (gpt2, pythia, llama3, qwen, smollm, llama2, mistral, simplestories)}


def save(name: str, folder: Path) -> Path:
    """The tokenizer's files in a new folder, as transformers finds them."""
    tokenizer, settings = PIPELINES[name]()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    content = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(content))
    return folder
