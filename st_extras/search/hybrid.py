"""Hybrid search: the score of an encoder plus a weight times that of BM25, with one weight for the collection."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from tqdm.auto import tqdm

from st_extras.checks import check_bool, check_count, check_not_negative, check_rows, check_strings, shown
from st_extras.encoders.passages import PASSAGE_WORDS, Passages, check_passages, cut_documents
from st_extras.files import whole_file
from st_extras.functional import row_blocks
from st_extras.ranking import (
    EmbeddingBlocks,
    Floats,
    Numbers,
    highest,
    hybrid_weight,
    queries_from_documents,
    sample_queries,
    score_blocks,
)
from st_extras.search.encoder import SearchEncoder
from st_extras.search.hits import (
    FEWEST_CANDIDATES,
    Hit,
    Id,
    UpdateCounts,
    check_ids,
    has_same_text,
    make_hit,
    place_in_text,
    places_in_texts,
)
from st_extras.search.parquet_file import read_state, resolved, stored_version, write_state
from st_extras.search.state import SearchState, Weight, WeightRule, WeightSource, new_version
from st_extras.text.corpus import is_blank
from st_extras.text.documents import Document, as_documents, same_metadata
from st_extras.text.term_weights import BM25, BM25_SHARE, WordCounts, check_language, check_share

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

    from st_extras.search.qdrant import QdrantSearch

logger = logging.getLogger(__name__)
_SAMPLED = 2000  # documents whose similarity with unrelated queries is looked at
_REACHED = 0.5  # of the sentences compared, that reach a bound with their own document
_ENCODED = 500  # passages that are encoded at a time


class HybridSearch:
    """Searches documents by an encoder and BM25 together: ``score = dense + w * BM25``, with one weight w.

    The weight comes from unlabelled queries, see :func:`~st_extras.text.term_weights.bm25_weight`. Use it where words
    matter, such as names, codes and terms that the encoder does not know. Each side suggests its first 100 documents
    (more for a larger ``top_k``; of BM25 those that share a word with the query), and the sum ranks them. What has no
    text is not found; what has the embedding 0, as a table of words gives to unknown ones, is found only by BM25.

    A document that the encoder would not read whole is cut into passages, and the best one counts for it; BM25 reads
    whole documents, titles included. Memory holds the texts, their words and an embedding for each passage: 4 bytes
    times its dimensions, so 1.5 GB for a million of 384.

    :meth:`add`, :meth:`remove` and :meth:`update` change the search in memory; :meth:`save` writes it to one Parquet
    file, and :meth:`open` reads it without the documents. Several threads may search and change one search; each call
    of :meth:`search` sees one state of it. Another process that opened the file follows it by :meth:`reload`.

    Args:
        model: encodes documents and queries by its routes and prompts for these, whatever these are called. It
            compares by cosine or dot product.
        documents: what to search in: a list of texts, whose ids are their places from 0; a dict by id; a list of dicts
            with id, title and text; or a data set with such columns: see
            :func:`~st_extras.text.documents.as_documents`. Further fields are kept as metadata. Those without text are
            left out, which shifts no place.
        queries: unlabelled queries as users write them, from which the weight is found; a few hundred are enough, and
            at most 1,000 are used. The file keeps them. None: 200 sentences of the documents stand for them.
        bm25_weight: w, at least 0, if you know it. None: it is found, and found again by the change with which as many
            documents have been added or changed as it was found from, or while it is 0.
        share: how far the scores of BM25 spread after weighting, relative to the encoder's, above 0, at most 10.
        language: of BM25's stems, see :class:`~st_extras.text.term_weights.BM25`. None: words are
            compared as they are.
        passages: words of a passage (Chinese: characters), 4 to 10,000; neighbours share a quarter. None: the encoder
            reads the beginning of a long document, and a warning says how many there are.
        embeddings: (N, D) of the documents, if you have them, as ``model.encode_document`` gives them for each title
            and text: no document is cut, and four are encoded, to know that the embeddings are theirs. None: they are
            encoded.
        batch_size: texts per forward pass.
        show_progress_bar: show how many passages are encoded.

    Attributes:
        model: as given. It must not be changed: what is encoded from then on would not fit the rest.

    Raises:
        ValueError: if there is no document with text, an id stands twice, the model compares by distances, an embedding
            is not finite or not the model's, or a setting is not allowed.

    Source: the weighted sum of scores is common in hybrid search; finding its weight without labels is this package's.

    Example:
        >>> from st_extras.samples.encoder import raw_encoder
        >>> from st_extras.search import HybridSearch
        >>> documents = {"lost": "A lost card is blocked at once.", "e42": "Error E42: the printer has no paper."}
        >>> search = HybridSearch(raw_encoder(), documents)
        >>> [hit["corpus_id"] for hit in search.search(["what is E42"])[0]]
        ['e42', 'lost']
        >>> search.add([{"id": "loan", "title": "Loans", "text": "A loan is paid back over years."}]).encoded
        1
        >>> [hit["corpus_id"] for hit in search.search("what is E42", among=["loan", "lost"])[0]]
        ['lost', 'loan']
        >>> search.add({"toner": {"text": "Black toner costs 40.", "product": "printer"}}).encoded
        1
        >>> of_printers = lambda document: document.metadata.get("product") == "printer"
        >>> [(hit["corpus_id"], hit["metadata"]) for hit in search.search("what is E42", among=of_printers)[0]]
        [('toner', {'product': 'printer'})]
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
    ) -> None:
        self._set_up(model, batch_size)
        passage_words = check_passages(passages) if embeddings is None else None
        language = check_language(language)
        rule = replace(_check_rule(queries, bm25_weight) or WeightRule(), share=check_share(share))
        given = _check_not_all_blank(as_documents(documents))
        change = _Change(given, lambda _: False, embeddings, show_progress_bar)
        encoder = self._encoder.fingerprint
        self._state = SearchState(
            documents=[],
            passages=Passages(np.zeros(1, dtype=np.int64), np.empty((0, 2), dtype=np.int32)),
            embeddings=EmbeddingBlocks.of(np.empty((0, encoder.probes.shape[1]), dtype=np.float32)),
            words=WordCounts.of([], language),
            encoder=encoder,
            similarity=self._encoder.similarity,
            passage_words=passage_words,
            rule=rule,
        )
        self._change(change)

    def _set_up(self, model: SentenceTransformer, batch_size: int) -> None:
        """Store what each search has, but for its state."""
        self.model = model
        self._encoder = SearchEncoder(model, batch_size)
        self._file: tuple[Path, str] | None = None  # that was opened or saved last, and the version that it then had
        self._replacing = threading.Lock()  # held for a moment, while one state takes the place of another
        self._saving = threading.Lock()  # held while the file is written, or read again

    @classmethod
    def open(cls, path: str | PathLike[str], model: SentenceTransformer, *, batch_size: int = 64) -> HybridSearch:
        """Open a file that :meth:`save` wrote: it is read into memory as a whole. Nothing in it can run code.

        Args:
            path: the file.
            model: the encoder that it was made with, recognized by how it encodes two sentences as documents: it may
                have another route or prompt for queries.
            batch_size: texts per forward pass.

        Raises:
            ValueError: if another program wrote the file, it is damaged, or another encoder made it.
            OSError: if the file cannot be read.
        """
        search = cls.__new__(cls)
        search._set_up(model, batch_size)  # noqa: SLF001 (of this class)
        file = resolved(path)
        state = read_state(file)
        search._encoder.check_made(state.encoder, state.similarity)  # noqa: SLF001
        search._state, search._file = state, (file, state.version)  # noqa: SLF001
        return search

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the search to one Parquet file, with its documents and without the model.

        An interruption leaves the earlier file or this one. A search that is in the file already is not written again.

        Args:
            path: a new file, such as "my-index.parquet", or the one that was opened or saved last, unless it was
                changed since.
            overwrite: replace the file of any search. What another program wrote is never replaced.

        Raises:
            ValueError: if there is another file or a folder, or, without ``overwrite``, the file of another search or
                one that another process has changed since.
            OSError: if it cannot be written.
        """
        target, overwrite = resolved(path), check_bool("overwrite", overwrite)
        with self._saving:
            state = self._state
            if self._check_replaceable(target, state, overwrite=overwrite) != state.version:
                with whole_file(target) as partial:
                    write_state(partial, state)
                    self._check_replaceable(target, state, overwrite=overwrite)  # another process may have been faster
            self._file = target, state.version

    def _check_replaceable(self, target: Path, state: SearchState, *, overwrite: bool) -> str | None:
        """Return the version that a file holds, None if there is none, if the state may take its place.

        Raises:
            ValueError: if it may not.
        """
        stored = stored_version(target)
        if stored in (None, state.version) or overwrite or self._file == (target, stored):
            return stored
        is_changed = self._file is not None and self._file[0] == target
        found = "which has been changed since it was opened or saved" if is_changed else "which holds another search"
        raise ValueError(
            f"path must be a new file or the one that was opened or saved last, got {str(target)!r}, {found}: take "
            "another name, or set overwrite=True to replace it."
        )

    def reload(self) -> bool:
        """Follow the file that was opened or saved last, if another process has saved to it since.

        If it has not, nothing is read but the version. Other threads may search meanwhile.

        Returns:
            Whether there was something new.

        Raises:
            ValueError: if there is no such file, it is damaged or of another encoder, or this search was changed since
                and not saved: the earlier documents stay.
            OSError: if the file cannot be read.
        """
        with self._saving:
            if self._file is None:
                raise ValueError("reload needs a file: HybridSearch.open opens one, search.save writes one.")
            path, version = self._file
            if stored_version(path) == version:
                return False
            before = self._state
            state = before if before.version != version else read_state(path)
            with self._replacing:
                if state is before or self._state is not before:
                    raise ValueError(
                        f"the search must have no changes that {str(path)!r} lacks, got some, which reload would lose: "
                        "save it to another file, or open this one again."
                    )
                self._encoder.check_made(state.encoder, state.similarity)
                self._state, self._file = state, (path, state.version)
            return True

    def to_qdrant(self, client: QdrantClient, name: str, **options: Any) -> QdrantSearch:
        """Make a Qdrant collection of the documents, which encodes none of them, and return the search of it.

        The collection goes its own way: what either search adds and removes from then on is not in the other.

        Args:
            client: a ``qdrant_client.QdrantClient``, in memory or of a server (``pip install "st-extras[qdrant]"``).
            name: of a new collection. If this is stopped before its end, what it left is refused: delete it by
                ``client.delete_collection``.
            **options: of ``client.create_collection``, such as ``replication_factor=2``.

        Raises:
            ValueError: if the collection exists, a field of the metadata is named "_document", a number in it has
                more than 64 bits, or a document has more passages than Qdrant holds.
            OSError: if the server refuses or does not answer.
        """
        from st_extras.search.qdrant import make_collection

        return make_collection(client, name, self._encoder, self._state, **options)

    def __repr__(self) -> str:
        state = self._state
        counts = f"documents={len(state.documents)}, passages={len(state.embeddings)}"
        return f"HybridSearch({counts}, bm25_weight={state.weight.value:.4g})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_replacing": None, "_saving": None}  # a copy may be saved to the same file

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        vars(self).update(attributes, _replacing=threading.Lock(), _saving=threading.Lock())

    @property
    def documents(self) -> list[Document]:
        """The N documents, in the order in which they were added; one that changed comes last."""
        return [*self._state.documents]

    @property
    def ids(self) -> list[Id]:
        """The ids of the N documents."""
        return [document.id for document in self._state.documents]

    @property
    def embeddings(self) -> Floats:
        """(P, D) of the passages, a copy; of length 1 for cosines, 0 of words that a table of words does not know."""
        return self._state.embeddings.whole()

    @property
    def bm25(self) -> BM25:
        """BM25 of the documents as they are now."""
        return self._state.bm25

    @property
    def passage_spans(self) -> list[list[tuple[int, int]]]:
        """First and last character of the passages of each of the N documents, in its text without the title."""
        return places_in_texts(self._state.documents, self._state.passages)

    @property
    def bm25_weight(self) -> float:
        """w: the weight of BM25."""
        return self._state.weight.value

    @property
    def weight_source(self) -> WeightSource:
        """Where the weight is from: "given", or found from "queries" or from sentences of the "documents"."""
        return self._state.rule.source

    @property
    def language(self) -> str | None:
        """Of BM25's stems and stop words; None: words are compared as they are."""
        return self._state.words.language

    @property
    def passages(self) -> int | None:
        """Words of a passage of documents that are added; None: they stay whole."""
        return self._state.passage_words

    # --- searching ---

    def search(
        self, queries: Any, top_k: int = 10, *, among: Collection[Id] | Callable[[Document], bool] | None = None
    ) -> list[list[Hit]]:
        """Return the best documents for each query, best first, as ``sentence_transformers.util.semantic_search`` does.

        Args:
            queries: strings, or one string. One without any text finds nothing.
            top_k: how many documents to return, at least 1; fewer if there are fewer.
            among: the documents to search in, for all queries: their ids, of which those that are not there are
                ignored, or a function that is true of them, such as ``lambda document: document.metadata.get("product")
                == "card"``. None: all.

        Returns:
            For each query a list of :class:`Hit`: ``{"corpus_id": id, "score": dense + w * bm25, "title": ...,
            "text": ..., ...}``, with the passage nearest to the query. Of equal scores, the document that was added
            first comes first.

        Raises:
            ValueError: if a query is not a string or no valid text, its embedding is not finite, ``top_k`` or ``among``
                is not allowed, or the function fails for a document.
        """
        texts = (queries,) if isinstance(queries, str) else check_strings("queries", queries)
        top_k = check_count("top_k", top_k, 1)
        state = self._state  # one for the whole call: another thread may change the search
        allowed = None if among is None else _allowed(state, among)
        count = min(len(state.documents) if allowed is None else int(allowed.sum()), max(FEWEST_CANDIDATES, top_k))
        hits: list[list[Hit]] = [[] for _ in texts]
        searched = [number for number, text in enumerate(texts) if not is_blank(text)]
        if not searched or not count:
            return hits
        bm25 = state.bm25
        embedded = self._encoder.embed("query", [texts[number] for number in searched])
        for rows in row_blocks(len(searched), len(state.embeddings)):
            bm25_scores = bm25.scores([texts[number] for number in searched[rows]])
            if allowed is not None:
                bm25_scores[:, ~allowed] = 0
            nearest = _nearest_documents(state, embedded[rows], count, allowed)
            sides = zip(searched[rows], embedded[rows], bm25_scores, nearest, highest(bm25_scores, count), strict=True)
            for number, query, by_words, near, first_by_words in sides:
                shared = first_by_words[by_words[first_by_words] > 0]  # they have a word of the query
                candidates = np.union1d(near, shared)  # sorted, so the stable sort keeps the order of equal ones
                dense, best_passages = _best_passages(state, candidates, query)
                scores = dense + state.weight.value * by_words[candidates]
                for i in np.argsort(-scores, kind="stable")[:top_k].tolist():
                    document = state.documents[candidates[i]]
                    hit = make_hit(
                        document,
                        place_in_text(document, state.passages.spans[best_passages[i]].tolist()),
                        texts[number],
                        state.words.language,
                        score=float(scores[i]),
                        dense=float(dense[i]),
                        bm25=float(by_words[candidates[i]]),
                    )
                    hits[number].append(hit)
        return hits

    def scores(self, queries: Sequence[str]) -> tuple[Floats, Floats]:
        """Return what the encoder and BM25 give all N documents for Q queries, (Q, N) each, in the order of ``ids``.

        The sum of the first, of each document's best passage, and of ``bm25_weight`` times the second is the score.

        Raises:
            ValueError: as for :meth:`search`.
        """
        texts = check_strings("queries", queries, at_least=1)
        state = self._state
        blocks = score_blocks(self._encoder.embed("query", texts), state.embeddings)
        dense = np.concatenate([state.passages.best(scores) for _, scores in blocks])
        return dense, state.bm25.scores(texts)

    def unrelated_similarity(self, one_in: int = 1000) -> float:
        """Return the similarity that 1 in ``one_in`` pairs of a query and an unrelated document exceeds.

        A bound for "nothing relevant": what only few unrelated documents reach. It compares a sentence of each of 200
        documents with at most 2,000 documents drawn at random, but for those that contain it: nearly all pairs of these
        are unrelated. Queries of users will not do: which documents answer them is not known, and in a collection of
        1,000 one answer to each is 1 pair in 1,000. Where documents are so alike that most sentences do not reach the
        bound with their own document, a warning says so.

        Args:
            one_in: more refuses more queries, and more good hits.

        Raises:
            ValueError: if the search holds no documents, or there are fewer than ten times as many pairs, or no query.
        """
        one_in = check_count("one_in", one_in, 1)
        state = self._state
        if not state.documents:
            raise ValueError("the search must hold documents, got none.")
        texts = [document.full_text for document in state.documents]
        queries = queries_from_documents(texts)
        places = sorted(random.Random(0).sample(range(len(texts)), min(len(texts), _SAMPLED)))
        unrelated = np.array([[query not in texts[place] for place in places] for query in queries], dtype=np.bool_)
        if unrelated.sum() < 10 * one_in:
            raise ValueError(f"one_in must be at most a tenth of {unrelated.sum():,} pairs, got {one_in:,}.")
        rows = np.concatenate([np.arange(*state.passages.first[place : place + 2]) for place in places])
        _, passages = state.passages.kept(rows)
        scores = passages.best(self._encoder.embed("query", queries) @ state.embeddings.rows(rows).T)
        bound = float(np.quantile(scores[unrelated], 1 - 1 / one_in))
        own = np.where(unrelated, -np.inf, scores).max(axis=1)  # with the documents that contain the query
        reached = own[own > -np.inf] >= bound
        if reached.size and reached.mean() < _REACHED:
            logger.warning(
                "%.0f%% of the sentences compared reach %.3f with their own document: documents are so alike that this "
                "bound refuses most answers.",
                *(100 * reached.mean(), bound),
            )
        return bound

    # --- changing ---

    def add(self, documents: Any, *, embeddings: Any = None, show_progress_bar: bool = False) -> UpdateCounts:
        """Add documents; those whose ids are there are replaced if their title or text changed.

        Their passages are encoded and nothing else. The search then finds what a new search of all documents with the
        same weight would find. Other threads may search meanwhile: they find the earlier documents until all is done.
        Metadata replaces that of the same id, which encodes nothing. A document without text removes the one of its id.
        A call that is interrupted adds nothing: add very many documents in parts.

        Args:
            documents: as for the class, with an id for each: a list of texts would be numbered from 0 again.
            embeddings: (N, D) of these documents, as for the class: none of them is cut. None: new and changed ones are
                encoded.
            show_progress_bar: show how many passages are encoded.

        Returns:
            How many documents were encoded, kept and dropped.

        Raises:
            ValueError: as for the class. The earlier documents then stay.
        """
        given = as_documents(documents, require_ids=True)  # numbers from 0 would replace what is there
        return self._change(_Change(given, lambda _: True, embeddings, show_progress_bar))

    def remove(self, ids: Collection[Id]) -> UpdateCounts:
        """Remove documents by their ids, with their words; those that are not there are ignored.

        Returns and errors are those of :meth:`add`.
        """
        gone = check_ids("ids", ids)
        return self._change(_Change([], lambda key: key not in gone))

    def update(
        self,
        documents: Any,
        *,
        queries: Any = None,
        bm25_weight: float | None = None,
        embeddings: Any = None,
        show_progress_bar: bool = False,
    ) -> UpdateCounts:
        """Search exactly these documents from now on; those that are there are not encoded again.

        Args:
            documents: all of them, as for the class: those to keep, too.
            queries: to find the weight anew from.
            bm25_weight: another weight. Neither: the rule stays; a given weight is kept, a found one is found again as
                the class says.
            embeddings: (N, D) of all documents, as for the class: from now on, documents stay whole. If they were cut
                until now, all are replaced.
            show_progress_bar: show how many passages are encoded.

        Returns and errors are those of :meth:`add`.
        """
        rule = _check_rule(queries, bm25_weight)
        given = _check_not_all_blank(as_documents(documents))
        stay_whole = embeddings is not None
        return self._change(_Change(given, lambda _: False, embeddings, show_progress_bar, rule, stay_whole))

    def _change(self, change: _Change) -> UpdateCounts:
        """Put the state after a change in the place of the one before; again, if another thread was faster."""
        while True:
            before = self._state
            after, counts = self._state_after(before, change)
            with self._replacing:
                if self._state is before:
                    self._state = after
                    return counts

    def _state_after(self, state: SearchState, change: _Change) -> tuple[SearchState, UpdateCounts]:
        """Return the state after a change, and the counts."""
        by_id = {document.id: document for document in change.given}
        stays = [
            has_same_text(by_id[document.id], document) if document.id in by_id else change.keeps(document.id)
            for document in state.documents
        ]
        kept = np.array(stays, dtype=np.bool_)
        if change.stay_whole and state.passage_words is not None:
            state, kept = replace(state, passage_words=None, version=new_version()), np.zeros_like(kept)
        earlier = [state.documents[place] for place in np.flatnonzero(kept).tolist()]
        staying = [by_id.get(document.id, document) for document in earlier]  # perhaps with other metadata
        there = {document.id for document in staying}
        new = [i for i, one in enumerate(change.given) if one.id not in there and not is_blank(one.full_text)]
        counts = UpdateCounts(encoded=len(new), kept=len(there), dropped=len(kept) - len(there))
        same = all(same_metadata(one.metadata, other.metadata) for one, other in zip(staying, earlier, strict=True))
        after = state
        if new or counts.dropped or not same:
            passages, embeddings = self._encode_new(state, kept, new, change)
            after = state.changed(kept, staying, [change.given[i] for i in new], passages, embeddings)
        return self._weighted(after, change.rule), counts

    def _encode_new(
        self, state: SearchState, kept: NDArray[np.bool_], new: Sequence[int], change: _Change
    ) -> tuple[Passages, Floats]:
        """Return the P passages of new documents, and their embeddings (P, D).

        Args:
            state: before the change. Passages of the documents that it loses are not encoded again.
            kept: (N,) which of its documents stay.
            new: which of the documents of the change are new.
            change: whose embeddings were given or, if not, are kept for another try.
        """
        texts = [change.given[i].full_text for i in new]
        if change.embeddings is not None:
            embeddings = self._encoder.check_embeddings(texts, change.embeddings[new])
            return cut_documents(self.model, texts, None), embeddings
        passages = self._encoder.cut(texts, state.passage_words)
        passage_texts = passages.texts(texts)
        embeddings = np.empty((len(passage_texts), state.embeddings.dimension), dtype=np.float32)
        lost = np.flatnonzero(np.repeat(~kept, np.diff(state.passages.first))) if new else np.empty(0, dtype=np.int64)
        gone, lost_passages = state.passages.kept(lost)
        lost_texts = lost_passages.texts([state.documents[place].full_text for place in gone.tolist()])
        known = dict(zip(lost_texts, state.embeddings.rows(lost), strict=True))
        known |= {text: embedding for earlier in change.encoded for text, embedding in zip(*earlier, strict=True)}
        places: dict[str, list[int]] = {}  # of each text that is encoded, once
        for place, text in enumerate(passage_texts):
            if text in known:
                embeddings[place] = known[text]
            else:
                places.setdefault(text, []).append(place)
        different = sorted(places, key=lambda text: -len(text))  # long ones together, which saves padding
        with tqdm(total=len(different), unit=" passages", desc="Encoding", disable=not change.show_progress_bar) as bar:
            for first in range(0, len(different), _ENCODED):
                part = different[first : first + _ENCODED]
                for text, embedding in zip(part, self._encoder.embed("document", part), strict=True):
                    embeddings[places[text]] = embedding
                bar.update(len(part))
        change.encoded.append((passage_texts, embeddings))
        return passages, embeddings

    def _weighted(self, state: SearchState, wanted: WeightRule | None) -> SearchState:
        """Return the state with a weight by the rule that is wanted, or by its own, if it is old by that."""
        earlier, total = state.weight, len(state.documents)
        rule = state.rule if wanted is None else replace(wanted, share=state.rule.share)
        weight = earlier
        if rule.given is not None:
            weight = replace(earlier, value=rule.given)
        elif total and (wanted is not None or earlier.is_old):
            queries = rule.queries or queries_from_documents([document.full_text for document in state.documents])
            embedded = self._encoder.embed("query", queries)
            value = hybrid_weight(state.bm25, queries, embedded, state.embeddings, rule.share, state.passages)
            weight = Weight(value, documents=total)
            if earlier.documents and value != earlier.value:
                logger.warning(
                    "BM25 has the weight %.4g from now on, found from %s of %s documents; it was %.4g, of %s.",
                    value,
                    "queries" if rule.queries else "sentences",
                    f"{total:,}",
                    earlier.value,
                    f"{earlier.documents:,}",
                )
        if (rule, weight) == (state.rule, earlier):
            return state
        return replace(state, rule=rule, weight=weight, version=new_version())


