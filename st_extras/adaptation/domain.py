"""``adapt``: refine an encoder for the text of a domain without labels, or leave it unchanged.

Sample texts, encode them, compute candidates from most of them, score each on the others, choose one, save it.

The candidates are linear transforms, those of Locality Preserving Projections, in strengths from slight to whitening:
see :class:`~st_extras.adaptation.transforms.LinearTransform`. One may be chosen if it is better than the base model, by
the label-free score of :class:`~st_extras.evaluation.LabelFreeComparison` or on a development set, and keeps general
English: see :mod:`st_extras.adaptation.choice`.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from datasets import Dataset, IterableDataset
from sentence_transformers import SentenceTransformer

from st_extras.adaptation.choice import (
    ANY_LOSS,
    SMALLEST_GENERAL_SCORE,
    choose,
    default_general_loss,
    expected_points,
    why_not_accepted,
    why_not_tried,
)
from st_extras.adaptation.corpus import FEWEST_TEXTS, Corpus, split_corpus, without_labels
from st_extras.adaptation.neighbors import write_neighbors
from st_extras.adaptation.report import Adaptation, CandidateResult, DomainDetails
from st_extras.adaptation.run import AdaptationOptions, AdaptationRun
from st_extras.adaptation.scoring import (
    DEV_SCORE,
    LABEL_FREE_SCORE,
    HeldOutTexts,
    Measured,
    check_dev,
    development,
    general_english,
)
from st_extras.adaptation.transforms import CANDIDATES, STRENGTHS, LinearTransform, card_line
from st_extras.checks import check_choice, check_interval
from st_extras.citations import CITATIONS
from st_extras.encoders.structure import embedding_dimension
from st_extras.evaluation import LabeledTexts, LabelFreeComparison, STSDataset
from st_extras.evaluation.geometry import moved_threshold, unrelated_cosines
from st_extras.evaluation.label_free import LEAST_CONFIRMED
from st_extras.modules.linear import Affine, add_linear
from st_extras.modules.neighbor_directions import TooFewDifferentError, neighbor_directions
from st_extras.text.term_weights import character_tfidf

METHOD = "Locality Preserving Projections"


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
    text and its nearest neighbours (by embeddings and words together) agree are kept, the others shrunk. Each candidate
    is scored on held-out texts. A transform of D x D numbers is saved as a stock ``Dense`` module. To search a
    collection, use :func:`adapt_search`.

    Args:
        model: the encoder. It is not changed.
        texts: text of the domain: at least 500 different texts, better some thousand. A stream is read once.
        output: a new or empty folder, for the model, ``adaptation.json`` (the report), ``neighbors.md`` (neighbours
            before and after) and, with matplotlib, a picture of them, ``neighbors.png``.
        dev: graded pairs or labelled texts to choose by in place of the label-free score: by Spearman correlation, or
            by the mean of 1-NN accuracy, V-measure and MAP@R.
        max_general_loss: how many points of Spearman correlation (times 100) a candidate may lose on 300 graded pairs
            of general English that come with the package. The stronger a transform, the more it gains on the domain and
            loses on these pairs. 0.5: for one encoder that serves everything; 200: any loss, as a correlation times
            100 cannot fall by more. None: 2, and any loss for a raw encoder, by which two texts have a mean cosine
            above 0.7.
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
            encoders for its routes or a ``truncate_dim``, an embedding is not finite, too few texts could be encoded in
            the time, ``dev`` cannot be scored, or there is no interrupted run to resume.

    Example:
        >>> import tempfile
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> from st_extras.adaptation import AdaptationOptions, adapt
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     options = AdaptationOptions(show_progress_bar=False)
        ...     found = adapt(raw_encoder(), sample_sentences()[:50], folder, options=options)
        >>> found.reason
        'Left unchanged: 500 different texts are needed, got 50.'
    """
    check_dev(dev)
    check_settings(max_general_loss, strength, threshold)
    embedding_dimension(model)  # raises for an encoder without Pooling, which transforms cannot follow
    with AdaptationRun("adapt", model, output, options) as run:
        sample = without_labels(run.sample(texts), dev)
        corpus = split_corpus(sample, run.encode_sample(sample.texts, FEWEST_TEXTS))
        if strength is not None:
            max_general_loss = ANY_LOSS
        elif max_general_loss is None:
            max_general_loss = default_general_loss(corpus.mean_cosine)
        details = DomainDetails(max_general_loss, mean_cosine=corpus.mean_cosine)
        if corpus.why_not_usable is not None:
            return run.save_unchanged(corpus.why_not_usable, corpus.summary, details)

        chooser: HeldOutTexts | Measured
        if dev is None:
            comparison = LabelFreeComparison(corpus.held_out, corpus.held_out_embeddings, seed=run.options.seed)
            details = dataclasses.replace(details, confirmed_share=comparison.confirmed_share)
            if (reason := why_not_comparable(comparison.confirmed_share)) is not None:
                return run.save_unchanged(reason, corpus.summary, details)
            chooser, gain_measure = HeldOutTexts(comparison, corpus.held_out_embeddings), LABEL_FREE_SCORE
        else:
            chooser, gain_measure = Measured.by(development(dev), run.encode), DEV_SCORE
            details = dataclasses.replace(details, dev=chooser.base)
        general = Measured.by(general_english(), run.encode)
        shows_losses = general.base >= SMALLEST_GENERAL_SCORE
        details = dataclasses.replace(details, general=general.base if shows_losses else None)

        try:
            fitted = fit_candidates(corpus, run.options.seed)
        except TooFewDifferentError as error:
            return run.save_unchanged(str(error), corpus.summary, details, gain_measure)
        results, not_tried = CandidateScores(chooser, general if shows_losses else None, max_general_loss).of(fitted)
        details = dataclasses.replace(details, not_tried=tuple(not_tried))
        choice = choose(results, None if strength is None else STRENGTHS[strength])
        if choice.candidate is None:
            return run.save_unchanged(choice.reason, corpus.summary, details, gain_measure, results)
        result = choice.candidate
        transform = fitted.transforms[result.name]
        if dev is None:
            details = dataclasses.replace(details, expected_points=expected_points(result.gain))
        line = card_line(result.name, len(corpus.fitting), details.general, result.general, details.expected_points)
        refined = add_linear(model, transform, method=METHOD, line=line, citation=CITATIONS["he2003locality"])
        run.save(refined)
        details = with_changes(details, corpus, transform, run, threshold)
        return run.write_report(refined, result.name, choice.reason, gain_measure, results, corpus.summary, details)


