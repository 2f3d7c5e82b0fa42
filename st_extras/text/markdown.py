"""Markdown files: their front matter, their title, and the text without both.

Headings are found by markdown-it-py. The values of front matter are read by PyYAML, tomllib and json, which
``datasets`` and Python bring; python-frontmatter finds blocks as here, but reads TOML by a package that nobody keeps
up, loses how an id was written (``007``), and takes text between two rules for front matter.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from st_extras.checks import has_lone_surrogate, shown

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_FENCED = re.compile(  # YAML or TOML, after blank lines
    r"(?:[ \t]*\n)*(---|\+\+\+)[ \t]*(\n(?:.*?\n)??)(?:\1|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL
)
_BRACES = re.compile(r"\s*(\{[ \t]*\n.*?^\})[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)  # JSON that is malformed
_NAME_FIRST = re.compile(  # a block of YAML that begins with a field, after comments, and not with text
    r"""(?:\#\n)*\n(?![ \t]*\n)(?:[ \t]*(?:\#.*)?\n)*["']?\w[^\n:]*:(?:\s|\Z)"""
)
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+\S", re.MULTILINE)
_ONE_LINE = re.compile(  # a value that ends on its line: in quotes or brackets, they are closed
    r"""^([\w-][\w -]*:)[ \t]+((?:[^\s"'|>\[{#]|(["']).*\3|\[.*\]|\{.*\}).*?)[ \t]*$""", re.MULTILINE
)
_ATTRIBUTES = re.compile(  # {#id .class key=value} after a heading, or a comment with its id, as MDX has it
    r"[ \t]+(?:\{:?[ \t]*[#.][\w:.-]+(?:[ \t]+(?:[#.][\w:.-]+|[\w-]+=[^\s{}]+))*[ \t]*\}"
    r"|\{/\*(?:(?!\*/).)*\*/\}|<!--(?:(?!-->).)*-->)$"
)


class Page(NamedTuple):
    """What a Markdown file holds.

    Attributes:
        id: of its front matter, as it is written there; "" without one.
        title: of its front matter, otherwise its first heading; "" without any.
        text: the rest, without the front matter and the heading that is the title. Lines end at a line feed.
        fields: what else the front matter holds, by name: texts, numbers, booleans, None, lists, and values of other
            types for what is nested. Dates in YAML are texts.
        fault: why its front matter could not be read; "" if it could.
    """

    id: str
    title: str
    text: str
    fields: dict[str, Any]
    fault: str


class _FrontMatterError(ValueError):
    """Front matter that cannot be read; the message says why, on one line."""


def parse_markdown(content: str) -> Page:
    """Return what a Markdown file holds.

    Front matter is, at the beginning, YAML between two lines ``---``, TOML between two lines ``+++`` (a line
    ``...`` closes both, too), or a JSON object that ends its line. A colon in a value of YAML needs no quotes. Front
    matter that cannot be read is left out. Headings alone between two rules are text.
    """
    content = content.replace("\r\n", "\n").replace("\r", "\n")
    fields, body, fault = _read_front_matter(content)
    named = [name for name in fields if name.casefold() in ("id", "title")]
    texts = {name.casefold(): _id_or_title(fields.pop(name)) for name in named}
    title = " ".join(texts.get("title", "").split())
    heading, rest = _split_heading(body)
    if not title or title == heading:
        title, body = heading, rest
    return Page(texts.get("id", "").strip(), title, body, fields, fault)


def _id_or_title(value: Any) -> str:
    """Return an id or a title as text; "" if it is none, such as a list or a node of YAML."""
    if isinstance(value, bool):
        return json.dumps(value)  # as JSON and TOML write it
    return str(value) if isinstance(value, str | int | float) else ""


# --- front matter ---


def _read_front_matter(content: str) -> tuple[dict[str, Any], str, str]:
    """Return the fields of the front matter, what follows it, and why it could not be read, "" if it could."""
    sign, lines, body = _split_front_matter(content)
    parsers: dict[str, Callable[[str], Any]] = {"---": _parse_yaml, "+++": _parse_toml, "{": json.loads}
    try:
        fields = parsers[sign](lines) if sign else None
        for name, value in (fields or {}).items():
            texts = value if isinstance(value, list) else [value]
            if any(has_lone_surrogate(text) for text in (name, *texts) if isinstance(text, str)):
                raise _FrontMatterError(f"{shown(name)} holds a lone surrogate")
    except RecursionError:
        return {}, body, "nested too deeply"
    except ValueError as error:  # of json and tomllib, too
        return {}, body, " ".join(str(error).split())
    return ({}, content, "") if fields is None else (fields, body, "")


