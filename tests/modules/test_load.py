"""Saved models: loaded to the bit, exported without this package, checked when they are loaded."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

from st_extras.files import replace_folder
from st_extras.losses import SimCSELoss
from st_extras.modules import RepALPostProcessor, load, whitening
from st_extras.text.keywords import TfidfKeywords
from st_extras.training import train_encoder
from tests.modules.cases import TEXTS, attach, corpus_of_words, pairs_and_scores

CORPUS = list(dict.fromkeys(corpus_of_words(160)))[:120]
REPAL = "3_RepALPostProcessor"


def test_a_saved_model_is_loaded_to_the_bit(still_encoder, tmp_path):
    whitened = whitening(still_encoder, CORPUS, dimensions=6)
    for name, model in (
        ("exact", attach(still_encoder, keywords="tfidf")),
        ("pooled", attach(whitened, redundancy="pooled", keywords="jieba")),
    ):
        model.save(str(tmp_path / name))
        again = load(str(tmp_path / name), device="cpu")
        remote = SentenceTransformer(str(tmp_path / name), trust_remote_code=True, device="cpu")
        assert np.array_equal(again.encode(TEXTS), model.encode(TEXTS))
        assert np.array_equal(remote.encode(TEXTS), model.encode(TEXTS))


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
    listing.write_text(json.dumps(modules))
    with pytest.raises(ValueError, match=r"evil\.Pooling"):
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


# --- what a saved module holds is checked; each refusal names the file ---


@pytest.fixture(scope="module")
def whole(make_encoder, tmp_path_factory):
    """A saved model with whitening and RepAL."""
    folder = tmp_path_factory.mktemp("whole") / "model"
    whitened = whitening(make_encoder(), TEXTS, dimensions=6)
    attach(whitened, keywords="tfidf").save(str(folder))
    assert load(str(folder), device="cpu").encode(TEXTS).shape == (len(TEXTS), 6)
    return folder


@pytest.fixture
def saved(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "saved"))


def test_wrong_files_are_refused(saved):
    path = saved / REPAL / "config.json"
    text = path.read_text("utf8")
    for changes, message in (({"lambda_1": "0.5"}, "lambda_1 must be between 0"), ({"surprise": 2}, "surprise")):
        path.write_text(json.dumps(json.loads(text) | changes), "utf8")
        with pytest.raises(ValueError, match=rf"^'.*saved' could not be loaded .*{message}"):
            load(str(saved), device="cpu")
    path.write_text(text, "utf8")
    path = saved / REPAL / "model.safetensors"
    save_file({"corpus_mean": load_file(path)["corpus_mean"][:5].contiguous()}, path)
    with pytest.raises(ValueError, match=r"^'.*saved' could not be loaded .*corpus_mean"):
        load(str(saved), device="cpu")


def test_a_missing_or_broken_file_of_keywords_is_refused(saved):
    path = saved / "repal_keywords.json"
    for broken in (b"", b"\xff\xfe\x00", b"[1]", b'{"name": "rake", "surprise": 1}', None):
        path.unlink() if broken is None else path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"^'.*saved' could not be loaded"):
            load(str(saved), device="cpu")


@pytest.mark.skipif(os.name == "nt", reason="permissions of a POSIX system")
def test_saved_files_follow_the_umask(whole, sentences, tmp_path):
    """Safetensors makes its files private: a service of another user could not load the model."""
    before = os.umask(0o027)
    try:
        model = load(str(whole), device="cpu")
        with replace_folder(tmp_path / "saved") as folder:
            model.save(str(folder))
        plain = RepALPostProcessor.detach(model)
        options = {"max_steps": 1, "eval_steps": 1, "batch_size": 4, "evaluator": None, "show_progress_bar": False}
        train_encoder(plain, SimCSELoss(plain), sentences, tmp_path / "trained", **options)
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*.*") if path.is_file()}
    assert {path.suffix for path in modes} >= {".safetensors", ".json"}
    assert {path.name for path, mode in modes.items() if mode != 0o640} == set()
