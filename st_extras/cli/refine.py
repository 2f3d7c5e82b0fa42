"""``st-extras refine``: fit post-processing on text and attach it. ``st-extras repal``: RepAL tuned and scored."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from st_extras.checks import check_choice
from st_extras.cli import options
from st_extras.cli.console import print_result, print_scores
from st_extras.cli.evaluate import dev_name, load_any, sts_scorer

_METHODS: dict[str, tuple[str, set[str]]] = {
    "whitening": ("WhiteningPostProcessor", {"stock"}),
    "all-but-the-top": ("AllButTheTopPostProcessor", {"stock"}),
    "locality-preserving": ("LocalityPreservingPostProcessor", {"stock"}),
    "sif": ("SIFPooling", set()),
    "repal": ("RepALPostProcessor", set()),
}
"""The class of each method, and which of the options that not all have in common it reads."""
_OF_ATTACH = {"batch_size": "batch_size", "device": "encode_options", "prompt": "encode_options"}
"""The argument of ``attach`` that other such options set; not every class takes it."""
_LAMBDAS = {"lambda_1": 0.5, "lambda_2": 1.0}
"""RepAL's weights where none are given: ``attach`` has no default, and "repal tune" finds better ones."""


repal_app = typer.Typer(help="Tune and score RepAL, which refine attached.", no_args_is_help=True)


def refine(
    context: typer.Context,
    method: Annotated[str, typer.Argument(help=f"What to refine with: {', '.join(_METHODS)}.")],
    encoder: options.AnyEncoder,
    text: options.Text,
    output: options.Output,
    set_: options.Setting = None,
    stock: Annotated[
        bool, typer.Option("--stock", help="Save as a stock Dense layer, which loads without this package.")
    ] = False,
    batch_size: options.EncodeBatch = 32,
    device: options.Devices = None,
    prompt: options.Prompt = None,
    column: options.Column = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Fit post-processing on text and attach it to a finished encoder.

    --set gives what attach() of the method's class takes in Python, such as --set epsilon=0.1 for whitening.

    Example: st-extras refine whitening demo texts.txt -o whitened --set dimensions=128
    """
    from st_extras import modules
    from st_extras.encoders.loading import with_modules
    from st_extras.text import corpus
    from st_extras.training import check_output

    check_output(output, overwrite=overwrite)
    check_choice("method", method, tuple(_METHODS))
    name, reads = _METHODS[method]
    kind = getattr(modules, name)
    arguments = inspect.signature(kind.attach).parameters
    unread = [option for option, argument in _OF_ATTACH.items() if argument not in arguments]
    options.refuse_unread(context, f"is not for {method}", *unread, *({"stock"} - reads))
    settings = (_LAMBDAS if method == "repal" else {}) | options.parse_settings("--set", set_ or (), kind.attach)
    options.check_column(context, text)
    given = options.encoding(batch_size, device, prompt)
    settings |= {name: value for name, value in given.items() if name in arguments}
    settings["corpus"] = corpus.stream_sentences(text, column=column)
    attached = kind.attach(load_any(encoder), **settings)
    fitted = _module(attached, kind)
    if stock:
        attached = with_modules(attached, [part.to_dense() if part is fitted else part for part in attached])
    _save(attached, output)
    report: dict[str, Any] = {"method": method, "sentences": fitted.corpus_size, "stock": stock, "output": str(output)}
    stocks = all(type(part).__module__.startswith("sentence_transformers.") for part in attached)
    how = f'{"SentenceTransformer" if stocks else "st_extras.load"}("{output}")'
    result = f"Fitted on {fitted.corpus_size} sentences, saved to {output}: {how}"
    print_result(report | {"settings": fitted.get_config_dict()}, result, as_json=as_json)


@repal_app.command("tune")
def tune_repal(
    encoder: Annotated[str, typer.Argument(help='A folder that "refine repal" saved.')],
    sts: options.Sts,
    output: options.Output,
    dev_set: options.DevSet = None,
    sentence_term_only: Annotated[
        bool, typer.Option("--sentence-term-only", help="Leave out the corpus term (lambda_2 = 0).")
    ] = False,
    by_subset: Annotated[
        bool, typer.Option("--by-subset", help="Maximise the mean over the set's subsets (genres), not over all pairs.")
    ] = False,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Choose RepAL's weights on labelled pairs.

    Encodes each sentence once and searches a grid of both weights.
    """
    from st_extras.evaluation import load_sts
    from st_extras.modules import RepALPostProcessor
    from st_extras.training import check_output

    check_output(output, overwrite=overwrite)
    dev = load_sts(dev_name(dev_set, sts), sts)
    model = load_any(encoder)
    pairs = list(zip(dev.sentences1, dev.sentences2, strict=True))
    more: dict[str, Any] = {"lambda_2_grid": [0.0]} if sentence_term_only else {}
    more |= {"groups": dev.subsets} if by_subset else {}
    result = _module(model, RepALPostProcessor, encoder).tune(pairs, dev.scores, **more)
    _save(model, output)
    report = {
        "lambda_1": result.lambda_1,
        "lambda_2": result.lambda_2,
        "spearman": 100 * result.spearman,
        "plain": 100 * result.plain_spearman,
        "settings": result.settings,
        "output": str(output),
    }
    found = f"lambda_1 {result.lambda_1:g}, lambda_2 {result.lambda_2:g} of {result.settings} settings"
    gain = f"{report['plain']:.2f} -> {report['spearman']:.2f} on {dev.name}"
    print_result(report, f"{found}: {gain}, saved to {output}", as_json=as_json)


@repal_app.command("evaluate")
def evaluate_repal(
    encoder: Annotated[str, typer.Argument(help='A folder that "refine repal" or "repal tune" saved.')],
    sts: options.Sts = "hub",
    sets: options.Sets = None,
    as_json: options.Json = False,
) -> None:
    """Score STS sets without and with RepAL: Spearman x 100."""
    from st_extras.modules import RepALPostProcessor

    score = sts_scorer(sts, sets)
    model = load_any(encoder)
    _module(model, RepALPostProcessor, encoder)
    scores = {"plain": score(RepALPostProcessor.detach(model)), "RepAL": score(model)}
    print_scores("Spearman x 100", scores, as_json=as_json)


def _module(model: Any, kind: type, path: str = "") -> Any:
    """Return the module of a model that is of this kind."""
    found = [module for module in model if isinstance(module, kind)]
    if not found:
        raise ValueError(f'encoder must have RepAL attached, got {path!r}: attach it with "st-extras refine repal".')
    return found[0]


def _save(model: Any, output: Path) -> None:
    """Save a model as ``train`` does; if that fails, no new file is left."""
    from st_extras.training import save_model
    from st_extras.training.run_folder import undone_if_it_fails

    with undone_if_it_fails(output):
        save_model(model, output)
