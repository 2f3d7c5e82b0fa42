"""``st-extras evaluate``: STS sets, labelled texts, and tasks of MTEB."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from st_extras.encoders.loading import load_encoder
from st_extras.evaluation import SEVEN_STS, LabeledTextEvaluator, compare_retrieval, load_retrieval, mteb, sts_evaluator
from st_extras.evaluation.paired import compare_labeled
from tests.fixtures import SENTENCES


def search_folder(folder: Path) -> Path:
    """A collection in BEIR's layout."""
    (folder / "qrels").mkdir(parents=True)
    documents = "".join(f"d{i},{sentence}\n" for i, sentence in enumerate(SENTENCES))
    (folder / "corpus.csv").write_text("id,text\n" + documents)
    (folder / "queries.csv").write_text("id,text\na,the old cat\nb,a dog in rain\nc,soup\n")
    (folder / "qrels" / "dev.txt").write_text("a 0 d0 1\nb 0 d1 1\nb 0 d5 2\nc 0 d7 1\n")
    return folder


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
        row = {**alone, "difference": 0, "low": 0, "high": 0}
        assert (code, json.loads(out)) == (0, {str(inputs / "encoder"): row, "other": row})
        code, out, _ = run(*words, "--quiet")
        assert (code, out.count(f"{alone['sts12']:.2f}") >= 2, " set " in out, "sts13" in out) == (0, True, True, False)

    @pytest.mark.parametrize("data", [("--sts", "STS"), ("--labeled", "labels.tsv"), ("--retrieval", "faq")])
    def test_nothing_is_left_out_at_80_columns_with_long_paths(self, run, inputs, data):
        Path("labels.tsv").write_text(
            "label\ttext\n" + "".join(f"{'ab'[i % 2]}\t{s}\n" for i, s in enumerate(SENTENCES))
        )
        search_folder(Path("faq"))
        paths = [f"a/{'folder-of-many-letters/' * 3}encoder-{number}" for number in (1, 2)]
        for path in paths:
            shutil.copytree(inputs / "encoder", path)
        found = json.loads(run("evaluate", *paths, *data, "--json")[1])
        code, out, _ = run("evaluate", *paths, *data, "--quiet", columns=80)
        assert (code, max(map(len, out.splitlines())) <= 120) == (0, True)
        table = [line for line in out.splitlines() if line[:1] in "┏┃│└"]
        assert max(map(len, table)) <= 80
        for row in found.values():
            assert [key for key in row if key not in ("difference", "low", "high") and key not in out] == []
            for key, value in row.items():
                assert f"{value:.2f}".lstrip("-") in out, key
        for number, path in enumerate(paths, start=1):
            assert f"encoder-{number}: {path}" in out

    @pytest.mark.parametrize("given", [(), ("--sets", "sts12")])
    def test_without_data_it_names_what_else_there_is(self, run, monkeypatch, given):
        def unreachable(*_: Any, **__: Any) -> None:
            raise OSError("no connection")

        monkeypatch.setattr("st_extras.evaluation.sts_evaluator", unreachable)
        code, _, err = run("evaluate", "ENC", *given, "--quiet")
        assert (code != 0, "no connection" in err) == (True, True)
        assert err.count("--labeled FILE") == (0 if given else 2)

    @pytest.mark.parametrize(("more", "name"), [((), "sts13"), (("--sets", "mine"), "mine")])
    def test_one_file_is_a_set_of_its_name(self, run, inputs, more, name):
        code, out, _ = run("evaluate", "ENC", "--sts", inputs / "sts13.tsv", *more, "--json")
        metrics = sts_evaluator(name, inputs / "sts13.tsv")(load_encoder(inputs / "encoder", device="cpu"))
        assert (code, json.loads(out)) == (0, {name: pytest.approx(100 * metrics[f"{name}_spearman_cosine"])})

    def test_a_refined_encoder_of_the_hub(self, run, inputs, monkeypatch):
        Path("modules.json").write_text('[{"type": "st_extras.modules.sif.SIFPooling"}]')
        monkeypatch.setattr("st_extras.encoder_names.find_encoder", str)
        monkeypatch.setattr("st_extras.cli.evaluate.find_encoder", str)
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
        shown = (
            "8 texts with 3 labels, x 100",
            " metric ",
            "knn5_accuracy",
            "map_at_r: mean average precision",
            "mean",
        )
        assert [text in out for text in (*shown, "difference")] == [True] * 5 + [False]

    def test_the_difference_to_the_first_encoder(self, run, inputs, file, make_encoder):
        make_encoder(seed=5).save("other")
        code, out, _ = run("evaluate", "ENC", "other", "--labeled", file, "--json")
        assert code == 0
        first, other = json.loads(out).values()
        models = [
            ("ENC", load_encoder(inputs / "encoder", device="cpu")),
            ("other", load_encoder("other", device="cpu")),
        ]
        expected = compare_labeled(LabeledTextEvaluator(SENTENCES, self.LABELS), models)
        assert other == pytest.approx({name: 100 * value for name, value in expected["other"].items()})
        assert (first["difference"], other["difference"]) == (0, pytest.approx(other["mean"] - first["mean"]))
        out = run("evaluate", "ENC", "other", "--labeled", file, "--quiet")[1]
        assert f"{other['low']:+.2f} to {other['high']:+.2f}" in out
        assert "difference: in mean, to encoder; interval: bootstrap over the texts" in out

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
    @pytest.fixture
    def folder(self, tmp_path):
        return search_folder(tmp_path / "faq")

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
