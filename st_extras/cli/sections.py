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
        if not sections:
            super().format_options(ctx, formatter)
            return
        titles = {name: title for title, names in sections.items() for name in names}
        records: dict[str, list[Any]] = {title: [] for title in ("Arguments", _MOST_USED, *sections)}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                is_argument = parameter.param_type_name == "argument"
                records["Arguments" if is_argument else titles.get(str(parameter.name), _MOST_USED)].append(record)
        for title, lines in records.items():
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example."""
        if example := getattr(self.callback, "help_example", ""):
            with formatter.section("Example"):
                formatter.write(f"  {example}\n")
