"""The locality preserving step in a pipeline: what it is fitted on, files, exports, refusals."""

import json
import logging
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from st_extras.modules import (
    AllButTheTopPostProcessor,
    CorpusStatistics,
    LocalityPreservingPostProcessor,
    RepALPostProcessor,
    WhiteningPostProcessor,
    load,
)
from st_extras.modules.export import to_stock
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.text.corpus import reservoir_sample
from st_extras.text.lexical import character_tfidf
from tests.helpers import draw
from tests.modules.cases import TEXTS, corpus_of_words
from tests.modules.test_linear import WITHOUT_THE_PACKAGE

CORPUS = list(dict.fromkeys(corpus_of_words(160)))[:120]
attach = LocalityPreservingPostProcessor.attach


@pytest.fixture
def model(still_encoder):
    return attach(still_encoder, corpus=CORPUS)


@pytest.mark.parametrize("words", [True, False])
def test_it_is_the_kernel_of_the_encoder_s_embeddings(still_encoder, words):
    still_encoder.append(Normalize())
    model = attach(
        still_encoder, neighbors=5, power=0.5, recolor=0.25, epsilon=0.2, words=words, seed=3, corpus=iter(CORPUS)
    )
    assert [type(part).__name__ for part in model][2:] == ["LocalityPreservingPostProcessor", "Normalize"]
    plain = torch.nn.Sequential(*list(still_encoder)[:2])
    vectors = torch.cat([plain(still_encoder.preprocess([text]))["sentence_embedding"] for text in CORPUS]).detach()
    vectors = vectors.double()
    found = neighbor_directions(vectors, 5, 0.2, words=character_tfidf(CORPUS) if words else None, seed=3)
    expected = (vectors - found.mean) @ found.kernel(0.5, 0.25)
    expected /= expected.norm(dim=1, keepdim=True)
    assert np.abs(model.encode(CORPUS) - expected.numpy()).max() < 1e-4
    assert model[2].corpus_size == found.count > 100
    assert (model[2].agreement - found.agreement).abs().max() < 1e-4
    assert model.get_embedding_dimension() == 16


def test_embeddings_that_are_there_already(still_encoder, model):
    vectors = still_encoder.encode(CORPUS)
    alone = LocalityPreservingPostProcessor(16)
    assert alone.fit_embeddings(vectors, CORPUS) is alone
    assert torch.allclose(alone.kernel, model[2].kernel, atol=1e-4)
    without = LocalityPreservingPostProcessor(16, words=False).fit_embeddings(torch.from_numpy(vectors).bfloat16())
    assert without.corpus_size > 100
    assert not torch.allclose(without.kernel, alone.kernel, atol=1e-2)
    other = LocalityPreservingPostProcessor(16, words=False).fit_embeddings(vectors, CORPUS)
    assert torch.allclose(without.kernel, other.kernel, atol=0.1)


def test_words_come_with_texts(still_encoder):
    vectors, module = still_encoder.encode(CORPUS), LocalityPreservingPostProcessor(16)
    with pytest.raises(ValueError, match=r"^texts must be the texts of the embeddings with words=True, got None: or"):
        module.fit_embeddings(vectors)
    with pytest.raises(ValueError, match=r"^texts must be as many as embeddings, 120, got 119\.$"):
        module.fit_embeddings(vectors, CORPUS[1:])
    with pytest.raises(ValueError, match="texts must be a collection of strings, got the string 'a cat'"):
        module.fit_embeddings(vectors, "a cat")
    assert module.corpus_size == 0


@pytest.mark.parametrize(
    ("embeddings", "message"),
    [
        (np.zeros((60, 8)), r"of the shape \(N, 16\), got torch.float64 of the shape \(60, 8\)"),
        (np.full((60, 16), np.nan), "must be finite, got NaN or infinity in row 0"),
        ("abc", r"embeddings must be a tensor or an array \(N, D\), got 'abc'"),
        (np.zeros((0, 16)), "at least 50 different embeddings for neighbors=10, got 0: fit on more text"),
        (np.ones((60, 16)), "at least 50 different embeddings for neighbors=10, got 0: fit on more text"),
    ],
)
def test_wrong_embeddings_are_named(embeddings, message):
    module = LocalityPreservingPostProcessor(16, words=False)
    with pytest.raises(ValueError, match=message):
        module.fit_embeddings(embeddings)
    assert module.corpus_size == 0
    assert not module.agreement.any()


def test_equal_texts_count_once(still_encoder, model):
    doubled = attach(still_encoder, corpus=[*CORPUS, *reversed(CORPUS), *CORPUS[:50]])
    assert torch.equal(doubled[2].kernel, model[2].kernel)
    assert doubled[2].corpus_size == model[2].corpus_size


