"""What RepAL takes away from the embeddings, and how often BookCorpus has each token: the papers' small analyses.

    python -m benchmarks.analyses --data DATA_FOLDER [--encoders minilm layers3 own]

Nothing is trained. Behind ``minilm`` (tuned for similarity), ``layers3`` (its first 3 layers, raw) and ``own``
(pre-trained, raw) it puts RepAL's sentence term alone, and both terms: in two passes as in the paper, with the weights
that STS-B dev chooses, and the mean over the sentences of the evaluated set. Then, as in appendix C of RepAL:

* ``word_importance`` (table 5): the importance of seven trivial words, over all pairs of STS-B test.
* ``overlap`` (C.1): the share of trivial words among the five most important ones, in three draws of 300 pairs of STS-B
  test; beside it the mean importance of every word of these pairs.
* ``eigenvalues`` (C.2): Spearman and the largest eigenvalue over lambda_2, on STS12-16 and STS-B test, without the
  sentence term and with its weight.

``bookcorpus-frequencies`` (SLT-FAI, figure 3) needs no encoder: BookCorpus' count of each token by rank, with the
frequency labels. Each is a file in ``benchmarks/results/analyses/``; what is there is not run again.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from benchmarks.figures.lambda_curves import largest_eigenvalues
from benchmarks.figures.redundancy import (
    TRIVIAL_WORDS,
    distinct_words,
    redundancy_overlap_ratio,
    trivial_word_importance,
    word_importance,
)
from benchmarks.names import NAMED, is_there
from benchmarks.provenance import provenance
from benchmarks.records import append, has_run, run_once
from benchmarks.refined_parts import BATCH, DEV, GRIDS, Encoded
from benchmarks.studies import Options, chosen
from benchmarks.variants import texts_of
from st_extras.evaluation import STSDataset, load_sts
from st_extras.modules.lambda_search import pair_sides, spearman_surface
from st_extras.text.frequency import FrequencyTable

TEST = "stsb_test"
SIX = ("sts12", "sts13", "sts14", "sts15", "sts16", TEST)
CURVE = tuple(round(0.1 * i, 1) for i in range(61))  # lambda_2 from 0 to 6
DRAWS, DRAWN = 3, 300
COUNTS = "bookcorpus_bert_base_uncased.tsv.gz"
RANKS = (1, 10, 100, 1_000, 10_000)
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)


def pairs_of(found: STSDataset) -> list[tuple[str, str]]:
    """Return the sentence pairs of a set."""
    return list(zip(found.sentences1, found.sentences2, strict=True))


def importances(encoded: Encoded) -> dict[str, Any]:
    """Table 5: the mean importance of each trivial word of the first sentences, times 100, for each row."""
    test = encoded.sets[TEST]
    pairs = pairs_of(test)
    rows: dict[str, Any] = {}
    for row in GRIDS:
        model: Any = encoded.refined(row, texts_of([test]))
        rows[row] = trivial_word_importance(model, pairs, batch_size=BATCH)
    holding = {word: sum(word in distinct_words(first) for first, _ in pairs) for word in TRIVIAL_WORDS}
    return {"set": TEST, "pairs": len(pairs), "pairs_with_word": holding, "rows": rows}


def overlaps(encoded: Encoded) -> dict[str, Any]:
    """Appendix C.1: for each draw and row, the overlap ratio in % and the mean importance of all words, times 100."""
    test = encoded.sets[TEST]
    pairs = pairs_of(test)
    draws = []
    for seed in range(DRAWS):
        drawn = random.Random(seed).sample(pairs, min(DRAWN, len(pairs)))
        words = [distinct_words(first) for first, _ in drawn]
        found: dict[str, Any] = {"seed": seed}
        for row in GRIDS:
            model: Any = encoded.refined(row, texts_of([test]))
            each = word_importance(model, drawn, words, batch_size=BATCH)
            found[row] = {
                "ratio": 100 * redundancy_overlap_ratio(model, drawn, batch_size=BATCH),
                "importance": 100 * statistics.mean(value for own in each for value in own),
            }
        draws.append(found)
    return {"set": TEST, "pairs": min(DRAWN, len(pairs)), "draws": draws}


def curve(embeddings: Tensor, redundant: Tensor, scores: Sequence[float], lambda_1: float) -> dict[str, Any]:
    """Return Spearman times 100 and the largest eigenvalue over CURVE, where each is best, and Spearman there.

    Args:
        embeddings: f(x) of the first sentences, then of the second ones, (2N, D); their mean is the corpus mean.
        redundant: f(x*), (2N, D).
        scores: N gold scores.
        lambda_1: weight of the sentence term.
    """
    mean = embeddings.mean(dim=0)
    sides = pair_sides(embeddings, redundant)
    spearman = 100 * spearman_surface(*sides, mean.numpy(), scores, [lambda_1], CURVE)[0]
    largest = largest_eigenvalues(embeddings - lambda_1 * redundant, mean, CURVE)
    best, least = int(spearman.argmax()), int(largest.argmin())
    return {
        "best_spearman_at": CURVE[best],
        "best_spearman": round(float(spearman[best]), 2),
        "least_eigenvalue_at": CURVE[least],
        "spearman_at_least_eigenvalue": round(float(spearman[least]), 2),
        "spearman": np.round(spearman, 2).tolist(),
        "largest_eigenvalue": np.round(largest, 6).tolist(),
    }


def eigenvalue_curves(encoded: Encoded) -> dict[str, Any]:
    """Appendix C.2: the curves of each set, without the sentence term and with RepAL's weight of it."""
    chosen = encoded.weights["RepAL"]["lambda_1"]
    curves = []
    for lambda_1 in dict.fromkeys((0.0, chosen)):
        of_sets = {}
        for name in SIX:
            found = encoded.sets[name]
            of_sets[name] = curve(*encoded.parts(texts_of([found])), found.scores, lambda_1)
        curves.append({"lambda_1": lambda_1, "sets": of_sets})
    return {"lambda_2": list(CURVE), "curves": curves}


