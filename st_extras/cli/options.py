"""Arguments and options that commands share: names, help texts, what is allowed. Defaults stand in the commands.

A setting that the package checks itself is checked here only where that spares loading torch; the messages name the
argument as Python has it, which is the option's name.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from st_extras import encoder_names
from st_extras.cli.console import named_step

TEXT = "Text"
ENCODER = "Encoder"
LABELS = "Labelled texts"
SEARCH = "Search"
PAIRS = "Pairs with scores"
RUNNING = "Running"
"""Sections of the help, after the most used options, which are in none.

Those of ``evaluate`` also show which options go together: see ``_check_data``.
"""

# ------------------------------------------------------------------------------------------- files in and out

READ = (
    "encoder",
    "text",
    "documents",
    "more_documents",
    "queries",
    "retrieval",
    "judged",
    "labeled",
    "dev",
    "sts",
)
"""Parameters that name files, folders or patterns that are read; some may also name what is on the hub."""
WRITTEN = ("output", "index", "ranks", "folder")
"""Parameters that name a file or folder to write."""
_TILDE = re.compile(r"(--[\w-]+=)(~.*)", re.DOTALL)
"""A home folder that shells leave to the program: ``--output=~/adapted``."""


class Command(TyperCommand):
    """A command that reads all data that it is given, and runs only if it would write over none of it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line, and refuse data that would be read from the last of several places alone.

        Raises:
            ValueError: if an option that names data, and takes one value, is given twice.
        """
        after_sign = ((one, _TILDE.fullmatch(one)) for one in args)
        args = [one if found is None else found[1] + os.path.expanduser(found[2]) for one, found in after_sign]
        _, _, order = self.make_parser(ctx).parse_args(args=[*args])
        for parameter in (one for one in self.params if one.name in READ):
            if (count := order.count(parameter)) > 1 and not parameter.multiple:
                raise ValueError(f"{_shown_name(parameter)} must be given once, got it {count} times.")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error that does not explain itself names the command.

        Raises:
            ValueError: if an output has no name, is an input, or is a folder with an input in it.
        """
        values = [(parameter, ctx.params.get(parameter.name or "")) for parameter in self.params]
        outputs = [(one, Path(value)) for one, value in values if one.name in WRITTEN and value is not None]
        for output, path in outputs:
            if path == Path():  # of an empty text, such as a variable that is not set
                raise ValueError(f'{_shown_name(output)} must name what to write, got "" or ".".')
        inputs = [
            (one, name)
            for one, value in values
            if one.name in READ and value
            for name in ([value] if isinstance(value, str) else value)
        ]
        for output, path in outputs:
            for read, name in inputs:
                if path.exists() and any(place.samefile(path) for place in _read_places(name)):
                    raise ValueError(
                        f"{_shown_name(output)} must not replace what {_shown_name(read)} reads, {name!r}, got "
                        f"{str(path)!r}: write to another place."
                    )
        with named_step(f"st-extras {ctx.info_name}"):  # here: typer would make "Abort." of an EOFError
            return super().invoke(ctx)


def _read_places(name: str) -> set[Path]:
    """Return the file or folder of that name, or the files that match it as a pattern, and all folders around them."""
    matching = glob.glob(name, recursive=True) if glob.has_magic(name) else []
    places: set[Path] = set()
    for place in map(Path, (name, *matching)):
        if place.exists():
            places |= {place, *place.absolute().parents, *place.resolve().parents}
    return places


def check_replaceable(option: str, path: Path, kind: str, start: bytes) -> None:
    """Refuse a file to write that is neither new nor an earlier one of its kind.

    Args:
        option: that names it.
        path: the file.
        kind: what the option writes: "a table of ranks".
        start: what a file of this kind begins with.

    Raises:
        ValueError: with its name.
    """
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{option} must be a file in an existing folder, got {str(path)!r}.")
    if not path.exists():
        from st_extras.files import check_writable

        check_writable(option, path)
        return
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(start)) in (start, b""):
                return
    raise ValueError(f"{option} must be a new file or {kind}, got {str(path)!r}: name another.")


