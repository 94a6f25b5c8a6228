"""Write and read tokenizer.json and tokenizer_config.json, the tokenizer files of transformers. Needs no torch."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpt_cli.common.limits import FOREIGN_CONFIG_BYTES, TOKENIZER_BYTES, TOKENIZER_WORK
from gpt_cli.common.strict_json import plainly, strict_json
from gpt_cli.common.untrusted_files import read_bytes
from gpt_cli.config import Config
from gpt_cli.errors import CheckpointError, GptError, shown
from gpt_cli.text.chat_templates import builtin_template, template_for
from gpt_cli.text.hf_tokenizer import HuggingFaceTokenizer, token_text
from gpt_cli.text.hf_tokenizer_rules import steps, token_names
from gpt_cli.text.split_patterns import as_oniguruma
from gpt_cli.text.tokenizers import END_OF_TEXT, BytePairTokenizer, CharTokenizer, Tokenizer, byte_letters, utf8
from gpt_cli.text.train_tokenizer import tokenizer_from_dict
from gpt_cli.tools.exchange.hf_directory import read_json

PADDING = "<|pad|>"
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
_HINT = "save its tokenizer beside it: AutoTokenizer.from_pretrained(NAME).save_pretrained(DIR)"
_STEPS_HINT = (
    "gpt reads byte pairs, SentencePiece with byte fallback, and WordPiece, each with the steps that published models "
    "have; docs/exchange.md lists them"
)


def padding_id(tokenizer: Tokenizer) -> int:
    """Return the id for padding: of a Hugging Face pad_token, else of byte 0xFF (never in UTF-8), else of end-of-text.

    End-of-text is the last choice: data collators exclude padding from the loss, so a model that is padded with
    end-of-text never learns end-of-text.
    """
    end = tokenizer.end_of_text
    if isinstance(tokenizer, HuggingFaceTokenizer):
        return tokenizer.added.get(token_text(tokenizer.settings.get("pad_token")) or "", {"id": end})["id"]
    spare = [number for number, token in enumerate(tokenizer.token_bytes) if b"\xff" in token]
    return spare[0] if len(spare) == 1 and PADDING.encode() not in tokenizer.token_bytes else end


def tokenizer_json(tokenizer: Tokenizer, padded: bool = True) -> dict[str, Any]:
    """Return the content of a tokenizer.json that splits and encodes every text as `tokenizer` does.

    End-of-text is an added token with the last id; if it were in the vocabulary, its name in a text would be encoded as
    that token. Without `padded`, the file has no padding token, as in exports of earlier versions.
    """
    padding = padding_id(tokenizer) if padded else tokenizer.end_of_text
    if isinstance(tokenizer, CharTokenizer):
        vocabulary = {character: i for i, character in enumerate(tokenizer.characters)}
        # the vocabulary lacks the unknown token, so that an unknown character is an error
        model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<|unknown|>"}
        cut, decoder = split(r"[\s\S]"), {"type": "Fuse"}
    else:
        model = _byte_pairs(tokenizer.token_bytes, padding)
        cut, decoder = BYTE_LEVEL, BYTE_LEVEL
        if isinstance(tokenizer, BytePairTokenizer):
            cut = {"type": "Sequence", "pretokenizers": [split(as_oniguruma(tokenizer.pattern)), BYTE_LEVEL]}
    added = {padding: PADDING, tokenizer.end_of_text: END_OF_TEXT}
    return pipeline(model, cut, decoder, [(number, name, True) for number, name in added.items()])


def pipeline(
    model: Any, cut: Any, decoder: Any, added: Iterable[tuple[int, str, bool]], after: Any = None
) -> dict[str, Any]:
    """Return the content of a tokenizer.json with the parts `model` and `decoder`, and without a normalizer.

    `cut` is the pre-tokenizer, `after` the post-processor; `added` yields (id, text, special) for each added token.
    """
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": name, **flags, "special": special} for number, name, special in added
        ],
        "normalizer": None,
        "pre_tokenizer": cut,
        "post_processor": after,
        "decoder": decoder,
        "model": model,
    }


def chat_template(config: Config, tokenizer: Tokenizer) -> str | None:
    """Return a model's chat template (Jinja); None if the model learned no chats or `tokenizer` has the template."""
    if config.data.loss is None:
        return None
    template = template_for(config.data.template, tokenizer)
    # a plain template also stands in for a template of the tokenizer that gpt does not support
    has_own = template.end is not None and bool(builtin_template(tokenizer))
    return None if has_own and template_for(None, tokenizer) == template else template.jinja(tokenizer)


