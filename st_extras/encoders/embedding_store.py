"""Embeddings that survive an interruption: encoded in parts, each in a file named by the texts and the encoder."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from tqdm.auto import tqdm

from st_extras.encoders.fingerprint import PROBES
from st_extras.encoders.prompts import encode_as
from st_extras.files import Expected, digest, is_digest, read_tensors, write_tensors

logger = logging.getLogger(__name__)
PART = 500
"""Texts that are encoded and stored at a time: what an interruption loses at most."""
_METADATA = {"format": "st-extras stored embeddings"}

Route = Literal["", "query", "document"]


class EmbeddingStore:
    """Encodes texts and keeps their embeddings in a folder, so that an interrupted run does not encode them again.

    Texts are encoded in parts of 500. A part's file is named by the digest of what its embeddings depend on: the
    encoder, the route, the prompts and the texts in their order. So nothing has to be compared when a run is resumed:
    another encoder, prompt or text has parts of other names. An encoder is recognized by its embeddings of two probe
    texts, to the last bit, so a machine that rounds otherwise encodes again.

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
        encoder_digest = ""
        if self.folder is not None and texts:
            settings = [route, model.prompts, model.default_prompt_name, str(model.max_seq_length)]
            probes = encode(list(PROBES), batch_size=len(PROBES), **options)
            encoder_digest = digest([json.dumps(settings), str(probes.tolist())])
        encoded: list[Tensor] = []
        with tqdm(total=len(texts), unit=" texts", desc=label, disable=not show_progress_bar) as bar:
            for first in range(0, len(texts), PART):
                part = list(texts[first : first + PART])
                path = None if self.folder is None else self.folder / f"{digest([encoder_digest, *part])}.safetensors"
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

    def remove(self) -> None:
        """Remove all parts, of all encoders and half-written ones too, and the folder if it is empty then.

        Other files stay.
        """
        if self.folder is None or not self.folder.is_dir():
            return
        for path in self.folder.iterdir():
            if is_digest(path.name.lstrip(".").split(".")[0]):  # a half-written file has a dot before its name
                path.unlink()
        if not any(self.folder.iterdir()):
            self.folder.rmdir()


def _stored(path: Path | None, count: int) -> Tensor | None:
    """Return the embeddings (count, D) in a part's file; None if there is none or it is damaged, which is logged."""
    if path is None or not path.is_file():
        return None
    expected = {"embeddings": Expected((count, "D"))}
    try:
        stored, _ = read_tensors(path, expected, what="a part", remedy="it is encoded again", metadata=_METADATA)
    except ValueError as error:
        logger.warning("%s", error)
        return None
    return stored["embeddings"]
