"""No import cycles among the benchmarks, imports inside functions included."""

import ast
import os
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def sources(package: str) -> dict[str, str]:
    """The modules of a package by their full names."""
    found = {}
    for path in (ROOT / package).rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path.read_text(encoding="utf8")
    return found


def imported(source: str) -> set[str]:
    """Everything that a module imports anywhere, as "package.module" and "package.module.name"."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports are not read"
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def cycle(modules: dict[str, str]) -> list[str]:
    """The modules of an import cycle; empty if there is none."""
    graph = {name: imported(source) & modules.keys() - {"benchmarks"} for name, source in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_by_a_detour():
    assert cycle(sources("benchmarks")) == []


def test_tables_are_made_without_torch():
    statement = "; ".join(f"import {name}" for name in sources("benchmarks") if name.startswith("benchmarks.tables"))
    assert "benchmarks.tables.quality" in statement
    code = f"import sys; {statement}; print('torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
