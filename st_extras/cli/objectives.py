"""The objectives of ``st-extras train``: their options, their losses, and PaSeR's training rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from st_extras.checks import check_choice
from st_extras.cli import options
from st_extras.cli.console import print_line

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn

    from st_extras.text import PhraseMasking

LOSSES = {
    "simcse": "SimCSELoss",
    "consert": "ConSERTLoss",
    "dclr": "DCLRLoss",
    "adcse": "AdCSELoss",
    "slt-fai": "SLTFAILoss",
    "paser": "PaSeRLoss",
}
"""The class of each objective, in ``st_extras.losses``."""
BASES = ("simcse", "consert", "dclr", "adcse")
"""The base losses of slt-fai."""
_COUNTED = 100_000  # sentences at most, so that a large corpus does not hold up a training


# ------------------------------------------------------------------------------------------- options

_OBJECTIVE = "Objective"  # a section of the help

MiniBatchSize = Annotated[
    int | None,
    typer.Option(
        help="Sentences that the encoder sees at a time, so that a large batch fits into memory; try 64.",
        min=1,
        rich_help_panel="Memory and speed",
    ),
]
Base = Annotated[
    str | None,
    typer.Option(help="slt-fai: base loss, simcse (default), consert, dclr or adcse.", rich_help_panel=_OBJECTIVE),
]
Phrases = Annotated[
    str | None,
    typer.Option(
        help="paser: rake (default), or np, vp, sbar (NLTK's tagger), joined by +.", rich_help_panel=_OBJECTIVE
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(
        help="paser: phrases to mask per sentence, one per row; default 3.", min=1, rich_help_panel=_OBJECTIVE
    ),
]
Language = Annotated[
    str | None, typer.Option(help="paser: language of rake's stop words; default english.", rich_help_panel=_OBJECTIVE)
]


@dataclass(frozen=True)
class Objective:
    """An objective and the options given with it.

    Args:
        name: one of LOSSES.
        settings: settings of the loss, each NAME=VALUE.
        mini_batch_size: sentences that the encoder sees at a time; None: all of a batch.
        base: SLT-FAI's base loss.
        phrases: kinds of PaSeR's phrases.
        top_k: PaSeR's phrases per sentence.
        language: language of PaSeR's stop words.
    """

    name: str
    settings: Sequence[str] = ()
    mini_batch_size: int | None = None
    base: str | None = None
    phrases: str | None = None
    top_k: int | None = None
    language: str | None = None


def check_objective(context: typer.Context, objective: Objective) -> None:
    """Check that the options of a command line belong to its objective.

    Raises:
        ValueError: if there is no such objective or base, or an option belongs to another objective.
    """
    name = objective.name
    check_choice("objective", name, tuple(LOSSES))
    if objective.base is not None:
        check_choice("--base", objective.base, BASES)
    for owner, own in (("slt-fai", ("base",)), ("paser", ("phrases", "top_k", "language"))):
        if name != owner:
            options.refuse_unread(context, f"needs the objective {owner}, got {name}", *own)
    if name not in BASES:
        options.refuse_unread(context, f"needs the objective {', '.join(BASES)}, got {name}", "mini_batch_size")


# ------------------------------------------------------------------------------------------- losses


class LossMaker:
    """Makes the loss of an objective, whose settings are parsed once.

    Args:
        objective: the objective.

    Raises:
        ValueError: if a setting cannot be parsed, see :func:`~st_extras.cli.options.parse_settings`.
    """

    def __init__(self, objective: Objective) -> None:
        self.name, self.base = objective.name, objective.base or "simcse"
        self.settings = options.parse_settings("--set", objective.settings, _loss_class(self.name))
        if objective.mini_batch_size is not None:
            self.settings["mini_batch_size"] = objective.mini_batch_size

    def check(self, model: SentenceTransformer) -> nn.Module:
        """Make the loss once, for a text of one line, and return it.

        Raises:
            ValueError: if a setting is not allowed: here, before the text is read.
        """
        import torch

        with torch.random.fork_rng():
            return self.make(model, ["a"], batch_size=1)

    def make(self, model: SentenceTransformer, sentences: list[str], batch_size: int) -> nn.Module:
        """Return the loss for a training of ``model`` on these sentences."""
        if self.name != "slt-fai":
            return _loss_class(self.name)(model, **self.settings)
        from st_extras.losses import epochs_to_steps
        from st_extras.text.frequency import FrequencyTable

        counted = random.Random(0).sample(sentences, min(_COUNTED, len(sentences)))
        warmup_epochs = 0.5 if self.base == "consert" else 0.1
        parts = {
            "frequency_table": FrequencyTable.count(counted, model.tokenizer),
            "base_loss": _loss_class(self.base)(model),
            "warmup_steps": epochs_to_steps(warmup_epochs, len(sentences), batch_size),
        }
        return _loss_class(self.name)(model, **parts | self.settings)


def _loss_class(name: str) -> type[nn.Module]:
    from st_extras import losses

    return getattr(losses, LOSSES[name])  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------------- PaSeR's rows


def phrase_masking(objective: Objective, mask_token: str | None, seed: int = 0) -> PhraseMasking:
    """Return what makes PaSeR's rows of sentences.

    Raises:
        ValueError: if an option is not allowed, or there is no mask token and phrases are not to be deleted instead.
    """
    from st_extras.text import ChunkPhrases, PhraseMasking, RakePhrases

    settings = options.parse_settings("--set", objective.settings, _loss_class("paser"))
    on_missing_mask = str(settings.get("on_missing_mask", "error"))
    if mask_token is None and on_missing_mask == "error":
        raise ValueError(
            "paser needs an encoder whose tokenizer has a mask token, got one without: --set on_missing_mask=delete "
            "--set mlm_weight=0 deletes the phrases instead."
        )
    extractor: Any
    kinds = (objective.phrases or "rake").split("+")
    if kinds == ["rake"]:
        extractor = RakePhrases(language=objective.language or "english")
    elif set(kinds) <= {"np", "vp", "sbar"}:
        extractor = ChunkPhrases(kinds=[kind.upper() for kind in kinds], seed=seed)
    else:
        raise ValueError(f"--phrases must be rake, or np, vp and sbar joined by +, got {objective.phrases!r}.")
    return PhraseMasking(
        extractor,
        top_k=3 if objective.top_k is None else objective.top_k,
        mask_token=mask_token,
        on_missing_mask=on_missing_mask,
    )


def masked_rows(masking: PhraseMasking, sentences: list[str]) -> Any:
    """Return PaSeR's dataset of sentences, masked sentences and phrases, and print how many there are."""
    rows = masking.dataset(sentences)
    print_line(
        f"{len(rows)} phrases; {masking.skipped} of {len(sentences)} sentences have none and are left out.",
        to_stderr=True,
    )
    return rows
