"""The shape of an embedding space: alignment, uniformity and isotropy.

Wang and Isola, "Understanding Contrastive Representation Learning through Alignment and Uniformity on the
Hypersphere", ICML 2020; used by AdCSE (eq. 10-11, fig. 3), PaSeR (table 10, appendix D) and SimCSE.

Every function takes plain embeddings (N, D) and scales the rows to length one itself. ``GeometryEvaluator`` computes
them for a model, during training or after it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.checks import check_interval, check_text_pairs
from st_extras.evaluation.reporting import ReportingEvaluator, check_embeddings, check_sentences
from st_extras.functional import row_blocks

_GROUPS = 20
"""Groups of texts, each left out in turn for the interval of cosines of unrelated pairs."""


def alignment(x: Tensor, y: Tensor) -> float:
    """Alignment, mean_i ||x_i - y_i||^2 over positive pairs: 0 (equal) to 4 (opposite); lower is better.

    Args:
        x: (N, D), one side of the pairs.
        y: (N, D), the other side.

    Raises:
        ValueError: if the shapes differ, or a row is zero or not finite.
    """
    a, b = check_embeddings("x", x), check_embeddings("y", y)
    if a.shape != b.shape:
        raise ValueError(f"x and y must have the same shape, got {tuple(a.shape)} and {tuple(b.shape)}.")
    return float((a - b).square().sum(dim=1).mean())


def uniformity(x: Tensor) -> float:
    """Uniformity, log mean_{i<j} exp(-2 ||x_i - x_j||^2): 0 (collapsed) to about -4; lower is better.

    For points spread evenly over a sphere of many dimensions it tends to -4. Scores are computed in blocks of rows.

    Args:
        x: (N, D), N >= 2.

    Raises:
        ValueError: if there are fewer than two rows, or a row is zero or not finite.
    """
    u = check_embeddings("x", x, at_least=2)
    total = 0.0
    for block in row_blocks(len(u), len(u)):
        squared = (2 - 2 * u[block] @ u.T).clamp_min(0.0)  # (B, N)
        potential = torch.exp(-2 * squared)
        potential[:, block].fill_diagonal_(0.0)
        total += float(potential.sum(dim=1).sum())
    return math.log(total / (len(u) * (len(u) - 1)))


def mean_cosine(x: Tensor) -> float:
    """Mean cosine over ALL distinct pairs, in closed form: (||sum_i x_i||^2 - N) / (N (N - 1)); 1 is collapsed.

    It is the expected cosine of two random sentences, without drawing any.

    Args:
        x: (N, D), N >= 2.

    Raises:
        ValueError: if there are fewer than two rows, or a row is zero or not finite.
    """
    u = check_embeddings("x", x, at_least=2)
    count = len(u)
    return float((u.sum(dim=0).square().sum() - u.square().sum()) / (count * (count - 1)))


def unrelated_cosines(
    x: Tensor, *, queries: Tensor | None = None, related: Tensor | None = None
) -> dict[int, tuple[float, float, float]]:
    """Return the cosines that one in 100, 1,000, 10,000 and 100,000 unrelated pairs exceeds, with 95 % intervals.

    Nearly all pairs of texts drawn at random are unrelated: the numbers are thresholds that keep them out. The
    interval is a jackknife's over 20 groups of texts, as pairs that share a text are not independent.

    Args:
        x: (N, D) embeddings of different texts in random order, N >= 40; all pairs are held.
        queries: (Q, D), Q >= 40; each is compared with all of ``x``. None: ``x`` is compared with itself.
        related: (Q, N) bool, pairs that are left out, such as a query and the document that it was made from.

    Returns:
        n -> cosine, lower and upper end, for each n of 100, 1,000, 10,000 and 100,000 of which there are ten pairs.

    Raises:
        ValueError: if there are too few rows, or a row is zero or not finite.
    """
    cosines, rows, columns = sorted_pairs(x, queries, related, at_least=2 * _GROUPS)
    numbers = [n for n in (100, 1_000, 10_000, 100_000) if len(cosines) >= 10 * n]

    def marks(values: Tensor) -> Tensor:
        """Return the cosine for each n, of the pairs that are left."""
        return torch.stack([values[len(values) // n - 1] for n in numbers])

    rows, columns = rows % _GROUPS, columns % _GROUPS
    values = marks(cosines)
    others = torch.stack([marks(cosines[(rows != group) & (columns != group)]) for group in range(_GROUPS)])
    errors = (_GROUPS - 1) ** 0.5 * others.std(dim=0, correction=0)
    ends = (values.tolist(), *((values + side * errors).clamp(-1, 1).tolist() for side in (-1.96, 1.96)))
    return dict(zip(numbers, zip(*ends, strict=True), strict=True))


def sorted_pairs(
    x: Tensor, queries: Tensor | None = None, related: Tensor | None = None, at_least: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the cosines (P,) of all pairs, each once, highest first, and the numbers of their two texts, (P,) each."""
    u = check_embeddings("x", x, at_least)
    if queries is None:
        cosines = u @ u.T
        rows, columns = torch.tril_indices(len(u), len(u), -1, device=u.device)
    else:
        cosines = check_embeddings("queries", queries, at_least) @ u.T
        kept = torch.ones_like(cosines, dtype=torch.bool) if related is None else ~related.to(u.device)
        rows, columns = kept.nonzero(as_tuple=True)
    cosines, order = cosines[rows, columns].sort(descending=True)
    return cosines, rows[order], columns[order]


