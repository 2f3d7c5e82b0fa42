"""Studies of finished encoders: each that a study left is scored as itself, beside its base model and TF-IDF."""

import itertools

import pytest

from benchmarks import beyond, trained_spaces
from benchmarks.records import records
from benchmarks.studies import Options
from st_extras.encoders import load_encoder
from st_extras.evaluation import GeometryEvaluator, load_sts
from tests.benchmarks.conftest import write_data
from tests.fixtures import SENTENCES, build_encoder


def test_every_encoder_of_a_study_is_scored(tmp_path, monkeypatch):
    write_data(tmp_path)
    lines = [f"{first}\t{second}\t1" for first, second in itertools.pairwise(SENTENCES)]
    (tmp_path / "questions.tsv").write_text("\n".join(["question1\tquestion2\tis_duplicate", *lines]))
    monkeypatch.setattr(beyond, "QUESTIONS", "questions.tsv")
    build_encoder(tmp_path / "base" / "encoder")
    build_encoder(tmp_path / "work" / "tiny" / "simcse-3", seed=1).save(str(tmp_path / "work" / "tiny" / "simcse-3"))
    base = {"path": str(tmp_path / "base" / "encoder"), "pooling": "mean"}
    tiny = {"name": "tiny", "encoder": base, "training": {"corpus": "sentences.txt"}}
    options = Options(tmp_path, tmp_path / "work", tmp_path / "results")
    for module in (beyond, trained_spaces):
        monkeypatch.setattr(module, "named_study", lambda name: tiny)
        module.run({"name": module.__name__.rpartition(".")[2], "trained": ["tiny"]}, options)
    questions = {record["run"]: record["questions"] for record in records("beyond", root=options.root)}
    assert list(questions) == [
        "base-start-0",
        "text-TF-IDF_of_characters_3-5-0",
        "text-TF-IDF_of_words-0",
        "tiny-simcse-3",
    ]
    assert all(0 < value <= 100 for scores in questions.values() for value in scores.values())
    assert questions["base-start-0"] != questions["tiny-simcse-3"]
    found = {record["run"]: record for record in records("trained_spaces", root=options.root)}
    assert list(found) == ["tiny-simcse-3", "tiny-start-0"]
    dev = load_sts("stsb_dev", tmp_path)
    evaluator = GeometryEvaluator([*dev.sentences1, *dev.sentences2], write_csv=False)
    encoders = {"tiny-start-0": load_encoder(**base), "tiny-simcse-3": load_encoder(tmp_path / "work/tiny/simcse-3")}
    for run, encoder in encoders.items():
        assert found[run]["uniformity"] == pytest.approx(evaluator(encoder)["uniformity"], rel=1e-4)
        assert len(found[run]["levels"]) == 10
        assert -1 <= found[run]["in_batch"]["mean"] <= 1
