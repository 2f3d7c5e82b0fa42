"""Labelled texts: read from every kind of file, and the evaluator against the function it calls."""

import json
import os

import pytest
from datasets import Dataset

from st_extras.evaluation import LabeledTextEvaluator, LabeledTexts, label_scores, load_labeled_texts, without_labeled
from tests.fixtures import SENTENCES
from tests.helpers import write

TEXTS = [*SENTENCES, *(f"{sentence} again" for sentence in SENTENCES)]
LABELS = ["animals", "animals", "animals", "people", "people", "people", "other", "people"] * 2


SIGNS = (("csv", ","), ("tsv", "\t"))
"""Between the fields of a table."""


def test_a_table_is_read(tmp_path):
    table = 'label\ttext\nlost\t where is my card \nlost \tan "open quote\n\n3\tone, two\n'
    texts = ["where is my card", 'an "open quote', "one, two"]
    assert load_labeled_texts(write(tmp_path / "intents.v2.tsv", table)) == LabeledTexts(texts, ["lost", "lost", "3"])


@pytest.mark.parametrize(
    "name", ["a.parquet", "a.json", "a.jsonl", "a.csv", "a.tsv", "a.csv.gz", "a.tsv.gz", "a.jsonl.gz"]
)
def test_columns_are_chosen_by_their_names_in_a_file_of_any_kind(tmp_path, name):
    rows = [{"title": "one", "intent": 4, "text": "1"}, {"title": "two", "intent": 0, "text": "2"}]
    lines = {"json": json.dumps(rows), "jsonl": "".join(f"{json.dumps(row)}\n" for row in rows)}
    lines |= {
        kind: "\n".join(map(sign.join, (rows[0], *(map(str, row.values()) for row in rows)))) for kind, sign in SIGNS
    }
    file = tmp_path / name
    if name == "a.parquet":
        Dataset.from_list(rows).to_parquet(str(file))
    else:
        write(file, lines[name.split(".")[1]])
    found = load_labeled_texts(file, text_column="title", label_column="intent")
    assert found == LabeledTexts(["one", "two"], ["4", "0"])


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("", "holds no labelled text"), ("label\ttext\na\tx\n\tx\n", "line 3: a label"),
        ("label\ttext\na\tx\n\nb\t \n", "line 4: a text"), ("category\ttext\na\tx\n", "has no column label"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path, content, named):
    with pytest.raises(ValueError, match=rf"a\.tsv.*{named}"):
        load_labeled_texts(write(tmp_path / "a.tsv", content))
    with pytest.raises(ValueError, match=r"^path must"):
        load_labeled_texts(write(tmp_path / "a.txt", content))


def test_it_measures_what_the_function_measures(encoder):
    embeddings = encoder.encode(TEXTS, convert_to_tensor=True)
    evaluator = LabeledTextEvaluator(TEXTS, LABELS)
    assert evaluator(encoder) == pytest.approx(label_scores(embeddings, LABELS), abs=1e-6)
    assert evaluator.get_config_dict() == {"texts": 16, "labels": 3, "neighbors": 5, "seeds": [0, 1, 2]}


def test_labelled_texts_are_not_fitted_on(caplog):
    texts = ["one  two", "three", "four", "one two", "five"]
    assert without_labeled(texts, ["one \t two", "six"]) == ["three", "four", "five"]
    assert "2 of 5" in caplog.text
    assert without_labeled(texts[:4], ["one two"]) == ["three", "four"], "half of them may"
    assert without_labeled(texts, ["six"]) == texts
    assert len(caplog.messages) == 2
    with pytest.raises(ValueError, match="3 of 5"):
        without_labeled(texts, ["one two", "three"])


def test_a_file_that_is_not_there_and_cells_of_another_kind_are_named(tmp_path):
    for path in (tmp_path / "none.tsv", tmp_path):
        with pytest.raises(ValueError, match=rf"^There is no file of labelled texts '{path}'\.$"):
            load_labeled_texts(path)
    for row, named in (
        ('{"text": 3, "label": "a"}', "got 3"),
        ('{"text": "a", "label": 1.5}', "a label must be a str"),
    ):
        file = write(tmp_path / "a.jsonl", f'{{"text": "b", "label": "a"}}\n{row}\n')
        with pytest.raises(ValueError, match=rf"a\.jsonl, line 2.* {named}"):
            load_labeled_texts(file)


def test_the_texts_of_an_evaluator_have_their_labels():
    for texts, labels, named in (
        (["a", 3], ["x", "x"], "texts, row 1"), (["a"], ["x"], "texts must hold at least 2"),
        (["a", "b", "c"], ["x", "x"], "labels must have one label for each row"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=rf"^{named}"):
            LabeledTextEvaluator(texts, labels)


def test_a_pipe_is_there_and_no_table(tmp_path):
    os.mkfifo(tmp_path / "63")
    with pytest.raises(ValueError, match=r"^path must be a file whose name ends in .*63'\.$"):
        load_labeled_texts(tmp_path / "63")
