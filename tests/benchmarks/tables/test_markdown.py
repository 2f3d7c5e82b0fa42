from benchmarks.tables import markdown


def test_differences_by_hand():
    assert (
        markdown.difference({0: 2.0, 1: 4.0, 7: 9.0}, {0: 1.0, 1: 2.0, 2: 5.0}) == "+1.50 [-4.85, +7.85]"
    )  # t = 12.71
    assert markdown.difference({0: 2.0}, {0: 2.5}) == "-0.50"
    assert markdown.difference({3: 2.0}, {0: 2.5}) == ""


def test_a_table_by_hand():
    rows = [["a", "1"], ["b", "2"]]
    assert markdown.markdown_table(("x", "y"), rows).splitlines() == [
        "| x | y |",
        "|---|---:|",
        "| a | 1 |",
        "| b | 2 |",
    ]
    assert markdown.markdown_table(("x", "y", "z"), [], left=(1, 2)).splitlines() == ["| x | y | z |", "|---:|---|---|"]


def test_spreads_by_hand():
    assert markdown.spread([]) == ""
    assert markdown.spread([1.0]) == "1.00"
    assert markdown.spread([1.0, 3.0]) == "2.00 ± 1.41"
