"""The trainer's data and arguments made from the settings; tests/training/test_run.py tests what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from st_extras.losses import AdCSELoss, SimCSELoss
from st_extras.training import arguments, train_encoder
from st_extras.training.arguments import rates_of_the_loss, schedule_arguments, training_dataset
from st_extras.training.run_folder import MARKER
from tests.conftest import SENTENCES
from tests.helpers import differing, snapshot


def test_sentences_become_one_column() -> None:
    assert training_dataset(SENTENCES).to_dict() == {"sentence": SENTENCES}
    assert training_dataset(tuple(SENTENCES)).to_dict() == {"sentence": SENTENCES}
    assert training_dataset("one sentence").to_dict() == {"sentence": ["one sentence"]}


def test_a_dataset_is_not_touched() -> None:
    data = Dataset.from_dict({"a": ["x", "y"], "b": ["", "z"]})
    assert training_dataset(data) is data


def test_empty_sentences_are_refused_in_the_first_column_of_texts() -> None:
    rows = {"id": [1, 2, 3], "a": ["x", " \t", "z"], "b": ["", "y", "z"]}
    data = Dataset.from_dict(rows).remove_columns("id")
    refused = r"data\[1\]\['a'\] must be a non-empty string, got ' \\t': leave such rows out with data\.filter\("
    with pytest.raises(ValueError, match=refused):
        training_dataset(data)
    kept = data.select([0, 2])
    assert training_dataset(kept) is kept
    assert len(list(training_dataset(data.to_iterable_dataset()))) == 3  # no end in the midst of a run


def test_epochs_count_only_without_max_steps() -> None:
    assert schedule_arguments(4, 1e-3, 10, -1.0, 5)["max_steps"] == 10
    with pytest.raises(ValueError, match="epochs must be a finite number > 0"):
        schedule_arguments(4, 1e-3, -1, -1.0, 5)


@pytest.mark.parametrize("value", [True, 1.5, "2", float("inf")])
@pytest.mark.parametrize("name", ["batch_size", "max_steps", "eval_steps"])
def test_counts_are_whole_numbers(name: str, value: Any) -> None:
    settings = {"batch_size": 4, "learning_rate": 1e-3, "max_steps": 10, "epochs": 1.0, "eval_steps": 5}
    with pytest.raises(ValueError, match=f"{name}.* must be a whole number >= 1, got {re.escape(repr(value))}"):
        schedule_arguments(**(settings | {name: value}))


def test_only_what_the_loss_trains_itself_is_named(encoder: SentenceTransformer) -> None:
    loss = AdCSELoss(encoder)
    ((pattern, rate),) = rates_of_the_loss(loss, encoder, 0.1).items()
    assert rate == 0.1
    mine = set(encoder.parameters())
    named = {name for name, _ in loss.named_parameters() if re.search(pattern, name)}
    assert named == {name for name, p in loss.named_parameters() if p.requires_grad and p not in mine}
    assert named
    with pytest.raises(ValueError, match=r"got SimCSELoss, which has none\.$"):
        rates_of_the_loss(SimCSELoss(encoder), encoder, 0.1)


def test_a_large_data_set_is_sampled_by_hashes_into_the_same_batches(
    make_encoder: Callable[..., SentenceTransformer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"{sentence} {i % 5}" for i in range(2) for sentence in SENTENCES] * 2  # each twice
    found = []
    for limit in (arguments.HASHED_FROM, 32, 33):
        monkeypatch.setattr(arguments, "HASHED_FROM", limit)
        run = train_encoder(
            make_encoder(), SimCSELoss, rows, tmp_path / str(limit), batch_size=4, max_steps=3, show_progress_bar=False
        )
        recorded = json.loads((tmp_path / str(limit) / "checkpoints" / "checkpoint-3" / MARKER).read_text("utf8"))
        found.append((run.trainer.args.batch_sampler, snapshot(run.trainer.model), recorded["run"]))
    assert [sampler for sampler, _, _ in found] == ["no_duplicates", "no_duplicates_hashed", "no_duplicates"]
    for _, weights, identity in found[1:]:
        assert differing(found[0][1], weights) == set()
        assert identity == found[0][2]  # so a training can be resumed with either
    assert arguments.batch_sampler(Dataset.from_dict({"sentence": rows}), False) == "batch_sampler"
