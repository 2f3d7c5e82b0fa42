"""Hybrid search: the score of an encoder plus a weight times that of BM25, with one weight for the collection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from st_extras.checks import check_count, check_instance, check_not_negative, check_strings
from st_extras.encoders.embedding_store import PART, EmbeddingStore
from st_extras.encoders.fingerprint import PROBES, EncoderFingerprint
from st_extras.encoders.prompts import encode_as
from st_extras.files import (
    Expected,
    digest,
    file_digest,
    naming_file,
    read_checked_json,
    read_tensors,
    write_checked_json,
    write_tensors,
)
from st_extras.functional import row_blocks
from st_extras.modules.pipeline import check_encoding, check_finite_embeddings
from st_extras.ranking import (
    Floats,
    Numbers,
    check_product,
    comparable,
    highest,
    hybrid_weight,
    queries_from_documents,
    sample_queries,
)
from st_extras.text.corpus import is_blank, iterate_sentences
from st_extras.text.term_weights import BM25, BM25_SHARE, check_share

Nearest = Callable[[Floats, int], tuple[Any, Any]]
"""Takes (B, D) rows and k; returns the (B, k) inner products with the nearest documents, and their numbers."""
Hits = list[dict[str, int | float]]
"""The documents found for a query, best first: ``corpus_id``, the document's number from 0, and ``score``."""

FEWEST_CANDIDATES = 100
"""The encoder and BM25 each suggest at least this many documents, which the sum ranks."""
_SORTED_TOGETHER = 16 * PART  # documents that are encoded in the order of their lengths, which saves padding

_FORMAT = "st-extras hybrid search"
ABOUT = "hybrid_search.json"
"""The file that a folder with a saved search has."""
_EMBEDDINGS, _BM25, _PARTS = "embeddings.safetensors", "bm25", "parts"
_REMEDY = "make the search again from its documents, and save it to a new folder"


