"""The columns of the table: each method with its options, and how their outcomes make one cell."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

from st_extras.losses import DCLRLoss, SimCSELoss
from tests.architectures import refined, trained
from tests.architectures.outcomes import Outcome, outcome_of
from tests.architectures.world import World

Try = Callable[[World], None]


@dataclass(frozen=True)
class Method:
    """One column.

    Attributes:
        tries: what is tried, by what the cell says where it works. All of them, the first that does not simply work
            being the cell; or with ``first``, one after the other until one is not refused.
        first: see there.
    """

    tries: dict[str, Try]
    first: bool = False

    def __call__(self, world: World) -> Outcome:
        refused: Outcome | None = None
        worst = Outcome("yes")
        for label, attempt in self.tries.items():
            outcome = outcome_of(functools.partial(attempt, world))
            if outcome.kind == "fault":
                return outcome
            if self.first:
                if outcome.kind != "no":
                    return replace(outcome, option=label)
                refused = refused or outcome
            elif outcome.kind != "yes" and (worst.kind == "yes" or outcome.kind == "no"):
                worst = outcome
        return refused or worst


_DELETE = "delete"


def _with(method: Callable[..., None], **options: object) -> Try:
    return functools.partial(method, **options)


METHODS: dict[str, Method] = {
    "SimCSE": Method({"": trained.simcse, "views": _with(trained.dropout_views, make=SimCSELoss)}),
    "`dropout=0.1`": Method({"": trained.simcse_with_dropout}),
    "cutoffs": Method({"SimCSE": trained.cutoffs, "DCLR": trained.dclr_cutoffs}),
    "shuffle": Method({"": trained.shuffle}),
    "ConSERT": Method({"": trained.consert}),
    "DCLR": Method({"": trained.dclr, "views": _with(trained.dropout_views, make=DCLRLoss)}),
    "DCLR, guide": Method({"": trained.dclr_guide}),
    "AdCSE": Method({
        "": trained.adcse,
        "no head": _with(trained.adcse, projection=False),
        "tied": _with(trained.adcse, tied=True),
    }),
    "AT": Method({"": trained.frequency_adversarial}),
    "ISF": Method({
        "": trained.incomplete_sentences,
        _DELETE: _with(trained.incomplete_sentences, on_missing_mask="delete"),
    }, first=True),
    "SLT-FAI": Method({"": trained.slt_fai, _DELETE: _with(trained.slt_fai, on_missing_mask="delete")}, first=True),
    "PaSeR, MLM": Method({"": trained.paser}),
    "PaSeR": Method({
        "": _with(trained.paser, mlm_weight=0),
        _DELETE: _with(trained.paser, mlm_weight=0, on_missing_mask="delete"),
    }, first=True),
    "PaSeR, SimCSE": Method({
        "": _with(trained.paser, base=True),
        _DELETE: _with(trained.paser, base=True, on_missing_mask="delete"),
    }, first=True),
    "RepAL": Method({"": refined.repal, _DELETE: _with(refined.repal, on_missing_mask="delete")}, first=True),
    "RepAL, pooled": Method({"": refined.repal_pooled}),
    "whitening": Method({"": refined.whitening}),
}  # fmt: skip
ALWAYS: dict[str, Method] = {"content mask": Method({"": refined.content}), "saving": Method({"": refined.saving})}
"""What must work on every encoder, and is no column."""


def outcomes(world: World) -> dict[str, Outcome]:
    return {name: method(world) for name, method in (METHODS | ALWAYS).items()}