@dataclass
class _Change:
    """What a change does to whatever state it finds.

    Attributes:
        given: documents to add where they are not kept; those without text are left out.
        keeps: whether a document of the state stays, by its id; one that is given stays if its text is the same.
        embeddings: (G, D) of the given documents, none of which is cut; None: they are encoded.
        show_progress_bar: show how many passages are encoded.
        rule: where another weight comes from. None: the rule stays, and the weight is found again if it is old.
        stay_whole: whether documents are not cut from now on. If they were until now, all are replaced.
        encoded: passages and their embeddings from a try that another thread's change undid.

    Raises:
        ValueError: if the embeddings are no rows of numbers, or others than the documents, or a setting is not allowed.
    """

    given: Sequence[Document]
    keeps: Callable[[Id], bool]
    embeddings: Any = None
    show_progress_bar: bool = False
    rule: WeightRule | None = None
    stay_whole: bool = False
    encoded: list[tuple[list[str], Floats]] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_bool("show_progress_bar", self.show_progress_bar)
        if self.embeddings is not None:
            self.embeddings = check_rows("embeddings", self.embeddings).float().cpu().numpy()
            if len(self.embeddings) != len(self.given):
                raise ValueError(
                    f"embeddings must have a row for each of {len(self.given)} documents, got {len(self.embeddings)}."
                )


