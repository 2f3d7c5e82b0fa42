"""What RepAL takes away from the embeddings, and how often BookCorpus has each token: the papers' small analyses.

Nothing is trained. After ``minilm`` (tuned for similarity), ``layers3`` (its first 3 layers, raw) and ``own``
(pre-trained, raw) it puts RepAL's sentence term alone, and both terms: in two passes as in the paper, with the weights
that STS-B dev chooses, and the mean over the sentences of the evaluated set. Then, as in appendix C of RepAL:

* ``word_importance`` (table 5): the importance of seven trivial words, over all pairs of STS-B test.
* ``overlap`` (C.1): the share of trivial words among the five most important ones, in three draws of 300 pairs of STS-B
  test.
* ``eigenvalues`` (C.2): Spearman and the largest eigenvalue over lambda_2, on STS12-16 and STS-B test, without the
  sentence term and with its weight.

``bookcorpus-frequencies`` (SLT-FAI, figure 3) needs no encoder: BookCorpus' count of each token by rank, with the
frequency labels.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor

from benchmarks.domains import encoder
from benchmarks.records import run_once
from benchmarks.studies import NAMED, Options, chosen, is_there
from benchmarks.texts import DEV, read_counts
from st_extras.evaluation import STSDataset, load_sts
from st_extras.modules import RepALPostProcessor
from st_extras.modules.lambda_search import (
    LAMBDA_1_GRID,
    LAMBDA_2_GRID,
    check_pairs,
    pair_sides,
    spearman_surface,
)
from st_extras.modules.pipeline import check_finite_embeddings
from st_extras.text.keywords import build_extractor, keyword_spans
from st_extras.text.words import find_words, replace_spans, word_spans

TEST = "stsb_test"
SIX = ("sts12", "sts13", "sts14", "sts15", "sts16", TEST)
CURVE = tuple(round(0.1 * i, 1) for i in range(61))  # lambda_2 from 0 to 6
DRAWS, DRAWN = 3, 300
GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    "plain": {"lambda_1_grid": (0.0,), "lambda_2_grid": (0.0,)},
    "sentence term": {"lambda_1_grid": LAMBDA_1_GRID, "lambda_2_grid": (0.0,)},
    "RepAL": {"lambda_1_grid": LAMBDA_1_GRID, "lambda_2_grid": LAMBDA_2_GRID},
}
"""The weights of both terms that STS-B dev chooses from, by the name of the row."""
COUNTS = "bookcorpus_bert_base_uncased.tsv.gz"
RANKS = (1, 10, 100, 1_000, 10_000)
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
Weights = dict[str, dict[str, Any]]
Array = NDArray[np.float64]
BATCH = 64
TRIVIAL_WORDS = ("the", "a", "to", "in", "some", "with", "and")
"""The words of the paper's table 5."""


def distinct_words(text: str) -> list[str]:
    """Return the words of ``text`` in lower case, in order of first occurrence."""
    return list(dict.fromkeys(text[start:end].lower() for start, end in word_spans(text)))


def without_word(text: str, word: str) -> str:
    """Return x/w: ``text`` with every occurrence of ``word`` deleted."""
    return replace_spans(text, find_words(text, [word]), "")


