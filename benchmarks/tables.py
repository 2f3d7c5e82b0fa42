"""The main table: every method beside SimCSE from the same start, differences over paired seeds, the papers' gains.

And the tables of what a step costs, from the newest whole record of ``benchmarks.speed`` on CPU.

python -m benchmarks.tables
"""

from __future__ import annotations

import json
import math
import statistics
from typing import Any

from scipy.stats import t as student

from benchmarks.common import ROOT
from benchmarks.records import RESULTS, records, spread
from benchmarks.repal import FITTED
from benchmarks.speed_cases import MNRL
from benchmarks.sts import load_study, study_cells

Rows = dict[str, tuple[str, float | None]]
ROWS: Rows = {  # the studies and methods whose records a row reads, the gain over SimCSE in the method's own paper
    "start": ("foundation/start", None),
    "SimCSE": ("foundation/simcse more_seeds/simcse", None),
    "DCLR": ("foundation/dclr more_seeds/dclr", 76.89 - 74.99),
    "DCLR, searched: lr 1e-4": ("more_seeds/dclr-lr-1e-4", None),
    "AdCSE": ("adcse/adcse more_seeds/adcse", 77.26 - 76.25),
    "AdCSE, no head": ("adcse/adcse-no-head more_seeds/adcse-no-head", None),
    "AdCSE, searched: no head, lr 1e-4": ("more_seeds/adcse-no-head-lr-1e-4", None),
    "ConSERT": ("slt_fai/consert more_seeds/consert", None),
    "ConSERT, searched: temperature 0.05": ("more_seeds/consert-temperature-005", None),
    "SLT-FAI over SimCSE": ("slt_fai/slt-fai more_seeds/slt-fai", 76.18 - 74.60),
    "SLT-FAI over ConSERT": ("slt_fai/consert-slt-fai more_seeds/consert-slt-fai", None),
    "SLT-FAI over ConSERT, searched: discriminators at 1e-3": (
        "more_seeds/consert-slt-fai-discriminators-1e-3",
        None,
    ),
    "PaSeR": ("paser/paser", 76.16 - 76.25),
    "PaSeR, searched: no MLM, decoder at 1e-3": ("paser/paser-no-mlm-decoder-1e-3", None),
}
"""Papers' gains: seven-set averages with BERT base, DCLR table 1, AdCSE table 1, SLT-FAI table 1, PaSeR table 1."""

GENRES = "RepAL pooled, by genre"
WHITENED = "whitened 256"


def difference(ours: dict[int, float], baseline: dict[int, float]) -> str:
    """Mean of the differences over the seeds that both have; from two seeds on with its 95 % interval (Student's t)."""
    pairs = [ours[seed] - baseline[seed] for seed in sorted(ours.keys() & baseline.keys())]
    if not pairs:
        return ""
    mean = statistics.mean(pairs)
    if len(pairs) < 2:
        return f"{mean:+.2f}"
    half = float(student.ppf(0.975, len(pairs) - 1)) * statistics.stdev(pairs) / math.sqrt(len(pairs))
    return f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]"


def row_records(sources: str) -> list[dict[str, Any]]:
    """The records of ``study/method study/method ...``, by seed."""
    named = [source.split("/") for source in sources.split()]
    found = [record for study, method in named for record in records(study) if record["method"] == method]
    return sorted(found, key=lambda record: record["seed"])


