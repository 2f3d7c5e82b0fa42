"""Hybrid search: the score of an encoder plus a weight times that of BM25, with one weight for the collection."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from st_extras.checks import (
    check_batch_size,
    check_bool,
    check_count,
    check_finite_embeddings,
    check_instance,
    check_not_negative,
    check_rows,
    check_strings,
)
from st_extras.encoders.embedding_store import PART, EmbeddingStore
from st_extras.encoders.fingerprint import EncoderFingerprint, embedding_difference
from st_extras.encoders.passages import PASSAGE_WORDS, check_passages, cut_documents, warn_of_long_ones
from st_extras.encoders.prompts import encode_as, prompt_for
from st_extras.files import digest, one_writer
from st_extras.functional import row_blocks
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
from st_extras.search.documents import Documents, Id, read_identified
from st_extras.search.index import PARTS, SearchIndex, WeightSource, check_folder, read_index, write_index
from st_extras.text.corpus import is_blank
from st_extras.text.term_weights import BM25, BM25_SHARE, check_language, check_share, require_bm25s, word_rules

Nearest = Callable[[Floats, int], tuple[Any, Any]]
"""Takes (B, D) rows and k; returns the (B, k) inner products with the nearest passages, and their numbers."""

FEWEST_CANDIDATES = 100
"""The encoder and BM25 each suggest at least this many documents, which the sum ranks."""
_SORTED_TOGETHER = 16 * PART  # texts that are encoded in the order of their lengths, which saves padding
_COMPARED = 4  # texts whose kept embeddings are compared with new ones when a search is updated
_COPIED = 2**16  # embeddings of an earlier index that are copied at a time


class Hit(TypedDict):
    """A document that a query found.

    Attributes:
        corpus_id: its id: of a list, its place from 0.
        score: dense + w * BM25.
        passage: where its best passage begins and ends in its text, in characters: ``text[start:end]``.
    """

    corpus_id: Id
    score: float
    passage: tuple[int, int]


@dataclass(frozen=True)
class UpdateCounts:
    """What :meth:`HybridSearch.update` did.

    Attributes:
        encoded: documents that are new or changed.
        kept: documents whose embeddings were there.
        dropped: earlier documents that are gone or changed.
    """

    encoded: int
    kept: int
    dropped: int

    def __str__(self) -> str:
        return (
            f"{self.encoded:,} documents encoded (new or changed), {self.kept:,} kept, {self.dropped:,} earlier ones "
            "dropped (gone or changed)."
        )


class HybridSearch:
    """Searches documents by an encoder and BM25 together: ``score = dense + w * BM25``, with one weight w.

    The weight comes from unlabelled queries, see :func:`~st_extras.text.term_weights.bm25_weight`. Use it where words
    matter, such as names, codes and terms that the encoder does not know. Each side suggests its first 100 documents
    (more for a larger ``top_k``; of BM25 those that share a word with the query), and the sum ranks them. What has no
    text is not found; what has the embedding 0, as a table of words gives to unknown ones, is found by BM25 alone.

    A document that the encoder would not read whole is cut into passages, and the best one counts for it; BM25 reads
    whole documents. Memory holds BM25's index and an embedding for each passage: 4 bytes times its dimensions, so
    1.5 GB for a million of 384.

    Args:
        model: encodes documents and queries by its routes and prompts for these, whatever these are called. It
            compares by cosine or dot product.
        documents: N texts: a dict by id, a data set with a text column and one of ids (such as ``_id`` or ``id``), or
            a list, whose ids are the places from 0. Those without text are left out, which shifts no place.
        queries: unlabelled queries as users write them, from which the weight is found; some hundred are enough, and
            at most 1,000 are used. None: 200 sentences of the documents stand for them.
        bm25_weight: w, at least 0, if you know it. None: it is found.
        share: how far the scores of BM25 spread after weighting, relative to the encoder's, above 0, at most 10.
        language: of BM25's stems and stop words, see :class:`~st_extras.text.term_weights.BM25`. None: words are
            compared as they are.
        passages: words of a passage (Chinese: characters), 4 to 10,000; neighbours share a quarter. None: the encoder
            reads the beginning of a long document, and a warning says how many there are.
        embeddings: (N, D) of the documents, if you have them, as ``model.encode_document`` gives them: no document is
            encoded or cut. None: they are encoded.
        batch_size: texts per forward pass.
        show_progress_bar: show how many texts are encoded.
        folder: where :meth:`save` will write. Embeddings are kept there while they are computed, so that the same call
            resumes after an interruption; :meth:`save` removes what it no longer needs. None: nothing is kept.

    Attributes:
        model: as given.

    Raises:
        ImportError: if the extra ``search`` is not installed (``pip install "st-extras[search]"``).
        ValueError: if there is no document, an id stands twice, the model compares by distances, an embedding is not
            finite, ``folder`` holds anything else, or a setting is not allowed.

    Source: the weighted sum of scores is common in hybrid search; finding its weight without labels is this package's.

    Example:
        >>> from st_extras.samples.encoder import raw_encoder
        >>> from st_extras.search import HybridSearch
        >>> documents = {"lost": "A lost card is blocked at once.", "e42": "Error E42: the printer has no paper."}
        >>> search = HybridSearch(raw_encoder(), documents)
        >>> [hit["corpus_id"] for hit in search.search(["what is E42"])[0]]
        ['e42', 'lost']
        >>> search.update({**documents, "loan": "A loan is paid back over years."}).encoded
        1
    """

    def __init__(
        self,
        model: SentenceTransformer,
        documents: Any,
        *,
        queries: Any = None,
        bm25_weight: float | None = None,
        share: float = BM25_SHARE,
        language: str | None = None,
        passages: int | None = PASSAGE_WORDS,
        embeddings: Any = None,
        batch_size: int = 64,
        show_progress_bar: bool = False,
        folder: str | PathLike[str] | None = None,
    ) -> None:
        check_instance("model", model, SentenceTransformer)
        check_product(model)
        self.model = model
        self._batch_size = check_batch_size(batch_size)
        self._changes = threading.RLock()  # one thread at a time makes another index; others search meanwhile
        self._folder = None if folder is None else check_folder(folder)
        if isinstance(documents, SearchIndex):  # that load has read
            self._check_encoder(documents)
            self._index = documents
            return
        share = check_share(share)
        words = check_passages(passages)
        words = words if embeddings is None else None
        language = check_language(language)
        show_progress_bar = check_bool("show_progress_bar", show_progress_bar)
        weight, unlabelled, source = _given_weight(queries, bm25_weight)
        read = read_identified(documents)
        index = self._build_index(read, words, language, embeddings, show_progress_bar)
        if source == "documents":
            unlabelled = queries_from_documents(read.texts)
        self._index = self._weighted(replace(index, share=share), weight, unlabelled, source)

    def __repr__(self) -> str:
        passages = len(self.embeddings)
        return f"HybridSearch(documents={len(self.ids)}, passages={passages}, bm25_weight={self.bm25_weight:.4g})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_changes"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _changes=threading.RLock())  # a lock belongs to its process

    @property
    def ids(self) -> Sequence[Id]:
        """The ids of the N documents."""
        return self._index.ids

    @property
    def embeddings(self) -> Floats:
        """(P, D) of the passages, of length 1 for cosines, 0 of one without text; for an index of yours: see search."""
        return self._index.embeddings

    @property
    def bm25_weight(self) -> float:
        """w: the weight of BM25."""
        return self._index.bm25_weight

    @property
    def weight_source(self) -> str:
        """Where the weight is from: "given", or found from "queries" or from sentences of the "documents"."""
        return self._index.weight_source

    @property
    def language(self) -> str | None:
        """Of BM25's stems and stop words; None: words are compared as they are."""
        return self._index.bm25.language

    @property
    def passages(self) -> int | None:
        """Words of a passage; None: documents are whole."""
        return self._index.passage_words

    def search(self, queries: Any, top_k: int = 10, *, nearest: Nearest | None = None) -> list[list[Hit]]:
        """Return the best documents for each query, best first, as ``sentence_transformers.util.semantic_search`` does.

        Args:
            queries: strings, or one string. One without any text finds nothing.
            top_k: how many documents to return, at least 1; fewer if there are fewer.
            nearest: suggests the encoder's passages, such as ``index.search`` of a faiss index over ``embeddings`` by
                inner product: takes (B, D) embedded queries and k, returns (B, k) scores, which are not used, and the
                numbers of the passages; -1 stands for none. It is called again for more passages where few documents
                have all of them. None: exact, by comparing with all embeddings.

        Returns:
            For each query a list of ``{"corpus_id": id, "score": dense + w * BM25, "passage": (start, end)}``: where
            the passage nearest to the query stands in the document, in characters. Of equal scores, the document that
            was given first comes first.

        Raises:
            ValueError: if a query is not a string or no valid text, its embedding is not finite, ``top_k`` is not
                allowed, ``nearest`` returns anything else, or words are compared in another way than when the search
                was saved.
        """
        texts = (queries,) if isinstance(queries, str) else check_strings("queries", queries)
        top_k = check_count("top_k", top_k, 1)
        index = self._index  # one for the whole call: another thread may update
        count = min(len(index.ids), max(FEWEST_CANDIDATES, top_k))
        hits: list[list[Hit]] = [[] for _ in texts]
        asked = [number for number, text in enumerate(texts) if not is_blank(text)]
        if not asked:
            return hits
        self._check_similarity(index)
        if not index.compares_words_as_now:
            raise ValueError(
                "the search must be updated with its documents, as words are compared in another way than when it was "
                "saved: update(documents) makes BM25 anew and encodes nothing again."
            )
        embedded = self._embed_queries([texts[number] for number in asked])
        for rows in row_blocks(len(asked), len(index.embeddings)):
            bm25 = index.bm25.scores([texts[number] for number in asked[rows]])
            if nearest is None:
                nearby = _nearest_documents(index, embedded[rows], count)
            else:
                nearby = _suggested_documents(index, embedded[rows], count, nearest)
            found = zip(asked[rows], embedded[rows], bm25, nearby, highest(bm25, count), strict=True)
            for number, query, by_words, near, first_by_words in found:
                shared = first_by_words[by_words[first_by_words] > 0]  # they have a word of the query
                candidates = np.union1d(near, shared)  # sorted, so the stable sort keeps the order of equal ones
                dense, best_passages = _best_passages(index, candidates, query)
                scores = dense + index.bm25_weight * by_words[candidates]
                for i in np.argsort(-scores, kind="stable")[:top_k].tolist():
                    start, end = index.passages.spans[best_passages[i]].tolist()
                    hit = Hit(corpus_id=index.ids[candidates[i]], score=float(scores[i]), passage=(start, end))
                    hits[number].append(hit)
        return hits

    def update(
        self,
        documents: Any,
        *,
        queries: Any = None,
        bm25_weight: float | None = None,
        embeddings: Any = None,
        show_progress_bar: bool = False,
        folder: str | PathLike[str] | None = None,
    ) -> UpdateCounts:
        """Search these documents from now on; those whose texts were there before are not encoded again.

        What it finds is what a new search of the documents with the same weight would find. BM25 is made anew. Another
        thread may search meanwhile: it finds the earlier documents until all is done. :meth:`save` writes the change.

        Args:
            documents: all of them, as for the class: those to keep, too. Texts are recognized, whatever their ids.
            queries: to find the weight anew from. None: it stays.
            bm25_weight: another weight. None: it stays.
            embeddings: (N, D) of all documents, if you have them; none is cut then. None: new and changed texts are
                encoded.
            show_progress_bar: show how many texts are encoded.
            folder: where :meth:`save` will write, as for the class. None: the one that the class was given, if any.

        Returns:
            How many documents were encoded, kept and dropped.

        Raises:
            ValueError: as for the class; or if the model no longer is the encoder that made the search. The earlier
                documents then stay.
        """
        show_progress_bar = check_bool("show_progress_bar", show_progress_bar)
        weight, unlabelled, source = _given_weight(queries, bm25_weight)
        read = read_identified(documents)
        checked = None if folder is None else check_folder(folder)
        with self._changes:
            self._folder = checked or self._folder
            earlier = self._index
            self._check_encoder(earlier)
            if source == "documents":  # neither is given
                weight, source = earlier.bm25_weight, earlier.weight_source
            language = earlier.bm25.language
            index = self._build_index(read, earlier.passage_words, language, embeddings, show_progress_bar, earlier)
            counts = _counts(index, earlier)
            self._index = self._weighted(replace(index, share=earlier.share), weight, unlabelled, source)
        return counts

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the search to a folder: embeddings (safetensors), the files of BM25, ids, and their description.

        The documents are not in it, nor is the model. An interruption leaves the earlier search or this one.

        Args:
            folder: a new or empty one, or an earlier one of this method, which is replaced; or the one that was given
                when the search was made. Files of others in it stay as they are.

        Raises:
            ValueError: if a new folder holds anything else, a file of the earlier search was changed since, or another
                process writes to it.
            OSError: if a file cannot be written.
        """
        with self._changes:
            write_index(self._index, folder)
            if self._folder is not None:
                EmbeddingStore(self._folder / PARTS).remove()

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
            documents: the same documents, to be sure that they are; hits then carry their ids, and BM25 is made anew
                if words are compared in another way by now. None: not compared.
            batch_size: texts per forward pass.

        Raises:
            ImportError: if the extra ``search`` is not installed.
            ValueError: if there is no such folder, it is not complete or damaged (the message names the file), another
                encoder made it, or it was made of other documents.
        """
        index = read_index(folder)
        if documents is not None:
            given = read_identified(documents)
            if given.digest() != index.digest:
                raise ValueError(
                    f"documents must be those that {str(Path(folder))!r} was made of, got others: open it without "
                    "them, and update it."
                )
            index = replace(index, ids=given.ids)  # numbers where they are numbers
            if not index.compares_words_as_now:
                index = index.with_bm25_of(given.texts)
        return cls(model, index, batch_size=batch_size)

    def holds(self, documents: Any) -> bool:
        """Return whether a new search of these documents would be this one: the same texts and ids in this order.

        Raises:
            ValueError: if they are no documents.
        """
        return read_identified(documents).digest() == self._index.digest and self._index.compares_words_as_now

    def _check_encoder(self, index: SearchIndex) -> None:
        self._check_similarity(index)
        if other := index.encoder.difference(self._fingerprint()):
            raise ValueError(f"model must be the encoder that made the search, got another ({other}).")

    def _check_similarity(self, index: SearchIndex) -> None:
        if self.model.similarity_fn_name != index.similarity:
            raise ValueError(
                f"model.similarity_fn_name must be {index.similarity!r} as the search was made with, got "
                f"{self.model.similarity_fn_name!r}."
            )

    def _fingerprint(self) -> EncoderFingerprint:
        """Return which encoder the model encodes documents by; with cosine, lengths do not count."""
        found = EncoderFingerprint.of(self.model, route="document")
        return replace(found, probes=torch.from_numpy(comparable(self.model, found.probes)))

    def _build_index(
        self,
        documents: Documents,
        words: int | None,
        language: str | None,
        embeddings: Any,
        show_progress_bar: bool,
        earlier: SearchIndex | None = None,
    ) -> SearchIndex:
        """Return an index of documents without a weight; texts of the earlier one keep their embeddings."""
        require_bm25s()  # before anything is encoded
        texts = documents.texts
        given = None if embeddings is None else check_rows("embeddings", embeddings)
        if given is not None and len(given) != documents.total:
            raise ValueError(f"embeddings must have a row for each of {documents.total} documents, got {len(given)}.")
        encoder = self._fingerprint()
        if given is not None and given.shape[1] != encoder.probes.shape[1]:
            raise ValueError(
                f"embeddings must have the model's {encoder.probes.shape[1]} dimensions, got {given.shape[1]}."
            )
        cut = cut_documents(self.model, texts, words if given is None else None)
        if words is None and given is None:
            warn_of_long_ones(self.model, texts)
        pieces = cut.texts(texts)
        keys = _keys(self.model, pieces)
        if given is None:
            rows = _rows_of(keys, earlier)
            if earlier is not None:
                self._check_kept(earlier, pieces, rows)
                encoder = earlier.encoder  # not the new one: small changes would add up
            with nullcontext() if self._folder is None else one_writer(self._folder):
                vectors = self._encoded(pieces, rows, earlier, show_progress_bar)
        else:
            vectors = comparable(self.model, given[documents.places])
        similarity = self.model.similarity_fn_name
        return SearchIndex(
            documents.ids,
            cut,
            keys,
            vectors,
            BM25(texts, language),
            encoder,
            similarity,
            words,
            documents.digest(),
            word_rules(language),
        )

    def _check_kept(self, earlier: SearchIndex, pieces: Sequence[str], rows: Numbers) -> None:
        """Check that the encoder gives some of the texts that keep their embeddings, long ones first, these again."""
        kept = sorted(np.flatnonzero(rows >= 0).tolist(), key=lambda number: -len(pieces[number]))[:_COMPARED]
        if not kept:
            return
        texts = [pieces[number] for number in kept]
        encoded = encode_as(self.model, "document", texts, convert_to_tensor=True, show_progress_bar=False)
        stored = torch.from_numpy(earlier.embeddings[rows[kept]])
        again = torch.from_numpy(comparable(self.model, encoded))
        if other := embedding_difference(
            stored, again, earlier.encoder.dtype, str(encoded.dtype).removeprefix("torch.")
        ):
            raise ValueError(f"model must be the encoder that made the search, got another ({other}): make it again.")

    def _encoded(
        self, pieces: Sequence[str], rows: np.ndarray, earlier: SearchIndex | None, show_progress_bar: bool
    ) -> Floats:
        """Return (P, D) embeddings of texts, of length 1 for cosines: those of an earlier index, and new ones.

        Args:
            pieces: P texts.
            rows: (P,) of each its row in the earlier index; -1 of a new text.
            earlier: the earlier index; None without one.
            show_progress_bar: show how many texts are encoded.
        """
        places: dict[str, list[int]] = {}  # of each new text, which is encoded once
        for number in np.flatnonzero(rows < 0).tolist():
            places.setdefault(pieces[number], []).append(number)
        new = list(places)
        store = EmbeddingStore(None if self._folder is None else self._folder / PARTS)
        vectors = np.empty((0, 0), dtype=np.float32) if earlier is None else _copied(earlier.embeddings, rows)
        for first in range(0, len(new), _SORTED_TOGETHER):
            group = sorted(new[first : first + _SORTED_TOGETHER], key=lambda text: -len(text))
            encoded = store.encode(
                self.model,
                group,
                route="document",
                batch_size=self._batch_size,
                show_progress_bar=show_progress_bar,
                label=f"Encoding passages {first + 1:,} to {first + len(group):,} of {len(new):,}",
            )
            check_finite_embeddings(encoded, group)
            if not vectors.size:
                vectors = np.zeros((len(pieces), encoded.shape[1]), dtype=np.float32)
            numbers = [(number, row) for row, text in enumerate(group) for number in places[text]]
            targets, sources = zip(*numbers, strict=True)
            vectors[list(targets)] = comparable(self.model, encoded)[list(sources)]
        return vectors

    def _embed_queries(self, queries: Sequence[str]) -> Floats:
        """Return (Q, D) embeddings of Q >= 1 queries, as :attr:`embeddings` has those of the documents."""
        options: dict[str, Any] = {"batch_size": self._batch_size, "convert_to_tensor": True}
        embeddings = encode_as(self.model, "query", queries, show_progress_bar=False, **options)
        check_finite_embeddings(embeddings, queries)
        return comparable(self.model, embeddings)

    def _weighted(
        self, index: SearchIndex, bm25_weight: float | None, queries: Sequence[str], source: WeightSource
    ) -> SearchIndex:
        """Return the index with a weight of BM25; None: the one that is found from the queries."""
        if bm25_weight is None:
            embedded = self._embed_queries(queries)
            bm25_weight = hybrid_weight(index.bm25, queries, embedded, index.embeddings, index.share, index.passages)
        return replace(index, bm25_weight=bm25_weight, weight_source=source)


