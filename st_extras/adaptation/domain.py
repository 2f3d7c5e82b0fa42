"""``adapt``: refine an encoder for the text of a domain without labels, or leave it unchanged.

Sample texts, encode them, compute candidates from them, score each by cross-fitting (each text by the candidate as
computed without it), choose one, save it as computed from all texts.

The candidates are linear transforms, those of Locality Preserving Projections, in strengths from slight to whitening:
see :class:`LinearTransform`. One may be chosen if it is better than the base model, by
the label-free score of :class:`~st_extras.evaluation.LabelFreeComparison` or on a development set, and keeps general
English: see :mod:`st_extras.adaptation.choice`.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from datasets import Dataset, IterableDataset
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.adaptation.choice import (
    SMALLEST_GENERAL_SCORE,
    Choice,
    choose,
    default_general_loss,
    expected_points,
    why_no_whitening,
    why_not_accepted,
)
from st_extras.adaptation.neighbors import write_neighbors
from st_extras.adaptation.report import Adaptation, CandidateResult, DomainDetails, TextSummary
from st_extras.adaptation.run import (
    FEWEST_TEXTS,
    AdaptationOptions,
    AdaptationRun,
    Sample,
    start_run,
    with_embedding,
)
from st_extras.checks import check_choice, check_interval, check_not_negative, shown
from st_extras.citations import CITATIONS
from st_extras.correlation import spearman_of_pairs
from st_extras.encoders.passages import warn_of_cut_texts
from st_extras.evaluation import LabeledTexts, LabelFreeComparison, STSDataset, without_labeled
from st_extras.evaluation.geometry import mean_cosine, moved_threshold, unrelated_cosines
from st_extras.evaluation.label_free import LEAST_CONFIRMED, MOST_COMPARED
from st_extras.evaluation.label_metrics import check_labels, label_scores
from st_extras.evaluation.sts_data import check_graded
from st_extras.modules.linear import Affine, add_linear
from st_extras.modules.neighbor_directions import NeighborDirections, TooFewDifferentError, neighbor_directions
from st_extras.modules.pipeline import ROUNDING
from st_extras.samples import graded_pairs
from st_extras.text.corpus import FEWEST_WITH_LETTERS, share_with_letters
from st_extras.text.term_weights import character_tfidf, near_duplicate_share

METHOD = "Locality Preserving Projections"
DEV_SCORE = "score on dev, x 100"
LABEL_FREE_SCORE = "label-free score of texts by transforms computed without them, no unit"
"""What a gain measures, with a development set and without."""
FOLDS = 2
"""Parts of the scored texts, each scored by transforms from the others: more cost more and choose no better."""
MOST_OUTSIDE = 4000
"""From at most this many texts outside a fold a transform is computed for it: the time grows with their square."""
_NUMBERS = re.compile(r"[\d\s]+")


def adapt(
    model: SentenceTransformer,
    texts: Sequence[str] | Dataset | IterableDataset,
    output: str | os.PathLike[str],
    *,
    dev: STSDataset | LabeledTexts | None = None,
    max_general_loss: float | None = None,
    strength: str | None = None,
    threshold: float | None = None,
    options: AdaptationOptions | None = None,
) -> Adaptation[DomainDetails]:
    """Refine an encoder for the text of a domain, without labels, or leave it unchanged; save the result.

    Candidates are linear transforms after the encoder, computed from its embeddings of the texts: directions on which a
    text and its nearest neighbours (by embeddings and words together) agree are kept, the others shrunk. What is saved
    is computed from all texts; for its score, each candidate is computed again without the texts that it is scored on,
    with fewer texts, so somewhat weaker. A transform of D x D numbers is saved as a stock ``Dense`` module. To search a
    collection, use :func:`adapt_search`.

    Args:
        model: the encoder. It is not changed.
        texts: text of the domain: at least 200 different texts, better several thousand. A stream is read once.
        output: a new or empty folder, for the model, ``adaptation.json`` (the report) and ``neighbors.md`` (texts with
            their nearest neighbours before and after).
        dev: graded pairs or labelled texts to choose by in place of the label-free score: by Spearman correlation, or
            by the mean of 1-NN accuracy, V-measure and MAP@R.
        max_general_loss: how many points of Spearman correlation (times 100) a candidate may lose on 300 graded pairs
            of general English that come with the package. The stronger a transform, the more it gains on the domain and
            loses on these pairs. 0.5: for one encoder that serves everything; ``math.inf``: any loss. None: 2, and any
            loss for a raw encoder, by which two texts have a mean cosine above 0.7.
        strength: the transform to save, whatever the scores say and however much it loses on general English: the first
            word of a name in ``CANDIDATES``, such as "medium". The report shows the scores nevertheless. Texts that
            cannot be compared leave the encoder unchanged all the same. None: the scores choose, among what loses no
            more than ``max_general_loss``.
        threshold: a cosine, -1 to 1, above which you call two texts similar with the base model: the report has the one
            that as many pairs exceed with the chosen model.
        options: how the run goes: see :class:`AdaptationOptions`. None: the defaults.

    Returns:
        What was chosen, its model, and all candidates with their scores.

    Raises:
        ValueError: if a setting is not allowed, ``output`` may not be used, the encoder has no Pooling, different
            encoders for its routes or a ``truncate_dim``, an embedding is not finite, or ``dev`` cannot be scored.

    Example:
        >>> import tempfile
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> from st_extras.adaptation import AdaptationOptions, adapt
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     options = AdaptationOptions(show_progress_bar=False)
        ...     adapted = adapt(raw_encoder(), sample_sentences()[:50], folder, options=options)
        >>> adapted.reason
        'Left unchanged: 200 different texts are needed, got 50.'
    """
    check_dev(dev)
    check_settings(max_general_loss, strength, threshold)
    with start_run(model, output, options) as run:
        sample = run.sample(texts)
        warn_of_cut_texts(model, sample.texts)
        if isinstance(dev, LabeledTexts):  # candidates are not computed from the texts whose labels choose
            sample = dataclasses.replace(sample, texts=without_labeled(sample.texts, dev.texts))
        embeddings = run.encode_sample(sample.texts, "Encoding")
        corpus = corpus_of_sample(sample, embeddings, model.dtype or torch.float32)
        if strength is not None:
            max_general_loss = math.inf
        elif max_general_loss is None:
            max_general_loss = default_general_loss(corpus.mean_cosine)

        scores = score_candidates(run, corpus, dev, max_general_loss)
        summary = dataclasses.replace(corpus.summary, scored=scores.scored)
        if scores.why_nothing is None:
            choice = choose(scores.results, None if strength is None else STRENGTHS[strength])
        else:
            choice = Choice(None, scores.why_nothing)
        details = DomainDetails(
            max_general_loss=max_general_loss,
            general=scores.general,
            dev=scores.dev,
            mean_cosine=corpus.mean_cosine,
            confirmed_share=scores.confirmed_share,
            not_tried=scores.not_tried,
        )
        refined = model
        if choice.name is not None:
            result = next(one for one in scores.results if one.name == choice.name)
            measured = dev is None and sample.poorly_read is None  # no encoder was, on text that it hardly reads
            points = expected_points(result.gain, summary.used) if measured else None
            candidate = scores.candidates[choice.name]
            refined = add_linear(
                model,
                candidate.transform,
                method=METHOD,
                line=card_line(result, summary, scores.general, points),
                citation=CITATIONS["he2003locality"],
            )
            texts, before = corpus.texts[:MOST_COMPARED], corpus.embeddings[:MOST_COMPARED]
            as_scored, folds = candidate.cross_fitted(before), len(candidate.by_fold)
            after = candidate.transform.apply(before)
            details = dataclasses.replace(
                details,
                expected_points=points,
                changed=write_neighbors(run.folder, texts, before, as_scored, folds=folds, seed=run.options.seed),
                unrelated_before=unrelated_cosines(before),
                unrelated_after=unrelated_cosines(after),
                threshold=None if threshold is None else moved_threshold(threshold, before, after),
            )
        return run.finish(refined, choice.name, choice.reason, scores.gain_measure, scores.results, summary, details)


# --- settings ---


def check_settings(max_general_loss: float | None, strength: str | None, threshold: float | None) -> None:
    """Check what a candidate is chosen by, and the threshold.

    Raises:
        ValueError: if a value is not allowed, or both ``strength`` and ``max_general_loss`` are given.
    """
    if max_general_loss not in (None, math.inf):
        check_not_negative("max_general_loss", max_general_loss)
    if strength is not None:
        check_choice("strength", strength, tuple(STRENGTHS))
        if max_general_loss is not None:
            raise ValueError(
                f"strength must be left out with max_general_loss, as it is saved whatever it loses, got {strength!r}: "
                "give one of them."
            )
    if threshold is not None:
        check_interval("threshold", threshold, -1, 1)


def check_dev(dev: object) -> None:
    """Check a development set that chooses a candidate for a domain.

    Raises:
        ValueError: unless it is None, an STSDataset with different scores, or LabeledTexts of at least two labels, one
            of them twice.
    """
    if dev is not None and not isinstance(dev, STSDataset | LabeledTexts):
        raise ValueError(f"dev must be an STSDataset, LabeledTexts or None, got {shown(dev)}.")
    if isinstance(dev, STSDataset):
        check_graded(dev, "dev")
    if isinstance(dev, LabeledTexts):
        check_labels("dev.labels", dev.labels, len(dev.texts))


# --- the corpus ---


@dataclass(frozen=True, eq=False)
class Corpus:
    """Texts that candidates are computed from and compared on, if they can be used, and the base model's embeddings.

    They are fewer than the sample where encoding stopped at its deadline, or a text has no embedding.

    Attributes:
        texts: N texts.
        embeddings: (N, D) by the base model, before a Normalize module.
        summary: the texts in numbers.
        mean_cosine: of two different texts, -1 to 1; near 0 for most encoders that were tuned for similarity. None if
            the texts are too few.
        why_not_usable: why nothing can be tried with these texts, in a sentence; None if something can.
    """

    texts: list[str] = field(repr=False)
    embeddings: Tensor = field(repr=False)
    summary: TextSummary
    mean_cosine: float | None
    why_not_usable: str | None


def corpus_of_sample(sample: Sample, embeddings: Tensor, precision: torch.dtype = torch.float32) -> Corpus:
    """Return a sample without texts that have no embedding, with why the others cannot be used, if they cannot.

    Args:
        sample: the texts.
        embeddings: (n, D) finite ones of the first n of them; n is less where the time was over.
        precision: in which the encoder computed them.
    """
    encoded = len(embeddings)
    texts, embeddings = with_embedding(sample.texts, embeddings)
    if (reason := why_not_enough(encoded, texts)) is not None:
        return Corpus(texts, embeddings, sample.summary(encoded, texts), None, reason)
    rounding = max(ROUNDING, torch.finfo(precision).eps) * float(embeddings.norm())
    reason = "the encoder gives all texts the same embedding, but for the rounding of its numbers."
    alike = float((embeddings - embeddings.mean(dim=0)).norm()) <= rounding
    summary = sample.summary(encoded, texts, near_duplicate_share(texts[:MOST_COMPARED]))
    return Corpus(texts, embeddings, summary, mean_cosine(embeddings), reason if alike else None)


def why_not_enough(encoded: int, texts: list[str]) -> str | None:
    """Return why texts are too few or too much alike, in a sentence; None if they are enough.

    Args:
        encoded: how many texts were encoded.
        texts: those of them that have an embedding other than 0.
    """
    if encoded >= FEWEST_TEXTS > len(texts):
        return f"{FEWEST_TEXTS} texts are needed, and {len(texts)} of {encoded} have an embedding other than 0."
    if len(texts) >= FEWEST_TEXTS and (lettered := share_with_letters(texts)) < FEWEST_WITH_LETTERS:
        return f"only {lettered:.0%} of the texts have a letter, so they hold no words to compare."
    different = len({_NUMBERS.sub("", text).casefold() for text in texts})
    but = "" if different == len(texts) else " but for numbers and case"
    if different < FEWEST_TEXTS:
        return f"{FEWEST_TEXTS} different texts are needed, got {different}{but}."
    return None


# --- the candidates ---


@dataclass(frozen=True)
class LinearTransform:
    """A way to refine: v' = (v - mu) ((1 - t) I + t W) + kept_mean mu, W the kernel of :class:`NeighborDirections`.

    Attributes:
        name: in the table.
        recolor: how far W gives directions their variance back: 1 all of it, 0 leaves them whitened.
        strength: t, with any amount of text; N texts have N / (N + 1000) of it, as few texts are weak evidence.
        kept_mean: share of the mean embedding mu that is kept. 1 forgets least.
    """

    name: str
    recolor: float
    strength: float
    kept_mean: float

    def affine(self, directions: NeighborDirections) -> Affine:
        """Return the matrix (D, D) and the offset (D,) of v' = v X + b, in float64."""
        matrix = directions.blend(self.strength, self.recolor)
        return Affine(matrix, self.kept_mean * directions.mean - directions.mean @ matrix)