@dataclass(frozen=True)
class MovedThreshold:
    """Where a threshold on cosines moves if as many pairs are to lie above it as before.

    Attributes:
        before: the threshold with the earlier embeddings.
        after: that with the later ones, with as few decimals, from two, as change the number of pairs above it by at
            most 1 %; None if no pair, or each, lies above ``before``.
        above: number of pairs above ``before``.
        pairs: number of pairs that were compared.
    """

    before: float
    after: float | None
    above: int
    pairs: int


def moved_threshold(
    threshold: float,
    before: Tensor,
    after: Tensor,
    *,
    queries: tuple[Tensor, Tensor] | None = None,
    related: Tensor | None = None,
) -> MovedThreshold:
    """Return the cosine that as many pairs exceed with later embeddings as exceed ``threshold`` with earlier ones.

    Args:
        threshold: a cosine, -1 to 1.
        before: (N, D) embeddings of different texts.
        after: (N, D') of the same texts.
        queries: (Q, D) and (Q, D'); each is compared with all texts. None: the texts are compared with each other.
        related: (Q, N) bool, pairs that are left out.

    Raises:
        ValueError: if ``threshold`` is not between -1 and 1, or a row is zero or not finite.
    """
    check_interval("threshold", threshold, -1, 1)
    of_queries = queries or (None, None)
    old, new = (sorted_pairs(x, one, related)[0] for x, one in zip((before, after), of_queries, strict=True))
    above = int((old > threshold).sum())
    if not 0 < above < len(new):
        return MovedThreshold(threshold, None, above, len(new))
    middle = float(new[above - 1 : above + 1].mean())
    candidates = [round(middle, decimals) for decimals in range(2, 8)]
    fits = [one for one in candidates if abs(int((new > one).sum()) - above) <= above // 100]
    return MovedThreshold(threshold, fits[0] if fits else middle, above, len(new))


def partition_ratio(x: Tensor) -> float:
    """Partition ratio, min_c Z(c) / max_c Z(c) with Z(c) = sum_i exp(c . x_i); 1 is isotropic.

    Mu and Viswanath, ICLR 2018. c runs over the eigenvectors of X^T X with both signs, because an eigenvector's sign is
    arbitrary. For unit vectors the ratio is at least exp(-2).

    Args:
        x: (N, D).

    Raises:
        ValueError: if a row is zero or not finite.
    """
    u = check_embeddings("x", x)
    _, directions = torch.linalg.eigh(u.T @ u)
    projections = u @ directions  # (N, D)
    z = torch.cat([projections, -projections], dim=1).logsumexp(dim=0)
    return float((z.min() - z.max()).exp())


def iso_score(x: Tensor) -> float:
    """IsoScore (Rudman et al., Findings of ACL 2022): how evenly the variance spreads over the dimensions.

    1 if the covariance is a multiple of the identity, 0 if all variance lies in one direction or there is none. It
    is computed from centred embeddings: a common offset, which worsens every other measure here, does not change it.

    Args:
        x: (N, D), N >= 2 and D >= 2.

    Raises:
        ValueError: if there are fewer than two rows or dimensions, or a row is zero or not finite.
    """
    u = check_embeddings("x", x, at_least=2)
    size = u.size(1)
    if size < 2:
        raise ValueError(f"x must have D >= 2 dimensions for IsoScore, got the shape {tuple(u.shape)}.")
    spectrum = torch.linalg.eigvalsh(torch.cov(u.T)).clamp_min(0.0)  # variances along the principal axes
    if float(spectrum.sum()) <= 1e-12:
        return 0.0
    scaled = math.sqrt(size) * spectrum / spectrum.norm()
    defect = float((scaled - 1).norm()) / math.sqrt(2 * (size - math.sqrt(size)))
    fraction = (size - defect**2 * (size - math.sqrt(size))) ** 2 / size**2
    return (size * fraction - 1) / (size - 1)


def effective_rank(x: Tensor) -> float:
    """Exponential of the entropy of the singular values' shares: 1 (collapsed) to min(N, D).

    Roy and Vetterli, EUSIPCO 2007. The matrix is not centred, so a direction common to all rows lowers the rank.

    Args:
        x: (N, D).

    Raises:
        ValueError: if a row is zero or not finite.
    """
    values = torch.linalg.svdvals(check_embeddings("x", x))
    shares = values / values.sum()
    return float(torch.special.entr(shares).sum().exp())


def top_eigenvalue_share(x: Tensor) -> float:
    """Share of the largest eigenvalue in the trace of the UNCENTRED second moment X^T X / N: 1/D (isotropic) to 1.

    Args:
        x: (N, D).

    Raises:
        ValueError: if a row is zero or not finite.
    """
    spectrum = torch.linalg.svdvals(check_embeddings("x", x)).square()
    return float(spectrum[0] / spectrum.sum())


_MEASURES = {
    measure.__name__: measure
    for measure in (uniformity, mean_cosine, iso_score, partition_ratio, effective_rank, top_eigenvalue_share)
}


class GeometryEvaluator(ReportingEvaluator):
    """Uniformity, isotropy and, given positive pairs, alignment of a model's embeddings.

    The metrics are those of ``st_extras.evaluation.geometry``: ``uniformity``, ``mean_cosine``, ``iso_score``,
    ``partition_ratio``, ``effective_rank``, ``top_eigenvalue_share`` and ``alignment``. None of them alone shows that a
    model is good: a random map of sentences onto the sphere is perfectly isotropic. ``uniformity`` is the
    ``primary_metric``; lower is better.

    Args:
        sentences: the sentences to measure, or a data set with one text column; repeats count once (a repeat has
            cosine 1 with itself).
        positives: pairs of sentences with the same meaning (SimCSE and PaSeR take the STS-B pairs with a score of 4 or
            more); None leaves alignment out.
        **options: ``name`` (prefix of the metrics and part of the CSV file's name), ``batch_size`` (sentences per
            forward pass), ``show_progress_bar`` (while encoding) and ``write_csv`` (whether to append a row to
            ``geometry_evaluation[_name]_results.csv`` in the output path).

    Raises:
        ValueError: if there are fewer than two distinct sentences, or ``positives`` does not hold pairs of strings.

    Example:
        >>> from st_extras.evaluation import GeometryEvaluator
        >>> evaluator = GeometryEvaluator(["a cat sat", "a dog ran", "birds sing"], name="toy")
        >>> evaluator.primary_metric, evaluator.greater_is_better
        ('toy_uniformity', False)
    """

    def __init__(
        self,
        sentences: Iterable[str],
        positives: Sequence[tuple[str, str]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__("geometry_evaluation", "uniformity", **options)
        self.greater_is_better = False
        self.sentences = list(dict.fromkeys(check_sentences("sentences", sentences, at_least=2)))
        if len(self.sentences) < 2:
            raise ValueError(f"sentences must hold at least 2 distinct sentences, got only {self.sentences[0]!r}.")
        self.positives = None if positives is None else check_text_pairs("positives", positives)
        if self.positives is not None and not self.positives:
            raise ValueError("positives must hold at least one pair, got []: give None to leave alignment out.")

    def measure(self, model: SentenceTransformer) -> dict[str, float]:
        """Return the metrics by name."""
        cloud = self.encode(model, self.sentences)
        metrics = {name: measure(cloud) for name, measure in _MEASURES.items()}
        if self.positives is not None:
            sides = self.encode(model, [text for pair in self.positives for text in pair])
            metrics["alignment"] = alignment(sides[0::2], sides[1::2])
        return metrics
