"""Every distinct setting of the studies can be built: its encoder, its data, its loss, and a step of that loss."""

import copy
import functools
import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import building
from benchmarks.studies import named_study, study_names
from benchmarks.texts import write_counts
from st_extras.text.frequency import FrequencyTable
from tests.fixtures import SENTENCES, build_encoder

TRAININGS = [study for study in map(named_study, study_names()) if study["kind"] == "training"]


def distinct_rows() -> dict[str, tuple[dict[str, Any], str]]:
    """A row of the studies for each setting that changes what is built; steps, seeds and rates do not."""
    found: dict[str, tuple[dict[str, Any], str]] = {}
    for study in TRAININGS:
        for name in study["methods"]:
            method = study["training"] | study["methods"][name]
            encoder = study["encoder"] | method.get("encoder", {})
            options = {key: value for key, value in method.get("options", {}).items() if key != "warmup_steps"}
            parts = [method["loss"], options, method.get("base"), "complementary" in method, method.get("masking")]
            setting = json.dumps([*parts, encoder.get("pooling"), encoder.get("max_seq_length")], sort_keys=True)
            found.setdefault(setting, (study, name))
    return found


ROWS = distinct_rows().values()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny encoder, both to be trained and as the complementary one, and the token counts."""
    folder = tmp_path_factory.mktemp("study")
    model = build_encoder(folder / "encoder", layers=3)
    settings = [part for study in TRAININGS for part in (study["training"], *study["methods"].values())]
    for name in {part["frequencies"] for part in settings if "frequencies" in part}:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        table = FrequencyTable.count(SENTENCES, model.tokenizer)
        table.save(folder / name) if ".json" in name else write_counts(table, folder / name)
    return folder


@pytest.fixture(scope="module")
def start(folder):
    """A function that makes the encoder of a row from the tiny one."""

    @functools.cache
    def started(encoder: str) -> Any:
        return building.starting_encoder(json.loads(encoder))

    def make(encoder: dict[str, Any]) -> Any:
        own = {"path": str(folder / "encoder"), "layers": 3, "device": "cpu"}
        return copy.deepcopy(started(json.dumps(encoder | own)))

    return make


def test_each_seed_has_synonyms_of_its_own(monkeypatch):
    monkeypatch.setattr(building, "EDA", lambda **given: given)
    monkeypatch.setattr(building, "PhraseMasking", lambda **given: SimpleNamespace(dataset=lambda rows: (given, rows)))
    model: Any = SimpleNamespace(tokenizer=SimpleNamespace(mask_token="[M]"))
    for masking, augmentation in (
        ({"top_k": 2, "synonym_ratio": 0.5}, {"synonym_ratio": 0.5, "seed": 7}),
        ({"top_k": 2}, None),
    ):
        wanted = {"top_k": 2, "mask_token": "[M]", "augmentation": augmentation}
        method = {"loss": "PaSeRLoss", "masking": masking}
        assert building.training_rows(model, method, ["a text"], 7) == (wanted, ["a text"])


@pytest.mark.parametrize(("study", "name"), ROWS, ids=[f"{study['name']}/{name}" for study, name in ROWS])
def test_a_step_of_every_distinct_setting(study, name, folder, start):
    method = study["training"] | study["methods"][name]
    model = start(study["encoder"] | method.get("encoder", {}))
    weights = dict.fromkeys(study["methods"], folder / "encoder")
    loss = building.make_loss(model, method, SENTENCES, weights, folder)
    rows = building.training_rows(model, method, SENTENCES, 0)
    columns = [SENTENCES] if rows is SENTENCES else [list(rows[column]) for column in rows.column_names]
    if "masking" in method:
        loss.decoder_warmup_steps = 0  # in which no gradient reaches the encoder
    value = loss([model.preprocess(column) for column in columns], None)
    total = sum(value.values()) if isinstance(value, dict) else value
    total.backward()
    assert torch.isfinite(total)
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients
    # to a random guide all sentences are alike: without noise, or with a margin, no negative is left, and no gradient
    without_negatives = method.get("options", {}).get("noise_ratio") == 0 or "margin" in method.get("options", {})
    assert any(g.abs().sum() > 0 for g in gradients) or without_negatives