def _split_front_matter(content: str) -> tuple[str, str, str]:
    """Return the sign that opens what may be front matter, that itself, and what follows; "" for each without any.

    Its lines keep their numbers: it begins with the end of the line of that sign, and a comment for each line above.
    """
    if block := _FENCED.match(content):
        return block[1], "#\n" * content.count("\n", 0, block.start(2)) + block[2], content[block.end() :]
    if content.lstrip().startswith("{"):
        start = len(content) - len(content.lstrip())
        try:
            _, end = json.JSONDecoder().raw_decode(content, start)
        except (ValueError, RecursionError):
            block = _BRACES.match(content)
            return ("{", content[: block.end(1)], content[block.end() :]) if block else ("", "", "")
        first, _, body = content[end:].partition("\n")
        return ("{", content[:end], body) if not first.strip() else ("", "", "")
    return "", "", ""


def _parse_toml(lines: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    fields = tomllib.loads(lines)
    return {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in fields.items()}


def _parse_yaml(lines: str) -> dict[str, Any] | None:
    """Return the fields of a block of YAML; None if it has none, as text between two rules.

    Values are taken from the nodes and not by a loader of PyYAML, which follows YAML 1.1: "no" is a truth value there,
    12:30 is 750, and 2024-13-45 is an error.

    Raises:
        _FrontMatterError: if it is no YAML, also with values in quotes that would need them.
    """
    import yaml  # type: ignore[import-untyped]

    def root(text: str) -> Any:
        return yaml.compose(text, yaml.BaseLoader)

    def quoted(line: re.Match[str]) -> str:
        try:
            root(line[0])
        except yaml.YAMLError:
            return f"{line[1]} '{line[2].replace(chr(39), chr(39) * 2)}'"
        return line[0]

    try:
        node = root(lines)
    except yaml.YAMLError as error:
        try:
            node = root(_ONE_LINE.sub(quoted, lines))
        except yaml.YAMLError:
            if not _NAME_FIRST.match(lines):
                return None
            mark = getattr(error, "problem_mark", None)
            reason = getattr(error, "problem", None) or str(error).partition("\n")[0]
            raise _FrontMatterError(f"line {mark.line + 1}: {reason}" if mark else reason) from None
    if node is None:  # nothing but blank lines and comments, of which a heading is one
        return None if _HEADING.search(lines) else {}
    if not isinstance(node, yaml.MappingNode):
        return None
    fields = {}
    for name, value in node.value:
        if isinstance(name, yaml.ScalarNode):
            plain = _plain_value(value)
            as_written = name.value.casefold() in ("id", "title") and isinstance(value, yaml.ScalarNode)
            fields[name.value] = value.value if as_written and plain is not None else plain
    return fields or None


def _plain_value(node: Any) -> Any:
    """Return the text, number, truth value or None of a node of YAML, the texts of a list, or the node if it is nested.

    Plain scalars have the values of YAML 1.2, which are those of JSON.
    """
    from yaml import ScalarNode, SequenceNode

    if isinstance(node, SequenceNode) and all(isinstance(item, ScalarNode) for item in node.value):
        return [item.value for item in node.value]
    if not isinstance(node, ScalarNode):
        return node
    if node.style is not None:  # in quotes, or a block
        return node.value
    if node.value in ("", "~"):
        return None
    try:
        value = json.loads(node.value.lower())  # also True and NULL
    except ValueError:
        return node.value
    return node.value if isinstance(value, float) and not math.isfinite(value) else value  # 12e4567 is a commit


# --- the heading ---


@cache
def _block_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark")
    parser.core.ruler.enableOnly(["normalize", "block"])  # what stands within a line matters to nobody here
    return parser


def _split_heading(text: str) -> tuple[str, str]:
    """Return the first heading that stands on a single line, "" without one, and the text without it.

    Others are passed over, and those of quotes, lists, comments and code.
    """
    for token, inline in pairwise(_block_parser().parse(text)):
        if token.type != "heading_open" or token.level or token.map is None:
            continue
        title = _ATTRIBUTES.sub("", inline.content.strip())
        if title and "\n" not in title:
            lines, (start, end) = text.split("\n"), token.map
            return title, "\n".join(lines[:start] + lines[end:])
    return "", text
