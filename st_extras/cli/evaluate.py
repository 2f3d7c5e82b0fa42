"""``st-extras evaluate``: score encoders on labelled texts, on search, on STS sets, or compare them on plain text."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from st_extras.checks import argument_called, counted
from st_extras.cli import options
from st_extras.cli.console import one_line, print_json, print_line, print_table, shows_bars, threshold_line

if TYPE_CHECKING:
    from st_extras.evaluation import RetrievalComparison, STSDataset, TextComparison

Models = Iterator[tuple[str, Any]]
"""Names with their encoders, one loaded at a time."""
_DATA = {
    "labeled": ("text_column", "label_column"),
    "retrieval": (
        *("judged", "whole_files", "split", "baseline", "index", "language", "passages", "ranks"),
        *("query_prompt", "document_prompt"),
    ),
    "text": ("threshold", "prompt", "column"),
    "sts": ("sets", "setting"),
}
"""The options that name the data, one for each job, and the other options of the job."""
_INTERVAL_FIELDS = ("difference", "low", "high")
_INTERVAL = "{low:+.2f} to {high:+.2f}"
_RANKS_TITLE = "rank of the first relevant document of"
"""The first column of a table of ranks, the queries; no other table begins so."""
_CAVEAT = (
    "The score is not in points. It holds only for texts that no encoder here was fitted on, and was tried on "
    "transforms and short trainings of the first encoder: between two encoders of other origin it may be wrong."
)
_MEANINGS = {
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
            help='Encoders: folders, hub ids or "demo"; the others are compared with the first.',
            callback=options.find_encoders,
        ),
    ],
    labeled: options.Labeled = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = "label",
    retrieval: Annotated[
        list[str] | None,
        typer.Option(
            help="Search collection: a folder in BEIR's layout, or with --judged the documents; these repeatable.",
            callback=options.find_texts,
            rich_help_panel=options.SEARCH,
        ),
    ] = None,
    judged: Annotated[
        str | None,
        typer.Option(
            help="--retrieval: table of judged queries, with columns query, id, grade.",
            rich_help_panel=options.SEARCH,
        ),
    ] = None,
    whole_files: Annotated[
        bool,
        typer.Option(
            "--whole-files",
            help="--judged: each .txt file is a document, its path the id.",
            rich_help_panel=options.SEARCH,
        ),
    ] = False,
    split: Annotated[
        str | None,
        typer.Option(
            help="--retrieval: which of several qrels; default: the only one, or test.", rich_help_panel=options.SEARCH
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Row that differences are to, such as bm25; default: the first encoder.",
            rich_help_panel=options.SEARCH,
        ),
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option(
            help="File that keeps the encoded documents of one encoder, as of search --index.",
            rich_help_panel=options.SEARCH,
        ),
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
    text: Annotated[
        list[str] | None,
        typer.Option(
            help="File, folder or pattern of texts without labels; repeatable.",
            callback=options.find_texts,
            rich_help_panel=options.TEXT,
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="--text: your threshold on cosines with the first encoder; where it moves is printed.",
            rich_help_panel=options.TEXT,
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            help="--text: text put before each; default: the encoder's own.",
            callback=options.check_text,
            rich_help_panel=options.TEXT,
        ),
    ] = None,
    column: options.Column = None,
    sts: Annotated[
        str,
        typer.Option(
            help='Graded pairs: a table with columns score, sentence1, sentence2, a folder of STS sets, or "hub".',
            rich_help_panel=options.PAIRS,
        ),
    ] = "hub",
    sets: Annotated[
        list[str] | None,
        typer.Option(
            help="--sts: name of a set; repeatable; default: the seven test sets.",
            rich_help_panel=options.PAIRS,
        ),
    ] = None,
    setting: Annotated[
        Literal["all", "wmean"],
        typer.Option(
            help="All pairs of a set at once, or the weighted mean over its subsets.", rich_help_panel=options.PAIRS
        ),
    ] = "all",
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Score encoders by labels, judged queries or graded pairs, all x 100, or compare them on text without labels.

    Several encoders are compared on the same data: the difference to the first one has a 95 % interval (bootstrap over
    the texts, queries or pairs). Without data, seven STS sets of the hub are scored.

    --text shows above which cosine few pairs of unrelated texts lie, where to put a threshold, and whether an encoder
    is better on this text than the first one: give texts that none was fitted on.

    Example: st-extras evaluate demo adapted --labeled FILE.tsv
    """
    from st_extras import evaluation

    bar = shows_bars(quiet, as_json)
    _check_data(context)
    if repeated := [name for number, name in enumerate(encoder) if name in encoder[:number]]:
        raise ValueError(f"ENCODER must be different ones, got {repeated[0]!r} twice.")
    models = _load_each(encoder, bar, query_prompt, document_prompt)
    if labeled is not None:
        with argument_called("--labeled", "path"):
            labels = evaluation.load_labeled_texts(labeled, text_column=text_column, label_column=label_column)

        from st_extras.evaluation.paired import compare_labeled  # below: torch, which takes seconds

        labeled_evaluator = evaluation.LabeledTextEvaluator(labels.texts, labels.labels, show_progress_bar=bar)
        scores = compare_labeled(labeled_evaluator, models)
        title = f"{counted(len(labels.texts), 'text')} with {counted(len(set(labels.labels)), 'label')}, x 100"
        _print_scores(scores, title, "metric", "mean", "texts", as_json)
        if not as_json:
            for name, meaning in _MEANINGS.items():
                print_line(f"{name}: {meaning}")
    elif retrieval is not None:
        if index is not None and len(encoder) > 1:
            raise ValueError(f"--index needs one encoder, whose documents it keeps, got {len(encoder)}.")
        options.check_index(index)
        if ranks is not None:
            options.check_replaceable("--ranks", ranks, "an earlier table of ranks", _RANKS_TITLE.encode())
        if judged is not None:
            options.refuse_unread(context, "does not go with --judged, which has the judgements", "split")
            task = evaluation.load_judged(retrieval, judged, whole_files=whole_files)
        else:
            options.refuse_unread(context, "needs --judged", "whole_files")
            if len(retrieval) > 1:
                raise ValueError(f"--retrieval must be one folder without --judged, got {len(retrieval)}.")
            task = evaluation.load_retrieval(retrieval[0], split)

        from st_extras.evaluation.retrieval import comparison_rows  # below: torch, which takes seconds

        rows = comparison_rows(encoder)
        if baseline not in (None, "bm25", *rows):
            raise ValueError(
                f"--baseline must be bm25 or one of the rows {', '.join(map(repr, rows))}, got {baseline!r}."
            )
        comparison = evaluation.compare_retrieval(
            task,
            models,
            baseline=baseline,
            index=index,
            language=language,
            passages="default" if passages is None else passages or None,
            show_progress_bar=bar,
        )
        if ranks is not None:
            _write_ranks(ranks, comparison)
        queries_and_documents = (
            counted(len(task.relevant), "query", "queries"),
            counted(len(task.documents), "document"),
        )
        title = f"Search x 100, {', '.join(queries_and_documents)}"
        _print_search(comparison, title, as_json)
        if ranks is not None and not as_json:
            print_line(f"{ranks}: the rank of the first relevant document of each query")
    elif text is not None:
        from st_extras.text.corpus import stream_sentences

        options.check_column(context, text)
        texts = stream_sentences(text, column=column)
        with argument_called("--text", "texts"):
            report = evaluation.compare_texts(  # imports torch, which takes seconds
                models,
                texts,
                threshold=threshold,
                prompt=prompt,
                show_progress_bar=bar,
            )
        if as_json:
            print_json(report.as_json())
        else:
            _print_text(report)
    else:
        pairs = _read_pairs(context, sts, sets, as_json)

        from st_extras.evaluation.paired import compare_sts  # below: torch, which takes seconds

        sts_evaluator = evaluation.STSEvaluator(pairs, setting=setting, show_progress_bar=bar)
        primary = str(sts_evaluator.primary_metric).removesuffix("_spearman_cosine")
        _print_scores(compare_sts(sts_evaluator, models), "Spearman x 100", "set", primary, "pairs", as_json)


