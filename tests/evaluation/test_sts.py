"""STS sets from every source, and the evaluator against a correlation by hand."""

from __future__ import annotations

import csv
import gzip
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from st_extras.evaluation import SEVEN_STS, STSDataset, STSEvaluator, load_sts, sts_evaluator
from tests.conftest import SENTENCES

HEADER = "subset\tscore\tsentence1\tsentence2\n"
ROWS = 'news\t4.5\ta cat\tthe "cat\nforum\t0\t"a dog\ttwo birds\nnews\t2.25\the\tshe\n'


def write(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content.encode()) if path.suffix == ".gz" else content.encode())
    return path


def pairs(name: str = "stsb_dev", count: int = 8, seed: int = 0) -> STSDataset:
    """Pairs of SENTENCES in two subsets with random scores."""
    random = np.random.default_rng(seed)
    shift = 1 + seed % 3  # no sentence meets itself, no pair comes back turned round: no ties but for rounding
    second = SENTENCES[shift:] + SENTENCES[:shift]
    scores = [float(score) for score in random.permutation(count)]
    subsets = ["one" if i < 3 else "two" for i in range(count)]
    return STSDataset(name, SENTENCES[:count], second[:count], scores, subsets)


def spearman(first: list[float], second: list[float]) -> float:
    """Pearson's correlation of mean ranks, as a plain loop."""

    def ranks(values: list[float]) -> list[float]:
        return [sum(v < x for v in values) + (sum(v == x for v in values) - 1) / 2 for x in values]

    a, b = ranks(first), ranks(second)
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    covariance = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    spread = math.sqrt(sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b))
    return covariance / spread


def cosines(model, data: STSDataset) -> list[float]:
    first, second = model.encode(data.sentences1), model.encode(data.sentences2)
    return [float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) for a, b in zip(first, second, strict=True)]


class TestFiles:
    @pytest.mark.parametrize("suffix", [".tsv", ".tsv.gz"])
    def test_folder(self, tmp_path, suffix):
        write(tmp_path / f"sts12{suffix}", HEADER + ROWS)
        data = load_sts("STS-12", tmp_path)
        assert data == load_sts("sts12", str(tmp_path))
        assert (data.name, len(data)) == ("sts12", 3)
        assert data.scores == [4.5, 0.0, 2.25]
        assert data.sentences1 == ["a cat", '"a dog', "he"]
        assert data.sentences2 == ['the "cat', "two birds", "she"]
        assert data.subsets == ["news", "forum", "news"]

    def test_windows_file(self, tmp_path):
        write(tmp_path / "sts12.tsv", "\ufeff" + (HEADER + ROWS).replace("\n", "\r\n"))
        assert load_sts("sts12", tmp_path).sentences2[-1] == "she"

    @pytest.mark.parametrize("suffix", [".tsv", ".tsv.gz", ".txt"])
    def test_single_file_with_a_free_name(self, tmp_path, suffix):
        file = write(tmp_path / f"mine{suffix}", HEADER + ROWS)
        assert load_sts("My pairs", file).name == "My pairs"

    @pytest.mark.parametrize(
        ("alias", "name"),
        [("stsb", "stsb_test"), ("STS-B dev", "stsb_dev"), ("SICK-R", "sickr_test"), ("STSBenchmark", "stsb_test")],
    )
    def test_aliases(self, tmp_path, alias, name):
        write(tmp_path / f"{name}.tsv", HEADER + ROWS)
        assert load_sts(alias, tmp_path).name == name

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("", "first line must be subset<TAB>score"),
            ("score\tsubset\tsentence1\tsentence2\n" + ROWS, "first line must be"),
            (HEADER, "0 pairs with fewer than two different scores"),
            (HEADER + "a\t1\tx\ty\nb\t1\tx\tz\n", "2 pairs with fewer than two different scores"),
            (HEADER + "a\t1\tx\ty\na\t2\tx\n", r"sts12\.tsv, line 3: 3 tab-separated fields, expected 4"),
            (HEADER + "a\t1\tx\ty\na\thigh\tx\ty\n", r"'high' is no score \(pair 2: 'x'\)"),
            (HEADER + "a\t1\tx\ty\na\tnan\tx\ty\n", "'nan' is no score"),
            (HEADER + "a\t1\tx\ty\na\tinf\tx\ty\n", "'inf' is no score"),
            (HEADER + "a\t1\tx\ty\na\t\tx\ty\n", "'' is no score"),
        ],
    )
    def test_malformed(self, tmp_path, content, message):
        write(tmp_path / "sts12.tsv", content)
        with pytest.raises(ValueError, match=message):
            load_sts("sts12", tmp_path)

    def test_not_utf8_names_the_line(self, tmp_path):
        (tmp_path / "sts12.tsv").write_bytes(HEADER.encode() + b"a\t1\tx\ty\na\t2\tcaf\xe9\ty\n")
        with pytest.raises(ValueError, match=r"sts12\.tsv, line 3: not UTF-8"):
            load_sts("sts12", tmp_path)

    def test_wrong_source(self, tmp_path):
        with pytest.raises(ValueError, match="is no folder"):
            load_sts("sts12", tmp_path / "none")
        with pytest.raises(ValueError, match=r"holds neither sts12\.tsv, nor"):
            load_sts("sts12", tmp_path)
        with pytest.raises(ValueError, match=r"name must be one of sts12, .*, got 'sts17'"):
            load_sts("sts17", tmp_path)


