"""Statistics of a corpus: two-pass formulas, shards, streams, encoders told apart, files, options of encode."""

import math
import multiprocessing
import subprocess
import sys
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset, IterableDataset
from safetensors import safe_open
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from st_extras.modules import (
    AllButTheTopPostProcessor,
    CorpusStatistics,
    RepALPostProcessor,
    WhiteningPostProcessor,
)
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

    def test_another_prompt_is_refused(self, still_encoder, tmp_path):
        still_encoder.prompts = {"query": "the dog "}
        plain = CorpusStatistics.compute(still_encoder, CORPUS)
        by_name = CorpusStatistics.compute(still_encoder, CORPUS, encode_options={"prompt_name": "query"})
        by_text = CorpusStatistics.compute(still_encoder, CORPUS, encode_options={"prompt": "the dog "})
        with pytest.raises(ValueError, match="got the prompt '' here and 'the dog ' there"):
            plain + by_name
        by_name.save(tmp_path / "prompted")
        assert (CorpusStatistics.load(tmp_path / "prompted") + by_text).count == 128
        refused = r"got the prompt 'the dog ' here and '' there: .*encode_options=\{'prompt': 'the dog '\} \(--prompt\)"
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
        assert (known + CorpusStatistics(16)).source is known.source
        assert (CorpusStatistics(16) + known).source is known.source
        assert (known + unknown).source is None
        WhiteningPostProcessor(16).fit(statistics=known)  # outside a model, nothing can be compared
        WhiteningPostProcessor.attach(still_encoder, statistics=unknown)


def test_wrong_fits(still_encoder):
    module = WhiteningPostProcessor.attach(still_encoder)[2]
    statistics = CorpusStatistics.compute(still_encoder, CORPUS)
    for given, message in (
        ({}, "sentences or statistics must be given, and only one of them, got neither"),
        ({"sentences": CORPUS, "statistics": statistics}, "only one of them, got both"),
        ({"statistics": "a.safetensors"}, "statistics must be a CorpusStatistics, got 'a.safetensors'"),
        ({"statistics": CorpusStatistics(15)}, "embedding_dimension=16.*got 15"),
        ({"statistics": CorpusStatistics(16)}, "at least one sentence, got none"),
        ({"sentences": []}, "at least one text, got none"),
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
        ([1.0, 2.0], r"shape \(N, 2\), got \(2,\)"),
        (torch.zeros(2, 3), r"got \(2, 3\)"),
        ([[1.0, 2.0], [math.nan, 0.0]], "finite, got NaN or infinity in row 1"),
    ):
        with pytest.raises(ValueError, match=message):
            statistics.update(wrong)
    assert statistics.count == 0
    with pytest.raises(ValueError, match="one embedding dimension to be merged, got 2 and 3"):
        CorpusStatistics(2) + CorpusStatistics(3)
    with pytest.raises(TypeError):
        1 + CorpusStatistics(2)


def test_whether_embeddings_vary_beyond_rounding():
    assert not CorpusStatistics(2).varies
    assert not CorpusStatistics(2).update([[1.0, 5.0]]).varies
    assert not CorpusStatistics(2).update([[1.0, 5.0], [1.0, 5.0 + 1e-7]]).varies
    assert CorpusStatistics(2).update([[1.0, 5.0], [1.0, 5.1]]).varies


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
    assert again.source.difference(statistics.source) is None
    assert torch.equal(again.source.probes, statistics.source.probes)
    CorpusStatistics(3).save(tmp_path / "empty")
    assert CorpusStatistics.load(tmp_path / "empty").count == 0
    assert CorpusStatistics.load(tmp_path / "empty").source is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metadata": {"version": "2"}}, "the version '2' instead of '1'"),
        ({"metadata": {"format": None}}, "the format None instead of"),
        ({"mean": lambda _: None}, "no tensor 'mean'"),
        ({"more": lambda _: torch.ones(1)}, "another tensor in it, 'more'"),
        ({"mean": torch.Tensor.float}, "torch.float32 instead of torch.float64"),
        ({"scatter": lambda scatter: scatter[:5]}, r"\(5, 16\) instead of \(16, 16\)"),
        ({"probes": lambda probes: probes[:1]}, r"\(1, 16\) instead of \(2, 16\)"),
        ({"count": lambda _: torch.tensor([20])}, r"\(1,\) instead of \(\)"),
        ({"mean": lambda mean: mean * math.nan}, "'mean' with NaN"),
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
        ({"truncate_dim": 3}, "got 'truncate_dim'"),
        ({"precision": "int8"}, "got 'precision'"),
        ({"output_value": None}, "got 'output_value'"),
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


