"""The objectives of ``st-extras train``: their options, what they refuse, their training rows and their losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from st_extras.checks import check_choice
from st_extras.cli import options
from st_extras.cli.console import print_line
from st_extras.cli.options import AT_LEAST_ONE, NOT_NEGATIVE, PROCESSES
from st_extras.cli.set_option import parse_settings
from st_extras.cli.shards import load_frequencies

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
"""What slt-fai goes over."""


# ------------------------------------------------------------------------------------------- options

Complementary = Annotated[
    str | None, typer.Option(help='dclr: complementary encoder, "start" (a frozen copy of ENCODER), or "self".')
]
Frequencies = Annotated[str | None, typer.Option(help='slt-fai (required): file of token counts, or "wordfreq:en".')]
Base = Annotated[str | None, typer.Option(help="slt-fai: base loss, simcse (default), consert, dclr or adcse.")]
BaseSetting = Annotated[
    list[str] | None, typer.Option("--base-set", help="slt-fai: setting of the base loss, NAME=VALUE; repeatable.")
]
WarmupEpochs = Annotated[
    float | None,
    typer.Option(
        help="slt-fai: epochs with the base loss only; default 0.1, or 0.5 with --base consert.", callback=NOT_NEGATIVE
    ),
]
Phrases = Annotated[
    str | None, typer.Option(help="paser: rake (default), or np, vp, sbar (NLTK's tagger), joined by +.")
]
TopK = Annotated[
    int | None,
    typer.Option(help="paser: phrases to mask per sentence, one per row; default 3.", callback=AT_LEAST_ONE),
]
Augment = Annotated[
    str | None, typer.Option(help="paser: sr (WordNet synonyms), rd (deletion), rs (swap), joined by +.")
]
Language = Annotated[str | None, typer.Option(help="paser: language of rake's stop words; default english.")]
Processes = Annotated[
    int | None, typer.Option(help="paser: worker processes for extracting phrases.", callback=PROCESSES)
]


@dataclass(frozen=True)
class Objective:
    """An objective and the options given with it.

    Args:
        name: one of LOSSES.
        settings: settings of the loss, each NAME=VALUE.
        mini_batch_size: sentences that the encoder sees at a time; None: all of a batch.
        complementary: DCLR's, as the objective or as SLT-FAI's base; None: the loss's default.
        frequencies: SLT-FAI's, with ``base``, ``base_set`` and ``warmup_epochs``.
        phrases: PaSeR's, with ``top_k``, ``augment``, ``language`` and ``processes``.
    """

    name: str
    settings: Sequence[str] = ()
    mini_batch_size: int | None = None
    complementary: str | None = None
    frequencies: str | None = None
    base: str | None = None
    base_set: Sequence[str] | None = None
    warmup_epochs: float | None = None
    phrases: str | None = None
    top_k: int | None = None
    augment: str | None = None
    language: str | None = None
    processes: int | None = None


def check_options(context: typer.Context, objective: Objective) -> None:
    """Check the options of a command line.

    Raises:
        ValueError: if there is no such objective or base, an option belongs to another objective, one is missing, or a
            setting cannot be read.
    """
    name, base = objective.name, objective.base
    check_choice("objective", name, tuple(LOSSES))
    if base is not None:
        check_choice("--base", base, BASES)
    of_slt_fai, of_paser = ("frequencies", "base", "base_set", "warmup_epochs"), ("phrases", "top_k", "augment")
    for owner, own in (("slt-fai", of_slt_fai), ("paser", (*of_paser, "language", "processes"))):
        if name != owner:
            options.refuse_unread(context, f"needs the objective {owner}, got {name}", *own)
    if name == "slt-fai" and not objective.frequencies:
        raise ValueError('slt-fai needs --frequencies: a file from "st-extras frequencies count", or wordfreq:en.')
    if "dclr" not in (name, base):
        options.refuse_unread(context, f"needs the objective dclr, or slt-fai over dclr, got {name}", "complementary")
    if name not in BASES:
        options.refuse_unread(context, f"needs the objective {', '.join(BASES)}, got {name}", "mini_batch_size")
    loss_maker(objective, [""], batch_size=1)  # refuses settings that it cannot read


# ------------------------------------------------------------------------------------------- losses


def check_settings(objective: Objective, model: SentenceTransformer) -> nn.Module:
    """Make all that the options say once, with a stand-in for the text, and return the loss.

    Raises:
        ValueError: if a setting is not allowed or a file cannot be read: here, before the text is read.
    """
    import torch

    if objective.name == "paser":
        _masking(objective, model.tokenizer.mask_token)
    with torch.random.fork_rng():
        return loss_maker(objective, [""], batch_size=1)(model)


def loss_maker(
    objective: Objective, sentences: list[str], batch_size: int
) -> Callable[[SentenceTransformer], nn.Module]:
    """Return the function that makes the loss from the encoder.

    Raises:
        ValueError: if a setting is refused, see :func:`~st_extras.cli.set_option.parse_settings`. This is raised here,
            before the loss is made.
    """
    base = objective.base or "simcse"
    settings = _parsed("--set", objective.settings, objective.name)
    base_settings = _parsed("--base-set", objective.base_set or (), base)
    if objective.warmup_epochs is not None and "warmup_steps" in settings:
        raise ValueError("--warmup-epochs must not be given with --set warmup_steps, got both.")
    if objective.mini_batch_size is not None:
        if "mini_batch_size" in settings:
            raise ValueError("--mini-batch-size must not be given with --set mini_batch_size, got both.")
        settings["mini_batch_size"] = objective.mini_batch_size

    def make(name: str, model: SentenceTransformer, settings: dict[str, Any]) -> nn.Module:
        guide = _guide(objective.complementary, model, sentences) if name == "dclr" else {}
        return _loss_class(name)(model, **settings, **guide)

    def make_slt_fai(model: SentenceTransformer) -> nn.Module:
        from st_extras.losses import epochs_to_steps

        table = load_frequencies(str(objective.frequencies), model.tokenizer)
        epochs = objective.warmup_epochs
        if epochs is None:
            epochs = 0.5 if base == "consert" else 0.1
        parts = {
            "frequency_table": table,
            "base_loss": make(base, model, base_settings),
            "warmup_steps": epochs_to_steps(epochs, len(sentences), batch_size),
        }
        return make("slt-fai", model, parts | settings)

    return make_slt_fai if objective.name == "slt-fai" else lambda model: make(objective.name, model, settings)


def _parsed(option: str, pairs: Sequence[str], loss: str) -> dict[str, Any]:
    """Return the settings of a loss that were given."""
    return parse_settings(option, pairs, _loss_class(loss)) if pairs else {}


def _loss_class(name: str) -> type[nn.Module]:
    from st_extras import losses

    return getattr(losses, LOSSES[name])  # type: ignore[no-any-return]


def _guide(complementary: str | None, model: SentenceTransformer, sentences: list[str]) -> dict[str, Any]:
    """DCLR's settings for its complementary encoder, which embeds all sentences once if it is another one."""
    from st_extras.encoders import EmbeddingTable, load_encoder

    if complementary is None:
        return {}
    if complementary in ("start", "self"):
        return {"complementary_model": complementary}
    frozen = load_encoder(complementary, device=str(model.device))
    bar = len(sentences) > 1
    return {"complementary_table": EmbeddingTable.compute(model, frozen, sentences, show_progress_bar=bar)}


