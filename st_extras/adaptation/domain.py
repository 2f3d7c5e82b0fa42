"""``adapt``: refine an encoder for the text of a domain without labels, or leave it unchanged.

Sample texts, encode them, propose candidates from most of them, score each on the others, choose one, save it.

The transforms are those of Locality Preserving Projections, in four strengths from slight to whitening: see
:class:`~st_extras.adaptation.transforms.LinearTransform`. A candidate may be chosen if it is better than the
base model, by the label-free score of :class:`~st_extras.evaluation.LabelFreeComparison` or on a development set, and
keeps general English: see :mod:`st_extras.adaptation.choice`.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from datasets import Dataset, IterableDataset
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.adaptation.choice import (
    SMALLEST_GENERAL_SCORE,
    choose,
    default_budget,
    expected_points,
    is_tried,
    objections,
)
from st_extras.adaptation.corpus import Corpus, apart_from, split_corpus
from st_extras.adaptation.extraction import is_language_model
from st_extras.adaptation.language_model import adapt_language_model
from st_extras.adaptation.neighbors import write_neighbors
from st_extras.adaptation.report import Adaptation, CandidateResult, DomainDetails
from st_extras.adaptation.run import AdaptationRun
from st_extras.adaptation.scoring import DEV_SCORE, Measure, check_dev, development, general_english
from st_extras.adaptation.trainings import TRAININGS, seconds_per_text
from st_extras.adaptation.transforms import CANDIDATES, STRENGTHS, card_line, transformed
from st_extras.checks import check_bool, check_choice, check_weight
from st_extras.citations import CITATIONS
from st_extras.encoders.dropout import dropout_acts
from st_extras.encoders.structure import embedding_dimension
from st_extras.evaluation import LabeledTexts, LabelFreeComparison, STSDataset
from st_extras.evaluation.geometry import unrelated_cosines
from st_extras.evaluation.label_free import LEAST_CONFIRMED
from st_extras.files import message_line
from st_extras.modules.linear import Affine, add_linear
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.text.term_weights import character_tfidf

METHOD = "Locality Preserving Projections"
_LABEL_FREE = "label-free score on held-out texts, no unit"


def adapt(
    model: SentenceTransformer,
    texts: Sequence[str] | Dataset | IterableDataset,
    output: str | os.PathLike[str],
    *,
    dev: STSDataset | LabeledTexts | None = None,
    max_general_loss: float | None = None,
    strength: str | None = None,
    train: bool = False,
    minutes: float = 10.0,
    limit: int = 12_000,
    batch_size: int = 64,
    seed: int = 42,
    resume: bool = False,
    overwrite: bool = False,
    show_progress_bar: bool = True,
) -> Adaptation:
    """Refine an encoder for the text of a domain, without labels, or leave it unchanged; save the result.

    Candidates are linear transforms after the encoder, computed from its embeddings of the texts: directions on which a
    text and its nearest neighbours (by embeddings and words together) agree are kept, the others shrunk. With
    ``train``, copies of the encoder are trained for some steps, and tried with and without such a transform. Each
    candidate is scored on held-out texts. A transform of D x D numbers is saved as a stock ``Dense`` module.

    A causal language model without post-processing is passed to :func:`adapt_language_model`, unless ``train`` is
    given: then it is refined with the layer and pooling that it has. To search a collection, use :func:`adapt_search`.

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
        strength: "slight", "gentle", "medium" or "whitening": the transform to save, whatever the scores say, which the
            report shows nevertheless. None: the scores choose, among what loses no more than ``max_general_loss``.
        train: whether to try short trainings too (``TRAININGS``), those for which there is time. Training sets the
            global random state; without it, that state does not change.
        minutes: how long it may take, about; encoding stops after 60 % of the time, and the texts encoded by then are
            used; no training is begun that would not end in time. Transforms are scored in any case.
        limit: use at most this many texts, 500 to 50,000, drawn at random.
        batch_size: texts per forward pass.
        seed: random seed.
        resume: continue an interrupted run in ``output``: what it encoded with this encoder and these texts is used.
            Trainings are repeated.
        overwrite: replace what an earlier run wrote to ``output``.
        show_progress_bar: show how far encoding and training are and how long they take.

    Returns:
        What was chosen, its model, and all candidates with their scores; ``details`` is a :class:`DomainDetails`.

    Raises:
        ValueError: if a setting is not allowed, ``output`` may not be used, the encoder has no Pooling, different
            encoders for its routes or a ``truncate_dim``, an embedding is not finite, ``dev`` cannot be scored, or
            there is no interrupted run to resume.

    Example:
        >>> import tempfile
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> from st_extras.adaptation import adapt
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = adapt(raw_encoder(), sample_sentences()[:50], folder, show_progress_bar=False)
        >>> found.reason
        'Left unchanged: 500 different texts are needed, got 50.'
    """
    run_options: dict[str, Any] = {
        "minutes": minutes,
        "limit": limit,
        "batch_size": batch_size,
        "seed": seed,
        "resume": resume,
        "overwrite": overwrite,
        "show_progress_bar": show_progress_bar,
    }
    if max_general_loss is not None:
        check_weight("max_general_loss", max_general_loss)
    check_bool("train", train)
    if strength is not None:
        check_choice("strength", strength, tuple(STRENGTHS))
        if train or is_language_model(model):
            reason = "train" if train else "a language model"
            raise ValueError(f"strength must be left out with {reason}, whose candidates are others, got {strength!r}.")
    if is_language_model(model) and not train:
        if max_general_loss is not None:
            raise ValueError(
                f"max_general_loss must be left out for a language model, which is chosen by its gain on general "
                f"English and the texts together, got {max_general_loss:g}."
            )
        return adapt_language_model(model, texts, output, dev=dev, **run_options)
    check_dev(dev)
    embedding_dimension(model)  # raises for an encoder without Pooling, which transforms cannot follow
    with AdaptationRun(model, output, **run_options) as run:
        sample = apart_from(run.sample(texts), dev)
        embeddings = run.encode(model, sample.texts, deadline=run.encoding_deadline)
        corpus = split_corpus(sample, embeddings)
        allowed = default_budget(corpus.mean_cosine) if max_general_loss is None else max_general_loss
        budget = allowed if strength is None else math.inf
        details = DomainDetails(allowed, mean_cosine=corpus.mean_cosine)
        if corpus.unusable:
            return run.save_unchanged(corpus.unusable, corpus.summary, details)

        chooser: LabelFreeComparison | Measure
        if dev is not None:
            chooser = development(dev)
        else:
            chooser = LabelFreeComparison(corpus.held_out, corpus.held_out_embeddings, seed=run.seed)
            share = chooser.confirmed_share
            details = dataclasses.replace(details, confirmed_share=share)
            if share < LEAST_CONFIRMED:
                reason = (
                    f"only {share:.0%} of the texts have a neighbour that embeddings and words agree on, so nothing "
                    "can be compared without labels."
                )
                return run.save_unchanged(reason, corpus.summary, details)

        scores = CandidateScores(model, run.encode, chooser)
        results: list[CandidateResult] = []
        tried: list[Candidate] = []  # of which these are the results
        not_tried: list[str] = []
        for candidate in proposed(model, corpus, run, train=train):
            if isinstance(candidate, NotTried):
                not_tried.append(candidate.reason)
            elif reason := scores.too_strong(candidate, results, budget):
                not_tried.append(f"{candidate.name}, {reason}")
            else:
                try:
                    results.append(scores.result(candidate, budget))
                    tried.append(candidate)
                except (ValueError, RuntimeError) as error:  # an embedding is not finite, memory is lacking
                    not_tried.append(f"{candidate.name}: {message_line(error)}")
        details = dataclasses.replace(
            details,
            general=scores.base_general if scores.general_counts else None,
            dev=scores.base_dev,
            dropout=dropout_acts(model) if train else None,
            not_tried=tuple(not_tried),
        )
        gain_measure = _LABEL_FREE if dev is None else DEV_SCORE
        if not results:
            return run.save_unchanged("; ".join(not_tried), corpus.summary, details, gain_measure)

        choice = choose(results, None if strength is None else STRENGTHS[strength])
        if choice.index is None:
            return run.save_unchanged(choice.reason, corpus.summary, details, gain_measure, results)
        chosen, result = tried[choice.index], results[choice.index]
        points = expected_points(result.gain) if dev is None else None
        refined = chosen.model
        if chosen.transform is not None:
            line = card_line(chosen.name, len(corpus.fitting), details.general, result.general, points)
            citation = CITATIONS["he2003locality"]
            refined = add_linear(refined, chosen.transform, method=METHOD, line=line, citation=citation)
        run.save(refined)
        before, after = corpus.held_out_embeddings, chosen.transformed(chosen.held_out_embeddings)
        details = dataclasses.replace(
            details,
            expected_points=points,
            changed=write_neighbors(run.output, corpus.held_out, before, after, seed=run.seed),
            unrelated_before=unrelated_cosines(before),
            unrelated_after=unrelated_cosines(after),
        )
        return run.report(refined, chosen.name, choice.reason, gain_measure, results, corpus.summary, details)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A way to change an encoder: a trained copy of it, a linear transform after it, or both.

    Attributes:
        name: in the table.
        model: the encoder, or the trained copy.
        held_out_embeddings: (J, D) by ``model``.
        transform: what follows it; None: nothing.
        seconds: what it took to make beyond encoding with the base model.
        gentler: name of the candidate, tried earlier, that must keep general English for this one to be tried: see
            :meth:`CandidateScores.too_strong`. None: it is always tried.
    """

    name: str
    model: SentenceTransformer = field(repr=False)
    held_out_embeddings: Tensor = field(repr=False)
    transform: Affine | None = field(default=None, repr=False)
    seconds: float = 0.0
    gentler: str | None = None

    def transformed(self, embeddings: Tensor) -> Tensor:
        """Return (N, D) embeddings by ``model`` after the transform."""
        return transformed(embeddings, self.transform)


