"""Tables that are no pivot of records: each as a whole, from a few records made by hand."""

import statistics
from typing import Any

import pytest
from scipy.stats import t as student

from benchmarks import statistics as of_seeds
from benchmarks.records import append
from benchmarks.studies import MNRL, TRANSFORMS
from benchmarks.tables import cost, deployment, domains, pages, render, search, strength

WHITE = strength.STRENGTHS[-1]


def test_smaller_embeddings_have_means_and_the_range_of_the_threshold(results):
    for name, seeds in {"cars": {0: (40.0, 50.0), 1: (40.0, 54.0)}, "food": {0: (20.0, 21.0)}}.items():
        for seed, (before, after) in seeds.items():
            scores = {
                when: {form: value - less for form, less in {"float32": 0, "int8": 1}.items()}
                for when, value in {"before": before, "after": after}.items()
            }
            threshold = {"before": 0.8, "after": 0.5 + seed / 10, "int8": 0.3 - seed / 10}
            record = {"domain": name, "seed": seed, "scores": scores, "threshold": threshold}
            append("deployment", f"{name}-{seed}", record)
    assert deployment.forms_table().written().splitlines() == [
        "| embeddings | cars | food | 0.8 becomes |",
        "|---|---:|---:|---:|",
        "| float32 | 40.0 → 52.0 ± 2.8 | 20.0 → 21.0 | 0.50 to 0.60 |",
        "| int8 | 39.0 → 51.0 ± 2.8 | 19.0 → 20.0 | 0.20 to 0.30 |",
    ]


def test_bounds_and_passages_have_a_row_for_each_collection(results):
    for name, (documents, kept) in {"med": (1033, (90, 95)), "cran": (50, (7, 8))}.items():
        seeds = [{"kept": share, "refused": share / 10} for share in kept]
        rows = {
            bound: [{key: n * value for key, value in seed.items()} for seed in seeds]
            for n, bound in enumerate(search._BOUNDS)
        }
        append("refusals", name, {"collection": name, "documents": documents, "rows": rows})
        rows = {row: {"difference": n - 2.5} for n, row in enumerate(search._CUT.values())} | {
            "start": {"ndcg@10": 70 + documents}
        }
        append(
            "passages", name, {"collection": f"long-{name}" if name == "cran" else name, "words": 99.6, "rows": rows}
        )
    assert search.refusals_table().written().splitlines()[2:] == [
        "| Cranfield, 50 documents | 0, 0 | 8, 1 | 15, 2 |",
        "| MED, 1,033 documents | 0, 0 | 92, 9 | 185, 18 |",
    ]
    assert search.passages_table().written().splitlines() == [
        f"| collection | words | base model | {' | '.join(search._CUT)} |",
        "|---|---:|---:|---:|---:|---:|---:|",
        "| Cranfield, joined | 100 | 120.00 | -2.50 | -1.50 | -0.50 | +0.50 |",
        "| MED | 100 | 1103.00 | -2.50 | -1.50 | -0.50 | +0.50 |",
    ]


def cell(place: str, gains: list[float], **given: Any) -> dict[str, Any]:
    """A record of few_texts: what each strength gains by labels, less of it without, and what general English is."""
    encoder, domain, count, seed = place.split()
    base, generals, ratio = given.pop("base", 80.0), given.pop("generals", [80.0] * 4), given.pop("ratio", 8.0)
    rows = {
        name: {"mean": 50 + gain, "general": general, "gain": gain / ratio, "low": gain / ratio - 1 / 64}
        for name, gain, general in zip(strength.STRENGTHS, gains, generals, strict=True)
    }
    rows["start"] = {"mean": 50.0, "general": base}
    record = {"encoder": encoder, "domain": domain, "fitted": int(count), "mean_cosine": 0.4, "rows": rows}
    append("few_texts", f"{encoder}-{domain}-{count}-seed{seed}", record | given)
    return record | given


def test_what_was_accepted_is_counted_by_what_it_gained(results):
    """The borders are -0.5 and 2; adapt's own rows and the base models are no transforms."""
    for run, (encoder, low, mean) in {
        "start": ("a", 0.0, 50.0),
        "start-b": ("b", 0.0, 10.0),
        "whitened": ("a", 0.1, 49.5),
        "centred": ("b", -0.1, 9.4),
        "locality": ("b", 0.3, 12.0),
        "SimCSE": ("b", 0.0, 9.0),
        "adapt, 2 points": ("a", 0.2, 99.0),
    }.items():
        row = run.partition("-b")[0]
        record = {"encoder": encoder, "domain": "cars", "row": row, "judge": {"low": low}, "scores": {"mean": mean}}
        append("domains", run, record)
    append("domains", "text", {"encoder": "", "domain": "cars", "row": "TF-IDF", "scores": {"mean": 1.0}})
    cell("minilm cars 500 0", [0.1, 1.9, 2.0, -0.6])
    assert domains.acceptance().written() == (
        "Of 8 transforms and trainings it accepted 0 of the 3 that lost more than half a point by labels, "
        "2 of the 3 that changed by -0.5 to +2 points, and 2 of the 2 that gained more."
    )


