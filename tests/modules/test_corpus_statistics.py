"""Statistics of a corpus: two-pass formulas, shards, streams, encoders told apart, files, options of encode."""

import math
from functools import reduce
from operator import add

import numpy as np
import pytest
import torch
from datasets import Dataset, IterableDataset
from safetensors import safe_open
from safetensors.torch import save_file
from sentence_transformers.base.modules import Normalize

from st_extras.modules import AllButTheTopPostProcessor, CorpusStatistics, RepALPostProcessor, WhiteningPostProcessor
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


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
def test_against_two_passes_far_from_the_origin(offset):
    rows = offset + np.random.default_rng(0).normal(size=(300, 4))
    statistics = CorpusStatistics(4)
    for start in range(0, 300, 70):
        statistics.update(rows[start : start + 70])
    mean, scatter = two_passes(rows)
    assert statistics.count == 300
    assert np.abs(statistics.mean.numpy() - mean).max() <= 1e-15 * offset + 1e-12
    assert np.abs(statistics.scatter.numpy() - scatter).max() < 1e-7 * np.abs(scatter).max()


@pytest.mark.parametrize("shards", [2, 4, 8])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_merged_shards_are_one_pass(shards, offset):
    rows = offset + np.random.default_rng(1).normal(size=(1003, 24)) * np.linspace(0.01, 3, 24)
    whole = CorpusStatistics(24).update(rows)
    parts = [CorpusStatistics(24).update(part) for part in np.array_split(rows, shards)]
    for merged in (sum(parts), reduce(add, reversed(parts)), sum(parts) + CorpusStatistics(24)):
        assert_same(merged, whole)
    assert [part.count for part in parts] == [len(part) for part in np.array_split(rows, shards)], "changed by merging"


def test_any_source_of_sentences(still_encoder, monkeypatch):
    monkeypatch.setattr("st_extras.modules.pipeline._CHUNK", 7)
    expected = CorpusStatistics.compute(still_encoder, CORPUS, batch_size=4)
    rows = {"text": CORPUS}
    streamed = IterableDataset.from_generator(lambda: ({"text": text} for text in CORPUS))
    for source in (iter(CORPUS), tuple(CORPUS), Dataset.from_dict(rows), Dataset.from_dict(rows)["text"], streamed):
        assert_same(CorpusStatistics.compute(still_encoder, source, batch_size=4), expected)
    vectors = still_encoder.encode(CORPUS).astype(np.float64)
    assert_same(CorpusStatistics(16).update(vectors), expected, 1e-5)


def test_the_encoder_is_left_as_it_was(make_encoder):
    encoder = make_encoder()
    encoder.append(Normalize())
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    state, modules, training = torch.random.get_rng_state(), list(encoder), encoder.training
    statistics = CorpusStatistics.compute(encoder, CORPUS)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert list(encoder) == modules
    assert encoder.training == training
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())
    assert "encode" not in vars(encoder)
    assert statistics.mean.norm() > 1.5, "taken before Normalize"


