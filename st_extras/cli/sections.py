"""Help of a command in sections, the most used options first, with an example at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from typer.core import TyperCommand

_Function = TypeVar("_Function", bound=Callable[..., Any])
_MOST_USED = "Most used"


def help_sections(sections: Mapping[str, Sequence[str]], example: str) -> Callable[[_Function], _Function]:
    """Let the help of a command show these sections after its most used options, which are in none of them.

    Args:
        sections: names of parameters by the title of their section, in the order of the help.
        example: a command line and what it does.
    """

    def mark(function: _Function) -> _Function:
        function.help_sections, function.help_example = sections, example  # type: ignore[attr-defined]
        return function

    return mark


class SectionedCommand(TyperCommand):
    """A command whose help follows :func:`help_sections`, where its function has some."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then each section of options."""
        sections: Mapping[str, Sequence[str]] = getattr(self.callback, "help_sections", {})
        titles = {name: title for title, names in sections.items() for name in names}
        others = _MOST_USED if sections else "Options"
        records: dict[str, list[Any]] = {title: [] for title in ("Arguments", others, *sections)}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                title = titles.get(str(parameter.name)) or getattr(parameter, "rich_help_panel", None) or others
                records.setdefault("Arguments" if parameter.param_type_name == "argument" else title, []).append(record)
        for title, lines in records.items():
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example."""
        if example := getattr(self.callback, "help_example", ""):
            with formatter.section("Example"):
                formatter.write(f"  {example}\n")