def _given_weight(queries: Any, bm25_weight: float | None) -> tuple[float | None, list[str], WeightSource]:
    """Return a weight if it was given, at most 1,000 queries to find it from, and which of both was given, if any."""
    if bm25_weight is not None:
        if queries is not None:
            raise ValueError("queries must be None with bm25_weight: they only serve to find it.")
        return check_not_negative("bm25_weight", bm25_weight), [], "given"
    if queries is None:
        return None, [], "documents"
    sampled = sample_queries(queries)
    if not sampled:
        raise ValueError("queries must hold at least one text that is not blank, got none.")
    return None, sampled, "queries"


def _keys(model: SentenceTransformer, pieces: Sequence[str]) -> NDArray[np.uint8]:
    """Return what recognizes each of P texts with the prompt for documents: (P, 16)."""
    prompt = prompt_for(model, "document")
    keys = bytearray(b"".join(bytes.fromhex(digest((prompt, text))) for text in pieces))
    return np.frombuffer(keys, dtype=np.uint8).reshape(len(pieces), -1)


def _rows_of(keys: NDArray[np.uint8], earlier: SearchIndex | None) -> Numbers:
    """Return the row that each of P texts has in an earlier index: (P,); -1 for a new one."""
    if earlier is None:
        return np.full(len(keys), -1)
    rows = {key.tobytes(): row for row, key in enumerate(earlier.keys)}
    return np.fromiter((rows.get(key.tobytes(), -1) for key in keys), np.int64, len(keys))


