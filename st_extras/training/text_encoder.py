"""Encoding the texts of an adaptation in parts, which are kept, so that an interrupted run need not start again."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from torch import Tensor
from tqdm.auto import tqdm

from st_extras.encoders.source import Source
from st_extras.training.marker import write_json
from st_extras.whole_file import whole_file

WORK = "adapting"
"""Folder in the output folder: what an interrupted run left."""
_SETTINGS = "settings.json"
_PART = 500  # texts that are encoded and kept at a time
_RATE_TEXTS = 256  # encoded first, to find out how many fit into the time


@dataclass(frozen=True)
class WorkFolder:
    """What an adaptation has found out so far: which texts it uses, and their embeddings.

    Attributes:
        path: the folder, which need not exist.
    """

    path: Path

    def is_one(self) -> bool:
        """Whether an adaptation left it, so that it may be continued or removed."""
        return (self.path / _SETTINGS).is_file()

    def resumed(self, encoder: SentenceTransformer, texts: Sequence[str], seed: int) -> int:
        """Return how many of the texts the interrupted run uses, which there must be.

        Raises:
            ValueError: if it has another encoder, other texts or another seed.
        """
        found = f"resume needs an interrupted adaptation in {str(self.path.parent)!r}, got"
        try:
            before = json.loads((self.path / _SETTINGS).read_text(encoding="utf8"))
            source = Source("", before["max_seq_length"], torch.tensor(before["probes"]))
            differing = {"text": before["text"] != _digest(texts), "seed": before["seed"] != seed}
            used = int(before["used"])
        except (KeyError, TypeError, ValueError):
            raise ValueError(
                f"{found} one whose {_SETTINGS} is broken: start again with overwrite (--overwrite)."
            ) from None
        now = Source.of(encoder, "")
        differing["encoder"] = now.probes.shape != source.probes.shape or now.difference(source) is not None
        if any(differing.values()):
            names = " and ".join(name for name, differs in differing.items() if differs)
            again = "give the same again, or start again with overwrite (--overwrite)"
            raise ValueError(f"{found} one with another {names}: {again}.")
        return used

    def begin(self, encoder: SentenceTransformer, texts: Sequence[str], seed: int, used: int) -> None:
        """Make the folder and write down what the run is about."""
        source = Source.of(encoder, "")
        self.path.mkdir(parents=True, exist_ok=True)
        settings: dict[str, Any] = {"text": _digest(texts), "seed": seed, "used": used}
        settings |= {"max_seq_length": source.max_seq_length, "probes": source.probes.tolist()}
        write_json(self.path / _SETTINGS, settings)

    def remove(self) -> None:
        """Remove the folder, if an adaptation left it."""
        if self.is_one():
            shutil.rmtree(self.path)


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()


class TextEncoder:
    """Encodes with the part of a model before the refinement.

    Args:
        model: the model.
        encoder: that part.
        batch_size: texts per forward pass.
        show_progress_bar: show how many texts are done and how long the others take.
        label: of the bar.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        encoder: SentenceTransformer,
        batch_size: int,
        show_progress_bar: bool,
        label: str = "Encoding",
    ) -> None:
        self.model = model
        self.encoder = encoder
        self.batch_size = batch_size
        self.show_progress_bar = show_progress_bar
        self.label = label

    def __call__(self, texts: Sequence[str], kept: Path | None = None) -> Tensor:
        """Return (N, D) embeddings in float64, on the CPU.

        Args:
            texts: (N,).
            kept: folder that parts are read from, and written to as soon as they are done.
        """
        parts = []
        with tqdm(total=len(texts), unit=" texts", desc=self.label, disable=not self.show_progress_bar) as bar:
            for first in range(0, len(texts), _PART):
                part = texts[first : first + _PART]
                path = None if kept is None else kept / f"{first:06d}.safetensors"
                if path is not None and path.is_file():
                    parts.append(load_file(path)["embeddings"])
                else:
                    parts.append(self._encode(part).cpu())
                    if path is not None:
                        path.parent.mkdir(parents=True, exist_ok=True)
                        with whole_file(path) as partial:
                            save_file({"embeddings": parts[-1].contiguous()}, partial)
                bar.update(len(part))
        return torch.cat(parts).double()

    def _encode(self, texts: Sequence[str]) -> Tensor:
        encoded: Tensor = self.encoder.encode(
            list(texts), batch_size=self.batch_size, convert_to_tensor=True, show_progress_bar=False
        )
        return encoded

    def seconds_per_text(self, texts: Sequence[str]) -> float:
        """Return how long a text takes, found by encoding some; 0 if there are none."""
        if not texts:
            return 0.0
        began = time.perf_counter()
        self._encode(texts[:_RATE_TEXTS])
        return (time.perf_counter() - began) / min(len(texts), _RATE_TEXTS)
