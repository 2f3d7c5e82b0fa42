"""What every evaluator promises: options, names, the CSV file, the Trainer, the model card, and a model left alone."""

import csv
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer

from st_extras.evaluation import (
    GeometryEvaluator,
    LabeledTextEvaluator,
    QuestionRetrievalEvaluator,
    RetrievalEvaluator,
    STSDataset,
    STSEvaluator,
    UnlabeledSelectionEvaluator,
    question_retrieval,
    reranking_evaluator,
)
from st_extras.losses import SimCSELoss
from tests.fixtures import SENTENCES
from tests.helpers import arguments, count_rows, differing, snapshot

PAIRS = STSDataset("toy", SENTENCES[:4], SENTENCES[4:], [0.5, 1.5, 2.5, 4.5], ["x"] * 4)
CORPUS = [f"{sentence} {word}" for sentence in SENTENCES for word in ("now", "then")]
TASK = question_retrieval([(one, other, True) for one, other in zip(SENTENCES[:4], SENTENCES[4:], strict=True)])
SAMPLES = [{"query": SENTENCES[0], "positive": SENTENCES[1], "negative": SENTENCES[2:]}]

OWN: dict[str, tuple[Callable[..., Any], str, str, int]] = {
    "sts": (lambda **o: STSEvaluator([PAIRS], **o), "toy_spearman_cosine", "sts_evaluation", 8),
    "geometry": (lambda **o: GeometryEvaluator(SENTENCES, **o), "uniformity", "geometry_evaluation", 8),
    "labels": (lambda **o: LabeledTextEvaluator(SENTENCES, ["a", "b"] * 4, **o), "mean", "labeled_text_evaluation", 8),
    "selection": (
        lambda **o: UnlabeledSelectionEvaluator(CORPUS, size=10, **o),
        "contrast_shortening",
        "unlabeled_selection",
        20,
    ),
}
"""By name: how it is made, its primary metric, its CSV file and how many texts it encodes."""
OTHERS: dict[str, Callable[..., Any]] = {
    "questions": lambda **o: QuestionRetrievalEvaluator(TASK, **o),
    "retrieval": lambda **o: RetrievalEvaluator(TASK, **o),
    "reranking": lambda **o: reranking_evaluator(SAMPLES, **o),
}
"""Those of Sentence Transformers with other settings."""
EVALUATORS = {name: own[0] for name, own in OWN.items()} | OTHERS


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("batch_size", 0),
        ("batch_size", 10**11),
        ("batch_size", "8"),
        ("batch_size", True),
        ("write_csv", "False"),
        ("show_progress_bar", 0),
        ("name", 5),
        ("name", "a/b"),
    ],
)
@pytest.mark.parametrize("make", EVALUATORS.values(), ids=EVALUATORS)
def test_a_wrong_option_is_named(make, option, value):
    with pytest.raises(ValueError, match=rf"^{option} must be .*got {value!r}"):
        make(**{option: value})


@pytest.mark.parametrize("name", ["", "toy", "dev"])
@pytest.mark.parametrize("make", EVALUATORS.values(), ids=EVALUATORS)
def test_the_primary_metric_is_among_the_results_at_every_call(encoder, make, name):
    evaluator = make(name=name)
    primary = evaluator.primary_metric
    for _ in range(2):
        metrics = evaluator(encoder)
        assert evaluator.primary_metric == primary
        assert primary in metrics
        assert all(key.startswith(name) and type(value) is float for key, value in metrics.items())


@pytest.mark.parametrize("own", OWN.values(), ids=OWN)
def test_batches_csv_and_names(encoder, own, tmp_path):
    make, primary, file, texts = own
    evaluator = make(name="dev", batch_size=3)
    assert evaluator.primary_metric == f"dev_{primary}"
    with count_rows(encoder) as passes:
        metrics = evaluator(encoder, str(tmp_path / "new"), epoch=0.5, steps=7)
    assert (max(passes), sum(passes)) == (3, texts)
    with (tmp_path / "new" / f"{file}_dev_results.csv").open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert (row.pop("epoch"), row.pop("steps")) == ("0.5", "7")
    assert {f"dev_{name}": float(value) for name, value in row.items()} == metrics
    make(write_csv=False)(encoder, str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", OWN)
def test_nothing_of_the_model_and_the_caller_moves(encoder, name, training):
    encoder.train(training)
    encoder[1].train(not training)
    modes, weights = [module.training for module in encoder.modules()], snapshot(encoder)
    states = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy())  # noqa: NPY002
    evaluator = OWN[name][0]()
    first, second = evaluator(encoder), evaluator(encoder)
    assert first == second, "dropout is off"
    if name in ("labels", "selection"):  # encode itself leaves the model in eval mode
        assert [module.training for module in encoder.modules()] == modes
    assert differing(weights, snapshot(encoder)) == set()
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert (states[2] == np.random.get_state()[1]).all()  # noqa: NPY002


@pytest.mark.parametrize("name", ["geometry", "labels", "selection"])
def test_an_encoder_that_diverged_is_named(encoder, name):
    with torch.no_grad():
        next(encoder.parameters()).fill_(math.nan)
    with pytest.raises(ValueError, match="must be finite"):
        OWN[name][0]()(encoder)


def test_they_choose_in_the_trainer_and_appear_in_the_model_card(encoder, tmp_path):
    evaluators = [make() for make, *_ in OWN.values()]
    chosen = evaluators[1]
    trainer = SentenceTransformerTrainer(
        encoder,
        args=arguments(
            tmp_path,
            eval_strategy="steps",
            eval_steps=1,
            save_strategy="steps",
            save_steps=1,
            load_best_model_at_end=True,
            metric_for_best_model=f"eval_{chosen.primary_metric}",
            greater_is_better=chosen.greater_is_better,
        ),
        train_dataset=Dataset.from_dict({"sentence": SENTENCES}),
        loss=SimCSELoss(encoder),
        evaluator=evaluators,
    )
    trainer.train()
    logged = [entry["eval_uniformity"] for entry in trainer.state.log_history if "eval_uniformity" in entry]
    assert len(logged) == 2
    assert trainer.state.best_metric == pytest.approx(min(logged))
    encoder.save(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text(encoding="utf8")
    for words in ("Geometry", "Labeled Text", "Unlabeled Selection", "Semantic Textual Similarity"):
        assert words in card
    for words in ("iso_score", "v_measure_std", "neighbors", "contrast_shortening", "toy_spearman_cosine"):
        assert words in card


@pytest.mark.parametrize(
    "make", [GeometryEvaluator, lambda data: UnlabeledSelectionEvaluator(data, size=10)], ids=["geometry", "selection"]
)
def test_sentences_may_be_a_data_set(make):
    assert make(Dataset.from_dict({"text": CORPUS})).sentences == make(CORPUS).sentences
    with pytest.raises(ValueError, match=r"sentences must .*'train'"):
        make({"train": CORPUS})
