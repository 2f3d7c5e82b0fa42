"""``st-extras repal`` and ``st-extras whiten``: post-processing of a finished encoder, without training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from st_extras.console import Json, percent, print_json, show

repal_app = typer.Typer(help="Refine a finished encoder without training (RepAL).", no_args_is_help=True)
whiten_app = typer.Typer(help="Whiten a finished encoder's embeddings.", no_args_is_help=True)
Encoder = Annotated[str, typer.Argument(help="Encoder: folder or hub id; post-processed ones too.")]
Text = Annotated[list[str], typer.Argument(help="Text files (also .gz) or data set ids.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder to save to.")]
Overwrite = Annotated[bool, typer.Option(help="Save over what is in --output.")]
Sts = Annotated[str, typer.Option(help='STS source: folder, .tsv or "hub".')]


def load_any(path: str) -> Any:
    """An encoder, post-processed by this package or not, from a folder or the hub."""
    from sentence_transformers.util import load_file_path

    from st_extras.modules import load
    from st_extras.modules.loading import load_encoder

    modules = load_file_path(path, "modules.json")
    if modules is not None and "st_extras" in Path(modules).read_text("utf8"):
        return load(path)
    return load_encoder(path)


def _repal(model: Any, path: str) -> Any:
    from st_extras.modules import RepALPostProcessor

    found = [module for module in model if isinstance(module, RepALPostProcessor)]
    if not found:
        raise ValueError(f'{path!r} has no RepAL attached: "st-extras repal fit" attaches it.')
    return found[0]


def _say(report: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        print_json(report)
    else:
        Console().print(text, highlight=False, soft_wrap=True)


@repal_app.command("fit")
def repal_fit(
    encoder: Encoder,
    text: Text,
    output: Output,
    lambda_1: Annotated[float, typer.Option("--lambda-1", help="Weight of the sentence term.")] = 0.5,
    lambda_2: Annotated[float, typer.Option("--lambda-2", help="Weight of the corpus term.")] = 1.0,
    keywords: Annotated[str, typer.Option(help="jieba (the paper), tfidf or rake.")] = "jieba",
    redundancy: Annotated[str, typer.Option(help="encoder (the paper) or pooled (about the plain cost).")] = "encoder",
    on_missing_mask: Annotated[
        str, typer.Option(help='An encoder without a mask token: "error", or "delete" the keywords instead.')
    ] = "error",
    column: Annotated[str | None, typer.Option(help="Column of jsonl, csv, tsv and data sets.")] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Attach RepAL to an encoder, take the mean of a corpus, save. "repal tune" chooses the weights."""
    from st_extras.modules import RepALPostProcessor
    from st_extras.runs import check_output
    from st_extras.text.corpus import read_sentences

    check_output(output, overwrite=overwrite)
    if keywords not in ("jieba", "tfidf", "rake"):
        raise ValueError(f"--keywords must be jieba, tfidf or rake, got {keywords!r}.")
    sentences = read_sentences(text, column=column)
    attached = RepALPostProcessor.attach(
        load_any(encoder),
        lambda_1=lambda_1,
        lambda_2=lambda_2,
        keywords=keywords,
        redundancy=redundancy,
        on_missing_mask=on_missing_mask,
        corpus=sentences,
    )
    attached.save(str(output))
    report = {"sentences": len(sentences), "lambda_1": lambda_1, "lambda_2": lambda_2, "output": str(output)}
    _say(report, f'Fitted on {len(sentences)} sentences, saved to {output}: st_extras.load("{output}")', as_json)


@repal_app.command("tune")
def repal_tune(
    encoder: Annotated[str, typer.Argument(help='A folder that "repal fit" saved.')],
    sts: Sts,
    output: Output,
    dev_set: Annotated[str, typer.Option(help="Which labelled set of --sts.")] = "stsb_dev",
    sentence_term_only: Annotated[
        bool, typer.Option("--sentence-term-only", help="Leave the corpus term out, which suits other text less well.")
    ] = False,
    by_subset: Annotated[
        bool, typer.Option("--by-subset", help="Seek the best mean over the set's subsets (genres), not over all rows.")
    ] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Choose both weights on labelled pairs: one encode, some thousand settings."""
    from st_extras.evaluation import load_sts
    from st_extras.runs import check_output

    check_output(output, overwrite=overwrite)
    dev = load_sts(dev_set, sts)
    model = load_any(encoder)
    pairs = list(zip(dev.sentences1, dev.sentences2, strict=True))
    options: dict[str, Any] = {"lambda_2_grid": [0.0]} if sentence_term_only else {}
    options |= {"groups": dev.subsets} if by_subset else {}
    result = _repal(model, encoder).tune(pairs, dev.scores, **options)
    model.save(str(output))
    report = {
        "lambda_1": result.lambda_1,
        "lambda_2": result.lambda_2,
        "spearman": 100 * result.spearman,
        "plain": 100 * result.plain_spearman,
        "settings": result.settings,
        "output": str(output),
    }
    figures = f"{report['plain']:.2f} -> {report['spearman']:.2f} on {dev_set}"
    found = f"lambda_1 {result.lambda_1:g}, lambda_2 {result.lambda_2:g} of {result.settings} settings"
    _say(report, f"{found}: {figures}, saved to {output}", as_json)


@repal_app.command("evaluate")
def repal_evaluate(
    encoder: Annotated[str, typer.Argument(help='A folder that "repal fit" or "repal tune" saved.')],
    sts: Sts = "hub",
    sets: Annotated[list[str] | None, typer.Option(help="Set by name, repeatable; default: the seven.")] = None,
    as_json: Json = False,
) -> None:
    """The STS sets without and with RepAL: Spearman x 100."""
    from st_extras.evaluation import SEVEN_STS, sts_evaluator
    from st_extras.modules import RepALPostProcessor

    evaluator = sts_evaluator(sets or SEVEN_STS, sts)
    model = load_any(encoder)
    _repal(model, encoder)
    columns = {"plain": percent(evaluator(RepALPostProcessor.detach(model))), "RepAL": percent(evaluator(model))}
    if as_json:
        print_json(columns)
    else:
        show("Spearman x 100", columns)


@whiten_app.command("fit")
def whiten_fit(
    encoder: Encoder,
    text: Text,
    output: Output,
    dimensions: Annotated[int | None, typer.Option(help="Keep the first so many dimensions; default: all.")] = None,
    stock: Annotated[bool, typer.Option(help="Save as a stock Dense module: loads without this package.")] = False,
    column: Annotated[str | None, typer.Option(help="Column of jsonl, csv, tsv and data sets.")] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Fit BERT-whitening on a corpus and save."""
    from st_extras.modules import WhiteningPostProcessor
    from st_extras.modules.loading import with_modules
    from st_extras.runs import check_output
    from st_extras.text.corpus import read_sentences

    check_output(output, overwrite=overwrite)
    sentences = read_sentences(text, column=column)
    whitened = WhiteningPostProcessor.attach(load_any(encoder), dimensions=dimensions, corpus=sentences)
    how = f'st_extras.load("{output}")'
    if stock:
        parts = [part.to_dense() if isinstance(part, WhiteningPostProcessor) else part for part in whitened]
        whitened, how = with_modules(whitened, parts), f'SentenceTransformer("{output}")'
    whitened.save(str(output))
    report = {"sentences": len(sentences), "dimensions": dimensions, "stock": stock, "output": str(output)}
    _say(report, f"Fitted on {len(sentences)} sentences, saved to {output}: {how}", as_json)
