"""LossStateCallback: what is saved, restored and refused."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset, DatasetDict
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from transformers import TrainerCallback, integrations
from transformers.trainer_utils import HPSearchBackend

from st_extras.encoders.loading import keep_layers
from st_extras.files import FILES
from st_extras.losses import AdCSELoss, DCLRLoss, SimCSELoss
from st_extras.random_source import RandomSource
from st_extras.training import loss_state
from st_extras.training.loss_state import FILE_NAME, LossStateCallback
from tests.fixtures import SENTENCES
from tests.helpers import arguments, columns, differing, snapshot, train

SAVE: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2, "num_train_epochs": 2}
LOG: dict[str, Any] = {"logging_steps": 1, "logging_strategy": "steps"}


def test_dict_of_losses(make_encoder, sentences, tmp_path):
    def trained(name: str, resume: str | None = None) -> SentenceTransformerTrainer:
        model = make_encoder()
        torch.manual_seed(3)
        losses = {"first-set": DCLRLoss(model, projection=True), "second": AdCSELoss(model, num_adversaries=4)}
        data = DatasetDict({key: Dataset.from_dict(columns(sentences)) for key in losses})
        trainer = SentenceTransformerTrainer(
            model,
            args=arguments(tmp_path / name, max_steps=6, **{**SAVE, "num_train_epochs": 1} | LOG),
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
    assert {"first-set.projection_head.0.weight", "first-set.noise.source._extra_state"} <= saved.keys()
    assert not any(name.split(".")[1] == "model" for name in saved)  # which the trainer saves
    steps = [logs for logs in whole.state.log_history if "loss" in logs]
    expected = {"first-set_noise_angle", *(f"second_adversary_{name}" for name in ("share", "similarity", "angle"))}
    assert expected == {key for key in steps[-1] if key.startswith(("first-set", "second"))}
    assert not any(value != value for logs in steps for value in logs.values()), "NaN before the first step is left out"


def test_state_of_another_loss_is_refused(make_encoder, sentences, tmp_path):
    model = make_encoder()
    train(model, SimCSELoss(model, projection=True), columns(sentences), tmp_path, **SAVE)
    checkpoint = str(tmp_path / "checkpoint-2")
    with pytest.raises(ValueError, match=r"^loss must be the one whose .* with another 'loss\.projection_"):
        train(model, SimCSELoss(model), columns(sentences), tmp_path, resume=checkpoint, **SAVE)
    smaller = make_encoder(hidden_size=8)
    with pytest.raises(ValueError, match=r"^loss must be .* another 'loss\.projection_"):
        train(smaller, SimCSELoss(smaller, projection=True), columns(sentences), tmp_path, resume=checkpoint, **SAVE)
    for name in ("scheduler.pt", FILES):
        (tmp_path / "checkpoint-2" / name).unlink()
        with pytest.raises(ValueError, match=r"^checkpoint must be a complete one that LossStateCallback saved"):
            train(model, SimCSELoss(model), columns(sentences), tmp_path, resume=checkpoint, **SAVE)


def test_a_random_state_that_is_none_is_refused_by_the_name_of_its_file(encoder, tmp_path):
    trainer = SentenceTransformerTrainer(encoder, args=arguments(tmp_path), loss=SimCSELoss(encoder, projection=True))
    callback = LossStateCallback.attach(trainer)
    callback.on_save(trainer.args, trainer.state, trainer.control)
    path = tmp_path / "checkpoint-0" / FILE_NAME
    tensors, before = load_file(path), snapshot(trainer.loss)
    (name,) = (name for name in tensors if name.endswith("._extra_state"))
    save_file(tensors | {name: torch.zeros(1, 0, dtype=torch.uint8)}, path)
    with pytest.raises(ValueError, match=r"loss_state\.safetensors"):
        callback.restore(path.parent)
    assert differing(before, snapshot(trainer.loss)) == set()


def test_a_checkpoint_is_listed_when_all_of_it_is_on_the_disk(encoder, tmp_path, monkeypatch):
    trainer = SentenceTransformerTrainer(encoder, args=arguments(tmp_path), loss=SimCSELoss(encoder))
    callback = LossStateCallback.attach(trainer)
    synced: list[set[str]] = []
    monkeypatch.setattr(
        loss_state, "sync_files", lambda folder: synced.append({path.name for path in folder.iterdir()})
    )
    callback.on_save(trainer.args, trainer.state, trainer.control)
    assert synced == [{FILE_NAME}]
    assert {path.name for path in (tmp_path / "checkpoint-0").iterdir()} == {FILE_NAME, FILES}


@pytest.fixture
def two(encoder, tmp_path):
    """A callback of two losses, each with a head and noise; what its events are called with; its folder."""
    losses: Any = {name: DCLRLoss(encoder, projection=True) for name in "ab"}
    trainer = SentenceTransformerTrainer(encoder, args=arguments(tmp_path), loss=losses)
    event = (trainer.args, trainer.state, trainer.control)
    return LossStateCallback.attach(trainer), event, tmp_path / "checkpoint-0"


def drawn(callback: LossStateCallback, seeds: tuple[int, int] | None = None) -> list[list[float]]:
    """The next numbers of both losses' sources; first seeded anew, if seeds are given."""
    found = []
    for number, loss in enumerate(callback._losses().values()):
        source = next(module for module in loss.modules() if isinstance(module, RandomSource))
        draws = source.on(torch.device("cpu"))
        if seeds is not None:
            draws.manual_seed(seeds[number])
        found.append(torch.randn(3, generator=draws).tolist())
    return found