def word_importance(
    model: SentenceTransformer,
    pairs: Sequence[tuple[str, str]],
    words: Sequence[Sequence[str]],
) -> list[list[float]]:
    """Importance of words for the similarity of a pair (equation 4): sim(x, y) - sim(x/w, y), sim the cosine.

    Args:
        model: plain, or with RepAL attached (then all embeddings are refined).
        pairs: N pairs (x, y).
        words: for each pair, the words w of x to delete (all their occurrences). Each distinct text is encoded once.

    Returns:
        For each pair, the importance of each of its words, in units of the cosine (-2 to 2).

    Raises:
        ValueError: if ``words`` does not match ``pairs``, or an embedding is not finite.
    """
    needed: dict[str, int] = {}

    def index(text: str) -> int:
        return needed.setdefault(text, len(needed))

    comparisons = [
        [(index(x), index(y)), *((index(without_word(x, word)), index(y)) for word in own)]
        for (x, y), own in zip(pairs, words, strict=True)
    ]
    embeddings = model.encode(list(needed), batch_size=BATCH, convert_to_tensor=True, show_progress_bar=False)
    check_finite_embeddings(embeddings, list(needed))
    unit = torch.nn.functional.normalize(embeddings.double(), dim=1)  # (texts, D)
    importance = []
    for rows in comparisons:
        first, second = torch.tensor(rows, device=unit.device).unbind(1)
        cosines = (unit[first] * unit[second]).sum(dim=1)
        importance.append((cosines[0] - cosines[1:]).tolist())
    return importance


