"""The index of the papers lists every table and figure, and names what is there."""

from typing import Any

import pytest

from benchmarks.records import ROOT
from benchmarks.tables import papers

FIELDS = {"paper", "item", "shows", "figure", "status", "reason", "cost", "gain", "table", "page"}
FIELDS |= {"records", "cells", "tools"}
NEEDS = {
    "in kind": ("records",),
    "partly": ("records", "tools"),
    "not run": ("cells", "tools"),
    "impossible": ("reason",),
}
# what each paper's own text has, counted by hand
ITEMS = {"DCLR": (2, 6), "AdCSE": (3, 4), "SLT-FAI": (1, 7), "PaSeR": (10, 6), "RepAL": (5, 1)}
PAGE = (ROOT.parent / "docs" / "papers.md").read_text(encoding="utf8")


def faults(entry: dict[str, Any]) -> list[str]:
    """What is wrong with an entry of the index."""
    status, cells = entry["status"], entry.get("cells", ())
    wrong = {
        "unknown fields": not set(entry) <= FIELDS,
        "unknown status": status not in papers.STATUS,
        "nothing that the status needs": status != "drawing"
        and not any(entry.get(key) for key in NEEDS.get(status, ())),
        "nothing missing": status == "partly" and not (cells or entry.get("reason")),
        "no cost": status == "not run" and not (cells or entry.get("cost")),
        "no such record": bool(papers.missing_records(entry)),
        "no such cell": any(not papers.matching_cells([pattern]) for pattern in cells),
        "nothing left to run": status in ("partly", "not run") and bool(cells) and not papers.unrun_cells(cells),
        "no such tool": any(not (ROOT.parent / tool).is_file() for tool in entry.get("tools", ())),
        "no such heading": "table" in entry and f"\n### {entry['table']}\n" not in PAGE,
        "no such page": "page" in entry and not (ROOT.parent / "docs" / entry["page"]).is_file(),
        "records although not run": status in ("not run", "impossible", "drawing") and "records" in entry,
    }
    return [f"{entry['paper']}, {entry['item']}: {fault}" for fault, is_there in wrong.items() if is_there]


def test_every_entry_names_what_is_there():
    assert [fault for entry in papers.entries() for fault in faults(entry)] == []


@pytest.mark.parametrize("paper", ITEMS)
def test_every_table_and_figure_is_listed(paper):
    items = [entry["item"] for entry in papers.entries(paper)]
    named = [number for item in items for number in item.replace("Tables 2 and 3", "Table 2, Table 3").split(", ")]
    assert (sum(item.startswith("Table") for item in named), sum("igure" in item for item in named)) == ITEMS[paper]
    assert len(set(items)) == len(items)