def check_index(path: Path | None) -> None:
    """Refuse a file for ``--index`` that cannot be one; whether an index is whole is checked when it is opened."""
    if path is not None:
        check_replaceable("--index", path, "the Parquet file of a search", b"PAR1")


def _shown_name(parameter: Any) -> str:
    """Return what a message calls a parameter: ``--output``, or ``TEXT``."""
    name = parameter.name.upper() if parameter.param_type_name == "argument" else max(parameter.opts, key=len)
    return str(name)


# ------------------------------------------------------------------------------------------- what is checked at once


def find_encoders(value: Any) -> Any:
    """Return the name of an encoder, or several, if there are such encoders."""
    for name in [value] if isinstance(value, str) else value or ():
        encoder_names.find_encoder(name)
    return value


def find_texts(value: list[str] | None) -> list[str] | None:
    """Return the names of files and data sets if no file among them is missing."""
    from st_extras.text.tables import check_no_missing_file

    for name in value or ():
        check_no_missing_file(name)
    return value


def check_text(parameter: typer.CallbackParam, value: Any) -> Any:
    """Return a query, a prompt or several of them, without the mark that some programs put before UTF-8.

    Raises:
        ValueError: if one is no valid text, as where the terminal or the file that it is from has another encoding.
    """
    name = _shown_name(parameter)
    return [valid_text(name, one) for one in value] if isinstance(value, list) else value and valid_text(name, value)


def valid_text(name: str, text: str) -> str:
    """Return one text that the user wrote, see :func:`check_text`; ``name`` is what the message calls it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be valid text in UTF-8, got {text!a}.") from None
    return text.removeprefix("\ufeff")


def known_language(value: str | None) -> str | None:
    """Return the language of BM25 if there is a stemmer for it."""
    if value is None:
        return None
    from st_extras.text.term_weights import check_language

    return check_language(value)


def refuse_refined(path: str) -> None:
    """Refuse a folder with modules of this package where a plain encoder is needed."""
    modules = Path(path, "modules.json")
    if modules.is_file() and b"st_extras" in modules.read_bytes():
        raise ValueError(
            f"encoder must be without post-processing of this package, got {path!r}: give the one it was refined from."
        )


def refuse_unread(context: typer.Context, reason: str, *names: str) -> None:
    """Refuse options that were given although nothing reads them.

    Args:
        context: of the command that runs.
        reason: what the message says after the option: "needs --dev".
        names: the parameters of the command that nothing reads.

    Raises:
        ValueError: if one of them was given.
    """
    for parameter in context.command.params:
        if parameter.name in names and is_given(context, parameter.name):
            raise ValueError(f"{_shown_name(parameter)} {reason}.")


def is_given(context: typer.Context, name: str) -> bool:
    """Return whether a parameter of the command stands on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def passage_words(given: int | None) -> int | None:
    """Return the words of a passage that ``--passages`` stands for; None: documents stay whole."""
    from st_extras.encoders.passages import PASSAGE_WORDS

    return PASSAGE_WORDS if given is None else given or None


def check_column(context: typer.Context, text: list[str]) -> None:
    """Check that something reads ``--column``.

    Raises:
        ValueError: if it was given for .txt files alone.
    """
    from st_extras.text.files import file_kind

    if all(file_kind(name)[0] == ".txt" for name in text):
        refuse_unread(context, "is not for .txt files: each of their lines is a sentence", "column")


def read_given_queries(
    files: Sequence[str] | None, documents: Sequence[str], column: str | None = None
) -> list[str] | None:
    """Return the queries of the files; without any, those of folders in BEIR's layout; None if there are none."""
    from st_extras.text.documents import read_queries
    from st_extras.text.folders import find_search_folder

    folders = [folder for folder in map(find_search_folder, documents) if folder is not None]
    sources = files or [str(folder.queries) for folder in folders if folder.queries is not None]
    return [*read_queries(sources, column=column).values()] if sources else None


