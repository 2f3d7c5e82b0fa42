"""What the tests of the site share: its pages, and the public names that it must describe."""

import importlib
import re
from pathlib import Path

from st_extras import (
    adaptation,
    cli,
    encoders,
    evaluation,
    losses,
    modules,
    plots,
    samples,
    search,
    text,
    training,
)

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf8") for path in sorted(DOCS.rglob("*.md"))}
PACKAGES = (
    importlib.import_module("st_extras"),
    adaptation,
    cli,
    encoders,
    evaluation,
    losses,
    modules,
    plots,
    samples,
    search,
    text,
    training,
)
PUBLIC = {f"{package.__name__}.{name}" for package in PACKAGES for name in package.__all__ if not name.startswith("__")}
"""Every public name, as it is imported."""
DESCRIBED = [name for page in PAGES.values() for name in re.findall(r"^::: (\S+)$", page, flags=re.MULTILINE)]
"""The names whose docstring a page shows."""
