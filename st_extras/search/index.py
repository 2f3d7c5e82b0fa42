"""What a hybrid search holds of its documents, and the folder that keeps it: the earlier index or the new one, whole.

Files of data are named by their content. One small file names those that belong to the index, and is replaced in one
step; files that it does not name are never touched.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from st_extras.encoders.embedding_store import EmbeddingStore
from st_extras.encoders.fingerprint import EncoderFingerprint
from st_extras.encoders.passages import Passages
from st_extras.files import (
    Expected,
    digest,
    file_digest,
    json_digest,
    one_writer,
    read_checked_json,
    read_tensors,
    write_checked_json,
    write_errors,
    write_json,
    write_tensors,
)
from st_extras.ranking import Floats
from st_extras.search.documents import Id
from st_extras.text.term_weights import BM25, BM25_SHARE, word_rules

WeightSource = Literal["given", "queries", "documents"]

ABOUT = "hybrid_search.json"
"""The file that a folder with a saved search has: it names the others."""
PARTS = "parts"
"""Folder of embeddings of a search that is not complete yet."""
_FORMAT = "st-extras hybrid search"
_REMEDY = "make the search again from its documents, in a new folder"
_NAME = re.compile(rf"(embeddings-\w+\.safetensors|ids-\w+\.json|bm25-\w+/({'|'.join(map(re.escape, BM25.FILES))}))")


@dataclass(frozen=True)
class SearchIndex:
    """N documents that have text, with P passages, as a search compares them. The texts themselves are not in it.

    Attributes:
        ids: of the documents.
        passages: which passages each document has.
        keys: (P, 16) what recognizes the text of each passage, with the prompt that it is encoded with.
        embeddings: (P, D), whose inner products are the similarities; 0 of what has no text.
        bm25: of the whole documents.
        encoder: what made the embeddings.
        similarity: "cosine" or "dot".
        passage_words: words of a passage; None: documents stay whole.
        digest: of ids and texts of the documents.
        word_rules: how BM25 makes words of a text: see :func:`~st_extras.text.term_weights.word_rules`.
        bm25_weight: of BM25 beside the encoder.
        weight_source: whether the weight was given, or found from queries or from sentences of the documents.
        share: how far the scores of BM25 spread after weighting, relative to the encoder's.
    """

    ids: list[Id]
    passages: Passages
    keys: NDArray[np.uint8]
    embeddings: Floats
    bm25: BM25
    encoder: EncoderFingerprint
    similarity: str
    passage_words: int | None
    digest: str
    word_rules: str
    bm25_weight: float = 0.0
    weight_source: WeightSource = "given"
    share: float = BM25_SHARE

    @cached_property
    def has_embedding(self) -> NDArray[np.bool_]:
        """(P,) whether the embedding is not 0."""
        return np.asarray(self.embeddings.any(axis=1))

    @cached_property
    def compares_words_as_now(self) -> bool:
        """Whether BM25 made the words of its documents as it makes those of a query."""
        return self.word_rules == word_rules(self.bm25.language)

    def with_bm25_of(self, texts: Sequence[str]) -> SearchIndex:
        """Return the index with another BM25 of its documents, whose N texts these are."""
        language = self.bm25.language
        return replace(self, bm25=BM25(texts, language), word_rules=word_rules(language))


def _read_about(folder: Path) -> dict[str, Any]:
    """Return what the folder's file says; nothing without one.

    Raises:
        ValueError: if it is damaged, or names files that are none of an index.
    """
    about = read_checked_json(folder / ABOUT, _FORMAT, _REMEDY)
    for name in (*about.get("files", ()), *about.get("unfinished", ())):
        if not _NAME.fullmatch(name):
            raise ValueError(f"{str(folder / ABOUT)!r} must name files of an index, got {name!r}: {_REMEDY}.")
    return about


def holds_index(folder: Path) -> bool:
    """Return whether a folder holds a whole index.

    Raises:
        ValueError: if its file is damaged, or another's.
    """
    return "files" in _read_about(folder)


def check_folder(folder: str | PathLike[str]) -> Path:
    """Return the folder if an index can be written to it.

    Raises:
        ValueError: if it is a file, or holds anything but an index, hidden files aside.
    """
    path = Path(folder)
    found = sorted(file.name for file in path.iterdir() if file.name[0] != ".") if path.is_dir() else []
    other = [name for name in found if name not in (ABOUT, PARTS)]
    if path.is_file() or (other and not _read_about(path)):
        which = f", which holds {other[0]!r}" if other else ", a file"
        raise ValueError(f"folder must be new, empty or a saved hybrid search, got {str(path)!r}{which}.")
    return path


def write_index(index: SearchIndex, folder: str | PathLike[str]) -> None:
    """Write an index; an interruption leaves the earlier one of the folder or this one.

    Raises:
        ValueError: if the folder holds anything but an index, or another process writes to it.
        OSError: if a file cannot be written.
    """
    path = check_folder(folder)
    path.mkdir(parents=True, exist_ok=True)
    with one_writer(path):
        earlier = _read_about(path)
        known = earlier.get("files", {})
        owned = {*known, *earlier.get("unfinished", ())}
        tensors = _tensors(index)
        embeddings = f"embeddings-{_content(tensors)}.safetensors"
        by_words = f"bm25-{digest([index.digest, str(index.bm25.language), index.word_rules])}"
        ids = None if index.ids == [*range(len(index.ids))] else f"ids-{json_digest(index.ids)}.json"
        new = {embeddings, *(f"{by_words}/{file}" for file in BM25.FILES), *([ids] if ids else ())}
        _check_own(path, known, new - owned)
        # from here on, what is written is known to be the index's, whenever this ends
        write_checked_json(path / ABOUT, _FORMAT, earlier | {"unfinished": sorted(owned | new)})
        _remove_partial(path, {ABOUT, *owned, *new})
        whole = {file for file in new & {*known} if (path / file).is_file()}  # their digests were checked
        if embeddings not in whole:
            write_tensors(path / embeddings, tensors)
        of_bm25 = {f"{by_words}/{file}" for file in BM25.FILES}
        if not of_bm25 <= whole:
            _write_bm25(index.bm25, path / by_words)
            whole -= of_bm25
        if ids and ids not in whole:
            write_json(path / ids, list(index.ids))
        about = {
            "documents": len(index.ids),
            "ids": ids,
            "embeddings": embeddings,
            "bm25": by_words,
            "language": index.bm25.language,
            "passages": index.passage_words,
            "digest": index.digest,
            "word_rules": index.word_rules,
            "bm25_weight": index.bm25_weight,
            "weight_source": index.weight_source,
            "share": index.share,
            "similarity": index.similarity,
            "encoder": index.encoder.to_json(),
            "files": {file: known[file] if file in whole else file_digest(path / file) for file in sorted(new)},
        }
        write_checked_json(path / ABOUT, _FORMAT, about | {"unfinished": sorted(owned - new)})
        _remove(path, owned - new)
        write_checked_json(path / ABOUT, _FORMAT, about)
        EmbeddingStore(path / PARTS).remove()


def read_index(folder: str | PathLike[str]) -> SearchIndex:
    """Read what :func:`write_index` wrote. Nothing in it can run code.

    Raises:
        ImportError: if the extra ``search`` is not installed.
        ValueError: if there is no index, or a file is missing or damaged; the message names it.
    """
    path = Path(folder)
    while True:
        about = _read_about(path)
        try:
            return _read(path, about)
        except (ValueError, OSError):
            if _read_about(path) == about:  # else another process has replaced the index meanwhile
                raise


def _read(path: Path, about: dict[str, Any]) -> SearchIndex:
    """Return the index that the folder's file describes."""
    if "files" not in about:
        raise ValueError(f"folder must be a saved hybrid search, got {str(path)!r} without a whole one: {_REMEDY}.")
    for name, expected in about["files"].items():
        if not (path / name).is_file() or file_digest(path / name) != expected:
            raise ValueError(f"{str(path / name)!r} must be the file that was saved, got another or none: {_REMEDY}.")
    documents = about["documents"]
    expected = {
        "embeddings": Expected(("P", "D"), torch.float32),
        "keys": Expected(("P", 16), torch.uint8),
        "first": Expected((documents + 1,), torch.int64),
        "spans": Expected(("P", 2), torch.int32),
    }
    stored, _ = read_tensors(path / about["embeddings"], expected, what="embeddings", remedy=_REMEDY)
    arrays = {name: tensor.numpy() for name, tensor in stored.items()}
    return SearchIndex(
        [*range(documents)] if about["ids"] is None else json.loads((path / about["ids"]).read_text(encoding="utf8")),
        Passages(arrays["first"], arrays["spans"]),
        arrays["keys"],
        arrays["embeddings"],
        BM25.load(path / about["bm25"], about["language"]),
        EncoderFingerprint.from_json(about["encoder"]),
        about["similarity"],
        about["passages"],
        about["digest"],
        about["word_rules"],
        about["bm25_weight"],
        about["weight_source"],
        about["share"],
    )


