"""``st-extras evaluate``: score encoders on labelled texts, on search, or on STS sets."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from st_extras.cli import options
from st_extras.cli.console import (
    one_line,
    print_json,
    print_line,
    print_table,
    shows_bars,
)
from st_extras.encoder_names import find_encoder

if TYPE_CHECKING:
    from st_extras.evaluation import LabeledTexts, RetrievalComparison, RetrievalTask, STSEvaluator

Models = Iterator[tuple[str, Any]]
"""Names with their encoders, one loaded at a time."""
Rows = dict[str, dict[str, float]]
"""Metrics by encoder, with ``difference``, ``low`` and ``high`` of one of them to the first encoder."""
_OF_INTERVAL = ("difference", "low", "high")
_INTERVAL = "{low:+.2f} to {high:+.2f}"
_RANKS_OF = "rank of the first relevant document of"
"""The first column of a table of ranks, the queries; no other table begins so."""
MEANINGS = {
    "knn_accuracy": "share of texts whose nearest neighbour has their label; knn5: the majority of five",
    "v_measure": "agreement of k-means clusters with the labels; _std: over three seeds",
    "map_at_r": "mean average precision among as many neighbours as there are other texts of the label",
    "mean": "of knn_accuracy, v_measure and map_at_r",
}
"""What the metrics of labelled texts are."""


def evaluate(
    context: typer.Context,
    encoder: Annotated[
        list[str],
        typer.Argument(
            help='Folders or hub ids of encoders, plain or refined, or "demo"; the others are compared with the first.',
            callback=options.find_encoders,
        ),
    ],
    labeled: options.Labeled = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = "label",
    retrieval: Annotated[
        str | None,
        typer.Option(
            help="Folder of a search collection in BEIR's layout (corpus, queries, qrels); with --judged, documents.",
            rich_help_panel=options.SEARCH,
        ),
    ] = None,
    judged: Annotated[
        str | None,
        typer.Option(
            help="Table of judged queries for the documents in --retrieval, which need ids: columns query, id, grade.",
            rich_help_panel=options.SEARCH,
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="--retrieval: which of several qrels; default: the only one, or test.", rich_help_panel=options.SEARCH
        ),
    ] = None,
    baseline: Annotated[
        Literal["bm25"] | None,
        typer.Option(help="What differences are to; default: the first encoder.", rich_help_panel=options.SEARCH),
    ] = None,
    language: options.Language = None,
    passages: options.Passages = None,
    ranks: Annotated[
        Path | None,
        typer.Option(
            help="File (.tsv) for the rank of the first relevant document of each query.",
            rich_help_panel=options.SEARCH,
        ),
    ] = None,
    query_prompt: options.QueryPrompt = None,
    document_prompt: options.DocumentPrompt = None,
    sts: options.Sts = "hub",
    sets: options.Sets = None,
    setting: Annotated[
        Literal["all", "wmean"],
        typer.Option(
            help="All pairs of a set at once, or the weighted mean over its subsets.", rich_help_panel=options.PAIRS
        ),
    ] = "all",
    layers: Annotated[
        int | None,
        typer.Option(help="Cut the first encoder to its first N layers.", min=1, rich_help_panel=options.ENCODER),
    ] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Score encoders on labelled texts, a search collection, or pairs with scores (STS); all scores x 100.

    Several encoders are compared on the same data: the difference to the first one has a 95 % interval (bootstrap over
    the texts, queries or pairs). Without --labeled, --retrieval or --sts, seven STS sets of the hub are scored.

    Example: st-extras evaluate demo adapted --labeled FILE.tsv
    """
    bar = shows_bars(quiet, as_json)
    if labeled is None:
        options.refuse_unread(context, "needs --labeled", "text_column", "label_column")
    if retrieval is None:
        of_search = ("judged", "split", "baseline", "language", "passages", "ranks", "query_prompt", "document_prompt")
        options.refuse_unread(context, "needs --retrieval", *of_search)
    others = ("labeled", "sts", "sets", "setting")
    models = _load_each(encoder, layers, bar)
    if retrieval is not None:
        from st_extras.evaluation import load_judged, load_retrieval

        options.refuse_unread(context, "does not go with --retrieval, which is the data", *others)
        if judged is not None:
            options.refuse_unread(context, "does not go with --judged, which has the judgements", "split")
        if ranks is not None:
            _check_ranks(ranks)
        task = load_retrieval(retrieval, split) if judged is None else load_judged(retrieval, judged)
        _on_search(
            models,
            task,
            ranks,
            as_json,
            baseline=baseline,
            language=language,
            passages=options.passage_words(passages),
            query_prompt=query_prompt,
            document_prompt=document_prompt,
            show_progress_bar=bar,
        )
    elif labeled is not None:
        from st_extras.evaluation import load_labeled_texts

        options.refuse_unread(context, "does not go with --labeled, whose file is the data", *others[1:])
        data = load_labeled_texts(labeled, text_column=text_column, label_column=label_column)
        _on_labeled(models, data, bar, as_json)
    else:
        _on_pairs(models, _pairs(context, sts, sets, setting, bar, as_json), as_json)