def _check_rule(queries: Any, bm25_weight: float | None) -> WeightRule | None:
    """Return where the weight is to come from: itself, or at most 1,000 queries; None: neither was given."""
    if bm25_weight is not None:
        if queries is not None:
            raise ValueError("queries must be None with bm25_weight: they only serve to find it.")
        return WeightRule(given=check_not_negative("bm25_weight", bm25_weight))
    if queries is None:
        return None
    sampled = sample_queries(queries)
    if not sampled:
        raise ValueError("queries must hold at least one text that is not blank, got none.")
    return WeightRule(queries=tuple(sampled))


def _check_not_all_blank(documents: list[Document]) -> list[Document]:
    """Return documents if one has text.

    Raises:
        ValueError: if none has.
    """
    if all(is_blank(document.full_text) for document in documents):
        raise ValueError(f"documents must hold at least one text that is not blank, got {len(documents)} blank ones.")
    return documents


def _allowed(state: SearchState, among: Collection[Id] | Callable[[Document], bool]) -> NDArray[np.bool_]:
    """Return (N,) which documents have one of these ids, or are such that a function is true of them.

    Raises:
        ValueError: if they are no ids, or the function fails for a document, which is named.
    """
    allowed = np.zeros(len(state.documents), dtype=np.bool_)
    if not callable(among):
        allowed[[state.places[one] for one in check_ids("among", among) if one in state.places]] = True
        return allowed
    document = None
    try:
        for place, document in enumerate(state.documents):
            allowed[place] = bool(among(document))
    except Exception as error:
        raise ValueError(
            f"among must be a function that is true or false of each document, got {error!r} of {shown(document)}."
        ) from error
    return allowed


