"""Who imports whom, read from the source: imports inside functions count too, those under TYPE_CHECKING do not.

* Each part of the package is on one floor and imports only parts on its own and lower floors (FLOORS, lowest first).
  The package's root (``st_extras/__init__.py``) may import any.
* Losses do not import each other: only ``slt_fai`` composes others.
* No file imports itself by a detour.
* ``functional`` needs torch alone, and ``import st_extras`` loads nothing heavy.

ruff sees to it that optional packages are imported inside functions, and that no code is run from a file.
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
FLOORS: list[tuple[str, ...]] = [
    ("functional", "checks", "citations", "correlation", "encoder_names", "random_source", "files"),
    ("text",),
    ("encoders",),
    ("samples",),
    ("losses.parts", "losses.pair_loss"),
    ("losses",),
    ("modules",),
    ("ranking", "search"),
    ("evaluation",),
    ("training",),
    ("adaptation",),
    ("cli",),
]
"""The lowest first, and the parts on each; samples stand above encoders because they load the packaged demo encoder."""
ALONE = {"losses"}
"""Parts whose files do not import each other."""
COMPOSERS = {"losses.slt_fai", "losses"}
"""Files of such a part that may: the two terms and the base of SLT-FAI, and the package's __init__."""


def part_of(module: str) -> str | None:
    """The part that a module below st_extras belongs to: "losses.parts" of "losses.parts.views"."""
    parts = [part for floor in FLOORS for part in floor if module == part or module.startswith(f"{part}.")]
    return max(parts, key=len, default=None)


def floor_of(part: str) -> int:
    """The number of a part's floor, from 0."""
    return next(number for number, floor in enumerate(FLOORS) if part in floor)


@functools.cache
def sources() -> dict[str, str]:
    """The package's modules by name below ``st_extras``: "" is its __init__, "losses.dclr" a file."""
    paths = {path.relative_to(ROOT).with_suffix("").parts: path for path in ROOT.rglob("*.py")}
    return {
        ".".join(part for part in parts if part != "__init__"): path.read_text(encoding="utf8")
        for parts, path in paths.items()
    }


def _is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@functools.cache
def imports(source: str) -> list[ast.Import | ast.ImportFrom]:
    """The import statements, but for those of types alone."""
    nodes = list(ast.walk(ast.parse(source)))
    for_types = {id(node) for part in nodes if _is_for_types_only(part) for node in ast.walk(part)}
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in for_types]


def imported(module: str, source: str, known: set[str]) -> Iterator[str]:
    """What a module imports, ours as "st_extras.losses.dclr"."""
    is_package = module == "" or any(name.startswith(f"{module}.") for name in known)
    own = ["st_extras", *filter(None, module.split("."))]
    for node in imports(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            continue
        above = own[: len(own) - node.level + is_package] if node.level else []
        base = ".".join(filter(None, [*above, node.module]))
        for alias in node.names:
            full = f"{base}.{alias.name}"
            yield full if full.removeprefix("st_extras.") in known else base


def floor_faults(modules: dict[str, str]) -> list[str]:
    """Every import that goes upwards, or sideways between losses."""
    known = set(modules)
    faults = [f"{name} is on no floor" for name in modules if name and part_of(name) is None]
    for module, source in modules.items():
        part = part_of(module)
        for name in imported(module, source, known):
            top, _, target = name.partition(".")
            if top in ("benchmarks", "tests"):
                faults.append(f"{module} imports {name}")
            other = part_of(target)
            if top != "st_extras" or part is None or other is None:
                continue
            sideways = part == other and part in ALONE and module not in COMPOSERS and target != module
            if floor_of(other) > floor_of(part) or sideways:
                faults.append(f"{module} imports {target}")
    return faults


def cycles(modules: dict[str, str]) -> list[str]:
    """Modules that end up importing themselves, imports inside functions included."""
    graph = {
        module: {name.removeprefix("st_extras.") for name in imported(module, source, set(modules))} & set(modules)
        for module, source in modules.items()
    }
    reached = {module: set(targets) for module, targets in graph.items()}
    for _ in graph:
        for targets in reached.values():
            targets |= set().union(*(reached[target] for target in targets))
    return sorted(module for module, targets in reached.items() if module in targets)


def test_every_floor_imports_only_floors_below_and_no_module_itself_by_a_detour():
    assert floor_faults(sources()) == []
    assert cycles(sources()) == []
    allowed = {"__future__", "collections", "math", "numbers", "typing", "torch", "st_extras"}
    assert {name.split(".")[0] for name in imported("functional", sources()["functional"], set())} <= allowed


@pytest.mark.parametrize(
    ("module", "line", "fault"),
    [
        ("functional", "from st_extras.encoders.rows import stack_rows", "functional imports encoders.rows"),
        ("losses.parts.views", "from st_extras.losses import DCLRLoss", "losses.parts.views imports losses"),
        ("losses.dclr", "from .simcse import SimCSELoss", "losses.dclr imports losses.simcse"),
        ("losses.dclr", "def f():\n    import st_extras.evaluation", "losses.dclr imports evaluation"),
        ("text.corpus", "from benchmarks.sts import x", "text.corpus imports benchmarks.sts"),
        ("nowhere", "", "nowhere is on no floor"),
        ("losses.slt_fai", "from st_extras.losses.dclr import DCLRLoss", None),
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
    heavy = ("torch", "transformers", "sentence_transformers", "scipy", "sklearn", "matplotlib", "nltk", "peft")
    assert loaded_after("import st_extras", *heavy) == []
    assert loaded_after("import st_extras, json", "json", "torch") == ["json"]


def test_losses_need_no_package_that_only_some_of_them_use():
    """The keywords of RepAL and the phrases of PaSeR need them."""
    missing = "sys.modules.update(dict.fromkeys(('jieba', 'nltk', 'rake_nltk')))"
    assert loaded_after(f"{missing}\nfrom st_extras.losses import *", "torch") == ["torch"]
