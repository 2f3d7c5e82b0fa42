"""Formulas as MathML, which browsers draw themselves: no script, no font, nothing to fetch."""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', flags=re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', flags=re.DOTALL)


# latex2mathml takes these for letters: as operators they get their form and their room
OPERATORS = {"<mi>&#x0007E;</mi>": "<mo>&#x0223C;</mo>", "<mi>&#x02032;</mi>": "<mo>&#x02032;</mo>"}
OPERATORS["<mo>&#x02016;</mo>"] = '<mo stretchy="false">&#x02016;</mo>'  # norm bars of normal height


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the formulas of a page, in LaTeX, by MathML."""
    content = INLINE.sub(lambda found: mathml(found[1], "inline"), content)
    return BLOCK.sub(lambda found: f'<div class="formula">{mathml(found[1], "block")}</div>', content)


def mathml(latex: str, display: str) -> str:
    """Return a formula as MathML.

    Args:
        latex: the formula, with <, > and & as HTML has them.
        display: "inline" or "block".
    """
    found = convert(html.unescape(latex).strip(), display=display)
    for letter, operator in OPERATORS.items():
        found = found.replace(letter, operator)
    return found
