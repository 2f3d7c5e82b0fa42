"""Sample sentences for the offline demo: a training file, a small graded set, and some sentences by topic.

The files were written for this package and may be used under its licence. They are large enough to watch an
unsupervised objective change an encoder in a minute. They are not a benchmark: do not report figures measured on them
as one.
"""

import csv
from importlib import resources
from typing import Any

__all__ = ["graded_pairs", "graded_spearman", "labeled_sentences", "sample_sentences"]


def sample_sentences() -> list[str]:
    """Return the training sentences: over 3,000 distinct English sentences of 4 to 30 words, in a fixed order."""
    return _read("sentences.txt").splitlines()


def graded_pairs() -> tuple[list[str], list[str], list[float]]:
    """Return the graded set: 300 first sentences, their 300 second sentences, and 300 similarity scores.

    Scores run from 0.0 (unrelated) to 5.0 (same meaning) in half points and follow the guideline of the STS Benchmark
    (Cer et al., 2017, https://aclanthology.org/S17-2001, Table 1). One author wrote and scored the pairs. No sentence
    of the set is among :func:`sample_sentences`.
    """
    rows = csv.DictReader(_read("graded_pairs.tsv").splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
    pairs = [(row["sentence1"], row["sentence2"], float(row["score"])) for row in rows]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs], [pair[2] for pair in pairs]


def graded_spearman(model: Any) -> float:
    """Return how well an encoder orders the graded set: Spearman correlation x 100."""
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    return float(100 * EmbeddingSimilarityEvaluator(*graded_pairs(), write_csv=False)(model)["spearman_cosine"])


def labeled_sentences() -> tuple[list[str], list[str]]:
    """Return 48 of the training sentences, and their topics: one of six, given by hand."""
    rows = [line.split("\t") for line in _read("topics.tsv").splitlines()]
    return [text for _, text in rows], [topic for topic, _ in rows]


def _read(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