def test_a_sample_of_a_long_text(still_encoder):
    drawn = reservoir_sample(CORPUS, 60, 5, distinct=True)
    sampled = attach(still_encoder, max_sentences=60, seed=5, corpus=(text for text in CORPUS))
    by_hand = attach(still_encoder, seed=5, corpus=drawn)
    assert torch.equal(sampled[2].kernel, by_hand[2].kernel)
    assert sampled[2].corpus_size <= 60
    vectors = still_encoder.encode(CORPUS)
    modules = [
        LocalityPreservingPostProcessor(16, max_sentences=60, seed=seed).fit_embeddings(vectors, CORPUS)
        for seed in (0, 0, 1)
    ]
    assert modules[0].corpus_size <= 60
    assert torch.equal(modules[0].kernel, modules[1].kernel)
    assert not torch.equal(modules[0].kernel, modules[2].kernel)
    rows = sorted(random.Random(0).sample(range(120), 60))
    found = neighbor_directions(torch.from_numpy(vectors[rows]), words=character_tfidf([CORPUS[i] for i in rows]))
    assert torch.allclose(modules[0].kernel, found.kernel(1.0, 0.5).float(), atol=1e-6)


def test_a_data_set_and_the_encode_options(still_encoder):
    options = {"prompt": "the old man "}
    model = attach(still_encoder, corpus=Dataset.from_dict({"text": CORPUS}), encode_options=options)
    vectors = torch.from_numpy(still_encoder.encode(CORPUS, prompt="the old man ")).double()
    found = neighbor_directions(vectors, words=character_tfidf(CORPUS))
    assert (model[2].corpus_mean - found.mean).abs().max() < 1e-5


def test_it_fits_later_and_again_beneath_repal(still_encoder, model):
    pytest.importorskip("jieba")
    later = attach(still_encoder)
    with pytest.raises(ValueError, match=r"not fitted.*fit\(sentences\)"):
        later.encode("a cat")
    assert later[2].fit(CORPUS) is later[2]
    assert np.array_equal(later.encode(TEXTS), model.encode(TEXTS))
    stacked = RepALPostProcessor.attach(attach(still_encoder, corpus=CORPUS[:60]), lambda_1=0.4, lambda_2=0.0)
    module = next(part for part in stacked if isinstance(part, LocalityPreservingPostProcessor))
    module.fit(CORPUS)
    assert torch.equal(module.kernel, model[2].kernel)


@pytest.mark.parametrize("redundancy", ["encoder", "pooled"])
def test_repal_on_top_is_equation_3(model, redundancy):
    pytest.importorskip("jieba")
    stacked = RepALPostProcessor.attach(model, lambda_1=0.4, lambda_2=0.7, redundancy=redundancy, corpus=CORPUS[:20])
    repal = next(part for part in stacked if isinstance(part, RepALPostProcessor))
    v, redundant = (part.numpy() for part in repal.parts(TEXTS))
    assert np.abs(v - model.encode(TEXTS)).max() < 1e-5
    expected = v - 0.4 * redundant - 0.7 * model.encode(CORPUS[:20]).mean(axis=0)
    assert np.abs(stacked.encode(TEXTS) - expected).max() < 1e-4


def test_only_one_linear_step(still_encoder, model):
    others = (attach, WhiteningPostProcessor.attach, AllButTheTopPostProcessor.attach)
    for other in others:
        with pytest.raises(
            ValueError, match="locality preservation or RepAL attached already: attach one of the first"
        ):
            other(model)
        with pytest.raises(ValueError, match="attached already"):
            attach(other(still_encoder))


def test_statistics_are_refused(still_encoder):
    model, statistics = attach(still_encoder), CorpusStatistics.compute(still_encoder, CORPUS)
    message = (
        r"^statistics must be None for LocalityPreservingPostProcessor, whose neighbours need the texts themselves, "
        r"got CorpusStatistics\(count=120, embedding_dimension=16\): give sentences instead\.$"
    )
    for sentences in (None, CORPUS):
        with pytest.raises(ValueError, match=message):
            model[2].fit(sentences, statistics=statistics)
    with pytest.raises(ValueError, match="statistics must be None"):
        model[2].kernel_of(statistics)
    with pytest.raises(ValueError, match="sentences must be given, got None: pass an iterable of strings"):
        model[2].fit()
    assert model[2].corpus_size == 0


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        (CORPUS[:49], "at least 50 different embeddings for neighbors=10, got 4[0-9]: fit on more text, or leave"),
        (["a cat"] * 80, "at least 50 different embeddings for neighbors=10, got 0: fit on more text"),
        ([], "sentences must hold at least one text, got none"),
        ("a cat", "sentences must be"),
        ([*CORPUS, 5], "sentences, row 120: expected a sentence, got 5"),
    ],
)
def test_text_that_is_not_enough(still_encoder, corpus, message):
    model = attach(still_encoder)
    with pytest.raises(ValueError, match=message):
        model[2].fit(corpus)
    assert model[2].corpus_size == 0


