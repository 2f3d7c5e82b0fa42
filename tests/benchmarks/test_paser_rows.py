import pytest

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


def test_chunks_are_those_of_the_lexicons_tags(monkeypatch):
    tagged = {"the": "DT", "old": "JJ", "man": "NN", "read": "VBD", "a": "DT", "book": "NN"}
    monkeypatch.setattr(paser_rows, "lexicon_tags", lambda tokens: [(token, tagged[token]) for token in tokens])
    sentence = "the old man read a book"
    for kind, expected in (("NP", {"the old man", "a book"}), ("VP", {"read a book"})):
        assert {sentence[start:end] for start, end in paser_rows.chunks([kind])(sentence)} == expected


def test_the_lexicon_of_textblob():
    pytest.importorskip("textblob")
    assert paser_rows.lexicon_tags(["a", "man", "is", "playing"]) == [
        ("a", "DT"), ("man", "NN"), ("is", "VBZ"), ("playing", "VBG"),
    ]  # fmt: skip
