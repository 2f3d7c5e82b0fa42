"""``train_encoder``: what is kept, when it stops, what it refuses and what it leaves behind."""

import functools
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset, DatasetDict, Features, IterableDataset, Value
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import BaseEvaluator
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from sentence_transformers.sentence_transformer.modules import Normalize, Router
from torch import Tensor, nn
from transformers import EarlyStoppingCallback, TrainerCallback, TrainerState

from st_extras.encoders.dropout import set_dropout
from st_extras.evaluation import STSDataset, STSEvaluator
from st_extras.files import FILES
from st_extras.losses import AdCSELoss, SimCSELoss
from st_extras.training.checkpoints import RECORD
from st_extras.training.run import TrainingRun, train_encoder
from st_extras.training.settings import TrainingSettings, training_record
from st_extras.training.trainer import _has_ended
from tests.fixtures import SENTENCES
from tests.helpers import differing, snapshot

SLOW = pytest.mark.slow


class SpyLoss(nn.Module):
    """Moves every weight it can and remembers the token ids of each batch."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model
        self.batches: list[list[tuple[int, ...]]] = []

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        features = list(sentence_features)
        ids, mask = features[0]["input_ids"], features[0]["attention_mask"]
        self.batches.append([tuple(row[kept.bool()].tolist()) for row, kept in zip(ids, mask, strict=True)])
        total: Tensor = sum(
            (self.model(column)["sentence_embedding"].tanh().sum() for column in features), ids.sum() * 0.0
        )
        return total


class ScriptedEvaluator(BaseEvaluator):
    """Returns the scores it was given, one a call, and keeps the weights that it saw."""

    def __init__(
        self, scores: Sequence[float], *, greater_is_better: bool = True, primary_metric: str | None = "scripted"
    ) -> None:
        super().__init__()
        self.scores = list(scores)
        self.primary_metric = primary_metric
        self.greater_is_better = greater_is_better
        self.seen: list[dict[str, Tensor]] = []

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        self.seen.append(snapshot(model))
        return {"scripted": self.scores[len(self.seen) - 1], "other": 0.0}


def short_training(
    model: SentenceTransformer, output: Path, loss: Any = SpyLoss, data: Any = SENTENCES, **options: Any
) -> TrainingRun:
    settings = {"batch_size": 4, "learning_rate": 1e-2, "eval_steps": 2, "show_progress_bar": False}
    return train_encoder(model, loss, data, output, **(settings | options))


class SeesCheckpoints(TrainerCallback):
    """Remembers the checkpoints that there are when the training begins, and its first step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        self.names = sorted(path.name for path in self.folder.glob("checkpoint-*"))
        self.first_step = state.global_step


class InterruptAfter(TrainerCallback):
    """Interrupts when the step after this one begins."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            raise KeyboardInterrupt


def interrupted(model: SentenceTransformer, output: Path, *arguments: Any, after: int = 2, **options: Any) -> Path:
    """Return the folder of the checkpoints of a training that was interrupted after this step."""
    callbacks = [InterruptAfter(after)]
    with pytest.raises(KeyboardInterrupt):
        short_training(model, output, *arguments, callbacks=callbacks, **options)
    return output.with_name(f"{output.name}.checkpoints")


def unsaved(model: SentenceTransformer, output: Path, *arguments: Any, **options: Any) -> Path:
    """Return the folder of the checkpoints of a training that was interrupted when its model was to be saved."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", interrupt)
        with pytest.raises(KeyboardInterrupt):
            short_training(model, output, *arguments, **options)
    return output.with_name(f"{output.name}.checkpoints")


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


