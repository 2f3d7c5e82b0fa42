"""The objectives of ``st-extras train``: their options, their losses, and PaSeR's training rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from st_extras.checks import check_choice
from st_extras.cli import options
from st_extras.cli.console import print_line

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn

    from st_extras.text import PhraseMasking
    from st_extras.text.frequency import FrequencyTable

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

Complementary = Annotated[
    str | None,
    typer.Option(
        help='dclr: complementary encoder, "start" (a frozen copy of ENCODER), or "self".', rich_help_panel=_OBJECTIVE
    ),
]
Frequencies = Annotated[
    Path | None,
    typer.Option(
        help="slt-fai: token counts, as FrequencyTable.save writes; default: those of 100,000 sentences.",
        rich_help_panel=_OBJECTIVE,
    ),
]
Base = Annotated[
    str | None,
    typer.Option(help="slt-fai: base loss, simcse (default), consert, dclr or adcse.", rich_help_panel=_OBJECTIVE),
]
BaseSetting = Annotated[
    list[str] | None,
    typer.Option(
        "--base-set", help="slt-fai: setting of the base loss, NAME=VALUE; repeatable.", rich_help_panel=_OBJECTIVE
    ),
]
WarmupEpochs = Annotated[
    float | None,
    typer.Option(
        help="slt-fai: epochs with the base loss only; default 0.1, or 0.5 with --base consert.",
        rich_help_panel=_OBJECTIVE,
    ),
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
Augment = Annotated[
    str | None,
    typer.Option(
        help="paser: sr (WordNet synonyms), rd (deletion), rs (swap), joined by +.", rich_help_panel=_OBJECTIVE
    ),
]
Language = Annotated[
    str | None, typer.Option(help="paser: language of rake's stop words; default english.", rich_help_panel=_OBJECTIVE)
]
Processes = Annotated[
    int | None, typer.Option(help="paser: worker processes for extracting phrases.", min=1, rich_help_panel=_OBJECTIVE)
]


@dataclass(frozen=True)
class Objective:
    """An objective and the options given with it.

    Args:
        name: one of LOSSES.
        settings: settings of the loss, each NAME=VALUE.
        mini_batch_size: sentences that the encoder sees at a time; None: all of a batch.
        complementary: DCLR's complementary encoder, as the objective or as SLT-FAI's base; None: the loss's default.
        frequencies: a file of SLT-FAI's token counts; None: they are counted in the text.
        base: SLT-FAI's base loss.
        base_set: settings of the base loss, each NAME=VALUE.
        warmup_epochs: SLT-FAI's epochs with the base loss only.
        phrases: kinds of PaSeR's phrases.
        top_k: PaSeR's phrases per sentence.
        augment: PaSeR's augmentations.
        language: language of PaSeR's stop words.
        processes: processes that extract PaSeR's phrases.
    """

    name: str
    settings: Sequence[str] = ()
    mini_batch_size: int | None = None
    complementary: str | None = None
    frequencies: Path | None = None
    base: str | None = None
    base_set: Sequence[str] | None = None
    warmup_epochs: float | None = None
    phrases: str | None = None
    top_k: int | None = None
    augment: str | None = None
    language: str | None = None
    processes: int | None = None


def check_objective(context: typer.Context, objective: Objective) -> None:
    """Check that the options of a command line belong to its objective.

    Raises:
        ValueError: if there is no such objective or base, an option belongs to another objective, or one is missing.
    """
    name, base = objective.name, objective.base
    check_choice("objective", name, tuple(LOSSES))
    if base is not None:
        check_choice("--base", base, BASES)
    of_slt_fai, of_paser = ("frequencies", "base", "base_set", "warmup_epochs"), ("phrases", "top_k", "augment")
    for owner, own in (("slt-fai", of_slt_fai), ("paser", (*of_paser, "language", "processes"))):
        if name != owner:
            options.refuse_unread(context, f"needs the objective {owner}, got {name}", *own)
    if "dclr" not in (name, base):
        options.refuse_unread(context, f"needs the objective dclr, or slt-fai over dclr, got {name}", "complementary")
    if name not in BASES:
        options.refuse_unread(context, f"needs the objective {', '.join(BASES)}, got {name}", "mini_batch_size")


# ------------------------------------------------------------------------------------------- losses


class LossMaker:
    """Makes the loss of an objective; its settings are parsed once, and the files that they name are loaded once.

    Args:
        objective: the objective.

    Raises:
        ValueError: if a setting cannot be parsed, see :func:`~st_extras.cli.options.parse_settings`, or is given
            twice.
    """

    def __init__(self, objective: Objective) -> None:
        self.name, self.base = objective.name, objective.base or "simcse"
        self.settings = _parsed("--set", objective.settings, self.name)
        self.base_settings = _parsed("--base-set", objective.base_set or (), self.base)
        if objective.warmup_epochs is not None and "warmup_steps" in self.settings:
            raise ValueError("--warmup-epochs must not be given with --set warmup_steps, got both.")
        if objective.mini_batch_size is not None:
            if "mini_batch_size" in self.settings:
                raise ValueError("--mini-batch-size must not be given with --set mini_batch_size, got both.")
            self.settings["mini_batch_size"] = objective.mini_batch_size
        default = 0.5 if self.base == "consert" else 0.1
        self.warmup_epochs = default if objective.warmup_epochs is None else objective.warmup_epochs
        self._frequencies, self._complementary = objective.frequencies, objective.complementary
        self._table: FrequencyTable | None = None
        self._guide: SentenceTransformer | None = None

    def prepare(self, model: SentenceTransformer) -> nn.Module:
        """Load the files that the options name, and make the loss once, for a text of one line, to check the settings.

        Raises:
            ValueError: if a file cannot be read or a setting is not allowed: here, before the text is read.
        """
        import torch

        from st_extras.encoders import load_encoder
        from st_extras.text.frequency import FrequencyTable

        if self._frequencies is not None:
            self._table = FrequencyTable.load(self._frequencies, model.tokenizer)
        if self._complementary not in (None, "start", "self"):
            self._guide = load_encoder(self._complementary, device=str(model.device))
        with torch.random.fork_rng():
            return self.make(model, ["a"], batch_size=1)

    def make(self, model: SentenceTransformer, sentences: list[str], batch_size: int) -> nn.Module:
        """Return the loss for a training of ``model`` on these sentences, after :meth:`prepare`."""
        if self.name != "slt-fai":
            return self._loss(self.name, model, sentences, self.settings)
        from st_extras.losses import epochs_to_steps

        parts = {
            "frequency_table": self._table or _count(sentences, model),
            "base_loss": self._loss(self.base, model, sentences, self.base_settings),
            "warmup_steps": epochs_to_steps(self.warmup_epochs, len(sentences), batch_size),
        }
        return _loss_class(self.name)(model, **parts | self.settings)

    def _loss(self, name: str, model: SentenceTransformer, sentences: list[str], settings: dict[str, Any]) -> nn.Module:
        guide: dict[str, Any] = {}
        if name == "dclr" and self._guide is not None:  # it embeds all sentences once, not once per epoch
            from st_extras.encoders import EmbeddingTable

            bar = len(sentences) > 1
            table = EmbeddingTable.compute(model, self._guide, sentences, show_progress_bar=bar)
            guide = {"complementary_table": table}
        elif name == "dclr" and self._complementary is not None:
            guide = {"complementary_model": self._complementary}
        return _loss_class(name)(model, **settings, **guide)


def _count(sentences: list[str], model: SentenceTransformer) -> FrequencyTable:
    """Return how often each token occurs in a random sample of the sentences."""
    from st_extras.text.frequency import FrequencyTable

    return FrequencyTable.count(random.Random(0).sample(sentences, min(_COUNTED, len(sentences))), model.tokenizer)


def _parsed(option: str, pairs: Sequence[str], loss: str) -> dict[str, Any]:
    """Return the settings of a loss that were given."""
    return options.parse_settings(option, pairs, _loss_class(loss)) if pairs else {}


def _loss_class(name: str) -> type[nn.Module]:
    from st_extras import losses

    return getattr(losses, LOSSES[name])  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------------- PaSeR's rows


def phrase_masking(objective: Objective, mask_token: str | None, seed: int = 0) -> PhraseMasking:
    """Return what makes PaSeR's rows of sentences.

    Raises:
        ValueError: if an option is not allowed, or there is no mask token and phrases are not to be deleted instead.
    """
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


def masked_rows(masking: PhraseMasking, sentences: list[str], processes: int | None) -> Any:
    """Return PaSeR's dataset of sentences, masked sentences and phrases, and print how many there are."""
    rows = masking.dataset(sentences, num_proc=processes)
    print_line(
        f"{len(rows)} phrases; {masking.skipped} of {len(sentences)} sentences have none and are left out.",
        to_stderr=True,
    )
    return rows
