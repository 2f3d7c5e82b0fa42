"""Tables of similarity: the methods trained on raw encoders, beside untrained baselines, and RepAL after them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.tables.render import (
    Metric,
    Part,
    Sentence,
    Table,
    count,
    counted,
    counted_gain,
    gain,
    number,
    picked,
    runs,
    span,
    spread,
)
from benchmarks.tables.sources import (
    ADVERSARIES,
    BASE,
    BETTER,
    COMBINED,
    ENCODERS,
    FROZEN,
    LAYERS,
    OWN,
    PHRASES,
    SIF,
    TFIDF,
    TRAINED,
)

SENTENCE_TERM, BOTH_TERMS = "sentence term pooled", "RepAL pooled"
SIMCSE = TRAINED["SimCSE"]
_PAIRS = {"of": ({"study": "pairs"},), "show": picked("{:,}".format)}
SHARED_PAIRS = Sentence(
    "STS-B dev chose the weights; {shared} of its {distinct} distinct pairs are in the seven sets too.",
    {"shared": _PAIRS | {"metric": "in_tests"}, "distinct": _PAIRS | {"metric": "distinct"}},
)


def after(step: str, value: str = "average") -> list[Metric]:
    """Return a value after a post-processing: in the record of the training, else in that of RepAL's grid."""
    return [f"post_processing/{step}/{value}", f"english, target fit/{step}/{value}"]


def trained(labels: Iterable[str], **part: Any) -> dict[str, Part]:
    """Return the rows of some labels, each with the same parts."""
    return {label: {"of": TRAINED[label], **part} for label in labels}


MAIN = Table(
    "method",
    trained((SIF, BASE, "SimCSE", "DCLR", "AdCSE, no head", "ConSERT", "SLT-FAI over SimCSE", FROZEN), which=LAYERS),
    [
        ("seeds", {"metric": "average", "show": count}),
        ("seven sets", {"metric": "average", "show": spread}),
        ("minus SimCSE, same seeds", {"metric": "average", "show": gain, "minus": SIMCSE}),
        ("paper", {"texts": {"DCLR": "+1.90", "SLT-FAI over SimCSE": "+1.58"}}),
    ],
)
"""The papers' gains are seven-set averages with BERT base, from table 1 of DCLR and SLT-FAI, which ran SimCSE too."""

BASELINES = Table(
    "method",
    {
        label: {"of": runs(f"baselines/{name}"), "minus": runs("baselines/simcse")}
        for label, name in {"TSDAE": "tsdae", "Contrastive Tension": "tension", "GISTEmbed": "gist"}.items()
    },
    [
        ("seeds", {"metric": "average", "show": count}),
        ("STS-B dev", {"metric": "dev", "show": spread}),
        ("seven sets", {"metric": "average", "show": spread}),
        ("minus SimCSE, same seeds", {"metric": "average", "show": gain}),
    ],
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

VERDICT = Table(
    "seven sets (seeds)",
    trained((TFIDF, "SimCSE", COMBINED)),
    [
        column
        for encoder in (LAYERS, OWN)
        for column in (
            (encoder, {"which": encoder, "metric": "average", "show": counted}),
            (f"{encoder}, {SENTENCE_TERM}", {"which": encoder, "metric": after(SENTENCE_TERM), "show": counted}),
        )
    ],
)


def method(*labels: str) -> Table:
    """Return the table of a method's page: seven-set averages on each encoder, and the gain over SimCSE."""
    return Table(
        "seven sets (seeds)",
        trained((TFIDF, SIF, BASE, "SimCSE", *labels)),
        [
            column
            for name in ENCODERS
            for column in (
                (name, {"which": name, "metric": "average", "show": counted}),
                ("minus SimCSE", {"which": name, "metric": "average", "show": gain, "minus": SIMCSE}),
            )
        ],
    )


METHODS = {
    "simcse": method(),
    "dclr": method("DCLR", "DCLR, no guide", COMBINED),
    "adcse": method("AdCSE", "AdCSE, no head", ADVERSARIES),
    "consert": method("ConSERT", COMBINED),
    "slt-fai": method("SLT-FAI over SimCSE", "ConSERT", "SLT-FAI over ConSERT"),
    "paser": method(PHRASES, FROZEN),
}
"""By the name of a page."""

REFINED = Table(
    "after",
    trained((BASE, "SimCSE", "DCLR", "ConSERT"), which=LAYERS),
    [(step, {"metric": after(step), "show": counted}) for step in ("plain", SENTENCE_TERM, BOTH_TERMS)],
)

REPAL = Table(
    "variant",
    {
        variant: {"metric": f"english, target fit/{variant}/average"}
        for variant in ("plain", "RepAL", BOTH_TERMS, "whitened 256")
    },
    [
        (title, {"of": ({"study": "repal", "name": name},), "show": number("{:.2f}")})
        for title, name in {
            LAYERS: "minilm-3-mean",
            "all-MiniLM-L6-v2": "minilm",
            f"{LAYERS}, SimCSE": "simcse",
        }.items()
    ],
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
            (LAYERS, COMBINED, "recipes", "dclr-consert-views-no-guide"),
            (OWN, BASE, "own_encoder", "start"),
            (OWN, COMBINED, "own_encoder", "dclr-consert-views-no-guide"),
        )
    },
    [
        (title, {"metric": f"english, general fit/{variant}/average", "show": spread})
        for title, variant in _WHITENED.items()
    ],
)

_GRID = (
    "start simcse dclr dclr-lr-1e-4 adcse adcse-no-head adcse-no-head-lr-1e-4 consert consert-temperature-005 slt-fai "
    "consert-slt-fai paser paser-no-mlm-decoder-1e-3"
)
_ALL = {
    LAYERS: runs(" ".join(f"repal/{name} repal_trained/{name}" for name in _GRID.split()))
    + runs("recipes/dclr-no-guide recipes/dclr-consert-views-no-guide"),
    OWN: sum((TRAINED[label][OWN] for label in TRAINED if label not in (TFIDF, SIF)), ()),
}
WEIGHTS = Table(
    "encoders (how many)",
    {name: {"of": found} for name, found in _ALL.items()},
    [
        (f"{term}: {weight}", {"metric": after(term, weight), "show": span})
        for term, weight in ((SENTENCE_TERM, "lambda_1"), (BOTH_TERMS, "lambda_1"), (BOTH_TERMS, "lambda_2"))
    ],
)
"""The weights that STS-B dev chose."""
