"""The pages fit together: links, languages, settings, the Python they show, and the targets of make."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.documents import (
    CHINESE,
    DOCS,
    ENGLISH,
    ROOT,
    anchors,
    blocks,
    commands,
    in_both_languages,
    is_in_order,
)
from support.helpers import RunCommand

import gpt_cli
from gpt_cli.attention_maps.head_metrics import COLUMNS, ROLES
from gpt_cli.tools.bench.device_check import Checked, DeviceRuns, Group, checks
from gpt_cli.tools.interpret.heads.view import HEADINGS

LINKED = [*ENGLISH, *CHINESE, ROOT / "tests/support/README.md", ROOT / "data/README.md"]


def links(page: Path) -> list[str]:
    """The targets of links and pictures, those in code left out."""
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"\]\(([^)\s]+)\)", text)


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize(("name", "pages"), [("README.md", ENGLISH), ("README.zh-CN.md", CHINESE)])
def test_every_page_is_linked_from_the_first_page_of_its_language(name: str, pages: list[Path]) -> None:
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in links(ROOT / name)}
    others = {page.with_suffix(".md") for page in ENGLISH if not page.with_suffix(".zh-CN.md").exists()}
    assert {*pages, *others, ROOT / "README.md", ROOT / "README.zh-CN.md"} - linked == {ROOT / name}


# runs that a page shows a second time, and says so
AGAIN = {
    "training.md": ["runs/tiny"],
    "training.zh-CN.md": ["runs/lunyu"],
    "evidence.md": ["runs/induction", "runs/circuit"],
    "evidence.zh-CN.md": ["runs/induction", "runs/circuit"],
}


@pytest.mark.parametrize("pages", [ENGLISH, CHINESE], ids=["en", "zh"])
def test_no_page_trains_into_the_directory_of_another(pages: list[Path]) -> None:
    """So that whoever reads one page after the other meets no run that is there already."""
    trained: dict[str, str] = {}
    for page in pages:
        for command in commands(page):
            words = shlex.split(command)
            if words[1] != "train" or {"--resume", "--overwrite", "--dry-run"} & set(words):
                continue
            name = words[words.index("--config") + 1] if "--config" in words else "auto"
            out = words[words.index("--out") + 1] if "--out" in words else f"runs/{name}"
            if out not in AGAIN.get(page.name, []):
                assert out not in trained, f"{page.name} and {trained[out]} train {out}"
                trained[out] = page.name
    assert len(trained) > 15


@pytest.mark.parametrize("page", CHINESE, ids=lambda page: page.name)
def test_both_languages_have_the_same_code_and_pictures(page: Path) -> None:
    english = page.with_name(page.name.replace(".zh-CN", ""))
    assert blocks(page, "python") == blocks(english, "python")
    assert [link for link in links(page) if link.endswith(".png")] == [
        link for link in links(english) if link.endswith(".png")
    ]


@pytest.mark.parametrize("name", ["lesson", "forms", "induction", "circuit", "evidence"])
def test_both_languages_have_the_same_chapters_and_outputs(name: str) -> None:
    pages = [DOCS / f"{name}.md", DOCS / f"{name}.zh-CN.md"]
    chapters = [re.findall(r"^## (\d*)", page.read_text(), re.MULTILINE) for page in pages]
    assert chapters[0] == chapters[1]
    numbers = [int(number) for number in chapters[0] if number]
    assert numbers == [*range(1, len(numbers) + 1)]
    for kind in ("console", "text") if name not in ("lesson", "forms") else ():  # those two have Chinese outputs
        for one, other in zip(*(blocks(page, kind) for page in pages), strict=True):
            pairs = zip(one.splitlines(), other.splitlines(), strict=True)
            assert not [line for line, said in pairs if said not in in_both_languages([line])]


def test_both_first_pages_type_the_same_except_on_texts_of_their_languages() -> None:
    english, chinese = ROOT / "README.md", ROOT / "README.zh-CN.md"
    kinds = [sorted({command.split()[1] for command in commands(page)}) for page in (english, chinese)]
    assert kinds[0] == kinds[1]
    # the Chinese page samples from a model of the Analects, and looks at a head of it
    (own,) = {word for command in commands(chinese) for word in command.split() if "lunyu" in word and "/" in word}
    assert own == "runs/lunyu"
    # of one's own text, each page shows a prompt in its language
    typed, known = (
        [re.sub('(?<=--prompt )".*?"', "", line) for line in commands(page) if own not in line]
        for page in (chinese, english)
    )
    assert len(typed) == 5
    assert is_in_order(typed, known)


@pytest.mark.parametrize(("page", "language"), [("settings.md", "en"), ("settings.zh-CN.md", "zh")])
def test_the_table_of_settings_is_that_of_the_program(
    page: str, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPT_LANGUAGE", language)
    _, _, table = (DOCS / page).read_text().partition("<!-- `make settings` writes what follows -->\n\n")
    assert table == f"{gpt_cli.configs.settings()}\n", "make settings"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_tables_of_flags_are_those_of_the_program(language: str) -> None:
    flags = runpy.run_path(str(DOCS / "flags.py"))
    _, _, written = flags["PAGES"][language].read_text("utf-8").partition(flags["MARKER"])
    assert written == f"\n{flags['tables'](language)}", "make flags"


def test_the_config_of_the_chinese_page_is_valid(here: Path, run: RunCommand) -> None:
    (config,) = blocks(DOCS / "settings.zh-CN.md", "yaml")
    Path("my.yaml").write_text(config)
    run("config", "check", "my.yaml", exits=0)


def test_make_settings_asks_for_the_language_of_each_page() -> None:
    command = ["make", "--dry-run", "--directory", str(ROOT), "settings"]
    printed = subprocess.run(command, capture_output=True, text=True).stdout
    assert "en:docs/settings.md zh:docs/settings.zh-CN.md" in printed
    assert "GPT_LANGUAGE=${page%%:*}" in printed


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
@pytest.mark.usefixtures("trained_shell")
def test_the_python_of_the_page_runs(page: str) -> None:
    names: dict[str, Any] = {}
    for block in blocks(ROOT / page, "python"):
        exec(block.replace('train("tiny"', 'train("smoke"'), names)  # the page's own text
    assert names["logits"].shape[-1] == names["run"].tokenizer.vocab_size
    assert names["weights"].shape[:3] == (4, 1, 4)
    assert type(names["report"]).__name__ == "Finished"


def test_the_recipes_for_other_viewers_run(
    smoke_run: Path, run: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With stand-ins for the viewers, which ask for what the real ones do in the versions that the page names."""
    run("attn-dump", "--run", smoke_run, "--prompt", "The value", "--out", tmp_path / "attention.npz", exits=0)
    monkeypatch.chdir(tmp_path)
    seen: list[str] = []

    def head_view(attention: torch.Tensor, tokens: list[str]) -> None:
        for of_layer in attention:
            assert of_layer.shape == (1, 2, len(tokens), len(tokens))
        seen.append("bertviz")

    def attention_heads(attention: np.ndarray, tokens: list[str]) -> None:
        assert attention.shape == (2, len(tokens), len(tokens))
        seen.append("circuitsvis")

    def activation_cache(cache: dict[str, torch.Tensor], model: None) -> None:
        assert list(cache) == ["blocks.0.attn.hook_pattern", "blocks.1.attn.hook_pattern"]
        assert {of_layer.shape[:2] for of_layer in cache.values()} == {(1, 2)}
        seen.append("transformer_lens")

    for name, content in {
        "bertviz": {"head_view": head_view},
        "circuitsvis": {"attention": SimpleNamespace(attention_heads=attention_heads)},
        "transformer_lens": {"ActivationCache": activation_cache},
    }.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**content))
    (recipes,) = blocks(DOCS / "attention.md", "python")
    exec(recipes, {})
    assert seen == ["bertviz", "circuitsvis", "transformer_lens"]


