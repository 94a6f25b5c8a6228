"""Encode conversations with chat templates: add the text around each turn, and mark the tokens of answers.

The Jinja template of a tokenizer is never executed. gpt recognises the ChatML and Llama 3 templates by their special
tokens, and uses a plain template in place of any other.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpt_cli.common.host import Notify, ignored
from gpt_cli.config.schema import NAMED_TEMPLATES, PROMPT
from gpt_cli.errors import UsageError
from gpt_cli.text.conversations import ROLES, Turn
from gpt_cli.text.hf_tokenizer import HuggingFaceTokenizer
from gpt_cli.text.tokenizers import Tokenizer

PLAIN = f"{PROMPT}\n"
# special tokens by which gpt recognises a template, unless _OTHERWISE matches: Llama 3.2 writes the current date
_MARKS = {"chatml": ("<|im_start|>", "<|im_end|>"), "llama3": ("<|start_header_id|>", "<|eot_id|>")}
_OTHERWISE = re.compile("strftime|date_string|think|image")
_DEFAULT_SYSTEM = re.compile(r"<\|im_start\|>system(?:\\n|\n)([^<{}'\"+]+)<\|im_end\|>")


class Encoded(NamedTuple):
    """The token ids of a conversation, and the loss mask `learned`: True for answers and their end tokens."""

    ids: list[int]
    learned: list[bool]


@dataclass(frozen=True)
class Template:
    """A chat template: the text `before` and `after` a turn of each role, and the token that ends an answer (`end`)."""

    name: str  # the value of the setting data.template
    before: tuple[str, ...]  # of each of ROLES
    after: tuple[str, ...]
    end: str | None = None  # None: end-of-text
    begin: str | None = None  # before everything; None: what the tokenizer puts before every text
    default_system: str | None = None  # the system message if a conversation has none
    strips: bool = False  # whether white space around a content is left out

    def end_id(self, tokenizer: Tokenizer) -> int:
        """Return the id of the token that ends an answer."""
        return tokenizer.end_of_text if self.end is None else int(tokenizer.array(self.end)[0])

    def default_turn(self) -> str:
        """Return the default system message with the text around it, an empty string without such a message."""
        return "" if self.default_system is None else self.before[0] + self.default_system + self.after[0]

    def encode(self, turns: Sequence[Turn], tokenizer: Tokenizer) -> Encoded:
        """Encode turns; if the last turn is a question, append the text that begins an answer.

        Tokenizes the text of each answer separately, because a model also generates an answer after the tokens of a
        finished prompt. Raises DataError for a character that the vocabulary lacks.
        """
        if self.default_system is not None and turns[0].role != "system":
            turns = [Turn("system", self.default_system), *turns]
        ids, learned, held = list[int](), list[bool](), self.begin or ""

        def add(text: str, *ends: int, learn: bool) -> None:
            more = [*(tokenizer.array(text).tolist() if text else ()), *ends]
            more = tokenizer.begin(more) if not ids and self.begin is None else more
            ids.extend(more)
            learned.extend([learn] * len(more))

        for role, content in turns:
            number = ROLES.index(role)
            content = content.strip() if self.strips else content
            held += self.before[number]
            if role == "assistant":
                add(held, learn=False)
                add(content, self.end_id(tokenizer), learn=True)
                held = self.after[number]
            else:
                held += content + self.after[number]
        if turns[-1].role != "assistant":
            add(held + self.before[2], learn=False)
        return Encoded(ids, learned)

    def text(self, turns: Sequence[Turn]) -> str:
        """Return the turns in this template as one string, without end-of-answer tokens, to train a tokenizer on."""
        numbered = ((ROLES.index(role), content) for role, content in turns)
        return "".join(self.before[number] + content + self.after[number] for number, content in numbered)

    def jinja(self, tokenizer: Tokenizer) -> str:
        """Return the template as Jinja source, the form that transformers and llama.cpp store with a tokenizer."""
        begin = "bos_token" if self.begin is None else _quoted(self.begin)
        begins = f"{{{{ {begin} }}}}" if tokenizer.starts_with or self.begin else ""
        if system := self.default_turn():
            begins += f"{{% if messages[0]['role'] != 'system' %}}{{{{ {_quoted(system)} }}}}{{% endif %}}"
        end = _quoted(self.end or tokenizer.token_text(tokenizer.end_of_text))
        content = "message['content'] | trim" if self.strips else "message['content']"
        ends = (*(_quoted(after) for after in self.after[:2]), f"{end} + {_quoted(self.after[2])}")
        parts = [
            f"{{% {word} message['role'] == '{role}' %}}{{{{ {_quoted(before)} + ({content}) + {after} }}}}"
            for word, role, before, after in zip(("if", "elif", "elif"), ROLES, self.before, ends, strict=True)
        ]
        turns = f"{{% for message in messages %}}{''.join(parts)}{{% endif %}}{{% endfor %}}"
        return f"{begins}{turns}{{% if add_generation_prompt %}}{{{{ {_quoted(self.before[2])} }}}}{{% endif %}}"


def plain_template(pattern: str = PLAIN) -> Template:
    """Return a template: the system message on a line, `pattern` with the question as {prompt}, then the answer."""
    before, _, after = pattern.partition(PROMPT)
    return Template(pattern, ("", before, ""), ("\n", after, ""))


def builtin_template(tokenizer: Tokenizer) -> str:
    """Return the Jinja source of the tokenizer's own chat template, or an empty string if the tokenizer has none."""
    template = tokenizer.settings.get("chat_template") if isinstance(tokenizer, HuggingFaceTokenizer) else None
    return template if isinstance(template, str) else ""


