"""Tables of similarity: the methods trained on raw encoders, beside untrained baselines, and RepAL after them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.records import Metric
from benchmarks.tables.render import Part, Sentence, Table, count, counted, counted_gain, gain, picked, runs, spread
from benchmarks.tables.sources import (
    BASE,
    BETTER,
    DECOUPLED,
    ENCODERS,
    FROZEN,
    LAYERS,
    NOISY,
    OWN,
    PHRASES,
    RECOMMENDED,
    TRAINED,
)

SENTENCE_TERM, BOTH_TERMS = "sentence term pooled", "RepAL pooled"
SIMCSE = TRAINED["SimCSE"]
_PAIRS = {"of": ({"study": "pairs"},), "show": picked("{:,}".format)}
SHARED_PAIRS = Sentence(
    "STS-B dev chose the weights, as in the papers; {shared} of its {distinct} distinct pairs are in the seven sets "
    "too.",
    {"shared": _PAIRS | {"metric": "in_tests"}, "distinct": _PAIRS | {"metric": "distinct"}},
)


def after(step: str, value: str = "average") -> list[Metric]:
    """Return a value after a post-processing: in the record of the training, else in that of RepAL's grid."""
    return [f"post_processing/{step}/{value}", f"english, target fit/{step}/{value}"]


def trained(labels: Iterable[str], **part: Any) -> dict[str, Part]:
    """Return the rows of some labels, each with the same parts."""
    return {label: {"of": TRAINED[label], **part} for label in labels}


METHODS = Table(
    "seven sets",
    trained(label for label in TRAINED if label not in ("SLT-FAI over ConSERT", "DCLR, no guide", FROZEN)),
    [(name, {"which": name, "metric": "average", "show": spread}) for name in ENCODERS],
)


_CLAIMED = {
    "DCLR, no guide": "+1.90",
    "ConSERT": "",
    "AdCSE, no head": "+1.01",
    "SLT-FAI over SimCSE": "+1.58",
    PHRASES: "-0.09",
}
_REPAL = "RepAL pooled after SimCSE, minus plain"
CLAIMS = Table(
    "seven sets (seeds)",
    {
        "SimCSE, minus the base model": {"of": SIMCSE, "minus": TRAINED[BASE]},
        **{f"{label}, minus SimCSE": {"of": TRAINED[label], "minus": SIMCSE} for label in _CLAIMED},
        _REPAL: {"of": SIMCSE, "metric": after(BOTH_TERMS), "minus_metric": after("plain")},
    },
    [
        (
            "the paper, BERT base",
            {"texts": {f"{label}, minus SimCSE": claimed for label, claimed in _CLAIMED.items()} | {_REPAL: "+0.33"}},
        ),
        *((name, {"which": name, "metric": "average", "show": counted_gain}) for name in (LAYERS, OWN, BETTER)),
    ],
)
"""The papers' gains are seven-set averages with BERT base, from their first tables."""


def decisive(*labels: str, encoders: Iterable[str] = (LAYERS, OWN, BETTER)) -> Table:
    """Return the table of a method's page: seven-set averages on some encoders, and the gain over SimCSE."""
    return Table(
        "seven sets (seeds)",
        trained(("SimCSE", *labels)),
        [
            column
            for name in encoders
            for column in (
                (name, {"which": name, "metric": "average", "show": counted}),
                ("minus SimCSE", {"which": name, "metric": "average", "show": gain, "minus": SIMCSE}),
            )
        ],
    )


PAGES = {
    "simcse": decisive(DECOUPLED, RECOMMENDED, encoders=(LAYERS, OWN)),
    "consert": decisive("ConSERT", RECOMMENDED, NOISY),
    "slt-fai": decisive("SLT-FAI over SimCSE", "ConSERT", "SLT-FAI over ConSERT"),
    "paser": decisive(PHRASES, FROZEN),
}
"""By the name of a page."""

_ABLATED = runs("dclr_ablations/simcse")
DCLR_PARTS = Table(
    "",
    {
        "DCLR (paper)": {"of": TRAINED["DCLR"][LAYERS], "minus": SIMCSE[LAYERS]},
        "without noise": {"of": runs("dclr_ablations/dclr-no-noise"), "minus": _ABLATED},
        "without weights": {"of": runs("dclr_ablations/dclr-no-weighting"), "minus": _ABLATED},
        "without both: decoupled SimCSE": {"of": TRAINED[DECOUPLED][LAYERS], "minus": SIMCSE[LAYERS]},
        "DCLR with the positive in the denominator": {
            "of": runs("dclr_ablations/dclr-positive-in-denominator"),
            "minus": _ABLATED,
        },
    },
    [
        ("seeds", {"metric": "average", "show": count}),
        ("seven sets", {"metric": "average", "show": spread}),
        ("minus SimCSE, same seeds", {"metric": "average", "show": gain}),
    ],
)

_MEAN, _CLS = "mean pooling, first three layers", "[CLS] pooling, the same layers"
_HEADS = {
    BASE: {_MEAN: TRAINED[BASE][LAYERS], _CLS: runs("adcse_cls/start")},
    "SimCSE": {_MEAN: SIMCSE[LAYERS], _CLS: runs("adcse_cls/simcse")},
    "AdCSE (paper)": {_MEAN: TRAINED["AdCSE"][LAYERS], _CLS: runs("adcse_cls/adcse-momentum-head")},
    "AdCSE, no head": {_MEAN: TRAINED["AdCSE, no head"][LAYERS]},
}
ADCSE_HEADS = Table(
    "seven sets (seeds)",
    {label: {"of": by_pooling} for label, by_pooling in _HEADS.items()},
    [
        column
        for pooling, simcse in _HEADS["SimCSE"].items()
        for column in (
            (pooling, {"which": pooling, "metric": "average", "show": counted}),
            ("minus SimCSE", {"which": pooling, "metric": "average", "show": gain, "minus": simcse}),
        )
    ],
)

REFINED = Table(
    "after",
    trained((BASE, "SimCSE", "DCLR", "ConSERT", NOISY), which=LAYERS),
    [(step, {"metric": after(step), "show": counted}) for step in ("plain", SENTENCE_TERM, BOTH_TERMS)],
)

FIXED_WEIGHT: Part = {"of": TRAINED[RECOMMENDED][LAYERS], "metric": after(f"{SENTENCE_TERM}, weight 0.3")}
FIXED = Sentence(
    "At the fixed weight 0.3: {plain} after decoupled SimCSE on ConSERT's views, {refined} with the "
    "sentence term, {gain}.",
    {
        "plain": FIXED_WEIGHT | {"metric": "average", "show": counted},
        "refined": FIXED_WEIGHT | {"show": spread},
        "gain": FIXED_WEIGHT | {"minus_metric": "average", "show": gain},
    },
)

_WHITENED = {
    "plain": "plain",
    SENTENCE_TERM: SENTENCE_TERM,
    "whitened on the text": "whitened 256",
    "whitened on the text, sentence term pooled": "whitened 256 + sentence term pooled",
}
WHITENING = Table(
    "encoder",
    {
        f"{encoder}: {label}": {"of": ({"study": "whitening", "trained_in": study, "method": method},)}
        for encoder, label, study, method in (
            (LAYERS, BASE, "foundation", "start"),
            (LAYERS, NOISY, "recipes", "dclr-consert-views-no-guide"),
            (OWN, BASE, "own_encoder", "start"),
            (OWN, NOISY, "own_encoder", "dclr-consert-views-no-guide"),
        )
    },
    [
        (title, {"metric": f"english, general fit/{variant}/average", "show": spread})
        for title, variant in _WHITENED.items()
    ],
)