CANDIDATES = (
    LinearTransform("slight neighbour transform", recolor=1.0, strength=0.25, kept_mean=1.0),
    LinearTransform("gentle neighbour transform", recolor=1.0, strength=0.5, kept_mean=1.0),
    LinearTransform("medium neighbour transform", recolor=0.5, strength=0.75, kept_mean=0.5),
    LinearTransform("whitening neighbour transform", recolor=0.0, strength=1.0, kept_mean=0.0),
)
"""What :func:`adapt` tries, the gentlest first."""
STRENGTHS = {one.name.partition(" ")[0]: one.name for one in CANDIDATES}
"""Names of the candidates, by what ``strength`` and ``--strength`` call them: "slight", "gentle", and so on."""


@dataclass(frozen=True)
class Candidate:
    """A linear transform of the embeddings, computed from the texts.

    Attributes:
        transform: computed from all texts: what is saved.
        by_fold: the same without the texts of each fold in turn, for the score of these texts. Empty where a
            development set scores.
    """

    transform: Affine
    by_fold: tuple[Affine, ...] = ()

    def cross_fitted(self, embeddings: Tensor) -> Tensor:
        """Return (J, D) embeddings of the J scored texts, each after the transform that was computed without it.

        Without folds: after the transform that was computed from all texts.

        Args:
            embeddings: (J, D) of the scored texts by the base model, fold after fold.
        """
        by_fold = self.by_fold or (self.transform,)
        parts = embeddings.tensor_split(len(by_fold))
        return torch.cat([one.apply(part) for one, part in zip(by_fold, parts, strict=True)])