@pytest.mark.slow
def test_one_pool_for_all_chunks_and_a_pool_of_one_s_own(still_encoder, monkeypatch):
    monkeypatch.setattr("st_extras.modules.pipeline._CHUNK", 32)
    started, start = [], SentenceTransformer.start_multi_process_pool

    def count(self, devices):
        started.append(start(self, devices))
        return started[-1]

    monkeypatch.setattr(SentenceTransformer, "start_multi_process_pool", count)
    expected = CorpusStatistics.compute(still_encoder, CORPUS)
    still_encoder.append(Normalize())
    statistics = CorpusStatistics.compute(still_encoder, CORPUS, encode_options={"device": ["cpu"]})
    assert len(started) == 1
    assert not multiprocessing.active_children()
    assert_same(statistics, expected, 1e-5)
    pool = still_encoder.start_multi_process_pool(["cpu"])
    try:
        with pytest.raises(ValueError, match="pool in encode_options must be started from the model without Normalize"):
            CorpusStatistics.compute(still_encoder, CORPUS, encode_options={"pool": pool})
        plain = SentenceTransformer(modules=list(still_encoder)[:2], device="cpu")
        normal = CorpusStatistics.compute(still_encoder, CORPUS, encode_options={"device": "cpu"})
        assert_same(normal, CorpusStatistics.compute(plain, CORPUS))
    finally:
        still_encoder.stop_multi_process_pool(pool)


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


MEMORY = """
import resource, sys, torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from transformers import BertTokenizer
from st_extras.modules import CorpusStatistics, WhiteningPostProcessor
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(1000))]
tokenizer = BertTokenizer(vocab={word: i for i, word in enumerate(words)})
model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=32)], device="cpu")
def sentences(count):
    return (f"{i % 1000} {i % 997} {i % 991}" for i in range(count))
CorpusStatistics.compute(model, sentences(5000), batch_size=2048)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
statistics = CorpusStatistics.compute(model, sentences(int(sys.argv[1])), batch_size=2048)
WhiteningPostProcessor.attach(model, corpus=sentences(int(sys.argv[1])), batch_size=2048)
print(statistics.count, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
def test_memory_is_flat():
    done = subprocess.run([sys.executable, "-c", MEMORY, "30000"], capture_output=True, text=True, check=True)
    count, megabytes = map(int, done.stdout.split())
    assert count == 30_000
    assert megabytes < 20


@pytest.mark.slow
def test_the_ray_example_of_the_docs_on_two_workers(still_encoder, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="needs st-extras[ray]")
    monkeypatch.chdir(tmp_path)
    still_encoder.save("encoder")
    for i in range(4):
        Dataset.from_dict({"text": CORPUS[i::4]}).to_parquet(f"corpus/{i}.parquet")
    root = Path(__file__).resolve().parents[2]
    example = (root / "docs" / "post-processing.md").read_text("utf8").split("```python\nimport ray")[1].split("```")[0]
    here = {"num_gpus=1": "num_cpus=1", "concurrency=8": "concurrency=2", "batch_size=10_000": "batch_size=10"}
    here |= {'"encoder"': repr(str(tmp_path / "encoder")), '"corpus/"': repr(str(tmp_path / "corpus"))}
    for of_docs, of_test in here.items():
        assert of_docs in example
        example = example.replace(of_docs, of_test)
    environment = {"env_vars": {"PYTHONPATH": str(root), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}}
    ray.init(num_cpus=4, include_dashboard=False, runtime_env=environment)
    names: dict[str, object] = {}
    try:
        exec(f"import ray{example}", names)
    finally:
        ray.shutdown()
    assert_same(names["whole"], CorpusStatistics.compute(still_encoder, CORPUS), 1e-5)
    assert (tmp_path / "whitened").is_dir()
