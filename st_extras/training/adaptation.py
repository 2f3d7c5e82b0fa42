"""Make a good encoder better on text of one's own, without labels, or leave it alone."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset
from sentence_transformers import SentenceTransformer

from st_extras.checks import check_bool, check_count, check_interval, check_seed, check_weight, shown
from st_extras.encoders.dropout import dropout_acts
from st_extras.encoders.structure import embedding_dimension
from st_extras.evaluation import LabeledTexts, STSDataset
from st_extras.modules import pipeline
from st_extras.modules.encoding import part_of_model
from st_extras.text.corpus import iterate_sentences, reservoir_sample
from st_extras.training.adapted import REPORT, REPORTS, Adapted, finish
from st_extras.training.candidates import CANDIDATES, Candidate, Row
from st_extras.training.manifest import read_manifest
from st_extras.training.output_folder import OutputFolder, check_output
from st_extras.training.short_training import TRAININGS
from st_extras.training.text_encoder import WORK, TextEncoder, WorkFolder
from st_extras.training.trial import FEWEST_TEXTS, Trial

__all__ = ["CANDIDATES", "Adapted", "Candidate", "Row", "adapt"]
_ENCODING_SHARE = 0.6  # of the time; the rest is for candidates and judge


def adapt(
    model: SentenceTransformer,
    sentences: Sequence[str] | Dataset | IterableDataset,
    output: str | os.PathLike[str],
    *,
    dev: STSDataset | LabeledTexts | None = None,
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

    Args:
        model: the encoder. It is not changed.
        sentences: text of the domain: at least 500 different texts, better some thousand. A stream is read once.
        output: a new or empty folder, for the model, ``adaptation.json`` (the report), ``neighbors.md`` (neighbours
            before and after) and, with matplotlib, a picture of them, ``neighbors.png``.
        dev: graded pairs or labelled texts that choose in place of the judge: by Spearman correlation, or by the mean
            of 1-NN accuracy, V-measure and MAP@R.
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
            pooling, an embedding is not finite, ``dev`` cannot be scored, or there is no such run to resume.

    Example:
        >>> import tempfile
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> from st_extras.training import adapt
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
    if not isinstance(dev, STSDataset | LabeledTexts | None):
        raise ValueError(f"dev must be an STSDataset, LabeledTexts or None, got {shown(dev)}.")
    work = WorkFolder(Path(output) / WORK)
    check_adapted_output(output, resume=resume, overwrite=overwrite)
    with _opened(model, int(batch_size), show_progress_bar, "Encoding") as start, _modes_kept(model):
        drawn, read = _drawn(sentences, limit, seed)
        if resume:
            used = work.resumed(start.encoder, drawn, seed)
        with OutputFolder.at(output), _removed_after_mistakes(work):
            seconds_per_text = start.seconds_per_text(drawn)
            if not resume:
                used = min(len(drawn), int(60 * minutes * _ENCODING_SHARE / max(seconds_per_text, 1e-9)))
                work.remove()
                work.begin(start.encoder, drawn, seed, used)
            trial = Trial(start, drawn[:used], dev, max_general_loss, seed, work.path)
            trial.facts |= {"read": read, "drawn": len(drawn)}
            if used < FEWEST_TEXTS <= len(drawn):
                trial.reason = (
                    f"Left as it is: {minutes:g} minutes are enough for {used} texts, and {FEWEST_TEXTS} are needed: "
                    "give more minutes."
                )
            if train and not trial.reason:
                _train(trial, start, work, seconds_per_text, began + 60 * minutes, seed)
            adapted = finish(trial, model, Path(output), began, seed)
            work.remove()
    return adapted


@contextmanager
def _opened(model: SentenceTransformer, batch_size: int, show_progress_bar: bool, label: str) -> Iterator[TextEncoder]:
    """Yield an encoder of texts: the part of ``model`` that a step can be put after."""
    modules, _ = pipeline.split_before_normalize(model)
    embedding_dimension(model)
    with part_of_model(model, modules) as part:
        yield TextEncoder(model, part, batch_size, show_progress_bar, label)


def _drawn(sentences: Any, limit: int, seed: int) -> tuple[list[str], int]:
    """Return different texts in random order, and how many texts were read."""
    read = 0

    def texts() -> Iterator[str]:
        nonlocal read
        for text in map(str.strip, iterate_sentences(sentences)):
            read += bool(text)
            if text:
                yield text

    drawn = reservoir_sample(texts(), limit, seed, distinct=True)
    random.Random(seed).shuffle(drawn)  # text is often sorted, by label or source: the judge must see all kinds
    return drawn, read


def _train(trial: Trial, start: TextEncoder, work: WorkFolder, seconds_per_text: float, end: float, seed: int) -> None:
    """Try each training that has an end in time."""
    trial.facts["dropout"] = dropout_acts(start.model)
    for training in TRAININGS:
        seconds = training.seconds(seconds_per_text) + len(trial.judged + trial.fitted) * seconds_per_text
        if not trial.facts["dropout"]:
            trial.facts["not tried"] = "training, which needs an encoder whose dropout acts"
        elif time.perf_counter() + seconds > end:
            trial.facts["not tried"] = f"{training.name}, which would take {seconds / 60:.1f} minutes more"
        else:
            began = time.perf_counter()
            folder = work.path / "training"
            try:
                trained = training.trained_copy(start.model, trial.fitted, folder, seed, start.show_progress_bar)
            except ValueError as error:  # an encoder that cannot be trained so, or one that diverges
                trial.facts["not tried"] = f"{training.name}: {error}"
                continue
            spent = time.perf_counter() - began
            with _opened(trained, start.batch_size, start.show_progress_bar, training.name) as encode:
                trial.add(encode, training.name, spent=spent)


@contextmanager
def _removed_after_mistakes(work: WorkFolder) -> Iterator[None]:
    """Remove what was found out if it cannot be gone on with; an interruption leaves it."""
    try:
        yield
    except ValueError:
        work.remove()
        raise


@contextmanager
def _modes_kept(model: SentenceTransformer) -> Iterator[None]:
    """Put each module back into training or evaluation mode at the end: encoding switches to the latter."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def check_adapted_output(output: str | os.PathLike[str], *, resume: bool, overwrite: bool) -> None:
    """Check that :func:`adapt` may write to ``output``. Nothing is created or deleted.

    Raises:
        ValueError: if it may not be used, also because of what no earlier run wrote, or there is nothing to resume.
    """
    check_bool("resume", resume)
    check_bool("overwrite", overwrite)
    folder = Path(output)
    interrupted = WorkFolder(folder / WORK).is_one()
    finished = not interrupted and folder.is_dir() and REPORT in read_manifest(folder)
    if resume and not interrupted:
        found = "a finished one: use it, or start again" if finished else "none: start without resume (--resume), or"
        raise ValueError(
            f"resume needs an interrupted adaptation in {str(output)!r}, got {found} with overwrite (--overwrite)."
        )
    if (interrupted or finished) and not (resume or overwrite):
        found = "a finished adaptation: use it, or choose another folder"
        if interrupted:
            found = "an interrupted adaptation: set resume (--resume) to go on with it"
        raise ValueError(
            f"output must be a new or empty folder, got {str(output)!r} with {found}, or set overwrite (--overwrite) "
            "to start again."
        )
    check_output(folder, overwrite=overwrite or resume, reports=REPORTS)