def compute_candidates(texts: Sequence[str], embeddings: Tensor, *, folds: int, seed: int) -> dict[str, Candidate]:
    """Return the candidates by name, the gentlest first.

    Args:
        texts: N texts, of which the first, at most 2,000, are scored.
        embeddings: (N, D) by the base model.
        folds: of the scored texts; each candidate is also computed from at most 4,000 texts outside of each. 0: none.
        seed: see :func:`~st_extras.modules.neighbor_directions.neighbor_directions`.

    Raises:
        TooFewDifferentError: a ValueError, if the texts have too few different embeddings.
    """

    def directions(rows: Tensor) -> NeighborDirections:
        some = [texts[row] for row in rows.tolist()]
        return neighbor_directions(embeddings[rows], tfidf=character_tfidf(some), seed=seed)

    rows = torch.arange(len(texts))
    parts = rows[:MOST_COMPARED].tensor_split(folds) if folds else ()
    outside = [directions(rows[~torch.isin(rows, part)][:MOST_OUTSIDE]) for part in parts]
    whole = directions(rows)
    return {one.name: Candidate(one.affine(whole), tuple(map(one.affine, outside))) for one in CANDIDATES}


# --- their scores ---

Score = Callable[[Affine | None], float]
"""A score of some texts, times 100, by their embeddings after a transform; None: by the base model."""
Gain = tuple[float, float | None, float | None]
"""How much better a candidate is than the base model, and the ends of the 95 % interval, None for a score by labels."""