def test_bare_make_lists_the_targets() -> None:
    done = subprocess.run(["make", "-s", "-C", str(ROOT)], capture_output=True, text=True)
    targets = {line.split()[0] for line in done.stdout.splitlines()}
    assert {"demo", "test", "check", "bench", "data"} <= targets


def demo(**environment: str) -> str:
    """What `make demo` would do where nothing is installed."""
    command = ["make", "--dry-run", "--always-make", "--directory", str(ROOT), "demo"]
    locale = ("GPT_LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
    surroundings = {name: value for name, value in os.environ.items() if name not in locale} | environment
    return subprocess.run(command, capture_output=True, encoding="utf-8", env=surroundings).stdout


def test_make_demo_shows_the_installation_and_how_to_go_on() -> None:
    printed = demo()
    (installing,) = [line for line in printed.splitlines() if "install --editable ." in line]
    assert "--quiet" not in installing
    assert "PyTorch is by far the largest download" in printed
    assert "source .venv/bin/activate" in printed
    assert '  gpt train --data my.txt --out runs/mine"' in printed


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("ready", [True, False])
def test_make_installs_from_the_address_that_pip_is_given_into_an_environment_with_pip(
    ready: bool, old: bool, tmp_path: Path
) -> None:
    """So that a machine without a GPU takes PyTorch's build for processors; an environment that was left without pip is made again.

    An old Python makes none: pip would refuse to install into it, and it would stay.
    """
    (tmp_path / "pyproject.toml").touch()
    python, making = tmp_path / ".venv/bin/python", tmp_path / "making"
    python.parent.mkdir(parents=True)
    pip = '#!/bin/sh\n[ "$4" = --version ] || echo "from $PIP_EXTRA_INDEX_URL"\n'
    python.write_text(pip if ready else "#!/bin/sh\nexit 1\n")
    (tmp_path / "pip").write_text(pip)
    making.write_text(f'#!/bin/sh\n[ "$1" = -m ] || exit {old:d}\ncp pip .venv/bin/python; echo made\n')
    for program in (python, making):
        program.chmod(0o755)
    command = ["make", "-s", "-f", str(ROOT / "Makefile"), "-C", str(tmp_path), ".venv/installed", "PYTHON=./making"]
    surroundings = {**os.environ, "PIP_EXTRA_INDEX_URL": "file:///processors", "GPT_LANGUAGE": "en"}
    done = subprocess.run(command, capture_output=True, text=True, env=surroundings)
    refused = old and not ready
    said = [] if refused else ["made"] * (not ready) + ["from file:///processors"]
    assert done.stdout.splitlines()[1:] == said, done.stderr
    assert ("gpt needs Python 3.11 to 3.14: make demo PYTHON=python3.12\n" in done.stderr) == refused
    assert (tmp_path / ".venv/installed").exists() != refused


def test_make_makes_an_environment_for_the_pythons_that_pip_accepts() -> None:
    versions = re.search(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    assert versions
    assert f"(3, {versions[1]}) <= sys.version_info < (3, {versions[2]})" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("environment", [{"GPT_LANGUAGE": "zh", "LC_ALL": "C"}, {"LANG": "zh_CN.UTF-8"}])
def test_make_demo_speaks_chinese_where_gpt_would(environment: dict[str, str]) -> None:
    printed = demo(**environment)
    assert "安装 gpt" in printed
    assert "再用自己的文本训练" in printed
    assert "gpt train --data my.txt --out runs/mine" in printed
    assert not re.search("download|Look at", printed)
    assert "Look at" in demo(**environment | {"GPT_LANGUAGE": "en"})


def test_every_picture_that_a_page_shows_is_written_by_make_screenshots() -> None:
    shown = {Path(target).name for page in [*ENGLISH, *CHINESE] for target in links(page) if target.endswith(".png")}
    script = (DOCS / "pictures.py").read_text("utf-8")
    assert len(shown) == 8
    assert [name for name in sorted(shown) if f'"{name}": ' not in script] == []


@pytest.mark.parametrize("page", ["devices.md", "devices.zh-CN.md"])
def test_the_output_of_a_check_of_a_device_has_all_checks_with_their_bounds_and_fits_an_issue(page: str) -> None:
    nobody = DeviceRuns("cpu", Path())
    expected = []
    for title, bound, pairs in checks(nobody, nobody):
        rows = [Checked(name, "equal", None, None) for name in pairs]
        expected += [line.removesuffix("equal").rstrip() for line in Group(title, bound, rows).lines()]
    shown = next(block for block in blocks(DOCS / page, "console") if "--check-device" in block).splitlines()
    assert max(map(len, shown)) <= 80
    found = [line[:60].rstrip() if line.startswith("  ") else line for line in shown if not line.startswith("    ")]
    listed = [line for line in found[6:-3] if line not in ("", "...")]
    assert len(listed) >= 7
    assert is_in_order(listed, expected)
    assert shown[-1].startswith(f"cpu: {sum(line.startswith('  ') for line in expected)} checks: ")


@pytest.mark.parametrize("page", ["heads.md", "heads.zh-CN.md"])
def test_labels_of_heads_have_the_thresholds_of_the_program(page: str) -> None:
    rows = re.findall(r"^\| ([a-z ]+)[^|]*\| `(\w+)` \| (0\.\d+) \|$", (DOCS / page).read_text(), re.MULTILINE)
    assert [(column, float(least)) for _, column, least in rows] == [*ROLES.items()]
    assert [label.strip() for label, *_ in rows] == [name.replace("_", " ") for name in ROLES]


@pytest.mark.parametrize("page", ["heads.md", "heads.zh-CN.md"])
def test_every_column_of_gpt_heads_is_explained_under_both_its_names(page: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| .*w\(q, .* \|$", (DOCS / page).read_text(), re.MULTILINE)
    assert rows == [(name, HEADINGS[name]) for name in COLUMNS]
