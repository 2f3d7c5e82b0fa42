from benchmarks import paser_rows
from st_extras.text import PhraseMasking

PAIRS = [
    ("4.0", "the old man read a book", "a man read"),
    ("3.9", "a cat sat on the mat", "a dog sat"),
    ("5.0", "the old man read a book", "an old man"),
    ("5.0", "two birds sing", "two birds sing"),
    ("4.6", "children play football", "children are playing"),
]


def test_pairs_that_mean_the_same_give_the_positives(tmp_path):
    lines = ["subset\tscore\tsentence1\tsentence2", *("\t".join(["x", *pair]) for pair in PAIRS)]
    (tmp_path / "stsb_train.tsv").write_text("\n".join(lines), encoding="utf8")
    rows = paser_rows.with_positives(PhraseMasking(top_k=1), "stsb_train", 4.0, tmp_path)
    assert rows.column_names == ["sentence", "positive", "masked", "phrase"]
    first, second = rows
    assert (first["sentence"], first["positive"]) == ("the old man read a book", "a man read")
    assert (second["sentence"], second["positive"]) == ("children play football", "children are playing")
    assert all("[MASK]" in row["masked"] for row in rows)
