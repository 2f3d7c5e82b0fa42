"""Label-free score: are embeddings better than those of the base model, on texts without labels?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from st_extras.checks import check_count, check_seed, check_strings
from st_extras.evaluation.label_metrics import average_precision
from st_extras.evaluation.reporting import bootstrap_interval, check_embeddings
from st_extras.text.term_weights import character_tfidf

FEWEST_COMPARED = 100
"""Fewer texts, of each fold, are too few to compare on."""
MOST_COMPARED = 2000
"""A comparison holds the similarities of all pairs of texts: for 2,000, 32 MB each of embeddings, 16 MB of grams."""
LEAST_CONFIRMED = 0.2
"""The share of the texts, of each fold, that must have a confirmed neighbour for the score to be used."""
_NEAREST = 10  # neighbours whose own are compared, for coherence
_CONFIRMED = 20  # nearest ones of both views, of which those in both are confirmed
_OVERLAPPING = 5  # texts that share most


@dataclass(frozen=True)
class LabelFreeScore:
    """How much better embeddings are than those of the base model, by :class:`LabelFreeComparison`.

    Attributes:
        gain: the score, (confirmed + word_overlap) / 2 + coherence; above 0 is better. No unit: it orders changes of
            one encoder on one set of texts, and is not a number of points.
        low: lower end of the 95 % interval of ``gain`` over the texts (bootstrap).
        high: its upper end.
        confirmed: change of the mean average precision, in [-1, 1], with which a text finds its confirmed neighbours.
        word_overlap: the same for the 5 texts that share most of its character 3- to 5-grams, by TF-IDF.
        coherence: change of the mean share of nearest neighbours that a text and its nearest neighbours have in common.
    """

    gain: float
    low: float
    high: float
    confirmed: float
    word_overlap: float
    coherence: float


class LabelFreeComparison:
    """Compares embeddings with those of the base model for the same texts, without labels.

    Three measures are taken of each text, and the base model's are subtracted:

    * *confirmed*: how early it finds its confirmed neighbours, those that are among its 20 nearest both by the base
      model and by TF-IDF of character 3- to 5-grams, two views that err in different ways (average precision);
    * *word overlap*: how early it finds the 5 texts that are nearest by that TF-IDF (average precision);
    * *coherence*: the share of its 10 nearest neighbours that each of these has among its own, which is high in a space
      with clear groups.

    No measure is enough alone: fitting noise raises coherence and lowers the others, losing meaning can raise word
    overlap alone. Use texts that the change was not fitted on (held-out texts). Labels of three sets of short texts
    on one topic each, with two encoders, showed what to measure; docs/measured.md shows how often it was wrong.

    Args:
        texts: N different texts, 100 to 2,000; of several folds, 100 for each.
        base: (N, D) their embeddings by the base model; everything is compared on the CPU, in float64.
        folds: of how many parts, one after the other as by ``torch.tensor_split``, each is compared within itself: for
            cross-fitting, where the change of each part was fitted without its texts, so that embeddings of two parts
            do not compare. The score and its interval are those of all texts.
        seed: of the bootstrap.

    Attributes:
        confirmed_share: share of the texts, 0 to 1, that have a confirmed neighbour; of several folds, the lowest.

    Raises:
        ValueError: if the texts are too few, too many or not different, an embedding is zero, not finite or quantised,
            the numbers of texts and embeddings differ, or ``folds`` is not a whole number from 1 to 20.

    Example:
        >>> import torch
        >>> from st_extras.evaluation import LabelFreeComparison
        >>> from st_extras.samples import sample_sentences
        >>> texts = list(dict.fromkeys(sample_sentences()))[:200]
        >>> base = torch.randn(200, 16, generator=torch.Generator().manual_seed(0))
        >>> LabelFreeComparison(texts, base).compare(2 * base).gain
        0.0
    """

    def __init__(self, texts: Sequence[str], base: Tensor, *, folds: int = 1, seed: int = 0) -> None:
        self.texts = check_strings("texts", texts)
        self.seed = check_seed("seed", seed)
        folds = check_count("folds", folds, 1, MOST_COMPARED // FEWEST_COMPARED)
        check_count("the number of texts", len(self.texts), folds * FEWEST_COMPARED, MOST_COMPARED)
        if len(set(self.texts)) < len(self.texts):
            raise ValueError("texts must be different from each other, got some twice: leave out the repeated ones.")
        unit = check_embeddings("base", base)
        if len(unit) != len(self.texts):
            raise ValueError(f"base must be one for each of the {len(self.texts)} texts, got {len(unit)}.")
        parts, remaining = unit.tensor_split(folds), iter(self.texts)
        self._relevant = [_relevant_texts(list(islice(remaining, len(part))), part) for part in parts]
        self.confirmed_share = min(float(confirmed.any(dim=1).double().mean()) for confirmed, _ in self._relevant)
        self._base = self._measures_of_all(unit)

    def compare(self, embeddings: Tensor) -> LabelFreeScore:
        """Return the score of (N, D') embeddings of the same texts.

        Args:
            embeddings: after the change, in the same order; D' may differ.

        Raises:
            ValueError: if an embedding is zero, not finite or quantised, or their number differs.
        """
        unit = check_embeddings("embeddings", embeddings)
        if len(unit) != len(self.texts):
            raise ValueError(f"embeddings must be one for each of the {len(self.texts)} texts, got {len(unit)}.")
        changes = self._measures_of_all(unit) - self._base  # (N, 3)
        per_text = (changes @ changes.new_tensor([0.5, 0.5, 1.0])).numpy()
        low, high = bootstrap_interval(per_text, seed=self.seed)
        confirmed, word_overlap, coherence = changes.mean(dim=0).tolist()
        return LabelFreeScore(float(per_text.mean()), low, high, confirmed, word_overlap, coherence)

    def _measures_of_all(self, unit: Tensor) -> Tensor:
        """Return (N, 3): confirmed, word overlap and coherence of each text within its fold, higher is better."""
        parts = unit.tensor_split(len(self._relevant))
        return torch.cat([_measures(*of_fold) for of_fold in zip(parts, self._relevant, strict=True)])


def _relevant_texts(texts: Sequence[str], unit: Tensor) -> tuple[Tensor, Tensor]:
    """Return (n, n) bool twice: which texts are a text's confirmed neighbours, and which share most of its grams."""
    grams = _gram_similarities(texts)
    shared = grams > 0
    confirmed = _nearest(grams, _CONFIRMED) & shared & _nearest(_cosines(unit), _CONFIRMED)
    return confirmed, _nearest(grams, _OVERLAPPING) & shared


def _measures(unit: Tensor, relevant: tuple[Tensor, Tensor]) -> Tensor:
    """Return (n, 3) measures of n texts by their unit rows (n, D) and what :func:`_relevant_texts` returned."""
    cosines = _cosines(unit)
    order = cosines.argsort(dim=1, descending=True, stable=True)[:, :-1]  # without the text itself
    hits = [one.gather(1, order) for one in relevant]  # (n, n - 1) each
    precisions = [average_precision(one, one.sum(dim=1).clamp_min(1)) for one in hits]
    near = torch.zeros_like(cosines).scatter_(1, order[:, :_NEAREST], 1.0)
    common = near @ near.T / _NEAREST  # (n, n)
    return torch.stack([*precisions, (common * near).sum(dim=1) / _NEAREST], dim=1).double()


def _cosines(unit: Tensor) -> Tensor:
    """Return cosines (n, n) of unit rows in float64, rounded so that equal ones are tied; -inf of a row with itself."""
    return (unit @ unit.T).round(decimals=12).fill_diagonal_(-torch.inf)


def _nearest(similarities: Tensor, count: int) -> Tensor:
    """Return (N, N), whether a column is among the ``count`` nearest of a row."""
    return torch.zeros_like(similarities, dtype=torch.bool).scatter_(1, similarities.topk(count).indices, True)


def _gram_similarities(texts: Sequence[str]) -> Tensor:
    """Return cosines (N, N) of the texts by TF-IDF of character 3- to 5-grams.

    -inf of a text with itself, 0 if two share nothing.
    """
    rows = character_tfidf(texts)
    return torch.from_numpy((rows @ rows.T).toarray()).fill_diagonal_(-torch.inf)
