"""The questions about the mechanisms: which rows of the mechanisms_*.toml studies are compared with which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.tables.verdict import SOURCES

Figure = Callable[[dict[str, Any]], float | None]
"""Takes a figure out of a record; None where it has none."""


@dataclass(frozen=True)
class Question:
    """The rows of a table: the first is what the others are compared with, seed by seed.

    Args:
        rows: by label, the records as ``study/method study/method ...``.
        figures: by title, what else a record says, with the format of its mean.
        every: which evaluations count, those at multiples of so many steps: so that a method that evaluated more often,
            or before a warm-up had ended, has no advantage. Test scores are of other weights where another evaluation
            was the best, and left out. 1: all of them count.
    """

    rows: dict[str, str]
    figures: dict[str, tuple[Figure, str]] = field(default_factory=dict)
    every: int = 1

    def best_step(self, record: dict[str, Any]) -> int:
        """Return the step of the best evaluation that counts."""
        counted = self._counted(record)
        return max(counted, key=lambda step: counted[step])

    def dev(self, record: dict[str, Any]) -> float:
        """Return STS-B dev at that step."""
        return self._counted(record)[self.best_step(record)]

    def _counted(self, record: dict[str, Any]) -> dict[int, float]:
        """Return dev at the steps that count; at the only one for the record of a start, which has no curve."""
        curve: list[tuple[int, float]] = record.get("curve", [])
        return {step: dev for step, dev in curve if step and step % self.every == 0} or {0: record["dev"]}

    def average(self, record: dict[str, Any]) -> float | None:
        """Return the average of the seven sets; None if it is of other weights."""
        return record["average"] if record["best_step"] == self.best_step(record) else None

    def average_without_dev(self, record: dict[str, Any]) -> float | None:
        """Return the same without the pairs that STS-B dev holds; None for a record without it, too."""
        without = record.get("without_dev") or {}
        return without.get("average") if self.average(record) is not None else None


def last_logged(name: str) -> Figure:
    """Return what takes the last logged value of an instrument, by the end of its name."""

    def figure(record: dict[str, Any]) -> float | None:
        values = [value for _, entry in record.get("log", ()) for key, value in entry.items() if key.endswith(name)]
        return values[-1] if values else None

    return figure


def over_entropy(record: dict[str, Any]) -> float | None:
    """Return by how much AT was above the labels' entropy, at the last logged step: chance is 0."""
    loss, entropy = last_logged("adversarial_loss")(record), last_logged("labels_entropy")(record)
    return None if loss is None or entropy is None else loss - entropy


def step_milliseconds(record: dict[str, Any]) -> float | None:
    """Return the time of a training step; None for a record without the times of its evaluations."""
    times = record.get("training_seconds")
    return 1000 * times[-1][1] / times[-1][0] if times else None


STEP: dict[str, tuple[Figure, str]] = {"ms a step": (step_milliseconds, "{:.0f}")}
ADVERSARIES: dict[str, tuple[Figure, str]] = {
    "share of the softmax": (last_logged("adversary_share"), "{:.2%}"),
    "turned by": (last_logged("adversary_angle"), "{:.2f}°"),
}
EQUILIBRIUM: dict[str, tuple[Figure, str]] = {
    "AT minus entropy": (over_entropy, "{:+.2f}"),
    "accuracy, balanced": (last_logged("balanced_accuracy"), "{:.1%}"),
}
"""AT is the discriminator's cross-entropy, so 0 is chance and below 0 it knows; above 0 it is confidently wrong."""
AFTER = 50
"""The evaluations that count for SLT-FAI: none of them is inside its warm-up of 20 or 40 steps."""


def heads(own: bool) -> Question:
    """Ask what the projection head costs."""
    study = _study("heads", own)
    return Question(
        {
            "SimCSE": SOURCES["SimCSE"][own],
            "SimCSE with a head": f"{study}/simcse-head",
            "AdCSE, momentum head (paper)": SOURCES["AdCSE"][own],
            "AdCSE, shared head (code)": f"{study}/adcse-shared-head",
            "AdCSE, no head": SOURCES["AdCSE, no head"][own],
        },
        STEP,
    )


def heads_behind_cls(own: bool) -> Question:
    """Ask the same with [CLS] pooling, the paper's."""
    names = {
        "SimCSE": "simcse",
        "start": "start",
        "SimCSE with a head": "simcse-head",
        "AdCSE, momentum head (paper)": "adcse-momentum-head",
        "AdCSE, no head": "adcse-no-head",
    }
    searched = {label: name for label, name in names.items() if name not in ("start", "simcse-head")}
    names |= _at_rates(searched, ("1e-5", "3e-5", "1e-4", "1e-3"))
    return Question(_methods(_study("heads_cls", own), names), STEP)


