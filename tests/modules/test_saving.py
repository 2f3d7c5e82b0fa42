"""What a saved post-processing module holds is checked when it is loaded; each refusal names the file."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from st_extras.losses import SimCSELoss
from st_extras.modules import CorpusStatistics, RepALPostProcessor, WhiteningPostProcessor, load
from st_extras.training import save_model, train_encoder
from tests.modules.cases import TEXTS, attach

WHITENING, REPAL = "2_WhiteningPostProcessor", "3_RepALPostProcessor"


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
