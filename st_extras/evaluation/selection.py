"""Choose a checkpoint without labels.

Nothing about sentence pairs is known, only sentences. But it is known what must not change the meaning of a sentence
much, such as leaving out some of its words, and that two sentences taken at random do not mean the same. A good encoder
finds a sentence again by what is left of it, among others that share words with it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor

from st_extras.checks import check_count, check_seed
from st_extras.encoders.forward import without_dropout
from st_extras.evaluation.reporting import ReportingEvaluator, check_embeddings
from st_extras.functional import unit_scores, weighted_info_nce
from st_extras.text.corpus import distinct_sample, is_blank, iterate_sentences

SIGNAL = "contrast_shortening"
"""The metric, chosen among those that ``benchmarks.selection`` compares."""
LARGEST_POOL = 20_000
"""Sentences searched for neighbours."""
_MINIMUM = 10  # distinct sentences
_SAME = 0.8  # TF-IDF cosine above which two sentences count as the same
_FEW = 4  # a sentence of fewer words (a script without spaces, a single word) is cut into letters


class UnlabeledSelectionEvaluator(ReportingEvaluator):
    """Scores a checkpoint on unlabeled sentences alone, to choose among the checkpoints of one training.

    It chooses ``size`` of the given sentences: half at random, each joined by the sentence that shares the most words
    with it, so that every sentence has another that is easily confused with it. Each is encoded unchanged and with 10
    to 90 % of its words left out, without dropout. The metric, ``contrast_shortening``, is minus the InfoNCE loss of
    the shortened sentences against all unchanged ones, at most 0. ``seed`` fixes both, so that every checkpoint is
    scored on the same inputs. One call encodes 2 * ``size`` short texts, and changes neither the weights nor the mode
    of the model.

    Compare only checkpoints of one encoder on one evaluator, not different encoders or corpora.

    Args:
        sentences: unlabeled sentences of the domain (or a data set with one text column), at least 10 distinct ones;
            thousands are better. The training sentences will do. Anything but a list or tuple is read once, and no more
            than 20,000 distinct sentences of it, drawn at random, are kept in memory.
        size: number of sentences chosen, 10 to 20,000; each is encoded twice.
        seed: seed of the choice of sentences and of the words left out.
        **options: ``name`` (prefix of the metric and part of the CSV file's name), ``batch_size`` (sentences per
            forward pass), ``show_progress_bar`` (while encoding) and ``write_csv`` (whether to append a row to
            ``unlabeled_selection[_name]_results.csv`` in the output path).

    Raises:
        ValueError: if there are too few distinct sentences, or a setting is not allowed.

    Example:
        >>> from st_extras.evaluation import UnlabeledSelectionEvaluator
        >>> sentences = [f"sentence number {i} of a small corpus" for i in range(20)]
        >>> evaluator = UnlabeledSelectionEvaluator(sentences, name="domain")
        >>> evaluator.primary_metric  # metric_for_best_model="eval_domain_contrast_shortening"
        'domain_contrast_shortening'
    """

    def __init__(self, sentences: Iterable[str], *, size: int = 500, seed: int = 42, **options: Any) -> None:
        super().__init__("unlabeled_selection", SIGNAL, **options)
        size = check_count("size", size, _MINIMUM, LARGEST_POOL)
        self.seed = check_seed("seed", seed)
        distinct = _distinct(sentences, self.seed)
        if len(distinct) < _MINIMUM:
            raise ValueError(f"sentences must hold at least {_MINIMUM} distinct, non-empty ones, got {len(distinct)}.")
        generator = random.Random(self.seed)
        self.sentences = choose_confusable(distinct, size, generator)
        self.shortened = shorten(self.sentences, generator)

    def measure(self, model: SentenceTransformer) -> dict[str, float]:
        """Return the metric by its name."""
        with without_dropout(model):
            clean, shortened = (self.encode(model, texts).cpu() for texts in (self.sentences, self.shortened))
        return {SIGNAL: contrast(clean, shortened)}

    def get_config_dict(self) -> dict[str, Any]:
        """Settings in the model card."""
        return {"size": len(self.sentences), "seed": self.seed}


def contrast(clean: Tensor, perturbed: Tensor, temperature: float = 0.05) -> float:
    """Minus the InfoNCE loss of (N, D) embeddings of perturbed sentences against those of all N; at most 0."""
    z, p = check_embeddings("clean", clean, at_least=2), check_embeddings("perturbed", perturbed)
    return -float(weighted_info_nce(unit_scores(p, z, temperature)))


# --- the sentences, and what is left of them ---


def _distinct(sentences: Any, seed: int) -> list[str]:
    """Return the distinct sentences, without empty ones; of a stream, a sample that fits in memory.

    A list is in memory anyhow: all of it is returned. A stream of no more than ``LARGEST_POOL`` distinct sentences
    gives what a list of them gives.
    """
    texts = (text.strip() for text in iterate_sentences(sentences))
    texts = (text for text in texts if not is_blank(text))
    if isinstance(sentences, list | tuple):
        return list(dict.fromkeys(texts))
    return distinct_sample(texts, LARGEST_POOL, seed)


def choose_confusable(sentences: Sequence[str], size: int, generator: random.Random) -> list[str]:
    """Choose at most ``size`` of distinct sentences: half at random, and for each the one nearest to it in words."""
    pool = generator.sample(sentences, min(len(sentences), LARGEST_POOL))
    vectors = TfidfVectorizer(analyzer=lambda text: words_or_letters(text.lower())).fit_transform(pool)
    return [pool[index] for index in _seeds_and_neighbours(vectors, min(size, len(pool)))]


def _seeds_and_neighbours(vectors: Any, size: int) -> list[int]:
    """Return the first size / 2 rows of the pool (its order is random), and the nearest unused row of each.

    A row with nearly all words in common is skipped: it is the same sentence, not one that is easily confused with it.
    """
    total = vectors.shape[0]
    if size == total:
        return list(range(total))
    seeds = list(range(size - size // 2))
    chosen = dict.fromkeys(seeds)
    scores = (vectors[seeds] @ vectors.T).toarray()  # (size / 2, pool)
    scores[scores > _SAME] = -1.0
    for row in seeds[: size // 2]:
        nearest_first = np.argsort(-scores[row], kind="stable").tolist()
        chosen[next(other for other in nearest_first if other not in chosen)] = None
    return list(chosen)


def shorten(sentences: Sequence[str], generator: random.Random) -> list[str]:
    """Return what is left of each sentence without 10 to 90 % of its words, levels that are spread evenly over them."""
    shares = [0.1 + 0.8 * (place + 0.5) / len(sentences) for place in range(len(sentences))]
    generator.shuffle(shares)
    shortened = []
    for sentence, share in zip(sentences, shares, strict=True):
        units = words_or_letters(sentence)
        glue = " " if units == sentence.split() else ""
        shortened.append(glue.join(units[place] for place in kept_positions(len(units), share, generator)))
    return shortened


def words_or_letters(sentence: str) -> list[str]:
    """Split the sentence at spaces, or into characters if that gives fewer than four words."""
    words = sentence.split()
    return words if len(words) >= _FEW else list(sentence.strip())


def kept_positions(count: int, share: float, generator: random.Random) -> list[int]:
    """Draw a ``share`` of the positions 0..count-1 (rounded; at least one, not all of them), in order."""
    keep = min(max(1, round(share * count)), max(1, count - 1))
    return sorted(generator.sample(range(count), keep))