class TestSentEval:
    def tree(self, root: Path) -> None:
        folder = root / "STS" / "STS12-en-test"
        write(folder / "STS.input.MSRpar.txt", "a\tb\nc\td\textra\ne\tf\n")
        write(folder / "STS.gs.MSRpar.txt", "4.0\n\n1.5\n")
        write(folder / "STS.input.surprise.OnWN.txt", "g\th\n")
        write(folder / "STS.gs.surprise.OnWN.txt", "3\n")
        stsb = "main-news\tMSRpar\t2012test\t1\t{}\tx {}\ty {}\n"
        for split, scores in (("train", (1, 2)), ("dev", (3, 4)), ("test", (5, 0))):
            lines = "".join(stsb.format(score, split, split) for score in scores)
            write(root / "STS" / "STSBenchmark" / f"sts-{split}.csv", lines)
        sick = (
            "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n1\tA\tB\t4.5\tN\n2\tC\tD\t1\tN\n"
        )
        write(root / "SICK" / "SICK_test_annotated.txt", sick)
        write(root / "SICK" / "SICK_trial.txt", sick.replace("4.5", "2.5"))

    @pytest.mark.parametrize("root", [".", "downstream", "data/downstream"])
    def test_subsets_are_concatenated_and_rows_without_gold_dropped(self, tmp_path, root):
        self.tree(tmp_path / root)
        data = load_sts("sts12", tmp_path)
        assert list(zip(data.subsets, data.scores, data.sentences1, data.sentences2, strict=True)) == [
            ("MSRpar", 4.0, "a", "b"),
            ("MSRpar", 1.5, "e", "f"),
            ("surprise.OnWN", 3.0, "g", "h"),
        ]

    @pytest.mark.parametrize(
        ("name", "scores", "first"),
        [
            ("stsb_train", [1, 2], "x train"),
            ("stsb_dev", [3, 4], "x dev"),
            ("stsb", [5, 0], "x test"),
            ("sickr", [4.5, 1], "A"),
            ("sickr_trial", [2.5, 1], "A"),
        ],
    )
    def test_splits(self, tmp_path, name, scores, first):
        self.tree(tmp_path)
        data = load_sts(name, tmp_path)
        assert (data.scores, data.sentences1[0]) == (scores, first)

    def test_a_tsv_goes_before_the_tree(self, tmp_path):
        self.tree(tmp_path)
        write(tmp_path / "sts12.tsv", HEADER + ROWS)
        assert load_sts("sts12", tmp_path).sentences1[0] == "a cat"

    def test_faults(self, tmp_path):
        self.tree(tmp_path)
        gold = tmp_path / "STS" / "STS12-en-test" / "STS.gs.MSRpar.txt"
        gold.write_text("4.0\n1.0\n")
        with pytest.raises(ValueError, match=r"MSRpar\.txt has 3 lines, STS\.gs\.MSRpar\.txt has 2"):
            load_sts("sts12", tmp_path)
        gold.unlink()
        with pytest.raises(ValueError, match=r"STS\.gs\.MSRpar\.txt is missing"):
            load_sts("sts12", tmp_path)
        with pytest.raises(ValueError, match="holds neither sts13"):
            load_sts("sts13", tmp_path)
        with pytest.raises(ValueError, match="holds neither sickr_train"):
            load_sts("sickr_train", tmp_path)