def _copied(embeddings: Floats, rows: Numbers) -> Floats:
    """Return (P, D): these rows of earlier embeddings, 0 for -1; a block at a time, which bounds the memory."""
    copied = np.zeros((len(rows), embeddings.shape[1]), dtype=np.float32)
    for first in range(0, len(rows), _COPIED):
        block = rows[first : first + _COPIED]
        copied[first : first + _COPIED][block >= 0] = embeddings[block[block >= 0]]
    return copied


def _counts(index: SearchIndex, earlier: SearchIndex) -> UpdateCounts:
    now, before = (
        Counter(one.keys[first:end].tobytes() for first, end in pairwise(one.passages.first.tolist()))
        for one in (index, earlier)
    )
    kept = (now & before).total()
    return UpdateCounts(len(index.ids) - kept, kept, len(earlier.ids) - kept)


def _nearest_documents(index: SearchIndex, embedded: Floats, count: int) -> list[Numbers]:
    """Return the numbers of the encoder's first ``count`` documents for each of (B, D) queries; none for zero."""
    scores = embedded @ index.embeddings.T
    if not index.has_embedding.all():
        scores[:, ~index.has_embedding] = -np.inf
    best = index.passages.best(scores)
    return [
        row[scored[row] > -np.inf] if query.any() else row[:0]
        for row, scored, query in zip(highest(best, count), best, embedded, strict=True)
    ]


