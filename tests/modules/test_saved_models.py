"""Saved models: loaded to the bit, exported without this package, checked when they are loaded."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from st_extras.losses import SimCSELoss
from st_extras.modules import (
    CorpusStatistics,
    LocalityPreservingPostProcessor,
    RepALPostProcessor,
    SIFPooling,
    WhiteningPostProcessor,
    load,
    to_stock,
)
from st_extras.text.keywords import TfidfKeywords
from st_extras.training import save_model, train_encoder
from tests.modules.cases import TEXTS, attach, corpus_of_words, pairs_and_scores
from tests.modules.test_routers import routed

CORPUS = list(dict.fromkeys(corpus_of_words(160)))[:120]
WHITENING, REPAL = "2_WhiteningPostProcessor", "3_RepALPostProcessor"


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


# --- what a saved module holds is checked; each refusal names the file ---


@pytest.fixture(scope="module")
def whole(built_encoders, tmp_path_factory):
    """A saved model with whitening and RepAL."""
    folder = tmp_path_factory.mktemp("whole") / "model"
    whitened = WhiteningPostProcessor.attach(built_encoders(), dimensions=6, corpus=TEXTS)
    attach(whitened, keywords="tfidf").save(str(folder))
    assert load(str(folder), device="cpu").encode(TEXTS).shape == (len(TEXTS), 6)
    return folder


@pytest.fixture
def saved(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "saved"))


def load_part(folder: Path, name: str) -> None:
    kind = RepALPostProcessor if name == REPAL else WhiteningPostProcessor
    kind.load(str(folder), subfolder=name)


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        (REPAL, {"lambda_1": "0.5"}, "lambda_1 must be between 0"),
        (REPAL, {"lambda_1": ...}, "must hold .*lambda_1"),
        (REPAL, {"surprise": 2}, "must hold .*surprise"),
        (WHITENING, {"dimensions": None}, "dimensions must be the one of the saved module"),
    ],
)
def test_wrong_settings(saved, part, changes, message):
    path = saved / part / "config.json"
    content = json.loads(path.read_text("utf8")) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}), "utf8")
    with pytest.raises(ValueError, match=rf"{part}.config\.json.*{message}"):
        load_part(saved, part)


@pytest.mark.parametrize(
    ("part", "name", "change"),
    [(WHITENING, "kernel", lambda kernel: kernel / 0), (REPAL, "corpus_mean", lambda mean: mean[:5])],
)
def test_wrong_tensors(saved, part, name, change):
    path = saved / part / "model.safetensors"
    tensors = load_file(path)
    save_file(tensors | {name: change(tensors[name]).contiguous()}, path)
    with pytest.raises(ValueError, match=rf"{part}.model\.safetensors.*{name}"):
        load_part(saved, part)


def test_no_pickle_is_read_or_written(saved, still_encoder, tmp_path):
    path = saved / REPAL / "model.safetensors"
    torch.save(load_file(path), path.with_name("pytorch_model.bin"))
    path.unlink()
    with pytest.raises(ValueError, match=r"must contain model\.safetensors"):
        load_part(saved, REPAL)
    attach(still_encoder)[2].save(str(tmp_path), safe_serialization=False)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("name", [f"{WHITENING}/config.json", f"{WHITENING}/model.safetensors", "repal_keywords.json"])
def test_a_missing_or_broken_file_is_named(saved, name):
    path = saved / name
    for broken in (b"", b"\xff\xfe\x00", b"[1]", b'{"name": "rake", "surprise": 1}', None):
        path.unlink() if broken is None else path.write_bytes(broken)
        with pytest.raises(ValueError, match=path.name):
            load(str(saved), device="cpu")


@pytest.mark.skipif(os.name == "nt", reason="permissions of a POSIX system")
def test_saved_files_follow_the_umask(whole, sentences, tmp_path):
    """Safetensors makes its files private: a service of another user could not load the model."""
    before = os.umask(0o027)
    try:
        model = load(str(whole), device="cpu")
        save_model(model, tmp_path / "saved")
        CorpusStatistics.compute(model, sentences).save(tmp_path / "statistics.safetensors")
        plain = RepALPostProcessor.detach(model)
        options = {"max_steps": 1, "eval_steps": 1, "batch_size": 4, "evaluator": None, "show_progress_bar": False}
        train_encoder(plain, SimCSELoss(plain), sentences, tmp_path / "trained", **options)
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*.*") if path.is_file()}
    assert {path.suffix for path in modes} >= {".safetensors", ".json", ".pt"}
    assert {path.name for path, mode in modes.items() if mode != 0o640} == set()
