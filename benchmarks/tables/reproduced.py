"""Tables of docs/papers.md: what was run of the five papers' smaller tables and figures."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from benchmarks.tables.render import (
    Part,
    Show,
    Table,
    Values,
    count,
    number,
    picked,
    runs,
    spread,
    write_spread,
)
from benchmarks.tables.sources import BASE, TFIDF

COLUMNS: list[tuple[str, Part]] = [
    ("seeds", {"metric": "dev", "show": count}),
    ("STS-B dev", {"metric": "dev", "show": spread}),
    ("STS-B test", {"metric": "scores/stsb_test", "show": spread}),
    ("seven sets", {"metric": "average", "show": spread}),
]


def study(name: str, methods: Mapping[str, str]) -> Table:
    """Return the table of some methods of a study, in the setting of the first three layers."""
    return Table(
        "method",
        {label: {"of": runs(f"{name}/{method}")} for label, method in methods.items()},
        COLUMNS,
    )


DCLR_PARTS = study(
    "dclr_ablations",
    {
        "SimCSE": "simcse",
        "DCLR without noise": "dclr-no-noise",
        "DCLR without weights": "dclr-no-weighting",
        "DCLR, random noise": "dclr-random-noise",
        "DCLR, positive in the denominator": "dclr-positive-in-denominator",
    },
)
DCLR_SETTINGS = Table(
    "method",
    {
        "phi 0.9, k 1": {"of": runs("search/dclr-paper")},
        "phi 0.6, k 1": {"of": runs("search/dclr-threshold-06")},
        "phi 0.9, k 2": {"of": runs("search/dclr-noise-ratio-2")},
    },
    [("STS-B dev", {"metric": "dev", "show": spread})],
)
ADCSE_PARTS = study(
    "adcse",
    {
        "AdCSE": "adcse",
        "no head": "adcse-no-head",
        "no head, no adversaries": "adcse-no-adversaries",
        "tied encoders": "adcse-tied",
        "equation 5 to the letter": "adcse-eq5",
    },
)
PASER_PARTS = study(
    "paser",
    {
        "PaSeR": "paser",
        "decoder at 1e-3": "paser-decoder-1e-3",
        "no MLM, decoder at 3e-4": "paser-no-mlm-decoder-3e-4",
        "no MLM, decoder at 1e-3": "paser-no-mlm-decoder-1e-3",
        "the same, synonyms": "paser-no-mlm-decoder-1e-3-synonyms",
        "the same, the best phrase of RAKE alone": "paser-no-mlm-decoder-1e-3-top-1",
    },
)

_IN_SPACE = {
    BASE: "start",
    "SimCSE": "simcse",
    "DCLR, no guide": "dclr-no-guide",
    "AdCSE": "adcse",
    "AdCSE, no head": "adcse-no-head",
    "ConSERT": "consert",
    "SLT-FAI over SimCSE": "slt-fai",
    "SLT-FAI over ConSERT": "consert-slt-fai",
    "PaSeR": "paser",
}
_SPACE_ROWS: dict[str, Part] = {
    label: {"of": ({"study": "trained_spaces", "trained_in": "own_encoder_better", "method": name},)}
    for label, name in _IN_SPACE.items()
}
TRAINED_SPACE = Table(
    "method",
    _SPACE_ROWS,
    [
        ("seeds", {"metric": "alignment", "show": count}),
        ("alignment", {"metric": "alignment", "show": spread}),
        ("uniformity", {"metric": "uniformity", "show": spread}),
        ("in a batch, mean cosine", {"metric": "in_batch/mean", "show": spread}),
        ("above 0.7, %", {"metric": "in_batch/above", "show": spread}),
    ],
)


def level(name: str) -> Show:
    """Write the mean and the variance of the cosines of a gold level, each the mean over the seeds."""

    def show(ours: Values, _: Values) -> str:
        mean, variance = (
            statistics.mean(one[f"{figure}_{name}"] for one in ours.all()) for figure in ("mean", "variance")
        )
        return f"{mean:.2f} / {variance:.3f}"

    return show


LEVELS = Table(
    "method",
    _SPACE_ROWS,
    [(name, {"metric": "levels", "show": level(name)}) for name in ("0-1", "1-2", "2-3", "3-4", "4-5")],
)
"""Mean / variance."""

_THREE = number("{:.3f}")
FREQUENCIES_IN_SPACE = Table(
    "method",
    {
        BASE: {"of": runs("slt_fai/start")},
        "ConSERT": {"of": runs("slt_fai/consert")},
        "SLT-FAI over ConSERT": {"of": runs("slt_fai/consert-slt-fai")},
        "SLT-FAI over SimCSE": {"of": runs("slt_fai/slt-fai")},
        "the same without AT": {"of": runs("slt_fai/slt-fai-no-at")},
        "the same without ISF": {"of": runs("slt_fai/slt-fai-no-isf")},
    },
    [
        ("seeds", {"metric": "frequency_bias/probe_accuracy", "show": count}),
        ("accuracy of a probe", {"metric": "frequency_bias/probe_accuracy", "show": _THREE}),
        ("low-frequency, to the centre", {"metric": "frequency_bias/low_centre_distance", "show": _THREE}),
        ("high-frequency", {"metric": "frequency_bias/high_centre_distance", "show": _THREE}),
        ("low-frequency, to neighbours", {"metric": "frequency_bias/low_neighbour_distance", "show": _THREE}),
        ("high-frequency", {"metric": "frequency_bias/high_neighbour_distance", "show": _THREE}),
    ],
)
OWN_SPACE = Table(
    "method",
    {
        label: {"of": runs(f"own_encoder/{name}")}
        for label, name in {BASE: "start", "SimCSE": "simcse", "DCLR": "dclr", "SLT-FAI over SimCSE": "slt-fai"}.items()
    },
    [
        ("seeds", {"metric": "geometry/uniformity", "show": count}),
        ("mean cosine", {"metric": "geometry/mean_cosine", "show": _THREE}),
        ("IsoScore", {"metric": "geometry/iso_score", "show": _THREE}),
        ("uniformity", {"metric": "geometry/uniformity", "show": _THREE}),
    ],
)
QUESTIONS = Table(
    "encoder",
    {
        TFIDF: {"of": ({"study": "beyond", "method": "TF-IDF of characters 3-5"},)},
        BASE: {"of": ({"study": "beyond", "encoder": "better", "method": "start"},)},
        **{
            label: {"of": ({"study": "beyond", "encoder": "own_encoder_better", "method": name},)}
            for label, name in {"SimCSE": "simcse", "PaSeR": "paser"}.items()
        },
    },
    [
        ("seeds", {"metric": "questions/map", "show": count}),
        ("questions, MAP", {"metric": "questions/map", "show": spread}),
        ("questions, MRR@10", {"metric": "questions/mrr", "show": spread}),
    ],
)

_PHRASES = (
    "shuttle fleet starts flying",
    "familiar",
    "enlisted men",
    "believe",
    "depends",
    "make progress",
    "air",
    "harry kane leaves",
    "tray",
    "playing",
)


def shortened(text: str, width: int = 32) -> str:
    """Return a text of at most ``width`` characters, and dots where it was longer."""
    return text if len(text) <= width else f"{text[:width].rstrip()} ..."


PHRASES = Table(
    "phrase",
    {phrase: {"metric": f"reconstructed/{place}/reconstructed"} for place, phrase in enumerate(_PHRASES)},
    [
        (title, {"of": ({"study": "paser", "run": f"{method}-0"},), "show": picked(shortened)})
        for title, method in {
            "PaSeR": "paser",
            "decoder at 1e-3": "paser-decoder-1e-3",
            "no MLM, decoder at 1e-3": "paser-no-mlm-decoder-1e-3",
            "no MLM, decoder at 3e-4": "paser-no-mlm-decoder-3e-4",
        }.items()
    ],
    left=5,
)

_ENCODERS = {
    "minilm": "all-MiniLM-L6-v2 (tuned)",
    "layers3": "its first three layers (raw)",
    "own": "BERT-small trained here (raw)",
}


def _analysis(name: str, encoders: Iterable[str]) -> dict[tuple[str, ...], Part]:
    """Return the rows of an analysis of RepAL: without it, with its sentence term, with both terms."""
    return {
        (_ENCODERS[encoder], term): {
            "of": ({"study": "analyses", "encoder": encoder, "method": name},),
            "fill": {"term": term},
        }
        for encoder in encoders
        for term in ("plain", "sentence term", "RepAL")
    }


def beside_plain(ours: Values, theirs: Values) -> str:
    """Write a value, and how far it is from that of the baseline, unless it is the baseline's."""
    value, plain = ours.all()[-1], theirs.all()[-1]
    return f"{value:.2f}" + (f" ({value - plain:+.2f})" if ours.by_place != theirs.by_place else "")


