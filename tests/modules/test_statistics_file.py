"""What a file of statistics holds is checked; each refusal names the file."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from st_extras.modules import CorpusStatistics
from tests.modules.cases import corpus_of_words


@pytest.fixture
def saved(still_encoder, tmp_path):
    statistics = CorpusStatistics.compute(still_encoder, corpus_of_words(20))
    statistics.save(tmp_path / "s.safetensors")
    return tmp_path / "s.safetensors", statistics


def change(path, metadata=None, **tensors):
    with safe_open(str(path), framework="pt") as file:
        old, stored = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for name, function in tensors.items():
        stored[name] = function(stored.get(name))
    meta = {name: value for name, value in (old | (metadata or {})).items() if value is not None}
    save_file({name: tensor.contiguous() for name, tensor in stored.items() if tensor is not None}, str(path), meta)


def test_saved_and_loaded_to_the_bit(saved, tmp_path):
    path, statistics = saved
    again = CorpusStatistics.load(str(path))
    assert (again.count, again.embedding_dimension) == (20, 16)
    assert torch.equal(again.mean, statistics.mean)
    assert torch.equal(again.scatter, statistics.scatter)
    assert torch.equal(again.source.probes, statistics.source.probes)
    unknown = CorpusStatistics(3)
    unknown.save(tmp_path / "empty")
    assert CorpusStatistics.load(tmp_path / "empty").count == 0
    assert CorpusStatistics.load(tmp_path / "empty").source is None
    assert sorted(file.name for file in tmp_path.glob("*s*")) == ["s.safetensors"]


def at(index, value):
    def put(tensor):
        tensor[index] = value
        return tensor

    return put


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metadata": {"version": "2"}}, "another format or version .*version 2"),
        ({"metadata": {"format": None}}, "another format or version"),
        ({"metadata": {"prompt": None, "max_seq_length": None}}, "tensors count, mean, probes, scatter instead of"),
        ({"metadata": {"max_seq_length": None}}, "the tensors"),
        ({"mean": lambda _: None}, "tensors count, probes, scatter instead of"),
        ({"more": lambda _: torch.ones(1)}, "tensors count, mean, more"),
        ({"mean": torch.Tensor.float}, "mean with the shape .* torch.float32"),
        ({"mean": lambda mean: mean[:-1]}, r"shape"),
        ({"mean": lambda mean: mean[None]}, r"mean with the shape \(1, 16\)"),
        ({"scatter": lambda scatter: scatter[:5]}, r"scatter with the shape \(5, 16\)"),
        ({"probes": lambda probes: probes[:1]}, r"probes with the shape \(1, 16\)"),
        ({"count": torch.Tensor.double}, "count with the shape .* torch.float64"),
        ({"count": lambda _: torch.tensor([20])}, r"count with the shape \(1,\)"),
        ({"count": lambda _: torch.tensor(-1)}, "the count -1"),
        ({"count": lambda _: torch.tensor(0)}, "a mean or scatter of no sentences"),
        ({"mean": at(3, torch.nan)}, "mean with values that are not finite"),
        ({"scatter": at((3, 3), torch.inf)}, "scatter with values that are not finite"),
        ({"probes": at((0, 3), torch.nan)}, "probes with values that are not finite"),
        ({"scatter": at((3, 4), 99.0)}, "scatter that is not symmetric"),
        ({"scatter": at((3, 3), -1.0)}, "scatter with -1 on its diagonal"),
    ],
)
def test_a_wrong_file_is_named(saved, changes, message):
    path, _ = saved
    change(path, **changes)
    with pytest.raises(ValueError, match=rf"s\.safetensors must be a file of CorpusStatistics.save, got .*{message}"):
        CorpusStatistics.load(path)


def test_a_broken_or_missing_file_is_named(saved, tmp_path):
    path, statistics = saved
    content = path.read_bytes()
    for broken in (b"", content[:100], content[:-3], b"\xff" * 50):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"s\.safetensors: not a complete safetensors file"):
            CorpusStatistics.load(path)
    for missing in (tmp_path, tmp_path / "none"):
        with pytest.raises(ValueError, match="path must be an existing file"):
            CorpusStatistics.load(missing)
    for target in (tmp_path, tmp_path / "no" / "folder"):
        with pytest.raises(ValueError, match="path must be a file in an existing folder"):
            statistics.save(target)


def test_a_failed_save_leaves_the_earlier_file(saved, monkeypatch, tmp_path):
    path, statistics = saved
    content = path.read_bytes()

    def fail(tensors, name, metadata):
        Path(name).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("st_extras.modules.statistics_file.save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        statistics.save(path)
    assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["s.safetensors"]