def general_score(encode: Callable[[list[str], str], Tensor]) -> Score:
    """Return Spearman correlation on the 300 graded pairs of general English that come with the package.

    Args:
        encode: takes texts and what to call them.
    """
    first, second, grades = graded_pairs()
    embeddings = encode([*first, *second], f"Encoding {len(first)} pairs of general English")
    return lambda transform: spearman_of_pairs(_after(transform, embeddings), grades)


def dev_score(dev: STSDataset | LabeledTexts, encode: Callable[[list[str], str], Tensor]) -> Score:
    """Return the score on a development set; of labelled texts: the mean of 1-NN accuracy, V-measure and MAP@R.

    Args:
        dev: the set.
        encode: takes texts and what to call them.
    """
    label = "Encoding the development set"
    if isinstance(dev, STSDataset):
        pairs, grades = encode([*dev.sentences1, *dev.sentences2], label), dev.scores
        return lambda transform: spearman_of_pairs(_after(transform, pairs), grades)
    texts, labels = encode(list(dev.texts), label), dev.labels
    return lambda transform: 100 * label_scores(_after(transform, texts), labels)["mean"]


def _after(transform: Affine | None, embeddings: Tensor) -> Tensor:
    """Return (N, D) embeddings by the base model, before a Normalize module, after a transform."""
    return embeddings if transform is None else transform.apply(embeddings)