def spread_of_draws(ours: Values, _: Values) -> str:
    """Write mean ± standard deviation over the draws."""
    return write_spread(ours.all())


def each_change(ours: Values, theirs: Values) -> str:
    """Write the difference of each draw from the baseline's; nothing for the baseline."""
    if [one for _, _, one in ours.by_place] == [one for _, _, one in theirs.by_place] and ours.all() == theirs.all():
        return ""
    return ", ".join(f"{one - other:+.2f}" for one, other in zip(ours.all(), theirs.all(), strict=True))


WEIGHTS: tuple[str, Part] = (
    "lambda_1, lambda_2",
    {"metric": "weights/<term>", "show": picked(lambda found: f"{found['lambda_1']:.2f}, {found['lambda_2']:.2f}")},
)
WORDS = Table(
    ("encoder", ""),
    _analysis("word_importance", _ENCODERS),
    [
        WEIGHTS,
        *(
            (
                f'"{word}"',
                {"metric": f"rows/<term>/{word}", "minus_metric": f"rows/plain/{word}", "show": beside_plain},
            )
            for word in ("the", "a", "to", "in", "some", "with", "and")
        ),
    ],
)
OVERLAP = Table(
    ("encoder", ""),
    _analysis("overlap", ["layers3"]),
    [
        WEIGHTS,
        ("overlap ratio, %", {"metric": "draws/{draw}/<term>/ratio", "show": spread_of_draws}),
        (
            "minus plain, each draw",
            {
                "metric": "draws/{draw}/<term>/ratio",
                "minus_metric": "draws/{draw}/plain/ratio",
                "show": each_change,
            },
        ),
    ],
)


