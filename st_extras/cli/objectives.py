"""The objectives of ``st-extras train``: their options, what they refuse, their training rows and their losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from st_extras.checks import check_choice
from st_extras.cli.console import print_line
from st_extras.cli.frequencies import load_frequencies
from st_extras.cli.settings import parse_settings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn

BASES = ("simcse", "consert", "dclr", "adcse")
OBJECTIVES = (*BASES, "slt-fai", "paser")


@dataclass(frozen=True)
class DCLROptions:
    """Options of DCLR, as the objective or as SLT-FAI's base; None: not given."""

    complementary: str | None = None


@dataclass(frozen=True)
class SLTFAIOptions:
    """Options of SLT-FAI; None: not given."""

    frequencies: str | None = None
    base: str | None = None
    warmup_epochs: float | None = None
    base_set: Sequence[str] | None = None


@dataclass(frozen=True)
class PaSeROptions:
    """Options of PaSeR; None: not given."""

    phrases: str | None = None
    top_k: int | None = None
    augment: str | None = None
    language: str | None = None
    processes: int | None = None


@dataclass(frozen=True)
class Objective:
    """An objective and the options given with it.

    Args:
        name: one of OBJECTIVES.
        settings: settings of the loss, each NAME=VALUE.
        dclr: options of DCLR.
        slt_fai: options of SLT-FAI.
        paser: options of PaSeR.
        mini_batch_size: sentences that the encoder sees at a time; None: all of a batch.

    Raises:
        ValueError: if there is no such objective or base, an option belongs to another objective, or one is missing.
    """

    name: str
    settings: Sequence[str] = ()
    dclr: DCLROptions = field(default_factory=DCLROptions)
    slt_fai: SLTFAIOptions = field(default_factory=SLTFAIOptions)
    paser: PaSeROptions = field(default_factory=PaSeROptions)
    mini_batch_size: int | None = None

    def __post_init__(self) -> None:
        check_choice("objective", self.name, OBJECTIVES)
        if self.slt_fai.base is not None:
            check_choice("--base", self.slt_fai.base, BASES)
        for owner, options in (("slt-fai", self.slt_fai), ("paser", self.paser)):
            for option, value in vars(options).items():
                if value is not None and self.name != owner:
                    raise ValueError(f"--{option.replace('_', '-')} needs the objective {owner}, got {self.name}.")
        if self.dclr.complementary is not None and "dclr" not in (self.name, self.slt_fai.base):
            raise ValueError(f"--complementary needs the objective dclr, or slt-fai over dclr, got {self.name}.")
        if self.mini_batch_size is not None and self.name not in BASES:
            raise ValueError(f"--mini-batch-size needs the objective {', '.join(BASES)}, got {self.name}.")
        if self.name == "slt-fai" and self.slt_fai.frequencies is None:
            raise ValueError('slt-fai needs --frequencies: a file from "st-extras frequencies count", or wordfreq:en.')

    @property
    def has_negatives(self) -> bool:
        """Whether the other sentences of a batch are negatives."""
        return self.name != "paser"


# ------------------------------------------------------------------------------------------- losses


def loss_maker(
    objective: Objective, sentences: list[str], batch_size: int
) -> Callable[[SentenceTransformer], nn.Module]:
    """Return the function that makes the loss from the encoder.

    Raises:
        ValueError: if a setting is refused, see :func:`~st_extras.cli.settings.parse_settings`. This is raised here,
            before the encoder is loaded.
    """
    options = objective.slt_fai
    base = options.base or "simcse"
    settings = parse_settings("--set", objective.settings, _loss_class(objective.name))
    base_settings = parse_settings("--base-set", options.base_set or (), _loss_class(base))
    if options.warmup_epochs is not None and "warmup_steps" in settings:
        raise ValueError("--warmup-epochs must not be given with --set warmup_steps, got both.")
    if objective.mini_batch_size is not None:
        if "mini_batch_size" in settings:
            raise ValueError("--mini-batch-size must not be given with --set mini_batch_size, got both.")
        settings["mini_batch_size"] = objective.mini_batch_size
    guide = objective.dclr.complementary

    def make_loss(model: SentenceTransformer) -> nn.Module:
        if objective.name == "dclr":
            return _loss_class("dclr")(model, **settings, **_guide(guide, model, sentences))
        if objective.name != "slt-fai":
            return _loss_class(objective.name)(model, **settings)
        from st_extras.losses import epochs_to_steps

        table = load_frequencies(str(options.frequencies), model.tokenizer)
        base_guide = _guide(guide, model, sentences) if base == "dclr" else {}
        base_loss = _loss_class(base)(model, **base_settings, **base_guide)
        warmup_epochs = options.warmup_epochs
        if warmup_epochs is None:
            warmup_epochs = 0.5 if base == "consert" else 0.1
        warmup_steps = epochs_to_steps(warmup_epochs, len(sentences), batch_size)
        parts = {"frequency_table": table, "base_loss": base_loss, "warmup_steps": warmup_steps}
        return _loss_class("slt-fai")(model, **(parts | settings))

    return make_loss


