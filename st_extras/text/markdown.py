"""Markdown files: the id and the title of their front matter, and the text without it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from st_extras.text.files import has_lone_surrogate

_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_PLAIN = re.compile(r"""^([\w-]+:)[ \t]+([^\s"'|>\[{&*!#].*?)[ \t\r]*$""", re.MULTILINE)  # a value without quotes
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*?)(?:[ \t]+#+)?(?:[ \t]*\{[^{}]*\})?[ \t]*\r?\n?")
_UNDERLINE = re.compile(r" {0,3}=+[ \t]*\r?\n?")


class Page(NamedTuple):
    """What a Markdown file holds.

    Attributes:
        id: of its front matter; "" without one.
        title: of its front matter, otherwise its first heading; "" without any.
        text: the rest, without the front matter and the heading that is the title.
    """

    id: str
    title: str
    text: str


def parse_markdown(content: str) -> Page:
    """Return what a Markdown file holds.

    YAML between two lines ``---`` at its beginning is front matter, unless it is malformed or has no names; a colon in
    a title needs no quotes.
    """
    front, body = _split_front_matter(content)
    title = " ".join(front.get("title", "").split())
    heading, rest = _split_heading(body)
    if not title or title == heading:
        title, body = heading, rest
    return Page(front.get("id", "").strip(), title, body)


def _split_front_matter(content: str) -> tuple[dict[str, str], str]:
    """Return the texts of the front matter by their names in lower case, and what follows it."""
    found = _FRONT_MATTER.match(content)
    if found is None:
        return {}, content
    import yaml  # type: ignore[import-untyped]

    quoted = _PLAIN.sub(lambda line: f"{line[1]} '{line[2].replace(chr(39), chr(39) * 2)}'", found[1])
    for block in (found[1], quoted):
        try:
            values = yaml.load(block, yaml.BaseLoader) or {}  # makes texts, lists and dicts of them alone
        except (yaml.YAMLError, RecursionError):
            continue
        if isinstance(values, Mapping):
            texts = {name.casefold(): value for name, value in values.items() if isinstance(value, str)}
            return {name: text for name, text in texts.items() if not has_lone_surrogate(text)}, content[found.end() :]
    return {}, content


def _split_heading(text: str) -> tuple[str, str]:
    """Return the first heading, "" without one, and the text without it; code between fences has none."""
    lines = text.splitlines(keepends=True)
    fence = ""
    for number, line in enumerate(lines):
        opened = _FENCE.match(line)
        if fence:
            fence = "" if opened and opened[1].startswith(fence) else fence
        elif opened:
            fence = opened[1]
        elif (heading := _HEADING.fullmatch(line)) and heading[1].strip():
            return heading[1].strip(), "".join(lines[:number] + lines[number + 1 :])
        elif number and _UNDERLINE.fullmatch(line) and (title := lines[number - 1].strip()):
            return title, "".join(lines[: number - 1] + lines[number + 1 :])
    return "", text
