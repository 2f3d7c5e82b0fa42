"""Docstrings of the package as Markdown: they are written for ``help()``, in the style of Sentence Transformers."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

ROLE = re.compile(r":[a-z]+:`(~?)([\w.]+)`")
GRID = re.compile(r"(?:^ *[+|].*[+|]\n?)+", flags=re.MULTILINE)
LABELS = (
    "Paper",
    "Code",
    "Equation",
    "Works with",
    "Refuses",
    "Differs from the paper",
    "Differs from the authors' code",
)
LABEL = re.compile(rf"^(?P<label>{'|'.join(LABELS)}|Paper \([^)]*\)|Equation \d+): *", flags=re.MULTILINE)
INDENTED = re.compile(
    rf"^(?P<label>{'|'.join(LABELS)}|Inputs|Metrics):\n(?P<body>(?: {{4}}.*\n|\n)+)", flags=re.MULTILINE
)
ATTRIBUTES = re.compile(r"^Attributes \((.*)\):$", flags=re.MULTILINE)


class Docstrings(Extension):
    """Rewrites every docstring before it is parsed."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Rewrite the docstring of an object that was just found."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """Return a docstring with roles, grid tables, literal blocks and labels in the forms of Markdown."""
    text = GRID.sub(lambda found: _table(found[0]), f"{text}\n")
    text = INDENTED.sub(_section, text)
    text = ATTRIBUTES.sub(r"Attributes: Attributes, \1", text)
    text = LABEL.sub(lambda found: f"\n**{found['label']}:** ", text)
    text = re.sub(r"::$", ":", text, flags=re.MULTILINE)
    text = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
    return ROLE.sub(_reference, text).rstrip()


def _section(found: re.Match[str]) -> str:
    body = re.sub(r"^ {4}", "", found["body"], flags=re.MULTILINE)
    return f"\n**{found['label']}:**\n\n{body}\n" if body.startswith("|") else f"\n**{found['label']}:** {body}\n"


def _table(grid: str) -> str:
    """Return a grid table, each row of which is one line, as a table of Markdown."""
    indent = grid[: len(grid) - len(grid.lstrip())]
    rows = [line.strip() for line in grid.splitlines() if line.strip().startswith("|")]
    rule = "|" + "---|" * (rows[0].count("|") - 1)
    return "".join(f"{indent}{line}\n" for line in (rows[0], rule, *rows[1:]))


def _reference(found: re.Match[str]) -> str:
    name = found[2].rpartition(".")[2]
    if "." not in found[2]:
        return f"`{name}`"
    return f'<autoref optional identifier="{found[2]}"><code>{name}</code></autoref>'  # a link, if it has a place
