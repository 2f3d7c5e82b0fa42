"""Commands whose help is in sections, the most used options first, and which take an option once."""

from __future__ import annotations

from collections import Counter
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
    """A command whose help follows :func:`help_sections`, where its function has some.

    An option that takes one value is refused if it is given twice, of which click would drop the first.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of a command line."""
        order: list[Any]
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        for parameter, times in Counter(order).items():
            if (
                times > 1
                and parameter.param_type_name == "option"
                and not (parameter.multiple or getattr(parameter, "is_flag", False))
            ):
                raise ValueError(f"{max(parameter.opts, key=len)} must be given once, got it {times} times.")
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the whole first sentence for the list of commands, which wraps it; click would cut it at one line."""
        return super().get_short_help_str(limit=max(limit, 1_000))

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