def trivial_word_importance(model: SentenceTransformer, pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Mean importance of each of TRIVIAL_WORDS over the pairs whose first sentence contains it, times 100 (table 5).

    The paper's table has a column for the plain model, one for the model with RepAL, and their difference.

    Args:
        model: plain, or with RepAL attached.
        pairs: N pairs (x, y).
    """
    present = [[word for word in distinct_words(x) if word in TRIVIAL_WORDS] for x, _ in pairs]
    values: dict[str, list[float]] = {}
    for own, importance in zip(present, word_importance(model, pairs, present), strict=True):
        for word, value in zip(own, importance, strict=True):
            values.setdefault(word, []).append(value)
    return {word: 100 * sum(values[word]) / len(values[word]) for word in TRIVIAL_WORDS if word in values}


def redundancy_overlap_ratio(model: SentenceTransformer, pairs: Sequence[tuple[str, str]], *, top: int = 5) -> float:
    """Share of trivial words among the most important ones (equation 5): mean of |S(x) and T(x)| / |T(x)|, 0 to 1.

    S(x) holds the words of x that no keyword of jieba covers, T(x) the ``top`` words of highest importance (ties by
    position; all words of a shorter sentence). Pairs whose first sentence has no word are left out.

    Args:
        model: plain, or with RepAL attached.
        pairs: pairs (x, y), one of them with a word in x; the paper draws 300 from STS-B.
        top: size of T.
    """
    extractor = build_extractor("jieba")
    pairs = [pair for pair in pairs if distinct_words(pair[0])]
    words = [distinct_words(x) for x, _ in pairs]
    total = 0.0
    for (x, _), own, importance in zip(pairs, words, word_importance(model, pairs, words), strict=True):
        masked = keyword_spans(x, extractor)
        trivial = {
            x[start:end].lower()
            for start, end in word_spans(x)
            if not any(start < stop and begin < end for begin, stop in masked)
        }
        order = sorted(range(len(own)), key=lambda i: -importance[i])[:top]
        total += sum(own[i] in trivial for i in order) / len(order)
    return total / len(pairs)


def largest_eigenvalues(embeddings: Tensor, mean: Tensor, grid: Sequence[float]) -> Array:
    """Return the largest eigenvalue of the uncentred second moment of v - lambda_2 mean for each lambda_2 of a grid.

    Uncentred on purpose: subtracting a constant vector does not change the covariance. With the moment A of v and their
    own mean s, that of v - lambda_2 m is A - lambda_2 (s m' + m s') + lambda_2^2 m m', so that the N embeddings are
    multiplied once.

    Args:
        embeddings: v, (N, D) in float64.
        mean: m, (D,).
        grid: values of lambda_2.
    """
    moment = embeddings.T @ embeddings / len(embeddings)  # (D, D)
    crossed = torch.outer(embeddings.mean(dim=0), mean)
    crossed, square = crossed + crossed.T, torch.outer(mean, mean)
    found = [torch.linalg.eigvalsh(moment - value * crossed + value**2 * square)[-1] for value in grid]
    return np.asarray(torch.stack(found).numpy())


def eigenvalue_curve(
    model: SentenceTransformer,
    pairs: Sequence[tuple[str, str]],
    scores: Sequence[float],
    lambda_2_grid: Sequence[float],
) -> tuple[Array, Array]:
    """Return the largest eigenvalue and the Spearman correlation at each lambda_2 (the figure of appendix C.2).

    Args:
        model: has a fitted ``RepALPostProcessor``, whose ``lambda_1`` is used and whose weights are not changed.
        pairs: labelled pairs; the eigenvalue is that of the refined embeddings of all their sentences.
        scores: gold scores.
        lambda_2_grid: L weights of the corpus term.

    Raises:
        ValueError: if the scores do not match the pairs or are all equal, or the model has no fitted
            ``RepALPostProcessor``.
    """
    pairs, scores = check_pairs(pairs, scores)
    processor = fitted_processor(model)
    v, redundant, mean = _parts(processor, pairs)
    sides = pair_sides(v, redundant)
    spearman = spearman_surface(*sides, mean.numpy(), scores, [processor.lambda_1], lambda_2_grid)[0]
    return largest_eigenvalues(v - processor.lambda_1 * redundant, mean, lambda_2_grid), spearman


def fitted_processor(model: SentenceTransformer) -> RepALPostProcessor:
    """Return the RepAL module of a model.

    Raises:
        ValueError: if there is none, or it is not fitted.
    """
    processor = next((module for module in model if isinstance(module, RepALPostProcessor)), None)
    if processor is None or not processor.corpus_size:
        raise ValueError("model must have a fitted RepALPostProcessor: RepALPostProcessor.attach(..., corpus=...).")
    return processor


def _parts(processor: RepALPostProcessor, pairs: Sequence[tuple[str, str]]) -> tuple[Tensor, Tensor, Tensor]:
    """Return f(x) and f(x*) of all first, then all second sentences (2N, D), and the corpus mean (D,)."""
    v, redundant = processor.parts([x for x, _ in pairs] + [y for _, y in pairs], batch_size=BATCH)
    return v.double(), redundant.double(), processor.corpus_mean.double().cpu()


def pairs_of(found: STSDataset) -> list[tuple[str, str]]:
    """Return the sentence pairs of a set."""
    return list(zip(found.sentences1, found.sentences2, strict=True))


def weights_of(model: SentenceTransformer, dev: STSDataset) -> Weights:
    """Return the weights that STS-B dev chooses for each row, and the Spearman correlation there, times 100."""
    rows = {}
    for name, grids in GRIDS.items():
        processor = fitted_processor(refined(model, 0, 0, dev))
        found = processor.tune(pairs_of(dev), dev.scores, **grids)  # type: ignore[arg-type]
        weights = {"lambda_1": found.lambda_1, "lambda_2": found.lambda_2, "at_edge": found.at_edge}
        rows[name] = weights | {DEV: round(100 * found.spearman, 2)}
    return rows


def refined(model: SentenceTransformer, lambda_1: float, lambda_2: float, found: STSDataset) -> SentenceTransformer:
    """Return a model with RepAL, and the mean over the sentences of a set."""
    corpus = [*found.sentences1, *found.sentences2]
    return RepALPostProcessor.attach(model, lambda_1=lambda_1, lambda_2=lambda_2, corpus=corpus)


def rows_of(model: SentenceTransformer, weights: Weights, found: STSDataset) -> dict[str, SentenceTransformer]:
    """Return the model of each row, with the mean over the sentences of a set."""
    return {name: refined(model, of["lambda_1"], of["lambda_2"], found) for name, of in weights.items()}


def importances(model: SentenceTransformer, weights: Weights, data: Path) -> dict[str, Any]:
    """Table 5: the mean importance of each trivial word of the first sentences, times 100, for each row."""
    test = load_sts(TEST, data)
    pairs = pairs_of(test)
    rows = {name: trivial_word_importance(row, pairs) for name, row in rows_of(model, weights, test).items()}
    holding = {word: sum(word in distinct_words(first) for first, _ in pairs) for word in TRIVIAL_WORDS}
    return {"set": TEST, "pairs": len(pairs), "pairs_with_word": holding, "rows": rows}


def overlaps(model: SentenceTransformer, weights: Weights, data: Path) -> dict[str, Any]:
    """Appendix C.1: the overlap ratio in %, for each draw and row."""
    test = load_sts(TEST, data)
    pairs = pairs_of(test)
    rows = rows_of(model, weights, test)
    draws: list[dict[str, Any]] = []
    for seed in range(DRAWS):
        drawn = random.Random(seed).sample(pairs, min(DRAWN, len(pairs)))
        ratios = {name: {"ratio": 100 * redundancy_overlap_ratio(row, drawn)} for name, row in rows.items()}
        draws.append({"seed": seed} | ratios)
    return {"set": TEST, "pairs": min(DRAWN, len(pairs)), "draws": draws}


def curve(model: SentenceTransformer, lambda_1: float, found: STSDataset) -> dict[str, Any]:
    """Return Spearman times 100 and the largest eigenvalue over CURVE, where each is best, and Spearman there."""
    attached = refined(model, lambda_1, 0, found)
    largest, spearman = eigenvalue_curve(attached, pairs_of(found), found.scores, CURVE)
    spearman = 100 * spearman
    best, least = int(spearman.argmax()), int(largest.argmin())
    return {
        "best_spearman_at": CURVE[best],
        "best_spearman": round(float(spearman[best]), 2),
        "least_eigenvalue_at": CURVE[least],
        "spearman_at_least_eigenvalue": round(float(spearman[least]), 2),
        "spearman": np.round(spearman, 2).tolist(),
        "largest_eigenvalue": np.round(largest, 6).tolist(),
    }


def eigenvalue_curves(model: SentenceTransformer, weights: Weights, data: Path) -> dict[str, Any]:
    """Appendix C.2: the curves of each set, without the sentence term and with RepAL's weight of it."""
    curves = []
    for lambda_1 in dict.fromkeys((0.0, weights["RepAL"]["lambda_1"])):
        sets = {name: curve(model, lambda_1, load_sts(name, data)) for name in SIX}
        curves.append({"lambda_1": lambda_1, "sets": sets})
    return {"lambda_2": list(CURVE), "curves": curves}


def token_counts(path: Path) -> dict[str, Any]:
    """SLT-FAI, figure 3: the counts of a frequency table by rank, and what the low-frequency half has of them.

    Args:
        path: ``token<TAB>count`` lines in the order of the ids.
    """
    table = read_counts(path)
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


ANALYSES: dict[str, Callable[[SentenceTransformer, Weights, Path], dict[str, Any]]] = {
    "word_importance": importances,
    "overlap": overlaps,
    "eigenvalues": eigenvalue_curves,
}


def analysed(name: str, analysis: str, data: Path) -> dict[str, Any]:
    """Return the record of an analysis of an encoder."""
    model = encoder(name)
    weights = weights_of(model, load_sts(DEV, data))
    of = {"encoder": name, "analysis": analysis, "weights": weights}
    return of | ANALYSES[analysis](model, weights, data)


def run(study: dict[str, Any], options: Options) -> None:
    """Run the analyses of each encoder that have no record."""
    name, root = study["name"], options.root
    counts = partial(token_counts, options.data / COUNTS)
    run_once(name, "bookcorpus-frequencies", lambda: {"analysis": "frequencies", "file": COUNTS} | counts(), root=root)
    for one in filter(is_there, chosen(options.encoders, NAMED, "--encoders")):
        for analysis in ANALYSES:
            if run_once(name, f"{one}-{analysis}", partial(analysed, one, analysis, options.data), root=root):
                print(f"{one}-{analysis}", flush=True)