def main_table(shown: Rows = ROWS) -> str:
    """A row a method: mean ± standard deviation over seeds, and the difference to SimCSE of the same seeds."""
    lines = [
        "| method | seeds | best step | STS-B dev | STS-B test | seven sets | minus SimCSE, same seeds | paper |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    baseline: dict[int, float] = {}
    for label, (sources, gain) in shown.items():
        found = row_records(sources)
        if not found:
            continue
        averages = {record["seed"]: record["average"] for record in found}
        if label == "SimCSE":
            baseline = averages
        against = difference(averages, baseline) if baseline and label != "SimCSE" else ""
        cells = [
            label,
            str(len(found)),
            ", ".join(str(record["best_step"]) for record in found),
            spread([record["dev"] for record in found]),
            spread([record["scores"]["stsb_test"] for record in found]),
            spread(list(averages.values())),
            against,
            "" if gain is None else f"{gain:+.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def phrases_table(study: str, seed: int = 0, width: int = 32) -> str:
    """The phrases that PaSeR's decoders wrote in place of ten others, cut to ``width`` characters."""
    written = {
        record["method"]: record["reconstructed"]
        for record in records(study)
        if record["seed"] == seed and record.get("settings", {}).get("masking") == {"top_k": 3}
    }
    lines = [f"| phrase | {' | '.join(written)} |", "|---|" + "---|" * len(written)]
    for rows in zip(*written.values(), strict=True):
        cells = [row["reconstructed"] for row in rows]
        shown = [cell if len(cell) <= width else f"{cell[:width].rstrip()} ..." for cell in cells]
        lines.append(f"| {rows[0]['phrase']} | {' | '.join(shown)} |")
    return "\n".join(lines)


def newest_speed(sweep: str | None = None) -> dict[str, Any] | None:
    """The newest whole record on CPU of a sweep, or of all cases."""
    files = sorted((RESULTS / "speed").glob(f"{sweep}-*.json" if sweep else "[0-9]*.json"), reverse=True)
    found = (json.loads(file.read_text(encoding="utf8")) for file in files)
    return next((r for r in found if r.get("full", True) and r.get("device", "cpu") == "cpu"), None)


def refined_records() -> dict[str, dict[int, dict[str, dict[str, float]]]]:
    """What ``benchmarks.repal grid`` found for encoders called METHOD-SEED: by method and seed, variant -> scores."""
    found: dict[str, dict[int, dict[str, dict[str, float]]]] = {}
    renamed = {"minilm-3-mean": "start-0", "simcse": "simcse-0"}  # of the study of RepAL itself
    for file in sorted((RESULTS / "repal").glob("*.json")) + sorted((RESULTS / "repal_trained").glob("*.json")):
        for name, variants in json.loads(file.read_text(encoding="utf8")).get("encoders", {}).items():
            method, _, seed = renamed.get(name, name).rpartition("-")
            if name in renamed or file.parent.name == "repal_trained":
                rows = found.setdefault(method, {}).setdefault(int(seed), {})
                for variant, row in variants["english, target fit"].items():
                    rows[variant] = rows.get(variant, {}) | row  # a later run may tell more of a variant
    return found


def refined(sources: str) -> dict[int, dict[str, dict[str, float]]]:
    """By seed, variant -> scores after the weights of ``study/method ...``: of the record, or else of the grid."""
    grid, found = refined_records(), {}
    for record in row_records(sources):
        own = record.get("post_processing", {})
        whole = own and all("dev_by_genre" in row for row in own.values())  # one early record lacks these
        found[record["seed"]] = own if whole else grid.get(record["method"], {}).get(record["seed"], own)
    return {seed: rows for seed, rows in found.items() if rows}


def grid_on_text() -> dict[str, dict[int, dict[str, dict[str, float]]]]:
    """What ``benchmarks.repal grid`` found with the training text as its corpus, for encoders called
    STUDY/METHOD-SEED: by STUDY/METHOD and seed, variant -> scores.
    """
    found: dict[str, dict[int, dict[str, dict[str, float]]]] = {}
    for file in sorted((RESULTS / "whitening").glob("*.json")):
        for name, variants in json.loads(file.read_text(encoding="utf8"))["encoders"].items():
            source, _, seed = {"minilm-3-mean": "foundation/start-0"}.get(name, name).rpartition("-")
            found.setdefault(source, {})[int(seed)] = variants["english, general fit"]
    return found


def fitted_on_text(sources: str) -> dict[int, dict[str, dict[str, float]]]:
    """By seed, the scores of FITTED's variants."""
    grid = grid_on_text()
    by_seed = {seed: rows for source in sources.split() for seed, rows in grid.get(source, {}).items()}
    return {seed: {label: rows[variant] for variant, label in FITTED.items()} for seed, rows in by_seed.items()}


def whitening_table() -> str:
    """With and without whitening on the training text: seven-set averages, and what STS-B dev says of the choice."""
    one, whitened = "sentence term pooled", "whitened 256 + sentence term pooled"
    variants = ("plain", one, *FITTED)
    titles = ("encoder", "seeds", "plain", one, *FITTED.values(), f"{one}, STS-B dev", f"{FITTED[whitened]}, STS-B dev")
    lines = [f"| {' | '.join(titles)} |", "|---|" + "---:|" * (len(titles) - 1)]
    for source, rows in sorted(grid_on_text().items()):
        cells = [source, str(len(rows)), *(spread(list(averages(rows, variant).values())) for variant in variants)]
        cells += [spread([row[variant]["stsb_dev"] for row in rows.values()]) for variant in (one, whitened)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def averages(rows: dict[int, dict[str, dict[str, float]]], variant: str) -> dict[int, float]:
    return {seed: row[variant]["average"] for seed, row in rows.items() if variant in row}


def refined_table(shown: Rows = ROWS) -> str:
    """RepAL after each method: seven-set averages over the seeds whose weights were at hand, (n) where fewer."""
    found = {label: refined(sources) for label, (sources, _) in shown.items()}
    found = {label: rows for label, rows in found.items() if rows}
    one, both = "sentence term pooled", "RepAL pooled"
    columns = ("plain", "RepAL", one, both, GENRES, WHITENED)
    named = [name for name in columns if any(averages(rows, name) for rows in found.values())]
    titles = ["after", "seeds", *named, f"{one}, minus plain", f"{both}, minus plain", "its lambdas"]
    lines = [f"| {' | '.join(titles)} |", "|---|" + "---:|" * (len(titles) - 1)]
    for label, rows in found.items():
        cells = [label, str(len(rows))]
        for variant in named:
            values = averages(rows, variant)
            fewer = f" ({len(values)})" if 0 < len(values) < len(rows) else ""
            cells.append(spread(list(values.values())) + fewer)
        cells += [difference(averages(rows, variant), averages(rows, "plain")) for variant in (one, both)]
        lambdas = (statistics.mean(row[both][f"lambda_{number}"] for row in rows.values()) for number in (1, 2))
        cells.append(", ".join(f"{mean:.2f}" for mean in lambdas))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def as_trained(sources: str) -> dict[int, float]:
    """Seven-set averages by seed."""
    return {record["seed"]: record["average"] for record in row_records(sources)}


Combinations = dict[tuple[str, str], dict[int, dict[str, float]]]


def combinations(shown: Rows) -> Combinations:
    """Training x post-processing: by seed, the scores, where STS-B dev was scored by its genres too."""
    found: Combinations = {}
    variants = ("plain", "sentence term pooled", "RepAL pooled", GENRES, WHITENED, *FITTED.values())
    for label, (sources, _) in shown.items():
        for rows in (refined(sources), fitted_on_text(sources)):
            for variant in variants:
                scores = {seed: row[variant] for seed, row in rows.items() if "dev_by_genre" in row.get(variant, {})}
                if scores:
                    found[label, variant] = found.get((label, variant), {}) | scores
    return found


def figures(scores: dict[int, dict[str, float]], key: str) -> list[float]:
    return [row[key] for row in scores.values()]


def gain_over(baseline: dict[int, float], scores: dict[int, dict[str, float]]) -> str:
    return difference({seed: row["average"] for seed, row in scores.items()}, baseline)


def ranking(titles: tuple[str, ...], rows: list[tuple[float, list[str]]], top: int) -> str:
    """The first rows, (what they are ranked by, cells), the highest first."""
    lines = [f"| training | then | {' | '.join(titles)} |", "|---|---|" + "---:|" * len(titles)]
    lines += [f"| {' | '.join(cells)} |" for _, cells in sorted(rows, reverse=True)[:top]]
    return "\n".join(lines)


def ranked_table(study: str, top: int = 16) -> str:
    """Training x post-processing in the order of STS-B dev (mean over its genres), beside SimCSE as trained."""
    shown = study_rows(study)
    baseline = as_trained(shown["SimCSE"][0])
    rows = []
    for names, scores in combinations(shown).items():
        keys = ("dev_by_genre", "stsb_dev", "average")
        genres, dev, sets = (figures(scores, key) for key in keys)
        cells = [*names, str(len(scores)), spread(genres), spread(dev), spread(sets), gain_over(baseline, scores)]
        rows.append((statistics.mean(genres), cells))
    titles = ("seeds", "STS-B dev, its genres", "STS-B dev", "seven sets", "minus SimCSE, same seeds")
    return ranking(titles, rows, top)


OWN = {  # the rows of ROWS whose settings own_encoder.toml repeats, by their names there
    "DCLR": "dclr",
    "AdCSE": "adcse",
    "AdCSE, no head": "adcse-no-head",
    "ConSERT": "consert",
    "SLT-FAI over SimCSE": "slt-fai",
    "SLT-FAI over ConSERT": "consert-slt-fai",
    "PaSeR, searched: no MLM, decoder at 1e-3": "paser",
}


def both_encoders_table(top: int = 12) -> str:
    """Training x post-processing on both encoders, in the order of their mean STS-B dev (mean over its genres), with
    the gain on the seven sets over SimCSE as trained, same seeds.
    """
    layers = combinations(study_rows("recipes"))
    labels = {method: label for label, method in OWN.items()}
    labels["dclr"] = "DCLR, searched: lr 1e-4"  # the learning rates of own_encoder.toml were searched
    own = {
        (labels.get(method, method), variant): scores
        for (method, variant), scores in combinations(study_rows("own_encoder")).items()
    }
    baselines = as_trained(ROWS["SimCSE"][0]), as_trained("own_encoder/simcse")
    rows = []
    for names in layers.keys() & own.keys():
        found = (layers[names], own[names])
        devs = [statistics.mean(figures(scores, "dev_by_genre")) for scores in found]
        cells = [f"{dev:.2f} ({len(scores)})" for dev, scores in zip(devs, found, strict=True)]
        gains = [gain_over(baseline, scores) for baseline, scores in zip(baselines, found, strict=True)]
        mean = statistics.mean(devs)
        rows.append((mean, [*names, *cells, f"{mean:.2f}", *gains]))
    titles = ("MiniLM's layers, dev (seeds)", "own encoder, dev (seeds)", "mean")
    gained = ("MiniLM's layers, minus SimCSE", "own encoder, minus SimCSE")
    return ranking((*titles, *gained), rows, top)


CLAIMS = {label: (ROWS[label][0], method) for label, method in OWN.items()} | {
    "DCLR, no guide": ("dclr_ablations/dclr-no-weighting", "dclr-no-guide")
}
"""The rows beside SimCSE: their records on MiniLM's layers, their name in own_encoder.toml."""


def claims_table() -> str:
    """What each paper claims over SimCSE, and what came out on either encoder, over the seeds that both have; before
    it what SimCSE itself gains over the encoder before training.
    """
    own_studies = ("own_encoder", "own_encoder_wiki")

    def gain_of_simcse(sources: str, start: str) -> str:
        ours, before = as_trained(sources), as_trained(start)
        return f"{difference(ours, dict.fromkeys(ours, before[0]))} ({len(ours)})" if ours and before else ""

    def gain(sources: str, baseline: str) -> str:
        ours, theirs = as_trained(sources), as_trained(baseline)
        seeds = len(ours.keys() & theirs.keys())
        return f"{difference(ours, theirs)} ({seeds})" if seeds else ""

    def refined_gain(sources: str) -> str:
        rows = refined(sources)
        ours, plain = averages(rows, "RepAL pooled"), averages(rows, "plain")
        return f"{difference(ours, plain)} ({len(ours)})" if ours else ""

    titles = ("the paper, BERT base", "MiniLM's layers", "own encoder", "own encoder, Wikipedia's sentences")
    lines = [f"| seven sets (seeds) | {' | '.join(titles)} |", "|---|" + "---:|" * len(titles)]
    cells = ["SimCSE, minus start", "", gain_of_simcse(ROWS["SimCSE"][0], ROWS["start"][0])]
    cells += [gain_of_simcse(f"{study}/simcse", f"{study}/start") for study in own_studies]
    lines.append(f"| {' | '.join(cells)} |")
    for label, (sources, method) in sorted(CLAIMS.items()):
        claimed = ROWS[label.partition(",")[0]][1]
        cells = [f"{label}, minus SimCSE", "" if claimed is None else f"{claimed:+.2f}"]
        cells.append(gain(sources, ROWS["SimCSE"][0]))
        cells += [gain(f"{study}/{method}", f"{study}/simcse") for study in own_studies]
        lines.append(f"| {' | '.join(cells)} |")
    for label, method, claimed in (("start", "start", 3.01), ("SimCSE", "simcse", 0.33), ("ConSERT", "consert", 0.42)):
        cells = [f"RepAL pooled after {label}, minus plain", f"{claimed:+.2f}"]  # the paper's table 2, its two passes
        cells += [refined_gain(ROWS[label][0]), *(refined_gain(f"{study}/{method}") for study in own_studies)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def study_rows(study: str) -> Rows:
    """The rows of one study; those of ``recipes`` stand beside the single methods of ROWS."""
    if study == "recipes":
        return ROWS | combined_rows()
    methods = load_study(ROOT / "configs" / f"{study}.toml")["methods"]
    return {"SimCSE" if name == "simcse" else name: (f"{study}/{name}", None) for name in ("start", *methods)}


def combined_rows() -> Rows:
    """What ``recipes.toml`` adds to the single methods."""
    methods = load_study(ROOT / "configs" / "recipes.toml")["methods"]
    names = [name for name in methods if name.startswith(("dclr-", "filtering-over-", "slt-fai-over-"))]
    return {name: (f"recipes/{name}", None) for name in names}


SPACE = {  # what the column says, by the part of a record and the figure in it
    ("frequency_bias", "probe_accuracy"): "probe",
    ("frequency_bias", "low_centre_distance"): "low, to centre",
    ("frequency_bias", "high_centre_distance"): "high, to centre",
    ("frequency_bias", "low_neighbour_distance"): "low, to neighbours",
    ("frequency_bias", "high_neighbour_distance"): "high, to neighbours",
    ("geometry", "mean_cosine"): "mean cosine",
    ("geometry", "iso_score"): "IsoScore",
    ("geometry", "uniformity"): "uniformity",
}


def space_table(study: str) -> str:
    """The embedding space before ("start") and after each method: what token embeddings tell of frequency, and the
    geometry of sentence embeddings where the study asks for it. Means over seeds.
    """
    found = [record for record in records(study) if "frequency_bias" in record]
    shown = {key: label for key, label in SPACE.items() if all(key[0] in record for record in found)}
    lines = [f"| method | seeds | {' | '.join(shown.values())} |", "|---|---:|" + "---:|" * len(shown)]
    for name in sorted({record["method"] for record in found}, key=lambda name: (name != "start", name)):
        rows = [record for record in found if record["method"] == name]
        cells = (f"{statistics.mean(row[part][figure] for row in rows):.3f}" for part, figure in shown)
        lines.append(f"| {name} | {len(rows)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def pretraining_table(name: str) -> str:
    """The curve that ``benchmarks.pretrain_encoder`` recorded: masked language modelling's loss since the row above,
    STS-B dev of mean pooling, and the geometry of a thousand sentence embeddings.
    """
    file = RESULTS / "pretraining" / f"{name}.json"
    if not file.is_file():
        return "Not run yet."
    record = json.loads(file.read_text(encoding="utf8"))
    columns = {
        "loss": ("loss", 1),
        "STS-B dev": ("stsb_dev_spearman_cosine", 100),
        "mean cosine": ("corpus_mean_cosine", 1),
        "IsoScore": ("corpus_iso_score", 1),
    }
    lines = [f"| step | {' | '.join(columns)} |", "|---:|" + "---:|" * len(columns)]
    for row in record["curve"]:
        cells = (f"{scale * row[key]:.2f}" if key in row else "" for key, scale in columns.values())
        lines.append(f"| {row['step']} | {' | '.join(cells)} |")
    settings = record["settings"]
    size = f"{settings['layers']} layers, {settings['width']} wide, {record['parameters']:,} parameters"
    steps = (
        f"{settings['steps']} steps of {settings['batch_size']} sentences, learning rate {settings['learning_rate']:g}"
    )
    return "\n".join([*lines, "", f"{size}; {steps}; sha256 of the weights {record['sha256'][:16]}."])


def unrun_table() -> str:
    """What the configurations ask for and no record holds: by study, the methods with their seeds."""
    lines = ["| study | cells run | not run |", "|---|---:|---|"]
    for path in sorted((ROOT / "configs").glob("*.toml")):
        if path.stem == "smoke":
            continue
        study = load_study(path)
        cells = {name: set(seeds) for name, seeds in study_cells(study).items()}
        done = {name: {r["seed"] for r in records(study["name"]) if r["method"] == name} for name in cells}
        missing = {name: sorted(seeds - done[name]) for name, seeds in cells.items() if seeds - done[name]}
        run = sum(len(seeds & done[name]) for name, seeds in cells.items())
        words = [f"{name} ({', '.join(map(str, seeds))})" for name, seeds in missing.items()]
        lines.append(f"| {study['name']} | {run} of {sum(map(len, cells.values()))} | {', '.join(words)} |")
    return "\n".join(lines)


def speed_table() -> str:
    """A row a case: what a step takes, beside the bare passes that it needs and beside MNRL."""
    record = newest_speed()
    if record is None:
        return "Not measured yet."
    lines = ["| step | ms | beside what it needs | beside MNRL | MiB |", "|---|---:|---:|---:|---:|"]
    for name, row in record["cases"].items():
        if name.startswith("bare"):
            continue
        ratios = {other: ratio["median"] for other, ratio in row.get("ratios", {}).items()}
        if row.get("reference"):  # the first records had no more than this ratio
            ratios[row["reference"]] = row["ratio"]
        beside_mnrl = f"{ratios.pop(MNRL):.2f} x" if MNRL in ratios else ""
        needs = ", ".join(f"{ratio:.2f} x {other}" for other, ratio in ratios.items())
        lines.append(f"| {name} | {row['median_ms']:.0f} | {needs} | {beside_mnrl} | {mebibytes(row)} |")
    return "\n".join([*lines, "", conditions(record)])


def sweep_table(sweep: str) -> str:
    """Milliseconds and MiB of each case, a column a value."""
    record = newest_speed(sweep)
    if record is None:
        return "Not measured yet."
    values: dict[str, dict[str, Any]] = record["values"]
    names = list(dict.fromkeys(name for cases in values.values() for name in cases))
    lines = [f"| {sweep} | {' | '.join(values)} |", "|---|" + "---:|" * len(values)]
    for name in names:
        rows = [cases.get(name) for cases in values.values()]
        cells = ["" if row is None else f"{row['median_ms']:.0f} ms, {mebibytes(row)} MiB" for row in rows]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", conditions(record)])


def preparation_table(what: str) -> str:
    """Sentences a second on the wall, and beside each reference; a column a number of sentences, its newest record."""
    files = sorted((RESULTS / "preparation").glob(f"*-{what}.json"))
    newest = {found["sentences"]: found for found in (json.loads(file.read_text(encoding="utf8")) for file in files)}
    columns = [newest[size] for size in sorted(newest)]
    titles = [f"{found['sentences']:,} sentences, rounds: {found['rounds']}" for found in columns]
    lines = [f"| {what} | {' | '.join(titles)} |", "|---|" + "---:|" * len(columns)]
    for name in columns[0]["cases"]:
        rows = [found["cases"][name]["wall"] for found in columns]
        cells = (f"{row['per_second']:,.0f}/s ({', '.join(beside(row))})" for row in rows)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    memory = [
        f"{row['texts']:,} texts {row['peak_MiB']:.0f} MiB" for found in columns for row in found.get("memory", ())
    ]
    return "\n".join([*lines, *(["", f"Peak memory: {'; '.join(memory)}."] if memory else [])])


def beside(row: dict[str, Any]) -> list[str]:
    """The median speed relative to each reference."""
    return [f"{value[0]:.2f} x" for name, value in row.items() if name.startswith("x ")]


def mebibytes(row: dict[str, Any]) -> str:
    return "" if row.get("peak_mib") is None else f"{row['peak_mib']:.0f}"


def conditions(record: dict[str, Any]) -> str:
    """How a record of ``benchmarks.speed`` came about, in a line."""
    size = {"batch": f"{record['batch']} sentences a batch", "length": f"at most {record.get('length', 32)} tokens"}
    fixed = [words for name, words in size.items() if name != record.get("sweep")]
    clock = ["processor time"] if record.get("clock") == "cpu" else []
    words = [*fixed, f"{record['rounds']} rounds", *clock, record["machine"], f"revision {record['revision']}"]
    return f"Measured: {', '.join(words)}."


if __name__ == "__main__":
    print(main_table())