@dataclass(frozen=True)
class DomainScores:
    """What the candidates are, and how good.

    Attributes:
        why_nothing: why nothing was scored, in a sentence; None if something was.
        scored: how many texts the label-free score was computed on.
        gain_measure: what the gains measure, with its unit.
        results: of the candidates that were tried, the gentlest first.
        candidates: all that were computed, by name.
        confirmed_share: see :class:`DomainDetails`, as the next ones.
        dev: of the base model.
        general: of the base model.
        not_tried: which candidate, and why.
    """

    why_nothing: str | None = None
    scored: int = 0
    gain_measure: str = ""
    results: list[CandidateResult] = field(default_factory=list)
    candidates: dict[str, Candidate] = field(default_factory=dict, repr=False)
    confirmed_share: float | None = None
    dev: float | None = None
    general: float | None = None
    not_tried: str | None = None


def score_candidates(
    run: AdaptationRun, corpus: Corpus, dev: STSDataset | LabeledTexts | None, max_general_loss: float
) -> DomainScores:
    """Compute the candidates, and score them by cross-fitting or on the development set.

    Args:
        run: encodes the pairs of general English and the development set.
        corpus: the texts.
        dev: labels that choose; None: the label-free score does.
        max_general_loss: how many points a candidate may lose on pairs of general English.
    """
    if corpus.why_not_usable is not None:
        return DomainScores(corpus.why_not_usable)
    began, seed = time.perf_counter(), run.options.seed
    folds = FOLDS if dev is None else 0
    try:
        candidates = compute_candidates(corpus.texts, corpus.embeddings, folds=folds, seed=seed)
    except TooFewDifferentError as error:
        return DomainScores(str(error))
    seconds = time.perf_counter() - began

    confirmed_share = base_on_dev = None
    if dev is None:
        scored = corpus.embeddings[:MOST_COMPARED]
        comparison = LabelFreeComparison(corpus.texts[:MOST_COMPARED], scored, folds=folds, seed=seed)
        confirmed_share = comparison.confirmed_share
        if confirmed_share < LEAST_CONFIRMED:
            return DomainScores(
                f"only {confirmed_share:.0%} of the texts in one of {folds} parts have a neighbour that embeddings and "
                "words agree on, so nothing can be compared without labels.",
                confirmed_share=confirmed_share,
            )

        def gain(candidate: Candidate) -> Gain:
            score = comparison.compare(candidate.cross_fitted(scored))
            return score.gain, score.low, score.high
    else:
        on_dev = dev_score(dev, run.encode)
        base_on_dev = base = on_dev(None)

        def gain(candidate: Candidate) -> Gain:
            return on_dev(candidate.transform) - base, None, None

    on_pairs = general_score(run.encode)
    base_on_pairs = on_pairs(None)
    general = base_on_pairs if base_on_pairs >= SMALLEST_GENERAL_SCORE else None
    results, not_tried = score_each(
        candidates, gain, on_pairs, general, max_general_loss, may_skip_whitening=dev is None, seconds=seconds
    )
    return DomainScores(
        scored=len(corpus.texts[:MOST_COMPARED]) if dev is None else 0,
        gain_measure=LABEL_FREE_SCORE if dev is None else DEV_SCORE,
        results=results,
        candidates=candidates,
        confirmed_share=confirmed_share,
        dev=base_on_dev,
        general=general,
        not_tried=not_tried,
    )


