"""Tables of the domain study: what adapting an encoder to a domain gained, judged by labels."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.records import records
from benchmarks.tables.markdown import difference, markdown_table, spread

NAMES = {
    "minilm": "all-MiniLM-L6-v2 (tuned)",
    "layers3": "its first three layers (raw)",
    "own": "BERT-small trained here (raw)",
    "better": "better BERT-small (raw)",
    "mpnet": "all-mpnet-base-v2 (tuned)",
    "smollm2-plain": "SmolLM2-135M-Instruct (raw)",
    "smollm2": "SmolLM2-135M-Instruct, PromptEOL (raw)",
    "gemma3-plain": "Gemma 3 270M (raw)",
    "gemma3": "Gemma 3 270M, PromptEOL (raw)",
    "": "no encoder",
}
_Cell = tuple[str, str]
Scores = dict[int, dict[str, dict[str, float]]]
"""By seed and domain."""
_FLOOR, _START, _ADAPTED, _WHITENED = "TF-IDF of characters 3-5", "start", "adapt", "whitened softly 0.1"


def by_cell(found: Sequence[dict[str, Any]]) -> dict[_Cell, dict[str, dict[int, dict[str, float]]]]:
    """Return the scores by (encoder, domain), row and seed."""
    cells: dict[_Cell, dict[str, dict[int, dict[str, float]]]] = {}
    for record in found:
        rows = cells.setdefault((record["encoder"], record["domain"]), {})
        rows.setdefault(record["row"], {})[record["seed"]] = record["scores"]
    return cells


def everywhere(cells: dict[str, dict[str, dict[int, dict[str, float]]]], row: str) -> Scores:
    """Return the scores of a row by seed and domain, of the seeds that were run on every domain."""
    found = {domain: rows.get(row, {}) for domain, rows in cells.items()}
    seeds = set.intersection(*map(set, found.values()))
    return {seed: {domain: scores[seed] for domain, scores in found.items()} for seed in sorted(seeds)}


def domain_means(found: Scores) -> dict[int, float]:
    """Return the mean over the domains of each seed."""
    return {seed: statistics.mean(one["mean"] for one in scores.values()) for seed, scores in found.items()}


def adapted_table(study: str = "domains") -> str:
    """Compare what ``adapt`` picks with the start and with TF-IDF, for each encoder and domain of a study."""
    cells = by_cell(records(study))
    rows = []
    for (name, domain), found in cells.items():
        if _START in found and _ADAPTED in found:
            start, adapted = found[_START][0], found[_ADAPTED]
            floor = cells.get(("", domain), {}).get(_FLOOR, {}).get(0)
            means = {seed: one["mean"] for seed, one in adapted.items()}
            rows.append([
                NAMES[name],
                domain,
                "" if floor is None else f"{floor['mean']:.1f}",
                f"{start['mean']:.1f}",
                spread(list(means.values())),
                difference(means, dict.fromkeys(means, start["mean"])),
                f"{start['stsb_test']:.1f}",
                f"{statistics.mean(one['stsb_test'] for one in adapted.values()):.1f}",
                str(len(adapted)),
            ])  # fmt: skip
    titles = ["encoder", "domain", "TF-IDF", "start", "adapted", "gain", "STS-B before", "after", "seeds"]
    return markdown_table(titles, rows, left=(0, 1))


def language_models_table() -> str:
    """Tabulate what language models of others are worth on each thinned domain, beside TF-IDF and a tuned encoder."""
    cells = by_cell(records("domains_thin"))
    domains = sorted({domain for _, domain in cells})
    rows = []
    for name in ("", "minilm", "smollm2-plain", "smollm2", "gemma3-plain", "gemma3"):
        for row in (_FLOOR, _START, _WHITENED, _ADAPTED):
            found = [cells.get((name, domain), {}).get(row, {}).get(0) for domain in domains]
            if any(found):
                means = ["" if one is None else f"{one['mean']:.1f}" for one in found]
                rows.append([NAMES[name], row, *means])
    return markdown_table(["encoder", "row", *domains], rows, left=(0, 1)) if rows else "Not run yet."


def domains_table(encoder: str) -> str:
    """List every row of an encoder with its mean score on each domain, and STS-B test over the domains.

    The floors that need no encoder come first, then the start, then the rows by their mean over the domains.
    """
    cells = by_cell(records("domains"))
    domains = sorted({domain for _, domain in cells})
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for domain in domains:
        for name in ("", encoder):
            for row, seeds in cells.get((name, domain), {}).items():
                found.setdefault(row, {})[domain] = list(seeds.values())
    floors = {row for domain in domains for row in cells.get(("", domain), {})}

    def place(row: str) -> tuple[int, int, float]:
        means = [_mean(scores, "mean") for scores in found[row].values()]
        return (0 if row in floors else 1 if row == _START else 2, -len(means), -statistics.mean(means))

    lines = []
    for row in sorted(found, key=place):
        of_row = found[row]
        all_scores = [one for scores in of_row.values() for one in scores]
        means = [spread([one["mean"] for one in of_row[domain]]) if domain in of_row else "" for domain in domains]
        forgotten = [one["stsb_test"] for one in all_scores if "stsb_test" in one]
        sts = f"{statistics.mean(forgotten):.1f}" if forgotten else ""
        fewest = min(len(scores) for scores in of_row.values())
        lines.append([row, *means, sts, str(fewest)])
    titles = ["row", *domains, "STS-B test", "seeds"]
    return markdown_table(titles, lines)


def _mean(scores: Sequence[dict[str, float]], key: str) -> float:
    return statistics.mean(one[key] for one in scores)
