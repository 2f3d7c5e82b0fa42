"""Saved models: loaded by ``load``, by Sentence Transformers and, exported, without this package; to the bit."""

import json
import subprocess
import sys

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from st_extras.modules import (
    AllButTheTopPostProcessor,
    LocalityPreservingPostProcessor,
    PartialMaskTransformer,
    SIFPooling,
    WhiteningPostProcessor,
    load,
    to_stock,
)
from st_extras.text.keywords import TfidfKeywords
from tests.modules.cases import TEXTS, attach, corpus_of_words, pairs_and_scores
from tests.modules.test_routers import routed

pytest.importorskip("jieba")

CORPUS = list(dict.fromkeys(corpus_of_words(160)))[:120]
RELOAD = """
import json, sys, numpy
from sentence_transformers import SentenceTransformer
texts, ours, stock = map(json.loads, sys.argv[1:])
if stock:  # any import of this package fails
    sys.modules["st_extras"] = None
for path in stock:
    numpy.save(path + "/0.npy", SentenceTransformer(path, device="cpu").encode(texts))
if ours:
    from st_extras.modules import load
for path in ours:
    for i, read in enumerate([lambda path: SentenceTransformer(path, trust_remote_code=True, device="cpu"), load]):
        numpy.save(f"{path}/{i}.npy", read(path).encode(texts))
"""


def reload(ours=(), stock=()):
    command = [sys.executable, "-c", RELOAD, *map(json.dumps, (TEXTS, list(map(str, ours)), list(map(str, stock))))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_saved_and_reloaded_in_a_new_process_to_the_bit(still_encoder, tmp_path):
    attached = {
        tmp_path / "exact": attach(still_encoder, keywords="tfidf"),
        tmp_path / "pooled": attach(still_encoder, redundancy="pooled", keywords="jieba"),
        tmp_path / "stacked": attach(WhiteningPostProcessor.attach(still_encoder, corpus=TEXTS), keywords="rake"),
    }
    for path, model in attached.items():
        model.save(str(path))
    reload(ours=attached)
    for path, model in attached.items():
        expected = model.encode(TEXTS)
        for i in range(2):
            assert np.array_equal(np.load(path / f"{i}.npy"), expected)


@pytest.mark.parametrize("redundancy", ["encoder", "pooled"])
def test_a_loaded_model_goes_on_working(still_encoder, tmp_path, redundancy):
    attach(still_encoder, keywords="jieba", redundancy=redundancy).save(str(tmp_path / "once"))
    again = load(str(tmp_path / "once"), device="cpu")
    assert isinstance(again[0], PartialMaskTransformer)
    assert again[0].redundancy == redundancy
    assert again[2].corpus_size == len(TEXTS)
    again[2].fit(TEXTS[:2])
    again[2].tune(*pairs_and_scores())
    again.save(str(tmp_path / "twice"))
    for name in ("once", "twice"):
        card = (tmp_path / name / "README.md").read_text(encoding="utf8")
        assert 'SentenceTransformer("sentence_transformers_model_id", trust_remote_code=True)' in card
        assert 'st_extras.load("sentence_transformers_model_id")' in card


def test_only_the_modules_of_this_package_are_let_in(still_encoder, tmp_path):
    folder = tmp_path / "saved"
    attach(still_encoder, keywords="jieba").save(str(folder))
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        SentenceTransformer(str(folder), device="cpu")
    listing = folder / "modules.json"
    modules = json.loads(listing.read_text())
    modules[1]["type"] = "evil.Pooling"
    listing.write_text(json.dumps(modules))
    with pytest.raises(ValueError, match=r"evil\.Pooling"):
        load(str(folder))
    listing.write_text(listing.read_text()[:-20])
    with pytest.raises(ValueError, match=r"modules\.json"):
        load(str(folder), device="cpu")
    listing.unlink()
    with pytest.raises(ValueError, match=r"is incomplete: .*modules\.json"):
        load(str(folder), device="cpu")


def test_a_callable_cannot_be_saved_and_leaves_the_model_that_was_there(still_encoder, tmp_path):
    attach(still_encoder, keywords=TfidfKeywords.fit(TEXTS)).save(str(tmp_path / "saved"))
    expected = load(str(tmp_path / "saved"), device="cpu").encode(TEXTS)
    with pytest.raises(ValueError, match=r"callable, which cannot be saved.*'jieba', 'tfidf', 'rake'"):
        attach(still_encoder).save(str(tmp_path / "saved"))
    assert np.array_equal(load(str(tmp_path / "saved"), device="cpu").encode(TEXTS), expected)


# --- exported as stock modules ---


@pytest.fixture
def normalized(still_encoder):
    return SentenceTransformer(modules=[*still_encoder, Normalize()], device="cpu")


@pytest.mark.slow
def test_exported_models_load_without_this_package(normalized, tmp_path):
    whitened = WhiteningPostProcessor.attach(normalized, dimensions=6, corpus=CORPUS)
    centred = attach(normalized, lambda_1=0.0, lambda_2=0.7, keywords="rake")
    models = {
        "plain": normalized,
        "whitened": whitened,
        "soft": WhiteningPostProcessor.attach(normalized, epsilon=0.1, corpus=CORPUS),
        "all-but-the-top": AllButTheTopPostProcessor.attach(normalized, components=3, corpus=CORPUS),
        "locality": LocalityPreservingPostProcessor.attach(normalized, corpus=CORPUS),
        "centred": centred,
        "both": attach(whitened, lambda_1=0.0, lambda_2=0.7, keywords="rake", redundancy="pooled"),
    }
    for name, model in models.items():
        to_stock(model).save(str(tmp_path / name))
        for path in (tmp_path / name).rglob("*.json"):
            assert "st_extras" not in path.read_text(encoding="utf8"), path
        card = (tmp_path / name / "README.md").read_text(encoding="utf8")
        assert "trust_remote_code" not in card
        assert "st-extras" not in card
        assert ("WhiteningPostProcessor**, fitted on 120" in card) == (name in ("whitened", "soft", "both"))
        assert ("shen2023repal" in card) == (name in ("centred", "both"))
    reload(stock=[tmp_path / name for name in models])
    for name, model in models.items():
        expected = model.encode(TEXTS)
        assert np.abs(np.load(tmp_path / name / "0.npy") - expected).max() < 1e-5, name
        assert np.abs(np.linalg.norm(expected, axis=1) - 1).max() < 1e-5, "Normalize is still the last"


def test_what_cannot_be_exported(still_encoder):
    with pytest.raises(ValueError, match="lambda_1 must be 0 to export"):
        to_stock(attach(still_encoder))
    with pytest.raises(ValueError, match="to_dense needs the statistics of a corpus"):
        to_stock(WhiteningPostProcessor.attach(still_encoder))
    with pytest.raises(ValueError, match="model must be a SentenceTransformer, got 3"):
        to_stock(3)
    message = r"^model must hold only modules that are linear .*got SIFPooling: [^.]*st_extras.load\.$"
    with pytest.raises(ValueError, match=message):
        to_stock(SIFPooling.attach(still_encoder, corpus=CORPUS))


def test_a_router_is_exported(still_encoder):
    model = attach(routed(still_encoder), lambda_1=0.0)
    stock = to_stock(model)
    assert [type(part).__name__ for part in stock] == ["Router", "Dense", "Normalize"]
    assert np.abs(stock.encode_query(TEXTS) - model.encode_query(TEXTS)).max() < 1e-6
