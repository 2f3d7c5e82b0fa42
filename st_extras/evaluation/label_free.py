"""Did a change help, on text without labels? A judge that compares an encoder's embeddings before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from st_extras.checks import check_count, check_seed, check_strings
from st_extras.evaluation.reporting import bootstrap_interval, check_embeddings
from st_extras.text.term_weights import character_tfidf

FEWEST = 100
"""Fewer texts cannot be judged."""
MOST = 2000
"""The judge holds the similarities of all pairs of its texts: 16 MB each for 2,000."""
LEAST_CONFIRMED = 0.2
"""The share of the texts that must have neighbours which words and encoder agree on."""
_NEAREST, _CONFIRMED, _LEXICAL = 10, 20, 5


@dataclass(frozen=True)
class Verdict:
    """How much better than the start a change is, by the judge.

    Attributes:
        gain: (confirmed + lexical) / 2 + coherence; above 0 is better.
        low: lower end of the 95 % interval of ``gain``, over which texts were drawn (bootstrap).
        high: its upper end.
        confirmed: change of the average precision with which a text finds its confirmed neighbours.
        lexical: change of the average precision with which it finds the 5 texts that share most of its words.
        coherence: change of the share of neighbours that neighbours have in common.
    """

    gain: float
    low: float
    high: float
    confirmed: float
    lexical: float
    coherence: float


class LabelFreeComparison:
    """Compares embeddings of the same texts before and after a change, without labels.

    Three things are measured for each text and compared with the start's: how early it finds its
    *confirmed* neighbours (among the 20 nearest both by the start and by TF-IDF of character 3- to 5-grams: two views
    that err in different ways); how early it finds the texts that share most words with it; and how many of its 10
    nearest neighbours its neighbours have too (the shape of a space with clear groups). None of the three is enough: a
    step that fits noise raises the last and lowers the first, one that ruins meaning raises the second alone.

    Judge texts that the change was not fitted on. It was chosen on three data sets and two encoders, by the labels of
    short texts about one topic each: see docs/adapting.md for how often it was wrong.

    Args:
        texts: at least 100 different ones, at most 2,000.
        start: (N, D) their embeddings by the unchanged encoder.
        seed: of the bootstrap.

    Attributes:
        confirmed_share: share of the texts that have a confirmed neighbour.

    Raises:
        ValueError: if the texts are too few, too many or not different, an embedding is zero or not finite, or the
            numbers of texts and embeddings differ.

    Example:
        >>> import torch
        >>> from st_extras.evaluation import LabelFreeComparison
        >>> from st_extras.samples import sample_sentences
        >>> texts = list(dict.fromkeys(sample_sentences()))[:200]
        >>> start = torch.randn(200, 16, generator=torch.Generator().manual_seed(0))
        >>> LabelFreeComparison(texts, start).compare(2 * start).gain
        0.0
    """

    def __init__(self, texts: Sequence[str], start: Tensor, *, seed: int = 0) -> None:
        self.texts = check_strings("texts", texts)
        self.seed = check_seed("seed", seed)
        check_count("the number of texts", len(self.texts), FEWEST, MOST)
        if len(set(self.texts)) < len(self.texts):
            raise ValueError("texts must be different from each other, got some twice: leave out the repeated ones.")
        unit = self._checked("start", start)
        words = _word_similarities(self.texts)
        shared = words > 0
        lexical = _nearest(words, _LEXICAL) & shared
        confirmed = _nearest(words, _CONFIRMED) & shared & _nearest(_cosines(unit), _CONFIRMED)
        self._relevant = (confirmed, lexical)
        self.confirmed_share = float(confirmed.any(dim=1).double().mean())
        self._start = self._measures(unit)

    def compare(self, embeddings: Tensor, resamples: int = 1000) -> Verdict:
        """Compare (N, D') embeddings of the same texts with the start's.

        Args:
            embeddings: after the change, in the same order; D' may differ.
            resamples: of the bootstrap, 100 to 100,000.

        Raises:
            ValueError: if an embedding is zero or not finite, or their number differs.
        """
        check_count("resamples", resamples, 100, 100_000)
        changes = self._measures(self._checked("embeddings", embeddings)) - self._start  # (N, 3)
        per_text = (changes @ torch.tensor([0.5, 0.5, 1.0], dtype=changes.dtype)).numpy()
        low, high = bootstrap_interval(per_text, resamples, self.seed)
        confirmed, lexical, coherence = changes.mean(dim=0).tolist()
        return Verdict(float(per_text.mean()), low, high, confirmed, lexical, coherence)

    def _checked(self, name: str, embeddings: Tensor) -> Tensor:
        unit = check_embeddings(name, embeddings).cpu()
        if len(unit) != len(self.texts):
            raise ValueError(f"{name} must be one for each of the {len(self.texts)} texts, got {len(unit)}.")
        return unit

    def _measures(self, unit: Tensor) -> Tensor:
        """Return (N, 3) measures of each text, higher is better."""
        cosines = _cosines(unit)
        order = cosines.argsort(dim=1, descending=True, stable=True)[:, :-1]  # without the text itself
        found = [_average_precision(relevant, order) for relevant in self._relevant]
        near = torch.zeros_like(cosines).scatter_(1, order[:, :_NEAREST], 1.0)
        common = near @ near.T / _NEAREST  # (N, N)
        return torch.stack([*found, (common * near).sum(dim=1) / _NEAREST], dim=1).double()


def _cosines(unit: Tensor) -> Tensor:
    return (unit @ unit.T).fill_diagonal_(-torch.inf)


def _nearest(similarities: Tensor, count: int) -> Tensor:
    """Return (N, N), whether a column is among the ``count`` nearest of a row."""
    return torch.zeros_like(similarities, dtype=torch.bool).scatter_(1, similarities.topk(count).indices, True)


def _average_precision(relevant: Tensor, order: Tensor) -> Tensor:
    """Return the average precision of each row's order, (N,); 0 where nothing is relevant."""
    hits = relevant.gather(1, order).float()
    precision = hits.cumsum(dim=1) / torch.arange(1, hits.size(1) + 1)
    return (precision * hits).sum(dim=1) / hits.sum(dim=1).clamp_min(1)


def _word_similarities(texts: Sequence[str]) -> Tensor:
    """Return TF-IDF cosines (N, N) of the texts; -inf of a text with itself, 0 if two share nothing."""
    rows = character_tfidf(texts)
    return torch.from_numpy((rows @ rows.T).toarray()).fill_diagonal_(-torch.inf)