class TestSelection:
    @pytest.mark.parametrize(
        ("scores", "greater", "steps", "best"),
        [
            ([0.1, 0.5, 0.2], True, 4, 2),
            pytest.param([9.0, 5.0, 3.0], False, 3, 3, marks=SLOW),  # the last step is scored, too
            ([0.5, 0.4, 0.5], True, 3, 0),  # a tie keeps the base model
        ],
    )
    def test_what_is_chosen_is_kept_and_saved(self, encoder, tmp_path, caplog, scores, greater, steps, best):
        evaluator = ScriptedEvaluator(scores, greater_is_better=greater)
        result = short_training(encoder, tmp_path / "out", evaluator=evaluator, max_steps=steps)
        assert result.curve == list(zip((0, 2, steps), scores, strict=True))
        found = (result.best_step, result.best, result.steps, result.metric)
        assert found == (best, dict(result.curve)[best], steps, "scripted")
        kept = evaluator.seen[[step for step, _ in result.curve].index(best)]
        assert differing(evaluator.seen[0], evaluator.seen[-1]) != set()
        assert differing(kept, snapshot(encoder)) == set()
        assert differing(kept, snapshot(SentenceTransformer(str(tmp_path / "out"), device="cpu"))) == set()
        assert ("No checkpoint was better than the base model" in caplog.text) == (best == 0)

    def test_the_callers_own_interval_of_evaluations_counts(self, encoder, tmp_path):
        evaluator, epochs = ScriptedEvaluator([0.1, 0.2, 0.3]), {"eval_strategy": "epoch", "save_strategy": "epoch"}
        result = short_training(encoder, tmp_path / "out", evaluator=evaluator, epochs=2, eval_steps=1, **epochs)
        assert result.curve == [(0, 0.1), (2, 0.2), (4, 0.3)]

    @pytest.mark.parametrize("never", [{"eval_delay": 100}, {"eval_strategy": "no", "save_strategy": "no"}])
    def test_without_a_scored_checkpoint_the_last_weights_are_kept(self, encoder, tmp_path, caplog, never):
        evaluator, before = ScriptedEvaluator([0.5]), snapshot(encoder)
        result = short_training(encoder, tmp_path / "out", evaluator=evaluator, max_steps=2, **never)
        assert (result.curve, result.best_step, result.best, result.steps) == ([(0, 0.5)], 2, None, 2)
        saved = SentenceTransformer(str(tmp_path / "out"), device="cpu")
        assert differing(before, snapshot(saved)) != set()
        assert differing(snapshot(encoder), snapshot(saved)) == set()
        assert "The evaluator scored no checkpoint in 2 steps: the last weights are kept" in caplog.text
        assert "No checkpoint was better" not in caplog.text

    @pytest.mark.parametrize("lost", ["checkpoint-2/model.safetensors", "checkpoint-2/loss_state.safetensors"])
    def test_best_weights_that_cannot_be_loaded_are_not_reported_as_kept(self, encoder, tmp_path, caplog, lost):
        class Losing(TrainerCallback):
            def on_save(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
                if state.global_step == 4:
                    Path(args.output_dir, lost).unlink()

        evaluator = ScriptedEvaluator([0.1, 0.9, 0.5])
        result = short_training(encoder, tmp_path / "out", evaluator=evaluator, max_steps=4, callbacks=[Losing()])
        assert (result.best_step, result.best, result.steps) == (4, 0.5, 4)
        assert differing(evaluator.seen[2], snapshot(SentenceTransformer(str(tmp_path / "out"), device="cpu"))) == set()
        assert "The best weights, of step 2 (scripted was 0.9000), could not be loaded" in caplog.text

    @SLOW
    def test_scores_that_are_not_finite_choose_no_weights(self, encoder, tmp_path):
        nan = float("nan")
        result = short_training(encoder, tmp_path / "late", evaluator=ScriptedEvaluator([0.1, 0.2, nan]), max_steps=4)
        assert (result.best_step, result.best) == (2, 0.2)
        with pytest.raises(ValueError, match=r"^Training diverged, no checkpoint has a finite eval_scripted"):
            short_training(encoder, tmp_path / "out", evaluator=ScriptedEvaluator([0.1, nan, nan]), max_steps=4)
        assert not (tmp_path / "out" / "modules.json").exists()

    @SLOW
    def test_without_evaluator_the_last_weights_are_kept(self, encoder, tmp_path):
        result = short_training(encoder, tmp_path / "out", max_steps=3)
        assert (result.curve, result.metric, result.best, result.best_step, result.steps) == ([], None, None, 3, 3)
        saved = SentenceTransformer(str(tmp_path / "out"), device="cpu")
        assert differing(snapshot(encoder), snapshot(saved)) == set()


class TestResume:
    def test_patience_and_the_best_before_the_interruption_still_count(self, make_encoder, tmp_path):
        """Two bad evaluations, one of them before the interruption, end the training."""
        options = {"max_steps": 10, "patience": 2, "save_total_limit": 5}
        first = ScriptedEvaluator([0.1, 0.9, 0.2])
        interrupted(make_encoder(), tmp_path / "out", evaluator=first, after=4, **options)
        model, rest = make_encoder(), ScriptedEvaluator([0.1, 0.4, 0.5, 0.6])
        result = short_training(model, tmp_path / "out", evaluator=rest, resume=True, **options)
        assert result.curve == [(0, 0.1), (2, 0.9), (4, 0.2), (6, 0.4)]
        assert (result.best_step, result.best, result.steps) == (2, 0.9, 6)
        assert differing(first.seen[1], snapshot(model)) == set()

    @SLOW
    @pytest.mark.parametrize(
        ("length", "scores", "best"),
        [({"max_steps": 4}, [0.1, 0.9, 0.2], 2), ({"epochs": 2}, [0.1, 0.9, 0.2], 2),
         ({"max_steps": 10, "patience": 1}, [0.1, 0.9, 0.2], 2)],
    )  # fmt: skip
    def test_a_training_that_had_ended_is_only_saved(self, make_encoder, tmp_path, length, scores, best):
        first, second = ScriptedEvaluator(scores), ScriptedEvaluator(scores)
        unsaved(make_encoder(), tmp_path / "out", evaluator=first, **length)
        again = make_encoder(seed=1)
        result = short_training(again, tmp_path / "out", evaluator=second, resume=True, **length)
        assert (result.steps, result.best_step) == (4, best)
        assert result.curve == list(zip((0, 2, 4), scores, strict=True))
        assert differing(first.seen[1], snapshot(again)) == set()

    def test_an_interruption_is_logged(self, encoder, tmp_path, caplog):
        interrupted(encoder, tmp_path / "out", max_steps=4)
        assert "was interrupted (KeyboardInterrupt): resume=True (--resume) continues it from step 2." in caplog.text

    def test_before_the_first_checkpoint_nothing_is_left(self, encoder, tmp_path, caplog):
        interrupted(encoder, tmp_path / "new" / "out", after=1, max_steps=4)
        assert list(tmp_path.iterdir()) == []
        assert "was interrupted before its first checkpoint: nothing was saved." in caplog.text

    def test_without_a_complete_checkpoint_it_begins_anew_and_what_is_half_written_goes(self, make_encoder, tmp_path):
        """As after a kill, which leaves the record alone or half of a checkpoint."""
        whole, parts = make_encoder(), make_encoder()
        short_training(whole, tmp_path / "whole", AdCSELoss, max_steps=4)
        checkpoints = interrupted(make_encoder(), tmp_path / "out", AdCSELoss, max_steps=4)
        (checkpoints / "checkpoint-2" / "optimizer.pt").unlink()
        (checkpoints / "checkpoint-9").mkdir()  # the trainer would not write it again
        seen = SeesCheckpoints(checkpoints)
        result = short_training(parts, tmp_path / "out", AdCSELoss, max_steps=4, resume=True, callbacks=[seen])
        assert (result.steps, seen.names) == (4, [])
        assert differing(snapshot(whole), snapshot(parts)) == set()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "whole"]

    def test_it_continues_from_the_last_complete_one(self, make_encoder, tmp_path):
        whole, parts = make_encoder(), make_encoder()
        short_training(whole, tmp_path / "whole", AdCSELoss, max_steps=6, save_total_limit=5)
        checkpoints = interrupted(make_encoder(), tmp_path / "out", AdCSELoss, max_steps=6, after=4)
        (checkpoints / "checkpoint-4" / FILES).unlink()  # written last
        seen = SeesCheckpoints(checkpoints)
        options = {"resume": True, "callbacks": [seen], "max_steps": 6}
        result = short_training(parts, tmp_path / "out", AdCSELoss, **options)
        assert (result.steps, seen.names, seen.first_step) == (6, ["checkpoint-2"], 2)
        assert differing(snapshot(whole), snapshot(parts)) == set()

    @pytest.mark.parametrize("name", ["optimizer.pt", "model.safetensors", "config.json"])
    def test_it_continues_from_the_last_one_that_can_be_read(self, make_encoder, tmp_path, caplog, name):
        whole, parts = make_encoder(), make_encoder()
        short_training(whole, tmp_path / "whole", AdCSELoss, max_steps=6, save_total_limit=5)
        checkpoints = interrupted(make_encoder(), tmp_path / "out", AdCSELoss, max_steps=6, after=4)
        file = next((checkpoints / "checkpoint-4").rglob(name))
        file.write_bytes(file.read_bytes()[:10] if name == "model.safetensors" else b"")
        seen = SeesCheckpoints(checkpoints)
        short_training(parts, tmp_path / "out", AdCSELoss, resume=True, callbacks=[seen], max_steps=6)
        assert (seen.names, seen.first_step) == (["checkpoint-2"], 2)
        assert (
            f"checkpoint-4 is left out and removed: {file.relative_to(checkpoints / 'checkpoint-4')} can" in caplog.text
        )
        assert differing(snapshot(whole), snapshot(parts)) == set()

    def test_an_earlier_result_is_replaced(self, make_encoder, tmp_path):
        """As after a kill between the last rename and the removal of the checkpoints."""
        checkpoints = unsaved(make_encoder(), tmp_path / "out", max_steps=2)
        shutil.copytree(checkpoints, tmp_path / "copy")
        short_training(make_encoder(), tmp_path / "out", max_steps=2, resume=True)
        (tmp_path / "copy").rename(checkpoints)
        short_training(make_encoder(), tmp_path / "out", max_steps=2, resume=True)
        assert [path.name for path in tmp_path.iterdir()] == ["out"]

    def test_a_kill_while_the_checkpoints_are_removed_is_no_obstacle(self, make_encoder, tmp_path, monkeypatch):
        """The best of them, which is not the last, is needed as long as the last one is there."""
        remove, removed = shutil.rmtree, []

        def kill_after_the_first(path: Any, *arguments: Any, **options: Any) -> None:
            if "checkpoint-" in Path(path).name:
                if removed:
                    raise KeyboardInterrupt
                removed.append(path)
            remove(path, *arguments, **options)

        monkeypatch.setattr(shutil, "rmtree", kill_after_the_first)
        first, second = ScriptedEvaluator([0.1, 0.9, 0.2]), ScriptedEvaluator([0.1, 0.2])
        with pytest.raises(KeyboardInterrupt):
            short_training(make_encoder(), tmp_path / "out", evaluator=first, max_steps=4)
        monkeypatch.undo()
        again = make_encoder()
        result = short_training(again, tmp_path / "out", evaluator=second, max_steps=4, resume=True)
        assert (result.best_step, result.best) == (2, 0.9)
        assert differing(first.seen[1], snapshot(again)) == set()
        assert [path.name for path in tmp_path.iterdir()] == ["out"]

    def test_checkpoints_that_were_moved_are_refused(self, make_encoder, tmp_path):
        """They name the best of them by its whole path."""
        checkpoints = interrupted(make_encoder(), tmp_path / "out", max_steps=4)
        checkpoints.rename(tmp_path / "moved.checkpoints")
        with pytest.raises(ValueError, match=r"got others: checkpoints is '.*moved\.checkpoints' and was '.*out\."):
            short_training(make_encoder(), tmp_path / "moved", max_steps=4, resume=True)

    @SLOW
    def test_a_full_disk_can_be_resumed(self, make_encoder, tmp_path, monkeypatch):
        save, calls = torch.save, []

        def full(*args: Any, **kwargs: Any) -> None:
            calls.append(args)
            if len(calls) > 5:
                raise RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed")
            save(*args, **kwargs)

        monkeypatch.setattr(torch, "save", full)
        with pytest.raises(OSError, match=r"file write failed: .* do the same again: '.*checkpoints'$"):
            short_training(make_encoder(), tmp_path / "parts", max_steps=4)
        monkeypatch.undo()
        assert short_training(make_encoder(), tmp_path / "parts", max_steps=4, resume=True).steps == 4

    @SLOW
    def test_a_stream_resumes(self, make_encoder, tmp_path):
        def rows() -> Iterator[dict[str, str]]:
            for number in range(10**6):
                yield {"sentence": f"{SENTENCES[number % 8]} {number}"}

        stream = IterableDataset.from_generator(rows, features=Features({"sentence": Value("string")}))
        whole, parts = make_encoder(), make_encoder()
        short_training(whole, tmp_path / "whole", data=stream, max_steps=4)
        interrupted(make_encoder(), tmp_path / "out", data=stream, max_steps=4)
        short_training(parts, tmp_path / "out", data=stream, max_steps=4, resume=True)
        assert differing(snapshot(whole), snapshot(parts)) == set()