def test_an_embedding_that_is_not_finite_is_named(still_encoder):
    with torch.no_grad():
        still_encoder.transformers_model.embeddings.word_embeddings.weight[:] = float("nan")
    with pytest.raises(ValueError, match="sentence 0 is not finite"):
        attach(still_encoder, corpus=CORPUS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"neighbors": 0}, "neighbors must be a whole number between 1 and 1000, got 0"),
        ({"neighbors": True}, "neighbors must be"),
        ({"power": -1}, "power must be between 0 and 10, got -1"),
        ({"power": float("nan")}, "power must be"),
        ({"recolor": 1.5}, "recolor must be between 0 and 1, got 1.5"),
        ({"epsilon": -0.1}, "epsilon must be between 0 and 1000000, got -0.1"),
        ({"words": 1}, "words must be True or False, got 1"),
        ({"max_sentences": 49}, "max_sentences must be a whole number >= 50, got 49"),
        ({"neighbors": 30, "max_sentences": 61}, "max_sentences must be a whole number >= 62, got 61"),
        ({"seed": 1.0}, "seed must be a whole number, got 1.0"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"encode_options": {"normalize_embeddings": True}}, "encode_options must hold"),
    ],
)
def test_wrong_settings_are_named(still_encoder, settings, message):
    with pytest.raises(ValueError, match=message):
        attach(still_encoder, **settings)


def test_few_texts_are_told(still_encoder, caplog):
    with caplog.at_level(logging.WARNING):
        attach(still_encoder, corpus=CORPUS)
    assert (
        "texts with different embeddings: with fewer than about 1000, a good encoder can come out worse." in caplog.text
    )
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        LocalityPreservingPostProcessor(8, words=False).fit_embeddings(draw(1000, 8))
    assert not caplog.text


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_other_precisions_are_close(still_encoder, model, dtype):
    expected = model.encode(TEXTS)
    low = attach(still_encoder.to(dtype), corpus=CORPUS).encode(TEXTS, convert_to_tensor=True)
    assert low.dtype == dtype
    assert torch.cosine_similarity(low.float(), torch.from_numpy(expected)).min() > 0.9


def test_gradients_pass_through(still_encoder, model):
    model(model.preprocess(CORPUS[:3]))["sentence_embedding"].square().sum().backward()
    assert still_encoder.transformers_model.embeddings.word_embeddings.weight.grad.abs().sum() > 0
    assert not list(model[2].parameters())


def test_saved_and_loaded_to_the_bit(model, tmp_path):
    model.save(str(tmp_path / "saved"))
    again = load(str(tmp_path / "saved"), device="cpu")
    assert np.array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert again[2].get_config_dict() == model[2].get_config_dict()
    assert torch.equal(again[2].agreement, model[2].agreement)
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        SentenceTransformer(str(tmp_path / "saved"))
    again[2].fit(CORPUS[:70])
    again.save(str(tmp_path / "again"))
    card = (tmp_path / "again" / "README.md").read_text(encoding="utf8")
    assert f"fitted on {again[2].corpus_size} sentences" in card
    assert "he2003locality" in card
    assert '"neighbors": 10, "power": 1.0, "recolor": 0.5' in card


def test_what_a_file_must_hold(model, tmp_path):
    model.save(str(tmp_path))
    (file,) = tmp_path.glob("*LocalityPreservingPostProcessor/config.json")
    settings = json.loads(file.read_text())
    for name in settings.keys() - {"version"}:
        file.write_text(json.dumps(settings | {name: None}))
        with pytest.raises(ValueError, match=rf"config\.json: .*{name}"):
            load(str(tmp_path), device="cpu")
    for value in (-0.5, 1.5, 0.0):
        model[2].agreement.fill_(value)
        with pytest.raises(ValueError, match=r"agreement must be between 0 and 1 and not all zero, got others"):
            model[2].check_statistics()
    model[2].kernel.zero_()
    with pytest.raises(ValueError, match="kernel must not be all zero"):
        model[2].check_statistics()


@pytest.mark.slow
def test_the_export_loads_where_this_package_does_not(still_encoder, model, tmp_path):
    stock = SentenceTransformer(modules=[*still_encoder, model[2].to_dense()], device="cpu")
    assert np.array_equal(to_stock(model).encode(TEXTS), stock.encode(TEXTS))
    stock.save(str(tmp_path / "stock"))
    command = [sys.executable, "-c", WITHOUT_THE_PACKAGE, str(tmp_path / "stock"), str(tmp_path / "out.npy")]
    subprocess.run([*command, json.dumps(TEXTS)], check=True, capture_output=True, cwd=tmp_path, env=os.environ.copy())
    out = np.load(tmp_path / "out.npy")
    assert np.array_equal(out, stock.encode(TEXTS))
    assert np.abs(out - model.encode(TEXTS)).max() < 1e-3


def test_the_dense_step_is_the_same(still_encoder, model):
    stock = SentenceTransformer(modules=[*still_encoder, model[2].to_dense()], device="cpu")
    assert np.abs(stock.encode(CORPUS) - model.encode(CORPUS)).max() < 1e-4
    with pytest.raises(ValueError, match="not fitted"):
        LocalityPreservingPostProcessor(16).to_dense()
