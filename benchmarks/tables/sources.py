"""Which runs each method has on each encoder, and the baselines there."""

from __future__ import annotations

from benchmarks.tables.render import Runs, runs

LAYERS, OWN, BETTER = "first three layers", "BERT-small trained here", "better BERT-small"
WIKI = f"{OWN}, Wikipedia's sentences"
ENCODERS = (LAYERS, OWN, WIKI, BETTER)
TFIDF, SIF = "TF-IDF of characters 3-5", "SIF of input embeddings, first direction removed"
BASE = "base model"
ADVERSARIES = "AdCSE, searched: no head, adversaries from features at 0.3"
FROZEN = "PaSeR, searched: frozen for 100 steps, at 3e-4"
PHRASES = "PaSeR, searched: no MLM, decoder at 1e-3"
COMBINED = "DCLR on ConSERT's views, no guide"
OWN_STUDIES = {OWN: "own_encoder", WIKI: "own_encoder_wiki", BETTER: "own_encoder_better"}


def _everywhere(layers: str, method: str, grid: str = "") -> dict[str, Runs]:
    """Return the runs of a method on the first three layers, and in the studies on encoders trained here.

    Args:
        layers: as ``study/method study/method ...``.
        method: its name in the studies on encoders trained here.
        grid: its name in RepAL's grid, which scored some of the trained layers once more, with post-processing.
    """
    in_grid = runs(f"repal/{grid} repal_trained/{grid}") if grid else ()
    return {LAYERS: runs(layers) + in_grid} | {
        encoder: runs(f"{study}/{method}") for encoder, study in OWN_STUDIES.items()
    }


def _baseline(kind: str) -> dict[str, Runs]:
    """Return the runs of a baseline: TF-IDF has no encoder; each is fitted on the text that the study trains on."""
    fitted = {LAYERS: ("minilm", "sts"), OWN: ("own", "sts"), WIKI: ("own", "wiki"), BETTER: ("better", "sts")}
    return {
        name: ({"study": "floors", "kind": kind, "encoder": "" if kind == "characters" else encoder, "text": text},)
        for name, (encoder, text) in fitted.items()
    }


TRAINED: dict[str, dict[str, Runs]] = {
    TFIDF: _baseline("characters"),
    SIF: _baseline("sif_removed"),
    BASE: _everywhere("foundation/start", "start", "start"),
    "SimCSE": _everywhere("foundation/simcse more_seeds/simcse", "simcse", "simcse"),
    "DCLR": _everywhere("foundation/dclr more_seeds/dclr", "dclr", "dclr"),
    "DCLR, no guide": _everywhere("dclr_ablations/dclr-no-weighting", "dclr-no-guide"),
    COMBINED: _everywhere("recipes/dclr-consert-views-no-guide", "dclr-consert-views-no-guide"),
    "AdCSE": _everywhere("adcse/adcse more_seeds/adcse", "adcse"),
    "AdCSE, no head": _everywhere("adcse/adcse-no-head more_seeds/adcse-no-head", "adcse-no-head"),
    ADVERSARIES: {
        LAYERS: runs("mechanisms_adversaries/features-3e-1"),
        OWN: runs("mechanisms_adversaries_own/features-3e-1"),
    },
    "ConSERT": _everywhere("slt_fai/consert more_seeds/consert", "consert", "consert"),
    "SLT-FAI over SimCSE": _everywhere("slt_fai/slt-fai more_seeds/slt-fai", "slt-fai"),
    "SLT-FAI over ConSERT": _everywhere("slt_fai/consert-slt-fai more_seeds/consert-slt-fai", "consert-slt-fai"),
    PHRASES: _everywhere("paser/paser-no-mlm-decoder-1e-3", "paser"),
    FROZEN: {LAYERS: runs("mechanisms_paser/frozen-100-3e-4"), OWN: runs("mechanisms_paser_own/frozen-100-3e-4")},
}
"""By label and encoder."""