CHANGES = {
    "text": {"data": [*SENTENCES[:-1], "another sentence"]},
    "batch_size": {"batch_size": 2},
    "seed": {"seed": 43},
    "loss_learning_rate": {"loss_learning_rate": 1e-3},
    "loss.temperature": {"loss": lambda model: AdCSELoss(model, temperature=0.1)},
    "loss": {"loss": lambda model: SimCSELoss(model, projection=True)},
    "evaluator": {"evaluator": ScriptedEvaluator([0.1, 0.2, 0.3])},
    "eval_steps": {"eval_steps": 3},
    "bf16": {"bf16": True},
    "weight_decay": {"weight_decay": 0.1},
    "no_duplicates": {"no_duplicates": False},
    "encoder": {"pooling": "cls"},
}


class TestSameTraining:
    """A resumed training is the one that was interrupted."""

    @pytest.fixture(scope="class")
    @classmethod
    def stopped(cls, make_encoder, tmp_path_factory):
        out: Path = tmp_path_factory.mktemp("stopped") / "out"
        interrupted(make_encoder(), out, AdCSELoss, max_steps=4)
        return out

    @pytest.mark.parametrize("name", CHANGES)
    def test_a_difference_is_refused_and_named(self, make_encoder, stopped, name):
        options = {"loss": AdCSELoss, "max_steps": 4} | CHANGES[name]
        model, before = make_encoder(pooling=options.pop("pooling", "mean")), sorted(stopped.parent.rglob("*"))
        with pytest.raises(ValueError, match=rf"got others: {re.escape(name)} is [^;]* and was [^;]*; use the"):
            short_training(model, stopped, resume=True, **options)
        assert sorted(stopped.parent.rglob("*")) == before

    def test_the_number_of_processes_is_recorded(self, make_encoder, stopped, monkeypatch):
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.raises(ValueError, match=r"got others: processes is 2 and was 1; use the"):
            short_training(make_encoder(), stopped, AdCSELoss, max_steps=4, resume=True)

    def test_the_record_is_short_and_readable(self, stopped):
        record = json.loads((stopped.with_name("out.checkpoints") / RECORD).read_text())
        assert {name: record[name] for name in ("batch_size", "loss", "loss.temperature", "seed")} == {
            "batch_size": 4, "loss": "AdCSELoss", "loss.temperature": 0.05, "seed": 42,
        }  # fmt: skip
        assert record["text"].startswith("8 rows, digest ")
        assert len(record) < 40

    def test_a_transform_of_the_text_is_not_called(self, make_encoder, stopped):
        def fail(rows: Any) -> Any:
            raise AssertionError

        data = Dataset.from_dict({"sentence": SENTENCES}).with_transform(fail)
        with pytest.raises(AssertionError):  # by the trainer, after the text was found equal
            short_training(make_encoder(), stopped, AdCSELoss, data, max_steps=4, resume=True)


