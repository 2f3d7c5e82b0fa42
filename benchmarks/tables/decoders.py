"""Language models of others, untrained: the row that STS-B dev chooses in each way, and the baselines."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from benchmarks.records import records
from benchmarks.tables.markdown import markdown_table

ENCODERS = {"smollm2": "SmolLM2-135M-Instruct", "gemma3": "Gemma 3 270M"}
WAYS = {
    ("smollm2", "chat"): "chat template",
    ("smollm2", "plain"): "text alone",
    ("smollm2", "start"): "start token, text",
    ("smollm2", "filtered"): "start token, text, EmbedFilter",
    ("smollm2", "both"): "start token, text, both directions",
    ("smollm2", "echo"): "start token, echo",
    ("smollm2", "eol"): "PromptEOL",
    ("smollm2", "filtered-eol"): "PromptEOL, EmbedFilter",
    ("gemma3", "plain"): "start token, text",
    ("gemma3", "filtered"): "start token, text, EmbedFilter",
    ("gemma3", "both"): "start token, text, both directions",
    ("gemma3", "echo"): "start token, echo",
    ("gemma3", "eol"): "PromptEOL",
    ("gemma3", "filtered-eol"): "PromptEOL, EmbedFilter",
}
POOLINGS = {"mean": "mean", "rest": "mean after the first", "weightedmean": "weighted mean", "lasttoken": "last token"}
FITS = {"-": "best layer", "wiki": "best layer and step, Wikipedia", "sts": "best layer and step, STS sentences"}
TEXTS = {"wiki": "Wikipedia", "sts": "STS sentences"}
DEV, TEST = "stsb_dev", "stsb_test"


def decoders_table() -> str:
    """Tabulate by encoder, text and pooling: the last layer, and what dev chooses."""
    found = {(record["encoder"], record["way"]): record for record in records("decoders") if "way" in record}
    sets = averaged()
    rows = []
    for key, title in WAYS.items():
        if key not in found:
            rows.append([f"{ENCODERS[key[0]]}: {title}", "not run", "", "", ""])
            continue
        grid = {tuple(name.split()): row for name, row in found[key]["rows"].items()}
        last = str(max(int(layer) for layer, *_ in grid))
        for pooling, label in POOLINGS.items():
            if key[1].endswith("eol") and pooling != "lasttoken":
                continue
            of_last = {name: row for name, row in grid.items() if name[:2] == (last, pooling) and name[3] == "-"}
            cells = [f"{ENCODERS[key[0]]}: {title}, {label}", _chosen(of_last, sets).split(" (")[0]]
            for fit in FITS:
                of_fit = {name: row for name, row in grid.items() if name[1] == pooling and name[3] == fit}
                cells.append(_chosen(of_fit, sets))
            rows.append(cells)
    return markdown_table(["encoder: text, pooling", "last layer", *FITS.values()], rows, left=range(5))


def decoder_adapt_table() -> str:
    """Tabulate what ``adapt`` made of each language model, beside the plain mean and the grid's best row there."""
    sets, rows = averaged(), []
    for name, encoder in ENCODERS.items():
        ways = [record for record in records("decoders", f"{name}-*") if "way" in record]
        for record in records("decoders", f"adapt-{name}"):
            for text, found in record["rows"].items():
                means = {
                    (way["way"], *row.split()): fmean(scores[one] for one in sets)
                    for way in ways
                    for row, scores in way["rows"].items()
                    if set(sets) <= scores.keys() and row.split()[3] in ("-", text)
                }
                last = str(max(int(layer) for _, layer, *_ in means))
                alone = "start" if ("start", last, "mean", "plain", "-") in means else "plain"
                plain, best = means[alone, last, "mean", "plain", "-"], max(means.values())
                after = fmean(found["scores"][one] for one in sets)
                share = (after - plain) / (best - plain)
                cells = [
                    f"{encoder}, {TEXTS[text]}",
                    found["chosen"] or "left as it is",
                    f"{plain:.1f}",
                    f"{after:.1f}",
                ]
                rows.append([*cells, f"{best:.1f}", f"{share:.0%}", f"{found['processor_seconds'] / 60:.0f}"])
    names = ["language model, text", "chosen", "plain mean", "adapt", "best of the grid", "share of its gain"]
    return markdown_table([*names, "processor minutes"], rows, left=range(2)) if rows else "Not run yet."


def decoder_repal_table() -> str:
    """Tabulate RepAL on each language model: the weights that dev chose, STS-B test and the mean of the seven sets."""
    rows = []
    for name, encoder in ENCODERS.items():
        for record in records(f"decoder_repal_{name}", "start-0"):
            plain = {**record["scores"], DEV: record["dev"], "average": record["average"]}
            for term, found in {"plain": plain, **record["post_processing"]}.items():
                weights = [f"{found[one]:.2f}" if one in found else "" for one in ("lambda_1", "lambda_2")]
                scores = [f"{found[one]:.1f}" for one in (DEV, TEST, "average")]
                rows.append([encoder, term, *weights, *scores])
    titles = ["PromptEOL, last token", "RepAL", "lambda_1", "lambda_2", "STS-B dev", "STS-B test", "seven sets"]
    return markdown_table(titles, rows, left=range(2)) if rows else "Not run yet."


def decoder_baselines_table() -> str:
    """Tabulate the baselines on the same pairs."""
    sets = averaged()
    found = [record["rows"] for record in records("decoders", "baselines")]
    rows = [[name, _scores(row, sets)] for all_of_them in found for name, row in all_of_them.items()]
    return markdown_table(["baseline, fitted on", f"STS-B test / mean of {', '.join(sets)}"], rows)


def averaged() -> list[str]:
    """Return the test sets that every way has been scored on, but for the ways that took STS-B alone."""
    of_way = [set(next(iter(record["rows"].values()))) for record in records("decoders") if "way" in record]
    more = [names for names in of_way if names - {DEV, TEST}]
    return sorted(set.intersection(*more) - {DEV}) if more else []


def _chosen(rows: dict[Any, dict[str, float]], sets: list[str]) -> str:
    """Write the scores of the row that is highest on dev, with its layer and step; nothing if there is none."""
    if not rows:
        return ""
    (layer, _, step, _), row = max(rows.items(), key=lambda item: item[1][DEV])
    return f"{_scores(row, sets)} ({layer}{'' if step == 'plain' else f', {step}'})"


def _scores(row: dict[str, float], sets: list[str]) -> str:
    whole = sets and set(sets) <= row.keys()
    return f"{row[TEST]:.1f} / {fmean(row[name] for name in sets):.1f}" if whole else f"{row[TEST]:.1f}"
