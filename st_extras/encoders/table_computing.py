"""Computing an embedding table: keys and embeddings of sentences, all at once or in chunks that can be resumed."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device
from torch import Tensor
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

from st_extras.checks import shown
from st_extras.encoders.frozen import FrozenEncoder
from st_extras.encoders.recovered_texts import token_rows
from st_extras.encoders.table_folder import TableFolder, begin, finish, hash_keys, read_chunks, write_chunk

CHUNK = 16_384
"""Sentences that are read, embedded and written together."""


def check_guide_options(encode_options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options of the guide's ``encode`` as a dictionary; None is none.

    Raises:
        ValueError: if they are not a dictionary, or hold another option than device, pool and chunk_size.
    """
    if not isinstance(encode_options, Mapping | None) or set(encode_options or ()) - {"device", "pool", "chunk_size"}:
        raise ValueError(
            "encode_options must be a dictionary of device, pool and chunk_size or None, got "
            f"{shown(encode_options)}: a prompt of the guide's own is its default prompt."
        )
    return dict(encode_options or {})


class SentenceEmbedder:
    """Gives the keys and the guide's embeddings of sentences, as a loss would get them in training.

    Of a text that the trained model's ``max_seq_length`` cuts, a guide of the same vocabulary sees what is left.

    Args:
        model: the model to be trained.
        guide: the guide.
        prompt: the prompt of the training.
        batch_size: sentences per call.
        options: further arguments of the guide's ``encode``.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        guide: SentenceTransformer,
        prompt: str | None,
        batch_size: int,
        options: Mapping[str, Any],
    ) -> None:
        self.model, self.guide, self.prompt, self.batch_size = model, guide, prompt, batch_size
        self._options = options
        self._frozen: FrozenEncoder | None = None
        if isinstance(guide.tokenizer, PreTrainedTokenizerBase):
            frozen = FrozenEncoder(copy.copy(guide), model)  # a copy of the shell: the guide may be the model itself
            self._frozen = frozen if frozen.same_vocabulary else None

    def keys(self, texts: list[str]) -> list[list[int]]:
        """Return the token ids of each text, as the trained model's tokenizer gives them."""
        starts = range(0, len(texts), self.batch_size)
        batches = (texts[start : start + self.batch_size] for start in starts)
        return [key for batch in batches for key in token_rows(self.model.preprocess(batch, prompt=self.prompt))]

    def embed(self, texts: list[str], keys: list[list[int]], *, show_progress_bar: bool = False) -> Tensor:
        """Return the guide's embeddings, (N, D), on the guide's device."""
        embeddings: Tensor = self.guide.encode(
            texts,
            batch_size=self.batch_size,
            show_progress_bar=show_progress_bar,
            convert_to_tensor=True,
            **self._options,
        ).clone()  # of a tensor of inference mode, which cannot be changed
        if self._frozen is not None:
            limit = self.model.max_seq_length or inf
            cut = [row for row, key in enumerate(keys) if len(key) >= limit]
            for start in range(0, len(cut), self.batch_size):
                rows = cut[start : start + self.batch_size]
                features = self.model.preprocess([texts[row] for row in rows], prompt=self.prompt)
                embeddings[rows] = self._frozen(batch_to_device(features, self.guide.device))
        return embeddings


def compute_folder(
    embedder: SentenceEmbedder,
    sentences: Iterable[str],
    path: Path,
    settings: dict[str, Any],
    *,
    show_progress_bar: bool,
) -> TableFolder:
    """Write the table of a stream of sentences to a folder, chunk after chunk; go on where an earlier call stopped.

    Memory holds one chunk, and 16 bytes of each sentence by which repeated ones are found.

    Raises:
        ValueError: if the folder was begun with other settings, or with sentences that these do not begin with; if
            there are no sentences.
    """
    begin(path, settings)
    stream = iter(sentences)
    seen, digest, number, dimension = _Seen(), "", 0, 0
    with tqdm(unit=" sentences", desc="Embedding", disable=not show_progress_bar) as bar:
        for keys, dimension, read, stored in read_chunks(path):  # noqa: B007
            chunk = list(islice(stream, read))
            digest = _chain(digest, chunk)
            if digest != stored:
                raise ValueError(
                    f"sentences must begin with those that {str(path)!r} was begun with, got others in chunk {number}: "
                    "give the same sentences in the same order, or a new folder."
                )
            seen.add(keys)
            number += 1
            bar.update(read)
        for chunk in _chunks(stream):
            digest = _chain(digest, chunk)
            texts = list(dict.fromkeys(chunk))
            ids = embedder.keys(texts)
            hashes = hash_keys(ids)
            _, first = np.unique(hashes, return_index=True)
            new = np.sort(first[~seen.has(hashes[first])]).tolist()
            if new:
                vectors = embedder.embed([texts[row] for row in new], [ids[row] for row in new])
                rows = F.normalize(vectors.float(), dim=-1).cpu().numpy().astype(settings["dtype"])
                dimension = rows.shape[1]
            else:
                rows = np.empty((0, dimension), dtype=settings["dtype"])
            if not np.isfinite(rows).all():
                raise ValueError("embeddings must be finite, got NaN or infinity from the complementary model.")
            write_chunk(path, number, hashes[new], rows, len(chunk), digest)
            seen.add(hashes[new])
            number += 1
            bar.update(len(chunk))
    if number == 0:
        raise ValueError("sentences must hold at least one sentence, got none.")
    return finish(path)


def _chunks(stream: Iterator[str]) -> Iterator[list[str]]:
    while chunk := list(islice(stream, CHUNK)):
        yield chunk


def _chain(digest: str, texts: list[str]) -> str:
    """Return a digest of all texts so far, from that of the chunks before and the texts of this one."""
    hashed = blake2b(digest.encode(), digest_size=16)
    for text in texts:
        data = text.encode()
        hashed.update(len(data).to_bytes(8, "little") + data)
    return hashed.hexdigest()


class _Seen:
    """The keys so far: a few sorted arrays, the later ones shorter, so that adding costs little."""

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def add(self, keys: np.ndarray) -> None:
        if len(keys):
            self._runs.append(np.sort(keys))
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            last = self._runs.pop()
            self._runs[-1] = np.sort(np.concatenate([self._runs[-1], last]))

    def has(self, keys: np.ndarray) -> np.ndarray:
        found = np.zeros(len(keys), dtype=bool)
        for run in self._runs:
            found |= run[np.searchsorted(run, keys).clip(max=len(run) - 1)] == keys
        return found
