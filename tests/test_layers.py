"""The structure of the package: imports point one way, and help stays light."""

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from support.package import PACKAGE, nodes, trees

# each layer may import itself and those after it: the doors, what is built around the core, the core, the ground
ORDER = [
    *("cli", "configs", "data", "trained", "api"),
    *("tools.bench", "tools.sweeps", "tools.exchange", "tools.reports"),
    *("tools.explain", "tools.interpret", "tools.loggers", "tools.pages"),
    *("training", "attention_maps", "evaluation", "sampling", "checkpoints", "distributed", "model", "text"),
    *("config", "common"),
]
MOST_ENTRIES = 20  # of the folder of the package, so that a student sees the way of the data there

# where an import stands inside a function, and why; a signature of cli/ has one that loads what does the work
IMPORTS_INSIDE = {
    "__init__.py": "importing gpt_cli loads no torch",
    "__main__.py": "Ctrl-C is handled before anything is imported",
    "api.py": "the request is checked before what does the work is imported, which may load torch",
    "common/host.py": "only who asks for bars needs them",
    "cli/app.py": "only gpt alone looks for runs, and a request is imported when its command is named",
    "cli/completion.py": "only a shell that completes words asks for names",
    "cli/sample.py": "importing readline changes how input() reads",
    "tools/explain/explain.py": "matplotlib takes a second, and few explanations are drawn",
    "checkpoints/header.py": "few who read a header need its tokenizer, which loads numpy",
    "common/language/__init__.py": "English needs no catalogue",
    "tools/reports/report.py": "matplotlib takes a second, and few reports are pictures; only a prompt needs torch",
    "tools/sweeps/sweep.py": "only counting GPUs needs torch",
    "tools/exchange/request.py": "only who imports or writes pages needs tokenizers, which load numpy",
    "common/machine/torch_modes.py": "who has not imported torch has set none of its modes",
    "common/files.py": "few commands need a cache directory",
    "tools/interpret/attention_files.py": "matplotlib takes a second, and few formats are pictures",
    "tools/interpret/over_training.py": "only the steps of a prompt need torch",
    "tools/interpret/finding.py": "matplotlib takes a second, and few findings are pictures",
    "sampling/prompts.py": "only a prompt from a file or a pipe needs numpy, and requests load none",
    "tools/bench/text_stats.py": "only an estimate needs torch, after the text has been read",
    "text/datasets.py": "one corpus is a module of Python, some need numpy, the others the network",
    "training/kernel_trials.py": "Triton is installed on few machines",
    "text/hf_tokenizer.py": "only kept tokenizers need the library tokenizers",
    "text/tokenizers.py": "only byte pairs need tiktoken",
    "text/train_tokenizer.py": "one kind of tokenizer each needs rustbpe or tiktoken",
    "training/init_from.py": "a request is checked before weights are read, which takes torch",
    "tools/exchange/gguf/export_gguf.py": "an extra",
}


def layer_of(module: str) -> str:
    """The layer of a module, by its dotted name without `gpt_cli`; `errors` has a name of its own for users."""
    parts = module.split(".")
    return "common" if parts[0] == "errors" else ".".join(parts[: 2 if parts[0] == "tools" else 1])


def imported_layers(names: Iterable[str]) -> set[str]:
    """The layers of gpt_cli of imported names."""
    return {layer_of(name.removeprefix("gpt_cli.")) for name in names if name.startswith("gpt_cli.")} & set(ORDER)


def imported_names(node: ast.AST) -> set[str]:
    """What an import statement imports, by dotted names; nothing for another statement."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        return {f"{node.module}.{alias.name}" for alias in node.names}
    return set()


@cache
def imports() -> dict[str, set[str]]:
    """What each file imports, at its top or inside a function."""
    return {path: {name for node in nodes()[path] for name in imported_names(node)} for path in nodes()}


@cache
def calls() -> list[tuple[str, str, ast.Call]]:
    """Every call of the package: its file, what it calls as the source names it, and the call."""
    found = ((path, node) for path in nodes() for node in nodes()[path] if isinstance(node, ast.Call))
    return [(path, ast.unparse(call.func), call) for path, call in found]


def imports_inside_functions(of_file: list[ast.AST]) -> list[set[str]]:
    """For each import statement inside a function, what it imports."""
    functions = [node for node in of_file if isinstance(node, ast.FunctionDef)]
    lines = {line for node in functions for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    statements = (node for node in of_file if isinstance(node, ast.Import | ast.ImportFrom) and node.lineno in lines)
    return [imported_names(node) for node in statements]


def test_imports_point_one_way() -> None:
    wrong = []
    for path, names in imports().items():
        layer = layer_of(path.removesuffix(".py").replace("/", "."))
        if layer in ORDER:
            allowed = set(ORDER[ORDER.index(layer) :])
            wrong += [f"{path} imports {name}" for name in imported_layers(names) - allowed]
    assert wrong == []


def test_every_layer_has_its_place_in_the_order() -> None:
    entries = [path for path in PACKAGE.iterdir() if path.suffix or (path / "__init__.py").exists()]
    assert len(entries) <= MOST_ENTRIES
    modules = [f"tools.{path.name}" for path in (PACKAGE / "tools").iterdir() if path.is_dir()]
    modules += [path.name.removesuffix(".py") for path in entries]
    layers = {layer_of(module) for module in modules if not module.startswith("tools.__")}
    assert layers - {"__init__", "__main__", "py", "tools"} == set(ORDER)


def test_no_files_import_each_other_in_a_circle() -> None:
    dotted = (f"gpt_cli.{path.removesuffix('.py').replace('/', '.')}".removesuffix(".__init__") for path in trees())
    modules = dict(zip(dotted, imports().values(), strict=True))
    graph = {
        module: {name if name in modules else name.rpartition(".")[0] for name in names} & modules.keys()
        for module, names in modules.items()
    }
    assert "gpt_cli.model.block" in graph["gpt_cli.model.gpt"]  # the graph has its arrows
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_imports_stand_at_the_top_of_a_file_with_few_exceptions() -> None:
    """A command imports what does its work when it runs."""
    wrong = []
    for name, of_file in nodes().items():
        inside = imports_inside_functions(of_file)
        if name.startswith("cli/") and name not in {"cli/app.py", "cli/console.py"}:
            inside = [names for names in inside if not all(one.startswith("gpt_cli.") for one in names)]
        if inside and name not in IMPORTS_INSIDE:
            wrong += [f"{name}: {', '.join(names)}" for names in inside]
    assert wrong == []
    for name in IMPORTS_INSIDE:
        assert imports_inside_functions(nodes()[name]), f"{name} needs no exception"
    assert imports_inside_functions([*ast.walk(ast.parse("import a\ndef f():\n    def g(): import b.c"))]) == [{"b.c"}]


def test_no_public_name_is_given_twice() -> None:
    """Python's functions have the names of commands, as what does their work has; `drive` and `main` are protocols."""
    modules = dict[str, list[str]]()
    for name, tree in trees().items():
        functions = () if name in {"__init__.py", "api.py", "configs.py", "data.py"} else (ast.FunctionDef,)
        for node in tree.body:
            if isinstance(node, (ast.ClassDef, *functions)) and not node.name.startswith("_"):
                modules.setdefault(node.name, []).append(name)
    twice = {name: where for name, where in modules.items() if len(where) > 1}
    assert twice.keys() == {"drive", "main"}


