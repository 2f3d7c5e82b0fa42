"""The rule of :func:`adapt`: which candidates are tried, which may be chosen, and which one is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from st_extras.adaptation.report import CandidateResult

MAX_GENERAL_LOSS = 2.0
"""By default, points that a candidate may lose on the packaged graded pairs (Spearman correlation times 100)."""
RAW_MEAN_COSINE = 0.7
"""Of two texts. Above it, an encoder is so raw that the graded pairs mislead, and any loss on them is allowed: on two
language models and BERT-small, whitening lost up to 6 points there, gained 8 to 18 on STS-B, and on three domains about
twice what the medium transform did. Of encoders at 0.68 and less, some lost 3 to 7 on both (docs/measured.md)."""
WHITENING_SHARE = 0.125
"""Whitening is tried if the medium transform loses no more than this share of ``max_general_loss``: chosen by the
records of an older study of ten encoders, for which texts were held out."""
SMALLEST_GENERAL_SCORE = 30.0
"""Of an encoder with less, the graded pairs show nothing: no candidate is refused for what it loses on them."""
ENOUGH = 0.75
"""Share of the best label-free gain that a gentler candidate needs to be chosen instead of the best one."""
POINTS_PER_GAIN = (30.0, 170.0)
"""What a label-free gain of 1 stands for by labels, in points of the mean of 1-NN accuracy, V-measure and MAP@R times
100: 10th and 90th percentile, to the nearest ten, of the accepted strengths on three domains and seven encoders, from
500 texts on: ``points_per_gain`` of benchmarks/tables/strength.py computes them from the records. A range computed from
two of the domains holds 6 of 10 strengths of the third; from fewer than 500 texts the range covers 0, so none is given
there."""
FEWEST_EXPECTED = 500
"""Of fewer texts, the score does not show how many points a transform gains."""
_LIMIT = "see max_general_loss, --max-general-loss"


@dataclass(frozen=True)
class Choice:
    """What is chosen.

    Attributes:
        name: of the chosen candidate; None: the base model stays.
        reason: why, in a sentence.
    """

    name: str | None
    reason: str


def default_general_loss(mean_cosine: float | None) -> float:
    """Return how many points may be lost on the graded pairs where no number is given; infinity: any loss.

    Args:
        mean_cosine: of two texts by the base model, -1 to 1; None: unknown.
    """
    return math.inf if mean_cosine is not None and mean_cosine > RAW_MEAN_COSINE else MAX_GENERAL_LOSS


def why_no_whitening(lost: float | None, max_general_loss: float) -> str | None:
    """Return why whitening is not tried after the medium transform; None if it is.

    The label-free score prefers strong transforms too much, and cannot be asked alone. Where whitening is worse than
    the medium transform, that one already loses on general English. Where the pairs show nothing, whitening is tried.

    Args:
        lost: points that the medium one loses on pairs of general English; None: these show nothing for this encoder.
        max_general_loss: how many a candidate may lose.
    """
    if lost is None or lost <= WHITENING_SHARE * max_general_loss:
        return None
    return f"as the medium one loses {lost:.2f} on general pairs"


def why_not_accepted(result: CandidateResult, lost: float | None, max_general_loss: float) -> str | None:
    """Return why a candidate may not be chosen; None if it may.

    Args:
        result: with its gain.
        lost: points lost on pairs of general English; None: these show nothing for this encoder.
        max_general_loss: how many it may lose.
    """
    reasons = []
    if not result.is_better:
        reasons.append("not better than the base model" + ("" if result.low is None else ", by the 95 % interval"))
    if lost is not None and not lost <= max_general_loss:  # also where a score is undefined (NaN)
        reasons.append(f"loses {lost:.2f} on general pairs, {max_general_loss:.2f} allowed")
    return "; ".join(reasons) or None


def choose(results: Sequence[CandidateResult], wanted: str | None = None) -> Choice:
    """Choose a candidate, or the base model.

    The label-free score prefers strong transforms too much, so the gentlest one is chosen that gains three quarters of
    what the best one gains. By labels, the best one is chosen.

    Args:
        results: of the candidates, the gentlest first.
        wanted: name of the candidate to take, whatever its scores; None: by the rule above.
    """
    if wanted is not None:
        return Choice(wanted, f"{wanted} was chosen, as strength asks.")
    accepted = [one for one in results if one.accepted]
    better = [one for one in results if one.is_better]
    if not accepted and better:
        return Choice(None, f"what was better than the base model loses too much on general pairs ({_LIMIT}).")
    if not accepted:
        return Choice(None, "no candidate was better than the base model.")
    best = max(accepted, key=lambda one: one.gain)
    chosen = best if best.low is None else next(one for one in accepted if one.gain >= ENOUGH * best.gain)
    strongest = max(better, key=lambda one: one.gain)
    if chosen is not best:
        reason = f"{chosen.name} was chosen: it has three quarters or more of the gain of {best.name}."
    elif strongest.gain > best.gain:
        reason = (
            f"{best.name} was best of what is accepted: {strongest.name} gains more and forgets too much ({_LIMIT})."
        )
    else:
        reason = f"{best.name} was best."
    return Choice(chosen.name, reason)


def expected_points(gain: float, texts: int) -> tuple[float, float] | None:
    """Return between how many points on labelled texts a label-free gain lies in 8 of 10 cases: ``POINTS_PER_GAIN``.

    None for a gain of 0 or less, as of a strength that was asked for: the records are of candidates that gained. None
    also for fewer than 500 texts.

    Args:
        gain: of a candidate, by cross-fitting.
        texts: how many it was computed from.
    """
    if gain <= 0 or texts < FEWEST_EXPECTED:
        return None
    fewest, most = POINTS_PER_GAIN
    return fewest * gain, most * gain
