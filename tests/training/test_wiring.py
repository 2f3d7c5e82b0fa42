"""Each setting of ``train_encoder`` reaches the trainer, or the part that it is for, at each entrance of a training."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers.base.sampler import BatchSamplers
from transformers import EarlyStoppingCallback, TrainerCallback, TrainerState

from st_extras.losses import AdCSELoss, SimCSELoss
from st_extras.training import LossStateCallback, train_encoder
from st_extras.training.checkpoints import RECORD
from st_extras.training.run import score_of
from st_extras.training.trainer import _has_ended
from tests.fixtures import SENTENCES
from tests.training.test_run import ScriptedEvaluator, SeesCheckpoints, interrupted, short_training

OPTIONS: dict[str, Any] = {
    "batch_size": 3,
    "learning_rate": 2e-3,
    "loss_learning_rate": 7e-3,
    "max_steps": 4,
    "eval_steps": 2,
    "patience": 3,
    "seed": 11,
    "bf16": True,
    "no_duplicates": False,
    "show_progress_bar": False,
    "save_total_limit": 3,
    "warmup_steps": 1,
    "weight_decay": 0.03,
    "learning_rate_mapping": {".*LayerNorm.bias$": 9e-3},
}
"""None of them is a default."""


class ReadsRecord(TrainerCallback):
    """Keeps the record of the training that is beside its checkpoints."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.record = json.loads(Path(args.output_dir, RECORD).read_text())


def of_trainer(found: Any, names: Any) -> dict[str, Any]:
    return {name: getattr(found.trainer.args, name) for name in names}


def test_all_reach_the_trainer(encoder, tmp_path):
    made: list[Any] = []

    def loss(model: Any) -> Any:
        assert torch.initial_seed() == 11  # the loss's own weights follow the seed
        made.append(AdCSELoss(model))
        return made[0]

    evaluator, mine = ScriptedEvaluator([3.0, 1.0, 2.0], greater_is_better=False), ReadsRecord()
    found = train_encoder(encoder, loss, SENTENCES, tmp_path / "out", evaluator=evaluator, callbacks=[mine], **OPTIONS)
    trainer = found.trainer
    expected = {
        "per_device_train_batch_size": 3,
        "learning_rate": 2e-3,
        "max_steps": 4,
        "seed": 11,
        "bf16": True,
        "batch_sampler": BatchSamplers.BATCH_SAMPLER,
        "disable_tqdm": True,
        "save_total_limit": 3,
        "warmup_steps": 1,
        "weight_decay": 0.03,
        "save_strategy": "steps",
        "eval_strategy": "steps",
        "save_steps": 2,
        "eval_steps": 2,
        "logging_steps": 2,
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_scripted",
        "greater_is_better": False,
        "use_cpu": True,
        "report_to": [],
        "output_dir": str(tmp_path / "out.checkpoints"),
        "restore_callback_states_from_checkpoint": True,
    }
    assert of_trainer(found, expected) == expected
    (own, rate), *mine_too = trainer.args.learning_rate_mapping.items()
    assert (rate, mine_too) == (7e-3, [(".*LayerNorm.bias$", 9e-3)])
    assert own.startswith("^(")
    assert (trainer.model, trainer.loss, trainer.evaluator) == (encoder, made[0], evaluator)
    assert trainer.train_dataset["sentence"] == SENTENCES
    callbacks = {type(callback): callback for callback in trainer.callback_handler.callbacks}
    assert callbacks[ReadsRecord] is mine
    assert callbacks[EarlyStoppingCallback].early_stopping_patience == 3
    assert LossStateCallback in callbacks
    lasting = {name: value for name, value in OPTIONS.items() if name != "show_progress_bar"}
    assert lasting.items() <= mine.record.items()
    assert (mine.record["loss"], mine.record["evaluator"]) == ("AdCSELoss", "ScriptedEvaluator")


@pytest.mark.parametrize(("least", "sampler"), [(8, "NO_DUPLICATES_HASHED"), (9, "NO_DUPLICATES")])
def test_equal_sentences_of_many_rows_are_found_by_their_hashes(encoder, tmp_path, monkeypatch, least, sampler):
    monkeypatch.setattr("st_extras.training.trainer.HASHED_FROM", least)
    found = short_training(encoder, tmp_path / "out", max_steps=1)
    assert found.trainer.args.batch_sampler == BatchSamplers[sampler]


