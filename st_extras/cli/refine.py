"""``st-extras refine``: fit post-processing on text and attach it. ``st-extras repal tune``: RepAL's weights."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from st_extras.checks import check_choice
from st_extras.cli import options
from st_extras.cli.console import print_result
from st_extras.cli.evaluate import dev_name, load_any

_METHODS = {
    "whitening": "whitening",
    "all-but-the-top": "all_but_the_top",
    "locality-preserving": "locality_preserving",
    "sif": "SIFPooling",
    "repal": "RepALPostProcessor",
}
"""The function of each method that is a linear layer, or its class, which has ``attach``."""
_ENCODING = {"batch_size": "batch_size", "prompt": "encode_options"}
"""The argument of a method that such an option sets; sif takes none of them."""
_LAMBDAS = {"lambda_1": 0.5, "lambda_2": 1.0}
"""RepAL's weights where none are given: ``attach`` has no default, and "repal tune" finds better ones."""


repal_app = typer.Typer(help="Tune RepAL, which refine attached.", no_args_is_help=True)


def refine(
    context: typer.Context,
    method: Annotated[str, typer.Argument(help=f"What to refine with: {', '.join(_METHODS)}.")],
    encoder: options.AnyEncoder,
    text: options.Text,
    output: options.Output,
    set_: options.Setting = None,
    batch_size: options.EncodeBatch = 32,
    prompt: options.Prompt = None,
    column: options.Column = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Fit post-processing on text and attach it to a finished encoder.

    --set gives what the method takes in Python, such as --set epsilon=0.1 for whitening.

    Example: st-extras refine whitening demo texts.txt -o whitened --set dimensions=128
    """
    from st_extras import modules
    from st_extras.text import corpus
    from st_extras.training import check_output, save_model

    check_output(output, overwrite=overwrite)
    check_choice("method", method, tuple(_METHODS))
    kind = getattr(modules, _METHODS[method])
    attach = getattr(kind, "attach", kind)
    arguments = inspect.signature(attach).parameters
    unread = [option for option, argument in _ENCODING.items() if argument not in arguments]
    options.refuse_unread(context, f"is not for {method}", *unread)
    settings = (_LAMBDAS if method == "repal" else {}) | options.parse_settings("--set", set_ or (), attach)
    options.check_column(context, text)
    given = {"batch_size": batch_size, "encode_options": {} if prompt is None else {"prompt": prompt}}
    settings |= {name: value for name, value in given.items() if name in arguments}
    settings["sentences" if attach is kind else "corpus"] = corpus.stream_sentences(text, column=column)
    save_model(attach(load_any(encoder), **settings), output, overwrite=overwrite)
    load = "SentenceTransformer" if attach is kind else "st_extras.load"
    report = {"method": method, "output": str(output)}
    print_result(report, f'Saved to {output}: {load}("{output}")', as_json=as_json)


@repal_app.command("tune", cls=options.Command)
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
    from st_extras.training import check_output, save_model

    check_output(output, overwrite=overwrite)
    dev = load_sts(dev_name(dev_set, sts), sts)
    model = load_any(encoder)
    pairs = list(zip(dev.sentences1, dev.sentences2, strict=True))
    more: dict[str, Any] = {"lambda_2_grid": [0.0]} if sentence_term_only else {}
    more |= {"groups": dev.subsets} if by_subset else {}
    result = _module(model, RepALPostProcessor, encoder).tune(pairs, dev.scores, **more)
    save_model(model, output, overwrite=overwrite)
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


def _module(model: Any, kind: type, path: str = "") -> Any:
    """Return the module of a model that is of this kind."""
    found = [module for module in model if isinstance(module, kind)]
    if not found:
        raise ValueError(f'encoder must have RepAL attached, got {path!r}: attach it with "st-extras refine repal".')
    return found[0]