def adversaries(own: bool) -> Question:
    """Ask what adversaries do once they live; nothing has a head."""
    study = _study("adversaries", own)
    names = {
        "none": "no-adversaries",
        "random, 3e-2": "random-3e-2",
        "random, 0.3": "random-3e-1",
        "features, fixed": "features-0",
        "features, 3e-3": "features-3e-3",
        "features, 3e-2": "features-3e-2",
        "features, 0.3": "features-3e-1",
        "features, 1": "features-1",
        "features, 3e-2, temperature 0.02": "features-3e-2-temperature-002",
        "features, 3e-2, temperature 0.2": "features-3e-2-temperature-02",
        "queue: keys of the last batch": "queue-1",
        "queue: keys of one batch in 25": "queue-25",
        "256 from features, 3e-2": "features-256-3e-2",
        "256 keys of the last batches": "queue-256-1",
    }
    rows = {"random, 3e-3 (paper)": SOURCES["AdCSE, no head"][own], "SimCSE": SOURCES["SimCSE"][own]}
    return Question(rows | _methods(study, names), ADVERSARIES | STEP)


def decoupled(own: bool) -> Question:
    """Ask what lifts DCLR above SimCSE."""
    study = _study("dclr", own)
    no_guide = "own_encoder/dclr-no-guide" if own else f"dclr_ablations/dclr-no-weighting {study}/dclr-no-weighting"
    rows = {
        "SimCSE": SOURCES["SimCSE"][own],
        "SimCSE, positive not in the denominator": f"{study}/simcse-no-positive",
        "+ noise (DCLR without weights)": no_guide,
        "+ noise and weights (DCLR)": SOURCES["DCLR"][own],
        "SimCSE on ConSERT's views": f"{study}/simcse-consert-views",
        "SimCSE on ConSERT's views, positive not in the denominator": f"{study}/simcse-consert-views-no-positive",
        f"+ noise (the recipe{'' if own else ', at 1e-4'})": SOURCES["DCLR on ConSERT's views, no guide"][own],
        "ConSERT": SOURCES["ConSERT"][own],
        "ConSERT, positive not in the denominator": f"{study}/consert-no-positive",
        "DCLR, positive in the denominator": f"{study}/dclr-positive",
        "distillation in place of weights": f"{study}/distillation",
    }
    shares = {"0.02": "002", "0.05": "005", "0.14": "014", "0.3": "03"}
    for guide, words in (("self", "by the model itself"), ("guide", "by SimCSE")):
        rows |= {f"{share} of the negatives out, {words}": f"{study}/share-{n}-{guide}" for share, n in shares.items()}
    return Question(rows, STEP)


def equal_rates(own: bool) -> Question:
    """Ask which method is best when each has the same rates."""
    study = _study("rates", own)
    rates = ("3e-5", "1e-4", "3e-4", "1e-3") if own else ("1e-5", "3e-5", "1e-4", "3e-4")
    names = {"SimCSE": "simcse", "AdCSE, no head": "adcse", "ConSERT": "consert", "DCLR": "dclr"}
    main = "3e-4" if own else "3e-5"
    rows = {f"{label} at {main}, every 25 steps": SOURCES[label][own] for label in names}
    return Question(rows | _methods(study, _at_rates(names, rates)), STEP)


def equilibrium(own: bool) -> Question:
    """Ask whether SLT-FAI gains once its game has an equilibrium."""
    fast = "confusion, balanced, warm; discriminators at 1e-3"
    names = {
        "SLT-FAI (paper)": "slt-fai",
        "confusion": "slt-fai-confusion",
        "balanced": "slt-fai-balanced",
        "warm discriminators": "slt-fai-warm",
        "warm, ramped up": "slt-fai-ramp",
        "confusion, warm": "slt-fai-confusion-warm",
        "confusion, balanced, warm": "slt-fai-equilibrium",
        fast: "slt-fai-equilibrium-discriminators-1e-3",
        f"{fast}, weight 0.1": "slt-fai-equilibrium-weight-01-discriminators-1e-3",
        "weight 0.1": "slt-fai-weight-01",
        "weight 0.03": "slt-fai-weight-003",
        "weight 0.01": "slt-fai-weight-001",
        "without AT": "slt-fai-no-at",
        "without AT, ISF at weight 0.1": "slt-fai-no-at-weight-01",
        "without AT, rare tokens deleted": "slt-fai-no-at-deleted",
        "without ISF": "slt-fai-no-isf",
        "without ISF, AT with an equilibrium": "slt-fai-no-isf-equilibrium-discriminators-1e-3",
        "the authors' form": "authors-form",
    }
    return _over("SimCSE", names, own)


def equilibrium_over_consert(own: bool) -> Question:
    """Ask the same over ConSERT, with the low-frequency share of figure 4."""
    names = {
        "SLT-FAI (paper)": "consert-slt-fai",
        "confusion, balanced, warm, discriminators at 1e-3": "consert-slt-fai-equilibrium-discriminators-1e-3",
        "without AT": "consert-slt-fai-no-at",
        "without ISF": "consert-slt-fai-no-isf",
        **{f"lambda {share}0 %": f"consert-slt-fai-lambda-0{share}" for share in (1, 3, 7, 9)},
        "the authors' form": "consert-authors-form",
    }
    return _over("ConSERT", names, own)


