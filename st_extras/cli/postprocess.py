"""``st-extras repal``: post-processing of a finished encoder; and what all such commands do to load, fit and save."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from st_extras.checks import check_choice
from st_extras.cli.console import print_json, print_line, print_scores
from st_extras.cli.failures import one_line
from st_extras.cli.options import (
    LONGEST_LINE,
    NOT_NEGATIVE,
    AnyEncoder,
    Column,
    DevSet,
    Json,
    MaxLine,
    Output,
    Overwrite,
    Sets,
    Sts,
)
from st_extras.cli.scoring import chosen_sets, dev_name, percent

repal_app = typer.Typer(help="Refine a finished encoder with RepAL.", no_args_is_help=True)

MaybeText = Annotated[
    list[str] | None,
    typer.Argument(help="Text: .txt, .jsonl, .csv, .tsv files (also .gz), folders of them, or data set ids."),
]
Statistics = Annotated[
    Path | None, typer.Option(help='In place of text: a file that "statistics compute" or "merge" saved.')
]


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


def save_result(model: Any, output: Path) -> None:
    """Save a model as a training does; if that fails, nothing new stays."""
    from st_extras.training.run_folder import save_model, undone_if_it_fails

    with undone_if_it_fails(output):
        save_model(model, output)


def corpus_or_statistics(
    text: list[str] | None,
    statistics: Any,
    column: str | None,
    max_line: int,
    option: str = "--statistics",
    load: Callable[[Any], Any] | None = None,
) -> dict[str, Any]:
    """Return what to fit on as the arguments ``corpus``, a stream of sentences, and ``statistics``; one is None.

    Raises:
        ValueError: if both or neither are given, or a file is wrong.
    """
    from st_extras.modules import CorpusStatistics
    from st_extras.text import corpus

    if bool(text) == (statistics is not None):
        raise ValueError(f"text or {option} must be given, and only one of them, got {'both' if text else 'neither'}.")
    if text:
        return {"corpus": corpus.stream_sentences(text, column=column, max_line=max_line), "statistics": None}
    return {"corpus": None, "statistics": (load or CorpusStatistics.load)(statistics)}


def _repal(model: Any, path: str) -> Any:
    from st_extras.modules import RepALPostProcessor

    found = [module for module in model if isinstance(module, RepALPostProcessor)]
    if not found:
        raise ValueError(f'encoder must have RepAL attached, got {path!r}: attach it with "st-extras repal fit".')
    return found[0]


def _print(report: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        print_json(report)
    else:
        print_line(text)


@repal_app.command("fit")
def repal_fit(
    encoder: AnyEncoder,
    output: Output,
    text: MaybeText = None,
    statistics: Statistics = None,
    lambda_1: Annotated[
        float, typer.Option("--lambda-1", help="Weight of the sentence term.", callback=NOT_NEGATIVE)
    ] = 0.5,
    lambda_2: Annotated[
        float, typer.Option("--lambda-2", help="Weight of the corpus term.", callback=NOT_NEGATIVE)
    ] = 1.0,
    keywords: Annotated[str, typer.Option(help="Keyword extractor: jieba (as in the paper), tfidf or rake.")] = "jieba",
    redundancy: Annotated[
        str, typer.Option(help="encoder (as in the paper), or pooled (costs about a plain encode).")
    ] = "encoder",
    on_missing_mask: Annotated[
        str, typer.Option(help='If the tokenizer has no mask token: "error", or "delete" the keywords.')
    ] = "error",
    column: Column = None,
    max_line: MaxLine = LONGEST_LINE,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Attach RepAL and fit it on a corpus.

    "repal tune" chooses the weights on labelled pairs.
    """
    from st_extras.modules import RepALPostProcessor
    from st_extras.training import check_output

    check_output(output, overwrite=overwrite)
    check_choice("--keywords", keywords, ("jieba", "tfidf", "rake"))
    given = corpus_or_statistics(text, statistics, column, max_line)
    attached = RepALPostProcessor.attach(
        load_any(encoder),
        lambda_1=lambda_1,
        lambda_2=lambda_2,
        keywords=keywords,
        redundancy=redundancy,
        on_missing_mask=on_missing_mask,
        corpus=given["corpus"],
    )
    repal = _repal(attached, str(output))
    if statistics is not None:
        repal.fit(statistics=given["statistics"])
    save_result(attached, output)
    count = repal.corpus_size
    report = {"sentences": count, "lambda_1": lambda_1, "lambda_2": lambda_2, "output": str(output)}
    _print(report, f'Fitted on {count} sentences, saved to {output}: st_extras.load("{output}")', as_json)


@repal_app.command("tune")
def repal_tune(
    encoder: Annotated[str, typer.Argument(help='A folder that "repal fit" saved.')],
    sts: Sts,
    output: Output,
    dev_set: DevSet = None,
    sentence_term_only: Annotated[
        bool, typer.Option("--sentence-term-only", help="Leave out the corpus term (lambda_2 = 0).")
    ] = False,
    by_subset: Annotated[
        bool, typer.Option("--by-subset", help="Maximise the mean over the set's subsets (genres), not over all pairs.")
    ] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Choose RepAL's weights on labelled pairs.

    Encodes each sentence once and searches a grid of both weights.
    """
    from st_extras.evaluation import load_sts
    from st_extras.training import check_output

    check_output(output, overwrite=overwrite)
    dev_set = dev_name(dev_set, sts)
    dev = load_sts(dev_set, sts)
    model = load_any(encoder)
    pairs = list(zip(dev.sentences1, dev.sentences2, strict=True))
    options: dict[str, Any] = {"lambda_2_grid": [0.0]} if sentence_term_only else {}
    options |= {"groups": dev.subsets} if by_subset else {}
    result = _repal(model, encoder).tune(pairs, dev.scores, **options)
    save_result(model, output)
    report = {
        "lambda_1": result.lambda_1,
        "lambda_2": result.lambda_2,
        "spearman": 100 * result.spearman,
        "plain": 100 * result.plain_spearman,
        "settings": result.settings,
        "output": str(output),
    }
    found = f"lambda_1 {result.lambda_1:g}, lambda_2 {result.lambda_2:g} of {result.settings} settings"
    gain = f"{report['plain']:.2f} -> {report['spearman']:.2f} on {dev_set}"
    _print(report, f"{found}: {gain}, saved to {output}", as_json)


@repal_app.command("evaluate")
def repal_evaluate(
    encoder: Annotated[str, typer.Argument(help='A folder that "repal fit" or "repal tune" saved.')],
    sts: Sts = "hub",
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Score STS sets without and with RepAL: Spearman x 100."""
    from st_extras.evaluation import sts_evaluator
    from st_extras.modules import RepALPostProcessor

    evaluator = sts_evaluator(chosen_sets(sets, sts), sts)
    model = load_any(encoder)
    _repal(model, encoder)
    scores = {"plain": percent(evaluator(RepALPostProcessor.detach(model))), "RepAL": percent(evaluator(model))}
    if as_json:
        print_json(scores)
    else:
        print_scores("Spearman x 100", scores)
