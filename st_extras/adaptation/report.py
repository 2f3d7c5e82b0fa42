"""What an adaptation found, as typed fields: the result of both jobs, its table and ``adaptation.json``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sentence_transformers import SentenceTransformer

from st_extras.evaluation.geometry import MovedThreshold
from st_extras.files import finite_json


@dataclass(frozen=True)
class TextSummary:
    """The texts of an adaptation in numbers.

    Attributes:
        read: texts that were read, without blank ones.
        sampled: different ones of these, at most ``limit``.
        encoded: those of the sample that were encoded before ``minutes`` were over; all without that limit.
        used: those of the encoded ones whose embedding is not zero.
        mean_words: words of a used text, on average; characters in scripts without spaces.
        scored: those of the used texts, at most 2,000, that candidates of :func:`adapt` are compared on: each by a
            transform that was computed without it. What is saved is computed from all used texts. 0: labels choose,
            or nothing was compared; also for search, where queries are compared.
        near_duplicates: share of the used texts, of the first 2,000, 0 to 1, that nearly repeat another one; None if
            not computed.
    """

    read: int
    sampled: int
    encoded: int
    used: int
    mean_words: float
    scored: int = 0
    near_duplicates: float | None = None


@dataclass(frozen=True)
class CandidateResult:
    """One candidate: a row of the table.

    Attributes:
        name: what was tried.
        gain: over the base model; see ``Adaptation.gain_measure`` for what it measures and its unit.
        low: lower end of the gain's 95 % interval; None if labels measure it.
        high: its upper end; None likewise.
        general: Spearman correlation times 100 on the packaged pairs of general English; None if not measured.
        why_not_accepted: why it may not be chosen; None if it may.
        seconds: what it took beyond encoding with the base model.
    """

    name: str
    gain: float
    low: float | None = None
    high: float | None = None
    general: float | None = None
    why_not_accepted: str | None = None
    seconds: float = 0.0

    @property
    def accepted(self) -> bool:
        """Whether it may be chosen."""
        return self.why_not_accepted is None

    @property
    def is_better(self) -> bool:
        """Whether it is better than the base model: by the whole interval, if there is one. False for NaN."""
        return (self.gain if self.low is None else self.low) > 0


@dataclass(frozen=True)
class DomainDetails:
    """What :func:`adapt` found out beside the candidates. None: not measured.

    Attributes:
        max_general_loss: how many points of ``general`` a candidate may lose; infinity is any loss (null in JSON).
        general: Spearman correlation times 100 of the base model on 300 graded pairs of general English; None also if
            it is below 30, where they show nothing.
        dev: score times 100 of the base model on ``dev``.
        mean_cosine: of two different texts, -1 to 1.
        confirmed_share: share of the scored texts, 0 to 1, that have a confirmed neighbour, in the part of them where
            it is lowest: see :class:`~st_extras.evaluation.LabelFreeComparison`.
        not_tried: which candidate was left out and why; None: all were tried.
        expected_points: between how many points the label-free gain of the chosen candidate lies by labels, in the mean
            of 1-NN accuracy, V-measure and MAP@R times 100: see
            :func:`~st_extras.adaptation.choice.expected_points`. None also with ``dev``, of fewer than 500 texts, or if
            the encoder hardly reads them.
        changed: share of texts, 0 to 1, with another nearest neighbour than before: of the scored texts, by transforms
            computed without them; with ``dev``, of the first 2,000, by the chosen one.
        unrelated_before: number n -> the cosine that one in n pairs of texts exceeds by the base model, with its 95 %
            interval, of the first 2,000 used texts: see :func:`~st_extras.evaluation.geometry.unrelated_cosines`.
        unrelated_after: the same by the chosen candidate.
        threshold: where ``threshold`` has to move for as many pairs to lie above it.
    """

    max_general_loss: float
    general: float | None = None
    dev: float | None = None
    mean_cosine: float | None = None
    confirmed_share: float | None = None
    not_tried: str | None = None
    expected_points: tuple[float, float] | None = None
    changed: float | None = None
    unrelated_before: dict[int, tuple[float, float, float]] | None = None
    unrelated_after: dict[int, tuple[float, float, float]] | None = None
    threshold: MovedThreshold | None = None


@dataclass(frozen=True)
class SearchDetails:
    """What :func:`adapt_search` found out beside the candidates.

    Attributes:
        queries: number of different queries that were used.
        made_from_documents: whether they were made from the documents.
        compared: number of the queries that share a word with a document, on which candidates are compared; None with
            ``dev``.
        dev: nDCG@10 times 100 of the base model on ``dev``; None without.
        changed: share of the queries, 0 to 1, with another first document than before; None if nothing was chosen.
        bm25_weight: w in the score ``similarity + w * BM25`` of a hybrid search with the saved model: see
            :class:`~st_extras.search.HybridSearch`, which finds the same. None without documents or queries, and where
            documents were left out: repeated ones, beyond ``limit``, or not encoded in the time.
    """

    queries: int
    made_from_documents: bool
    compared: int | None = None
    dev: float | None = None
    changed: float | None = None
    bm25_weight: float | None = None


Details = TypeVar("Details", bound=DomainDetails | SearchDetails)


@dataclass(frozen=True)
class Adaptation(Generic[Details]):
    """What a job found and saved.

    Attributes:
        model: the chosen model, of stock modules; the given one if ``chosen`` is None.
        chosen: name of the chosen candidate; None: the encoder is left unchanged.
        reason: why, in one sentence.
        gain_measure: what the candidates' ``gain`` measures, with its unit.
        candidates: what was tried.
        texts: the texts in numbers; for search, the documents.
        details: what else was found out: :class:`DomainDetails` of ``adapt``, :class:`SearchDetails` of
            ``adapt_search``.
        seconds: how long it took.
    """

    model: SentenceTransformer = field(repr=False)
    chosen: str | None
    reason: str
    gain_measure: str
    candidates: list[CandidateResult]
    texts: TextSummary
    details: Details
    seconds: float

    @property
    def cut_short(self) -> str | None:
        """A sentence that says so if ``minutes`` were over before all texts were encoded; None if they were not."""
        if self.texts.encoded == self.texts.sampled:
            return None
        return f"Cut short by its minutes: {self.texts.encoded:,} of {self.texts.sampled:,} texts were encoded."

    @property
    def chosen_result(self) -> CandidateResult | None:
        """The chosen candidate; None if the encoder is left unchanged."""
        return next((one for one in self.candidates if one.name == self.chosen), None)

    def as_json(self) -> dict[str, Any]:
        """Return all but the model as JSON can hold it; ``changed`` is False if the encoder is left unchanged."""
        report: dict[str, Any] = {
            "changed": self.chosen is not None,
            "cut_short": self.cut_short,
            "chosen": self.chosen,
            "reason": self.reason,
            "gain_measure": self.gain_measure,
            "candidates": [dataclasses.asdict(one) | {"accepted": one.accepted} for one in self.candidates],
            "texts": dataclasses.asdict(self.texts),
            "details": dataclasses.asdict(self.details),
            "seconds": round(self.seconds, 1),
        }
        return finite_json(report)  # type: ignore[no-any-return]

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the titles and the rows of a table, the base model first, without columns that would be empty.

        Nothing if no candidate was tried.
        """
        if not self.candidates:
            return [], []
        general = self.details.general if isinstance(self.details, DomainDetails) else None
        base = ["base model", "", "", "" if general is None else f"{general:.2f}", "", ""]
        rows = [base, *(_cells(one, general) for one in self.candidates)]
        titles = ["candidate", "gain", "95 % interval", "general", "seconds", "accepted"]
        kept = [any(row[column] not in ("", "0") for row in rows) for column in range(len(titles))]
        titles, *rows = ([cell for cell, keep in zip(row, kept, strict=True) if keep] for row in [titles, *rows])
        return titles, rows

    def __str__(self) -> str:
        """Return the reason and the table; before them, whether the run was cut short."""
        titles, rows = self.table()
        lines = [titles, *rows] if rows else []
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
        first = [] if self.cut_short is None else [self.cut_short]
        return "\n".join([*first, self.reason, *("  ".join(cells).rstrip() for cells in padded)])


def _cells(row: CandidateResult, base_general: float | None) -> list[str]:
    interval = "" if row.low is None or row.high is None else f"{row.low:+.4f} to {row.high:+.4f}"
    general = "" if row.general is None else f"{row.general:.2f}"
    if row.general is not None and base_general is not None:
        general += f" ({row.general - base_general:+.2f})"
    accepted = "yes" if row.why_not_accepted is None else f"no: {row.why_not_accepted}"
    return [row.name, f"{row.gain:+.4f}", interval, general, f"{row.seconds:.0f}", accepted]
