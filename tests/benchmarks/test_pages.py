"""The pages are what the records give, and show every declared table."""

import math
import statistics

from benchmarks.records import records
from benchmarks.tables import pages


def shown() -> dict[str, list[str]]:
    """The tables of each page."""
    return {page.name: [name for _, name, _ in pages.BLOCK.findall(page.read_text("utf8"))] for page in pages.pages()}


def test_the_pages_are_what_the_records_give():
    assert pages.write(only_check=True) == [], "run python -m benchmarks tables"


def test_every_table_is_on_a_page():
    assert {name for names in shown().values() for name in names} == {*pages.TABLES, pages.INDEX}


def test_a_page_that_differs_is_seen_and_written(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("<!-- table: claims -->\nold\n<!-- end -->\n", encoding="utf8")
    monkeypatch.setattr(pages, "pages", lambda: [page])
    assert pages.write(only_check=True) == [page]
    assert "old" in page.read_text()
    assert pages.write() == [page]
    assert pages.write(only_check=True) == []


def test_a_row_by_hand():
    """One row from the records alone, with the interval's arithmetic written out."""

    def average(*names: tuple[str, str]) -> dict[int, float]:
        return {one["seed"]: one["average"] for study, m in names for one in records(study) if one["method"] == m}

    simcse = average(("foundation", "simcse"), ("more_seeds", "simcse"))
    dclr = average(("foundation", "dclr"), ("more_seeds", "dclr"))
    gains = [dclr[seed] - simcse[seed] for seed in range(5)]
    half = 2.7764451051977987 * statistics.stdev(gains) / math.sqrt(5)
    mean = statistics.mean(gains)
    row = f"| DCLR (paper) | 5 | {statistics.mean(dclr.values()):.2f} ± {statistics.stdev(dclr.values()):.2f} | "
    row += f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}] |"
    assert row in pages.table("method-dclr").written().splitlines()