def _nearest_documents(
    state: SearchState, embedded: Floats, count: int, allowed: NDArray[np.bool_] | None
) -> list[Numbers]:
    """Return the places of the documents whose passages are nearest to each of B embedded queries, (B, D).

    None of those whose embedding is 0, nor of a query whose embedding is 0; with ``allowed`` (N,), only of these.
    """
    scores = state.embeddings.scores(embedded)
    if not state.embeddings.known.all():
        scores[:, ~state.embeddings.known] = -np.inf
    best = state.passages.best(scores)
    if allowed is not None:
        best[:, ~allowed] = -np.inf
    return [
        row[scored[row] > -np.inf] if query.any() else row[:0]
        for row, scored, query in zip(highest(best, count), best, embedded, strict=True)
    ]


def _best_passages(state: SearchState, places: Numbers, query: Floats) -> tuple[Floats, Numbers]:
    """Return the similarity (N,) of each of N documents with a query (D,), and the row of its best passage."""
    begins = state.passages.first[places]
    counts = state.passages.first[places + 1] - begins
    ends = counts.cumsum()
    rows = np.repeat(begins - ends + counts, counts) + np.arange(counts.sum())
    scores = np.einsum("nd,d->n", state.embeddings.rows(rows), query)  # equal passages score equally; not so by @
    best = [first + int(scores[first:end].argmax()) for first, end in zip(ends - counts, ends, strict=True)]
    return scores[best], rows[best]