def tokenizer_files(
    tokenizer: Tokenizer, context_length: int, template: str | None = None, padding_side: str = "left"
) -> tuple[bytes, bytes]:
    """Return the bytes of tokenizer.json (of a Hugging Face tokenizer, unchanged) and of tokenizer_config.json.

    With a chat `template`, the tokenizer recognizes special tokens in a text, since the template writes them as text.
    """
    usual = {
        # without this class, AutoTokenizer would put GPT-2's pattern in the place of ours
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        # the text <|endoftext|> is encoded as plain text, as in gpt
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context_length,
        # by default there are token_type_ids too, for which GPT-2 would add an embedding
        "model_input_names": ["input_ids", "attention_mask"],
    }
    chat = {} if template is None else {"chat_template": template, "split_special_tokens": False}
    if isinstance(tokenizer, HuggingFaceTokenizer):
        settings = tokenizer.settings
        if not settings.keys() - {"chat_template"}:  # from a file without more settings
            settings = {
                **usual,
                "bos_token": tokenizer.token_text(tokenizer.begin([])[0]),
                "eos_token": tokenizer.token_text(tokenizer.end_of_text),
                "split_special_tokens": False,
                **settings,
            }
        return tokenizer.tokenizer_json.encode("utf-8"), json_bytes({**settings, **chat})
    pad = END_OF_TEXT if padding_id(tokenizer) == tokenizer.end_of_text else PADDING
    settings = {**usual, "pad_token": pad, "padding_side": padding_side, **chat}
    return json_bytes(tokenizer_json(tokenizer)), json_bytes(settings)


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """Encode `content` as a JSON file in UTF-8."""
    return json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False).encode("utf-8") + b"\n"


def merges(token_bytes: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the pairs that byte pair encoding merges, in the order of their ranks; `token_bytes` is sorted by rank.

    If earlier merges reduce a token to two parts, these are its pair. Some tokens of published vocabularies have
    more parts; for them, the result has every pair of tokens that forms the token, since tiktoken merges any of them.
    """
    ranks = {token: rank for rank, token in enumerate(token_bytes)}
    pairs: list[tuple[bytes, bytes]] = []
    for rank, token in enumerate(token_bytes):
        parts = _parts(token, ranks, rank)
        if len(parts) == 2:
            pairs.append((parts[0], parts[1]))
        else:
            splits = ((token[:i], token[i:]) for i in range(1, len(token)))
            known_splits = [(one, two) for one, two in splits if one in ranks and two in ranks]
            pairs += sorted(known_splits, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    return pairs


def _parts(token: bytes, ranks: dict[bytes, int], below: int) -> list[bytes]:
    """Merge bytes of `token` by all merges learned before it (rank < `below`, its own rank); return what remains."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 1:
        pairs = [ranks.get(one + two, below) for one, two in pairwise(parts)]
        rank = min(pairs)
        if rank >= below:
            break
        at = pairs.index(rank)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def _byte_pairs(token_bytes: Sequence[bytes], padding: int) -> dict[str, Any]:
    letters = byte_letters()
    names = {token: "".join(letters[byte] for byte in token) for token in token_bytes}
    pairs = merges(token_bytes)
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        # as tiktoken does: a piece that is a token is that token; without merges, a text is one piece, perhaps <|pad|>
        "ignore_merges": bool(pairs),
        "vocab": {PADDING if rank == padding else name: rank for rank, name in enumerate(names.values())},
        "merges": [[names[one], names[two]] for one, two in pairs],
    }


