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
    RetrievalEvaluator,
    RetrievalTask,
    STSDataset,
    STSEvaluator,
)
from st_extras.losses import SimCSELoss
from tests.fixtures import SENTENCES
from tests.helpers import arguments, count_rows, differing, snapshot

PAIRS = STSDataset("toy", SENTENCES, SENTENCES[1:] + SENTENCES[:1], [0.5, 1.5, 2.5, 4.5] * 2, ["x"] * 8)
CORPUS = [f"{sentence} {word}" for sentence in SENTENCES for word in ("now", "then")]
TASK = RetrievalTask(
    dict(zip("abcd", SENTENCES[:4], strict=True)),
    dict(zip("efgh", SENTENCES[4:], strict=True)),
    {query: {document: 1.0} for query, document in zip("abcd", "efgh", strict=True)},
)

OWN: dict[str, Callable[..., Any]] = {
    "sts": lambda **options: STSEvaluator([PAIRS], **options),
    "geometry": lambda **options: GeometryEvaluator(SENTENCES, **options),
    "labels": lambda **options: LabeledTextEvaluator(SENTENCES, ["a", "b"] * 4, **options),
}
EVALUATORS = OWN | {
    "retrieval": lambda **options: RetrievalEvaluator(TASK, **options),
}
FILES = {
    "sts": ("toy_spearman_cosine", "sts_evaluation"),
    "geometry": ("uniformity", "geometry_evaluation"),
    "labels": ("mean", "labeled_text_evaluation"),
}
"""The primary metric and the CSV file."""


@pytest.mark.parametrize("make", EVALUATORS.values(), ids=EVALUATORS)
def test_a_wrong_option_is_named(make):
    wrong = [("batch_size", 0), ("batch_size", True), ("write_csv", "False"), ("show_progress_bar", 0), ("name", "a/b")]
    for option, value in wrong:
        with pytest.raises(ValueError, match=rf"^{option} must"):
            make(**{option: value})


@pytest.mark.parametrize("make", EVALUATORS.values(), ids=EVALUATORS)
def test_the_primary_metric_is_among_the_results(encoder, make):
    for name in ("", "dev"):
        evaluator = make(name=name)
        primary = evaluator.primary_metric
        metrics = evaluator(encoder)
        assert evaluator.primary_metric == primary
        assert primary in metrics
        assert all(key.startswith(name) and type(value) is float for key, value in metrics.items())


@pytest.mark.parametrize("kind", OWN)
def test_batches_csv_and_names(encoder, kind, tmp_path):
    make, (primary, file) = OWN[kind], FILES[kind]
    evaluator = make(name="dev", batch_size=3)
    assert evaluator.primary_metric == f"dev_{primary}"
    with count_rows(encoder) as passes:
        metrics = evaluator(encoder, str(tmp_path / "new"), epoch=0.5, steps=7)
    assert (max(passes), sum(passes)) == (3, 8)
    with (tmp_path / "new" / f"{file}_dev_results.csv").open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert (row.pop("epoch"), row.pop("steps")) == ("0.5", "7")
    assert {f"dev_{name}": float(value) for name, value in row.items()} == metrics
    make(write_csv=False)(encoder, str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", OWN)
def test_nothing_of_the_model_and_the_caller_moves(encoder, name):
    encoder.train()
    encoder[1].eval()
    modes, weights = [module.training for module in encoder.modules()], snapshot(encoder)
    states = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy())  # noqa: NPY002
    evaluator = OWN[name]()
    first, second = evaluator(encoder), evaluator(encoder)
    assert first == second, "dropout is off"
    if name == "labels":  # encode itself leaves the model in eval mode
        assert [module.training for module in encoder.modules()] == modes
    assert differing(weights, snapshot(encoder)) == set()
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert (states[2] == np.random.get_state()[1]).all()  # noqa: NPY002


@pytest.mark.parametrize("name", [*OWN, "retrieval"])
def test_an_encoder_that_diverged_is_named(encoder, name):
    with torch.no_grad():
        next(encoder.parameters()).fill_(math.nan)
    with pytest.raises(ValueError, match=r"^the embedding of '.*' is not finite"):
        EVALUATORS[name]()(encoder)


def test_they_choose_in_the_trainer_and_appear_in_the_model_card(encoder, tmp_path):
    evaluators = [make() for make in OWN.values()]
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
    for words in (
        "Semantic Textual Similarity",
        "iso_score",
        "neighbors",
        "toy_spearman_cosine",
    ):
        assert words in card
