"""Pages of the site that are files elsewhere in the repository, and links between all of them.

README.md becomes the home page; CHANGELOG.md, CONTRIBUTING.md, benchmarks/RESULTS.md and the notebooks become pages.
Every page links as it does on GitHub; a link to a file that is a page becomes a link to that page, and one to another
file of the repository a link to GitHub. A link to a file that does not exist is left alone, and the strict build fails
on it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbconvert import MarkdownExporter

ROOT = Path(__file__).resolve().parents[2]
GITHUB = "https://github.com/st-extras/st-extras"
NOTEBOOKS = "notebooks"
TAKEN = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/RESULTS.md": "results-details.md",
} | {
    path.relative_to(ROOT).as_posix(): f"{NOTEBOOKS}/{path.stem}.md"
    for path in sorted((ROOT / NOTEBOOKS).glob("*.ipynb"))
}
"""Files of the repository by path, and the names of their pages."""
SOURCES = {page: path for path, page in TAKEN.items()}
LINK = re.compile(r"(\]\()(?![a-z]+:|#|/)([^)\s#]+)(#[^)\s]*)?(?=\))")
CODE = re.compile(r"(^ *```.*?^ *```|`[^`\n]*`)", flags=re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for path, page in TAKEN.items():
        if path.endswith(".ipynb"):
            text, pictures = notebook_page(path)
            for name, content in pictures.items():
                files.append(File.generated(config, f"{NOTEBOOKS}/{name}", content=content))
        else:
            text = (ROOT / path).read_text(encoding="utf8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Correct the links of a page; the home page has the width of the navigation too."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation"]
    return relinked(markdown, page.file.src_uri)


def relinked(markdown: str, page: str) -> str:
    """Return a page's text with its links to files of the repository corrected; code stays as it is.

    Args:
        markdown: the text.
        page: the page, by its place in the site.
    """
    source = SOURCES.get(page, f"docs/{page}")

    def corrected(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[2]))
        if target in TAKEN or (target.startswith("docs/") and (ROOT / target).is_file()):
            found = TAKEN.get(target, target.removeprefix("docs/"))
            return f"{match[1]}{posixpath.relpath(found, posixpath.dirname(page) or '.')}{match[3] or ''}"
        if (ROOT / target).exists() and not target.startswith((".", "docs/")):
            return f"{match[1]}{GITHUB}/blob/main/{target}{match[3] or ''}"
        return match[0]

    parts = CODE.split(markdown)  # text and code in turn
    parts[::2] = [LINK.sub(corrected, part) for part in parts[::2]]
    return "".join(parts)


def notebook_page(path: str) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, with the outputs that are saved in it, and its pictures by file name."""
    notebook = nbformat.read(ROOT / path, as_version=4)
    name = Path(path).stem
    text, resources = MarkdownExporter().from_notebook_node(notebook, {"unique_key": name, "output_files_dir": name})
    link = f"[The notebook on GitHub]({GITHUB}/blob/main/{path}){{ .md-button }}"
    title, rest = text.lstrip().split("\n", 1)
    rest = re.sub(
        r"\[!\[([^\]]*)\]\(https?:[^)]*\)\](\([^)]*\))", r"[\1]\2{ .md-button }", rest
    )  # no picture from elsewhere
    rest = re.sub(r"\n(?:[ \t]*\n){3,}", "\n\n", rest)  # nbconvert leaves a gap between two outputs of a cell
    # pandas' tables carry a style sheet and a class; without them they look like the other tables
    rest = re.sub(r"<style scoped>.*?</style>", "", rest, flags=re.DOTALL)
    rest = rest.replace('<table border="1" class="dataframe">', "<table>")
    return f"{title}\n\n{link}\n{rest.lstrip()}", dict(resources.get("outputs", {}))
