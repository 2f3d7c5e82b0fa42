"""Saved models: loaded by ``load``, by Sentence Transformers and, exported, without this package; to the bit."""

import json
import re
import sys

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from st_extras.modules import (
    LocalityPreservingPostProcessor,
    SIFPooling,
    WhiteningPostProcessor,
    load,
    to_stock,
)
from st_extras.text.keywords import TfidfKeywords
from tests.modules.cases import TEXTS, attach, corpus_of_words, pairs_and_scores
from tests.modules.test_routers import routed

CORPUS = list(dict.fromkeys(corpus_of_words(160)))[:120]


def test_a_saved_model_is_loaded_to_the_bit(still_encoder, tmp_path):
    whitened = WhiteningPostProcessor.attach(still_encoder, dimensions=6, corpus=CORPUS)
    for name, model in (
        ("exact", attach(still_encoder, keywords="tfidf")),
        ("pooled", attach(whitened, redundancy="pooled", keywords="jieba")),
    ):
        model.save(str(tmp_path / name))
        again = load(str(tmp_path / name), device="cpu")
        remote = SentenceTransformer(str(tmp_path / name), trust_remote_code=True, device="cpu")
        assert np.array_equal(again.encode(TEXTS), model.encode(TEXTS))
        assert np.array_equal(remote.encode(TEXTS), model.encode(TEXTS))


def test_an_exported_model_is_loaded_without_this_package(still_encoder, tmp_path, monkeypatch):
    normalized = SentenceTransformer(modules=[*still_encoder, Normalize()], device="cpu")
    whitened = WhiteningPostProcessor.attach(normalized, dimensions=6, corpus=CORPUS)
    models = {
        "whitened": whitened,
        "locality": LocalityPreservingPostProcessor.attach(normalized, corpus=CORPUS),
        "both": attach(whitened, lambda_1=0.0, lambda_2=0.7, keywords="rake", redundancy="pooled"),
        "routed": attach(routed(still_encoder), lambda_1=0.0),
    }
    for name, model in models.items():
        to_stock(model).save(str(tmp_path / name))
        card = (tmp_path / name / "README.md").read_text(encoding="utf8")
        assert not re.search("trust_remote_code|st-extras", card)
        assert ("WhiteningPostProcessor**, fitted on 120" in card) == (name in ("whitened", "both"))
        assert ("shen2023repal" in card) == (name in ("both", "routed"))
    expected = {name: model.encode(TEXTS) for name, model in models.items()}
    for name in [name for name in sys.modules if name.startswith("st_extras")]:
        monkeypatch.setitem(sys.modules, name, None)  # any import of it fails
    for name, found in expected.items():
        stock = SentenceTransformer(str(tmp_path / name), device="cpu")
        assert np.abs(stock.encode(TEXTS) - found).max() < 1e-5, name


@pytest.mark.parametrize("redundancy", ["encoder", "pooled"])
def test_a_loaded_model_can_be_fitted_and_saved_again(still_encoder, tmp_path, redundancy):
    attached = attach(still_encoder, keywords="jieba", redundancy=redundancy)
    attached.save(str(tmp_path / "once"))
    again = load(str(tmp_path / "once"), device="cpu")
    assert np.array_equal(again.encode(TEXTS), attached.encode(TEXTS))
    assert again[0].redundancy == redundancy
    again[2].fit(TEXTS[:2])
    again[2].tune(*pairs_and_scores())
    again.save(str(tmp_path / "twice"))
    assert np.array_equal(load(str(tmp_path / "twice"), device="cpu").encode(TEXTS), again.encode(TEXTS))


def test_only_the_modules_of_this_package_are_let_in(still_encoder, tmp_path):
    attach(still_encoder, keywords="jieba").save(str(tmp_path))
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        SentenceTransformer(str(tmp_path), device="cpu")
    listing = tmp_path / "modules.json"
    modules = json.loads(listing.read_text())
    modules[1]["type"] = "evil.Pooling"
    for text, message in ((json.dumps(modules), r"evil\.Pooling"), ('[{"idx"', r"modules\.json")):
        listing.write_text(text)
        with pytest.raises(ValueError, match=message):
            load(str(tmp_path))
    listing.unlink()
    with pytest.raises(ValueError, match=r"is incomplete: .*modules\.json"):
        load(str(tmp_path))


def test_a_callable_cannot_be_saved_and_leaves_the_model_that_was_there(still_encoder, tmp_path):
    attach(still_encoder, keywords=TfidfKeywords.fit(TEXTS)).save(str(tmp_path))
    expected = load(str(tmp_path), device="cpu").encode(TEXTS)
    with pytest.raises(ValueError, match="callable, which cannot be saved"):
        attach(still_encoder).save(str(tmp_path))
    assert np.array_equal(load(str(tmp_path), device="cpu").encode(TEXTS), expected)


def test_what_cannot_be_exported(still_encoder):
    for wrong, message in (
        (attach(still_encoder), "^lambda_1 must be 0"),
        (WhiteningPostProcessor.attach(still_encoder), "to_dense needs the statistics"),
        (SIFPooling.attach(still_encoder, corpus=CORPUS), "^model must hold only modules that are linear .*SIFPooling"),
    ):
        with pytest.raises(ValueError, match=message):
            to_stock(wrong)