def test_the_strengths_are_shown_of_the_most_texts_of_each_encoder_and_domain(results):
    cell("minilm cars 500 0", [9.0, 9.0, 9.0, 9.0])  # fewer texts than the next ones
    cell("minilm cars 900 0", [1.0, 2.0, 4.0, 8.0], generals=[80.0, 79.0, 78.0, 70.0])
    cell("minilm cars 900 1", [1.0, 2.0, 6.0, 8.0], generals=[80.0, 79.0, 79.8, 77.0])
    cell("minilm food 700 0", [-1.0, -2.0, -3.0, -4.0])
    raw = {"base": 20.0, "generals": [20.0, 19.0, 10.0, 5.0], "mean_cosine": 0.9}
    cell("layers3 cars 900 0", [1.0, 2.0, 4.0, 8.0], **raw)
    assert strength.strengths_table().written().splitlines() == [
        "| encoder | general English | `adapt` | always whitening |",
        "|---|---:|---:|---:|",
        "| all-MiniLM-L6-v2 | 80.0 | +3.3 / -0.7 | +4.0 / -4.3 |",
        "| its first 3 layers | 20.0 | +8.0 / -15.0 | +8.0 / -15.0 |",
    ]


def test_few_texts_are_shown_where_all_three_domains_have_them(results):
    """What was asked for is in the run's name: a domain with fewer texts has all of them."""
    for number, name in enumerate(("cars", "food", "pets")):
        for seed in (0, 1):
            cell(f"minilm {name} 1000 {seed}", [0.0, 0.0, number + seed, 0.0])
            cell(f"minilm {name} 12000 {seed}", [0.0, 0.0, 10 + number, 0.0], fitted=2000 + 100 * number)
        if name != "pets":
            cell(f"mpnet {name} 200 0", [0.0, 0.0, 5.0, 0.0])
    assert strength.few_texts_table().written().splitlines() == [
        "| texts | all-MiniLM-L6-v2 |",
        "|---|---:|",
        "| 1,000 | +1.5 (+0.0) |",
        "| 12,000 | +11.0 (+10.0) |",
    ]
    assert strength.gains_by_count("minilm", "food") == {1000: [1.0, 2.0], 2100: [11.0, 11.0]}
    assert list(strength.gains_by_count("minilm", "food")) == [1000, 2100], "12000 stands before it by name"


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ({"gains": [1.0, 2.0, 4.0, 8.0]}, WHITE),
        ({"gains": [6.0, 2.0, 4.0, 8.0]}, "slight neighbour transform"),  # three quarters are enough
        ({"gains": [5.9, 2.0, 4.0, 8.0]}, WHITE),
        ({"gains": [0.125] * 4}, "start"),  # the lower end is 0
        ({"gains": [0.2, 1.0, 4.0, 8.0], "generals": [80, 80, 79.7, 79]}, "medium neighbour transform"),  # no whitening
        ({"gains": [0.2, 1.0, 4.0, 8.0], "generals": [80, 80, 79.75, 78]}, WHITE),
        ({"gains": [0.2, 1.0, 4.0, 8.0], "generals": [80, 80, 79.9, 77.9]}, "medium neighbour transform"),
        ({"gains": [0.2, 1.0, 4.0, 8.0], "generals": [10] * 4}, "start"),
        ({"gains": [0.2, 1.0, 4.0, 8.0], "generals": [10] * 4, "base": 29.9}, WHITE),  # means nothing below 30
        ({"gains": [0.2, 1.0, 4.0, 8.0], "generals": [10] * 4, "mean_cosine": 0.71}, "medium neighbour transform"),
        (
            {"gains": [0.2, 1.0, 4.0, 8.0], "generals": [60, 60, 59, 0], "mean_cosine": 0.71},
            WHITE,
        ),
        ({"gains": [0.2, 1.0, 4.0, 8.0], "generals": [60, 60, 59, 0], "mean_cosine": 0.7}, "start"),
    ],
)
def test_the_rule_chooses_the_gentlest_strength_that_is_nearly_the_best(results, place, expected):
    expected = TRANSFORMS.get(expected, expected)
    gains = place.pop("gains")
    assert strength.by_default(cell("minilm cars 500 0", gains, **place)) == expected


