"""How candidates are judged, on texts that they were not made from, and which of them is chosen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.adaptation.candidates import Candidate, NotTried, one_line
from st_extras.adaptation.encode import Encoded, EncodeTexts
from st_extras.checks import shown
from st_extras.evaluation import LabeledTexts, RetrievalTask, STSDataset
from st_extras.evaluation.label_free import LEAST_CONFIRMED, LabelFreeComparison
from st_extras.evaluation.label_scores import label_scores
from st_extras.evaluation.retrieval_data import check_task
from st_extras.modules.lambda_search import rank_correlation
from st_extras.samples import graded_pairs

RAW = 70.0
"""An encoder with less on the packaged graded pairs (Spearman correlation times 100) is taken for a raw one."""
SMALLEST_GENERAL_SCORE = 30.0
"""Of an encoder with less, the graded pairs say nothing."""
ENOUGH = 0.75
"""Share of the best gain, by the judge, that a gentler candidate needs to be taken instead."""
_ALLOWED = "see max_general_loss, --max-general-loss"


@dataclass(frozen=True)
class Measure:
    """A score of embeddings, times 100.

    Attributes:
        texts: (N,).
        score: takes their embeddings (N, D).
    """

    texts: list[str]
    score: Callable[[Tensor], float]


def graded(first: Sequence[str], second: Sequence[str], grades: Sequence[float]) -> Measure:
    """Return the measure of graded pairs: Spearman correlation of cosine and grade."""

    def score(embeddings: Tensor) -> float:
        left, right = embeddings.chunk(2)
        cosines = torch.cosine_similarity(left, right)
        return 100 * rank_correlation(cosines, torch.tensor(grades))

    return Measure([*first, *second], score)


def general_english() -> Measure:
    """Return the measure of the 300 graded pairs of general English that come with the package."""
    return graded(*graded_pairs())


def check_dev(dev: object, *, for_search: bool) -> None:
    """Raise ValueError unless ``dev`` is None or data that can choose a candidate."""
    kinds = (RetrievalTask,) if for_search else (STSDataset, LabeledTexts)
    if dev is not None and not isinstance(dev, kinds):
        allowed = "a RetrievalTask, as queries are given," if for_search else "an STSDataset, LabeledTexts"
        raise ValueError(f"dev must be {allowed} or None, got {shown(dev)}.")
    if isinstance(dev, RetrievalTask):
        check_task("dev", dev)
    if isinstance(dev, LabeledTexts) and len(set(dev.labels)) == len(dev.labels):
        raise ValueError(f"dev must have a label that two texts share, got {len(dev.labels)} different ones.")


def development(dev: STSDataset | LabeledTexts) -> Measure:
    """Return the measure of a development set; of labelled texts: the mean of 1-NN accuracy, V-measure and MAP@R."""
    if isinstance(dev, STSDataset):
        return graded(dev.sentences1, dev.sentences2, dev.scores)
    return Measure(list(dev.texts), lambda embeddings: 100 * float(label_scores(embeddings, dev.labels)["mean"]))


@dataclass(frozen=True)
class Row:
    """One candidate in the table of :func:`adapt`.

    Attributes:
        name: what was tried.
        gain: over the start: the judge's, or that of the development set times 100.
        low: lower end of the judge's 95 % interval; None with a development set.
        high: its upper end; None with a development set.
        general: Spearman correlation times 100 on the packaged graded pairs; None if they say nothing here.
        accepted: whether it may be chosen.
        why: what speaks against it; empty if accepted.
        seconds: what the candidate took beyond the encoding of the start.
    """

    name: str
    gain: float
    low: float | None
    high: float | None
    general: float | None
    accepted: bool
    why: str
    seconds: float

    @property
    def better(self) -> bool:
        """Whether it is better than the start, whatever it forgets."""
        return (self.gain if self.low is None else self.low) > 0


@dataclass(frozen=True)
class Judged:
    """What was tried.

    Attributes:
        rows: the table, without the start.
        candidates: those of the rows.
        facts: what was found out about the start.
        reason: why nothing was tried; empty if something was.
    """

    rows: list[Row] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    reason: str = ""


def judge(
    model: SentenceTransformer,
    encoded: Encoded,
    candidates: Iterable[Candidate | NotTried],
    encode_texts: EncodeTexts,
    dev: STSDataset | LabeledTexts | None = None,
    max_general_loss: float | None = None,
    seed: int = 42,
) -> Judged:
    """Compare candidates with the start: on its judged texts or on ``dev``, and on pairs of general English.

    Args:
        model: the start.
        encoded: the texts and what the start makes of them.
        candidates: what to try.
        encode_texts: encodes the development set and the pairs.
        dev: chooses in place of the judge.
        max_general_loss: how much a candidate may lose on general pairs; None: a fortieth of what the start lacks.
        seed: of the judge's intervals.

    Raises:
        ValueError: if ``dev`` cannot be scored.
    """
    facts: dict[str, Any] = {}
    chooser = None if dev is None else development(dev)
    if chooser is None:
        compared = LabelFreeComparison(encoded.judged, encoded.of_judged, seed=seed)
        facts["confirmed_share"] = compared.confirmed_share
        if compared.confirmed_share < LEAST_CONFIRMED:
            reason = (
                f"Left as it is: only {compared.confirmed_share:.0%} of the texts have a neighbour that embeddings and "
                "words agree on, so nothing can be judged without labels."
            )
            return Judged(facts=facts, reason=reason)
    general = general_english()

    of_general, of_dev = _encoded_by(model, [general, chooser], encode_texts)
    general_start = general.score(of_general)
    facts["general"] = general_start if general_start >= SMALLEST_GENERAL_SCORE else None
    may_lose = (100 - general_start) / 40 if max_general_loss is None else max_general_loss
    if chooser is not None:
        facts["dev"] = chooser.score(of_dev)
    rows, tried, not_tried, last = [], [], [], model
    for candidate in candidates:
        if isinstance(candidate, NotTried):
            not_tried.append(candidate.why)
            continue
        if candidate.for_raw and chooser is None and general_start >= RAW:
            continue  # the judge likes strong steps too much
        try:
            began = time.perf_counter()
            if candidate.model is not last:
                of_general, of_dev = _encoded_by(candidate.model, [general, chooser], encode_texts)
                last = candidate.model
            low = high = score = None
            if chooser is not None:
                gain = chooser.score(candidate.after(of_dev)) - facts["dev"]
                why = [] if gain > 0 else ["not better than the start"]
            else:
                verdict = compared.compare(candidate.after(candidate.judged))
                gain, low, high = verdict.gain, verdict.low, verdict.high
                why = [] if low > 0 else ["not better than the start, by the 95 % interval"]
            if facts["general"] is not None:
                score = general.score(candidate.after(of_general))
                if (lost := general_start - score) > may_lose:
                    why.append(f"loses {lost:.2f} on general pairs, {may_lose:.2f} allowed")
            seconds = round(candidate.seconds + time.perf_counter() - began, 1)
            rows.append(Row(candidate.name, gain, low, high, score, not why, "; ".join(why), seconds))
            tried.append(candidate)
        except RuntimeError as error:  # such as too little memory
            not_tried.append(f"{candidate.name}: {one_line(error)}")
    if not_tried:
        facts["not tried"] = "; ".join(not_tried)
    reason = "" if rows else f"Left as it is: {facts.get('not tried', 'there was no candidate.')}"
    return Judged(rows, tried, facts, reason)


def _encoded_by(
    model: SentenceTransformer, measures: Sequence[Measure | None], encode_texts: EncodeTexts
) -> list[Tensor]:
    """Return the embeddings of the texts of each measure; none where there is no measure."""
    return [torch.zeros(0, 0) if one is None else encode_texts(model, one.texts) for one in measures]


def choose(rows: Sequence[Row]) -> tuple[int | None, str]:
    """Return the number of the row to choose and why; None: leave the encoder as it is.

    Rows come gentlest and cheapest first. The judge likes strong steps too much, so the first row is taken that gains
    three quarters of what the best one gains. A development set is taken at its word.
    """
    accepted = [row for row in rows if row.accepted]
    better = [row for row in rows if row.better]
    if not accepted and better:
        return None, f"Left as it is: what was better than the start loses too much on general pairs ({_ALLOWED})."
    if not accepted:
        return None, "Left as it is: no candidate was better than the start."
    best = max(accepted, key=lambda row: row.gain)
    taken = best if best.low is None else next(row for row in accepted if row.gain >= ENOUGH * best.gain)
    strongest = max(better, key=lambda row: row.gain)
    if taken is not best:
        reason = f"{taken.name} was taken: {best.name} gains little more."
    elif strongest.gain > best.gain:
        reason = (
            f"{best.name} was best of what is accepted: {strongest.name} gains more and forgets too much ({_ALLOWED})."
        )
    else:
        reason = f"{best.name} was best."
    return list(rows).index(taken), reason