def _check_data(context: typer.Context) -> None:
    """Check that one option names the data, STS sets of the hub if none does, and that all others belong to it.

    Raises:
        ValueError: if two do, or an option belongs to another one.
    """
    data, *others = [name for name in _DATA if options.is_given(context, name)] or ["sts"]
    options.refuse_unread(context, f"does not go with --{data}: score on one of them", *others)
    for name, belonging in _DATA.items():
        if name != data:
            options.refuse_unread(context, f"needs --{name}", *belonging)


def _load_each(encoders: Sequence[str], bar: bool, query_prompt: str | None, document_prompt: str | None) -> Models:
    """Yield each name with its encoder; with progress bars, print whose the next one is."""
    from st_extras.modules import load

    for name in encoders:
        model = load(name)
        options.set_prompts(model, query_prompt, document_prompt)
        if bar and len(encoders) > 1:
            print_line(f"Encoding with {name}", to_stderr=True)
        yield name, model


def _read_pairs(context: typer.Context, source: str, names: Sequence[str] | None, as_json: bool) -> list[STSDataset]:
    """Return STS sets: of the hub, if no data is given, with a line that names the alternatives."""
    from st_extras.evaluation.sts_data import SEVEN_STS, load_sets

    given = options.is_given(context, "sts") or options.is_given(context, "sets")
    own = "--labeled FILE, --retrieval FOLDER, --text FILE and --sts FOLDER score on your own data"
    if not given and not as_json:
        print_line(f"No data given: seven STS sets of the hub are scored; {own}.", to_stderr=True)
    try:
        with argument_called("--sets", "name"):
            return load_sets(names or ([options.name_of(source)] if Path(source).is_file() else SEVEN_STS), source)
    except (OSError, ValueError) as error:
        if given:
            raise
        reason = one_line(error).rstrip(".")
        raise ValueError(f"The STS sets of the hub could not be read ({reason}): {own}.") from error


