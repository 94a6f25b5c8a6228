"""The page on the forms of attention, in both languages: its commands run, and print what it shows; its counts are those
of the models. To the digit where nothing is trained, else in form."""

import contextlib
import io
import re
import shlex
import sys

import pytest
from support.documents import DOCS, Shell, form, in_both_languages, is_in_order, looking, reads_the_same_text, shown
from support.faults import SCALE

from benchmarks import forms
from gpt_cli.common.machine.devices import cpu_multiplies_bfloat16
from gpt_cli.config.load import read_config
from gpt_cli.model import GPT

PAGES = ("forms.md", "forms.zh-CN.md")


@pytest.fixture(scope="module")
def benchmark() -> list[str]:
    """What `python -m benchmarks.forms` prints."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        quickly = "forms --rounds 1 --tokens 3 --set train.max_steps=1 --set data.validation_fraction=0.01"
        patch.setattr(sys, "argv", quickly.split())
        forms.main()
    return out.getvalue().splitlines()


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_print_what_the_page_shows(page: str, shell: Shell, request: pytest.FixtureRequest) -> None:
    same_text = reads_the_same_text(shell)
    found = shown(page)
    assert len(found) == 10, f"docs/{page}: another number of commands; say it here, and show the same on both pages"
    for command, lines in found:
        words = shlex.split(command)[1:]
        if words[:2] == ["-m", "benchmarks.forms"]:
            if SCALE >= 1:
                printed = request.getfixturevalue("benchmark")
                assert counts(lines) == counts(printed), f"docs/{page}: show what `{command}` prints now, on both pages"
            continue
        if words[0] == "train":
            command += (
                " --max-steps 2 --set train.batch_size=2 --set data.validation_tokens=256 --set train.eval_tokens=256"
            )
        outcome = shell.run(command)
        printed = in_both_languages([line.rstrip() for line in (outcome.err + outcome.out).splitlines()])
        if same_text or words[:2] != ["explain", "--run"]:
            assert is_in_order(list(map(form, lines)), list(map(form, printed))), command
        if words[0] == "info" or "--study" in words:
            assert is_in_order(lines, printed), command
        if words[0] == "train":
            assert is_in_order([line for line in lines if line.startswith(("parameters", "参数量"))], printed), command


def counts(lines: list[str]) -> list[list[str]]:
    """Of each row of the tables of `python -m benchmarks.forms`: the form, and its columns that no machine changes."""
    rows = [re.split(r"  +", line) for line in lines]
    layers = [row[:2] for row in rows if len(row) == 4]
    models = [[row[0], row[1], row[2], row[4], row[6]] for row in rows if len(row) == 8]
    if not cpu_multiplies_bfloat16():  # there, training is in float32, and its memory is not that on the page
        models = [[*row[:3], row[4]] for row in models]
    assert (len(layers), len(models)) == (6, 4), "the rows of `python -m benchmarks.forms`: say their number here"
    return layers + models


@pytest.mark.parametrize("page", PAGES)
def test_the_counts_of_parameters_and_of_the_cache_are_those_of_the_models(page: str) -> None:
    text = (DOCS / page).read_text()
    D, H, K, G, C, R = 128, 4, 32, 1, 32, 16
    formulas = {
        "multi-head": (4 * D**2, 2 * D),
        "grouped-query": (2 * D**2 + 2 * G * K * D, 2 * G * K),
        "latent": (C * D + R * D + D**2 + H * R * D + 2 * C * D + D**2, C + R),
    }
    for name, (parameters, kept) in formulas.items():
        sizes = read_config(name).model
        attention = GPT(sizes, 10).blocks[0].attention
        assert sum(parameter.numel() for parameter in attention.parameters()) == parameters
        assert sizes.cached_size == kept
        assert f"{parameters:,}" in text, f"docs/{page}: the table of parameters, row {name}"
    latent = read_config("latent").model
    assert (latent.d_model, latent.num_heads, latent.key_value_latent, latent.rotated_size) == (D, H, C, R)


@pytest.mark.parametrize("page", PAGES)
def test_each_number_of_the_head_follows_from_those_left_of_it(page: str) -> None:
    (lines,) = [lines for command, lines in shown(page) if command.startswith("gpt explain --run")]
    looking(lines, num_rows=4, size=48)


@pytest.mark.parametrize("page", PAGES)
def test_the_python_prints_what_follows_it(page: str) -> None:
    text = (DOCS / page).read_text()
    (found,) = re.findall(r"^```python\n(.*?)^```\n\n```\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    code, printed = found
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, {})
    assert out.getvalue() == printed


def test_both_pages_show_the_same_outputs() -> None:
    english, chinese = (
        [
            (command.removesuffix(" --language zh"), [re.findall(r"\d+(?:[.,]\d+)*", line) for line in lines])
            for command, lines in shown(page)
        ]
        for page in PAGES
    )
    for (command, one), (other_command, other) in zip(english, chinese, strict=True):
        assert command == other_command
        assert one == other, command
