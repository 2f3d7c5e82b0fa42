"""Embeddings that survive an interruption: encoded in parts, each in a file named by the texts and the encoder."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from sentence_transformers import SentenceTransformer
from torch import Tensor
from tqdm.auto import tqdm

from st_extras.encoders.fingerprint import EncoderFingerprint, Route
from st_extras.encoders.prompts import encode_as
from st_extras.files import (
    Expected,
    digest,
    is_digest,
    json_digest,
    read_checked_json,
    read_tensors,
    write_checked_json,
    write_tensors,
)

logger = logging.getLogger(__name__)
PART = 500
"""Texts that are encoded and stored at a time: what an interruption loses at most."""
_METADATA = {"format": "st-extras stored embeddings"}
_ENCODER = "st-extras encoder of stored embeddings"
_REMEDY = "it is encoded again"


class EmbeddingStore:
    """Encodes texts and keeps their embeddings in a folder, so that an interrupted run does not encode them again.

    Texts are encoded in parts of 500. A part's file is named by the digest of what its embeddings depend on: the
    encoder, the route and the texts in their order. An encoder with its prompt is recognized by its fingerprint, which
    has a file of its own, see :class:`~st_extras.encoders.fingerprint.EncoderFingerprint`.

    Args:
        folder: for the parts, of any number of encoders; created when the first one is written. None: nothing is kept.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from st_extras.encoders.embedding_store import EmbeddingStore
        >>> from st_extras.samples.encoder import raw_encoder
        >>> with TemporaryDirectory() as folder:
        ...     embeddings = EmbeddingStore(folder).encode(raw_encoder(), ["a cat", "a dog"])
        >>> embeddings.shape
        torch.Size([2, 384])
    """

    def __init__(self, folder: str | PathLike[str] | None) -> None:
        self.folder = None if folder is None else Path(folder)

    def encode(
        self,
        model: SentenceTransformer,
        texts: Sequence[str],
        *,
        route: Route = "",
        batch_size: int = 64,
        show_progress_bar: bool = False,
        label: str = "Encoding",
        deadline: float = math.inf,
    ) -> Tensor:
        """Return the embeddings of the texts, or of the first of them if the time is over before.

        Args:
            model: the encoder.
            texts: N texts.
            route: "query" or "document": by :func:`~st_extras.encoders.prompts.encode_as`; "": with ``encode``.
            batch_size: texts per forward pass.
            show_progress_bar: show how many texts are encoded and how long the others take.
            label: of the progress bar.
            deadline: no part is encoded after this time of ``time.perf_counter``; stored ones are still read, up to
                the first that is missing.

        Returns:
            (n, D) on the CPU, in the precision of the model; n < N only if the deadline passed, a multiple of 500;
            (0, 0) if n is 0. They may be not finite; a part that is not is not stored.

        Raises:
            OSError: if a part cannot be written.
        """
        options: dict[str, Any] = {"convert_to_tensor": True, "show_progress_bar": False}
        encode = partial(encode_as, model, route) if route else model.encode
        encoder_name = "" if self.folder is None or not texts else _name_of_encoder(self.folder, model, route)
        encoded: list[Tensor] = []
        with tqdm(total=len(texts), unit=" texts", desc=label, disable=not show_progress_bar) as bar:
            for first in range(0, len(texts), PART):
                part = list(texts[first : first + PART])
                path = (
                    None if self.folder is None else self.folder / f"{digest([encoder_name, route, *part])}.safetensors"
                )
                embeddings = _stored(path, len(part))
                if embeddings is None:
                    if time.perf_counter() > deadline:
                        break
                    embeddings = encode(part, batch_size=batch_size, **options).cpu()
                    if path is not None and embeddings.isfinite().all():
                        path.parent.mkdir(parents=True, exist_ok=True)
                        write_tensors(path, {"embeddings": embeddings}, _METADATA)
                encoded.append(embeddings)
                bar.update(len(part))
        return torch.cat(encoded) if encoded else torch.zeros(0, 0)

    def holds_parts(self) -> bool:
        """Whether anything was stored that need not be encoded again; it is not read."""
        return self.folder is not None and any(is_digest(path.stem) for path in self.folder.glob("*.safetensors"))

    def remove(self) -> None:
        """Remove all parts, of all encoders and half-written ones too, and the folder if it is empty then.

        Other files stay.
        """
        if self.folder is None or not self.folder.is_dir():
            return
        for path in self.folder.iterdir():
            if _is_own(path):
                path.unlink()
        if not any(self.folder.iterdir()):
            self.folder.rmdir()


def _name_of_encoder(folder: Path, model: SentenceTransformer, route: Route) -> str:
    """Return the name of an encoder in the folder; of a new one, the fingerprint is written there."""
    fingerprint = EncoderFingerprint.of(model, route=route)
    for path in sorted(folder.glob("*.json")):
        written = _written_encoder(path)
        if written is not None and not EncoderFingerprint.from_json(written).difference(fingerprint):
            return path.stem
    name = json_digest(fingerprint.to_json())
    folder.mkdir(parents=True, exist_ok=True)
    write_checked_json(folder / f"{name}.json", _ENCODER, fingerprint.to_json())
    return name


def _written_encoder(path: Path) -> dict[str, Any] | None:
    """Return what a file of a fingerprint holds; None if it is damaged, or another file."""
    try:
        return read_checked_json(path, _ENCODER, _REMEDY) or None
    except ValueError:
        return None


def _is_own(path: Path) -> bool:
    """Return whether a file is a part or a fingerprint that this package wrote, or a half-written one."""
    name, _, kind = path.name.lstrip(".").partition(".")  # a half-written file has a dot before its name
    if not is_digest(name) or not path.is_file():
        return False
    if kind.endswith(".partial"):
        return path.name.startswith(".")
    if kind == "json":
        return _written_encoder(path) is not None
    try:
        with safe_open(str(path), framework="pt") as file:
            return kind == "safetensors" and (file.metadata() or {}).get("format") == _METADATA["format"]
    except (SafetensorError, OSError):
        return False


def _stored(path: Path | None, count: int) -> Tensor | None:
    """Return the embeddings (count, D) in a part's file; None if there is none or it is damaged, which is logged."""
    if path is None or not path.is_file():
        return None
    expected = {"embeddings": Expected((count, "D"))}
    try:
        stored, _ = read_tensors(path, expected, what="a part", remedy=_REMEDY, metadata=_METADATA)
    except ValueError as error:
        logger.warning("%s", error)
        return None
    return stored["embeddings"]
