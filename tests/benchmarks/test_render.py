"""The renderer: which runs a cell reads, how rows and columns meet, and how values are written."""

import pytest

from benchmarks.records import append
from benchmarks.tables import render
from benchmarks.tables.render import Sentence, Table, runs


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
    rows = {"base": {"of": BASE}, "SimCSE": {"of": SIMCSE}, "DCLR": {"of": runs("study/dclr more/dclr")}, "none": {}}
    assert Table("method", rows, COLUMNS, note="A note.").written().splitlines() == [
        "| method | seeds | score | minus SimCSE |",
        "|---|---:|---:|---:|",
        "| base | 1 | 50.00 | -12.00 [-16.97, -7.03] |",
        "| SimCSE | 3 | 62.00 ± 2.00 |  |",
        "| DCLR | 3 | 65.50 ± 3.12 | +3.50 [+0.21, +6.79] |",
        "| none |  |  |  |",
        "",
        "A note.",
    ]


def test_a_row_goes_before_its_column(study):
    row = {"of": runs("study/dclr"), "metric": "dev", "minus": BASE, "minus_metric": "average"}
    cells = Table("method", {"DCLR": row}, COLUMNS).written().splitlines()[-1]
    assert cells == "| DCLR | 2 | 64.75 ± 1.06 | +14.75 [+5.22, +24.28] |"


def test_seeds_without_every_data_set_do_not_count(study):
    append("domains", "cars-adapt-2", {"domain": "cars", "row": "adapt", "seed": 2, "scores": {"mean": 999.0}})
    adapt, base = ({"study": "domains", "method": name} for name in ("adapt", "start"))
    columns = [
        ("all", {"of": (adapt,), "metric": "scores/mean", "show": render.counted}),
        ("gain", {"of": (adapt,), "metric": "scores/mean", "show": render.counted_gain, "minus": (base,)}),
        ("food", {"of": (adapt | {"data": "food"},), "metric": "scores/mean", "show": render.spread}),
        ("lowest", {"of": (adapt,), "metric": "scores/mean", "show": render.lowest("{:.0f}")}),
        ("span", {"of": (adapt,), "metric": "scores/mean", "show": render.span}),
    ]
    line = Table("", {"": {}}, columns).written().splitlines()[-1]
    # means 17 and 20 over the domains, beside the base model's 15
    assert line == "|  | 18.50 ± 2.12 (2) | +3.50 [-15.56, +22.56] (2) | 21.00 ± 2.83 | 15 | 15.00 to 999.00 (5) |"


def test_runs_by_name_filled_metrics_and_texts(study):
    of = {"first": SIMCSE, "second": runs("study/dclr")}
    columns = [
        ("first", {"which": "first", "show": render.number("{:.1f}")}),
        ("second", {"which": "second", "show": render.number("{:.1f}")}),
        ("third", {"which": "third", "show": render.number("{:.1f}")}),
        ("paper", {"texts": {"dev": "+1.0"}}),
    ]
    rows = {name: {"of": of, "metric": ["none", "<what>"], "fill": {"what": name}} for name in ("dev", "average")}
    assert Table("", rows, columns).written().splitlines()[2:] == [
        "| dev | 63.0 | 64.8 |  | +1.0 |",
        "| average | 62.0 | 63.8 |  |  |",
    ]


def test_a_later_record_of_the_same_run_counts(results):
    for run in ("a/simcse-0", "b/simcse-0"):
        append("grid", run, {"method": "simcse", "seed": 0, "average": 1.0 if run[0] == "a" else 2.0})
    assert render.values(runs("grid/simcse"), ["average"]).by_seed() == {0: 2.0}


def test_a_sentence_and_known_texts(study):
    cell = {"of": BASE, "metric": "dev", "show": render.number("{:.0f}")}
    assert Sentence("from {base} on", {"base": cell}).written() == "from 51 on"
    table = render.of_texts("x", {"a": {"one": "1"}, "b": {"two": "2"}}, left=2)
    assert table.written() == "| x | one | two |\n|---|---|---:|\n| a | 1 |  |\n| b |  | 2 |"
