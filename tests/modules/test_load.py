"""Saved models: loaded by ``load`` and by Sentence Transformers, in this process and another, to the bit."""

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from st_extras.modules import PartialMaskTransformer, WhiteningPostProcessor, load
from st_extras.text.keywords import TfidfKeywords
from tests.modules.cases import TEXTS, attach, pairs_and_scores

pytest.importorskip("jieba")

RELOAD = """
import sys, numpy, json
from sentence_transformers import SentenceTransformer
from st_extras.modules import load
for path in sys.argv[2:]:
    flagged = SentenceTransformer(path, trust_remote_code=True, device="cpu")
    for i, model in enumerate([flagged, load(path, device="cpu")]):
        numpy.save(f"{path}/{i}.npy", model.encode(json.loads(sys.argv[1])))
"""


@pytest.mark.slow
def test_saved_and_reloaded_in_a_new_process_to_the_bit(still_encoder, tmp_path):
    attached = {
        tmp_path / "exact": attach(still_encoder, keywords="tfidf"),
        tmp_path / "pooled": attach(still_encoder, redundancy="pooled", keywords="jieba"),
        tmp_path / "stacked": attach(WhiteningPostProcessor.attach(still_encoder, corpus=TEXTS), keywords="rake"),
    }
    for path, model in attached.items():
        model.save(str(path))
    command = [sys.executable, "-c", RELOAD, json.dumps(TEXTS), *map(str, attached)]
    subprocess.run(command, check=True, capture_output=True)
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


def test_push_to_hub_uploads_a_model_that_loads(still_encoder, tmp_path, monkeypatch):
    class Hub:
        def __init__(self, **_):
            pass

        def create_repo(self, repo_id, **_):
            return SimpleNamespace(repo_id=repo_id)

        def upload_folder(self, *, folder_path, **_):
            shutil.copytree(folder_path, tmp_path / "hub")
            return SimpleNamespace(commit_url="done")

    monkeypatch.setattr("sentence_transformers.base.model.HfApi", Hub)
    attached = attach(still_encoder, keywords="jieba")
    assert attached.push_to_hub("user/refined", replace_model_card=True) == "done"
    assert 'st_extras.load("user/refined")' in (tmp_path / "hub" / "README.md").read_text(encoding="utf8")
    assert np.array_equal(load(str(tmp_path / "hub"), device="cpu").encode(TEXTS), attached.encode(TEXTS))


def test_without_the_flag_it_is_refused_with_the_way_out(still_encoder, tmp_path):
    attach(still_encoder, keywords="jieba").save(str(tmp_path / "saved"))
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        SentenceTransformer(str(tmp_path / "saved"), device="cpu")


def test_load_lets_in_this_package_alone(still_encoder, tmp_path):
    attach(still_encoder, keywords="jieba").save(str(tmp_path / "saved"))
    listing = tmp_path / "saved" / "modules.json"
    modules = json.loads(listing.read_text())
    modules[1]["type"] = "evil.Pooling"
    listing.write_text(json.dumps(modules))
    with pytest.raises(ValueError, match=r"evil\.Pooling"):
        load(str(tmp_path / "saved"))


def test_a_callable_cannot_be_saved(still_encoder, tmp_path):
    with pytest.raises(ValueError, match=r"callable, which cannot be saved.*'jieba', 'tfidf', 'rake'"):
        attach(still_encoder).save(str(tmp_path / "saved"))
    attach(still_encoder, keywords=TfidfKeywords.fit(TEXTS)).save(str(tmp_path / "fine"))
