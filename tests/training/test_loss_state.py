"""LossStateCallback: what is saved, restored and refused."""

from typing import Any

import pytest
import torch
from datasets import Dataset, DatasetDict
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from transformers import TrainerCallback

from st_extras.files import write_tensors
from st_extras.losses import AdCSELoss, DCLRLoss, SimCSELoss
from st_extras.training.loss_state import FILE_NAME, LossStateCallback
from st_extras.training.run_folder import mark_complete
from tests.helpers import arguments, columns, differing, snapshot, train

SAVE: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2, "num_train_epochs": 2}


@pytest.mark.slow
def test_dict_of_losses(make_encoder, sentences, tmp_path):
    def trained(name: str, resume: str | None = None) -> SentenceTransformerTrainer:
        model = make_encoder()
        torch.manual_seed(3)
        losses = {"first-set": DCLRLoss(model, projection=True), "second": AdCSELoss(model, num_adversaries=4)}
        data = DatasetDict({key: Dataset.from_dict(columns(sentences)) for key in losses})
        trainer = SentenceTransformerTrainer(
            model,
            args=arguments(tmp_path / name, max_steps=6, **{**SAVE, "num_train_epochs": 1}),
            train_dataset=data,
            loss=losses,
        )
        LossStateCallback.attach(trainer)
        trainer.train(resume_from_checkpoint=resume)
        return trainer

    whole = trained("whole")
    resumed = trained("whole", resume=str(tmp_path / "whole" / "checkpoint-2"))
    for name, loss in whole.loss.items():
        mine, theirs = snapshot(loss), snapshot(resumed.loss[name])
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    saved = load_file(tmp_path / "whole" / "checkpoint-2" / FILE_NAME)
    assert {"first-set.step.projection_head.0.weight", "first-set.noise.source._extra_state"} <= saved.keys()
    assert not any(name.split(".")[1] == "model" for name in saved)  # which the trainer saves
    assert not list(tmp_path.rglob("*.partial"))


def test_checkpoint_without_state_is_refused(make_encoder, sentences, tmp_path):
    model = make_encoder()
    train(model, SimCSELoss(model), columns(sentences), tmp_path, attach=False, **SAVE)
    with pytest.raises(ValueError, match=r"that LossStateCallback saved, got .* is missing"):
        train(model, SimCSELoss(model), columns(sentences), tmp_path, resume=str(tmp_path / "checkpoint-2"), **SAVE)


def test_state_of_another_loss_is_refused(make_encoder, sentences, tmp_path):
    model = make_encoder()
    train(model, SimCSELoss(model, projection=True), columns(sentences), tmp_path, **SAVE)
    checkpoint = str(tmp_path / "checkpoint-2")
    with pytest.raises(ValueError, match=r"got another tensor in it, 'loss\.step\.projection_"):
        train(model, SimCSELoss(model), columns(sentences), tmp_path, resume=checkpoint, **SAVE)
    smaller = make_encoder(hidden_size=8)
    with pytest.raises(ValueError, match=r"of the shape \(16,.* instead of \(8,.*: give the loss the settings"):
        train(smaller, SimCSELoss(smaller, projection=True), columns(sentences), tmp_path, resume=checkpoint, **SAVE)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_broken_files_are_refused_by_name(make_encoder, tmp_path, value):
    model = make_encoder()
    trainer = SentenceTransformerTrainer(model, args=arguments(tmp_path), loss=SimCSELoss(model, projection=True))
    callback = LossStateCallback.attach(trainer)
    with torch.no_grad():
        trainer.loss.step.projection_head[0].bias[0] = value
    callback.on_save(trainer.args, trainer.state, trainer.control)
    path = tmp_path / "checkpoint-0" / FILE_NAME
    with torch.no_grad():
        trainer.loss.step.projection_head[0].bias[0] = 0
    before = snapshot(trainer.loss)
    with pytest.raises(ValueError, match=r"got 'loss\.step\.projection_head\.0\.bias' with NaN"):
        callback.restore(path.parent)
    callback.on_save(trainer.args, trainer.state, trainer.control)
    tensors = load_file(path)
    tensors["loss.step.two_views.source._extra_state"] = torch.zeros(1, 0, dtype=torch.uint8)
    write_tensors(path, tensors, {"format": "st-extras loss state"})
    mark_complete(path.parent, {})
    with pytest.raises(ValueError, match=r"loss_state\.safetensors, loss\.step\.two_views\.source: a random state"):
        callback.restore(path.parent)
    callback.on_save(trainer.args, trainer.state, trainer.control)
    content = bytearray(path.read_bytes())
    content[-1] ^= 64
    for broken, message in ((content, "its checksum differs"), (b"nonsense", "a damaged file")):
        path.write_bytes(broken)
        mark_complete(path.parent, {})
        with pytest.raises(ValueError, match=rf"loss_state\.safetensors' must be .*, got .*{message}"):
            callback.restore(path.parent)
    path.write_bytes(b"")
    with pytest.raises(
        ValueError, match=r"must be a complete one .* where loss_state\.safetensors has 0 bytes instead"
    ):
        callback.restore(path.parent)
    assert differing(before, snapshot(trainer.loss)) == set()