def test_only_the_command_line_prints() -> None:
    printing = [path for path, name, _ in calls() if name == "print" and not path.startswith(("cli/", "__main__.py"))]
    assert printing == []


def test_nothing_is_pickled_or_executed() -> None:
    forbidden = {"eval", "exec", "torch.load", "torch.save", "yaml.load", "yaml.unsafe_load", "np.load"}
    assert [f"{path}: {name}" for path, name, _ in calls() if name in forbidden] == []
    assert [path for path, names in imports().items() if any(name.startswith("pickle") for name in names)] == []


def test_one_module_writes_files() -> None:
    """The lock, which is no content, is made where it is held."""
    changing = {
        *("write_text", "write_bytes", "savefig", "save_file"),
        *("unlink", "rename", "replace", "mkdir", "rmdir", "touch"),
    }
    writers = set[str]()
    for path, name, call in calls():
        of_object, _, method = name.rpartition(".")
        if of_object and method in changing:
            # text.replace(old, new) changes no file, nor does a picture saved to memory, nor a paragraph of help
            is_path = name == "os.replace" or (method != "replace" and name != "super().write_text")
            to_memory = method == "savefig" and ast.unparse(call.args[0]) in ("buffer", "content", "memory")
            if is_path and not to_memory:
                writers.add(path)
        elif name == "open" and len(call.args) > 1 and not re.search(r"devnull|'r'|'rb'", ast.unparse(call)):
            writers.add(path)
    assert "common/files.py" in writers  # it is noticed where it happens
    assert writers <= {"common/files.py", "checkpoints/lock.py"}


def test_help_and_requests_load_no_heavy_package_and_sampling_not_the_compiler_of_torch(smoke_run: Path) -> None:
    """The compiler takes half of the time until the first token; several harmless calls load it."""
    script = (
        "import sys\nfrom gpt_cli.cli.app import main\nfrom gpt_cli.cli.command_table import TABLE\n"
        "heavy = {'torch', 'numpy', 'tiktoken', 'matplotlib', 'safetensors', 'pydantic'}\n"
        "assert main(['--help']) == 0 and not heavy & set(sys.modules)\n"
        "import gpt_cli\ngpt_cli.info\n"
        "for name in TABLE: assert main([*name.split(), '--help']) == 0\n"
        "heavy = heavy - {'pydantic'} & set(sys.modules)\n"
        "assert not heavy, f'loaded {heavy}'\n"
        f"assert main(['sample', '--run', {str(smoke_run)!r}, '--prompt', 'The', '--max-new-tokens', '3']) == 0\n"
        "import torch\nfrom gpt_cli.training.optimizer import AdamW\n"
        "weight = torch.nn.Parameter(torch.ones(2, 2))\nweight.sum().backward()\nAdamW({'w': weight}, 0.1).step(1.0)\n"
        "heavy = {'torch._dynamo', 'torch._inductor'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_comprehension_hides_a_name_of_its_module() -> None:
    """Python 3.12 makes such a name a local of the function, so another comprehension there finds it unset."""
    hidden = []
    for path, tree in trees().items():
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                defined |= {alias.asname or alias.name for alias in node.names}
        inlined = (n for n in nodes()[path] if isinstance(n, ast.ListComp | ast.SetComp | ast.DictComp))
        targets = [name for each in inlined for part in each.generators for name in ast.walk(part.target)]
        named = (target for target in targets if isinstance(target, ast.Name))
        hidden += [f"{path}:{name.lineno}: {name.id}" for name in named if name.id in defined]
    assert hidden == []
