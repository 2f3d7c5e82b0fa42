"""The renderer: which runs a cell reads, how rows and columns meet, and how values are written."""

import pytest

from benchmarks.records import append
from benchmarks.tables import render
from benchmarks.tables.render import Table, runs


@pytest.fixture
def study(results):
    """Two methods with seeds, the base model, and rows by domain."""
    for method, seeds in {"simcse": (60.0, 62.0, 64.0), "dclr": (63.0, 64.5)}.items():
        for seed, score in enumerate(seeds):
            append("study", f"{method}-{seed}", {"method": method, "seed": seed, "average": score, "dev": score + 1})
    append("study", "start-0", {"method": "start", "seed": 0, "average": 50.0, "dev": 51.0})
    append("more", "dclr-2", {"method": "dclr", "seed": 2, "average": 69.0})
    for domain, base, scores in (("cars", 10.0, (15.0, 17.0)), ("food", 20.0, (19.0, 23.0))):
        append("domains", f"{domain}-start", {"domain": domain, "row": "start", "seed": 0, "scores": {"mean": base}})
        for seed, score in enumerate(scores):
            record = {"domain": domain, "row": "adapt", "seed": seed, "scores": {"mean": score}}
            append("domains", f"{domain}-adapt-{seed}", record)


SIMCSE, BASE = runs("study/simcse"), runs("study/start")
COLUMNS = [
    ("seeds", {"metric": "average", "show": render.count}),
    ("score", {"metric": "average", "show": render.spread}),
    ("minus SimCSE", {"metric": "average", "show": render.gain, "minus": SIMCSE}),
]


def test_rows_meet_columns(study):
    append("study", "same-0", {"method": "same", "seed": 0, "average": 60.0})
    on_dev = {"of": runs("study/dclr"), "metric": "dev", "minus": BASE, "minus_metric": "average"}
    rows = {"base": {"of": BASE}, "SimCSE": {"of": SIMCSE}, "DCLR": {"of": runs("study/dclr more/dclr")}}
    rows |= {"DCLR on dev": on_dev, "none": {}, "same": {"of": runs("study/same")}}
    assert Table("method", rows, COLUMNS, note="A note.").written().splitlines() == [
        "| method | seeds | score | minus SimCSE |",
        "|---|---:|---:|---:|",
        "| base | 1 | 50.00 | -12.00 [-16.97, -7.03] |",
        "| SimCSE | 3 | 62.00 ± 2.00 |  |",
        "| DCLR | 3 | 65.50 ± 3.12 | +3.50 [+0.21, +6.79] |",
        "| DCLR on dev | 2 | 64.75 ± 1.06 | +14.75 [+5.22, +24.28] |",
        "| none |  |  |  |",
        "| same | 1 | 60.00 | +0.00 |",
        "",
        "A note.",
    ]


def test_a_table_has_the_records_of_now(study):
    def count() -> str:
        return Table("", {"": {"of": SIMCSE}}, COLUMNS[:1]).written().splitlines()[-1]

    assert count() == "|  | 3 |"
    append("study", "simcse-3", {"method": "simcse", "seed": 3, "average": 66.0})
    assert count() == "|  | 4 |"


def test_seeds_without_every_data_set_do_not_count(study):
    append("domains", "cars-adapt-2", {"domain": "cars", "row": "adapt", "seed": 2, "scores": {"mean": 999.0}})
    adapt, base = ({"study": "domains", "method": name} for name in ("adapt", "start"))
    columns = [
        ("all", {"of": (adapt,), "metric": "scores/mean", "show": render.counted}),
        ("gain", {"of": (adapt,), "metric": "scores/mean", "show": render.counted_gain, "minus": (base,)}),
        ("food", {"of": (adapt | {"data": "food"},), "metric": "scores/mean", "show": render.spread}),
    ]
    line = Table("", {"": {}}, columns).written().splitlines()[-1]
    # means 17 and 20 over the domains, beside the base model's 15
    assert line == "|  | 18.50 ± 2.12 (2) | +3.50 [-15.56, +22.56] (2) | 21.00 ± 2.83 |"


def test_a_table_of_texts_has_the_columns_of_all_rows():
    lines = render.of_texts("row", {"a": {"x": "1"}, "b": {"y": "2", "x": "3"}}).written().splitlines()
    assert [lines[0], *lines[2:]] == ["| row | x | y |", "| a | 1 |  |", "| b | 3 | 2 |"]


def test_seeds_that_the_baseline_lacks_are_not_counted(study):
    columns = [("gain", {"metric": "average", "show": render.counted_gain, "minus": runs("study/dclr")})]
    line = Table("", {"": {"of": SIMCSE}}, columns).written().splitlines()[-1]
    assert line == "|  | -2.75 [-5.93, +0.43] (2) |", "-3 and -2.5; SimCSE has a third seed"
