"""Make a good encoder better on text of one's own, without labels, or leave it alone."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from datasets import Dataset, IterableDataset
from sentence_transformers import SentenceTransformer

from st_extras.adaptation.candidates import CANDIDATES, TRAININGS, Candidate, TrainingTime, propose
from st_extras.adaptation.encode import (
    FEWEST_TEXTS,
    TRAINING,
    WORK,
    Encoded,
    EncodeTexts,
    WorkFolder,
    drawn_texts,
    encode,
    encode_texts,
    seconds_per_text,
    source_of,
)
from st_extras.adaptation.judge import Judged, Row, check_dev, choose, judge
from st_extras.adaptation.language_model import MOST_TEXTS, PASSES, is_language_model, judge_readings
from st_extras.adaptation.report import REPORTS, Adapted, write_neighbors, write_report
from st_extras.adaptation.search import adapt_search, check_searchable
from st_extras.adaptation.search_judge import FEWEST_DOCUMENTS, Searched, drawn_queries
from st_extras.checks import check_bool, check_count, check_interval, check_seed, check_weight
from st_extras.encoders.adapters import check_adapters
from st_extras.encoders.dropout import dropout_acts
from st_extras.encoders.structure import embedding_dimension, modes_kept
from st_extras.evaluation import LabeledTexts, RetrievalTask, STSDataset
from st_extras.evaluation.geometry import unrelated_cosines
from st_extras.modules import pipeline
from st_extras.text.term_weights import BM25
from st_extras.training.arguments import check_known
from st_extras.training.run_folder import check_output, save_model, undone_if_it_fails

_ENCODING_SHARE = 0.6  # of the time; the rest is for candidates and judge


def adapt(
    model: SentenceTransformer,
    sentences: Sequence[str] | Dataset | IterableDataset,
    output: str | os.PathLike[str],
    *,
    dev: STSDataset | LabeledTexts | RetrievalTask | None = None,
    queries: Sequence[str] | str | None = None,
    keep_index: bool = False,
    minutes: float = 10.0,
    limit: int = 12_000,
    max_general_loss: float | None = None,
    train: bool = False,
    batch_size: int = 64,
    seed: int = 42,
    resume: bool = False,
    overwrite: bool = False,
    show_progress_bar: bool = True,
) -> Adapted:
    """Refine an encoder for the text of a domain, without labels, or leave it as it is; save the result.

    The first candidates are linear steps after the encoder, computed from its embeddings of the text: directions on
    which a text and its nearest neighbours (by embeddings and words together) agree are kept, the others shrunk. With
    ``train``, copies of the encoder are trained for some steps, and tried with and without such a step. Each candidate
    is judged on texts that it was not made from. A step of D x D numbers is a stock ``Dense`` module.

    A causal language model, read as it was saved, gets a layer, a pooling, a prompt and a linear step instead: see
    :mod:`st_extras.adaptation.language_model`. With ``train`` or ``max_general_loss``, it is refined as it is read.

    Args:
        model: the encoder. It is not changed.
        sentences: text of the domain: at least 500 different texts, better some thousand. A stream is read once.
        output: a new or empty folder, for the model, ``adaptation.json`` (the report), ``neighbors.md`` (neighbours
            before and after) and, with matplotlib, a picture of them, ``neighbors.png``.
        dev: graded pairs or labelled texts that choose in place of the judge: by Spearman correlation, or by the mean
            of 1-NN accuracy, V-measure and MAP@R. With ``queries``: judged queries, by nDCG@10.
        queries: adapt for search: ``sentences`` are the documents, and these, at least 20 different ones, what users
            look for in them, without judgements; "documents" makes some from the documents. The result has a route for
            each: use ``encode_query`` and ``encode_document``; both give length 1, so that dot product and cosine are
            the same; the encoder is judged by the one that it has. See :mod:`st_extras.adaptation.search`.
        keep_index: with ``queries``: change the queries' route alone, so that stored document embeddings stay valid.
        minutes: how long it may take, about; fewer texts are used if the encoder is slow, and no training is begun
            that would not end in time.
        limit: use at most this many texts, 500 to 50,000, drawn at random.
        max_general_loss: how many points of Spearman correlation a candidate may lose on 300 graded pairs of general
            English that come with the package. None: a fortieth of what the encoder lacks to 100 there, half a point
            for a good one, which has more to forget than a raw one. 200: any number; then stronger steps may be chosen,
            which suit encoders that are used for this domain alone.
        train: whether to try short trainings too (``TRAININGS``), each as long as there is time for it. They set the
            global random state, as every training does; without them, it stays.
        batch_size: texts per forward pass.
        seed: random seed.
        resume: continue a run of the same encoder, text and seed that was interrupted: what it encoded is used.
        overwrite: replace what an earlier run wrote to ``output``.
        show_progress_bar: show how far encoding and training are and how long they take.

    Raises:
        ValueError: if a setting is not allowed, ``output`` may not be used, nothing can be put after the encoder's
            pooling, it cuts its embeddings or searches by distances, an embedding is not finite, ``dev`` cannot be
            scored, or there is no such run to resume.
        ImportError: if bm25s is not installed, which judges with ``queries`` and without ``dev``.

    Example:
        >>> import tempfile
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> from st_extras.adaptation import adapt
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     adapted = adapt(raw_encoder(), sample_sentences()[:50], folder, show_progress_bar=False)
        >>> adapted.chosen is None
        True
    """
    began = time.perf_counter()
    check_interval("minutes", minutes, 0, 10_000, low_included=False)
    check_count("limit", limit, FEWEST_TEXTS, 50_000)
    if max_general_loss is not None:
        check_weight("max_general_loss", max_general_loss)
    seed = check_seed("seed", seed)
    check_bool("train", train)
    pipeline.check_encoding(batch_size, show_progress_bar)
    check_dev(dev, for_search=queries is not None)
    if queries is not None and (train or max_general_loss is not None):
        raise ValueError("train and max_general_loss must be left out with queries: search has a judge of its own.")
    if check_bool("keep_index", keep_index) and queries is None:
        raise ValueError("keep_index must be False without queries: it moves these alone.")
    output, chooser = Path(output), cast(Any, dev)
    work = WorkFolder(output / WORK)
    check_adaptation_output(output, resume=resume, overwrite=overwrite)
    check_adapters(model)
    if queries is None:
        embedding_dimension(model)
    else:
        check_searchable(model)
    if model.truncate_dim is not None:
        raise ValueError(f"model.truncate_dim must be None, as all dimensions are adapted, got {model.truncate_dim}.")
    role = "" if queries is None else "document"
    reads = queries is None and not train and max_general_loss is None and is_language_model(model)
    encoder = functools.partial(encode_texts, batch_size=int(batch_size), show_progress_bar=show_progress_bar)
    with modes_kept(model):
        drawn, read = drawn_texts(sentences, limit, seed)
        asked, made = ([], False) if queries is None else drawn_queries(queries, drawn, seed)
        if asked and dev is None:
            BM25(drawn[:1])  # the judge's: if it is not installed, say so before anything is encoded
        check_known(model, drawn[:2000], "sentences")
        source = source_of(model, role)
        if resume:
            used = work.resumed(source, [*asked, *drawn], seed, "text or queries" if asked else "text")
        with undone_if_it_fails(output), work.removed_after_mistakes():
            rate = seconds_per_text(model, drawn, functools.partial(encoder, role=role))
            if not resume:
                used = int(60 * minutes * _ENCODING_SHARE / max(rate, 1e-9))
                used = min(len(drawn), *([used // PASSES, MOST_TEXTS] if reads else [used]))
                work.remove()
                work.begin(source, [*asked, *drawn], seed, used)
            facts: dict[str, Any] = {"read": read, "drawn": len(drawn)}
            if queries is None:
                texts, end = drawn[:used], began + 60 * minutes
                if reads and used >= FEWEST_TEXTS:
                    encoded, judged = judge_readings(model, texts, encoder, work.path, chooser, end)
                else:
                    trainings = TrainingTime(rate, end) if train else None
                    encoded, judged = judge_steps(
                        model, texts, encoder, work.path, chooser, max_general_loss, seed, trainings, show_progress_bar
                    )
                if used < FEWEST_TEXTS <= len(drawn):
                    judged = dataclasses.replace(judged, reason=too_few(minutes, used))
                adapted = choose_and_save(model, encoded, judged, facts, output, began, seed)
            else:
                searched = Searched(drawn[: max(used, FEWEST_DOCUMENTS)], asked, made)
                adapted = adapt_search(
                    model, searched, facts, output, encoder, work.path, began, seed, dev=chooser, keep_index=keep_index
                )
            work.remove()
    return adapted


def judge_steps(
    model: SentenceTransformer,
    texts: Sequence[str],
    encode_texts: EncodeTexts,
    kept: Path,
    dev: STSDataset | LabeledTexts | None,
    max_general_loss: float | None,
    seed: int,
    trainings: TrainingTime | None,
    show_progress_bar: bool,
) -> tuple[Encoded, Judged]:
    """Encode, propose and judge: linear steps after the encoder and, with time for them, trainings.

    Returns:
        The texts with the embeddings of the start, and a row for each candidate.
    """
    encoded = encode(model, texts, encode_texts, kept)
    if encoded.reason:
        return encoded, Judged(reason=encoded.reason)
    proposed = propose(model, encoded, encode_texts, seed, trainings, kept / TRAINING, show_progress_bar)
    judged = judge(model, encoded, proposed, encode_texts, dev, max_general_loss, seed)
    if trainings is not None and judged.rows:
        judged.facts["dropout"] = dropout_acts(model)
    return encoded, judged


def too_few(minutes: float, used: int) -> str:
    """Say that the time is enough for too few texts, and what would be enough."""
    wanted = math.ceil(minutes * FEWEST_TEXTS / max(used, 1))
    return (
        f"Left as it is: {minutes:g} minutes are enough for {used} texts, and {FEWEST_TEXTS} are needed: give more "
        f"minutes, about {wanted} (--minutes {wanted})."
    )


def choose_and_save(
    model: SentenceTransformer,
    encoded: Encoded,
    judged: Judged,
    facts: dict[str, Any],
    output: Path,
    began: float,
    seed: int,
) -> Adapted:
    """Choose a candidate or none, and save the model and the report."""
    number, reason = choose(judged.rows)
    facts |= encoded.facts | judged.facts
    chosen, refined = None, model
    if number is not None:
        chosen = judged.candidates[number].as_encoder()
        refined = changed(chosen, judged.rows[number], facts)
    name = None if chosen is None else chosen.name
    spent = time.perf_counter() - began
    adapted = Adapted(refined, name, judged.reason or reason, judged.rows, facts, spent)
    save_model(refined, output, reports=REPORTS)
    if chosen is not None:
        before, after = encoded.of_judged, chosen.after(chosen.judged)
        facts["changed"] = write_neighbors(output, encoded.judged, before, after, seed=seed)
        facts["unrelated"] = {"before": unrelated_cosines(before), "after": unrelated_cosines(after)}
    write_report(output, adapted, (*CANDIDATES, *TRAININGS))
    return adapted


def changed(candidate: Candidate, row: Row, facts: dict[str, Any]) -> SentenceTransformer:
    """Return the model of a candidate: its encoder, with its step after the pooling, before a Normalize module.

    Weights are shared. The model card says what was put behind the encoder.
    """
    if candidate.step is None:
        return candidate.model
    model = pipeline.with_dense(candidate.model, *candidate.step)
    general = "" if row.general is None else f", general English pairs {facts['general']:.2f} -> {row.general:.2f}"
    line = (
        f"* **st-extras adapt**, {row.name}: made with {facts['texts'] - facts['judged']:,} unlabelled texts of a "
        f"domain{general}. The embeddings are not comparable with those of the encoder without it."
    )
    card: Any = model.model_card_data
    method, citation = candidate.method
    card.exported = card.exported | {method: (line, citation)}
    return model


def check_adaptation_output(output: str | os.PathLike[str], *, resume: bool, overwrite: bool) -> None:
    """Check that :func:`adapt` may write to ``output``. Nothing is created or deleted.

    Raises:
        ValueError: if it may not be used, also because of what no earlier run wrote, or there is nothing to resume.
    """
    check_bool("resume", resume)
    check_bool("overwrite", overwrite)
    interrupted = WorkFolder(Path(output) / WORK).is_one()
    if resume and not interrupted:
        raise ValueError(
            f"resume needs an interrupted adaptation in {str(output)!r}, got none: start without resume (--resume), or "
            "with overwrite (--overwrite)."
        )
    if interrupted and not (resume or overwrite):
        raise ValueError(
            f"output must be a new or empty folder, got {str(output)!r} with an interrupted adaptation: set resume "
            "(--resume) to go on with it, or overwrite (--overwrite) to start again."
        )
    check_output(output, overwrite=overwrite or resume, reports=REPORTS if interrupted else (*REPORTS, WORK))