def test_every_loss_of_several_gets_its_state_back_and_knows_that_it_is_synchronised(two):
    callback, event, folder = two
    drawn(callback, (3, 4))
    callback.on_save(*event)
    losses = callback._losses()
    expected, before = drawn(callback), [snapshot(loss.projection_head) for loss in losses.values()]
    drawn(callback, (5, 6))
    with torch.no_grad():
        for loss in losses.values():
            next(loss.projection_head.parameters()).add_(1)
    callback.restore(folder)
    assert drawn(callback) == expected
    for loss, weights in zip(losses.values(), before, strict=True):
        assert differing(weights, snapshot(loss.projection_head)) == set()
        assert all(module.synchronised_across_processes for module in loss.modules())


def test_what_two_losses_share_is_stored_once(encoder, tmp_path):
    loss = SimCSELoss(encoder, projection=True)
    trainer = SentenceTransformerTrainer(encoder, args=arguments(tmp_path), loss={"a": loss, "b": loss})
    LossStateCallback.attach(trainer).on_save(trainer.args, trainer.state, trainer.control)
    names = [name for name in load_file(tmp_path / "checkpoint-0" / FILE_NAME) if not name.endswith("_extra_state")]
    assert names
    assert {name.partition(".")[0] for name in names} == {"a"}


def test_a_further_process_saves_its_random_states_alone_and_gets_them_back(two, monkeypatch, caplog):
    """Without its file, it goes on with those that it has."""
    callback, event, folder = two
    ranks = {}
    for rank in (1, 0):  # the first lists all files
        monkeypatch.setattr(loss_state, "get_rank", lambda rank=rank: rank)
        drawn(callback, (10 + rank, 20 + rank))
        callback.on_save(*event)
        ranks[rank] = drawn(callback)
    own = load_file(folder / "loss_state_rank1.safetensors")
    assert own.keys() == {name for name in load_file(folder / FILE_NAME) if name.endswith("._extra_state")}
    for rank, expected in ranks.items():
        monkeypatch.setattr(loss_state, "get_rank", lambda rank=rank: rank)
        callback.restore(folder)
        assert drawn(callback) == expected
    assert not caplog.messages
    monkeypatch.setattr(loss_state, "get_rank", lambda: 2)
    drawn(callback, (7, 8))
    expected = drawn(callback)
    drawn(callback, (7, 8))  # where it was before
    callback.restore(folder)
    assert drawn(callback) == expected
    assert "has no random state for rank 2" in caplog.text