@pytest.mark.parametrize(
    ("steps", "bad", "patience", "ended"),
    [(3, 0, None, False), (4, 0, None, True), (3, 1, 2, False), (3, 2, 2, True), (3, 3, 2, True), (4, 0, 2, True)],
)
def test_a_training_has_ended_by_its_steps_or_its_patience(steps, bad, patience, ended):
    attributes = {"early_stopping_patience_counter": bad}
    state = TrainerState(global_step=steps, max_steps=4)
    state.stateful_callbacks = {"EarlyStoppingCallback": {"args": {}, "attributes": attributes}}
    assert _has_ended(state, patience) is ended


@pytest.mark.parametrize(
    ("scores", "metric", "expected"),
    [
        ({"a": 0.5, "b": 0.25}, "b", (0.25, "b")),
        (0.75, None, (0.75, "evaluator")),
        (0.75, "b", (0.75, "evaluator")),
        ({"a": 0.5, "b": 1}, "c", r"one of its scores \('a', 'b'\) in primary_metric, got 'c'"),
        ({"a": 0.5, "b": float("inf")}, "b", r"a finite score, got inf before training \(b\)"),
        (float("nan"), None, r"a finite score, got nan before training \(evaluator\)"),
    ],
)
def test_the_score_of_an_evaluator(encoder, scores, metric, expected):
    """A number, or several by name."""
    evaluator: Any = lambda model: scores if model is encoder else None  # noqa: E731
    evaluator.primary_metric = metric
    if isinstance(expected, tuple):
        assert score_of(evaluator, encoder) == expected
    else:
        with pytest.raises(ValueError, match=f"^evaluator must (name|return) {expected}"):
            score_of(evaluator, encoder)


def test_adapters_are_trained_and_checkpointed_alone(encoder, tmp_path):
    pytest.importorskip("peft")
    reads = ReadsRecord()
    options = {"max_steps": 2, "batch_size": 4, "eval_steps": 1, "show_progress_bar": False, "callbacks": [reads]}
    found = train_encoder(encoder, SimCSELoss, SENTENCES, tmp_path / "out", lora=3, **options)
    assert found.trainer.trained_only
    assert reads.record["lora"]["r"] == 3
    trained = {tuple(value.shape) for group in found.trainer.optimizer.param_groups for value in group["params"]}
    assert {min(shape) for shape in trained} == {3}


def test_without_an_evaluator_and_by_epochs(encoder, tmp_path):
    options = {"epochs": 2, "batch_size": 4, "show_progress_bar": False}
    found = train_encoder(encoder, AdCSELoss, SENTENCES, tmp_path / "out", **options)
    expected = {
        "num_train_epochs": 2,
        "max_steps": -1,
        "learning_rate": 3e-5,
        "seed": 42,
        "bf16": False,
        "batch_sampler": BatchSamplers.NO_DUPLICATES,
        "save_total_limit": 2,
        "save_steps": 125,
        "eval_strategy": "no",
        "load_best_model_at_end": False,
        "learning_rate_mapping": {},
    }
    assert of_trainer(found, expected) == expected
    assert (found.steps, found.trainer.evaluator) == (4, None)


@pytest.mark.parametrize(("way", "step", "names"), [("resume", 2, ["checkpoint-2"]), ("overwrite", 0, [])])
def test_an_interrupted_training_is_continued_or_discarded(make_encoder, tmp_path, way, step, names):
    checkpoints = interrupted(make_encoder(), tmp_path / "out", AdCSELoss, max_steps=4)
    seen, options = SeesCheckpoints(checkpoints), {"batch_size": 4} if way == "resume" else {"batch_size": 3}
    short_training(make_encoder(), tmp_path / "out", AdCSELoss, max_steps=4, callbacks=[seen], **options, **{way: True})
    assert (seen.first_step, seen.names) == (step, names)


def test_a_sample_of_the_text_is_looked_at(encoder, tmp_path, caplog):
    short_training(encoder, tmp_path / "out", data=["good", "bad"] * 8, max_steps=1, no_duplicates=False)
    assert "looks like a column of labels" in caplog.text
    with pytest.raises(ValueError, match=r"^data must hold tokens that the encoder knows"):
        short_training(encoder, tmp_path / "new", data=["\u4e16\u754c"] * 8, max_steps=1)