def check_settings(max_general_loss: float | None, strength: str | None, threshold: float | None) -> None:
    """Check what a candidate is chosen by, and the threshold.

    Raises:
        ValueError: if a value is not allowed, or both ``strength`` and ``max_general_loss`` are given.
    """
    if max_general_loss is not None:
        check_interval("max_general_loss", max_general_loss, 0, ANY_LOSS)
    if strength is not None:
        check_choice("strength", strength, tuple(STRENGTHS))
        if max_general_loss is not None:
            raise ValueError(
                f"strength must be left out with max_general_loss, as it is saved whatever it loses, got {strength!r}: "
                "give one of them."
            )
    if threshold is not None:
        check_interval("threshold", threshold, -1, 1)


def why_not_comparable(confirmed_share: float) -> str | None:
    """Return why texts cannot be compared without labels, by the share of them with a confirmed neighbour; or None."""
    if confirmed_share >= LEAST_CONFIRMED:
        return None
    return (
        f"only {confirmed_share:.0%} of the texts have a neighbour that embeddings and words agree on, so nothing can "
        "be compared without labels."
    )


@dataclass(frozen=True, eq=False)
class FittedCandidates:
    """The candidates, computed from a corpus.

    Attributes:
        transforms: by name.
        seconds: what it took to compute them.
    """

    transforms: dict[str, Affine]
    seconds: float


def fit_candidates(corpus: Corpus, seed: int) -> FittedCandidates:
    """Compute all candidates from the fitting texts.

    Raises:
        TooFewDifferentError: if too few of their embeddings differ.
    """
    tfidf = character_tfidf(corpus.fitting)
    began = time.perf_counter()
    directions = neighbor_directions(corpus.fitting_embeddings, tfidf=tfidf, seed=seed)
    seconds = time.perf_counter() - began
    return FittedCandidates({one.name: one.affine(directions) for one in CANDIDATES}, seconds)


@dataclass(frozen=True, eq=False)
class CandidateScores:
    """What candidates are scored by.

    Attributes:
        chooser: gives their gain over the base model.
        general: pairs of general English; None where they show nothing for this encoder.
        max_general_loss: how many points a candidate may lose on them.
    """

    chooser: HeldOutTexts | Measured
    general: Measured | None
    max_general_loss: float

    def of(self, fitted: FittedCandidates) -> tuple[list[CandidateResult], list[str]]:
        """Score all candidates that are tried, those that depend on a gentler one last.

        Returns:
            Their results, the gentlest first, and why others are missing.
        """
        results: dict[str, CandidateResult] = {}
        not_tried = []
        for one in sorted(CANDIDATES, key=lambda one: one.gentler is not None):
            if (reason := self.why_not_tried(one, results)) is not None:
                not_tried.append(f"{one.name}, {reason}")
                continue
            results[one.name] = self.result(one.name, fitted.transforms[one.name], fitted.seconds)
        return [results[one.name] for one in CANDIDATES if one.name in results], not_tried

    def why_not_tried(self, candidate: LinearTransform, results: Mapping[str, CandidateResult]) -> str | None:
        """Return why a candidate is not tried, by what its gentler one lost on general pairs; None if it is tried.

        Args:
            candidate: not yet scored.
            results: of the others, by name.
        """
        by_labels = isinstance(self.chooser, Measured)
        if candidate.gentler is None or self.general is None or by_labels or self.max_general_loss >= ANY_LOSS:
            return None
        return why_not_tried(candidate.gentler, self.lost(results[candidate.gentler]), self.max_general_loss)

    def result(self, name: str, transform: Affine, seconds: float) -> CandidateResult:
        """Score a candidate, which took some seconds to compute."""
        began = time.perf_counter()
        gain = self.chooser.gain(transform)
        general = None if self.general is None else self.general.after(transform)
        found = CandidateResult(name, gain.value, gain.low, gain.high, general)
        return dataclasses.replace(
            found,
            why_not_accepted=why_not_accepted(found, self.lost(found), self.max_general_loss),
            seconds=round(seconds + time.perf_counter() - began, 1),
        )

    def lost(self, result: CandidateResult) -> float | None:
        """Return how many points a candidate lost on general pairs; None if they show nothing."""
        return None if self.general is None or result.general is None else self.general.base - result.general


def with_changes(
    details: DomainDetails, corpus: Corpus, transform: Affine, run: AdaptationRun, threshold: float | None
) -> DomainDetails:
    """Return the details with what the chosen transform changes on the held-out texts; write their neighbours."""
    before, after = corpus.held_out_embeddings, transform.apply(corpus.held_out_embeddings)
    return dataclasses.replace(
        details,
        changed=write_neighbors(run.folder.model, corpus.held_out, before, after, seed=run.options.seed),
        unrelated_before=unrelated_cosines(before),
        unrelated_after=unrelated_cosines(after),
        threshold=None if threshold is None else moved_threshold(threshold, before, after),
    )
