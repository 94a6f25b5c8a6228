"""The structure of the package: imports point one way, and help stays light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import gpt_cli

PACKAGE = Path(gpt_cli.__file__).parent

# each room may import itself and those after it
ORDER = (
    "cli", "measuring", "training", "explaining", "inspecting", "sampling", "checkpoints", "model", "text", "config",
    "machine", "streams", "files", "errors", "version",
)  # fmt: skip


def imported_rooms(source: str) -> set[str]:
    """The rooms of gpt_cli that a file names in any import, at its top or inside a function."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, "imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("gpt_cli.")} & set(ORDER)


def test_imports_point_one_way() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room in ORDER:
            allowed = set(ORDER[ORDER.index(room) :])
            wrong += [f"{path.relative_to(PACKAGE)} imports {r}" for r in imported_rooms(path.read_text()) - allowed]
    assert wrong == []


def test_every_room_has_its_place_in_the_order() -> None:
    rooms = {
        path.name.removesuffix(".py")
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert rooms - {"__init__", "__main__"} == set(ORDER)


def test_the_order_notices_a_wrong_import() -> None:
    assert imported_rooms("def f():\n    from gpt_cli.training.loop import train") == {"training"}


def test_only_the_command_line_prints() -> None:
    printing = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if path.parent.name != "cli"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "print"
    ]
    assert printing == []


def test_nothing_is_pickled_or_executed() -> None:
    forbidden = {
        "pickle",
        "eval",
        "exec",
        "torch.load",
        "torch.save",
        "yaml.load",
        "yaml.unsafe_load",
        "np.load",
    }
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Import | ast.ImportFrom):
                name = next((a.name for a in node.names if a.name == "pickle"), "")
            if name in forbidden:
                found.append(f"{path.name}: {name}")
    assert found == []


def test_one_module_writes_files() -> None:
    """The lock, which is no content, is made where it is held."""
    changing = {
        "write_text",
        "write_bytes",
        "unlink",
        "rename",
        "replace",
        "mkdir",
        "rmdir",
        "touch",
        "savefig",
        "save_file",
    }
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in changing:
                # text.replace(old, new) changes no file, nor does a picture that is saved to memory
                is_path = node.func.attr != "replace" or ast.unparse(node.func) == "os.replace"
                to_memory = node.func.attr == "savefig" and ast.unparse(node.args[0]) in ("buffer", "content", "memory")
                if is_path and not to_memory:
                    found.append(f"{path.relative_to(PACKAGE)}: {node.func.attr}")
            opens = isinstance(node, ast.Call) and ast.unparse(node.func) == "open" and len(node.args) > 1
            if opens and not re.search(r"devnull|'r'|'rb'", ast.unparse(node)):
                found.append(f"{path.relative_to(PACKAGE)}: open")
    writers = {line.partition(":")[0] for line in found}
    assert "files.py" in writers  # it is noticed where it happens
    assert writers <= {"files.py", "checkpoints/lock.py"}


def test_help_loads_neither_torch_nor_other_heavy_packages() -> None:
    script = (
        "import sys\nfrom gpt_cli.cli.app import main\n"
        "for words in (['--help'], ['train', '--help'], ['sample', '--help'], ['attn-dump', '--help']): assert main(words) == 0\n"
        "heavy = {'torch', 'numpy', 'tiktoken', 'matplotlib', 'safetensors'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_sampling_does_not_load_the_compiler_of_torch(smoke_run: Path) -> None:
    """It takes more than a second, half of the time until the first token; several harmless calls load it."""
    script = (
        "import sys\nfrom gpt_cli.cli.app import main\n"
        f"assert main(['sample', '--run', {str(smoke_run)!r}, '--prompt', 'The', '--max-new-tokens', '3']) == 0\n"
        "heavy = {'torch._dynamo', 'torch._inductor'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