class TestEncoders:
    """Statistics of another encoder or prompt are not mixed."""

    def test_another_encoder_is_refused(self, still_encoder, make_encoder):
        ours, theirs = (CorpusStatistics.compute(e, CORPUS) for e in (still_encoder, make_encoder(dropout=0.0, seed=1)))
        with pytest.raises(ValueError, match=r"one encoder and prompt to be merged, got embeddings .* % apart\."):
            ours + theirs
        for kind in (WhiteningPostProcessor, AllButTheTopPostProcessor):
            with pytest.raises(ValueError, match=r"must come from the encoder .*got embeddings .* % apart\."):
                kind.attach(still_encoder, statistics=theirs)
            kind.attach(still_encoder, statistics=ours)

    @pytest.mark.slow
    def test_another_prompt_is_refused(self, still_encoder, tmp_path):
        still_encoder.prompts = {"query": "the dog "}
        plain = CorpusStatistics.compute(still_encoder, CORPUS)
        by_name = CorpusStatistics.compute(still_encoder, CORPUS, encode_options={"prompt_name": "query"})
        by_text = CorpusStatistics.compute(still_encoder, CORPUS, encode_options={"prompt": "the dog "})
        with pytest.raises(ValueError, match="got the prompt '' here and 'the dog ' there"):
            plain + by_name
        by_name.save(tmp_path / "prompted")
        assert (CorpusStatistics.load(tmp_path / "prompted") + by_text).count == 128
        refused = r"got the prompt 'the dog ' here and '' there: .*prompt='the dog ' here too"
        with pytest.raises(ValueError, match=refused):
            WhiteningPostProcessor.attach(still_encoder, statistics=by_name)
        with pytest.raises(ValueError, match="got the prompt '' here and 'the dog ' there: give"):
            AllButTheTopPostProcessor.attach(still_encoder, statistics=plain, encode_options={"prompt": "the dog "})
        model = WhiteningPostProcessor.attach(
            still_encoder, statistics=by_name, encode_options={"prompt_name": "query"}
        )
        expected = still_encoder.encode(CORPUS, prompt_name="query").astype(np.float64).mean(axis=0)
        assert np.abs(model[2].corpus_mean.numpy() - expected).max() < 1e-5
        repal = RepALPostProcessor.attach(still_encoder, lambda_1=0.5, lambda_2=1.0)[-1]
        with pytest.raises(ValueError, match=refused):
            repal.fit(statistics=by_name)
        repal.fit(statistics=by_name, encode_options={"prompt": "the dog "})
        assert np.abs(repal.corpus_mean.numpy() - expected).max() < 1e-5
        repal.fit(CORPUS, encode_options={"prompt_name": "query"})
        assert np.abs(repal.corpus_mean.numpy() - expected).max() < 1e-5
        still_encoder.default_prompt_name = "query"
        assert_same(CorpusStatistics.compute(still_encoder, CORPUS), by_name)
        WhiteningPostProcessor.attach(still_encoder, statistics=by_name)
        with pytest.raises(ValueError, match="got the prompt '' here and 'the dog ' there"):
            WhiteningPostProcessor.attach(still_encoder, statistics=plain)

    def test_another_longest_text_is_refused(self, still_encoder):
        one = CorpusStatistics.compute(still_encoder, CORPUS)
        still_encoder.max_seq_length = 12
        with pytest.raises(ValueError, match="got max_seq_length 16 here and 12 there"):
            one + CorpusStatistics.compute(still_encoder, CORPUS)

    def test_another_precision_is_the_same_encoder(self, still_encoder):
        one = CorpusStatistics.compute(still_encoder, CORPUS)
        assert (one + CorpusStatistics.compute(still_encoder.bfloat16(), CORPUS)).count == 128

    def test_statistics_of_unknown_origin(self, still_encoder):
        known = CorpusStatistics.compute(still_encoder, CORPUS)
        unknown = CorpusStatistics(16).update(still_encoder.encode(CORPUS))
        assert (known + CorpusStatistics(16)).fingerprint is known.fingerprint
        assert (CorpusStatistics(16) + known).fingerprint is known.fingerprint
        assert (known + unknown).fingerprint is None
        WhiteningPostProcessor(16).fit(statistics=known)  # outside a model, nothing can be compared
        WhiteningPostProcessor.attach(still_encoder, statistics=unknown)


def test_wrong_fits(still_encoder):
    module = WhiteningPostProcessor.attach(still_encoder)[2]
    statistics = CorpusStatistics.compute(still_encoder, CORPUS)
    for given, message in (
        ({}, "sentences or statistics must be given, and only one of them, got neither"),
        ({"sentences": CORPUS, "statistics": statistics}, "only one of them, got both"),
        ({"statistics": CorpusStatistics(15)}, "embedding_dimension=16.*got 15"),
        ({"statistics": CorpusStatistics(16)}, "at least one sentence, got none"),
    ):
        with pytest.raises(ValueError, match=message):
            module.fit(**given)
    assert module.corpus_size == 0
    for sentences in ([], iter(())):
        with pytest.raises(ValueError, match="at least one text, got none"):
            CorpusStatistics.compute(still_encoder, sentences)
    with pytest.raises(ValueError, match=r"model must be a SentenceTransformer"):
        CorpusStatistics.compute("encoder", CORPUS)