# ------------------------------------------------------------------------------------------- PaSeR's rows


def training_rows(objective: Objective, sentences: list[str], mask_token: str | None, seed: int) -> Any:
    """Return what to train on: the sentences, or for PaSeR a dataset of sentences, masked sentences and phrases."""
    if objective.name != "paser":
        return sentences
    masking = _masking(objective, mask_token, seed)
    rows = masking.dataset(sentences, num_proc=objective.processes)
    print_line(
        f"{len(rows)} phrases; {masking.skipped} of {len(sentences)} sentences have none and are left out.",
        to_stderr=True,
    )
    return rows


def _masking(objective: Objective, mask_token: str | None, seed: int = 0) -> PhraseMasking:
    from st_extras.text import EDA, ChunkPhrases, PhraseMasking, RakePhrases

    settings = _parsed("--set", objective.settings, "paser")
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
    augmentation = None
    if objective.augment is not None:
        rates = {"sr": ("synonym_ratio", 0.5), "rd": ("deletion_ratio", 0.1), "rs": ("swap_ratio", 0.1)}
        names = objective.augment.split("+")
        if not set(names) <= set(rates):
            raise ValueError(f"--augment must be sr, rd and rs joined by +, got {objective.augment!r}.")
        chosen: dict[str, Any] = {"synonym_ratio": 0.0, "seed": seed, **dict(rates[name] for name in names)}
        augmentation = EDA(**chosen)
    return PhraseMasking(
        extractor,
        top_k=3 if objective.top_k is None else objective.top_k,
        mask_token=mask_token,
        on_missing_mask=on_missing_mask,
        augmentation=augmentation,
    )