def _write_ranks(file: Path, comparison: RetrievalComparison) -> None:
    """Write a table of the queries with the rank of the first relevant document by each row; empty beyond 100."""
    from st_extras.files import whole_file

    with whole_file(file) as partial, partial.open("w", newline="", encoding="utf8") as table:
        rows = csv.writer(table, delimiter="\t", lineterminator="\n")
        rows.writerow([_RANKS_TITLE, *comparison.ranks])
        rows.writerows(zip(comparison.queries, *comparison.ranks.values(), strict=True))


def _print_search(comparison: RetrievalComparison, title: str, as_json: bool) -> None:
    """Print a row for each encoder, alone and with BM25, and how far it is from the baseline."""
    rows = _percent(comparison.rows)
    if as_json:
        print_json(rows)
        return
    metrics = [name for name in next(iter(rows.values())) if name not in _INTERVAL_FIELDS]
    change = f"{{difference:+.2f}} ({_INTERVAL if len(comparison.queries) > 1 else 'one query'})"
    cells = [[name, *(f"{row[key]:.2f}" for key in metrics), change.format(**row)] for name, row in rows.items()]
    print_table(title, ["encoder", *metrics, "ndcg@10 to the first, 95 %"], cells, justify="right")


def _print_scores(
    scores: Mapping[str, Mapping[str, float]], title: str, rows: str, primary: str, drawn: str, as_json: bool
) -> None:
    """Print a column for each encoder; of several, with how far each is from the first in the primary metric.

    Args:
        scores: metrics by encoder, as :func:`~st_extras.evaluation.paired.compare_sts` returns them.
        title: of the table.
        rows: what its rows are: "set".
        primary: the metric that is compared.
        drawn: what the samples of the interval are drawn from: "pairs".
        as_json: print one JSON object.
    """
    columns = _percent(scores)
    if as_json:
        print_json(columns)
        return
    first, *others = columns
    metrics = [name for name in columns[first] if name not in _INTERVAL_FIELDS]
    cells = [[name, *(f"{row[name]:.2f}" for row in columns.values())] for name in metrics]
    if others:
        cells.append(["difference", "", *(f"{columns[name]['difference']:+.2f}" for name in others)])
        cells.append(["95 % interval", "", *(_INTERVAL.format(**columns[name]) for name in others)])
    print_table(title, [rows, *columns], cells, justify="right")
    if others:
        print_line(f"difference: in {primary}, to {first}; interval: bootstrap over the {drawn}")


def _percent(scores: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return the metrics of each encoder x 100; those of an STS evaluator by the names of the sets."""
    return {
        encoder: {name.removesuffix("_spearman_cosine"): 100 * value for name, value in metrics.items()}
        for encoder, metrics in scores.items()
    }


def _print_text(report: TextComparison) -> None:
    """Print the cosines of unrelated pairs by encoder, where a threshold moves, and who is better without labels."""
    first, *others = report.cosines
    compared = f"{counted(report.texts, 'different text')} of {report.read:,} compared with each other."
    if report.queries is not None:
        documents = f"{counted(report.texts, 'document')} of {report.read:,}"
        compared = f"{counted(report.queries, 'sentence')} of the documents compared, as queries, with {documents}."
    print_line(compared)
    rows = [
        [
            f"1 in {n:,}",
            *("{cosine:.3f} ({low:.3f} to {high:.3f})".format(**asdict(of[n])) for of in report.cosines.values()),
        ]
        for n in report.cosines[first]
    ]
    print_table("Cosines that few unrelated pairs exceed, 95 % interval", ["pairs above", *report.cosines], rows)
    for name, moved in report.thresholds.items():
        print_line(threshold_line(moved, f"of {first}", f"of {name}"))
    scores = report.label_free
    if scores:
        rows = [[name, f"{one.gain:+.3f}", f"{one.low:+.3f} to {one.high:+.3f}"] for name, one in scores.items()]
        print_table(f"Label-free score beside {first}, above 0 is better", ["encoder", "score", "95 % interval"], rows)
        print_line(_CAVEAT)
    elif others:
        print_line(f"Not compared without labels: {report.not_compared}")