def test_wrong_embeddings_change_nothing():
    statistics = CorpusStatistics(2).update(torch.zeros(0, 2))
    for wrong, message in (
        ([1.0, 2.0], r"\(N, 2\), got the shape \(2,\)"),
        (torch.zeros(2, 3), r"got the shape \(2, 3\)"),
        ([[1.0, 2.0], [math.nan, 0.0]], "finite, got NaN or infinity in row 1"),
    ):
        with pytest.raises(ValueError, match=message):
            statistics.update(wrong)
    assert statistics.count == 0
    with pytest.raises(ValueError, match="one embedding dimension to be merged, got 2 and 3"):
        CorpusStatistics(2) + CorpusStatistics(3)
    with pytest.raises(TypeError):
        1 + CorpusStatistics(2)


@pytest.fixture
def saved(still_encoder, tmp_path):
    statistics = CorpusStatistics.compute(still_encoder, CORPUS[:20])
    statistics.save(tmp_path / "s.safetensors")
    return tmp_path / "s.safetensors", statistics


def test_saved_and_loaded_to_the_bit(saved, tmp_path):
    path, statistics = saved
    again = CorpusStatistics.load(str(path))
    assert (again.count, again.embedding_dimension) == (20, 16)
    assert torch.equal(again.mean, statistics.mean)
    assert torch.equal(again.scatter, statistics.scatter)
    assert again.fingerprint.difference(statistics.fingerprint) is None
    assert torch.equal(again.fingerprint.probes, statistics.fingerprint.probes)
    CorpusStatistics(3).save(tmp_path / "empty")
    assert CorpusStatistics.load(tmp_path / "empty").count == 0
    assert CorpusStatistics.load(tmp_path / "empty").fingerprint is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metadata": {"format": "pt"}}, "the format 'pt' instead of 'st-extras corpus statistics'"),
        ({"mean": lambda _: None}, "no tensor 'mean'"),
        ({"mean": torch.Tensor.float}, "torch.float32 instead of torch.float64"),
        ({"scatter": lambda scatter: -scatter}, "checksum differs"),
    ],
)
def test_a_wrong_file_is_named(saved, changes, message):
    path, _ = saved
    with safe_open(str(path), framework="pt") as file:
        metadata, stored = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    metadata |= changes.pop("metadata", {})
    stored |= {name: change(stored.get(name)) for name, change in changes.items()}
    kept = {name: tensor.contiguous() for name, tensor in stored.items() if tensor is not None}
    save_file(kept, str(path), {name: value for name, value in metadata.items() if value is not None})
    expected = rf"s\.safetensors' must be a file of CorpusStatistics.save, got .*{message}.*: compute it again"
    with pytest.raises(ValueError, match=expected):
        CorpusStatistics.load(path)
    path.unlink()
    with pytest.raises(ValueError, match="got no such file"):
        CorpusStatistics.load(path)


# --- options of encode ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"normalize_embeddings": True}, "got 'normalize_embeddings': statistics are those of whole, plain"),
        ({"batch_size": 3}, "got 'batch_size'"),
        ({"prompt_name": "no"}, r"prompt_name in encode_options must be one of the model's \(.*\), got 'no'"),
    ],
)
def test_wrong_options_are_named(still_encoder, options, message):
    with pytest.raises(ValueError, match=message):
        CorpusStatistics.compute(still_encoder, CORPUS, encode_options=options)
    if "prompt_name" not in options:
        with pytest.raises(ValueError, match=message):
            WhiteningPostProcessor.attach(still_encoder, encode_options=options)


def test_the_corpus_term_of_repal_is_their_mean(still_encoder, make_encoder):
    below = WhiteningPostProcessor.attach(still_encoder, epsilon=0.1, corpus=CORPUS)
    one, other = (RepALPostProcessor.attach(below, lambda_1=0.2, lambda_2=0.7, keywords="rake") for _ in range(2))
    one[-1].fit(CORPUS)
    other[-1].fit(statistics=CorpusStatistics.compute(below, CORPUS))
    assert other[-1].corpus_size == 64
    assert np.abs(one.encode(CORPUS) - other.encode(CORPUS)).max() < 1e-5
    for model, message in ((still_encoder, "embeddings of one text"), (make_encoder(hidden_size=8), "got 8")):
        with pytest.raises(ValueError, match=message):
            other[-1].fit(statistics=CorpusStatistics.compute(model, CORPUS))
