"""The objectives of ``st-extras train``: what ``--set`` may give, their training rows and their losses."""

from __future__ import annotations

import importlib
import inspect
import json
import random
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from st_extras.checks import check_choice, counted, shown
from st_extras.cli.console import DEBUG, print_line, raised_here, with_type

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from torch import nn

LOSSES = {
    "simcse": "SimCSELoss",
    "consert": "ConSERTLoss",
    "dclr": "DCLRLoss",
    "adcse": "AdCSELoss",
    "slt-fai": "SLTFAILoss",
    "paser": "PaSeRLoss",
}
"""The class of each objective, in ``st_extras.losses``."""
_FURTHER = {"slt-fai": ("base_loss",), "paser": ("kinds", "language", "top_k")}
"""Settings of an objective that its loss does not get as they are: see ``make_loss`` and ``training_rows``."""
_ELSEWHERE = (
    *("self", "model", "corpus", "sentences", "generator", "batch_size", "encode_options", "show_progress_bar"),
    *("frequency_table", "complementary_table", "base_loss"),
)
"""Arguments that have an option of their own, or none on the command line."""
_COUNTED = 100_000  # sentences at most, so that a large corpus does not hold up a training


def check_objective(value: str) -> str:
    """Return the name of an objective, or of a class of the user's own as module:Class, which is not imported yet.

    Raises:
        ValueError: if it is neither.
    """
    module, _, name = value.partition(":")
    if all(part.isidentifier() for part in (*module.split("."), name)):
        return value
    if value not in LOSSES:
        raise ValueError(f"objective must be one of {', '.join(LOSSES)}, or module:Class, got {shown(value)}.")
    return value


def loss_settings(objective: str, pairs: Sequence[str]) -> dict[str, Any]:
    """Return the settings of an objective, such as ``temperature=0.1`` or ``augmentations=shuffle+dropout``.

    Args:
        objective: its name, or module:Class.
        pairs: values of ``--set``, each NAME=VALUE. The value is JSON, or True, False or None; names joined by + are a
            list, and anything else is text. The loss checks it.

    Raises:
        ValueError: if there is no such class, or a pair is not NAME=VALUE, its name is unknown, given twice or has an
            option of its own.
    """
    from st_extras.losses.pair_loss import PairLoss, PairOptions

    loss_class = _loss_class(objective)
    arguments = inspect.signature(loss_class).parameters.values()
    named = [one.name for one in arguments if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    known = [name for name in named if name not in _ELSEWHERE]
    further = [*_FURTHER.get(objective, ())]
    if issubclass(loss_class, PairLoss):
        further += PairOptions.__annotations__
    known += [name for name in further if name not in known]
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or name not in known:
            raise ValueError(f"--set must be NAME=VALUE with one of {', '.join(known)}, got {shown(pair)}.")
        if name in settings:
            raise ValueError(f"--set must give each setting once, got {name!r} twice.")
        settings[name] = _value(text.strip())
    if "base_loss" in settings:
        bases = tuple(name for name in LOSSES if name not in _FURTHER)
        check_choice("--set base_loss", settings["base_loss"], bases)
    return settings


def training_rows(
    objective: str, settings: dict[str, Any], model: SentenceTransformer, sentences: list[str], seed: int
) -> Dataset:
    """Return the rows to train on: the sentences, or for PaSeR sentences, masked sentences and phrases.

    PaSeR's phrases are those of RAKE in ``language``, or of NLTK's tagger if their ``kinds`` are given.

    Raises:
        ValueError: if a setting is not allowed, or there is no mask token and phrases are not to be deleted instead.
    """
    from datasets import Dataset

    from st_extras.text import ChunkPhrases, PhraseMasking, RakePhrases

    if objective != "paser":
        return Dataset.from_dict({"sentence": sentences})
    kinds = settings.get("kinds")
    extractor: Any
    if kinds is None:
        extractor = RakePhrases(language=settings.get("language", "english"))
    else:
        extractor = ChunkPhrases(kinds=[kinds] if isinstance(kinds, str) else kinds, seed=seed)
    given = {name: settings[name] for name in ("top_k", "on_missing_mask") if name in settings}
    masking = PhraseMasking(extractor, mask_token=model.tokenizer.mask_token, **given)
    rows = masking.dataset(sentences)
    print_line(
        f"{counted(len(rows), 'phrase')}; sentences without one: {masking.skipped:,} of {len(sentences):,}, left out.",
        to_stderr=True,
    )
    return rows


def make_loss(
    objective: str, settings: dict[str, Any], model: SentenceTransformer, sentences: list[str], batch_size: int
) -> nn.Module:
    """Return the loss of an objective for a training of ``model`` on these sentences.

    SLT-FAI gets the tokens of the text counted, and a base loss by its name, ``base_loss``.
    """
    given = {name: value for name, value in settings.items() if name not in _FURTHER.get(objective, ())}
    if objective == "slt-fai":
        from st_extras.losses import epochs_to_steps
        from st_extras.text.frequency import FrequencyTable

        base = settings.get("base_loss", "simcse")
        counted = random.Random(0).sample(sentences, min(_COUNTED, len(sentences)))
        warmup_epochs = 0.5 if base == "consert" else 0.1
        parts = {
            "frequency_table": FrequencyTable.count(counted, model.tokenizer),
            "base_loss": _loss_class(base)(model),
            "warmup_steps": epochs_to_steps(warmup_epochs, len(sentences), batch_size),
        }
        given = parts | given
    loss_class = _loss_class(objective)
    try:
        return loss_class(model, **given)
    except Exception as error:
        if objective in LOSSES or (isinstance(error, ValueError) and raised_here(error)):
            raise
        raise ValueError(
            f"objective must name a class that is made from an encoder and the settings of --set, got {objective!r}: "
            f"{with_type(error)}; {DEBUG}=1 shows the traceback."
        ) from error


def _loss_class(name: str) -> type[nn.Module]:
    """Return the class of an objective, or the one that module:Class names."""
    from torch import nn

    from st_extras import losses

    if name in LOSSES:
        return getattr(losses, LOSSES[name])  # type: ignore[no-any-return]
    module, _, class_name = name.partition(":")
    if "" not in sys.path:  # the user's file lies where the command is run
        sys.path.insert(0, "")
    try:
        named: Any = getattr(importlib.import_module(module), class_name)
    except (Exception, SystemExit) as error:  # whatever that file does
        raise ValueError(
            f"objective must name a class that can be imported, got {name!r}: {with_type(error)}."
        ) from error
    if not isinstance(named, type) or not issubclass(named, nn.Module):
        kind = "a class of another kind" if isinstance(named, type) else f"an object of type {type(named).__name__}"
        raise ValueError(f"objective must name a class of torch.nn.Module, got {name!r}, which is {kind}.")
    return named


def _value(text: str) -> Any:
    try:
        return json.loads({"True": "true", "False": "false", "None": "null"}.get(text, text))
    except (ValueError, RecursionError):
        return text.split("+") if "+" in text else text
