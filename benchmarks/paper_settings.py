"""What the papers of ``configs/papers.toml`` set and what they report, each with its place: kept once, here.

``SETTINGS`` has each setting of each row as the paper or its authors' code has it; a test compares the configuration
with it. "Code" is the script or program that the paper's authors released. ``TABLES`` has the papers' figures, row by
row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Settings = dict[str, tuple[Any, str]]
"""A value and its place in the paper, by the setting's name; ``options.threshold`` is a loss's own."""

_WIKI = "wiki1m_for_simcse.txt"
_SIMCSE: Settings = {
    "loss": ("SimCSELoss", "SimCSE's code"),
    "corpus": (_WIKI, "SimCSE's code: --train_file data/wiki1m_for_simcse.txt"),
    "batch_size": (64, "SimCSE's code: its README, for BERT base"),
    "learning_rate": (3e-5, "SimCSE's code: its README, for BERT base"),
    "epochs": (1, "SimCSE's code: --num_train_epochs 1"),
    "eval_steps": (125, "SimCSE's code: --eval_steps 125; AdCSE, section 4.1, after it"),
    "encoder.pooling": ("cls", "SimCSE's code: --pooler_type cls"),
    "encoder.max_seq_length": (32, "SimCSE's code: --max_seq_length 32"),
    "options.projection": (True, "SimCSE's code: --mlp_only_train"),
}
_DCLR: Settings = {
    "loss": ("DCLRLoss", "DCLR, equation 6"),
    "corpus": (_WIKI, "DCLR, section 5.1: 1,000,000 sentences of Wikipedia"),
    "batch_size": (256, "DCLR, section 5.1"),
    "learning_rate": (3e-5, "DCLR, section 5.1"),
    "epochs": (3, "DCLR, section 5.1"),
    "eval_steps": (150, "DCLR, section 5.1"),
    "encoder.pooling": ("cls", "code: --pooler_type cls"),
    "encoder.max_seq_length": (32, "code: --max_seq_length 32"),
    "options.projection": (True, "code: --mlp_only_train"),
    "options.noise_ratio": (1.0, "DCLR, section 5.1: 1 x batch size noise-based negatives"),
}
_STEPS: Settings = {"options.noise_steps": (4, "DCLR, section 5.1: four times")}
_PHI: Settings = {"options.threshold": (0.9, "DCLR, section 5.1")}
_GUIDE: Settings = {
    "guide.path": ("princeton-nlp/unsup-simcse-bert-base-uncased", "DCLR, footnote 1: SimCSE on BERT-base"),
    "guide.pooling": ("cls", "SimCSE's code: --pooler cls_before_pooler"),
    "guide.max_seq_length": (32, "code: --max_seq_length 32"),
}
_ADCSE: Settings = {
    "loss": ("AdCSELoss", "AdCSE, equation 5"),
    "corpus": (_WIKI, "AdCSE, section 4.1: a million sentences of Wikipedia"),
    "batch_size": (64, "AdCSE, section 4.1"),
    "learning_rate": (3e-5, "AdCSE, section 4.1"),
    "epochs": (1, "code: --num_train_epochs 1"),
    "eval_steps": (125, "AdCSE, section 4.1"),
    "encoder.pooling": ("cls", "code: --pooler_type cls"),
    "encoder.max_seq_length": (32, "AdCSE, section 4.1"),
    "options.projection": (True, "AdCSE, section 4.1: removed in the evaluation"),
    "options.num_adversaries": (64, "AdCSE, section 4.1"),
}
_MOMENTUM: Settings = {"options.momentum": (0.995, "AdCSE, section 4.1")}
_ASCENT: Settings = {"options.adversary_learning_rate": (3e-3, "AdCSE, section 4.1")}
_NO_ADVERSARIES: Settings = {"options.num_adversaries": (0, "AdCSE, section 4.3: w/o negative adversaries")}
_TIED: Settings = {"options.tied": (True, "AdCSE, section 4.3: w/o untied dual-encoder")}
_CONSERT: Settings = {
    "loss": ("ConSERTLoss", "SLT-FAI, equation 9"),
    "corpus": ("sts", "SLT-FAI, section 4.1: 89,192 sentences of the STS sets"),
    "batch_size": (96, "ConSERT's code: --batch_size 96"),
    "learning_rate": (5e-7, "ConSERT's code: --learning_rate 0.0000005"),
    "epochs": (10, "ConSERT's code: --num_epochs 10"),
    "eval_steps": (200, "ConSERT's code: --evaluation_steps 200"),
    "encoder.pooling": ("last-two", "ConSERT's code: the mean of the last two layers"),
    "encoder.max_seq_length": (64, "ConSERT's code: --max_seq_length 64"),
    "options.temperature": (0.1, "ConSERT's code: --temperature 0.1"),
    "options.augmentations": (
        ["feature_cutoff", "shuffle"],
        "ConSERT's code: --da_final_1 feature_cutoff --da_final_2 shuffle",
    ),
    "arguments.patience": (10, "ConSERT's code: --patience 10"),
}
_BATCH_32: Settings = {"batch_size": (32, "SLT-FAI, section 4.1: 32, due to the GPU memory limit")}
_TERMS: Settings = {
    "loss": ("SLTFAILoss", "SLT-FAI, equation 2"),
    "options.adversarial_weight": (1.0, "SLT-FAI, section 4.1: alpha"),
    "options.incomplete_weight": (1.0, "SLT-FAI, section 4.1: beta"),
    "options.low_frequency_ratio": (0.5, "SLT-FAI, section 4.1: lambda"),
    "options.mask_ratio": (0.2, "SLT-FAI, section 4.1: epsilon"),
    "frequencies": ("bookcorpus_bert_base_uncased.tsv.gz", "SLT-FAI, section 3.5: BookCorpus"),
}
_NO_ISF: Settings = {"options.incomplete_weight": (0.0, "SLT-FAI, section 4.2: w/o ISF")}
_NO_AT: Settings = {"options.adversarial_weight": (0.0, "SLT-FAI, section 4.2: w/o AT")}


def _as_base(settings: Settings) -> Settings:
    """Return the settings of a loss as those of the base loss inside SLT-FAI."""
    own = {name: value for name, value in settings.items() if name == "loss" or name.startswith("options.")}
    return {name: value for name, value in settings.items() if name not in own} | {
        f"base.{name}": value for name, value in own.items()
    }


_OVER_SIMCSE = (
    _as_base(_SIMCSE) | _TERMS | _BATCH_32 | {"warmup_epochs": (0.1, "SLT-FAI, section 4.1: 0.1 epochs for SimCSE")}
)
_OVER_CONSERT = (
    _as_base(_CONSERT)
    | _TERMS
    | _BATCH_32
    | {"warmup_epochs": (0.5, "SLT-FAI, section 4.1: 0.5 epochs for ConSERT")}
    | {"options.base_weight": (0.3, "ConSERT's code: --cl_rate 0.15 of the sum of two directions")}
)
_PASER: Settings = {
    "loss": ("PaSeRLoss", "PaSeR, equation 4"),
    "corpus": ("sts", "PaSeR, section 4.2: the unlabeled texts of the seven STS sets"),
    "batch_size": (64, "PaSeR, section 4.2: 32, 64 or 96; code: 64"),
    "learning_rate": (3e-5, "PaSeR, section 4.2"),
    "epochs": (5, "PaSeR, section 4.5.1; code: 5"),
    "eval_steps": (125, "not given: SimCSE's, which section 4.2 follows"),
    "encoder.pooling": ("cls", "PaSeR, section 4.2 and table 9"),
    "encoder.max_seq_length": (32, "PaSeR, section 4.2"),
    "masking.top_k": (3, "PaSeR, table 5: RAKE (top3)"),
    "options.num_decoder_layers": (6, "PaSeR, section 4.2"),
    "options.mlm_weight": (1.0, "PaSeR, equation 4; code: 1"),
    "options.decoder_output": ("own", "code: a head of BERT's kind"),
}
_SYNONYMS: Settings = {"masking.synonym_ratio": (0.5, "PaSeR, table 4: + SR, whose figures are those of table 1")}

SETTINGS: dict[str, Settings] = {
    "simcse": _SIMCSE,
    "simcse-32": _SIMCSE | _BATCH_32,
    "dclr": _DCLR | _STEPS | _PHI | _GUIDE,
    "dclr-script": _DCLR | _STEPS | _PHI | _GUIDE | {"batch_size": (128, "code: --per_device_train_batch_size 128")},
    "dclr-no-noise": _DCLR | _PHI | _GUIDE | {"options.noise_ratio": (0.0, "DCLR, table 2: w/o Noise-based Negatives")},
    "dclr-no-guide": _DCLR | _STEPS,
    "dclr-random-noise": _DCLR | _PHI | _GUIDE | {"options.noise_steps": (0, "DCLR, section 6.2: Random Noise")},
    "dclr-self-weighting": _DCLR
    | _STEPS
    | _PHI
    | {"options.complementary_model": ("self", "DCLR, section 6.2: Self Instance Weighting")},
    "dclr-neither": _DCLR | {"options.noise_ratio": (0.0, "DCLR, table 2, both parts left out")},
    "adcse": _ADCSE | _MOMENTUM | _ASCENT,
    "adcse-equation": _ADCSE
    | _MOMENTUM
    | _ASCENT
    | {"options.in_batch_negatives": (False, "AdCSE, equation 5; the code has in-batch negatives too")},
    "adcse-no-adversaries": _ADCSE | _MOMENTUM | _NO_ADVERSARIES,
    "adcse-tied": _ADCSE | _ASCENT | _TIED,
    "adcse-neither": _ADCSE | _TIED | _NO_ADVERSARIES,
    "consert": _CONSERT,
    "consert-32": _CONSERT | _BATCH_32,
    "slt-fai": _OVER_SIMCSE,
    "slt-fai-no-isf": _OVER_SIMCSE | _NO_ISF,
    "slt-fai-no-at": _OVER_SIMCSE | _NO_AT,
    "consert-slt-fai": _OVER_CONSERT,
    "consert-slt-fai-no-isf": _OVER_CONSERT | _NO_ISF,
    "consert-slt-fai-no-at": _OVER_CONSERT | _NO_AT,
    "paser": _PASER | _SYNONYMS,
    "paser-no-augmentation": _PASER,
    "paser-shared-output": _PASER
    | _SYNONYMS
    | {"options.decoder_output": ("tied", "PaSeR, section 4.2: the word embedding layer is shared")},
}
"""By the name of a method in ``configs/papers.toml``; rows that no paper has are not here."""

SETS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")


@dataclass(frozen=True)
class Row:
    """A row of a paper's table.

    Attributes:
        method: in ``configs/papers.toml``.
        reported: the paper's figures of the sets, in the order of ``SETS``, or their mean alone.
        place: where they stand; empty: no paper has the row.
        after: the post-processing that is scored.
        setting: how a set's correlation is taken, see :class:`~st_extras.evaluation.STSEvaluator`.
    """

    method: str
    reported: tuple[float, ...] = ()
    place: str = ""
    after: str = ""
    setting: str = "all"

    @property
    def average(self) -> float | None:
        """The mean that the paper reports; None: it has no such row."""
        return round(sum(self.reported) / len(self.reported), 2) if self.reported else None


@dataclass(frozen=True)
class PaperTable:
    """The rows of a paper, and the gain that it claims.

    Attributes:
        title: heading on the page.
        rows: by label.
        claims: pairs of labels: the first is said to be better than the second.
        study: whose records.
        note: stands under the table.
    """

    title: str
    rows: Mapping[str, Row]
    claims: tuple[tuple[str, str], ...] = ()
    study: str = "papers"
    note: str = field(default="")


_BASE_CLS = (21.54, 32.11, 21.28, 37.89, 44.24, 20.30, 42.42)
_BASE_MEAN = (30.87, 59.89, 47.73, 60.29, 63.73, 47.29, 58.22)
_BASE_FIRST_LAST = (39.70, 59.38, 49.67, 66.03, 66.19, 53.87, 62.06)
_DCLR_1, _DCLR_2 = "DCLR, table 1", "DCLR, table 2"
_ADCSE_1, _ADCSE_2 = "AdCSE, table 1", "AdCSE, table 2"
_SLT_FAI_1 = "SLT-FAI, table 1"
_REPAL_EN, _REPAL_ZH = "RepAL, tables 2 and 3", "RepAL, table 1"
SIMCSE_32, CONSERT_32 = "SimCSE, batch 32", "ConSERT, batch 32"

TABLES: dict[str, PaperTable] = {
    "dclr": PaperTable(
        "DCLR",
        {
            "base model, [CLS]": Row("base-cls", _BASE_CLS, _DCLR_1),
            "base model, mean": Row("base-mean", _BASE_MEAN, _DCLR_1),
            "base model, first and last layer": Row("base-first-last", _BASE_FIRST_LAST, _DCLR_1),
            "SimCSE": Row("simcse", (66.89, 81.91, 72.80, 79.04, 78.91, 76.33, 69.06), _DCLR_1),
            "DCLR": Row("dclr", (68.34, 83.40, 74.86, 81.63, 79.38, 78.91, 71.70), _DCLR_1),
            "DCLR, batch 128": Row("dclr-script"),
            "without noise": Row("dclr-no-noise", (76.17,), _DCLR_2),
            "without guide": Row("dclr-no-guide", (75.78,), _DCLR_2),
            "random noise": Row("dclr-random-noise", (75.22,), _DCLR_2),
            "self-weighting": Row("dclr-self-weighting", (73.93,), _DCLR_2),
            "without noise and guide": Row("dclr-neither"),
        },
        (("DCLR", "SimCSE"), ("DCLR", "without noise"), ("DCLR", "without guide")),
    ),
    "adcse": PaperTable(
        "AdCSE",
        {
            "SimCSE": Row("simcse", (68.40, 82.41, 74.38, 80.91, 78.56, 76.85, 72.23), _ADCSE_1),
            "AdCSE": Row("adcse", (70.52, 84.10, 74.18, 82.15, 78.42, 78.32, 73.16), _ADCSE_1),
            "AdCSE, adversaries alone": Row("adcse-equation"),
            "without adversaries": Row(
                "adcse-no-adversaries", (69.51, 82.13, 73.34, 82.49, 78.32, 78.60, 72.00), _ADCSE_2
            ),
            "one encoder": Row("adcse-tied", (67.75, 77.22, 70.01, 80.46, 77.59, 76.48, 68.86), _ADCSE_2),
            "one encoder, no adversaries": Row(
                "adcse-neither", (66.02, 79.83, 69.90, 76.42, 75.54, 74.33, 70.07), _ADCSE_2
            ),
        },
        (("AdCSE", "SimCSE"), ("AdCSE", "without adversaries"), ("AdCSE", "one encoder")),
    ),
    "slt-fai": PaperTable(
        "SLT-FAI",
        {
            SIMCSE_32: Row("simcse-32", (67.93, 78.90, 71.72, 81.49, 77.10, 76.79, 68.24), _SLT_FAI_1),
            "over SimCSE": Row("slt-fai", (67.80, 82.12, 73.22, 82.42, 77.69, 78.85, 71.19), _SLT_FAI_1),
            "over SimCSE, without ISF": Row(
                "slt-fai-no-isf", (67.56, 81.40, 73.39, 81.21, 78.26, 77.59, 70.22), _SLT_FAI_1
            ),
            "over SimCSE, without AT": Row(
                "slt-fai-no-at", (66.48, 82.16, 73.48, 81.40, 77.16, 76.58, 70.25), _SLT_FAI_1
            ),
            "ConSERT": Row("consert", (64.64, 78.49, 69.07, 79.72, 75.95, 73.97, 67.31), _DCLR_1),
            CONSERT_32: Row("consert-32", (65.28, 77.93, 68.18, 78.51, 74.94, 72.51, 66.54), _SLT_FAI_1),
            "over ConSERT": Row("consert-slt-fai", (65.20, 79.66, 70.23, 80.18, 75.88, 73.67, 68.24), _SLT_FAI_1),
            "over ConSERT, without ISF": Row(
                "consert-slt-fai-no-isf", (63.67, 78.71, 69.66, 79.77, 75.82, 74.30, 67.64), _SLT_FAI_1
            ),
            "over ConSERT, without AT": Row(
                "consert-slt-fai-no-at", (63.69, 77.55, 69.70, 79.81, 75.86, 73.92, 66.85), _SLT_FAI_1
            ),
        },
        (("over SimCSE", SIMCSE_32), ("over ConSERT", CONSERT_32)),
    ),
    "paser": PaperTable(
        "PaSeR",
        {
            "SimCSE": Row("simcse", (68.40, 82.41, 74.38, 80.91, 78.56, 76.85, 72.23), "PaSeR, table 1"),
            "PaSeR": Row("paser", (70.21, 83.88, 73.06, 83.87, 77.60, 79.19, 65.31), "PaSeR, table 1"),
            "without synonyms": Row("paser-no-augmentation", (73.8,) * 5 + (74.5, 62.5), "PaSeR, table 4"),
            "output layer shared": Row("paser-shared-output"),
        },
        (("PaSeR", "SimCSE"), ("PaSeR", "without synonyms")),
    ),
    "repal": PaperTable(
        "RepAL",
        {
            "base model": Row(
                "base-first-last", (57.86, 61.97, 62.49, 70.96, 69.76, 59.04, 63.75), _REPAL_EN, "plain", "wmean"
            ),
            "RepAL after the base model": Row(
                "base-first-last", (59.55, 66.20, 65.19, 73.50, 72.10, 66.35, 64.55), _REPAL_EN, "RepAL", "wmean"
            ),
            "ConSERT": Row("consert", (64.09, 78.21, 68.68, 79.56, 75.41, 73.12, 66.79), _REPAL_EN, "plain"),
            "RepAL after ConSERT": Row(
                "consert", (65.01, 78.54, 69.04, 79.90, 75.74, 73.45, 67.15), _REPAL_EN, "RepAL"
            ),
            "SimCSE": Row("simcse", (68.93, 78.68, 73.57, 79.68, 79.11, 75.71, 70.12), _REPAL_EN, "plain"),
            "RepAL after SimCSE": Row("simcse", (69.33, 78.93, 73.95, 80.01, 79.29, 76.00, 70.51), _REPAL_EN, "RepAL"),
        },
        (("RepAL after the base model", "base model"), ("RepAL after SimCSE", "SimCSE")),
        note="The base model's two rows weight the subsets of each set by size, as the paper does there.",
    ),
    "repal-zh": PaperTable(
        "RepAL, Chinese",
        {
            "base model": Row("base-first-last", (16.51, 29.35, 41.71, 9.84, 34.65), _REPAL_ZH, "plain"),
            "RepAL after the base model": Row(
                "base-first-last", (19.58, 32.89, 44.53, 11.28, 47.00), _REPAL_ZH, "RepAL"
            ),
            "SimCSE": Row("simcse", (33.14, 50.67, 69.99, 12.95, 69.04), _REPAL_ZH, "plain"),
            "RepAL after SimCSE": Row("simcse", (33.48, 51.14, 72.44, 13.58, 69.55), _REPAL_ZH, "RepAL"),
        },
        (("RepAL after the base model", "base model"), ("RepAL after SimCSE", "SimCSE")),
        study="papers_zh",
    ),
    "ours": PaperTable(
        "What no paper has",
        {
            "TF-IDF of characters 3-5": Row("tfidf"),
            "SIF of input embeddings": Row("sif"),
            "base model, mean": Row("base-mean"),
            "whitened to 256": Row("base-mean", after="whitened 256"),
            "sentence term 0.3": Row("base-mean", after="sentence term pooled, weight 0.3"),
            "`adapt`": Row("base-mean", after="adapt"),
            "SimCSE": Row("simcse"),
            "SimCSE, whitened to 256": Row("simcse", after="whitened 256"),
            "SimCSE, sentence term 0.3": Row("simcse", after="sentence term pooled, weight 0.3"),
            "SimCSE, `adapt`": Row("simcse", after="adapt"),
            "recommended loss": Row("recommended"),
            "recommended loss, sentence term 0.3": Row("recommended", after="sentence term pooled, weight 0.3"),
            "recommended loss, `adapt`": Row("recommended", after="adapt"),
            "recommended loss in SimCSE's settings": Row("recommended-wikipedia"),
        },
        (("recommended loss in SimCSE's settings", "SimCSE"),),
        note="`adapt`, whitening, TF-IDF and SIF are fitted on the STS sentences, without labels.",
    ),
}
"""By the name that the page's marker has, after "papers-"."""