def _loss_class(name: str) -> type[nn.Module]:
    from st_extras import losses

    classes = {
        "simcse": losses.SimCSELoss,
        "consert": losses.ConSERTLoss,
        "dclr": losses.DCLRLoss,
        "adcse": losses.AdCSELoss,
        "slt-fai": losses.SLTFAILoss,
        "paser": losses.PaSeRLoss,
    }
    return classes[name]


def _guide(complementary: str | None, model: SentenceTransformer, sentences: list[str]) -> dict[str, Any]:
    """DCLR's settings for its complementary encoder, which embeds all sentences once if it is another one."""
    from st_extras.encoders import EmbeddingTable, load_encoder

    if complementary is None:
        return {}
    if complementary in ("start", "self"):
        return {"complementary_model": complementary}
    frozen = load_encoder(complementary, device=str(model.device))
    return {"complementary_table": EmbeddingTable.compute(model, frozen, sentences)}


# ------------------------------------------------------------------------------------------- PaSeR's rows


def training_rows(objective: Objective, sentences: list[str], mask_token: str | None, seed: int) -> Any:
    """Return what to train on: the sentences, or for PaSeR a dataset of sentences, masked sentences and phrases."""
    if objective.name != "paser":
        return sentences
    from st_extras.text import PhraseMasking

    options = objective.paser
    settings = parse_settings("--set", objective.settings, _loss_class("paser"))
    on_missing_mask = str(settings.get("on_missing_mask", "error"))
    if mask_token is None and on_missing_mask == "error":
        raise ValueError(
            "paser needs an encoder whose tokenizer has a mask token, got one without: --set on_missing_mask=delete "
            "--set mlm_weight=0 deletes the phrases instead."
        )
    masking = PhraseMasking(
        _extractor(options, seed),
        top_k=3 if options.top_k is None else options.top_k,
        mask_token=mask_token,
        on_missing_mask=on_missing_mask,
        augmentation=_augmentation(options.augment, seed),
    )
    rows = masking.dataset(sentences, num_proc=options.processes)
    print_line(
        f"{len(rows)} phrases; {masking.skipped} of {len(sentences)} sentences have none and are left out.",
        to_stderr=True,
    )
    return rows


def _extractor(options: PaSeROptions, seed: int) -> Any:
    from st_extras.text import ChunkPhrases, RakePhrases

    kinds = (options.phrases or "rake").split("+")
    if kinds == ["rake"]:
        return RakePhrases(language=options.language or "english")
    if not set(kinds) <= {"np", "vp", "sbar"}:
        raise ValueError(f"--phrases must be rake, or np, vp and sbar joined by +, got {options.phrases!r}.")
    return ChunkPhrases(kinds=[kind.upper() for kind in kinds], seed=seed)


def _augmentation(augment: str | None, seed: int) -> Any:
    from st_extras.text import EDA

    if augment is None:
        return None
    ratios = {"sr": {"synonym_ratio": 0.5}, "rd": {"deletion_ratio": 0.1}, "rs": {"swap_ratio": 0.1}}
    names = augment.split("+")
    if not set(names) <= set(ratios):
        raise ValueError(f"--augment must be sr, rd and rs joined by +, got {augment!r}.")
    chosen: dict[str, Any] = {"synonym_ratio": 0.0, "seed": seed}
    for name in names:
        chosen |= ratios[name]
    return EDA(**chosen)
