"""``st-extras evaluate``: STS sets, labelled texts, and tasks of MTEB."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from st_extras.encoders.loading import load_encoder
from st_extras.evaluation import SEVEN_STS, LabeledTextEvaluator, compare_retrieval, load_retrieval, mteb, sts_evaluator
from tests.fixtures import SENTENCES


class TestEvaluate:
    @pytest.mark.parametrize(
        ("more", "names", "setting"),
        [
            ((), SEVEN_STS, "all"),
            (("--sets", "sts12", "--sets", "stsb"), ["sts12", "stsb_test"], "all"),
            (("--setting", "wmean", "--sets", "sts13"), ["sts13"], "wmean"),
        ],
    )
    def test_the_sets_of_a_folder(self, run, inputs, more, names, setting):
        code, out, err = run("evaluate", "ENC", "--sts", "STS", *more, "--json")
        assert code == 0, err
        metrics = sts_evaluator(names, inputs, setting=setting)(load_encoder(inputs / "encoder", device="cpu"))
        expected = {name.removesuffix("_spearman_cosine"): 100 * value for name, value in metrics.items()}
        assert json.loads(out) == pytest.approx(expected)
        assert list(expected) == [*names, "average"][: len(expected)]

    def test_several_encoders_and_a_table(self, run, inputs):
        shutil.copytree(inputs / "encoder", "other")
        words = ("evaluate", "ENC", "other", "--sts", "STS", "--sets", "sts12")
        alone = json.loads(run("evaluate", "ENC", "--sts", "STS", "--sets", "sts12", "--json")[1])
        code, out, _ = run(*words, "--json")
        assert (code, json.loads(out)) == (0, {str(inputs / "encoder"): alone, "other": alone})
        code, out, _ = run(*words, "--quiet")
        assert (code, out.count(f"{alone['sts12']:.2f}"), " set " in out, "sts13" in out) == (0, 2, True, False)

    @pytest.mark.parametrize(("more", "name"), [((), "sts13"), (("--sets", "mine"), "mine")])
    def test_one_file_is_a_set_of_its_name(self, run, inputs, more, name):
        code, out, _ = run("evaluate", "ENC", "--sts", inputs / "sts13.tsv", *more, "--json")
        metrics = sts_evaluator(name, inputs / "sts13.tsv")(load_encoder(inputs / "encoder", device="cpu"))
        assert (code, json.loads(out)) == (0, {name: pytest.approx(100 * metrics[f"{name}_spearman_cosine"])})

    def test_a_refined_encoder_of_the_hub(self, run, inputs, monkeypatch):
        Path("modules.json").write_text('[{"type": "st_extras.modules.sif.SIFPooling"}]')
        loaded = load_encoder(inputs / "encoder", device="cpu")
        monkeypatch.setattr("sentence_transformers.util.load_file_path", lambda name, file: file)
        monkeypatch.setattr("st_extras.modules.load", lambda name: loaded if name == "me/refined" else None)
        assert run("evaluate", "me/refined", "--sts", "STS", "--sets", "sts12", "--json")[0] == 0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("FOLDER", "--sts", "STS"), "could not be loaded as an encoder"),
            (("ENC", "--sts", "none"), "source .*'none'"),
            (("ENC", "--sts", "STS", "--sets", "sts99"), "name must be one of"),
            (("ENC", "--sts", "STS", "--setting", "best"), "setting must be"),
            (("ENC", "--sts", "TSV", "--sets", "a", "--sets", "b"), r"one name .*stsb_dev\.tsv"),
        ],
    )
    def test_mistakes(self, assert_refused, arguments, message):
        assert_refused(("evaluate", *arguments), message)


@pytest.mark.parametrize("alone", [("--labeled", "TSV"), ("--mteb", "STS12"), ("--retrieval", "FOLDER")])
@pytest.mark.parametrize("option", [("--sts", "hub"), ("--sets", "sts12"), ("--setting", "all")])
def test_data_of_one_kind(assert_refused, alone, option):
    assert_refused(("evaluate", "ENC", *alone, *option), f"^Error: {option[0]} does not go with {alone[0]}, whose")


class TestLabeled:
    LABELS = ("a", "b", "a", "b", "c", "c", "a", "b")

    @pytest.fixture
    def file(self, tmp_path):
        path = tmp_path / "intents.tsv"
        rows = [f"{label}\t{sentence}\n" for label, sentence in zip(self.LABELS, SENTENCES, strict=True)]
        path.write_text("label\ttext\n" + "".join(rows))
        return path

    def test_json(self, run, inputs, file):
        code, out, _ = run("evaluate", "ENC", "--labeled", file, "--json")
        evaluator = LabeledTextEvaluator(SENTENCES, self.LABELS)
        expected = evaluator(load_encoder(inputs / "encoder", device="cpu"))
        assert code == 0
        assert json.loads(out) == pytest.approx({name: 100 * value for name, value in expected.items()})

    def test_table(self, run, file):
        code, out, _ = run("evaluate", "ENC", "--labeled", file, "--quiet")
        assert code == 0
        shown = ("Labelled texts x 100", " metric ", "knn5_accuracy", "map_at_r", "mean")
        assert [text in out for text in (*shown, " set ")] == [True] * 5 + [False]

    @pytest.mark.parametrize(
        ("file", "message"),
        [
            ("none.tsv", r"no file of labelled texts 'none\.tsv'"),
            ("FOLDER", "no file of labelled texts"),
            ("TSV", r"stsb_dev\.tsv has no column label.*--text-column and --label-column can name others\.$"),
            ("JSONL", r"broken\.jsonl, line 1 has no column label"),
            ("EMPTY", "path must be a file whose name ends in"),
        ],
    )
    def test_mistakes(self, assert_refused, file, message):
        assert_refused(("evaluate", "ENC", "--labeled", file), message)


class TestRetrieval:
    DOCUMENTS = "".join(f"d{i},{sentence}\n" for i, sentence in enumerate(SENTENCES))

    @pytest.fixture
    def folder(self, tmp_path):
        folder = tmp_path / "faq"
        (folder / "qrels").mkdir(parents=True)
        (folder / "corpus.csv").write_text("id,text\n" + self.DOCUMENTS)
        (folder / "queries.csv").write_text("id,text\na,the old cat\nb,a dog in rain\nc,soup\n")
        (folder / "qrels" / "dev.txt").write_text("a 0 d0 1\nb 0 d1 1\nb 0 d5 2\nc 0 d7 1\n")
        return folder

    @pytest.mark.parametrize("prompts", [{}, {"query_prompt": "he ", "document_prompt": "a "}])
    def test_json(self, run, inputs, folder, prompts):
        shutil.copytree(inputs / "encoder", "other")
        words = [word for name, text in prompts.items() for word in (f"--{name.replace('_', '-')}", text)]
        code, out, err = run("evaluate", "ENC", "other", "--retrieval", folder, "--split", "dev", *words, "--json")
        assert code == 0, err
        models = [(name, load_encoder(inputs / "encoder", device="cpu")) for name in (str(inputs / "encoder"), "other")]
        expected = compare_retrieval(load_retrieval(folder), models, **prompts)
        assert list(json.loads(out)) == list(expected)
        for name, row in expected.items():
            assert json.loads(out)[name] == pytest.approx({key: 100 * value for key, value in row.items()})

    def test_table(self, run, folder, monkeypatch):
        code, out, _ = run("evaluate", "ENC", "--retrieval", folder, "--quiet")
        assert code == 0
        shown = (
            "Search x 100, 3 queries, 8 documents",
            " encoder ",
            "recall@100",
            "100.00",
            " + BM25 ",
            " and BM25, RRF ",
            "│ BM25 ",
        )
        assert [text in out for text in shown] == [True] * 7
        assert re.search(r"│ BM25 .* [+-]\d+\.\d\d \([+-]\d+\.\d\d to [+-]\d+\.\d\d\) │", out)
        monkeypatch.setattr("st_extras.cli.evaluate.find_spec", lambda name: None)
        code, out, err = run("evaluate", "ENC", "--retrieval", folder, "--quiet")
        assert (code, "BM25" in out) == (0, False)
        assert 'The rows of BM25 are left out; they need bm25s: pip install "st-extras[search]".' in err

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--retrieval", "none"), r"no folder of a search collection 'none'\.$"),
            (("--retrieval", "FOLDER"), r"folder' must hold one corpus file .*, got none\.$"),
            (("--split", "dev"), r"^Error: --split needs --retrieval\.$"),
            (("--query-prompt", "a"), r"^Error: --query-prompt needs --retrieval\.$"),
            (("--document-prompt", "a"), r"^Error: --document-prompt needs --retrieval\.$"),
            (("--retrieval", "FOLDER", "--labeled", "TSV"), "--labeled does not go with --retrieval"),
            (("--mteb", "STS12", "--labeled", "TSV"), "--labeled does not go with --mteb"),
            (("--retrieval", "FOLDER", "--mteb", "STS12"), "--retrieval does not go with --mteb"),
        ],
    )
    def test_mistakes(self, assert_refused, arguments, message):
        assert_refused(("evaluate", "ENC", *arguments), message)


class TestMTEB:
    """The package itself is tried in tests/evaluation/test_mteb.py; here, what the command makes of it."""

    @pytest.fixture
    def asked(self, monkeypatch):
        """What was asked of it; every score is 0.25."""
        seen: list[Any] = []

        def scores(model: Any, tasks: list[str], **options: Any) -> dict[str, float]:
            seen.append(options)
            return dict.fromkeys(tasks, 0.25)

        monkeypatch.setattr(mteb, "mteb_tasks", list)
        monkeypatch.setattr(mteb, "mteb_scores", scores)
        return seen

    def test_json(self, run, asked):
        code, out, _ = run("evaluate", "ENC", "--mteb", "STS12", "--mteb", "STS13", "--json")
        assert (code, json.loads(out), asked) == (0, {"STS12": 25.0, "STS13": 25.0}, [{"show_progress_bar": False}])