def test_extra_state_that_is_not_a_tensor_is_refused_at_once(encoder, tmp_path):
    class Odd(SimCSELoss):
        def get_extra_state(self) -> dict[str, int]:
            return {"steps": 1}

    trainer = SentenceTransformerTrainer(encoder, args=arguments(tmp_path), loss=Odd(encoder))
    with pytest.raises(ValueError, match="must be a tensor, got a dict"):
        LossStateCallback.attach(trainer)


def test_adapters_on_a_cut_encoder_are_refused(encoder, tmp_path):
    """Sentence Transformers saves them alone, and loads them onto the whole encoder."""
    body: Any = encoder[0].auto_model
    body.cut_in_memory = body._hf_peft_config_loaded = True
    trainer = SentenceTransformerTrainer(encoder, args=arguments(tmp_path), loss=SimCSELoss(encoder))
    with pytest.raises(ValueError, match=r"^model must be a whole encoder or a saved one .* add_adapter"):
        LossStateCallback.attach(trainer)


class Recorder(TrainerCallback):
    """Keeps the log entries that the trainer's callbacks get."""

    def __init__(self) -> None:
        self.logs: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **kwargs: Any) -> None:
        self.logs.append(dict(logs))


LOG: dict[str, Any] = {"logging_steps": 1, "logging_strategy": "steps"}


@pytest.mark.parametrize("wrap", [lambda model, loss: loss, lambda model, loss: MatryoshkaLoss(model, loss, [16, 8])])
def test_instruments_are_logged_whatever_the_order_of_callbacks(encoder, sentences, tmp_path, wrap):
    before, after = Recorder(), Recorder()
    loss = wrap(encoder, DCLRLoss(encoder, complementary_model="self", threshold=0.2))
    trainer = SentenceTransformerTrainer(
        encoder,
        args=arguments(tmp_path, **LOG),
        train_dataset=Dataset.from_dict(columns(sentences)),
        loss=loss,
        callbacks=[before],
    )
    LossStateCallback.attach(trainer)
    trainer.add_callback(after)
    trainer.train()
    for entries in (before.logs, after.logs, trainer.state.log_history):
        steps = [logs for logs in entries if "loss" in logs]
        assert len(steps) == 2
        for logs in steps:
            assert isinstance(logs["noise_angle"], float)
            assert 0 <= logs["masked_negatives"] <= 1
        assert "noise_angle" not in entries[-1]  # the summary of the training
    inner = loss.loss if isinstance(loss, MatryoshkaLoss) else loss
    assert steps[-1]["masked_negatives"] == float(inner.instruments["masked_negatives"])


def test_instruments_of_several_losses_bear_the_name_of_their_data(encoder, sentences, tmp_path):
    losses = {
        "first-set": DCLRLoss(encoder),
        "second": AdCSELoss(encoder, num_adversaries=4),
        "third": SimCSELoss(encoder),
    }
    trainer = SentenceTransformerTrainer(
        encoder,
        args=arguments(tmp_path, max_steps=6, **LOG),
        train_dataset=DatasetDict({key: Dataset.from_dict(columns(sentences)) for key in losses}),
        loss=losses,
    )
    LossStateCallback.attach(trainer)
    trainer.train()
    steps = [logs for logs in trainer.state.log_history if "loss" in logs]
    expected = {"first-set_noise_angle", *(f"second_adversary_{name}" for name in ("share", "similarity", "angle"))}
    assert expected == {key for key in steps[-1] if key.startswith((*losses,))}
    assert len([key for key in steps[0] if key in expected]) in (0, 1, 3)  # NaN before the first step: left out
    assert not any(value != value for logs in steps for value in logs.values())


class Named(SimCSELoss):
    """Its instruments have names that the log has, too."""

    instruments = {"loss": 99.0, "learning_rate": 99.0, "own": 1.0}  # noqa: RUF012


def test_an_instrument_of_a_taken_name_hides_nothing(encoder, sentences, tmp_path):
    trainer = train(encoder, Named(encoder), columns(sentences), tmp_path, **LOG)
    steps = [logs for logs in trainer.state.log_history if "loss" in logs]
    assert len(steps) == 2
    for logs in steps:
        assert logs["own"] == 1.0
        assert 99.0 not in (logs["loss"], logs["learning_rate"])