def _suggested_documents(index: SearchIndex, embedded: Floats, count: int, nearest: Nearest) -> list[Numbers]:
    """Return what :func:`_nearest_documents` does, or more, by an index of the user's.

    It is asked for as many passages as ``count`` documents have on average, and for twice as many, again and again,
    for the queries whose passages are those of fewer documents.
    """
    total = len(index.embeddings)
    found = [np.empty(0, dtype=np.int64)] * len(embedded)
    queries = np.flatnonzero(embedded.any(axis=1)).tolist()
    asked = min(total, count * -(-total // len(index.ids)))
    while queries:
        numbers = _checked_numbers(nearest(embedded[queries], asked), (len(queries), asked), total)
        lacking = []
        for query, row in zip(queries, numbers, strict=True):
            known = row[row >= 0]
            found[query] = index.passages.documents(known[index.has_embedding[known]])
            if len(found[query]) < count and len(known) == asked < total:  # with -1, the index has no more
                lacking.append(query)
        queries, asked = lacking, min(total, 2 * asked)
    return found


def _checked_numbers(found: Any, shape: tuple[int, int], total: int) -> Numbers:
    """Return the numbers that an index of the user's found.

    Raises:
        ValueError: if they have another shape, or are not those of the ``total`` rows.
    """
    numbers = np.asarray(found[1])
    if numbers.shape != shape or not np.issubdtype(numbers.dtype, np.integer):
        raise ValueError(f"nearest must return scores and whole numbers of the shape {shape}, got {numbers!r:.80}.")
    if numbers.min() < -1 or numbers.max() >= total:
        of = f"of the {total} embeddings or -1, got {numbers.min()} to {numbers.max()}"
        raise ValueError(f"nearest must return numbers {of}: fill the index with these embeddings, in their order.")
    return numbers


def _best_passages(index: SearchIndex, documents: Numbers, query: Floats) -> tuple[Floats, Numbers]:
    """Return the similarity (N,) of each of N documents with a query (D,), and the number of its best passage."""
    begins = index.passages.first[documents]
    counts = index.passages.first[documents + 1] - begins
    ends = counts.cumsum()
    rows = np.repeat(begins - ends + counts, counts) + np.arange(counts.sum())
    scores = index.embeddings[rows] @ query
    places = [first + int(scores[first:end].argmax()) for first, end in zip(ends - counts, ends, strict=True)]
    return scores[places], rows[places]
