"""``st-extras evaluate``: score encoders on STS sets, on labelled texts, on search, or on tasks of MTEB."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from st_extras.cli import options
from st_extras.cli.console import one_line, print_json, print_line, print_scores, print_table, shows_bars

if TYPE_CHECKING:
    from st_extras.evaluation import LabeledTexts

Scorer = Callable[[Any], dict[str, float]]


def evaluate(
    context: typer.Context,
    encoder: Annotated[
        list[str], typer.Argument(help="Folders or hub ids of encoders, plain or refined: a column of the table each.")
    ],
    sts: options.Sts = "hub",
    sets: options.Sets = None,
    setting: Annotated[str, typer.Option(help='"all" pairs of a set at once, or "wmean" over its subsets.')] = "all",
    labeled: options.Labeled = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = "label",
    retrieval: options.Retrieval = None,
    split: options.Split = None,
    query_prompt: options.QueryPrompt = None,
    document_prompt: options.DocumentPrompt = None,
    mteb: Annotated[
        list[str] | None,
        typer.Option(help="Name of an MTEB task, such as STS12; repeatable; in place of --sts. Needs the extra mteb."),
    ] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Score encoders on STS sets (Spearman x 100), labelled texts, a search collection, or MTEB (main score x 100)."""
    from st_extras import evaluation

    bar = shows_bars(quiet, as_json)
    score: Scorer
    if labeled is None:
        options.refuse_unread(context, "needs --labeled", "text_column", "label_column")
    if retrieval is None:
        options.refuse_unread(context, "needs --retrieval", "split", "query_prompt", "document_prompt")
    others = ("labeled", "sts", "sets", "setting")
    if mteb:
        options.refuse_unread(context, "does not go with --mteb, whose tasks bring data", "retrieval", *others)
        from st_extras.evaluation.mteb import mteb_scores, mteb_tasks

        tasks = mteb_tasks(mteb)
        title, rows = "MTEB main score x 100", "task"
        score = lambda model: percent(mteb_scores(model, tasks, show_progress_bar=bar))  # noqa: E731
    elif retrieval is not None:
        options.refuse_unread(context, "does not go with --retrieval, whose folder is the data", *others)
        prompts = {"query_prompt": query_prompt, "document_prompt": document_prompt}
        _search(encoder, retrieval, split, as_json=as_json, show_progress_bar=bar, **prompts)
        return
    elif labeled is not None:
        options.refuse_unread(context, "does not go with --labeled, whose file is the data", "sts", "sets", "setting")
        data = load_labeled(labeled, text_column, label_column)
        evaluator = evaluation.LabeledTextEvaluator(data.texts, data.labels, show_progress_bar=bar)
        title, rows, score = "Labelled texts x 100", "metric", lambda model: percent(evaluator(model))
    else:
        title, rows, score = "Spearman x 100", "set", sts_scorer(sts, sets, setting=setting, show_progress_bar=bar)
    columns = {name: score(load_any(name)) for name in encoder}
    if as_json and len(encoder) == 1:
        print_json(columns[encoder[0]])
    else:
        print_scores(title, columns, rows, as_json=as_json)


def _search(encoders: Sequence[str], folder: str, split: str | None, *, as_json: bool, **settings: Any) -> None:
    """Print a row for each encoder, alone and with BM25, and how far it is from the first one."""
    from st_extras.evaluation import compare_retrieval, load_retrieval

    task = load_retrieval(folder, split)
    bm25 = find_spec("bm25s") is not None
    if not bm25:
        print_line('The rows of BM25 are left out; they need bm25s: pip install "st-extras[search]".', to_stderr=True)
    found = compare_retrieval(task, ((name, load_any(name)) for name in encoders), bm25=bm25, **settings)
    rows = {name: percent(row) for name, row in found.items()}
    if as_json:
        print_json(rows)
        return
    *metrics, _, _, _ = next(iter(rows.values()))
    change = "{difference:+.2f} ({low:+.2f} to {high:+.2f})"
    cells = [[name, *(f"{row[key]:.2f}" for key in metrics), change.format(**row)] for name, row in rows.items()]
    title = f"Search x 100, {len(task.relevant)} queries, {len(task.documents)} documents"
    print_table(title, ["encoder", *metrics, "ndcg@10 to the first, 95 %"], cells, justify="right")


# ------------------------------------------------------------------------------------------- for other commands too


def load_labeled(file: str, text_column: str | None, label_column: str) -> LabeledTexts:
    """Load labelled texts; errors name the options of this entrance."""
    from st_extras.evaluation import load_labeled_texts

    with options.columns_named("--text-column and --label-column can name others"):
        return load_labeled_texts(file, text_column=text_column, label_column=label_column)


def load_any(path: str) -> Any:
    """Load an encoder from a folder or the hub, with or without this package's post-processing."""
    from sentence_transformers.util import load_file_path

    from st_extras.encoders import load_encoder
    from st_extras.modules import load

    try:
        modules = load_file_path(path, "modules.json")
        ours = modules is not None and b"st_extras" in Path(modules).read_bytes()
        return load(path) if ours else load_encoder(path)
    except Exception as error:
        if isinstance(error, ValueError) and repr(path)[:-1] in str(error):
            raise
        raise ValueError(f"{path!r} could not be loaded as an encoder: {one_line(error)}") from error


def sts_scorer(source: str, sets: Sequence[str] | None = None, **settings: Any) -> Scorer:
    """Return what finds Spearman x 100 on STS sets: those asked for, else a single file, else the seven test sets."""
    from st_extras.evaluation import SEVEN_STS, sts_evaluator

    names = sets or ([_name_of(source)] if Path(source).is_file() else SEVEN_STS)
    evaluator = sts_evaluator(names, source, **settings)
    return lambda model: percent(evaluator(model))


def percent(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return metrics x 100; those of an STS evaluator by the names of the sets."""
    return {name.removesuffix("_spearman_cosine"): 100 * value for name, value in metrics.items()}


def dev_name(dev_set: str | None, source: str) -> str:
    """Return the name of the labelled set to choose by: the one asked for, else that of a single file, else STS-B's."""
    return dev_set or (_name_of(source) if Path(source).is_file() else "stsb_dev")


def _name_of(file: str) -> str:
    return Path(file).name.partition(".")[0]
