"""``adapt_language_model``: which layer, pooling, prompt and linear transform make a language model a sentence encoder.

A language model was never trained for similarity: its last layer prepares the next word, its cosines are all high, and
its tokens have seen only what stands before them. So these are tried: some of its layers, with the later ones cut off;
several poolings; a text alone, or in PromptEOL's prompt; no transform, EmbedFilter, or whitening, full and soft. The
score of each, of which the base model's is subtracted:

    100 AP + 100 Spearman

AP is the average precision with which a held-out text finds the five others that share most words with it, Spearman the
correlation on the graded pairs of general English that come with the package. Either alone errs: word overlap favours
the first layers, and the pairs show nothing of the corpus.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import time
from collections.abc import Sequence

from datasets import Dataset, IterableDataset
from sentence_transformers import SentenceTransformer

from st_extras.adaptation.choice import choose
from st_extras.adaptation.corpus import Corpus, apart_from, split_corpus
from st_extras.adaptation.extraction import (
    PROMPTS,
    Extraction,
    Grid,
    embed_filter,
    encode_grid,
    extractions,
    is_language_model,
)
from st_extras.adaptation.neighbors import write_neighbors
from st_extras.adaptation.report import Adaptation, CandidateResult, LanguageModelDetails
from st_extras.adaptation.run import AdaptationRun
from st_extras.adaptation.scoring import DEV_SCORE, check_dev, development, general_english
from st_extras.adaptation.transforms import card_line
from st_extras.evaluation import LabeledTexts, LabelFreeComparison, STSDataset
from st_extras.evaluation.geometry import unrelated_cosines
from st_extras.modules.linear import add_linear

MOST_TEXTS = 2_500
"""Of the sampled texts, more are not encoded: each has an embedding by every prompt, layer and pooling."""
_UNLABELED = "average precision of word overlap + Spearman on general pairs, x 100"


def adapt_language_model(
    model: SentenceTransformer,
    texts: Sequence[str] | Dataset | IterableDataset,
    output: str | os.PathLike[str],
    *,
    dev: STSDataset | LabeledTexts | None = None,
    minutes: float = 10.0,
    limit: int = 12_000,
    batch_size: int = 64,
    seed: int = 42,
    resume: bool = False,
    overwrite: bool = False,
    show_progress_bar: bool = True,
) -> Adaptation:
    """Make a sentence encoder of a causal language model, without labels, and save it.

    Some of its layers, with the later ones cut off, are tried with several poolings, with and without PromptEOL's
    prompt, and with and without a linear transform: see :mod:`st_extras.adaptation.language_model`. The best one is
    saved, of stock modules; the language model is left unchanged if none is better than the base model: its last layer
    with the pooling that it has.

    Args:
        model: a causal language model as :func:`~st_extras.encoders.load_encoder` loads it: one pooling, nothing after
            it, no prompt. It is not changed.
        texts: text of the kind to compare: at least 500 different texts; of the sampled ones, 2,500 are used.
        output: a new or empty folder, for the model, ``adaptation.json``, ``neighbors.md`` and ``neighbors.png``, see
            :func:`adapt`.
        dev: graded pairs or labelled texts to choose by, see :func:`adapt`.
        minutes: how long it may take, about; after 60 % of it encoding stops, after all of it no further layer or
            prompt is tried.
        limit: sample at most this many texts, 500 to 50,000.
        batch_size: texts per forward pass.
        seed: random seed.
        resume: continue an interrupted run in ``output``: what it encoded with this model and these texts is used.
        overwrite: replace what an earlier run wrote to ``output``.
        show_progress_bar: show how far encoding is.

    Returns:
        What was chosen, its model, and the best candidate of each layer with each prompt; ``details`` is a
        :class:`LanguageModelDetails`.

    Raises:
        ValueError: if ``model`` is no such language model, a setting is not allowed, ``output`` may not be used, an
            embedding is not finite, ``dev`` cannot be scored, or there is no interrupted run to resume.
    """
    check_dev(dev)
    if not is_language_model(model):
        raise ValueError(
            "model must be a causal language model with one pooling, nothing after it and no prompt, got another one: "
            "use adapt for sentence encoders."
        )
    with AdaptationRun(
        model,
        output,
        minutes=minutes,
        limit=limit,
        batch_size=batch_size,
        seed=seed,
        resume=resume,
        overwrite=overwrite,
        show_progress_bar=show_progress_bar,
    ) as run:
        sample = apart_from(run.sample(texts), dev)
        encode_in_time = functools.partial(run.encode, deadline=run.encoding_deadline)
        grid = encode_grid(model, sample.texts[:MOST_TEXTS], encode_in_time)
        corpus = split_corpus(sample, grid.base)
        details = LanguageModelDetails(mean_cosine=corpus.mean_cosine)
        if corpus.unusable:
            return run.save_unchanged(corpus.unusable, corpus.summary, details)
        grid = grid.of_texts(corpus.rows)

        scores = ExtractionScores(model, corpus, grid, run, dev)
        fitting_rows = slice(len(corpus.held_out), None)
        filter_transform = embed_filter(model)
        results: list[CandidateResult] = []
        tried: list[Extraction] = []
        not_tried: tuple[str, ...] = ()
        for layer, prompt in itertools.product(reversed(range(len(grid.layers))), range(len(PROMPTS))):
            began = time.perf_counter()
            if began > run.deadline:
                not_tried = ("further layers, as the time was up",)
                break
            candidates = extractions(grid, prompt, layer, fitting_rows, filter_transform)
            scored = ((*scores.gain_and_general(candidate), candidate) for candidate in candidates)
            gain, general, best = max(scored, key=lambda row: row[0])
            reason = "" if gain > 0 else "not better than the base model"
            results.append(
                CandidateResult(
                    name=best.name,
                    gain=gain,
                    low=None,
                    high=None,
                    general=general,
                    accepted=not reason,
                    reason=reason,
                    seconds=round(time.perf_counter() - began, 1),
                )
            )
            tried.append(best)
        details = dataclasses.replace(details, general=scores.base_general, dev=scores.base_dev, not_tried=not_tried)

        gain_measure = _UNLABELED if dev is None else DEV_SCORE
        if not results:
            reason = "no layer was tried, as the time was up: give more minutes."
            return run.save_unchanged(reason, corpus.summary, details, gain_measure)

        choice = choose(results)
        if choice.index is None:
            return run.save_unchanged(choice.reason, corpus.summary, details, gain_measure, results)
        chosen = tried[choice.index]
        refined = chosen.encoder(model)
        if chosen.transform is not None:
            line = card_line(chosen.name, len(corpus.fitting), details.general, results[choice.index].general)
            method, citation = chosen.method
            refined = add_linear(refined, chosen.transform, method=method, line=line, citation=citation)
        run.save(refined)
        before, after = corpus.held_out_embeddings, chosen.embeddings(grid)[: len(corpus.held_out)]
        details = dataclasses.replace(
            details,
            changed=write_neighbors(run.output, corpus.held_out, before, after, seed=run.seed),
            unrelated_before=unrelated_cosines(before),
            unrelated_after=unrelated_cosines(after),
        )
        return run.report(refined, chosen.name, choice.reason, gain_measure, results, corpus.summary, details)


class ExtractionScores:
    """Compares extractions with the base model: see the module's equation, or by a development set.

    It encodes general pairs and the development set in all ways when it is made.

    Args:
        model: the language model.
        corpus: the texts, with the base model's embeddings.
        grid: embeddings of these texts, in the same order.
        run: encodes the pairs of general English and the development set.
        dev: the development set.

    Attributes:
        base_general: Spearman correlation times 100 of the base model on the pairs of general English.
        base_dev: its score times 100 on ``dev``; None without.

    Raises:
        ValueError: if ``dev`` cannot be scored.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        corpus: Corpus,
        grid: Grid,
        run: AdaptationRun,
        dev: STSDataset | LabeledTexts | None,
    ) -> None:
        self._grid, self._held_out_rows = grid, slice(len(corpus.held_out))
        self._general = general_english()
        self._general_grid = encode_grid(model, self._general.texts, run.encode)
        self.base_general = self._general.score(self._general_grid.base)
        self.base_dev: float | None = None
        if dev is None:  # of the comparison, word overlap is used, for which no neighbour has to be confirmed
            self._comparison = LabelFreeComparison(corpus.held_out, corpus.held_out_embeddings, seed=run.seed)
        else:
            self._dev = development(dev)
            self._dev_grid = encode_grid(model, self._dev.texts, run.encode)
            self.base_dev = self._dev.score(self._dev_grid.base)

    def gain_and_general(self, extraction: Extraction) -> tuple[float, float]:
        """Return the gain of an extraction over the base model, and its own score on general pairs, both times 100."""
        general = self._general.score(extraction.embeddings(self._general_grid))
        if self.base_dev is not None:
            return self._dev.score(extraction.embeddings(self._dev_grid)) - self.base_dev, general
        held_out = extraction.embeddings(self._grid)[self._held_out_rows]
        change = self._comparison.compare(held_out, resamples=100)  # few: its interval is not used
        return 100 * change.word_overlap + general - self.base_general, general
