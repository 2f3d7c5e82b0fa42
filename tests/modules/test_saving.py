"""What a saved post-processing module holds is checked when it is loaded; each refusal names the file."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from st_extras.modules import PartialMaskTransformer, RepALPostProcessor, WhiteningPostProcessor, load
from tests.modules.cases import TEXTS, attach

pytest.importorskip("jieba")

WHITENING, REPAL = "2_WhiteningPostProcessor", "3_RepALPostProcessor"


@pytest.fixture(scope="module")
def whole(built_encoders, tmp_path_factory) -> Path:
    """A saved model with whitening and RepAL."""
    folder = tmp_path_factory.mktemp("whole") / "model"
    whitened = WhiteningPostProcessor.attach(built_encoders(), dimensions=6, corpus=TEXTS)
    attach(whitened, keywords="tfidf").save(str(folder))
    return folder


@pytest.fixture
def saved(whole, tmp_path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "saved"))


def change_json(path: Path, **changes) -> None:
    content = json.loads(path.read_text("utf8")) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}), "utf8")


def change_tensors(path: Path, **changes) -> None:
    tensors = load_file(path)
    for name, change in changes.items():
        tensors[name] = change(tensors.get(name))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items() if tensor is not None}, path)


def with_value(value):
    def change(tensor):
        tensor.view(-1)[3] = value
        return tensor

    return change


def load_part(folder: Path, name: str) -> None:
    kind = RepALPostProcessor if name == REPAL else WhiteningPostProcessor
    kind.load(str(folder), subfolder=name)


def test_the_whole_model_loads(whole):
    assert load(str(whole), device="cpu").encode(TEXTS).shape == (len(TEXTS), 6)
    assert json.loads((whole / REPAL / "config.json").read_text())["version"] == 1
    assert json.loads((whole / "repal_keywords.json").read_text())["version"] == 1


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        (REPAL, {"lambda_1": "0.5"}, "lambda_1 must be between 0 .*got '0.5'"),
        (REPAL, {"lambda_2": True}, "lambda_2 must be .* got True"),
        (REPAL, {"lambda_1": float("nan")}, "lambda_1 must be between 0 .*got nan"),
        (REPAL, {"lambda_1": ...}, "must hold .*lambda_1"),
        (REPAL, {"lambda_3": 1.0}, "must hold .*lambda_3"),
        (REPAL, {"corpus_size": -1}, "corpus_size must be a whole number .*got -1"),
        (REPAL, {"corpus_size": "12"}, "corpus_size must be a whole number .*got '12'"),
        (REPAL, {"corpus_size": 1.5}, "corpus_size must be a whole number .*got 1.5"),
        (REPAL, {"corpus_size": None}, "corpus_size must be a whole number .*got None"),
        (REPAL, {"embedding_dimension": 0}, "embedding_dimension must be a whole number .*got 0"),
        (REPAL, {"embedding_dimension": 10**12}, "embedding_dimension must be a whole number .*got 1000000000000"),
        (REPAL, {"embedding_dimension": "6"}, "embedding_dimension must be a whole number .*got '6'"),
        (REPAL, {"version": 2}, "version 1.*got 2"),
        (REPAL, {"version": "new"}, "version 1.*got 'new'"),
        (WHITENING, {"dimensions": 17}, "dimensions must be .*16.*got 17"),
        (WHITENING, {"dimensions": True}, "dimensions must be .*got True"),
        (WHITENING, {"embedding_dimension": 10**9}, "embedding_dimension must be .*got 1000000000"),
        (WHITENING, {"corpus_size": []}, r"corpus_size must be a whole number .*got \[\]"),
    ],
)
def test_wrong_settings_are_refused_with_their_file(saved, part, changes, message):
    change_json(saved / part / "config.json", **changes)
    with pytest.raises(ValueError, match=rf"{part}.config\.json.*{message}"):
        load_part(saved, part)
    with pytest.raises(ValueError, match=rf"{part}.config\.json.*{message}"):
        load(str(saved), device="cpu")


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        (REPAL, {"corpus_mean": with_value(torch.nan)}, "corpus_mean.* finite.*got nan"),
        (REPAL, {"corpus_mean": with_value(torch.inf)}, "corpus_mean.* finite.*got inf"),
        (WHITENING, {"corpus_mean": with_value(torch.nan)}, "corpus_mean.* finite.*got nan"),
        (WHITENING, {"kernel": with_value(-torch.inf)}, "kernel.* finite.*got -inf"),
        (REPAL, {"corpus_mean": lambda mean: mean[:5]}, r"corpus_mean.*\(6,\), got \(5,\)"),
        (REPAL, {"corpus_mean": lambda mean: mean[None]}, r"corpus_mean.*\(6,\), got \(1, 6\)"),
        (WHITENING, {"kernel": torch.t}, r"kernel.*\(16, 6\), got \(6, 16\)"),
        (REPAL, {"corpus_mean": torch.Tensor.int}, "corpus_mean.*floating.*got torch.int32"),
        (WHITENING, {"kernel": torch.Tensor.bool}, "kernel.*floating.*got torch.bool"),
        (WHITENING, {"kernel": torch.zeros_like}, "kernel.*not.* zero"),
        (WHITENING, {"kernel": lambda _: None}, "must hold the tensors corpus_mean, kernel, got corpus_mean"),
        (REPAL, {"kernel": lambda _: torch.ones(2)}, "must hold the tensors corpus_mean, got corpus_mean, kernel"),
    ],
)
def test_wrong_tensors_are_refused_with_their_file(saved, part, changes, message):
    change_tensors(saved / part / "model.safetensors", **changes)
    with pytest.raises(ValueError, match=rf"{part}.model\.safetensors.*{message}"):
        load_part(saved, part)
    with pytest.raises(ValueError, match=rf"{part}.model\.safetensors.*{message}"):
        load(str(saved), device="cpu")


@pytest.mark.parametrize("part", [REPAL, WHITENING])
def test_a_corpus_size_of_zero_does_not_fit_a_mean(saved, part):
    change_json(saved / part / "config.json", corpus_size=0)
    with pytest.raises(ValueError, match=rf"{part}.*corpus_size.*0"):
        load_part(saved, part)


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


def test_no_pickle_is_read(saved):
    path = saved / REPAL / "model.safetensors"
    torch.save(load_file(path), path.with_name("pytorch_model.bin"))
    path.unlink()
    with pytest.raises(ValueError, match=r"must contain model\.safetensors"):
        load_part(saved, REPAL)


def test_no_pickle_is_written(still_encoder, tmp_path):
    attached = attach(still_encoder, keywords="jieba")
    attached[2].save(str(tmp_path), safe_serialization=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"name": "tfidf", "idf": {"cat"', "not JSON"),
        ("", "not JSON"),
        ('["jieba"]', "must hold a JSON object"),
        ('"jieba"', "must hold a JSON object"),
        ('{"version": 2, "name": "jieba"}', "version 1.*got 2"),
        ('{"version": 1, "name": "yake"}', "keywords must be 'jieba'"),
        ('{"version": 1}', "keywords must be 'jieba'"),
        ('{"version": 1, "name": "jieba", "top_k": 0}', "top_k"),
        ('{"version": 1, "name": "rake", "surprise": 1}', "surprise"),
        ('{"version": 1, "name": "tfidf"}', "idf"),
        ('{"version": 1, "name": "tfidf", "idf": {"a": "b"}, "unseen_idf": 1.0}', "idf"),
        ('{"version": 1, "name": "tfidf", "idf": ["a"], "unseen_idf": 1.0}', "idf"),
        ('{"version": 1, "name": "tfidf", "idf": {"a": NaN}, "unseen_idf": 1.0}', "idf"),
        ('{"version": 1, "name": "tfidf", "idf": {"a": 1e999}, "unseen_idf": 1.0}', "idf"),
        ('{"version": 1, "name": "tfidf", "idf": {"a": 1.0}, "unseen_idf": "x"}', "unseen_idf"),
        ('{"version": 1, "name": "rake", "top_k": 3, "stop_words": 5}', "stop_words"),
        ('{"version": 1, "name": "rake", "top_k": 3, "stop_words": "the"}', "stop_words"),
        ('{"version": 1, "name": "jieba", "name": "rake"}', "name.*twice"),
    ],
)
def test_a_wrong_keywords_file_is_named(saved, content, message):
    (saved / "repal_keywords.json").write_text(content)
    with pytest.raises(ValueError, match=rf"repal_keywords\.json.*{message}"):
        load(str(saved), device="cpu")


def test_the_keywords_file_may_be_of_before_versions_were_written(saved):
    expected = load(str(saved), device="cpu").encode(TEXTS)
    change_json(saved / "repal_keywords.json", version=...)
    change_json(saved / REPAL / "config.json", version=...)
    assert np.array_equal(load(str(saved), device="cpu").encode(TEXTS), expected)


def test_a_missing_keywords_file_is_named(saved):
    (saved / "repal_keywords.json").unlink()
    with pytest.raises(ValueError, match=r"must contain repal_keywords\.json"):
        load(str(saved), device="cpu")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"redundancy": "both"}, "redundancy"),
        ({"on_missing_mask": 1}, "on_missing_mask"),
        ({"redundancy": ...}, "redu"),
    ],
)
def test_the_encoder_s_own_settings_are_checked(saved, changes, message):
    change_json(saved / "sentence_bert_config.json", **changes)
    with pytest.raises(ValueError, match=rf"sentence_bert_config\.json.*{message}"):
        load(str(saved), device="cpu")
    (saved / "sentence_bert_config.json").write_text('{"redundancy')
    with pytest.raises(ValueError, match=r"sentence_bert_config\.json"):
        PartialMaskTransformer.load(str(saved))


def test_a_model_that_was_not_saved_to_the_end_is_refused(saved):
    listing = saved / "modules.json"
    listing.write_text(listing.read_text()[:-20])
    with pytest.raises(ValueError, match=r"modules\.json"):
        load(str(saved), device="cpu")
    listing.unlink()
    with pytest.raises(ValueError, match=r"must contain modules\.json"):
        load(str(saved), device="cpu")


@pytest.mark.parametrize("kind", [torch.float16, torch.float64])
def test_tensors_of_another_precision_load_as_float32(saved, kind):
    path = saved / REPAL / "model.safetensors"
    expected = load_file(path)["corpus_mean"].to(kind).float()
    change_tensors(path, corpus_mean=lambda mean: mean.to(kind))
    mean = RepALPostProcessor.load(str(saved), subfolder=REPAL).corpus_mean
    assert mean.dtype == torch.float32
    assert torch.equal(mean, expected)


def test_a_save_that_is_refused_leaves_the_model_that_was_there(saved):
    before = load(str(saved), device="cpu")
    expected = before.encode(TEXTS)
    before[0].extractor = str.split
    with pytest.raises(ValueError, match="callable, which cannot be saved"):
        before.save(str(saved))
    assert np.array_equal(load(str(saved), device="cpu").encode(TEXTS), expected)
