"""Statistics of a corpus: two-pass formulas, shards, streams, other encoders and prompts, files."""

import copy
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers.base.modules import Normalize

from st_extras.modules import AllButTheTopPostProcessor, CorpusStatistics, WhiteningPostProcessor
from tests.modules.cases import corpus_of_words

CORPUS = corpus_of_words(64)


def two_passes(rows):
    """Mean and scatter by exact sums."""
    size = rows.shape[1]
    mean = [math.fsum(column) / len(rows) for column in rows.T]
    scatter = [[math.fsum((v[i] - mean[i]) * (v[j] - mean[j]) for v in rows) for j in range(size)] for i in range(size)]
    return np.array(mean), np.array(scatter)


def assert_same(one, other, tolerance=1e-9):
    assert one.count == other.count
    scale = max(1.0, other.scatter.abs().max().item())
    assert (one.mean - other.mean).abs().max() <= tolerance * max(1.0, other.mean.abs().max().item())
    assert (one.scatter - other.scatter).abs().max() <= tolerance * scale


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_against_two_passes_far_from_the_origin(offset):
    """Row by row, in shards that are merged in any order, and some of which are empty."""
    rows = offset + np.random.default_rng(0).normal(size=(300, 4)) * [0.1, 1, 2, 3]
    mean, scatter = two_passes(rows)
    parts = [CorpusStatistics(4).update(part) for part in np.array_split(rows, 4)]
    updated = CorpusStatistics(4)
    for part in np.array_split(rows, 3):
        updated.update(part)
    for found in (updated, sum(parts), parts[3] + parts[2] + CorpusStatistics(4) + parts[1] + parts[0]):
        assert found.count == 300
        assert np.abs(found.mean.numpy() - mean).max() <= 1e-15 * offset + 1e-12
        assert np.abs(found.scatter.numpy() - scatter).max() < 1e-7 * np.abs(scatter).max()
    assert [part.count for part in parts] == [75] * 4, "changed by merging"


def test_the_encoder_is_left_as_it_was(still_encoder, monkeypatch):
    """Also where the sentences come in chunks; the statistics are those before Normalize and truncation."""
    monkeypatch.setattr("st_extras.modules.pipeline._CHUNK", 7)
    vectors = still_encoder.encode(CORPUS)
    still_encoder.append(Normalize())
    still_encoder.truncate_dim = 8
    state, modules = torch.random.get_rng_state(), list(still_encoder)
    assert_same(CorpusStatistics.compute(still_encoder, iter(CORPUS)), CorpusStatistics(16).update(vectors), 1e-5)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert list(still_encoder) == modules
    assert still_encoder.truncate_dim == 8
    assert "encode" not in vars(still_encoder)


# --- statistics of another encoder or prompt are not mixed ---


def test_another_encoder_is_refused(still_encoder, make_encoder):
    ours, theirs = (CorpusStatistics.compute(e, CORPUS) for e in (still_encoder, make_encoder(dropout=0.0, seed=1)))
    with pytest.raises(ValueError, match="% apart"):
        ours + theirs
    with pytest.raises(ValueError, match=r"must come from the encoder .*% apart"):
        WhiteningPostProcessor.attach(still_encoder, statistics=theirs)
    unknown = CorpusStatistics(16).update(still_encoder.encode(CORPUS))
    assert (ours + CorpusStatistics(16)).fingerprint is (CorpusStatistics(16) + ours).fingerprint is ours.fingerprint
    assert (ours + unknown).fingerprint is None
    WhiteningPostProcessor.attach(still_encoder, statistics=unknown)
    assert (ours + CorpusStatistics.compute(copy.deepcopy(still_encoder).bfloat16(), CORPUS)).count == 128
    still_encoder.max_seq_length = 12
    with pytest.raises(ValueError, match="got max_seq_length 16 here and 12 there"):
        ours + CorpusStatistics.compute(still_encoder, CORPUS)


def test_another_prompt_is_refused(still_encoder, tmp_path):
    still_encoder.prompts, options = {"query": "the dog "}, {"prompt_name": "query"}
    plain = CorpusStatistics.compute(still_encoder, CORPUS)
    prompted = CorpusStatistics.compute(still_encoder, CORPUS, encode_options=options)
    with pytest.raises(ValueError, match="got the prompt '' here and 'the dog ' there"):
        plain + prompted
    prompted.save(tmp_path / "prompted")
    prompted = CorpusStatistics.load(tmp_path / "prompted")
    module = AllButTheTopPostProcessor.attach(still_encoder, components=0)[2]
    for given, other in ((prompted, {}), (plain, {"prompt": "the dog "})):
        with pytest.raises(ValueError, match=r"^statistics must come from .*the prompt .*: give prompt="):
            module.fit(statistics=given, encode_options=other)
    expected = still_encoder.encode(CORPUS, prompt_name="query").mean(axis=0)
    for given in ({"statistics": prompted}, {"sentences": CORPUS}):
        module.fit(**given, encode_options=options)
        assert np.abs(module.corpus_mean.numpy() - expected).max() < 1e-5
    still_encoder.default_prompt_name = "query"
    assert_same(CorpusStatistics.compute(still_encoder, CORPUS), prompted)


# --- what is refused ---


def test_wrong_fits(still_encoder):
    module = WhiteningPostProcessor.attach(still_encoder)[2]
    statistics = CorpusStatistics.compute(still_encoder, CORPUS)
    for given, message in (
        ({}, "got neither"),
        ({"sentences": CORPUS, "statistics": statistics}, "got both"),
        ({"statistics": CorpusStatistics(15)}, "embedding_dimension=16.*got 15"),
        ({"statistics": CorpusStatistics(16)}, "at least one sentence"),
        ({"sentences": []}, "at least one text"),
        ({"sentences": CORPUS, "encode_options": {"normalize_embeddings": True}}, "'normalize_embeddings'"),
        ({"sentences": CORPUS, "encode_options": {"prompt_name": "no"}}, "^prompt_name in encode_options must be"),
    ):
        with pytest.raises(ValueError, match=message):
            module.fit(**given)
    assert module.corpus_size == 0


def test_wrong_embeddings_change_nothing():
    statistics = CorpusStatistics(2)
    for wrong, message in ((torch.zeros(2, 3), "the shape"), ([[1.0, 2.0], [math.nan, 0.0]], "infinity in row 1")):
        with pytest.raises(ValueError, match=message):
            statistics.update(wrong)
    assert statistics.count == 0
    with pytest.raises(ValueError, match="one embedding dimension"):
        CorpusStatistics(2) + CorpusStatistics(3)


# --- files ---


def test_saved_and_loaded_to_the_bit(still_encoder, tmp_path):
    statistics, path = CorpusStatistics.compute(still_encoder, CORPUS[:20]), tmp_path / "s.safetensors"
    statistics.save(path)
    again = CorpusStatistics.load(str(path))
    assert_same(again, statistics, 0)
    assert torch.equal(again.fingerprint.probes, statistics.fingerprint.probes)
    CorpusStatistics(3).save(tmp_path / "empty")
    assert CorpusStatistics.load(tmp_path / "empty").fingerprint is None
    save_file(load_file(path), path)  # without the format and the checksum of its metadata
    with pytest.raises(ValueError, match=r"s\.safetensors' must be a file of CorpusStatistics.save"):
        CorpusStatistics.load(path)