class HybridSearch:
    """Searches documents by an encoder and BM25 together: ``score = dense + w * BM25``, with one weight w.

    The weight comes from unlabelled queries, see :func:`~st_extras.text.term_weights.bm25_weight`. Use it where words
    matter, such as names, codes and terms that the encoder does not know. Each side suggests its first 100 documents
    (more for a larger ``top_k``; of BM25 those that share a word with the query), and the sum ranks them. What has no
    text is not found, and what has the embedding 0 (a table of words gives it to unknown ones) by its words alone.
    Memory holds the embeddings and BM25's index.

    There is no way to add documents: each one changes the word statistics behind all scores of BM25. Make the search
    again.

    Args:
        model: encodes documents and queries by its routes and prompts for these, whatever these are called. It
            compares by cosine or dot product.
        documents: N texts: a list, or a data set with a text column.
        queries: unlabelled queries as users write them, from which the weight is found; some hundred are enough, and
            at most 1,000 are used. None: 200 sentences of the documents stand for them.
        bm25_weight: w, at least 0, if you know it. None: it is found.
        share: how far the scores of BM25 spread after weighting, relative to the encoder's, above 0, at most 10.
        batch_size: texts per forward pass.
        show_progress_bar: show how many documents are encoded.
        folder: where :meth:`save` will write. Embeddings are kept there while they are computed, so that the same call
            resumes after an interruption; :meth:`save` removes what it no longer needs. None: nothing is kept.

    Attributes:
        model: as given.
        embeddings: (N, D) float32 of the documents, of length 1 for cosines, 0 of one without text; for an index of
            yours, see :meth:`search`.
        bm25_weight: w.

    Raises:
        ImportError: if ``bm25s`` is not installed (``pip install "st-extras[search]"``).
        ValueError: if there is no document, the model compares by distances, an embedding is not finite, ``folder``
            holds anything else, or a setting is not allowed.

    Source: the weighted sum of scores is common in hybrid search; finding its weight without labels is this package's.

    Example:
        >>> from st_extras.samples.encoder import raw_encoder
        >>> from st_extras.search import HybridSearch
        >>> documents = ["A lost card is blocked at once.", "Error E42: the printer has no paper."]
        >>> search = HybridSearch(raw_encoder(), documents)
        >>> [hit["corpus_id"] for hit in search.search(["what is E42"])[0]]
        [1, 0]
    """

    def __init__(
        self,
        model: SentenceTransformer,
        documents: Any,
        *,
        queries: Any = None,
        bm25_weight: float | None = None,
        share: float = BM25_SHARE,
        batch_size: int = 64,
        show_progress_bar: bool = False,
        folder: str | PathLike[str] | None = None,
    ) -> None:
        _check_model(model)
        check_encoding(batch_size, show_progress_bar)
        share = check_share(share)
        if bm25_weight is not None:
            bm25_weight = check_not_negative("bm25_weight", bm25_weight)
            if queries is not None:
                raise ValueError("queries must be None with bm25_weight: they only serve to find it.")
        texts = list(iterate_sentences(documents, name="documents"))
        if all(map(is_blank, texts)):
            raise ValueError(f"documents must hold at least one text that is not blank, got {len(texts)} blank ones.")
        weight_queries = queries_from_documents(texts) if queries is None else sample_queries(queries)
        if not weight_queries:
            raise ValueError("queries must hold at least one text that is not blank, got none.")
        store = EmbeddingStore(None if folder is None else _check_folder(folder) / _PARTS)
        self.model = model
        self._batch_size = batch_size
        self._documents_digest = digest(texts)
        self._bm25 = BM25(texts)
        self.embeddings = _embed_documents(model, texts, store, batch_size, show_progress_bar)
        if bm25_weight is None:
            of_queries = self._embed_queries(weight_queries)
            bm25_weight = hybrid_weight(self._bm25, weight_queries, of_queries, self.embeddings, share)
        self.bm25_weight = bm25_weight

    def search(self, queries: Any, top_k: int = 10, *, nearest: Nearest | None = None) -> list[Hits]:
        """Return the best documents for each query, best first, as ``sentence_transformers.util.semantic_search`` does.

        Args:
            queries: strings, or one string. One without any text finds nothing.
            top_k: how many documents to return, at least 1; fewer if there are fewer.
            nearest: suggests the encoder's documents, such as ``index.search`` of a faiss index over ``embeddings`` by
                inner product: takes (B, D) embedded queries and k, returns (B, k) scores, which are not used, and the
                numbers of the documents; -1 stands for none. None: exact, by comparing with all embeddings.

        Returns:
            For each query a list of ``{"corpus_id": number from 0, "score": dense + w * BM25}``; of equal scores,
            the document that was given first comes first.

        Raises:
            ValueError: if a query is not a string, its embedding is not finite, ``top_k`` is not allowed, or
                ``nearest`` returns anything else.
        """
        texts = (queries,) if isinstance(queries, str) else check_strings("queries", queries)
        count = min(len(self.embeddings), max(FEWEST_CANDIDATES, check_count("top_k", top_k, 1)))
        hits: list[Hits] = [[] for _ in texts]
        asked = [number for number, text in enumerate(texts) if not is_blank(text)]
        if not asked:
            return hits
        embedded = self._embed_queries([texts[number] for number in asked])
        for rows in row_blocks(len(asked), len(self.embeddings)):
            bm25 = self._bm25.scores([texts[number] for number in asked[rows]])
            found = zip(
                asked[rows], embedded[rows], bm25, self._nearest(embedded[rows], count, nearest), highest(bm25, count),
                strict=True,
            )  # fmt: skip
            for number, query, by_words, near, first_by_words in found:
                shared = first_by_words[by_words[first_by_words] > 0]  # they have a word of the query
                candidates = np.union1d(near, shared)  # sorted, so the stable sort keeps the order of equal ones
                scores = self.embeddings[candidates] @ query + self.bm25_weight * by_words[candidates]
                best = np.argsort(-scores, kind="stable")[:top_k]
                hits[number] = [{"corpus_id": int(candidates[i]), "score": float(scores[i])} for i in best]
        return hits

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the search to a folder: embeddings (safetensors), the files of ``bm25s``, and what they were made of.

        The documents are not in it, nor is the model.

        Args:
            folder: a new or empty one, or an earlier one of this method, which is replaced; or the one that was given
                when the search was made.

        Raises:
            ValueError: if the folder holds anything else.
            OSError: if a file cannot be written.
        """
        path = _check_folder(folder)
        path.mkdir(parents=True, exist_ok=True)
        (path / ABOUT).unlink(missing_ok=True)  # without it, the folder is not complete
        write_tensors(path / _EMBEDDINGS, {"embeddings": torch.from_numpy(self.embeddings)})
        with naming_file(path / _BM25):
            self._bm25.save(path / _BM25)
        files = [_EMBEDDINGS, *(f"{_BM25}/{file.name}" for file in sorted((path / _BM25).iterdir()))]
        about = {
            "documents": len(self.embeddings),
            "digest": self._documents_digest,
            "bm25_weight": self.bm25_weight,
            "similarity": self.model.similarity_fn_name,
            "encoder": _fingerprint(self.model).written(),
            "files": {name: file_digest(path / name) for name in files},
        }
        write_checked_json(path / ABOUT, _FORMAT, about)
        EmbeddingStore(path / _PARTS).remove()

    @classmethod
    def load(
        cls,
        folder: str | PathLike[str],
        model: SentenceTransformer,
        *,
        documents: Any = None,
        batch_size: int = 64,
    ) -> HybridSearch:
        """Open a folder that :meth:`save` wrote. Nothing in it can run code.

        Args:
            folder: the folder.
            model: the encoder that it was made with, recognized by how it encodes documents: it may have another route
                or prompt for queries.
            documents: the same documents, to be sure that ``corpus_id`` is their numbers. None: not compared.
            batch_size: queries per forward pass.

        Raises:
            ImportError: if ``bm25s`` is not installed.
            ValueError: if there is no such folder, it is not complete or damaged (the message names the file), another
                encoder made it, or it was made of other documents.
        """
        _check_model(model)
        check_encoding(batch_size)
        path = Path(folder)
        about = read_checked_json(path / ABOUT, _FORMAT, _REMEDY)
        if not about:
            raise ValueError(f"folder must be a saved hybrid search, got {str(path)!r} without {ABOUT}: {_REMEDY}.")
        for name, expected in about["files"].items():
            if not (path / name).is_file() or file_digest(path / name) != expected:
                raise ValueError(
                    f"{str(path / name)!r} must be the file that was saved, got another or none: {_REMEDY}."
                )
        if model.similarity_fn_name != about["similarity"]:
            raise ValueError(
                f"model.similarity_fn_name must be {about['similarity']!r} as {str(path)!r} was made with, got "
                f"{model.similarity_fn_name!r}."
            )
        if other := EncoderFingerprint.read(about["encoder"]).difference(_fingerprint(model)):
            raise ValueError(f"model must be the encoder that made {str(path)!r}, got another ({other}).")
        if documents is not None and digest(iterate_sentences(documents, name="documents")) != about["digest"]:
            raise ValueError(f"documents must be those that {str(path)!r} was made of, got others: take a new folder.")
        expected_rows = {"embeddings": Expected((about["documents"], "D"), torch.float32)}
        stored, _ = read_tensors(path / _EMBEDDINGS, expected_rows, what="embeddings", remedy=_REMEDY)
        search = cls.__new__(cls)  # without __init__, which encodes: its attributes are set here
        search.model, search._batch_size, search._documents_digest = model, batch_size, about["digest"]
        search._bm25, search.embeddings = BM25.load(path / _BM25), stored["embeddings"].numpy()
        search.bm25_weight = about["bm25_weight"]
        return search

    def _embed_queries(self, queries: Sequence[str]) -> Floats:
        """Return (Q, D) embeddings of Q >= 1 queries, as :attr:`embeddings` has those of the documents."""
        embeddings = encode_as(
            self.model,
            "query",
            queries,
            batch_size=self._batch_size,
            convert_to_tensor=True,
            show_progress_bar=False,
        )
        check_finite_embeddings(embeddings, queries)
        return comparable(self.model, embeddings)

    def _nearest(self, embedded: Floats, count: int, nearest: Nearest | None) -> list[np.ndarray]:
        """Return the numbers of the encoder's first ``count`` documents for each of (B, D) queries; none for zero."""
        has_embedding = np.asarray(self.embeddings.any(axis=1))
        if nearest is None:
            numbers = list(highest(np.where(has_embedding, embedded @ self.embeddings.T, -np.inf), count))
        else:
            numbers = [row[row >= 0] for row in _of_index(nearest, embedded, count, len(self.embeddings))]
        return [
            row[has_embedding[row]] if query.any() else row[:0] for row, query in zip(numbers, embedded, strict=True)
        ]