@dataclass(frozen=True)
class NotTried:
    """A candidate that could not be made, and why."""

    reason: str


def proposed(
    model: SentenceTransformer, corpus: Corpus, run: AdaptationRun, *, train: bool
) -> Iterator[Candidate | NotTried]:
    """Yield candidates computed from the fitting texts, gentle and cheap ones first; a copy is trained when it is due.

    Args:
        model: the base model.
        corpus: the texts with its embeddings.
        run: encodes them with trained copies; its deadline and seed count.
        train: whether to train copies.
    """
    tfidf = character_tfidf(corpus.fitting)

    def transforms(encoder: SentenceTransformer, encoded: Corpus, prefix: str, seconds: float) -> list[Candidate]:
        """Return the transforms after the base model or a copy, which took ``seconds`` to make."""
        began = time.perf_counter()
        directions = neighbor_directions(encoded.fitting_embeddings, tfidf=tfidf, seed=run.seed)
        seconds += time.perf_counter() - began
        return [
            Candidate(
                f"{prefix}{one.name}",
                encoder,
                encoded.held_out_embeddings,
                transform=one.affine(directions),
                seconds=seconds,
                gentler=None if one.gentler is None else f"{prefix}{one.gentler}",
            )
            for one in CANDIDATES
        ]

    try:
        yield from transforms(model, corpus, "", 0.0)
    except ValueError as error:  # too few embeddings that differ
        yield NotTried(str(error))
        return
    if not train:
        return
    if not dropout_acts(model):
        yield NotTried("training, which needs an encoder whose dropout acts")
        return
    rate = seconds_per_text(model, corpus.texts, run.batch_size)
    for training in TRAININGS:
        began = time.perf_counter()
        expected = training.seconds(rate) + len(corpus.texts) * rate
        if began + expected > run.deadline:
            yield NotTried(f"{training.name}, which would take {expected / 60:.1f} minutes more")
            continue
        try:
            trained = training.trained_copy(model, corpus.fitting, run.training_folder, run.seed, run.show_progress_bar)
            embeddings = run.encode(trained, corpus.texts, label=training.name)
        except (ValueError, RuntimeError) as error:  # cannot be trained so (it is frozen), diverges, or lacks memory
            yield NotTried(f"{training.name}: {message_line(error)}")
            continue
        by_copy = dataclasses.replace(corpus, embeddings=embeddings)
        seconds = time.perf_counter() - began
        yield Candidate(training.name, trained, by_copy.held_out_embeddings, seconds=seconds)
        try:
            yield from transforms(trained, by_copy, f"{training.name} + ", seconds)
        except (ValueError, RuntimeError) as error:
            yield NotTried(f"transforms after {training.name}: {message_line(error)}")


