"""What the tests of README and site share: their texts, the examples in them, and the public names to describe."""

import importlib
import re
import shlex
from pathlib import Path
from typing import Any

import typer

from st_extras.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf8") for path in sorted(DOCS.rglob("*.md"))}
SHOWN = {"README.md": (ROOT / "README.md").read_text(encoding="utf8")} | PAGES
PACKAGES = [
    importlib.import_module(".".join(path.parent.relative_to(ROOT).parts))
    for path in sorted((ROOT / "st_extras").rglob("__init__.py"))
    if "__all__ = " in path.read_text(encoding="utf8")
]
PUBLIC = {f"{package.__name__}.{name}" for package in PACKAGES for name in package.__all__ if not name.startswith("__")}
"""Every public name, as it is imported."""
DESCRIBED = [name for page in PAGES.values() for name in re.findall(r"^::: (\S+)$", page, flags=re.MULTILINE)]
"""The names whose docstring a page shows."""


def blocks(text: str, language: str) -> list[str]:
    """The blocks of code of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def commands(text: str) -> list[list[str]]:
    """The words of each command of st-extras in a page: of blocks, and of the text."""
    lines = "\n".join(blocks(text, "bash")).replace("\\\n", " ").splitlines()
    parts = [part.partition("st-extras ")[1:] for line in lines for part in line.split(" && ")]
    inline = re.findall(r"`st-extras ([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))
    written = [words for name, words in parts if name] + inline
    return [shlex.split(re.sub(r"[\[\]]|\.\.\.", "", words), comments=True) for words in written]


def command_fault(words: list[str]) -> str | None:
    """What a command names that is not there: a command or an option."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return f"the command {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return next((f"the option {word}" for word in words if re.match(r"-\w$|--\w", word) and word not in known), None)