def _of_index(nearest: Nearest, queries: Floats, count: int, total: int) -> Numbers:
    """Return the numbers (B, count) of the documents that an index finds for (B, D) queries; -1: none.

    Raises:
        ValueError: if they have another shape, or are not the numbers of the ``total`` documents.
    """
    numbers = np.asarray(nearest(queries, count)[1])
    shape = (len(queries), count)
    if numbers.shape != shape or not np.issubdtype(numbers.dtype, np.integer):
        raise ValueError(f"nearest must return scores and whole numbers of the shape {shape}, got {numbers!r:.80}.")
    if numbers.min() < -1 or numbers.max() >= total:
        found = f"of the {total} documents or -1, got {numbers.min()} to {numbers.max()}"
        raise ValueError(f"nearest must return numbers {found}: fill the index with these embeddings, in their order.")
    return numbers


def _check_model(model: Any) -> None:
    check_instance("model", model, SentenceTransformer)
    check_product(model)


def _check_folder(folder: str | PathLike[str]) -> Path:
    """Return the folder if a search can be saved to it.

    Raises:
        ValueError: if it holds anything but one.
    """
    path = Path(folder)
    names = {file.name for file in path.iterdir() if file.suffix != ".partial"} if path.is_dir() else set()
    if path.is_file() or names - {ABOUT, _EMBEDDINGS, _BM25, _PARTS}:
        raise ValueError(f"folder must be new, empty or a saved hybrid search, got {str(path)!r}.")
    return path


