"""Each setting of ``train_encoder`` reaches the trainer, or the part that it is for, at each entrance of a run."""

from typing import Any

import pytest
from sentence_transformers.base.sampler import BatchSamplers
from transformers import EarlyStoppingCallback, TrainerCallback

from st_extras.losses import AdCSELoss, SimCSELoss
from st_extras.training import LossStateCallback, train_encoder
from tests.adaptation.test_wiring import Recorder
from tests.fixtures import SENTENCES
from tests.training.test_run import ScriptedEvaluator, interrupted

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
}
"""None of them is a default."""


@pytest.fixture
def recorder(monkeypatch):
    recorder = Recorder(monkeypatch)
    recorder.on(
        *("st_extras.training.run:set_seed", "st_extras.training.run:lora_adapters"),
        *("st_extras.training.run:check_known", "st_extras.training.run:warn_of_labels"),
        *("st_extras.training.run:check_same_training", "st_extras.training.run:keep_checkpoints"),
        *("st_extras.training.run:run_trainer", "st_extras.training.run:check_places"),
        "st_extras.training.run:replace_folder",
    )
    return recorder


def of_trainer(found: Any, names: Any) -> dict[str, Any]:
    return {name: getattr(found.trainer.args, name) for name in names}


def test_all_reach_the_trainer(encoder, tmp_path, recorder):
    made: list[Any] = []

    def loss(model: Any) -> Any:
        assert len(recorder.calls["set_seed"]) == 1  # the loss's own weights follow the seed
        made.append(AdCSELoss(model))
        return made[0]

    evaluator, mine = ScriptedEvaluator([3.0, 1.0, 2.0], greater_is_better=False), TrainerCallback()
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
    assert list(trainer.args.learning_rate_mapping.values()) == [7e-3]
    assert (trainer.model, trainer.loss, trainer.evaluator) == (encoder, made[0], evaluator)
    assert trainer.train_dataset["sentence"] == SENTENCES
    assert recorder.one("set_seed")["seed"] == 11
    assert recorder.one("check_known")["texts"] == recorder.one("warn_of_labels")["texts"] == SENTENCES
    assert recorder.one("lora_adapters")["lora"] is None
    asked = recorder.one("run_trainer")
    assert (asked["checkpoint"], asked["patience"]) == (None, 3)
    callbacks = {type(callback): callback for callback in trainer.callback_handler.callbacks}
    assert callbacks[TrainerCallback] is mine
    assert callbacks[EarlyStoppingCallback].early_stopping_patience == 3
    assert LossStateCallback in callbacks
    recorded = recorder.one("keep_checkpoints")["record"]
    lasting = {name: value for name, value in OPTIONS.items() if name != "show_progress_bar"}
    assert lasting.items() <= recorded.items()
    assert recorder.one("check_places") == {"output": tmp_path / "out", "resume": False, "overwrite": False}
    assert recorder.one("replace_folder") == {"target": tmp_path / "out", "overwrite": False}


def test_adapters_are_trained_and_checkpointed_alone(encoder, tmp_path, recorder):
    pytest.importorskip("peft")
    options = {"max_steps": 2, "batch_size": 4, "eval_steps": 1, "show_progress_bar": False}
    found = train_encoder(encoder, SimCSELoss, SENTENCES, tmp_path / "out", lora=3, **options)
    assert recorder.one("lora_adapters")["lora"] == 3
    assert found.trainer.trained_only
    assert recorder.one("keep_checkpoints")["record"]["lora"]["r"] == 3
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


@pytest.mark.parametrize("way", ["resume", "overwrite"])
def test_how_a_run_goes_on(make_encoder, tmp_path, recorder, way):
    interrupted(make_encoder(), tmp_path / "out", AdCSELoss, max_steps=4)
    recorder.calls.clear()
    options = {"batch_size": 4, "learning_rate": 1e-2, "eval_steps": 2, "max_steps": 4, "show_progress_bar": False}
    options |= {"resume": way == "resume", "overwrite": way == "overwrite"}
    train_encoder(make_encoder(), AdCSELoss, SENTENCES, tmp_path / "out", **options)
    last = tmp_path / "out.checkpoints" / "checkpoint-2"
    given = recorder.one("check_places")
    assert (given["resume"], given["overwrite"]) == (way == "resume", way == "overwrite")
    assert recorder.one("keep_checkpoints")["resume"] == (way == "resume")
    assert recorder.one("replace_folder")["overwrite"]
    assert recorder.one("run_trainer")["checkpoint"] == (None if way == "overwrite" else last)
    if way == "overwrite":
        assert "check_same_training" not in recorder.calls
    else:
        assert recorder.one("check_same_training")["folder"] == last.parent
