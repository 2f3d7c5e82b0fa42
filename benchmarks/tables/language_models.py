"""Tables of docs/decoders.md: language models as encoders, without training and trained."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from benchmarks.tables.render import Part, Table, count, gain, picked, runs, spread

ENCODERS = {"smollm2": "SmolLM2-135M-Instruct", "gemma3": "Gemma 3 270M"}
SETS = ("sickr_test", "sts12", "sts13", "sts14", "sts15", "sts16", "stsb_test")


def scores(found: Mapping[str, float]) -> str:
    """Write STS-B test, and the mean of the seven sets."""
    return f"{found['stsb_test']:.1f} / {statistics.mean(found[name] for name in SETS):.1f}"


_WAYS: dict[str, tuple[str, list[str]]] = {
    "local-llm-embed, its defaults": ("{}", ["rows/prefix weighted_avg weighted_mean whitened"]),
    "PromptEOL and EmbedFilter": ("adapt-{}", ["rows/PromptEOL, EmbedFilter", "rows/sts/scores"]),
    "beside them: all-MiniLM-L6-v2": ("baselines", ["rows/all-MiniLM-L6-v2"]),
}
"""The run of an encoder, and where its scores are; older records of PromptEOL and EmbedFilter have them under "sts"."""
UNTRAINED = Table(
    "",
    {
        label: {
            "of": {encoder: ({"study": "decoders", "run": run.format(encoder)},) for encoder in ENCODERS},
            "metric": metrics,
        }
        for label, (run, metrics) in _WAYS.items()
    },
    [(title, {"which": encoder, "show": picked(scores)}) for encoder, title in ENCODERS.items()],
)

_LABELS = {
    "start": "base model",
    "simcse": "SimCSE",
    "consert": "ConSERT",
    "slt-fai-consert": "SLT-FAI over ConSERT",
    "adcse": "AdCSE",
    "adcse-no-head": "AdCSE without its head",
    "dclr-consert-views": "DCLR on ConSERT's views",
    "dclr-consert-views-no-noise": "the same, no noise",
    "dclr-consert-views-no-weights": "the same, no weights",
    "dclr-consert-views-neither": "the same, neither",
}
_STUDIES = {"SmolLM2": "decoder_parts", "Gemma 3": "decoder_parts_gemma3"}


def _columns() -> list[tuple[str, Part]]:
    columns: list[tuple[str, Part]] = [("seeds", {"which": "SmolLM2", "metric": "average", "show": count})]
    for name in _STUDIES:
        columns += [
            (name, {"which": name, "metric": "average", "show": spread}),
            ("minus SimCSE", {"which": name, "metric": "average", "show": gain}),
        ]
    return columns


TRAINED = Table(
    "method",
    {
        label: {
            "of": {name: runs(f"{study}/{method}") for name, study in _STUDIES.items()},
            "minus": {name: runs(f"{study}/simcse") for name, study in _STUDIES.items()},
        }
        for method, label in _LABELS.items()
    },
    _columns(),
)
"""The mean of the seven sets."""
