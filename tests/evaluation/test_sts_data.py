"""STS sets from every source: folders, files, the hub, and the real data."""

import json

import pandas as pd
import pytest

from st_extras.evaluation import STSDataset, STSEvaluator, development_and_test, load_sts, sts_evaluator
from st_extras.samples import graded_pairs
from tests.helpers import write

HEADER = "subset\tscore\tsentence1\tsentence2\n"
ROWS = 'news\t4.5\ta cat\tthe "cat\nforum\t0\t"a dog\ttwo birds\nnews\t2.25\the\tshe\n'


def test_folder(tmp_path):
    write(tmp_path / "sts12.tsv.gz", HEADER + ROWS)
    data = load_sts("STS-12", tmp_path)
    assert (data.name, len(data), data.scores) == ("sts12", 3, [4.5, 0.0, 2.25])
    assert data.sentences1 == ["a cat", '"a dog', "he"]
    assert data.sentences2 == ['the "cat', "two birds", "she"]
    assert data.subsets == ["news", "forum", "news"]


def test_a_file_of_another_name_is_not_called_a_known_set(tmp_path):
    file = write(tmp_path / "my-pairs.v2.tsv", HEADER + ROWS)
    assert load_sts("My pairs", file).name == "My pairs"
    assert load_sts("stsb_dev", file).name == load_sts("STS-B", file).name == "my-pairs"
    assert load_sts("stsb_dev", write(tmp_path / "stsb_dev.tsv", HEADER + ROWS)).name == "stsb_dev"


def test_of_a_file_with_several_splits_one_is_read(tmp_path):
    """As stsbenchmark.tsv.gz of Sentence Transformers' examples."""
    rows = [f"{split}\tx\t{score}\ta {split}\tb\n" for score in (0, 1) for split in ("train", "dev", "test")]
    file = write(tmp_path / "stsbenchmark.tsv.gz", "split\t" + HEADER + "".join(rows))
    for name, split in (("stsb_dev", "dev"), ("stsb", "test"), ("my_train", "train"), ("my_own_test", "test")):
        data = load_sts(name, file)
        assert (data.sentences1, data.scores) == ([f"a {split}"] * 2, [0.0, 1.0])
    with pytest.raises(ValueError, match=r"holds the splits dev, test, train: .* such as stsbenchmark_dev, got 'mine'"):
        load_sts("mine", file)
    two = write(tmp_path / "two.tsv", "split\t" + HEADER + "".join(row for row in rows if "train" not in row))
    with pytest.raises(ValueError, match=r"holds the splits dev, test: .* such as two_dev, got 'mine'"):
        load_sts("mine", two)
    one = write(tmp_path / "one.tsv", "split\t" + HEADER + "".join(rows[::3]))
    assert load_sts("mine", one).sentences1 == ["a train"] * 2, "there is no other split"