def _embed_documents(
    model: SentenceTransformer, texts: Sequence[str], store: EmbeddingStore, batch_size: int, show_progress_bar: bool
) -> Floats:
    """Return (N, D) embeddings by the documents' prompt and route, of length 1 for cosines; 0 of a blank document."""
    not_blank = [number for number, text in enumerate(texts) if not is_blank(text)]
    embeddings = np.empty((0, 0), dtype=np.float32)
    for first in range(0, len(not_blank), _SORTED_TOGETHER):
        numbers = not_blank[first : first + _SORTED_TOGETHER]
        longest_first = sorted(numbers, key=lambda number: -len(texts[number]))
        encoded = store.encode(
            model,
            [texts[number] for number in longest_first],
            route="document",
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            label=f"Encoding documents {first + 1:,} to {first + len(numbers):,} of {len(not_blank):,}",
        )
        if first == 0:
            embeddings = np.zeros((len(texts), encoded.shape[1]), dtype=np.float32)
        embeddings[longest_first] = comparable(model, encoded)
    check_finite_embeddings(torch.from_numpy(embeddings), texts)
    return embeddings


def _fingerprint(model: SentenceTransformer) -> EncoderFingerprint:
    """Return which encoder the model encodes documents by, its prompt included; with cosine, lengths do not count."""
    probes = encode_as(model, "document", PROBES, convert_to_tensor=True, show_progress_bar=False)
    no_prompt = ""  # beside that of the documents, which ``probes`` already have
    return EncoderFingerprint(no_prompt, str(model.max_seq_length), torch.from_numpy(comparable(model, probes)))
