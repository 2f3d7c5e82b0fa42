"""Options that are handed to encode, pools of processes, and what is left of them."""

import multiprocessing

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from st_extras.modules import CorpusStatistics, WhiteningPostProcessor
from tests.modules.cases import corpus_of_words

CORPUS = corpus_of_words(40)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("cpu", "encode_options must be a dictionary of arguments of encode or None, got 'cpu'"),
        ({1: 2}, "encode_options must be a dictionary"),
        ({"normalize_embeddings": True}, "got 'normalize_embeddings': statistics are those of whole, plain"),
        ({"truncate_dim": 3}, "got 'truncate_dim'"),
        ({"precision": "int8"}, "got 'precision'"),
        ({"output_value": None}, "got 'output_value'"),
        ({"batch_size": 3}, "got 'batch_size'"),
        ({"prompt": 3}, "prompt in encode_options must be a string or None, got 3"),
        ({"prompt_name": "no"}, r"prompt_name in encode_options must be one of the model's \(.*\), got 'no'"),
    ],
)
def test_wrong_options_are_named(still_encoder, options, message):
    with pytest.raises(ValueError, match=message):
        CorpusStatistics.compute(still_encoder, CORPUS, encode_options=options)
    if "prompt_name" not in options:
        with pytest.raises(ValueError, match=message):
            WhiteningPostProcessor.attach(still_encoder, encode_options=options)


def test_one_device(still_encoder):
    statistics = CorpusStatistics.compute(still_encoder, CORPUS, encode_options={"device": "cpu"})
    assert (statistics.mean - CorpusStatistics.compute(still_encoder, CORPUS).mean).abs().max() == 0


@pytest.mark.slow
def test_one_pool_for_all_chunks(still_encoder, monkeypatch):
    monkeypatch.setattr("st_extras.modules.pipeline._CHUNK", 16)
    started, start = [], SentenceTransformer.start_multi_process_pool

    def count(self, devices):
        started.append(devices)
        return start(self, devices)

    monkeypatch.setattr(SentenceTransformer, "start_multi_process_pool", count)
    expected = CorpusStatistics.compute(still_encoder, CORPUS)
    still_encoder.append(Normalize())
    statistics = CorpusStatistics.compute(still_encoder, CORPUS, encode_options={"device": ["cpu", "cpu"]})
    assert started == [["cpu", "cpu"]]
    assert not multiprocessing.active_children()
    assert statistics.count == expected.count
    assert (statistics.mean - expected.mean).abs().max() < 1e-6
    assert (statistics.scatter - expected.scatter).abs().max() < 1e-4


@pytest.mark.slow
def test_a_pool_of_one_s_own(still_encoder):
    expected = CorpusStatistics.compute(still_encoder, CORPUS)
    pool = still_encoder.start_multi_process_pool(["cpu"])
    try:
        statistics = CorpusStatistics.compute(still_encoder, CORPUS, encode_options={"pool": pool})
    finally:
        still_encoder.stop_multi_process_pool(pool)
    assert (statistics.mean - expected.mean).abs().max() < 1e-6
    still_encoder.append(Normalize())
    pool = still_encoder.start_multi_process_pool(["cpu"])
    try:
        with pytest.raises(ValueError, match="pool in encode_options must be started from the model without Normalize"):
            CorpusStatistics.compute(still_encoder, CORPUS, encode_options={"pool": pool})
    finally:
        still_encoder.stop_multi_process_pool(pool)
