"""A method's own figures, for its page: what it scores on each encoder beside the floors, and what a step costs."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.tables.combinations import CLAIMS, OWN_STUDIES
from benchmarks.tables.cost import speed_table
from benchmarks.tables.floors import noted, shown_floors
from benchmarks.tables.markdown import difference, markdown_table, spread
from benchmarks.tables.quality import averages_as_trained
from benchmarks.tables.verdict import FROZEN, LAYERS, LIVING, SOURCES

_BEST = "DCLR on ConSERT's views, no guide"
METHODS: dict[str, tuple[str, ...]] = {
    "simcse": (),
    "dclr": ("DCLR", "DCLR, no guide", _BEST),
    "adcse": ("AdCSE", "AdCSE, no head", LIVING),
    "consert": ("ConSERT", _BEST),
    "slt-fai": ("SLT-FAI over SimCSE", "ConSERT", "SLT-FAI over ConSERT"),
    "paser": ("PaSeR, searched: no MLM, decoder at 1e-3", FROZEN),
}
"""By the name of a page: its rows, besides the floors, the start and SimCSE."""
CASES = {
    "simcse": ("simcse", "simcse, 4 length buckets"),
    "dclr": ("dclr", "dclr, table", "dclr, model", "GISTEmbed"),
    "adcse": ("adcse", "adcse, no head"),
    "consert": ("consert",),
    "slt-fai": ("consert", "slt-fai", "slt-fai over adcse"),
    "paser": ("paser", "paser, no mlm", "TSDAE"),
    "repal": ("encode", "repal", "repal pooled"),
}
"""By the name of a page: the cases of ``benchmarks.speed`` to show."""
_SIMCSE = ("mnrl, two columns", "simcse")


def sources_of(label: str) -> list[str]:
    """Return the records of a row as ``study/method ...``: first three layers, then OWN_STUDIES ("": none)."""
    if label in SOURCES:
        layers, own = SOURCES[label]
    else:
        layers, own = CLAIMS[label][0], f"own_encoder/{CLAIMS[label][1]}"
    first, *others = (f"{study}/" for study in OWN_STUDIES.values())
    return [layers, own, *(own.replace(first, other) if first in own else "" for other in others)]


def method_table(name: str) -> str:
    """Tabulate the seven-set averages of a method's rows as trained, and what they gain over SimCSE seed by seed."""
    baselines = [averages_as_trained(source) for source in sources_of("SimCSE")]
    floors = [shown_floors(study) for study in ("foundation", *OWN_STUDIES.values())]
    untrained = {
        label: [{0: found[label]["average"]} if label in found else {} for found in floors]
        for label in dict.fromkeys(label for found in floors for label in found)
    }
    untrained["start"] = [averages_as_trained(source) for source in sources_of("start")]
    rows = []
    for label, averages in untrained.items():  # one figure each, beside every seed of SimCSE
        every = [
            dict.fromkeys(base, found[0]) if found else {} for found, base in zip(averages, baselines, strict=True)
        ]
        rows.append(_cells(label, averages, map(difference, every, baselines)))
    rows.append(_cells("SimCSE", baselines, [""] * len(baselines)))
    for label in METHODS[name]:
        averages = [averages_as_trained(source) for source in sources_of(label)]
        rows.append(_cells(label, averages, map(difference, averages, baselines)))
    titles = [title for encoder in (LAYERS, *OWN_STUDIES) for title in (encoder, "minus SimCSE")]
    return noted(markdown_table(("seven sets (seeds)", *titles), rows))


def cost_table(name: str) -> str:
    """Tabulate what a step of the method costs, beside Sentence Transformers' MNRL and SimCSE."""
    return speed_table({*CASES[name], *(() if name == "repal" else _SIMCSE)})


def _cells(label: str, averages: Iterable[dict[int, float]], gains: Iterable[str]) -> list[str]:
    cells = [label]
    for found, gain in zip(averages, gains, strict=True):
        cells += [f"{spread(list(found.values()))} ({len(found)})" if found else "", gain]
    return cells
