"""Arguments and options that commands share: names, help texts, what is allowed. Defaults stand in the commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from st_extras import encoder_names
from st_extras.checks import check_count, check_fraction, check_interval, check_not_negative, check_positive

# ------------------------------------------------------------------------------------------- what a number may be


def checked(check: Callable[[str, Any], Any]) -> Callable[[typer.CallbackParam, Any], Any]:
    """Return a callback for ``typer.Option`` that applies ``check`` to the option's name and value, unless None.

    The check raises a ValueError before the command starts, so that nothing is read or made for a wrong number.
    """

    def callback(parameter: typer.CallbackParam, value: Any) -> Any:
        return value if value is None else check(max(parameter.opts, key=len), value)

    return callback


_MOST = 2**31 - 1


def _steps(name: str, value: int) -> int:
    return value if value == -1 else check_count(f"{name}, unless it is -1,", value, 1, _MOST)


AT_LEAST_ONE = checked(lambda name, value: check_count(name, value, 1, _MOST))
POSITIVE = checked(check_positive)
NOT_NEGATIVE = checked(check_not_negative)
FRACTION = checked(check_fraction)
STEPS = checked(_steps)
DROPOUT = checked(lambda name, value: check_interval(name, value, 0, 1, high_included=False))
LORA = checked(lambda name, value: check_count(name, value, 1, 4096))
MAX_LENGTH = checked(lambda name, value: check_count(name, value, 3, _MOST))
PROCESSES = checked(lambda name, value: check_count(name, value, 1, 1024))
SEED = checked(lambda name, value: check_count(name, value, 0, 2**32 - 1))


def _encoders(_: str, value: str | list[str]) -> str | list[str]:
    for name in [value] if isinstance(value, str) else value:
        encoder_names.find_encoder(name)
    return value


ENCODER = checked(_encoders)


def _existing_texts(_: str, value: list[str]) -> list[str]:
    from st_extras.text.sources import check_no_missing_file

    for name in value:
        check_no_missing_file(name)
    return value


TEXTS = checked(_existing_texts)


def refuse_refined(path: str) -> None:
    """Refuse a folder with modules of this package where a plain encoder is needed."""
    modules = Path(path, "modules.json")
    if modules.is_file() and b"st_extras" in modules.read_bytes():
        raise ValueError(
            f"encoder must be without post-processing of this package, got {path!r}: give the one it was refined from."
        )


def named_like(context: typer.Context, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the options of the running command that bear the name of an argument of ``function``, to hand them on."""
    known = inspect.signature(function).parameters
    return {name: value for name, value in context.params.items() if name in known}


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
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            raise ValueError(f"{max(parameter.opts, key=len)} {reason}.")


def is_given(context: typer.Context, *names: str) -> bool:
    """Return whether one of these parameters stands on the command line."""
    sources = [context.get_parameter_source(name) for name in names]
    return any(source is not None and source.name == "COMMANDLINE" for source in sources)


def check_column(context: typer.Context, text: list[str]) -> None:
    """Check that something reads ``--column``.

    Raises:
        ValueError: if it was given for .txt files alone.
    """
    from st_extras.text.files import file_kind

    if all(file_kind(name)[0] == ".txt" for name in text):
        refuse_unread(context, "is not for .txt files: each of their lines is a sentence", "column")


@contextmanager
def columns_named(remedy: str) -> Iterator[None]:
    """In errors about a column, put what helps at this entrance in the place of ``--column``."""
    try:
        yield
    except ValueError as error:
        raise ValueError(str(error).replace("--column (column=) can name another", remedy)) from error


# ------------------------------------------------------------------------------------------- input and output

