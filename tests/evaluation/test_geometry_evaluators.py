"""The geometry evaluators against the functions they call, alone and in the trainer."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer

from st_extras.evaluation.geometry import alignment, effective_rank, uniformity
from st_extras.evaluation.geometry_evaluators import CosineLevelEvaluator, GeometryEvaluator
from st_extras.losses import SimCSELoss
from tests.evaluation.test_geometry import MEASURES
from tests.helpers import arguments


def test_geometry_evaluator_measures_what_the_functions_measure(
    encoder: SentenceTransformer, sentences: list[str], tmp_path: Path
) -> None:
    positives = [(sentences[0], sentences[1]), (sentences[2], sentences[3])]
    evaluator = GeometryEvaluator([*sentences, sentences[0]], positives, name="toy")
    metrics = evaluator(encoder, str(tmp_path), epoch=1, steps=5)
    embeddings = encoder.encode(sentences, convert_to_tensor=True)
    assert metrics["toy_uniformity"] == pytest.approx(uniformity(embeddings), abs=1e-6)
    assert metrics["toy_alignment"] == pytest.approx(alignment(embeddings[[0, 2]], embeddings[[1, 3]]), abs=1e-6)
    assert metrics["toy_effective_rank"] == pytest.approx(effective_rank(embeddings), abs=1e-4)
    assert set(metrics) == {f"toy_{name}" for name in ("alignment", *(measure.__name__ for measure in MEASURES))}
    evaluator(encoder, str(tmp_path), epoch=1, steps=10)
    with (tmp_path / "geometry_evaluation_toy_results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["steps"] for row in rows] == ["5", "10"]
    assert float(rows[0]["uniformity"]) == pytest.approx(metrics["toy_uniformity"])


def test_geometry_evaluator_can_write_nothing(encoder: SentenceTransformer, tmp_path: Path) -> None:
    folder = tmp_path / "output"
    metrics = GeometryEvaluator(["a cat", "a dog"], primary="iso_score", write_csv=False)(encoder, str(folder))
    assert "iso_score" in metrics
    assert "alignment" not in metrics
    assert not folder.exists()


@pytest.mark.parametrize(("primary", "greater"), [("iso_score", True), ("mean_cosine", False), ("alignment", False)])
def test_the_direction_follows_the_primary_metric(sentences: list[str], primary: str, greater: bool) -> None:
    evaluator = GeometryEvaluator(sentences, [("a", "b")], primary=primary, name="x")
    assert evaluator.greater_is_better is greater
    assert evaluator.primary_metric == f"x_{primary}"


def test_level_evaluator_tells_close_pairs_from_distant_ones(
    encoder: SentenceTransformer, sentences: list[str], tmp_path: Path
) -> None:
    first = sentences[:4] * 2
    second = sentences[:4] + sentences[4:]
    evaluator = CosineLevelEvaluator(first, second, [5.0] * 4 + [0.0] * 4, name="toy")
    metrics = evaluator(encoder, str(tmp_path))
    assert metrics["toy_mean_4-5"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["toy_variance_4-5"] == pytest.approx(0.0, abs=1e-9)
    assert metrics["toy_mean_0-1"] < 0.999
    assert "toy_mean_2-3" not in metrics
    assert 0 < metrics["toy_separation"] <= 1
    assert (tmp_path / "cosine_level_evaluation_toy_results.csv").is_file()
    assert evaluator.get_config_dict() == {"levels": 5, "score_range": [0.0, 5.0]}


def test_evaluators_run_in_the_trainer_and_appear_in_the_model_card(
    encoder: SentenceTransformer, sentences: list[str], tmp_path: Path
) -> None:
    levels = CosineLevelEvaluator(sentences[:4], sentences[4:], [0.5, 1.5, 2.5, 4.5], name="sts")
    geometry = GeometryEvaluator(sentences, name="toy")
    trainer = SentenceTransformerTrainer(
        encoder,
        args=arguments(
            tmp_path,
            eval_strategy="steps",
            eval_steps=1,
            save_strategy="steps",
            save_steps=1,
            load_best_model_at_end=True,
            metric_for_best_model=f"eval_{geometry.primary_metric}",
            greater_is_better=geometry.greater_is_better,
        ),
        train_dataset=Dataset.from_dict({"sentence": sentences}),
        loss=SimCSELoss(encoder),
        evaluator=[levels, geometry],
    )
    trainer.train()
    logged = [entry["eval_toy_uniformity"] for entry in trainer.state.log_history if "eval_toy_uniformity" in entry]
    assert len(logged) == 2
    assert trainer.state.best_metric == pytest.approx(min(logged))
    encoder.save(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text(encoding="utf8")
    for words in ("Embedding Geometry", "Cosine by Gold-Score Level", "separation", "uniformity", "score_range"):
        assert words in card


@pytest.mark.parametrize(
    ("sentences_", "options", "message"),
    [
        (["one"], {}, "at least 2 sentences, got 1"),
        (["one", "one"], {}, "at least 2 distinct sentences, got only 'one'"),
        ("a string", {}, "got the string 'a string'"),
        (["a", 3], {}, "sentences, row 1: expected a sentence, got 3"),
        (["a", "b"], {"positives": []}, r"got \[\]"),
        (["a", "b"], {"positives": [("a", "b", "c")]}, "pairs of sentences, got"),
        (["a", "b"], {"positives": ["ab"]}, "pairs of sentences, got 'ab'"),
        (["a", "b"], {"primary": "alignment"}, "alignment needs positives"),
        (["a", "b"], {"primary": "beauty"}, "got 'beauty'"),
    ],
)
def test_geometry_evaluator_refuses_bad_input(sentences_, options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GeometryEvaluator(sentences_, **options)


def test_level_evaluator_refuses_bad_input() -> None:
    with pytest.raises(ValueError, match="got 2, 2 and 1"):
        CosineLevelEvaluator(["a", "b"], ["c", "d"], [1.0])
    with pytest.raises(ValueError, match="scores must differ"):
        CosineLevelEvaluator(["a", "b"], ["c", "d"], [1.0, 1.0])
    with pytest.raises(ValueError, match="sentences1 must hold at least 2 sentences, got 1"):
        CosineLevelEvaluator(["a"], ["c"], [1.0])


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("batch_size", 0, "between 1 and 1048576, got 0"),
        ("batch_size", 10**11, "got 100000000000"),
        ("batch_size", "8", "got '8'"),
        ("batch_size", True, "got True"),
        ("write_csv", "False", "True or False, got 'False'"),
        ("name", 5, "name must be a string"),
        ("name", "a/b", "name must be a string without"),
        ("show_progress_bar", "no", "True or False, got 'no'"),
        ("primary", None, "one of"),
        ("primary", ["uniformity"], "one of"),
        ("positives", 3, "a list of pairs"),
        ("positives", np.array(0.5), r"a list of pairs of sentences, got array\(0.5\)"),
        ("primary", np.zeros(2), r"got array\("),
    ],
)
def test_wrong_options_are_named(sentences: list[str], option: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"{option} must be .*{message.split(' must be ')[-1]}"):
        GeometryEvaluator(sentences, **{option: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": 1}, "levels must be a whole number between 2 and 1000, got 1"),
        ({"levels": 10**11}, "levels must be .*got 100000000000"),
        ({"levels": True}, "levels must be .*got True"),
        ({"score_range": (5, 0)}, "score_range must be"),
        ({"score_range": 5}, "score_range must be"),
        ({"score_range": (0, "5")}, "score_range must be"),
        ({"score_range": (0, math.inf)}, "score_range must be"),
        ({"score_range": (False, True)}, "score_range must be"),
        ({"scores": ["1", "2"]}, "scores must be finite numbers, got '1'"),
        ({"scores": [None, 1.0]}, "scores must be finite numbers, got None"),
        ({"scores": 3}, "scores must be a list"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"show_progress_bar": 1}, "show_progress_bar must be"),
        ({"write_csv": 0}, "write_csv must be"),
        ({"name": None}, "name must be"),
    ],
)
def test_wrong_options_of_the_level_evaluator_are_named(options: dict, message: str) -> None:
    given = {"sentences1": ["a", "b"], "sentences2": ["c", "d"], "scores": [1.0, 2.0], **options}
    with pytest.raises(ValueError, match=message):
        CosineLevelEvaluator(**given)


def test_a_data_set_is_taken(sentences: list[str]) -> None:
    assert GeometryEvaluator(Dataset.from_dict({"sentence": sentences})).sentences == sentences
    with pytest.raises(ValueError, match=r"sentences must be an iterable of strings or a data set, got .*array\('a'"):
        GeometryEvaluator(np.array("a"))
    with pytest.raises(ValueError, match="'dev', 'test'"):
        GeometryEvaluator({"dev": sentences, "test": sentences})


def test_batches_are_of_the_size_asked_for(
    encoder: SentenceTransformer, sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    preprocess = encoder.preprocess
    monkeypatch.setattr(
        encoder, "preprocess", lambda texts, **options: seen.append(len(texts)) or preprocess(texts, **options)
    )
    GeometryEvaluator(sentences, batch_size=3)(encoder)
    CosineLevelEvaluator(sentences[:4], sentences[4:], [0, 1, 2, 3], batch_size=5)(encoder)
    assert seen == [3, 3, 2, 5, 3]