class CandidateScores:
    """Compares candidates with the base model: on held-out texts or by ``dev``, and on pairs of general English.

    It encodes general pairs and the development set when it is made, and again for each trained copy.

    Args:
        model: the base model.
        encode: returns the embeddings (N, D) of N texts by a model.
        chooser: what gives the gain: a comparison on the held-out texts, or the measure of a development set.

    Attributes:
        base_general: Spearman correlation times 100 of the base model on the pairs of general English.
        base_dev: its score times 100 on the development set; None without.

    Raises:
        ValueError: if the development set cannot be scored.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        encode: Callable[[SentenceTransformer, list[str]], Tensor],
        chooser: LabelFreeComparison | Measure,
    ) -> None:
        self._encode, self._chooser, self._general = encode, chooser, general_english()
        self._encode_measured_texts(model)
        self.base_general = self._general.score(self._of_general)
        self.base_dev = chooser.score(self._of_dev) if isinstance(chooser, Measure) else None

    @property
    def general_counts(self) -> bool:
        """Whether the base model is good enough on general English that losing some of it says something."""
        return self.base_general >= SMALLEST_GENERAL_SCORE

    def lost(self, general: float | None) -> float | None:
        """Return how far a candidate's score on general pairs is below the base model's; None if they show nothing."""
        return None if general is None else self.base_general - general

    def too_strong(self, candidate: Candidate, results: Sequence[CandidateResult], max_general_loss: float) -> str:
        """Return why a candidate is not tried, by what its gentler one lost on general pairs; empty if it is tried.

        Args:
            candidate: not yet scored.
            results: of those before it.
            max_general_loss: how many points a candidate may lose: see :func:`~st_extras.adaptation.choice.is_tried`.
        """
        if candidate.gentler is None or not self.general_counts or isinstance(self._chooser, Measure):
            return ""
        gentler = next((one for one in results if one.name == candidate.gentler), None)
        if gentler is None:
            return f"as {candidate.gentler} has no score"
        lost = self.lost(gentler.general)
        if is_tried(lost, max_general_loss, by_labels=False):
            return ""
        return f"as {gentler.name} loses {lost:.2f} on general pairs"

    def _encode_measured_texts(self, model: SentenceTransformer) -> None:
        """Encode general pairs and the development set, once for all transforms of a model."""
        self._of_general = self._encode(model, self._general.texts)
        if isinstance(self._chooser, Measure):
            self._of_dev = self._encode(model, self._chooser.texts)
        self._model = model  # last: if encoding failed, the embeddings are not those of this model

    def result(self, candidate: Candidate, max_general_loss: float) -> CandidateResult:
        """Score a candidate; it is accepted if it is better than the base model and keeps general English.

        Args:
            candidate: see :class:`Candidate`.
            max_general_loss: how many points it may lose on general pairs.
        """
        began = time.perf_counter()
        if candidate.model is not self._model:
            self._encode_measured_texts(candidate.model)
        low = high = general = None
        if isinstance(self._chooser, Measure):
            gain = self._chooser.score(candidate.transformed(self._of_dev)) - (self.base_dev or 0.0)
        else:
            label_free = self._chooser.compare(candidate.transformed(candidate.held_out_embeddings))
            gain, low, high = label_free.gain, label_free.low, label_free.high
        if self.general_counts:
            general = self._general.score(candidate.transformed(self._of_general))
        reason = objections(gain, low, self.lost(general), max_general_loss)
        return CandidateResult(
            name=candidate.name,
            gain=gain,
            low=low,
            high=high,
            general=general,
            accepted=not reason,
            reason=reason,
            seconds=round(candidate.seconds + time.perf_counter() - began, 1),
        )