def template_for(setting: str | None, tokenizer: Tokenizer, notice: Notify = ignored) -> Template:
    """Return the template for the setting `data.template`: chatml, llama3, a pattern with {prompt}, or None.

    None selects the tokenizer's template if gpt supports it, else `plain_template`; `notice` receives a line about a
    template that gpt does not support. Raises UsageError if the tokenizer lacks the tokens of chatml or llama3.
    """
    chat_template = builtin_template(tokenizer)
    if setting is None and not _OTHERWISE.search(chat_template):
        for name, marks in _MARKS.items():
            if all(mark in chat_template for mark in marks) and _has(tokenizer, marks):
                setting = name
    if setting is None and chat_template:
        notice(f"gpt does not support the chat template of this tokenizer, so it writes questions as {PLAIN!r}")
    if setting not in NAMED_TEMPLATES:
        return plain_template(setting or PLAIN)
    if not _has(tokenizer, _MARKS[setting]):
        lacks = " and ".join(_MARKS[setting])
        sentence = f"{setting} needs a tokenizer with the tokens {lacks}, but this one lacks them"
        raise UsageError("data.template", sentence, hint="‹data.template=null›")
    if setting == "llama3":
        heads = tuple(f"<|start_header_id|>{role}<|end_header_id|>\n\n" for role in ROLES)
        begin = "<|begin_of_text|>" if _has(tokenizer, ("<|begin_of_text|>",)) else ""
        return Template(setting, heads, ("<|eot_id|>", "<|eot_id|>", ""), "<|eot_id|>", begin, strips=True)
    heads, ends = tuple(f"<|im_start|>{role}\n" for role in ROLES), ("<|im_end|>\n", "<|im_end|>\n", "\n")
    said = _DEFAULT_SYSTEM.search(chat_template)
    return Template(setting, heads, ends, "<|im_end|>", "", default_system=said[1] if said else None)


def _has(tokenizer: Tokenizer, names: Sequence[str]) -> bool:
    """Return whether the tokenizer encodes each string of `names`, such as <|im_start|>, as one added token."""
    if not isinstance(tokenizer, HuggingFaceTokenizer) or tokenizer.splits_special:
        return False
    return all(name in tokenizer.added for name in names)


def _quoted(text: str) -> str:
    """Return a text as a quoted Jinja string."""
    return json.dumps(text, ensure_ascii=False)
