"""The notebooks of docs/notebooks: the text of their page, and Python that runs and shows its results."""

import json
import os
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import nbclient
import nbformat
import pytest
from support.documents import DOCS

LESSON, CIRCUIT = ("lesson.md", "lesson.zh-CN.md"), ("circuit.md", "circuit.zh-CN.md")


@pytest.fixture(scope="module")
def make() -> ModuleType:
    """docs/notebooks/make.py, which is in no package."""
    spec = spec_from_file_location("make", DOCS / "notebooks" / "make.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", LESSON + CIRCUIT)
def test_a_notebook_has_the_text_and_the_commands_of_its_page(page: str, make: ModuleType) -> None:
    path = DOCS / "notebooks" / make.PAGES[page]
    assert path.read_text() == make.written(page), "write it again: make notebooks"
    nbformat.validate(json.loads(path.read_text()))


def test_a_flag_that_is_repeated_becomes_a_list(make: ModuleType) -> None:
    assert make.python("eval --run runs/x --run runs/y") == 'gpt_cli.evaluate(run=["runs/x", "runs/y"])'


def execute(page: str, make: ModuleType, folder: Path, **replaced: str) -> Any:
    """A notebook with its outputs; texts of its code are replaced by others."""
    notebook = nbformat.reads(make.written(page), as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            for text, other in replaced.items():
                cell.source = cell.source.replace(text, other)
    environment = {**os.environ, "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}})
    client.execute(env=environment)
    return notebook


@pytest.mark.long  # a minute
@pytest.mark.parametrize("page", CIRCUIT)
def test_each_cell_of_the_circuit_runs(page: str, make: ModuleType, tmp_path: Path) -> None:
    notebook = execute(page, make, tmp_path)
    outputs = [cell.outputs for cell in notebook.cells if "gpt_cli." in cell.source and cell.cell_type == "code"]
    assert all("text/plain" in found[-1].data for found in outputs)


def test_both_notebooks_of_the_lesson_have_the_same_code(make: ModuleType) -> None:
    """So one of them stands for both where they run."""
    code, chinese = (
        [cell.source for cell in nbformat.reads(make.written(page), as_version=4).cells if cell.cell_type == "code"]
        for page in LESSON
    )
    assert code == [source.replace(', language="zh"', "") for source in chinese]


@pytest.mark.long
@pytest.mark.parametrize("page", LESSON)
def test_each_cell_runs_offline_and_shows_its_result(page: str, make: ModuleType, tmp_path: Path) -> None:
    quickly = 'progress=True, max_steps=4, settings={"train.batch_size": 2, "data.validation_tokens": 2048}'
    notebook = execute(page, make, tmp_path, **{"progress=True": quickly})
    shown = [
        {kind: content for output in cell.outputs for kind, content in output.get("data", {}).items()}
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    printed = "".join(output.text for cell in notebook.cells for output in cell.get("outputs", ()) if "text" in output)
    assert "4/4" in printed  # a line of the bar
    assert "Warning" not in printed
    # nothing is shown but the results
    assert not [
        output for cell in notebook.cells for output in cell.get("outputs", ()) if output.output_type == "display_data"
    ]
    assert shown[0] == {}  # the import
    assert all(data["text/plain"] and data["text/plain"][0] != "<" for data in shown[1:])
    assert sum("srcdoc" in data.get("text/html", "") for data in shown) >= 6  # attention, and five explanations
    assert any("image/png" in data for data in shown)  # the curve of the training