SETTINGS: dict[str, tuple[Any, Any]] = {
    "batch_size": (4, 5), "learning_rate": (1e-3, 2e-3), "loss_learning_rate": (None, 1e-2), "max_steps": (-1, 4),
    "epochs": (1.0, 2.0), "eval_steps": (2, 3), "patience": (None, 2), "seed": (1, 2), "bf16": (False, True),
    "lora": (None, 2), "no_duplicates": (True, False), "show_progress_bar": (False, True),
    "arguments": ({}, {"optim": "sgd"}),
}  # fmt: skip
"""Two values of each."""


def other(model: SentenceTransformer, change: Any) -> SentenceTransformer:
    change(model)
    return model


def routed(one: SentenceTransformer, two: SentenceTransformer) -> SentenceTransformer:
    return SentenceTransformer(modules=[Router({"a": [*one], "b": [*two]}, default_route="a")], device="cpu")


def test_the_record_has_all_that_the_weights_depend_on(make_encoder, monkeypatch):
    """And of the text each block of rows, of the encoder each module; not whether bars are shown."""
    pytest.importorskip("peft")
    monkeypatch.setattr("st_extras.training.settings._ROWS", 3)
    rows = {"sentence": SENTENCES, "positive": SENTENCES[::-1]}
    pairs = STSDataset("a", SENTENCES[:4], SENTENCES[4:], [1.0, 2.0, 3.0, 4.0], ["x"] * 4)

    def record(**changed: Any) -> dict[str, Any]:
        given = {name: changed.pop(name, value) for name, (value, _) in SETTINGS.items()}
        model = changed.pop("model", None) or make_encoder()
        parts = {"dataset": Dataset.from_dict(rows), "evaluator": ScriptedEvaluator([0.1]), "checkpoints": Path("out")}
        loss = changed.pop("loss", AdCSELoss)(model)
        return training_record(model, loss, settings=TrainingSettings(**given), **parts | changed)

    whole = record()
    assert whole == record()
    expected = {name: {name} for name in SETTINGS} | {"arguments": {"optim"}, "show_progress_bar": set()}
    assert {name: differing_of(whole, record(**{name: value})) for name, (_, value) in SETTINGS.items()} == expected
    for column, texts in rows.items():
        for at in (0, 2, 3, 7):
            changed = Dataset.from_dict(rows | {column: [*texts[:at], "new", *texts[at + 1 :]]})
            assert differing_of(whole, record(dataset=changed)) == {"text"}, (column, at)
    assert differing_of(whole, record(dataset=Dataset.from_dict({"a": SENTENCES, "positive": SENTENCES[::-1]}))) == {
        "text"
    }
    assert record(dataset=Dataset.from_dict(rows).to_iterable_dataset())["text"] == "a stream"
    for change in (
        lambda model: setattr(model, "max_seq_length", 9),
        lambda model: setattr(model[1], "pooling_mode", "cls"),
        lambda model: model.append(Normalize()),
        lambda model: set_dropout(model, 0.3),
        lambda model: model[1].double().register_parameter("own", nn.Parameter(torch.ones(1).bfloat16())),
        lambda model: setattr(model.tokenizer, "chat_template", "{{ messages }}"),
    ):
        assert differing_of(whole, record(model=other(make_encoder(), change))) == {"encoder"}
    routes = [routed(make_encoder(), make_encoder()) for _ in range(3)]
    routes[1][0].sub_modules["b"][0].max_seq_length = 9
    routes[2][0].sub_modules["b"][1].pooling_mode = "cls"
    plain, *changed = (record(model=one) for one in routes)
    assert [differing_of(plain, one) for one in changed] == [{"encoder"}] * 2
    loss = functools.partial(AdCSELoss, temperature=0.1, num_adversaries=2)
    assert differing_of(whole, record(loss=loss)) == {"loss.temperature", "loss.num_adversaries"}
    assert differing_of(whole, record(checkpoints=Path("other"))) == {"checkpoints"}
    assert differing_of(whole, record(evaluator=None)) == {"evaluator"}
    one, two = (record(evaluator=STSEvaluator([replace(pairs, name=name)], name="dev")) for name in "ab")
    assert (one["evaluator"], differing_of(one, two)) == ("STSEvaluator dev", {"evaluator.sets"})
    assert record(lora=2)["lora"] != record(lora={"r": 2})["lora"]