def test_gradients_are_averaged_of_what_is_trained(two, monkeypatch):
    """With another process whose gradients are 3."""
    callback, event, _ = two
    first, second = (loss.projection_head[0] for loss in callback._losses().values())
    first.weight.grad = torch.ones_like(first.weight)
    second.bias.requires_grad_(False)
    callback.on_pre_optimizer_step(*event)
    assert first.bias.grad is None, "a single process has nothing to average"
    monkeypatch.setattr(loss_state, "get_world_size", lambda: 2)
    monkeypatch.setattr(loss_state.dist, "all_reduce", lambda tensor: tensor.add_(3))
    callback.on_pre_optimizer_step(*event)
    assert (first.weight.grad == 2).all()
    assert (first.bias.grad == 1.5).all()
    assert (second.weight.grad == 1.5).all()
    assert second.bias.grad is None


def test_adapters_on_an_encoder_cut_in_memory_are_refused_at_once(encoder, tmp_path):
    """Sentence Transformers would load them onto the whole encoder."""
    trainer = SentenceTransformerTrainer(encoder, args=arguments(tmp_path), loss=SimCSELoss(encoder))
    keep_layers(encoder, 1)
    encoder.add_adapter(pytest.importorskip("peft").LoraConfig(r=2, target_modules=["query"]))
    with pytest.raises(ValueError, match=r"^model must be a whole encoder or a saved one"):
        LossStateCallback.attach(trainer)


class Recorder(TrainerCallback):
    """Keeps the log entries of steps that a callback from before LossStateCallback gets."""

    def __init__(self) -> None:
        self.logs: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **kwargs: Any) -> None:
        self.logs += [dict(logs)] * ("loss" in logs)


def test_instruments_of_a_wrapped_loss_are_logged_to_every_callback_and_hide_nothing(encoder, sentences, tmp_path):
    class Named(SimCSELoss):
        instruments = {"loss": 99.0, "own": torch.tensor(1.0)}  # noqa: RUF012

    before, loss = Recorder(), MatryoshkaLoss(encoder, Named(encoder), [16, 8])
    trainer = train(encoder, loss, columns(sentences), tmp_path, callbacks=[before], **LOG)
    steps = [logs for logs in trainer.state.log_history if "loss" in logs]
    assert len(steps) == len(before.logs) == 2
    assert [logs["own"] for logs in steps + before.logs] == [1.0] * 4
    assert all(logs["loss"] != 99.0 for logs in steps)
    assert "own" not in trainer.state.log_history[-1]  # the summary of the training


def test_trials_of_a_search_begin_with_the_same_loss_and_have_their_own_checkpoints(
    make_encoder, tmp_path, monkeypatch
):
    monkeypatch.setattr(integrations, "hp_params", lambda trial: {})  # which knows optuna's trials alone

    def trainer() -> SentenceTransformerTrainer:
        torch.manual_seed(0)
        args = arguments(tmp_path, max_steps=2, save_steps=1, save_strategy="steps")
        data = Dataset.from_dict({"sentence": SENTENCES})
        made = SentenceTransformerTrainer(
            model_init=lambda trial=None: make_encoder(), args=args, train_dataset=data, loss=AdCSELoss
        )
        made.callback = LossStateCallback.attach(made)
        return made

    search, begun = trainer(), []
    search.hp_search_backend, search.hp_space, search.hp_name = HPSearchBackend.OPTUNA, lambda trial: {}, None
    begin = search.callback.on_train_begin

    def on_train_begin(*given: Any, **named: Any) -> None:
        begin(*given, **named)
        begun.append({name: value.detach().clone() for name, value in search.callback._state().items()})

    search.callback.on_train_begin = on_train_begin
    for number in range(2):
        search.train(trial=SimpleNamespace(number=number, params={}))
    assert {name for name, value in begun[0].items() if not torch.equal(value, begun[1][name])} == set()
    assert not [*tmp_path.glob("checkpoint-*")]
    assert len([*tmp_path.glob("run-*/checkpoint-*/loss_state.safetensors")]) == 4
    checkpoint = tmp_path / "run-1" / "checkpoint-1"
    search.callback.restore(checkpoint)
    assert differing(load_file(checkpoint / FILE_NAME), search.callback._state()) == set()