def _tensors(index: SearchIndex) -> dict[str, torch.Tensor]:
    arrays = {"embeddings": index.embeddings, "keys": index.keys}
    arrays |= {"first": index.passages.first, "spans": index.passages.spans}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _content(tensors: Mapping[str, torch.Tensor]) -> str:
    """Return what recognizes the values of tensors."""
    return digest(tensor.contiguous().view(-1).view(torch.uint8).numpy().data for tensor in tensors.values())


def _check_own(folder: Path, known: Mapping[str, str], others: Collection[str]) -> None:
    """Check that what is written or removed is the index's own.

    Args:
        folder: of the index.
        known: digests of the files of the earlier index.
        others: names of files that will be written, and are none of the index yet.

    Raises:
        ValueError: if a file was changed since it was saved, or there is one that the index did not write.
    """
    for name in sorted({*known, *others}):
        file = folder / name
        if file.exists() and (name in others or file_digest(file) != known[name]):
            must = "not exist, as the index will write it" if name in others else "be as it was saved"
            raise ValueError(f"{str(file)!r} must {must}, got another file: move it.")


def _write_bm25(bm25: BM25, folder: Path) -> None:
    with write_errors(folder):
        bm25.save(folder)
        for name in BM25.FILES:
            with (folder / name).open("rb+") as file:
                os.fsync(file.fileno())


def _remove(folder: Path, names: Collection[str]) -> None:
    """Remove files of an earlier index, and folders that are empty then."""
    for name in names:
        (folder / name).unlink(missing_ok=True)
    for name in {name.split("/")[0] for name in names if "/" in name}:
        if (folder / name).is_dir() and not any((folder / name).iterdir()):
            (folder / name).rmdir()


def _remove_partial(folder: Path, names: Collection[str]) -> None:
    """Remove what processes that were killed left of these files: see :func:`~st_extras.files.whole_file`."""
    for partial in folder.glob(".*.partial"):
        if partial.name[1:].rsplit(".", 2)[0] in names:
            partial.unlink()
