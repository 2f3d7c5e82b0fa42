"""The page of the command line: every command and option, written by the program itself."""

from __future__ import annotations

import re

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from typer.cli import get_docs_for_click

from st_extras.cli.app import app

NAME = "st-extras"
MARK = "<!-- commands -->"
CODE = re.compile(r"<code>.*?</code>", flags=re.DOTALL)
OPTION = re.compile(r"(?<![\w;&-])--?[a-z][\w-]*")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the commands where the page has its mark."""
    return markdown.replace(MARK, command_pages())


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark each option in code, so that no line breaks at its hyphens."""
    return CODE.sub(lambda code: OPTION.sub(r'<span class="option">\g<0></span>', code[0]), content)


def command_pages() -> str:
    """Return every command as a section, and every option of it as an item."""
    program = typer.main.get_command(app)
    context = program.make_context(NAME, [], resilient_parsing=True)
    text = get_docs_for_click(obj=program, ctx=context, name=NAME)
    text = text.partition("\n## ")[2]  # what stands before is the list of the commands, cut to 45 letters each
    lists = re.compile(r"\*\*Commands\*\*:\n\n(?:\* .*\n)+\n?")  # the same of the groups
    return f"## {lists.sub('', text)}".replace("```console\n$ ", "```text\n")