def split(pattern: str) -> dict[str, Any]:
    """Return the pre-tokenizer step that splits a text into the matches of `pattern` and the text between them."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def read_tokenizer(directory: Path, end_of_text: int | list[int] | None, info: Mapping[str, Any] | None) -> Tokenizer:
    """Return the tokenizer of a directory, from tokenizer.json, or from vocab.json and merges.txt.

    `end_of_text` is eos_token_id of config.json, `info` the tokenizer's kind and pattern that `gpt export` stored.
    Raises CheckpointError for a tokenizer that would encode a text to other ids in gpt than in transformers.
    """
    path, settings = directory / "tokenizer.json", dict[str, Any]()
    if (directory / "tokenizer_config.json").exists():
        settings = read_json(directory / "tokenizer_config.json", "the config of a tokenizer", FOREIGN_CONFIG_BYTES)
        settings.pop("auto_map", None)  # code of others, which gpt does not store
    if (directory / "chat_template.jinja").exists():  # as transformers writes it since version 4.52
        settings["chat_template"] = _text(directory / "chat_template.jinja", "a chat template")
    if path.exists():
        text, where = _text(path, "a tokenizer"), shown(path)
    else:
        text, where = _of_files(directory, settings), shown(directory / "vocab.json")
    try:
        content = strict_json(text)
        ours = _ours(content, info or {})
        names = {} if ours else token_names(content)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise CheckpointError(where, f"this is not a tokenizer: {plainly(error)}") from error
    if ours:
        return ours
    return checked(text, settings, _end_of_text(names, end_of_text, settings, where), names, where)


def checked(
    text: str, settings: Mapping[str, Any], end_of_text: int, names: Mapping[int, str], where: str
) -> HuggingFaceTokenizer:
    """Return the tokenizer of a tokenizer.json (content `text`) and a tokenizer_config.json (content `settings`).

    `names` maps ids to tokens. Raises one CheckpointError, about the file `where`, for all unsupported features, or for
    a file that the library tokenizers cannot read.
    """
    tokenizer = HuggingFaceTokenizer(text, settings, end_of_text, max(names) + 1)
    try:
        _, after = tokenizer.added_ids
        _ = tokenizer.library
    except GptError as error:
        for problem in (error, *error.others):
            problem.where, problem.hint = where, _STEPS_HINT
        raise
    if others := [number for number in after if number != end_of_text]:
        raise CheckpointError(where, f"it puts {shown(names[others[0]])} after every text, which gpt does not do")
    return tokenizer


def _text(path: Path, what: str) -> str:
    try:
        return read_bytes(path, CheckpointError, most=(what, TOKENIZER_BYTES)).decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(shown(path), "this is not UTF-8 text") from error


def _of_files(directory: Path, settings: Mapping[str, Any]) -> str:
    """Return a tokenizer.json built from GPT-2's older files: vocab.json with ids, merges.txt with merges."""
    if not (directory / "vocab.json").exists() or not (directory / "merges.txt").exists():
        sentence = "it has no tokenizer: neither tokenizer.json nor vocab.json with merges.txt"
        raise CheckpointError(shown(directory), sentence, hint=_HINT)
    vocabulary = read_json(directory / "vocab.json", "a vocabulary", TOKENIZER_BYTES)
    lines = _text(directory / "merges.txt", "a list of merges").split("\n")
    pairs = [line.rstrip("\r") for line in lines if line.strip() and not line.startswith("#version")]
    added = {}
    if (directory / "added_tokens.json").exists():
        added = read_json(directory / "added_tokens.json", "a list of tokens", FOREIGN_CONFIG_BYTES)
    if END_OF_TEXT in vocabulary:
        added = {END_OF_TEXT: vocabulary[END_OF_TEXT], **added}
    by_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    cut = by_bytes | {"add_prefix_space": settings.get("add_prefix_space") is True}
    tokens = ((number, name, name == END_OF_TEXT) for name, number in added.items())
    content = pipeline({"type": "BPE", "vocab": vocabulary, "merges": pairs}, cut, by_bytes, tokens)
    return json.dumps(content, ensure_ascii=False)


def _end_of_text(
    names: Mapping[int, str], configured: int | list[int] | None, settings: Mapping[str, Any], where: str
) -> int:
    """Return the id of end-of-text: `configured` in config.json, else eos_token of `settings`, else <|endoftext|>."""
    for number in configured if isinstance(configured, list) else [configured]:
        if type(number) is int and number in names:
            return number
    ids = {name: number for number, name in names.items()}
    for name in (token_text(settings.get("eos_token")), END_OF_TEXT):
        if name in ids:
            return ids[name]
    hint = "name one of its tokens as eos_token_id in config.json"
    raise CheckpointError(where, "it has no end-of-text token, which joins documents and starts texts", hint=hint)


def rebuilt(info: Mapping[str, Any], names: Sequence[str], *, by_letters: bool) -> Tokenizer | None:
    """Rebuild the gpt_cli tokenizer of an export, for comparison with its file; None if impossible or too slow.

    `info` is the kind and pattern that `gpt export` stored, `names` are the texts of the tokens by id; with
    `by_letters`, each letter of a text encodes one byte, as in GPT-2's vocabulary.
    """
    if sum(len(name) ** 2 for name in names) > TOKENIZER_WORK:
        return None
    kind, letters, content = info.get("kind"), {letter: byte for byte, letter in enumerate(byte_letters())}, {}
    try:
        tokens = [bytes(map(letters.__getitem__, name)) if by_letters else utf8(name) for name in names]
        if kind == "char":
            content = {"characters": b"".join(tokens).decode("utf-8")}
        elif kind != "byte":
            content = BytePairTokenizer(info["kind"], info["pattern"], tokens).to_dict()
        return tokenizer_from_dict({"kind": kind, **content})
    except (GptError, KeyError, TypeError, ValueError):
        return None


def _ours(content: Mapping[str, Any], info: Mapping[str, Any]) -> Tokenizer | None:
    """Return the gpt_cli tokenizer that `gpt export` wrote as the tokenizer.json `content`; None for any other."""
    model = content["model"]
    if not isinstance(model.get("vocab"), dict):
        return None
    if model.get("merges") == []:  # earlier versions of gpt wrote ignore_merges here too
        content = {**content, "model": {**model, "ignore_merges": False}}
    names = sorted(model["vocab"], key=model["vocab"].__getitem__)
    if (padded := PADDING in names) and len(spare := set(byte_letters()).difference(names)) == 1:
        names[names.index(PADDING)] = spare.pop()  # the byte that the padding replaces
    tokenizer = rebuilt(info, names, by_letters=info.get("kind") != "char")
    # save_pretrained of transformers writes a template that adds nothing
    adds = any("Sequence" not in piece for step in steps(content, "post_processor") for piece in step.get("single", ()))
    same = tokenizer and not adds and tokenizer_json(tokenizer, padded) == {**content, "post_processor": None}
    return tokenizer if same else None