def test_columns_in_any_order(tmp_path):
    data = load_sts(
        "mine", write(tmp_path / "pairs.CSV", 'sentence1,note,score,sentence2\na cat,x,4.5,"a, b"\nc,y,1,d\n')
    )
    assert (data.scores, data.subsets) == ([4.5, 1.0], ["all", "all"])
    some = load_sts("mine", write(tmp_path / "some.tsv", HEADER + "x\t1\ta\tb\n\t2\ta\tc\n"))
    assert some.subsets == ["x", "all"]
    assert (data.sentences1, data.sentences2) == (["a cat", "c"], ["a, b", "d"])


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.parquet", "a.txt"])
def test_a_table_of_any_kind_is_read(tmp_path, name):
    rows = [{"score": 4.5, "sentence1": "a cat", "sentence2": "NA"}, {"score": 1, "sentence1": "c", "sentence2": "d"}]
    file = tmp_path / name
    if name.endswith("parquet"):
        pd.DataFrame(rows).to_parquet(file)
    else:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        table = "score\tsentence1\tsentence2\n4.5\ta cat\tNA\n1\tc\td\n"
        write(file, {"a.json": json.dumps(rows), "a.jsonl": text}.get(name, table))
    assert pairs_of(load_sts("mine", file)) == [("a cat", "NA", 4.5), ("c", "d", 1.0)]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (HEADER + "a\t1\tx\ty\nb\t1\tx\tz\n", "not all equal"),
        ("rating\tsentence1\tsentence2\n1\ta\tb\n", r"sts12\.tsv has no column score: it has rating"),
        (HEADER + "a\t1\tx\ty\na\t2\tx\n", r"sts12\.tsv, line 3: .* got None"),
        (HEADER + "a\t1\tx\ty\na\tnan\tx\ty\n", "got 'nan'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, content, named):
    write(tmp_path / "sts12.tsv", content)
    with pytest.raises(ValueError, match=named):
        load_sts("sts12", tmp_path)
    for name, source, named in (
        ("sts13", tmp_path, "sts13"), ("", tmp_path / "sts12.tsv", "^name must be that of a set"),
        ("mine", tmp_path, "^name must be one of sts12, .*, got 'mine'"), (12, tmp_path, "^name must be a str"),
        ("sts12", tmp_path / "none", "^The STS source must be .*none"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=named):
            load_sts(name, source)


@pytest.mark.parametrize("column", ["sentence1", "sentence2"])
def test_a_sentence_that_is_no_text_is_named(tmp_path, column):
    rows = [{"score": 1, "sentence1": "a", "sentence2": "b"}, {"score": 2, "sentence1": "c", "sentence2": "d"}]
    rows[1][column] = 7
    file = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2.* got 7"):
        load_sts("mine", file)


def test_what_the_hub_does_not_give():
    for load in (load_sts, sts_evaluator, lambda names: sts_evaluator([names, "sts13"])):
        with pytest.raises(ValueError, match=r"^mteb/sts12-sts could not be read .*go online"):
            load("sts12")
    with pytest.raises(ValueError, match=r"^mteb/sts12-sts could not"):
        sts_evaluator()
    for name in ("sickr", "SICK-R trial", "sickr_train"):
        with pytest.raises(ValueError, match="9,927 rows"):
            load_sts(name, "hub")


@pytest.mark.parametrize(
    ("name", "repository", "split"),
    [
        ("sts16", "sts16", "test"),
        ("stsb", "stsbenchmark", "test"),
        ("stsb_dev", "stsbenchmark", "validation"),
        ("STS-B train", "stsbenchmark", "train"),
    ],
)
def test_repository_and_split_of_the_hub(monkeypatch, name, repository, split):
    calls, scores = [], [1, 2.5]

    def load_dataset(*names, **options):
        calls.append((names, options))
        return [{"score": s, "sentence1": f"a{s}", "sentence2": f"b{s}"} for s in scores]

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    data = load_sts(name, "hub")
    assert calls == [((f"mteb/{repository}-sts",), {"split": split})]
    assert (data.scores, data.sentences1, data.sentences2) == ([1.0, 2.5], ["a1", "a2.5"], ["b1", "b2.5"])
    with pytest.raises(ValueError, match="wmean"):
        STSEvaluator([data], setting="wmean")
    scores[1] = "high"
    with pytest.raises(ValueError, match=rf"^mteb/{repository}-sts, row 1: a score must"):
        load_sts(name, "hub")


COUNTS = {
    "sts12": 3108, "sts13": 1500, "sts14": 3750, "sts15": 3000, "sts16": 1186, "stsb_train": 5749, "stsb_dev": 1500,
    "stsb_test": 1379, "sickr_train": 4500, "sickr_trial": 500, "sickr_test": 4927,
}  # fmt: skip


@pytest.mark.slow
def test_real_row_counts(data_folder):
    assert {name: len(load_sts(name, data_folder)) for name in COUNTS} == COUNTS


def pairs_of(data: STSDataset) -> list[tuple[str, str, float]]:
    return list(zip(data.sentences1, data.sentences2, data.scores, strict=True))


def test_the_sample_pairs_are_halved_and_no_pair_is_on_both_sides():
    assert development_and_test() == development_and_test("")
    development, test = development_and_test("")
    assert (development.name, test.name) == ("sample_dev", "sample_test")
    assert len(development) == len(test) == len(development.subsets) == len(test.subsets) == 150
    assert sorted(pairs_of(development) + pairs_of(test)) == sorted(zip(*graded_pairs(), strict=True))
    assert not set(pairs_of(development)) & set(pairs_of(test))


def test_stsb_is_read_where_a_source_is_given(tmp_path):
    for split, score in (("dev", 4), ("test", 2)):
        file = write(tmp_path / f"stsb_{split}.tsv", HEADER + f"x\t{score}\ta {split}\tb\nx\t0\tc\td\n")
    development, test = development_and_test(tmp_path)
    assert (development.name, test.name) == ("stsb_dev", "stsb_test")
    assert (pairs_of(development)[0], pairs_of(test)[0]) == (("a dev", "b", 4.0), ("a test", "b", 2.0))
    with pytest.raises(ValueError, match=r"^sts must"):
        development_and_test(file)