def test_expected_points_come_from_the_other_domains(results):
    """Of few texts and of more apart; a strength that is not accepted expects nothing."""
    for name, ratio in {"cars": 10.0, "food": 20.0, "pets": 12.0}.items():
        for count in (200, 499, 500, 900):
            cell(f"minilm {name} {count} 0", [1.0, 2.0, -1.0, 4.0], ratio=ratio if count < 500 else 10.0)
    assert [len(strength.promised_cells(few=few)) for few in (True, False)] == [6, 6]
    assert strength.points_per_gain(strength.promised_cells(few=True)) == pytest.approx((10.0, 20.0))
    assert strength.promise().written() == (
        "Computed from two domains, the range held in the third for 6 of 18 from 200 to 499 texts and "
        "18 of 18 from 500 and more texts."
    )


def test_a_step_is_written_beside_mnrl():
    row = {"median_ms": 123.6, "ratios": {MNRL: {"median": 1.234}, "other": {"median": 9.0}}}
    assert cost.beside_mnrl(row) == "124 (1.23 x)"
    assert cost.beside_mnrl(row | {"ratios": {"other": {"median": 9.0}}}) == "124"
    assert cost.milliseconds({"median": 3.4, "late": 9.6}) == "3 (10)"


def test_intervals_and_differences_are_of_the_seeds_that_both_have():
    ours, theirs = {0: 5.0, 1: 7.0, 3: 9.0}, {1: 6.0, 0: 1.0, 2: 4.0}
    assert of_seeds.paired_differences(ours, theirs) == {0: 4.0, 1: 1.0}
    assert of_seeds.paired_differences(ours, {of_seeds.EVERY: 5.0}) == {0: 0.0, 1: 2.0, 3: 4.0}
    assert of_seeds.paired_differences({of_seeds.EVERY: 5.0}, theirs) == {0: 4.0, 1: -1.0, 2: 1.0}
    assert of_seeds.paired_differences({of_seeds.EVERY: 5.0}, {of_seeds.EVERY: 4.0}) == {of_seeds.EVERY: 1.0}
    values = [1.0, 2.0, 4.0, 9.0]
    half = student.ppf(0.975, 3) * statistics.stdev(values) / 2
    assert of_seeds.mean_interval(values) == pytest.approx((4.0, 4.0 - half, 4.0 + half))
    assert of_seeds.mean_interval([1.5, 1.5]) == (1.5, 1.5, 1.5)
    assert of_seeds.mean_and_deviation([1.0, 3.0]) == (2.0, pytest.approx(2**0.5))
    assert of_seeds.mean_and_deviation([1.0]) == (1.0, None)
    assert (of_seeds.best([1, 3, 3]), of_seeds.regret([1, 3, 3], [7, 5, 9])) == (1, 4)


def test_of_several_metrics_a_run_has_the_first_that_it_knows(results):
    append("a", "m-0", {"method": "m", "seed": 0, "first": 1.0, "second": 2.0})
    append("b", "m-1", {"method": "m", "seed": 1, "second": 4.0})
    wanted = {"of": render.runs("a/m b/m none/m"), "metric": ["first", "second"]}
    assert render.Cell(**wanted, show=render.counted).written() == "2.50 ± 2.12 (2)"
    assert render.Cell(**wanted, show=render.span).written() == "1.00 to 4.00 (2)"
    assert render.Cell(**wanted, show=render.lowest("{:.1f}")).written() == "1.0"
    assert render.Cell(**wanted, show=render.number("{:.1f}"), minus=render.runs("a/m")).written() == "2.5"


def test_pages_with_a_table_are_found_in_all_folders(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "ROOT", tmp_path / "benchmarks")
    files = ["README.md", "benchmarks/RESULTS.md", "docs/a.md", "docs/methods/deeper/b.md", "docs/c.md", "docs/d.txt"]
    for name in files:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("none" if name == "docs/c.md" else "<!-- table: x -->\nold\n<!-- end -->\n", encoding="utf8")
    assert [page.relative_to(tmp_path).as_posix() for page in pages.pages()] == files[:4]
    monkeypatch.setattr(pages, "TABLES", {"x": render.Text("new"), "y": lambda: render.Text("made")})
    assert pages.write(only_check=True) == pages.pages()
    assert pages.write() == pages.pages()
    assert [(tmp_path / name).read_text().splitlines()[1] for name in files[:4]] == ["new"] * 4
    two = "<!-- table: y -->\nold\n<!-- end -->\n\ntext\n<!-- table: x -->\n<!-- end -->\n"
    assert pages.updated(two) == "<!-- table: y -->\nmade\n<!-- end -->\n\ntext\n<!-- table: x -->\nnew\n<!-- end -->\n"
    with pytest.raises(ValueError, match=r"^name must be that of a table, got 'z'; the tables are x, y\."):
        pages.updated(two.replace("table: x", "table: z"))
