"""Every table of the package with a row for each activation has all of them, and what lacks one refuses it by name.

An activation that only a config and the model know stands for the next one that somebody adds.
"""

import re
from collections.abc import Collection, Mapping
from typing import get_args

import pytest
import torch.nn.functional as F
from support.helpers import small_config
from support.package import PACKAGE

from gpt_cli.config import ModelConfig
from gpt_cli.errors import UsageError
from gpt_cli.model import GPT
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.fast import c_decoder
from gpt_cli.tools.exchange.families import FAMILIES, fit
from gpt_cli.tools.exchange.gguf.architectures import ARCHITECTURES, architecture_of

ACTIVATIONS: tuple[str, ...] = get_args(ModelConfig.model_fields["activation"].annotation)
UNHEARD_OF = "unheard_of"
C_CODE = PACKAGE / "sampling/fast/token.c"
LAYERS = PACKAGE / "tools/pages/model/engine/layers.js"
# for which an export says that there is no such model
NOT_IN_TRANSFORMERS = set[str]()
NOT_IN_LLAMA_CPP = NOT_IN_TRANSFORMERS | {"relu", "geglu"}


def listed(pattern: str, text: str) -> str:
    (found,) = re.findall(pattern, text, re.DOTALL | re.MULTILINE)
    return found


TABLES: Mapping[str, Collection[str]] = {
    "_ACTIVATIONS of sampling/fast/c_decoder.py": c_decoder._ACTIVATIONS,
    "activations of tools/exchange/families/, or to NOT_IN_TRANSFORMERS here": NOT_IN_TRANSFORMERS
    | {ours for family in FAMILIES.values() for ours in family.activations.values()},
    "activations of tools/exchange/gguf/architectures.py, or to NOT_IN_LLAMA_CPP here": NOT_IN_LLAMA_CPP
    | {ours for one in ARCHITECTURES.values() for ours in one.activations},
    "ACTIVATIONS of tools/pages/model/engine/layers.js": re.findall(
        r"^  (\w+)[:,]", listed(r"^const ACTIVATIONS = \{$(.*?)^\};$", LAYERS.read_text("utf-8")), re.MULTILINE
    ),
}


@pytest.mark.parametrize("table", TABLES)
def test_a_table_lists_every_activation(table: str) -> None:
    assert set(TABLES[table]) == set(ACTIVATIONS), f"add the new activation to {table}"


def test_the_c_code_has_the_numbers_of_the_table() -> None:
    names = listed(r"^enum \{ (GELU,.*?) \};", C_CODE.read_text("utf-8")).lower().split(", ")
    gates = {"swiglu": "silu", "geglu": "gelu"}
    assert {name: names.index(gates.get(name, name)) for name in ACTIVATIONS} == c_decoder._ACTIVATIONS


def with_an_unheard_of_activation(*settings: str) -> ModelConfig:
    model = small_config(*(f"model.{setting}" for setting in settings)).model
    return model.model_copy(update={"activation": UNHEARD_OF})


@pytest.mark.parametrize(
    ("settings", "class_name"),
    [
        ((), "GPT2LMHeadModel"),
        (("positions=rope",), "Starcoder2ForCausalLM"),
        (("positions=rope", "norm=rmsnorm"), "ArceeForCausalLM"),
    ],
)
def test_exports_refuse_an_activation_that_they_do_not_know(settings: tuple[str, ...], class_name: str) -> None:
    config = with_an_unheard_of_activation(*settings)
    for refused in (lambda: fit(config, 257), lambda: architecture_of(config, 257)):
        with pytest.raises(UsageError, match=f"{class_name}, .*, lacks this; gelu can be exported") as raised:
            refused()
        assert raised.value.where == "model.activation"


def test_decoding_computes_an_activation_that_c_code_does_not_know_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_decoder, "library", object)  # as if there were a compiler
    model = GPT(small_config("model.activation=relu").model, 257)
    assert c_decoder.can_compile(model)
    model.config = with_an_unheard_of_activation()
    for block in model.blocks:
        block.feed_forward.activation = F.mish
    assert not c_decoder.can_compile(model)
    assert Decoder(model, compiled=True).prefill([[1, 2, 3]]).shape == (1, 257)
