import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.exchange import sharp_checkpoint
from support.helpers import small_config

from gpt_cli.checkpoints.header import Progress
from gpt_cli.config import Config
from gpt_cli.text.tokenizers import ByteTokenizer, CharTokenizer, Tokenizer
from gpt_cli.tools.exchange.export_hf import model_card, shareable, write_for_transformers
from gpt_cli.tools.exchange.families import fit
from gpt_cli.tools.exchange.model_page import first_prompt


def progress(num_steps: int, num_tokens: int, **losses: float) -> Progress:
    return replace(Progress.at_the_start(num_tokens, "", {}), step=num_steps, **losses)


def card_of(name: str, config: Config, reached: Progress) -> str:
    return model_card(name, config, fit(config.model, 257), reached, prompt="The", end_pads=False)


def test_the_card_says_what_the_model_is_and_how_to_load_it() -> None:
    config = small_config("model.positions=sinusoidal", "data.source=[a.txt, b.txt]")
    text = card_of("mine", config, progress(8, 1234, loss=2.5, best_loss=2.25))
    for part in (
        "on `a.txt`, `b.txt` (1,234 tokens) for 8 steps.",
        "Loss of the last step: 2.5000 nats/token.",
        "Lowest validation loss until then: 2.2500 nats/token.",
        "its class is `GPT2LMHeadModel`, with ",
        'model = AutoModelForCausalLM.from_pretrained("mine")',
        "- the table of sinusoidal positions is a weight",
        "  positions: sinusoidal\n",
    ):
        assert part in text


def test_the_card_has_tags_and_what_is_known_of_the_texts() -> None:
    def card(*settings: str, num_steps: int = 8) -> str:
        config = small_config(*settings)
        return card_of("x", config, progress(num_steps, 9))

    of_characters = card("data.source=lunyu", "tokenizer.kind=char")
    assert "pipeline_tag: text-generation\nlanguage: zh\ntags:\n- gpt-cli\n- char\n---\n" in of_characters
    assert "any other character is an error of the tokenizer" in of_characters
    assert "Licences of its texts: `lunyu`: MIT; texts in the public domain." in of_characters
    two = card("data.source=[python-docs, lunyu]", "tokenizer.kind=bpe")
    assert "any other character" not in two
    assert "language:" not in two
    own = card("data.source=[python-docs, my.txt]")
    assert "language:" not in own, "nobody knows that of my.txt"
    assert "Licences of its texts: `python-docs`: PSF-2.0." in own
    assert "licences" not in card("data.source=my.txt").lower()
    assert "language:" not in card("data.source=python-docs", num_steps=0), "imported: the source is a default"


@pytest.mark.parametrize(
    ("tokenizer", "prompt", "begin"),
    [
        (ByteTokenizer(), None, "The"),
        (CharTokenizer("今天好吗"), None, "今天"),
        (CharTokenizer("子曰学而"), "学而", "学而"),
    ],
    ids=["bytes", "characters", "characters and a prompt"],
)
def test_the_python_of_the_card_runs(
    tokenizer: Tokenizer,
    prompt: str | None,
    begin: str,
    transformers: Any,
    here: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    checkpoint = sharp_checkpoint("model.num_blocks=1", tokenizer=tokenizer)
    write_for_transformers(here / "mine", checkpoint, prompt or first_prompt(checkpoint.config, tokenizer))
    (code,) = re.findall(r"```python\n(.*?)```", (here / "mine" / "README.md").read_text("utf-8"), re.DOTALL)
    torch.manual_seed(0)  # it samples, and transformers warns where the last token happens to be the one that pads
    exec(code, {})  # what a reader of the card types
    assert capsys.readouterr().out.replace(" ", "").startswith(begin)


def test_a_model_that_never_took_a_step_has_no_losses() -> None:
    config = small_config()
    text = card_of("mine", config, progress(0, 1))
    assert "nats/token" not in text
    assert "which did not train it" in text
    assert "python-docs" not in text.partition("## Settings")[0], "a default, which says nothing of an imported model"


def test_folders_of_texts_are_left_out() -> None:
    one = shareable(small_config("data.source=/home/ann/diary.txt", "data.validation_source=[x/*.txt, python-docs]"))
    assert (one.data.source, one.data.validation_source) == ("diary.txt", ["*.txt", "python-docs"])
    assert shareable(small_config("data.source=-")).data.source == "-"
    assert shareable(small_config("data.source=/home/ann/lunyu")).data.source == "./lunyu", "not that of the catalogue"