class TestHub:
    def test_offline_is_said(self):
        with pytest.raises(ValueError, match=r"mteb/sts12-sts could not be read .*go online.*or give a folder"):
            load_sts("sts12")

    def test_sickr_of_the_hub_is_another_set(self):
        with pytest.raises(ValueError, match="all 9,927 rows, not the 4,927"):
            load_sts("sickr", "hub")

    @pytest.mark.parametrize(
        ("name", "asked"),
        [
            ("sts16", ("mteb/sts16-sts", "test")),
            ("stsb", ("mteb/stsbenchmark-sts", "test")),
            ("stsb_dev", ("mteb/stsbenchmark-sts", "validation")),
            ("stsb_train", ("mteb/stsbenchmark-sts", "train")),
        ],
    )
    def test_repository_and_split(self, monkeypatch, name, asked):
        import datasets

        seen = []

        def load_dataset(repository, split):
            seen.append((repository, split))
            return [{"score": s, "sentence1": f"a{s}", "sentence2": f"b{s}"} for s in (1, 2.5)]

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        data = load_sts(name, "hub")
        assert seen == [asked]
        assert (data.scores, data.sentences1, data.sentences2) == ([1.0, 2.5], ["a1", "a2.5"], ["b1", "b2.5"])
        with pytest.raises(ValueError, match="which the hub copy does not tell"):
            STSEvaluator([data], setting="wmean")


