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

pytest.importorskip("jieba")

WHITENING, REPAL = "2_WhiteningPostProcessor", "3_RepALPostProcessor"


@pytest.fixture(scope="module")
def whole(built_encoders, tmp_path_factory):
    """A saved model with whitening and RepAL."""
    folder = tmp_path_factory.mktemp("whole") / "model"
    whitened = WhiteningPostProcessor.attach(built_encoders(), dimensions=6, corpus=TEXTS)
    attach(whitened, keywords="tfidf").save(str(folder))
    return folder


@pytest.fixture
def saved(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "saved"))


def change_json(path: Path, **changes) -> None:
    content = json.loads(path.read_text("utf8")) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}), "utf8")


def change_tensors(path: Path, **changes) -> None:
    tensors = load_file(path)
    for name, change in changes.items():
        tensors[name] = change(tensors.get(name))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items() if tensor is not None}, path)


def load_part(folder: Path, name: str) -> None:
    kind = RepALPostProcessor if name == REPAL else WhiteningPostProcessor
    kind.load(str(folder), subfolder=name)


def test_the_whole_model_loads(whole):
    assert load(str(whole), device="cpu").encode(TEXTS).shape == (len(TEXTS), 6)


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        (REPAL, {"lambda_1": "0.5"}, "lambda_1 must be between 0 .*got '0.5'"),
        (REPAL, {"lambda_1": ...}, "must hold .*lambda_1"),
        (REPAL, {"corpus_size": -1}, "corpus_size must be a whole number .*got -1"),
        (REPAL, {"embedding_dimension": 10**12}, "embedding_dimension must be a whole number .*got 1000000000000"),
        (REPAL, {"surprise": 2}, "must hold .*surprise"),
        (WHITENING, {"dimensions": 17}, "dimensions must be .*16.*got 17"),
        (WHITENING, {"embedding_dimension": 10**9}, "embedding_dimension must be .*got 1000000000"),
        (WHITENING, {"dimensions": None}, "dimensions must be the one of the saved module, got None"),
    ],
)
def test_wrong_settings_are_refused_with_their_file(saved, part, changes, message):
    change_json(saved / part / "config.json", **changes)
    with pytest.raises(ValueError, match=rf"{part}.config\.json.*{message}"):
        load(str(saved), device="cpu")


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        (WHITENING, {"kernel": lambda kernel: kernel / 0}, "'kernel' with NaN or an infinite value"),
        (REPAL, {"corpus_mean": lambda mean: mean[:5]}, r"\(5,\) instead of \(6,\)"),
        (REPAL, {"corpus_mean": torch.Tensor.int}, "torch.int32 instead of floating-point numbers"),
    ],
)
def test_wrong_tensors_are_refused_with_their_file(saved, part, changes, message):
    change_tensors(saved / part / "model.safetensors", **changes)
    with pytest.raises(ValueError, match=rf"{part}.model\.safetensors.*{message}.*: fit the module again"):
        load(str(saved), device="cpu")


def test_no_pickle_is_read_or_written(saved, still_encoder, tmp_path):
    path = saved / REPAL / "model.safetensors"
    torch.save(load_file(path), path.with_name("pytorch_model.bin"))
    path.unlink()
    with pytest.raises(ValueError, match=r"must contain model\.safetensors"):
        load_part(saved, REPAL)
    attach(still_encoder)[2].save(str(tmp_path), safe_serialization=False)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("part", [REPAL, WHITENING])
def test_a_missing_or_broken_file_is_named(saved, part, name):
    path = saved / part / name
    content = path.read_bytes()
    for broken in (content[: len(content) // 2], b"", b"\xff\xfe\x00", content[:-3], b"[" * 100_000):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=rf"{part}.{name}"):
            load_part(saved, part)
    path.unlink()
    with pytest.raises(ValueError, match=rf"saved.{part} must contain {name}"):
        load_part(saved, part)
    path.mkdir()
    with pytest.raises(ValueError, match=rf"{part}.{name}"):
        load_part(saved, part)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not JSON"),
        ("[1]", "JSON object"),
        ('{"name": "yake"}', "keywords must be 'jieba'"),
        ('{"name": "rake", "surprise": 1}', "surprise"),
        ('{"name": "rake", "top_k": 3, "stop_words": "the"}', "stop_words"),
        (None, "must contain"),
    ],
)
def test_a_wrong_keywords_file_is_named(saved, content, message):
    path = saved / "repal_keywords.json"
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(ValueError, match=rf"repal_keywords\.json.*{message}|{message}.*repal_keywords\.json"):
        load(str(saved), device="cpu")


@pytest.mark.skipif(os.name == "nt", reason="permissions of a POSIX system")
@pytest.mark.parametrize("mask", [0o022, 0o027])
def test_saved_files_follow_the_umask(whole, sentences, tmp_path, mask):
    """Safetensors makes its files private: a service of another user could not load the model."""
    before = os.umask(mask)
    try:
        model = load(str(whole), device="cpu")
        save_model(model, tmp_path / "saved")
        CorpusStatistics.compute(model, sentences).save(tmp_path / "statistics.safetensors")
        plain = RepALPostProcessor.detach(model)
        options = {"max_steps": 1, "eval_steps": 1, "batch_size": 4, "evaluator": None, "show_progress_bar": False}
        train_encoder(plain, SimCSELoss(plain), sentences, tmp_path / "trained", **options)
    finally:
        os.umask(before)
    modes = {path.relative_to(tmp_path): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
    assert {path.suffix for path in modes} >= {".safetensors", ".json", ".pt"}
    assert {path: mode for path, mode in modes.items() if mode != 0o666 & ~mask} == {}
