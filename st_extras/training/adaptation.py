"""Make a good encoder better on text of one's own, without labels, or leave it alone."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, IterableDataset
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.checks import check_count, check_interval, check_seed, check_weight, shown
from st_extras.evaluation import LabeledTexts, STSDataset
from st_extras.modules import pipeline
from st_extras.modules.encoding import part_of_model
from st_extras.text.corpus import iterate_sentences, reservoir_sample
from st_extras.training.candidates import CANDIDATES, FEWEST_TEXTS, FORGETS, Candidate, Row, TextEncoder, try_candidates
from st_extras.training.manifest import read_manifest, write_manifest
from st_extras.training.output_folder import OutputFolder, check_output, save_model
from st_extras.whole_file import whole_file

__all__ = ["CANDIDATES", "REPORT", "Adapted", "Candidate", "Row", "adapt"]
REPORT = "adaptation.json"
_ENCODING_SHARE = 0.6  # of the time; the rest is for candidates and judge


@dataclass(frozen=True)
class Adapted:
    """What :func:`adapt` found.

    Attributes:
        model: the chosen model, of stock modules; the given one if ``chosen`` is None.
        chosen: name of the chosen candidate; None: left as it is.
        reason: why, in one sentence.
        rows: the table, without the start.
        facts: of text and encoder, as far as found out: drawn (different texts, at most ``limit``), texts (those used),
            judged (those of them that the judge kept), mean_words, mean_cosine (of two different texts),
            confirmed_share (see :class:`~st_extras.evaluation.change.ChangeJudge`), general (score of the start).
        seconds: how long it took.
    """

    model: SentenceTransformer
    chosen: str | None
    reason: str
    rows: list[Row]
    facts: dict[str, Any]
    seconds: float


def adapt(
    model: SentenceTransformer,
    sentences: Sequence[str] | Dataset | IterableDataset,
    output: str | os.PathLike[str],
    *,
    dev: STSDataset | LabeledTexts | None = None,
    minutes: float = 10.0,
    limit: int = 12_000,
    max_general_loss: float | None = 1.0,
    batch_size: int = 64,
    seed: int = 42,
    overwrite: bool = False,
    show_progress_bar: bool = True,
) -> Adapted:
    """Refine an encoder for the text of a domain, without labels, or leave it as it is; save the result.

    The candidates are linear steps after the encoder, computed from its embeddings of the text: directions on which a
    text and its nearest neighbours (by embeddings and words together) agree are kept, the others shrunk. Each is judged
    on texts that it was not fitted on. The encoder's weights are not trained; a step of D x D numbers is added, as a
    stock ``Dense`` module.

    Args:
        model: the encoder. It is not changed.
        sentences: text of the domain: at least 500 different texts, better some thousand. A stream is read once.
        output: a new or empty folder, for the model and ``adaptation.json``, the report.
        dev: graded pairs or labelled texts that choose in place of the judge: by Spearman correlation, or by the mean
            of 1-NN accuracy, V-measure and MAP@R.
        minutes: how long it may take, about; fewer texts are used if the encoder is slow.
        limit: use at most this many texts, 500 to 50,000, drawn at random.
        max_general_loss: how many points of Spearman correlation a candidate may lose on 300 graded pairs of general
            English that come with the package. None: any number; then stronger steps may be chosen, which suit encoders
            that are used for this domain alone.
        batch_size: texts per forward pass.
        seed: random seed.
        overwrite: replace what an earlier run wrote to ``output``.
        show_progress_bar: show the progress of encoding.

    Raises:
        ValueError: if a setting is not allowed, ``output`` may not be used, nothing can be put after the encoder's
            pooling, an embedding is not finite, or ``dev`` cannot be scored.

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
    pipeline.check_encoding(batch_size, show_progress_bar)
    if not isinstance(dev, STSDataset | LabeledTexts | None):
        raise ValueError(f"dev must be an STSDataset, LabeledTexts or None, got {shown(dev)}.")
    _check_output(Path(output), overwrite)
    modules, normalize = pipeline.split_before_normalize(model)
    pipeline.embedding_dimension(modules)
    drawn = reservoir_sample(_non_empty(sentences), limit, seed, distinct=True)
    random.Random(seed).shuffle(drawn)  # text is often sorted, by label or source: the judge must see all kinds
    with OutputFolder.at(output), _modes_kept(model), part_of_model(model, modules) as encoder:
        encode = TextEncoder(encoder, batch_size, show_progress_bar)
        texts = drawn[: encode.affordable(drawn, 60 * minutes * _ENCODING_SHARE)]
        trial = try_candidates(encode, texts, dev, max_general_loss, seed)
        trial.facts["drawn"] = len(drawn)
        if len(texts) < FEWEST_TEXTS <= len(drawn):
            trial.reason = (
                f"Left as it is: {minutes:g} minutes are enough for {len(texts)} texts, and {FEWEST_TEXTS} are needed: "
                "give more minutes."
            )
        best = max((row for row in trial.rows if row.accepted), key=lambda row: row.gain, default=None)
        refined = model if best is None else with_step(model, modules, normalize, *trial.steps[best.name])
        reason = trial.reason or (_left_as_it_is(trial.rows) if best is None else f"{best.name} was best.")
        name = None if best is None else best.name
        adapted = Adapted(refined, name, reason, trial.rows, trial.facts, time.perf_counter() - began)
        save_model(refined, output)
        _save_report(adapted, Path(output))
    return adapted


def _left_as_it_is(rows: list[Row]) -> str:
    """Say why no candidate was chosen."""
    if any(row.why == FORGETS for row in rows):
        return "Left as it is: what was better than the start loses too much on general pairs (see max_general_loss)."
    return "Left as it is: no candidate was better than the start."


def with_step(
    model: SentenceTransformer, modules: list[Any], normalize: list[Any], matrix: Tensor, offset: Tensor
) -> SentenceTransformer:
    """Return a model of ``modules``, a candidate's step v X + b and ``normalize``; weights are shared."""
    with torch.random.fork_rng(devices=[]):  # Dense draws weights before it takes these
        dense = pipeline.as_dense(matrix.T.float(), offset.float())
    return pipeline.rebuild_model(model, [*modules, dense.to(model.device), *normalize])


@contextmanager
def _modes_kept(model: SentenceTransformer) -> Iterator[None]:
    """Put each module back into training or evaluation mode at the end: encoding switches to the latter."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _check_output(output: Path, overwrite: bool) -> None:
    """Check the folder, also for a report that no earlier run wrote.

    Raises:
        ValueError: if it may not be used.
    """
    check_output(output, overwrite=overwrite)
    if (output / REPORT).exists() and REPORT not in read_manifest(output):
        raise ValueError(
            f"output must be a folder whose files may be replaced, got {str(output)!r} with {REPORT!r}, which no "
            "earlier run wrote: choose another folder, or move that away."
        )


def _non_empty(sentences: Any) -> Any:
    return (text for text in map(str.strip, iterate_sentences(sentences)) if text)


def _save_report(adapted: Adapted, output: Path) -> None:
    report = {
        "chosen": adapted.chosen,
        "reason": adapted.reason,
        "candidates": [dataclasses.asdict(row) for row in adapted.rows],
        "facts": adapted.facts,
        "settings": {one.name: dataclasses.asdict(one) for one in CANDIDATES},
        "seconds": round(adapted.seconds, 1),
    }
    write_manifest(output, read_manifest(output) | {REPORT})
    with whole_file(output / REPORT) as partial:
        partial.write_text(json.dumps(report, indent=1) + "\n", encoding="utf8")