Encoder = Annotated[
    str,
    typer.Argument(help='Transformer or SentenceTransformer to work on: folder, hub id or "demo".', callback=ENCODER),
]
AnyEncoder = Annotated[
    str,
    typer.Argument(help='Encoder, with or without post-processing: folder, hub id or "demo".', callback=ENCODER),
]
Text = Annotated[
    list[str],
    typer.Argument(
        help="Files (.txt, .jsonl, .csv, .tsv, .parquet, .json; also .gz), folders, patterns, data set ids or "
        "hf:// paths.",
        callback=TEXTS,
    ),
]
Column = Annotated[str | None, typer.Option(help="Column to read, of all but .txt files; default: the one with text.")]
Limit = Annotated[int | None, typer.Option(help="Use only the first N sentences.", callback=AT_LEAST_ONE)]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder to save to.")]
Overwrite = Annotated[bool, typer.Option(help="Replace earlier results in --output.")]
Resume = Annotated[bool, typer.Option(help="Continue from the last checkpoint in --output.")]
Force = Annotated[
    bool, typer.Option("--force", help="With --resume: continue although the text or a setting differs, and log it.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Hide progress bars; implied by --json.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]

Setting = Annotated[
    list[str] | None,
    typer.Option("--set", help="NAME=VALUE, by the name of an argument of the loss or method in Python; repeatable."),
]
Seed = Annotated[int, typer.Option(help="Random seed for data order, dropout and the loss.", callback=SEED)]
DrawSeed = Annotated[int, typer.Option("--seed", help="Random seed for which texts are sampled.", callback=SEED)]

# ------------------------------------------------------------------------------------------- encoding a corpus

EncodeBatch = Annotated[int, typer.Option("--batch-size", help="Sentences per forward pass.", callback=AT_LEAST_ONE)]
Devices = Annotated[
    list[str] | None,
    typer.Option("--device", help="Device to encode on, such as cuda:0; repeatable, one process each."),
]
Prompt = Annotated[
    str | None, typer.Option(help="Text put before every sentence; default: the encoder's own default prompt.")
]


def encoding(batch_size: int, devices: list[str] | None, prompt: str | None) -> dict[str, Any]:
    """Return the arguments ``batch_size`` and ``encode_options`` that the options stand for."""
    given = {"device": devices[0] if devices and len(devices) == 1 else devices, "prompt": prompt}
    return {"batch_size": batch_size, "encode_options": {name: one for name, one in given.items() if one is not None}}


# ------------------------------------------------------------------------------------------- scoring

Sts = Annotated[
    str, typer.Option(help='STS sets: folder, "hub", or a table of yours with columns score, sentence1, sentence2.')
]
Sets = Annotated[
    list[str] | None,
    typer.Option(help="Name of an STS set; repeatable; default: the seven test sets, or the one of a single file."),
]
TrainDev = Annotated[
    str | None,
    typer.Option(help='Data to choose the best weights by: STS source (folder, table, "hub") or "unlabeled".'),
]
DevSet = Annotated[
    str | None,
    typer.Option(help="Name of the labelled set to choose by; default: that of a single file, else stsb_dev."),
]
Labeled = Annotated[
    str | None,
    typer.Option(help="File of texts and labels (.tsv, .csv, .jsonl, also .gz; .json, .parquet)."),
]
TextColumn = Annotated[str | None, typer.Option(help="--labeled: column of the texts; default: the one with text.")]
LabelColumn = Annotated[str, typer.Option(help="--labeled: column of the labels.")]
Retrieval = Annotated[
    str | None,
    typer.Option(help="Folder of a search collection in BEIR's layout (corpus, queries, qrels)."),
]
Split = Annotated[str | None, typer.Option(help="--retrieval: which of several qrels; default: the only one, or test.")]
QueryPrompt = Annotated[str | None, typer.Option(help="Text put before every query; default: the encoder's own.")]
DocumentPrompt = Annotated[str | None, typer.Option(help="Text put before every document; default: the encoder's own.")]
Test = Annotated[
    str | None, typer.Option(help="STS source whose seven test sets are scored before and after training.")
]

# ------------------------------------------------------------------------------------------- adapting

_LIMIT = checked(lambda name, value: check_count(name, value, 500, 50_000))
_MINUTES = checked(lambda name, value: check_interval(name, value, 0, 10_000, low_included=False))

SampleLimit = Annotated[int, typer.Option("--limit", help="Use at most N texts, sampled at random.", callback=_LIMIT)]
Minutes = Annotated[
    float, typer.Option(help="How long it may take, about; a slow encoder gets fewer texts.", callback=_MINUTES)
]
ResumeEncoding = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run: what it encoded is used.")]

# ------------------------------------------------------------------------------------------- the encoder

MaxLength = Annotated[
    int | None,
    typer.Option("--max-length", help="Maximum tokens per sentence; default: the encoder's own.", callback=MAX_LENGTH),
]
Pooling = Annotated[
    str | None,
    typer.Option(help="cls, mean, weightedmean, max, lasttoken, first-last or last-two; default: the encoder's own."),
]
Layers = Annotated[int | None, typer.Option(help="Number of layers to keep, from the first.", callback=AT_LEAST_ONE)]
Dropout = Annotated[
    float | None, typer.Option(help="Dropout to train with, such as 0.1; default: the encoder's own.", callback=DROPOUT)
]
PromptTemplate = Annotated[
    str | None, typer.Option(help="Text around every sentence, with one {} for the sentence, or 'chat'; for decoders.")
]
Dtype = Annotated[
    str | None,
    typer.Option(
        help="float32, bfloat16 or float16: what the weights are loaded as; default: what they were saved as."
    ),
]
LengthBuckets = Annotated[
    int | None,
    typer.Option(
        help="Encode each batch as N groups of similar length, to save padding; try 4.", callback=AT_LEAST_ONE
    ),
]