def token_counts(path: Path) -> dict[str, Any]:
    """SLT-FAI, figure 3: the counts of a frequency table by rank, and what the low-frequency half has of them.

    Args:
        path: ``token<TAB>count`` lines in the order of the ids.
    """
    table = FrequencyTable.from_file(path)
    low = table.labels(0.5) == 1
    ranked = sorted(table.counts.tolist(), reverse=True)
    half = sum(ranked[(len(ranked) + 1) // 2 :])
    never = [token for token, count in zip(table.tokens, table.counts.tolist(), strict=True) if not count]
    return {
        "tokens": len(table),
        "occurrences": table.total,
        "count_at_rank": {str(rank): ranked[rank - 1] for rank in RANKS if rank <= len(ranked)},
        "count_at_share": {str(share): ranked[int(share * len(ranked))] for share in SHARES},
        "never_seen": len(never),
        "never_seen_reserved": sum(str(token)[0] == "[" and str(token)[-1] == "]" for token in never),
        "least_half_percent": 100 * half / table.total,
        "labelled_low": int(low.sum()),
        "labelled_low_percent": 100 * int(table.counts[low].sum()) / table.total,
    }


ANALYSES: dict[str, Callable[[Encoded], dict[str, Any]]] = {
    "word_importance": importances,
    "overlap": overlaps,
    "eigenvalues": eigenvalue_curves,
}


def run(study: dict[str, Any], options: Options) -> None:
    """Run the analyses of each encoder that have no record. Each encodes what the ones before it did not."""
    name, root = study["name"], options.root
    counts = partial(token_counts, options.data / COUNTS)
    run_once(name, "bookcorpus-frequencies", lambda: {"analysis": "frequencies", "file": COUNTS} | counts(), root=root)
    for encoder in filter(is_there, chosen(options.encoders, NAMED, "--encoders")):
        missing = [one for one in ANALYSES if not has_run(name, f"{encoder}-{one}", root=root)]
        encoded = Encoded(encoder, {one: load_sts(one, options.data) for one in (DEV, *SIX)}) if missing else None
        for analysis in missing:
            began = time.perf_counter()
            found = {"encoder": encoder, "analysis": analysis, "weights": encoded.weights} | ANALYSES[analysis](encoded)
            found["seconds"] = round(time.perf_counter() - began, 1)
            append(name, f"{encoder}-{analysis}", {"study": name} | found | provenance(), root=root)
            print(f"{encoder}-{analysis}: {found['seconds']:.0f} s", flush=True)