def set_prompts(model: Any, query_prompt: str | None, document_prompt: str | None) -> None:
    """Let an encoder put these texts before queries and documents; None leaves its own."""
    prompts = {"query": query_prompt, "document": document_prompt}
    model.prompts.update({role: prompt for role, prompt in prompts.items() if prompt is not None})


def dev_name(dev_set: str | None, source: str) -> str:
    """Return the name of the graded pairs to choose by: the given one, else that of a single file, else STS-B's."""
    return dev_set or (name_of(source) if Path(source).is_file() else "stsb_dev")


def name_of(file: str) -> str:
    """Return the name of a file without its endings."""
    return Path(file).name.partition(".")[0]


# ------------------------------------------------------------------------------------------- input and output

Encoder = Annotated[
    str,
    typer.Argument(
        help='Transformer or SentenceTransformer to work on: folder, hub id or "demo".', callback=find_encoders
    ),
]
AnyEncoder = Annotated[
    str,
    typer.Argument(help='Encoder, with or without post-processing: folder, hub id or "demo".', callback=find_encoders),
]
Text = Annotated[
    list[str],
    typer.Argument(
        help="Files (.txt, .md, .jsonl, .csv, .tsv, .parquet, .json; also .gz), folders, patterns or data set ids.",
        callback=find_texts,
    ),
]
Column = Annotated[
    str | None,
    typer.Option(help="Column to read; default: the one with text.", rich_help_panel=TEXT),
]
QueryColumn = Annotated[
    str | None,
    typer.Option(help="Column of the queries in a table of --queries.", rich_help_panel=TEXT),
]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder to save to.")]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace an earlier result, edited or not.",
        rich_help_panel=RUNNING,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Hide progress bars; implied by --json.", rich_help_panel=RUNNING)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.", rich_help_panel=RUNNING)]

DrawSeed = Annotated[
    int,
    typer.Option(
        "--seed", help="Random seed for which texts are sampled.", min=0, max=2**32 - 1, rich_help_panel=RUNNING
    ),
]

# ------------------------------------------------------------------------------------------- encoding a corpus

EncodeBatch = Annotated[
    int, typer.Option("--batch-size", help="Sentences per forward pass.", min=1, rich_help_panel=RUNNING)
]

# ------------------------------------------------------------------------------------------- scoring

Labeled = Annotated[
    str | None,
    typer.Option(help="Table of texts and labels.", rich_help_panel=LABELS),
]
WholeFiles = Annotated[
    bool,
    typer.Option(
        "--whole-files", help="Each .txt file is a document; default: each line of it is.", rich_help_panel=TEXT
    ),
]
TextColumn = Annotated[
    str | None, typer.Option(help="--labeled: column of the texts; default: the one with text.", rich_help_panel=LABELS)
]
LabelColumn = Annotated[str, typer.Option(help="--labeled: column of the labels.", rich_help_panel=LABELS)]
Language = Annotated[
    str | None,
    typer.Option(help='BM25 by stems, such as "english".', callback=known_language, rich_help_panel=SEARCH),
]
Passages = Annotated[
    int | None,
    typer.Option(
        help="Words of a passage, of documents too long for the encoder; 0: they stay whole; default: 110.",
        min=0,
        rich_help_panel=SEARCH,
    ),
]
QueryPrompt = Annotated[
    str | None,
    typer.Option(
        help="Text put before every query; default: the encoder's own.", callback=check_text, rich_help_panel=SEARCH
    ),
]
DocumentPrompt = Annotated[
    str | None,
    typer.Option(
        help="Text put before every document; default: the encoder's own.", callback=check_text, rich_help_panel=SEARCH
    ),
]

# ------------------------------------------------------------------------------------------- adapting

Limit = Annotated[int, typer.Option(help="Use at most N texts, sampled at random.", rich_help_panel=TEXT)]
Minutes = Annotated[
    float | None,
    typer.Option(
        help="How long it may take, about; a slow encoder then gets fewer texts. Default: as long as it takes.",
        rich_help_panel=RUNNING,
    ),
]