def score_each(
    candidates: Mapping[str, Candidate],
    gain: Callable[[Candidate], Gain],
    on_pairs: Score,
    general: float | None,
    max_general_loss: float,
    *,
    may_skip_whitening: bool,
    seconds: float = 0.0,
) -> tuple[list[CandidateResult], str | None]:
    """Score candidates; the last one, whitening, only if the one before it loses little on pairs of general English.

    Args:
        candidates: by name, the gentlest first.
        gain: finds how much better one is than the base model.
        on_pairs: the score on pairs of general English.
        general: that of the base model; None where the pairs show nothing for this encoder.
        max_general_loss: how many points a candidate may lose on them.
        may_skip_whitening: False: whitening is tried whatever the medium transform loses.
        seconds: what it took to compute the candidates, all together; each result includes it.

    Returns:
        The results, and which candidate was not tried, and why; None: all were.
    """
    results: list[CandidateResult] = []
    lost: float | None = None
    for number, (name, candidate) in enumerate(candidates.items(), start=1):
        if may_skip_whitening and number == len(candidates) and (reason := why_no_whitening(lost, max_general_loss)):
            return results, f"{name}, {reason}"
        began = time.perf_counter()
        value, low, high = gain(candidate)
        after = lost = None
        if general is not None:
            after = on_pairs(candidate.transform)
            lost = general - after
        result = CandidateResult(name, value, low, high, after)
        reason = why_not_accepted(result, lost, max_general_loss)
        spent = round(seconds + time.perf_counter() - began, 1)
        results.append(dataclasses.replace(result, why_not_accepted=reason, seconds=spent))
    return results, None


def card_line(
    result: CandidateResult, texts: TextSummary, general: float | None, points: tuple[float, float] | None
) -> str:
    """Return the line of the model card about the chosen candidate.

    Args:
        result: the chosen candidate's.
        texts: that it was computed from and scored on.
        general: score of the base model on pairs of general English; None: they show nothing.
        points: between how many points on labelled texts of the domain its gain is expected; None: not known.
    """
    line = f"* **st-extras adapt**, {result.name}: computed from {texts.used:,} unlabelled texts of a domain"
    if texts.scored:
        line += f", scored on {texts.scored:,} of them by transforms computed without them"
    if points is not None:
        line += f", expected gain on such texts {points[0]:+.1f} to {points[1]:+.1f} points"
    if general is not None and result.general is not None:
        lost = f"{general:.2f} -> {result.general:.2f} ({result.general - general:+.2f})"
        line += f", general English pairs {lost}"
    return f"{line}. The embeddings are not comparable with those of the encoder without it."