def _over(base: str, names: dict[str, str], own: bool) -> Question:
    rows = {base: SOURCES[base][own], "SLT-FAI (paper), main grid": SOURCES[f"SLT-FAI over {base}"][own]}
    return Question(rows | _methods(_study("slt_fai", own), names), EQUILIBRIUM | STEP, AFTER)


def spared(own: bool) -> Question:
    """Ask what spares PaSeR's encoder the noise of a young decoder: 400 steps, dev only."""
    study = _study("paser", own)
    names = {
        "output tied (paper)": "tied",
        "output tied, encoder at 3e-4": "tied-3e-4",
        "output of its own": "own",
        "output tied, detached": "detached",
        "drawn N(0, 0.02)": "normal",
        "pre-norm": "pre-norm",
        "encoder frozen for 100 steps": "frozen-100",
        "encoder frozen for 100 steps, then at 1e-4": "frozen-100-1e-4",
        "encoder frozen for 100 steps, then at 3e-4": "frozen-100-3e-4",
        "encoder frozen for 100 steps, then at 1e-3": "frozen-100-1e-3",
        "encoder frozen for 200 steps": "frozen-200",
        "detached, frozen": "detached-frozen",
        "own, normal": "own-normal",
        "own, normal, frozen": "own-normal-frozen",
        "own, normal, pre-norm, frozen": "own-normal-pre-norm-frozen",
        "rates warm up for 100 steps": "rate-warmup",
        "MLM": "mlm",
        "MLM, detached, frozen": "mlm-detached-frozen",
    }
    rows = {"SimCSE": SOURCES["SimCSE"][own]} | {label: f"{study}/explore-{name}" for label, name in names.items()}
    return Question(rows, {"dev at step 50": (dev_at(50), "{:.2f}"), "dev at step 100": (dev_at(100), "{:.2f}")} | STEP)


def phrases(own: bool) -> Question:
    """Ask whether PaSeR then gains: 800 steps."""
    study = _study("paser", own)
    names = {
        "encoder at 3e-4, output tied": "tied-3e-4",
        "encoder frozen for 100 steps, then at 1e-4": "frozen-100-1e-4",
        "encoder frozen for 100 steps, then at 3e-4": "frozen-100-3e-4",
        "encoder frozen for 100 steps, then at 1e-3": "frozen-100-1e-3",
        "output tied, detached; frozen": "detached-frozen",
        "output of its own, normal; frozen": "own-normal-frozen",
        "output of its own, normal, pre-norm; frozen": "own-normal-pre-norm-frozen",
        "MLM, detached; frozen": "mlm-detached-frozen",
        "synonyms, tied": "synonyms",
        "synonyms, detached; frozen": "synonyms-detached-frozen",
        "3,000 steps, detached; frozen": "long-detached-frozen",
        "3,000 steps, frozen, then at 3e-4": "long-frozen-100-3e-4",
        "3,000 steps, own, normal; frozen": "long-own-normal-frozen",
    }
    rows = {
        "SimCSE": SOURCES["SimCSE"][own],
        "PaSeR, no MLM, output tied": SOURCES["PaSeR, searched: no MLM, decoder at 1e-3"][own],
    }
    return Question(rows | _methods(study, names), STEP)


def beside(own: bool) -> Question:
    """Ask whether phrases lift SimCSE in one loss with it (eq. 5 without labels): 400 steps."""
    study = _study("paser", own)
    names = {"SimCSE on PaSeR's rows": "simcse-on-its-rows", "SimCSE beside phrases": "simcse-with-phrases"}
    rows = _methods(study, names) | {"SimCSE": SOURCES["SimCSE"][own]}
    if not own:
        rows |= {"SimCSE at 1e-4": "mechanisms_rates/simcse-1e-4"} | _methods(study, _at_rates(names, ("1e-4",)))
    return Question(rows, STEP)


def dev_at(step: int) -> Figure:
    """Return what takes STS-B dev at a step."""
    return lambda record: dict(record["curve"]).get(step)


def _study(name: str, own: bool) -> str:
    return f"mechanisms_{name}{'_own' if own else ''}"


def _methods(study: str, names: dict[str, str]) -> dict[str, str]:
    return {label: f"{study}/{name}" for label, name in names.items()}


def _at_rates(names: dict[str, str], rates: Sequence[str]) -> dict[str, str]:
    return {f"{label} at {rate}": f"{name}-{rate}" for rate in rates for label, name in names.items()}


QUESTIONS: dict[str, Callable[[bool], Question]] = {
    "heads": heads,
    "heads-cls": heads_behind_cls,
    "adversaries": adversaries,
    "decoupled": decoupled,
    "rates": equal_rates,
    "equilibrium": equilibrium,
    "equilibrium-consert": equilibrium_over_consert,
    "spared": spared,
    "phrases": phrases,
    "beside": beside,
}