class TestEvaluator:
    def test_equals_ranks_by_hand(self, encoder):
        data = pairs()
        metrics = STSEvaluator([data])(encoder)
        assert metrics.keys() == {"stsb_dev_spearman_cosine"}
        assert metrics["stsb_dev_spearman_cosine"] == pytest.approx(spearman(data.scores, cosines(encoder, data)))

    def test_agrees_with_sentence_transformers(self, encoder):
        from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

        data = pairs(seed=1)
        theirs = EmbeddingSimilarityEvaluator(data.sentences1, data.sentences2, data.scores)(encoder)
        assert STSEvaluator([data])(encoder)["stsb_dev_spearman_cosine"] == pytest.approx(theirs["spearman_cosine"])

    def test_average_is_the_plain_mean(self, encoder):
        sets = [pairs("sts12", 8), pairs("sts13", 5, seed=3)]
        evaluator = STSEvaluator(sets)
        metrics = evaluator(encoder)
        single = [spearman(data.scores, cosines(encoder, data)) for data in sets]
        assert metrics["average_spearman_cosine"] == pytest.approx(sum(single) / 2)
        assert metrics["sts13_spearman_cosine"] == pytest.approx(single[1])
        assert evaluator.primary_metric == "average_spearman_cosine"

    def test_weighted_mean_over_subsets(self, encoder):
        data = pairs()
        similarities = cosines(encoder, data)
        parts = [spearman(data.scores[p], similarities[p]) for p in (slice(0, 3), slice(3, None))]
        expected = (3 * parts[0] + 5 * parts[1]) / 8
        metrics = STSEvaluator([data], setting="wmean")(encoder)
        assert metrics["stsb_dev_spearman_cosine"] == pytest.approx(expected)
        assert abs(expected - spearman(data.scores, similarities)) > 0.01  # the setting matters here

    def test_every_sentence_is_encoded_once(self, encoder, monkeypatch):
        encoded = []
        plain = encoder.encode
        monkeypatch.setattr(encoder, "encode", lambda texts, **kw: encoded.extend(texts) or plain(texts, **kw))
        STSEvaluator([pairs("sts12"), pairs("sts13", seed=2)])(encoder)
        assert sorted(encoded) == sorted(set(SENTENCES))

    def test_half_precision_embeddings_are_compared_in_float32(self):
        """In bfloat16 the cosines would be rounded to 8 bits and most of them tie."""
        random = torch.Generator().manual_seed(0)
        table = torch.randn(40, 16, generator=random).bfloat16()
        table[20:] = table[:20] + 0.05 * torch.randn(20, 16, generator=random).bfloat16()
        first, second = table[:20].double(), table[20:].double()
        gold = torch.cosine_similarity(first, second).tolist()
        data = STSDataset("sts12", list("abcdefghijklmnopqrst"), list("ABCDEFGHIJKLMNOPQRST"), gold, ["x"] * 20)
        model = SimpleNamespace(
            encode=lambda texts, **kw: table, model_card_data=SimpleNamespace(set_evaluation_metrics=lambda *a: None)
        )
        assert STSEvaluator([data])(model)["sts12_spearman_cosine"] == pytest.approx(1.0)

    @pytest.mark.parametrize("name", ["", "dev", "stsb", "stsb_dev"])
    @pytest.mark.parametrize("count", [1, 2])
    def test_primary_metric_is_among_the_results(self, encoder, name, count):
        evaluator = STSEvaluator([pairs("stsb_dev"), pairs("sts12")][:count], name=name)
        before = evaluator.primary_metric
        assert evaluator.primary_metric in evaluator(encoder)
        assert evaluator.primary_metric in evaluator(encoder)
        assert evaluator.primary_metric == before

    def test_csv_gets_a_header_and_a_row_a_call(self, encoder, tmp_path):
        evaluator = STSEvaluator([pairs()], name="dev")
        for step in (0, 10):
            metrics = evaluator(encoder, str(tmp_path / "eval"), 0.5, step)
        with (tmp_path / "eval" / "sts_evaluation_dev_results.csv").open(newline="") as stream:
            header, *rows = csv.reader(stream)
        assert header == ["epoch", "steps", "stsb_dev_spearman_cosine"]
        assert [row[:2] for row in rows] == [["0.5", "0"], ["0.5", "10"]]
        assert float(rows[1][2]) == metrics["dev_stsb_dev_spearman_cosine"]

    def test_other_columns_go_to_a_file_of_their_own(self, encoder, tmp_path):
        for _ in range(2):
            for evaluator in (STSEvaluator([pairs("sts12")]), STSEvaluator([pairs("sts13", seed=1)])):
                evaluator(encoder, str(tmp_path))
        STSEvaluator([pairs("sts14")])(encoder, str(tmp_path))
        STSEvaluator([pairs("sts12")], setting="wmean")(encoder, str(tmp_path))
        names = ("results.csv", "results_2.csv", "results_3.csv", "wmean_results.csv")
        for name, data, rows in zip(names, ("sts12", "sts13", "sts14", "sts12"), (2, 2, 1, 1), strict=True):
            with (tmp_path / f"sts_evaluation_{name}").open(newline="") as stream:
                header, *lines = csv.reader(stream)
            assert (header[2], len(lines)) == (f"{data}_spearman_cosine", rows)

    def test_no_csv(self, encoder, tmp_path):
        STSEvaluator([pairs()], write_csv=False)(encoder, str(tmp_path / "eval"))
        assert not (tmp_path / "eval").exists()

    def test_refusals(self):
        with pytest.raises(ValueError, match="datasets is empty"):
            STSEvaluator([])
        with pytest.raises(ValueError, match='setting must be "all" or "wmean", got \'mean\''):
            STSEvaluator([pairs()], setting="mean")
        with pytest.raises(ValueError, match="holds a set twice: sts12, sts12"):
            STSEvaluator([pairs("sts12"), pairs("sts12", seed=1)])
        data = pairs()
        data.scores[1] = float("nan")
        with pytest.raises(ValueError, match="stsb_dev holds scores that are no finite numbers"):
            STSEvaluator([data])
        data = pairs()
        data.subsets[0] = "lonely"
        with pytest.raises(ValueError, match="subset 'lonely' of stsb_dev has only one score"):
            STSEvaluator([data], setting="wmean")
        STSEvaluator([data])

    def test_by_name(self, tmp_path, encoder):
        file = write(tmp_path / "stsb_dev.tsv", HEADER + ROWS)
        write(tmp_path / "sts12.tsv", HEADER + ROWS)
        one = sts_evaluator("stsb_dev", tmp_path, batch_size=2)
        assert one.primary_metric == "stsb_dev_spearman_cosine"
        assert set(sts_evaluator(["stsb_dev", "sts12"], tmp_path)(encoder)) == {
            f"{name}_spearman_cosine" for name in ("stsb_dev", "sts12", "average")
        }
        assert sts_evaluator("mine", file).primary_metric == "mine_spearman_cosine"
        assert one.get_config_dict() == {"sets": ["stsb_dev"], "setting": "all"}
        with pytest.raises(ValueError, match="is one file: name one set, got sts12, "):
            sts_evaluator(source=file)
        with pytest.raises(ValueError, match="holds a set twice"):
            sts_evaluator(["stsb_dev", "STS-B dev"], tmp_path)


COUNTS = {
    "sts12": 3108,
    "sts13": 1500,
    "sts14": 3750,
    "sts15": 3000,
    "sts16": 1186,
    "stsb_train": 5749,
    "stsb_dev": 1500,
    "stsb_test": 1379,
    "sickr_train": 4500,
    "sickr_trial": 500,
    "sickr_test": 4927,
}


def test_real_row_counts(data_folder):
    assert {name: len(load_sts(name, data_folder)) for name in COUNTS} == COUNTS


def test_real_scores_and_subsets(data_folder):
    for name in SEVEN_STS:
        data = load_sts(name, data_folder)
        low, high = (1, 5) if name == "sickr_test" else (0, 5)
        assert (min(data.scores), max(data.scores)) == (low, high)
        assert all(sentence.strip() for sentence in data.sentences1 + data.sentences2)
    assert len(set(load_sts("sts13", data_folder).subsets)) == 3


def test_real_sets_have_subsets_enough_for_the_weighted_mean(data_folder):
    sts_evaluator(SEVEN_STS, data_folder, setting="wmean")