def _on_labeled(models: Models, data: LabeledTexts, bar: bool, as_json: bool) -> None:
    from st_extras.evaluation import LabeledTextEvaluator
    from st_extras.evaluation.paired import compare_labeled

    found = compare_labeled(LabeledTextEvaluator(data.texts, data.labels, show_progress_bar=bar), models)
    title = f"{len(data.texts):,} texts with {len(set(data.labels))} labels, x 100"
    _print_rows(found, title, "metric", "mean", "texts", as_json)
    if not as_json:
        for name, meaning in MEANINGS.items():
            print_line(f"{name}: {meaning}")


def _on_pairs(models: Models, evaluator: STSEvaluator, as_json: bool) -> None:
    from st_extras.evaluation.paired import compare_sts

    primary = str(evaluator.primary_metric).removesuffix("_spearman_cosine")
    found = compare_sts(evaluator, models)
    _print_rows(found, "Spearman x 100", "set", primary, "pairs", as_json)


def _pairs(
    context: typer.Context, source: str, sets: Sequence[str] | None, setting: str, bar: bool, as_json: bool
) -> STSEvaluator:
    """Return the evaluator of STS sets: of the hub, if no data is given, with a line that names the alternatives."""
    given = options.is_given(context, "sts") or options.is_given(context, "sets")
    own = "--labeled FILE, --retrieval FOLDER and --sts FOLDER score on your own data"
    if not given and not as_json:
        print_line(f"No data given: seven STS sets of the hub are scored; {own}.", to_stderr=True)
    try:
        return _evaluator_of(source, sets, setting=setting, show_progress_bar=bar)
    except (OSError, ValueError) as error:
        if given:
            raise
        reason = one_line(error).rstrip(".")
        raise ValueError(f"The STS sets of the hub could not be read ({reason}): {own}.") from error


def _on_search(models: Models, task: RetrievalTask, ranks: Path | None, as_json: bool, **settings: Any) -> None:
    """Print a row for each encoder, alone and with BM25, and how far it is from the baseline."""
    from st_extras.evaluation import compare_retrieval
    from st_extras.text.term_weights import require_bm25s

    bm25 = True
    try:
        require_bm25s()
    except ImportError as error:
        bm25 = False
        print_line(f"The rows of BM25 are left out: {error}", to_stderr=True)
    found = compare_retrieval(task, models, bm25=bm25, **settings)
    if ranks is not None:
        _write_ranks(ranks, found)
    rows = {name: percent(row) for name, row in found.rows.items()}
    if as_json:
        print_json(rows)
        return
    first, *_ = rows
    metrics = [name for name in rows[first] if name not in _OF_INTERVAL]
    change = f"{{difference:+.2f}} ({_INTERVAL})"
    cells = [[name, *(f"{row[key]:.2f}" for key in metrics), change.format(**row)] for name, row in rows.items()]
    title = f"Search x 100, {len(task.relevant)} queries, {len(task.documents)} documents"
    print_table(title, ["encoder", *metrics, "ndcg@10 to the first, 95 %"], cells, justify="right")
    if ranks is not None:
        print_line(f"{ranks}: the rank of the first relevant document of each query")


