"""Which runs each method has on each encoder, and the baselines there."""

from __future__ import annotations

from benchmarks.tables.render import Runs, runs

LAYERS, OWN, BETTER = "first three layers", "BERT-small trained here", "better BERT-small"
WIKI = f"{OWN}, Wikipedia's sentences"
SMOLLM, GEMMA = "SmolLM2-135M", "Gemma 3 270M"
ENCODERS = (LAYERS, OWN, WIKI, BETTER, SMOLLM, GEMMA)
TFIDF, SIF = "TF-IDF of characters 3-5", "SIF of input embeddings, first direction removed"
BASE = "base model"
DECOUPLED = "decoupled SimCSE"
"""SimCSE whose positive is not in the denominator. The studies made it as DCLR without guide and noise."""
RECOMMENDED = "decoupled SimCSE on ConSERT's views"
NOISY = f"{RECOMMENDED}, with DCLR's noise"
FROZEN = "PaSeR, encoder frozen for 100 steps, then at 3e-4"
PHRASES = "PaSeR, no MLM, decoder at 1e-3"
OWN_STUDIES = {OWN: "own_encoder", WIKI: "own_encoder_wiki", BETTER: "own_encoder_better"}
DECODER_STUDIES = {SMOLLM: "decoder_parts", GEMMA: "decoder_parts_gemma3"}


def _everywhere(layers: str, method: str, *, grid: str = "", decoder: str = "") -> dict[str, Runs]:
    """Return the runs of a method on the first three layers, on encoders trained here, and on language models.

    Args:
        layers: as ``study/method study/method ...``.
        method: its name in the studies on encoders trained here.
        grid: its name in RepAL's grid, which scored some of the trained layers once more, with post-processing.
        decoder: its name in the studies on language models.
    """
    in_grid = runs(f"repal/{grid} repal_trained/{grid}") if grid else ()
    found = {LAYERS: runs(layers) + in_grid}
    found |= {encoder: runs(f"{study}/{method}") for encoder, study in OWN_STUDIES.items()}
    return found | {encoder: runs(f"{study}/{decoder}") for encoder, study in DECODER_STUDIES.items() if decoder}


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
    BASE: _everywhere("foundation/start", "start", grid="start", decoder="start"),
    "SimCSE": _everywhere("foundation/simcse more_seeds/simcse", "simcse", grid="simcse", decoder="simcse"),
    DECOUPLED: {
        LAYERS: runs("mechanisms_dclr/simcse-no-positive"),
        OWN: runs("mechanisms_dclr_own/simcse-no-positive"),
    },
    RECOMMENDED: {
        LAYERS: runs("recommended/simcse-consert-views-no-positive"),
        OWN: runs("mechanisms_dclr_own/simcse-consert-views-no-positive"),
        **{name: runs(f"{study}/dclr-consert-views-neither") for name, study in DECODER_STUDIES.items()},
    },
    NOISY: _everywhere("recipes/dclr-consert-views-no-guide", "dclr-consert-views-no-guide"),
    "DCLR": _everywhere("foundation/dclr more_seeds/dclr", "dclr", grid="dclr"),
    "DCLR, no guide": _everywhere("dclr_ablations/dclr-no-weighting", "dclr-no-guide"),
    "AdCSE": _everywhere("adcse/adcse more_seeds/adcse", "adcse", decoder="adcse"),
    "AdCSE, no head": _everywhere(
        "adcse/adcse-no-head more_seeds/adcse-no-head", "adcse-no-head", decoder="adcse-no-head"
    ),
    "ConSERT": _everywhere("slt_fai/consert more_seeds/consert", "consert", grid="consert", decoder="consert"),
    "SLT-FAI over SimCSE": _everywhere("slt_fai/slt-fai more_seeds/slt-fai", "slt-fai"),
    "SLT-FAI over ConSERT": _everywhere(
        "slt_fai/consert-slt-fai more_seeds/consert-slt-fai", "consert-slt-fai", decoder="slt-fai-consert"
    ),
    PHRASES: _everywhere("paser/paser-no-mlm-decoder-1e-3", "paser"),
    FROZEN: {LAYERS: runs("mechanisms_paser/frozen-100-3e-4"), OWN: runs("mechanisms_paser_own/frozen-100-3e-4")},
    **{
        label: {LAYERS: runs(f"baselines/{name}"), BETTER: runs(f"own_encoder_better/{name}")}
        for label, name in {"TSDAE": "tsdae", "Contrastive Tension": "tension", "GISTEmbed": "gist"}.items()
    },
}
"""By label and encoder."""
