"""Tables of docs/decoders.md: language models as encoders, without training, adapted, and trained."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from benchmarks.tables.domains import DOMAINS, ONE
from benchmarks.tables.render import Part, Table, Values, count, gain, number, picked, runs, spread

ENCODERS = {"smollm2": "SmolLM2-135M-Instruct", "gemma3": "Gemma 3 270M"}
LAST = {"smollm2": "30", "gemma3": "18"}
"""The last layer of each."""
SETS = ("sickr_test", "sts12", "sts13", "sts14", "sts15", "sts16", "stsb_test")


def scores(found: Mapping[str, float]) -> str:
    """Write STS-B test, and the mean of the seven sets where all were scored."""
    whole = f" / {statistics.mean(found[name] for name in SETS):.1f}" if found.keys() >= set(SETS) else ""
    return f"{found['stsb_test']:.1f}{whole}"


def highest_on_dev(ours: Values, _: Values) -> str:
    """Write the scores of the layer and transform that are highest on STS-B dev."""
    (_, _, (_, layer, transform)), found = max(ours.by_place.items(), key=lambda item: item[1]["stsb_dev"])
    return f"{scores(found)} ({layer}{'' if transform == 'plain' else f', {transform}'})"


def best_by_dev(ours: Values, _: Values) -> str:
    """Write the scores of the row that is highest on STS-B dev, without its name."""
    return scores(max(ours.all(), key=lambda found: found["stsb_dev"]))


_ROWS = {
    ("smollm2", "chat", "mean"): "chat template, mean",
    ("smollm2", "start", "mean"): "start token, text, mean",
    ("smollm2", "start", "weightedmean"): "start token, text, weighted mean",
    ("smollm2", "echo", "mean"): "start token, echo, mean",
    ("smollm2", "eol", "lasttoken"): "PromptEOL, last token",
    ("smollm2", "filtered-eol", "lasttoken"): "PromptEOL, EmbedFilter, last token",
    ("gemma3", "plain", "mean"): "start token, text, mean",
    ("gemma3", "plain", "weightedmean"): "start token, text, weighted mean",
    ("gemma3", "echo", "mean"): "start token, echo, mean",
    ("gemma3", "eol", "lasttoken"): "PromptEOL, last token",
    ("gemma3", "filtered-eol", "lasttoken"): "PromptEOL, EmbedFilter, last token",
}
"""By encoder, way to write a text and pooling."""
UNTRAINED = Table(
    "encoder: text, pooling",
    {
        f"{ENCODERS[encoder]}: {title}": {
            "of": ({"study": "decoders", "encoder": encoder, "method": way},),
            "fill": {"pooling": pooling, "last": LAST[encoder]},
        }
        for (encoder, way, pooling), title in _ROWS.items()
    },
    [
        ("last layer", {"metric": "rows/<last> <pooling> {transform} -", "show": best_by_dev}),
        ("best layer", {"metric": "rows/{layer} <pooling> {transform} -", "show": highest_on_dev}),
        (
            "best layer and transform, Wikipedia",
            {"metric": "rows/{layer} <pooling> {transform} wiki", "show": highest_on_dev},
        ),
        (
            "best layer and transform, STS sentences",
            {"metric": "rows/{layer} <pooling> {transform} sts", "show": highest_on_dev},
        ),
    ],
    left=5,
)
"""STS-B dev chooses layer and transform; a cell is STS-B test / the mean of the seven sets."""

UNTRAINED_BASELINES = Table(
    "baseline, fitted on",
    {
        name: {"of": ({"study": "decoders", "run": "baselines"},), "metric": f"rows/{name}"}
        for name in (
            "all-MiniLM-L6-v2",
            "TF-IDF of characters, wiki",
            "SIF of MiniLM's input embeddings, wiki",
            "TF-IDF of characters, sts",
            "SIF of MiniLM's input embeddings, sts",
        )
    },
    [(f"STS-B test / mean of {', '.join(SETS)}", {"show": picked(scores)})],
)


def mean_of_sets(ours: Values, _: Values) -> str:
    """Write the mean of the seven sets."""
    return ONE.format(statistics.mean(ours.all()[-1][name] for name in SETS))


def best_of_grid(ours: Values, _: Values) -> str:
    """Write the highest mean of the seven sets of all ways, layers, poolings and transforms."""
    whole = [found for found in ours.all() if found.keys() >= set(SETS)]
    return ONE.format(max(statistics.mean(found[name] for name in SETS) for found in whole))


ADAPTED = Table(
    "language model, text",
    {
        f"{name}, {title}": {
            "of": {
                "adapt": ({"study": "decoders", "run": f"adapt-{encoder}"},),
                "plain": ({"study": "decoders", "run": f"{encoder}-{'start' if encoder == 'smollm2' else 'plain'}"},),
                "grid": ({"study": "decoders", "encoder": encoder},),
            },
            "fill": {"text": text, "last": LAST[encoder]},
        }
        for encoder, name in ENCODERS.items()
        for text, title in {"sts": "STS sentences", "wiki": "Wikipedia"}.items()
    },
    [
        ("chosen", {"which": "adapt", "metric": "rows/<text>/chosen", "show": picked(str)}),
        ("plain mean", {"which": "plain", "metric": "rows/<last> mean plain -", "show": mean_of_sets}),
        ("adapt", {"which": "adapt", "metric": "rows/<text>/scores", "show": mean_of_sets}),
        (
            "best of the grid",
            {"which": "grid", "metric": "rows/{layer} {pooling} {transform} <text>", "show": best_of_grid},
        ),
        (
            "processor minutes",
            {
                "which": "adapt",
                "metric": "rows/<text>/processor_seconds",
                "show": picked(lambda seconds: f"{seconds / 60:.0f}"),
            },
        ),
    ],
    left=2,
)

PACKAGE = Table(
    "language model",
    {
        name: {
            "of": {
                "package": ({"study": "decoder_package", "run": encoder},),
                "adapt": ({"study": "decoders", "run": f"adapt-{encoder}"},),
            }
        }
        for encoder, name in ENCODERS.items()
    },
    [
        (
            "local-llm-embed, its defaults",
            {"which": "package", "metric": "rows/prefix weighted_avg weighted_mean whitened", "show": picked(scores)},
        ),
        (
            "local-llm-embed, best by STS-B dev",
            {"which": "package", "metric": "rows/{way} {layer} {pooling} {transform}", "show": best_by_dev},
        ),
        ("adapt", {"which": "adapt", "metric": "rows/sts/scores", "show": picked(scores)}),
    ],
)
"""Both fitted on the same STS sentences; a cell is STS-B test / the mean of the seven sets."""

WHITENED = "post_processing/whitened softly on the text"
LABELS = {
    "start": "base model",
    "simcse": "SimCSE",
    "consert": "ConSERT",
    "dclr": "DCLR",
    "dclr-consert-views": "DCLR on ConSERT's views",
    "dclr-consert-views-no-noise": "the same, no noise",
    "dclr-consert-views-no-weights": "the same, no weights",
    "dclr-consert-views-neither": "the same, neither",
    "adcse": "AdCSE",
    "adcse-no-head": "AdCSE without its head",
    "slt-fai-consert": "SLT-FAI over ConSERT",
    "slt-fai": "SLT-FAI over SimCSE",
    "paser": "PaSeR",
}


BARE = {"dclr-consert-views-no-noise": "DCLR on ConSERT's views, no noise, no weights"}
"""What the run of this name is in the study ``decoder_training``."""


def trained(study: str, *methods: str, labels: Mapping[str, str] = LABELS, beside_simcse: bool = False) -> Table:
    """Return the table of a study: as trained and softly whitened, beside the base model and, if asked, SimCSE."""
    columns: list[tuple[str, Part]] = [("seeds", {"metric": "average", "show": count})]
    for title, metric, whitened in (
        ("STS-B test", "scores/stsb_test", f"{WHITENED}/stsb_test"),
        ("seven sets", "average", f"{WHITENED}/average"),
    ):
        columns += [
            (title, {"metric": metric, "show": spread}),
            (f"{title}, whitened", {"metric": whitened, "show": spread}),
        ]
    if beside_simcse:
        columns.append(("minus SimCSE", {"metric": "average", "show": gain, "minus": runs(f"{study}/simcse")}))
    beside_base = {"metric": f"{WHITENED}/average", "show": gain, "minus": runs(f"{study}/start")}
    columns.append(("whitened, minus the base model whitened", beside_base))
    return Table("method", {labels[name]: {"of": runs(f"{study}/{name}")} for name in ("start", *methods)}, columns)


_METHODS = (
    "simcse",
    "consert",
    "slt-fai-consert",
    "adcse",
    "adcse-no-head",
    "dclr-consert-views",
    "dclr-consert-views-no-noise",
    "dclr-consert-views-no-weights",
    "dclr-consert-views-neither",
)
METHODS = trained("decoder_parts", *_METHODS, beside_simcse=True)
METHODS_GEMMA = trained("decoder_parts_gemma3", *_METHODS, beside_simcse=True)
TRAINED = trained(
    "decoder_training",
    "simcse",
    "consert",
    "dclr-consert-views-no-noise",
    "adcse",
    "slt-fai",
    "paser",
    "dclr",
    labels=LABELS | BARE,
    beside_simcse=True,
)

REPAL = Table(
    ("PromptEOL, last token", "RepAL"),
    {
        (name, term): {
            "of": runs(f"decoder_repal_{encoder}/start"),
            "fill": {"term": term},
        }
        for encoder, name in ENCODERS.items()
        for term in ("none", "corpus term", "sentence term", "RepAL")
    },
    [
        ("lambda_1", {"metric": "post_processing/<term>/lambda_1", "show": number("{:.2f}")}),
        ("lambda_2", {"metric": "post_processing/<term>/lambda_2", "show": number("{:.2f}")}),
        ("STS-B test", {"metric": ["post_processing/<term>/stsb_test", "scores/stsb_test"], "show": number(ONE)}),
        ("seven sets", {"metric": ["post_processing/<term>/average", "average"], "show": number(ONE)}),
    ],
)


def _on_domains(encoder: str, method: str) -> Part:
    runs_of = {
        domain: ({"study": "domains_thin", "encoder": encoder, "method": method, "data": domain},) for domain in DOMAINS
    }
    return {"of": runs_of, "metric": "scores/mean", "show": number(ONE)}


ON_DOMAINS = Table(
    ("encoder", "row"),
    {
        ("no encoder", "TF-IDF of characters 3-5"): _on_domains("", "TF-IDF of characters 3-5"),
        **{
            (title, title_of): _on_domains(encoder, method)
            for encoder, title in {
                "minilm": "all-MiniLM-L6-v2 (tuned)",
                "smollm2": "SmolLM2-135M-Instruct, PromptEOL (raw)",
                "gemma3": "Gemma 3 270M, PromptEOL (raw)",
            }.items()
            for title_of, method in (("base model", "start"), ("whitened softly", "whitened softly 0.1"))
        },
    },
    [(domain, {"which": domain}) for domain in DOMAINS],
)