def _check_ranks(file: Path) -> None:
    """Refuse a file that is neither new nor an earlier table of ranks.

    Raises:
        ValueError: with its name.
    """
    if not file.absolute().parent.is_dir():
        raise ValueError(f"--ranks must be a file in an existing folder, got {str(file)!r}.")
    if not file.exists():
        return
    start = _RANKS_OF.encode()
    if not file.is_file() or file.read_bytes()[: len(start)] != start:
        raise ValueError(f"--ranks must be a new file or an earlier table of ranks, got {str(file)!r}: name another.")


def _write_ranks(file: Path, found: RetrievalComparison) -> None:
    """Write a table of the queries with the rank of the first relevant document by each row; empty beyond 100."""
    from st_extras.files import whole_file

    with whole_file(file) as partial, partial.open("w", newline="", encoding="utf8") as table:
        rows = csv.writer(table, delimiter="\t", lineterminator="\n")
        rows.writerow([_RANKS_OF, *found.ranks])
        rows.writerows(zip(found.queries, *found.ranks.values(), strict=True))


def _load_each(encoders: Sequence[str], layers: int | None, bar: bool) -> Models:
    """Yield each name with its encoder; with progress bars, print whose the next one is."""
    from st_extras.encoders import load_encoder

    for number, name in enumerate(encoders):
        if number == 0 and layers is not None:
            options.refuse_refined(name)
            model = load_encoder(name, layers=layers)
        else:
            model = load_any(name)
        if bar and len(encoders) > 1:
            print_line(f"Encoding with {name}", to_stderr=True)
        yield name, model


def _print_rows(found: Rows, title: str, rows: str, primary: str, drawn: str, as_json: bool) -> None:
    """Print a column for each encoder; of several, with how far each is from the first in the primary metric."""
    columns = {name: percent(metrics) for name, metrics in found.items()}
    if len(columns) == 1:
        columns = {name: {k: v for k, v in row.items() if k not in _OF_INTERVAL} for name, row in columns.items()}
    first, *others = columns
    if as_json:
        print_json(columns if others else columns[first])
        return
    metrics = [name for name in columns[first] if name not in _OF_INTERVAL]
    cells = [[name, *(f"{row[name]:.2f}" for row in columns.values())] for name in metrics]
    if others:
        cells.append(["difference", "", *(f"{columns[name]['difference']:+.2f}" for name in others)])
        cells.append(["95 % interval", "", *(_INTERVAL.format(**columns[name]) for name in others)])
    print_table(title, [rows, *columns], cells, justify="right")
    if others:
        print_line(f"difference: in {primary}, to {first}; interval: bootstrap over the {drawn}")


# ------------------------------------------------------------------------------------------- for other commands too


def load_any(path: str) -> Any:
    """Load an encoder from a folder or the hub, with or without this package's post-processing."""
    from sentence_transformers.util import load_file_path

    from st_extras.encoders import load_encoder
    from st_extras.modules import load

    try:
        path = find_encoder(path)
        modules = load_file_path(path, "modules.json")
        ours = modules is not None and b"st_extras" in Path(modules).read_bytes()
        return load(path) if ours else load_encoder(path)
    except Exception as error:
        if isinstance(error, ValueError) and repr(path)[:-1] in str(error):
            raise
        raise ValueError(f"{path!r} could not be loaded as an encoder: {one_line(error)}") from error


def _evaluator_of(source: str, sets: Sequence[str] | None, **settings: Any) -> STSEvaluator:
    from st_extras.evaluation import SEVEN_STS, sts_evaluator

    names = sets or ([_name_of(source)] if Path(source).is_file() else SEVEN_STS)
    return sts_evaluator(names, source, **settings)


def percent(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return metrics x 100; those of an STS evaluator by the names of the sets."""
    return {name.removesuffix("_spearman_cosine"): 100 * value for name, value in metrics.items()}


def dev_name(dev_set: str | None, source: str) -> str:
    """Return the name of the labelled set to choose by: the given one, else that of a single file, else STS-B's."""
    return dev_set or (_name_of(source) if Path(source).is_file() else "stsb_dev")


def _name_of(file: str) -> str:
    return Path(file).name.partition(".")[0]
