"""``st-extras evaluate``: score encoders on labelled texts, on search, on STS sets, or on tasks of MTEB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from st_extras.cli import options
from st_extras.cli.console import (
    one_line,
    print_json,
    print_line,
    print_scores,
    print_table,
    shows_bars,
)
from st_extras.encoder_names import find_encoder

if TYPE_CHECKING:
    from st_extras.evaluation import LabeledTexts, STSEvaluator

Scorer = Callable[[Any], dict[str, float]]
Rows = dict[str, dict[str, float]]
"""Metrics by encoder, with ``difference``, ``low`` and ``high`` of one of them to the first encoder."""
_OF_INTERVAL = ("difference", "low", "high")
_INTERVAL = "{low:+.2f} to {high:+.2f}"
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
    retrieval: options.Retrieval = None,
    split: options.Split = None,
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
    mteb: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of an MTEB task, such as STS12; repeatable; in place of --sts. Needs the extra mteb.",
            rich_help_panel=options.PAIRS,
        ),
    ] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Score encoders on labelled texts, a search collection, pairs with scores (STS), or MTEB; all scores x 100.

    Several encoders are compared on the same data: the difference to the first one has a 95 % interval (bootstrap over
    the texts, queries or pairs). Without --labeled, --retrieval, --sts or --mteb, seven STS sets of the hub are scored.

    Example: st-extras evaluate demo adapted --labeled FILE.tsv
    """
    bar = shows_bars(quiet, as_json)
    if labeled is None:
        options.refuse_unread(context, "needs --labeled", "text_column", "label_column")
    if retrieval is None:
        options.refuse_unread(context, "needs --retrieval", "split", "query_prompt", "document_prompt")
    others = ("labeled", "sts", "sets", "setting")
    if mteb:
        options.refuse_unread(context, "does not go with --mteb, whose tasks bring data", "retrieval", *others)
        _on_mteb(encoder, mteb, bar, as_json)
    elif retrieval is not None:
        options.refuse_unread(context, "does not go with --retrieval, whose folder is the data", *others)
        prompts = {"query_prompt": query_prompt, "document_prompt": document_prompt}
        _on_search(encoder, retrieval, split, bar, as_json, **prompts)
    elif labeled is not None:
        options.refuse_unread(context, "does not go with --labeled, whose file is the data", *others[1:])
        _on_labeled(encoder, load_labeled(labeled, text_column, label_column), bar, as_json)
    else:
        _on_pairs(encoder, _pairs(context, sts, sets, setting, bar, as_json), bar, as_json)


def _on_labeled(encoders: Sequence[str], data: LabeledTexts, bar: bool, as_json: bool) -> None:
    from st_extras.evaluation import LabeledTextEvaluator
    from st_extras.evaluation.paired import compare_labeled

    found = compare_labeled(
        LabeledTextEvaluator(data.texts, data.labels, show_progress_bar=bar), _load_each(encoders, bar)
    )
    title = f"{len(data.texts):,} texts with {len(set(data.labels))} labels, x 100"
    _print_rows(found, title, "metric", "mean", "texts", as_json)
    if not as_json:
        for name, meaning in MEANINGS.items():
            print_line(f"{name}: {meaning}")


def _on_pairs(encoders: Sequence[str], evaluator: STSEvaluator, bar: bool, as_json: bool) -> None:
    from st_extras.evaluation.paired import compare_sts

    primary = str(evaluator.primary_metric).removesuffix("_spearman_cosine")
    found = compare_sts(evaluator, _load_each(encoders, bar))
    _print_rows(found, "Spearman x 100", "set", primary, "pairs", as_json)


def _pairs(
    context: typer.Context, source: str, sets: Sequence[str] | None, setting: str, bar: bool, as_json: bool
) -> STSEvaluator:
    """Return the evaluator of STS sets: of the hub, if no data is given, with a line that names the alternatives."""
    given = options.is_given(context, "sts", "sets")
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


def _on_mteb(encoders: Sequence[str], names: list[str], bar: bool, as_json: bool) -> None:
    from st_extras.evaluation.mteb import mteb_scores, mteb_tasks

    tasks = mteb_tasks(names)
    found = {
        name: percent(mteb_scores(model, tasks, show_progress_bar=bar)) for name, model in _load_each(encoders, bar)
    }
    if as_json:
        print_json(found if len(found) > 1 else next(iter(found.values())))
    else:
        print_scores("MTEB main score x 100", found, "task", as_json=False)


def _on_search(
    encoders: Sequence[str], folder: str, split: str | None, bar: bool, as_json: bool, **prompts: str | None
) -> None:
    """Print a row for each encoder, alone and with BM25, and how far it is from the first one."""
    from st_extras.evaluation import compare_retrieval, load_retrieval

    task = load_retrieval(folder, split)
    bm25 = find_spec("bm25s") is not None
    if not bm25:
        print_line('The rows of BM25 are left out; they need bm25s: pip install "st-extras[search]".', to_stderr=True)
    found = compare_retrieval(task, _load_each(encoders, bar), bm25=bm25, show_progress_bar=bar, **prompts)
    rows = {name: percent(row) for name, row in found.items()}
    if as_json:
        print_json(rows)
        return
    *metrics, _, _, _ = next(iter(rows.values()))
    change = f"{{difference:+.2f}} ({_INTERVAL})"
    cells = [[name, *(f"{row[key]:.2f}" for key in metrics), change.format(**row)] for name, row in rows.items()]
    title = f"Search x 100, {len(task.relevant)} queries, {len(task.documents)} documents"
    print_table(title, ["encoder", *metrics, "ndcg@10 to the first, 95 %"], cells, justify="right")


def _load_each(encoders: Sequence[str], bar: bool) -> Iterator[tuple[str, Any]]:
    """Yield each name with its encoder; with progress bars, print whose the next one is."""
    for name in encoders:
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


def load_labeled(file: str, text_column: str | None, label_column: str) -> LabeledTexts:
    """Load labelled texts."""
    from st_extras.evaluation import load_labeled_texts

    return load_labeled_texts(file, text_column=text_column, label_column=label_column)


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


def sts_scorer(source: str, sets: Sequence[str] | None = None, **settings: Any) -> Scorer:
    """Return a function that scores STS sets, Spearman x 100: the given ones, else a single file, else all seven."""
    evaluator = _evaluator_of(source, sets, **settings)
    return lambda model: percent(evaluator(model))


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