def places(found: dict[str, float]) -> str:
    """Write where Spearman is best, where the eigenvalue is least, and Spearman there minus its best."""
    lost = found["spearman_at_least_eigenvalue"] - found["best_spearman"]
    return f"{found['best_spearman_at']:.1f}; {found['least_eigenvalue_at']:.1f} ({lost:+.2f})"


EIGENVALUES = Table(
    ("encoder", "sentence term"),
    {
        (_ENCODERS[encoder], term): {
            "of": ({"study": "analyses", "encoder": encoder, "method": "eigenvalues"},),
            "fill": {"curve": curve},
        }
        for encoder in _ENCODERS
        for curve, term in (("0", "without"), ("1", "with"))
        if (encoder, curve) != ("minilm", "1")  # STS-B dev chose a weight of 0 there
    },
    [
        ("lambda_1", {"metric": "curves/<curve>/lambda_1", "show": number("{:.2f}")}),
        *(
            (name, {"metric": f"curves/<curve>/sets/{name}", "show": picked(places)})
            for name in ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb_test")
        ),
    ],
)

_COUNT, _PERCENT = picked("{:,}".format), picked("{:.2f} %".format)
FREQUENCIES = Table(
    (),
    {(): {"of": ({"study": "analyses", "run": "bookcorpus-frequencies"},)}},
    [
        ("tokens", {"metric": "tokens", "show": _COUNT}),
        ("occurrences", {"metric": "occurrences", "show": _COUNT}),
        *(
            (f"rank {rank:,}", {"metric": f"count_at_rank/{rank}", "show": _COUNT})
            for rank in (1, 10, 100, 1_000, 10_000)
        ),
        *(
            (f"at {100 * share:.0f} %", {"metric": f"count_at_share/{share}", "show": _COUNT})
            for share in (0.1, 0.25, 0.5, 0.75, 0.9)
        ),
        ("never seen", {"metric": "never_seen", "show": _COUNT}),
        ("share of the rarer half", {"metric": "least_half_percent", "show": _PERCENT}),
        ("labelled low-frequency", {"metric": "labelled_low", "show": _COUNT}),
        ("their share", {"metric": "labelled_low_percent", "show": _PERCENT}),
    ],
)