def differing_of(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


@SLOW
def test_equal_sentences_are_kept_apart_and_the_seed_governs_a_loss(make_encoder, tmp_path):
    data, losses = SENTENCES[:3] * 4, []
    apart = short_training(make_encoder(), tmp_path / "apart", data=data).trainer.loss.batches
    assert len(apart) == 3
    assert all(len(set(batch)) == len(batch) for batch in apart)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        torch.manual_seed(len(losses))
        make = functools.partial(SimCSELoss, projection=True)
        options: dict[str, Any] = {"max_steps": 1, "seed": seed, "no_duplicates": False}
        losses.append(snapshot(short_training(make_encoder(), tmp_path / name, make, data, **options).trainer.loss))
    assert differing(losses[0], losses[1]) == set()
    assert any("projection_head" in name for name in differing(losses[0], losses[2]))


def test_what_the_loss_owns_may_learn_faster(encoder, tmp_path):
    options = {"max_steps": 1, "learning_rate": 1e-4, "loss_learning_rate": 1e-2}
    trainer = short_training(encoder, tmp_path / "out", AdCSELoss, **options).trainer
    rates = {}
    for group in trainer.optimizer.param_groups:
        rates |= dict.fromkeys(group["params"], group["initial_lr"])
    mine = set(encoder.parameters())
    trained = {p for p in trainer.loss.parameters() if p.requires_grad}
    assert trained - mine
    assert rates == {p: 1e-4 if p in mine else 1e-2 for p in trained | mine}


class TestOutput:
    @pytest.mark.parametrize("made", [True, False])
    def test_a_failed_run_is_no_obstacle(self, encoder, tmp_path, made):
        class Failing(SpyLoss):
            def forward(self, *args: Any, **kwargs: Any) -> Tensor:
                raise RuntimeError("out of memory")

        out = tmp_path / "a" / "out"
        if made:
            out.mkdir(parents=True)
        with pytest.raises(RuntimeError, match="out of memory"):
            short_training(encoder, out, Failing, max_steps=2)
        assert sorted(tmp_path.rglob("*")) == ([tmp_path / "a", out] if made else [])


table = Dataset.from_dict


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": None}, "model must"), ({"data": []}, "data must"),
        ({"data": ["one", "\ud83d\ude00"]}, "data, row 1: "),
        ({"data": "text.txt"}, "data must be an iterable of strings"), ({"data": ["a", float("nan")]}, "data, row 1: "),
        ({"data": table({"s": ["a", None]})}, r"data\[1\]\['s'\]"),
        ({"data": DatasetDict(train=table({"s": ["a"]}))}, r"data must .*, as in data\['train'\]"),
        ({"data": table({"s": ["a"], "score": [0.5], "id": [1]})}, "data must .*got 'id'"),
        ({"data": table({"s": ["a"], "label": ["good"]})}, "data must .*got 'label'"),
        ({"data": SENTENCES[:1] * 9, "dataloader_drop_last": True}, "data must fill at least one batch of 4"),
        ({"data": table(dict.fromkeys("abc", SENTENCES)), "loss": SimCSELoss}, "SimCSELoss takes .* got 3"),
        ({"evaluator": ScriptedEvaluator([0.1], primary_metric=None)}, "evaluator must"),
        ({"evaluator": ScriptedEvaluator([float("nan")])}, "evaluator must"),
        ({"evaluator": [ScriptedEvaluator([0.1])] * 2}, "evaluator must be one evaluator, .* got 2 items: give Sequen"),
        ({"evaluator": lambda model: 0.5}, "evaluator must be a BaseEvaluator or None, got"),
        ({"callbacks": EarlyStoppingCallback()}, r"callbacks must be a list .*: give \[callback\]"),
        ({"loss_learning_rate": 1e-3}, "loss_learning_rate needs a loss"), ({"batch_size": 0}, "batch_size must"),
        ({"patience": 2}, "patience .* needs"), ({"max_steps": 0}, "max_steps"), ({"epochs": 0}, "epochs must"),
        ({"learning_rate": 0}, "learning_rate must"), ({"loss_learning_rate": -1}, "loss_learning_rate must"),
        ({"eval_steps": 0}, "eval_steps must"), ({"patience": 0}, "patience must"), ({"seed": 0.5}, "seed must"),
        ({"lora": 0}, "lora must"), ({"load_best_model_at_end": False}, "load_best_model_at_end must not be given"),
        ({"metric_for_best_model": "eval_other"}, "metric_for_best_model must not be given, got 'eval_other': eval"),
        ({"evaluator": ScriptedEvaluator([0.1]), "eval_steps": 2, "save_steps": 4}, "save_steps must be 2, .* got 4"),
        ({"output_dir": "checkpoints"}, "output_dir must not be given, got 'checkpoints': use output"),
        ({"resume_from_checkpoint": "checkpoint-2"}, "resume_from_checkpoint must not be given, .*: use resume"),
        ({"data": table({"s": ["a", "b"], "label": [1, None]})}, r"data\[1\]\['label'\] must be a number, got None"),
        ({"data": table({"s": ["a", "b"], "label": [None] * 2})}, r"data\[0\]\['label'\] must .*'label'\)\.$"),
    ],
)  # fmt: skip
def test_arguments_are_checked(encoder, tmp_path, options, message):
    with pytest.raises(ValueError, match=rf"^{message}"):
        short_training(**({"model": encoder, "output": tmp_path / "new" / "out"} | options))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("loss", [SimCSELoss, lambda model: MatryoshkaLoss(model, SimCSELoss(model), [16, 8])])
def test_equal_views_stop_a_training_that_nothing_else_teaches(make_encoder, tmp_path, loss):
    with pytest.raises(ValueError, match=r"^SimCSELoss must get two different views"):
        short_training(make_encoder(dropout=0.0), tmp_path / "out", loss, max_steps=2)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("counters", "ended"), [([1], False), ([2], True), ([9, 1], False), ([0, 2], True)])
def test_patience_counts_in_a_resumed_training_also_beside_a_callback_of_the_callers(counters, ended):
    saved = [{"attributes": {"early_stopping_patience_counter": count}} for count in counters]
    of_class: Any = {"EarlyStoppingCallback": saved if len(saved) > 1 else saved[0]}
    state = TrainerState(global_step=3, max_steps=6, stateful_callbacks=of_class)
    assert _has_ended(state, patience=2) is ended
