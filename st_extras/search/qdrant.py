"""Hybrid search in a Qdrant collection: the score of :class:`HybridSearch` where documents live in an engine."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from sentence_transformers import SentenceTransformer
from tqdm.auto import tqdm

from st_extras.checks import (
    check_bool,
    check_choice,
    check_count,
    check_instance,
    check_not_negative,
    check_strings,
    counted,
    shown,
)
from st_extras.encoders.fingerprint import EncoderFingerprint
from st_extras.encoders.passages import Passages, check_passages
from st_extras.ranking import Floats
from st_extras.search.encoder import SearchEncoder
from st_extras.search.hits import (
    FEWEST_CANDIDATES,
    Hit,
    Id,
    UpdateCounts,
    check_ids,
    has_same_text,
    make_hit,
    places_in_texts,
)
from st_extras.search.state import SearchState
from st_extras.text.corpus import is_blank
from st_extras.text.documents import Document, Scalar, as_documents, same_metadata
from st_extras.text.term_weights import check_language, length_norm, search_words, word_rules
from st_extras.text.words import Span

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models

logger = logging.getLogger(__name__)
_OURS = "st_extras"  # the key of a collection's metadata that holds how it was made
_UNFINISHED = "unfinished"  # stands there until all documents of HybridSearch.to_qdrant are written
_DOCUMENT = "_document"  # the key of a payload that holds a document's id, title, text and passages
_MOST_NUMBERS = 2**20  # a multivector of Qdrant has fewer, all its rows together
_MOST_CHARACTERS = 5_000_000  # of a request as JSON, each of up to 4 bytes: servers refuse 32 MiB
_DOCUMENTS = 256  # that are encoded and written at a time
_RESTORE: dict[str, Any] = {"date": date.fromisoformat, "datetime": datetime.fromisoformat}


@dataclass(frozen=True)
class CollectionSettings:
    """How a collection was made; its metadata in Qdrant.

    Attributes:
        encoder: what made the embeddings.
        similarity: "cosine" or "dot".
        passage_words: words of a passage; None: documents stay whole.
        language: of BM25's stems; None: words are compared as they are.
        word_rules: what recognizes how words are made, see :func:`~st_extras.text.term_weights.word_rules`.
        bm25_weight: w in ``dense + w * BM25``.
        mean_length: words of a document on average when the collection was made.
    """

    encoder: EncoderFingerprint
    similarity: str
    passage_words: int | None
    language: str | None
    word_rules: str
    bm25_weight: float
    mean_length: float

    def to_json(self) -> dict[str, Any]:
        """Return the settings as JSON can hold them."""
        return {**vars(self), "encoder": self.encoder.to_json()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> CollectionSettings:
        """Return the settings that :meth:`to_json` gave; an error of any kind if it did not."""
        settings = cls(**{**content, "encoder": EncoderFingerprint.from_json(content["encoder"])})
        check_choice("similarity", settings.similarity, ("cosine", "dot"))
        check_passages(settings.passage_words)
        check_language(settings.language)
        check_not_negative("bm25_weight", settings.bm25_weight)
        check_not_negative("mean_length", settings.mean_length)
        return settings


class QdrantSearch:
    """Searches the documents of a Qdrant collection by an encoder and BM25 together, as :class:`HybridSearch` does.

    Use it where several processes change the documents, where they exceed one machine, or where queries are filtered by
    the documents' metadata. The client works in memory, on a server and on a cluster alike. ``search.to_qdrant(client,
    name)`` of a :class:`HybridSearch` makes the collection.

    A document is a point. Its ``dense`` vectors are the embeddings of its passages, of which the nearest counts; its
    ``bm25`` vector holds a number for each of its words, which Qdrant multiplies by the word's inverse document
    frequency. So nothing is computed anew when documents come and go, but for two things: the weight of BM25 and the
    mean length of documents stay those with which the collection was made. Make it anew when the documents have
    doubled. The document's metadata is the payload, each field under its own name, dates as RFC 3339; what the search
    itself needs is under "_document".

    Equation, with the mean length as it was, and N and n(w) as Qdrant has them:

        idf(w) = log(1 + (N - n(w) + 0.5) / (n(w) + 0.5))
        bm25(q, d) = sum of idf(w) * c(w, d) / (c(w, d) + k1 * (1 - b + b * |d| / mean)) over the words of the query
        score(q, d) = max over the passages p of d: dense(q, p), plus w * bm25(q, d)

    Args:
        client: a ``qdrant_client.QdrantClient`` (``pip install "st-extras[qdrant]"``). A folder of its local mode is
            read by pickle, which can run code: open only your own.
        name: of a collection that :meth:`HybridSearch.to_qdrant` made, or an alias of it.
        model: the encoder that it was made with, recognized by how it encodes two sentences as documents.
        batch_size: texts per forward pass.

    Attributes:
        client, name, model: as given.

    Raises:
        ValueError: if there is no such collection, another program made it, or another encoder.
        OSError: if the server refuses or does not answer, here as in every method; the message has its words.

    Source: the form of the vectors is Qdrant's for BM25; the score is that of :class:`HybridSearch`.

    Example:
        >>> from qdrant_client import QdrantClient, models
        >>> from st_extras.samples.encoder import raw_encoder
        >>> from st_extras.search import HybridSearch, QdrantSearch
        >>> documents = {"lost": {"text": "A lost card is blocked at once.", "product": "card"}, "toner": "Toner."}
        >>> client = QdrantClient(":memory:")
        >>> made = HybridSearch(raw_encoder(), documents).to_qdrant(client, "help")
        >>> search = QdrantSearch(client, "help", raw_encoder())  # in another process
        >>> search.add({"e42": {"text": "Error E42: there is no paper.", "product": "printer"}}).encoded
        1
        >>> [hit["corpus_id"] for hit in search.search("what is E42", top_k=2)[0]]
        ['e42', 'toner']
        >>> cards = models.Filter(must=[models.FieldCondition(key="product", match=models.MatchValue(value="card"))])
        >>> [(hit["corpus_id"], hit["metadata"]) for hit in search.search("what is E42", where=cards)[0]]
        [('lost', {'product': 'card'})]
    """

    def __init__(self, client: QdrantClient, name: str, model: SentenceTransformer, *, batch_size: int = 64) -> None:
        self.client, self.name, self.model = _check_client(client), _check_name(name), model
        self._encoder = SearchEncoder(model, batch_size)
        self._word_rules = ""  # that were compared
        self._settings = self._read_settings()

    def __repr__(self) -> str:
        return f"QdrantSearch({self.name!r}, bm25_weight={self.bm25_weight:.4g})"

    @property
    def bm25_weight(self) -> float:
        """w: the weight of BM25."""
        return self._settings.bm25_weight

    @property
    def language(self) -> str | None:
        """Of BM25's stems; None: words are compared as they are."""
        return self._settings.language

    @property
    def passages(self) -> int | None:
        """Words of a passage of documents that are added; None: they stay whole."""
        return self._settings.passage_words

    def search(
        self, queries: Any, top_k: int = 10, *, where: models.Filter | None = None, exact: bool = False
    ) -> list[list[Hit]]:
        """Return the best documents for each query, best first, as :meth:`HybridSearch.search` does.

        Args:
            queries: strings, or one string. One without any text finds nothing.
            top_k: how many documents to return, at least 1; fewer if there are fewer.
            where: a ``qdrant_client.models.Filter`` of the documents to search in, by their metadata, or by
                "_document.id". A field that no document has finds nothing. None: all.
            exact: compare with all embeddings. False: a server takes its index, where it has built one, which may miss
                a document among the encoder's first 100.

        Returns:
            For each query a list of :class:`Hit`. Of equal scores, any comes first.

        Raises:
            ValueError: if a query is not a string or no valid text, its embedding is not finite, ``top_k`` or ``where``
                is not allowed, or the collection has become another's.
        """
        from qdrant_client import models

        texts = (queries,) if isinstance(queries, str) else check_strings("queries", queries)
        top_k = check_count("top_k", top_k, 1)
        check_instance("where", where, models.Filter, or_none=True)
        exact = check_bool("exact", exact)
        hits: list[list[Hit]] = [[] for _ in texts]
        searched = [number for number, text in enumerate(texts) if not is_blank(text)]
        if not searched:
            return hits
        settings = self._read_settings()
        embedded = self._encoder.embed("query", [texts[number] for number in searched])
        for number, row in zip(searched, embedded, strict=True):
            requests = _requests(row, texts[number], settings, top_k, where, exact=exact)
            if requests:
                with _errors_of(self.name):
                    first, *rest = (one.points for one in self.client.query_batch_points(self.name, requests))
                bm25 = {point.id: float(point.score) for points in rest for point in points}
                hits[number] = [
                    _hit(point, row, texts[number], settings.language, bm25=bm25.get(point.id, 0.0)) for point in first
                ]
        return hits

    def add(self, documents: Any, *, show_progress_bar: bool = False) -> UpdateCounts:
        """Add documents; those whose ids are there are replaced if their title or text changed.

        Metadata replaces that of the same id, which encodes nothing. A document without text removes the one of its id.
        256 documents at a time are encoded and written: a call that is stopped has added some, and the same call again
        adds the rest. Of several processes that add one document, the last one counts. But one that changes
        metadata alone leaves the text that another wrote, and raises an OSError if another removed it meanwhile.

        Args:
            documents: as for :class:`HybridSearch`, with an id for each.
            show_progress_bar: show how many documents are done.

        Returns:
            How many documents were encoded, kept and dropped.

        Raises:
            ValueError: as for :class:`HybridSearch`; or if a field of the metadata is named "_document", a number in it
                has more than 64 bits, a document has more passages than Qdrant holds, or the collection
                has become another's.
        """
        given = as_documents(documents, require_ids=True)
        _check_metadata(given)
        show_progress_bar = check_bool("show_progress_bar", show_progress_bar)
        settings = self._read_settings()
        encoded = dropped = 0
        with tqdm(total=len(given), unit=" documents", desc="Adding", disable=not show_progress_bar) as bar:
            for start in range(0, len(given), _DOCUMENTS):
                block = given[start : start + _DOCUMENTS]
                new, gone = self._add_block(block, settings)
                encoded, dropped = encoded + new, dropped + gone
                bar.update(len(block))
        return UpdateCounts(encoded=encoded, kept=max(0, self._count() - encoded), dropped=dropped)

    def _add_block(self, documents: Sequence[Document], settings: CollectionSettings) -> tuple[int, int]:
        """Add some documents; return how many were encoded, and how many earlier ones are gone or changed."""
        earlier = self._documents([document.id for document in documents])
        new, relabelled, gone = [], [], []
        for document in documents:
            before = earlier.get(document.id)
            if is_blank(document.full_text):
                gone += [] if before is None else [document.id]
            elif before is None or not has_same_text(document, before):
                new.append(document)
            elif not same_metadata(document.metadata, before.metadata):
                relabelled.append(document)
        if new:
            texts = [document.full_text for document in new]
            passages = self._encoder.cut(texts, settings.passage_words)
            _check_sizes(new, passages, settings)
            embeddings = self._encoder.embed("document", passages.texts(texts))
            _upload(self.client, self.name, new, passages, embeddings, settings)
        with _errors_of(self.name):
            for batch in _batches(_new_metadata(document, earlier[document.id]) for document in relabelled):
                self.client.batch_update_points(self.name, batch, wait=True)
        self._delete(gone)
        return len(new), sum(document.id in earlier for document in new) + len(gone)

    def remove(self, ids: Collection[Id]) -> UpdateCounts:
        """Remove documents by their ids, with their words; those that are not there are ignored.

        A server counts their words in the inverse document frequencies until it next cleans up.

        Returns and errors are those of :meth:`add`.
        """
        checked = [*check_ids("ids", ids)]
        self._read_settings()
        dropped = 0
        for start in range(0, len(checked), _DOCUMENTS):
            there = [*self._documents(checked[start : start + _DOCUMENTS])]
            self._delete(there)
            dropped += len(there)
        return UpdateCounts(encoded=0, kept=self._count(), dropped=dropped)

    def _count(self) -> int:
        with _errors_of(self.name):
            return int(self.client.count(self.name, exact=True).count)

    def _delete(self, ids: Sequence[Id]) -> None:
        from qdrant_client import models

        if ids:
            with _errors_of(self.name):
                selector = models.PointIdsList(points=[point_id(one) for one in ids])
                self.client.delete(self.name, selector, wait=True)

    def _documents(self, ids: Sequence[Id]) -> dict[Id, Document]:
        """Return those of some documents that the collection has, by id."""
        with _errors_of(self.name):
            points = self.client.retrieve(self.name, [point_id(one) for one in ids], with_payload=True)
        return {document.id: document for document, _ in (_document(point.payload) for point in points)}

    def _read_settings(self) -> CollectionSettings:
        """Return how the collection was made, by what it says now: another may have taken its name.

        Raises:
            ValueError: if it does not exist, :meth:`HybridSearch.to_qdrant` did not make it, or another encoder.
            OSError: if the server refuses or does not answer.
        """
        allowed = "name must be a collection that HybridSearch.to_qdrant made"
        with _errors_of(self.name):
            try:
                config = self.client.get_collection(self.name).config
            except Exception:  # each way of asking has its own for this
                if not self.client.collection_exists(self.name):
                    raise ValueError(f"{allowed}, got {self.name!r}, which does not exist.") from None
                raise
        _check_finished(self.name, config)
        try:
            settings = CollectionSettings.from_json((config.metadata or {})[_OURS])
            vectors: Any = config.params.vectors
            is_ours = vectors["dense"].size == settings.encoder.probes.shape[1] and "bm25" in (
                config.params.sparse_vectors or {}
            )
        except Exception:  # whatever it holds
            is_ours = False
        if not is_ours:
            raise ValueError(
                f"{allowed}, got {self.name!r}, which another program made, or a server older than Qdrant 1.16, which "
                "keeps no metadata of a collection."
            )
        self._encoder.check_made(settings.encoder, settings.similarity)
        if settings.word_rules != self._word_rules:
            self._word_rules = settings.word_rules
            if settings.word_rules != word_rules(settings.language):
                logger.warning(
                    "The collection %r has its words from another version of nltk or st_extras: BM25 may miss some "
                    "until HybridSearch.to_qdrant makes it anew.",
                    self.name,
                )
        self._settings = settings
        return settings


def make_collection(
    client: QdrantClient, name: str, encoder: SearchEncoder, state: SearchState, **options: Any
) -> QdrantSearch:
    """Make a collection of the documents of a search, and return the search of it.

    Args:
        client: as for :class:`QdrantSearch`.
        name: of a new collection.
        encoder: of the search.
        state: of the search.
        **options: of ``client.create_collection``.

    Raises:
        ValueError: if the collection exists, or Qdrant cannot hold the documents.
        OSError: if the server refuses or does not answer.
    """
    from qdrant_client import models

    _check_client(client)
    _check_name(name)
    lengths = np.asarray(state.words.counts.sum(axis=1), dtype=np.float32)
    settings = CollectionSettings(
        encoder=state.encoder,
        similarity=state.similarity,
        passage_words=state.passage_words,
        language=state.words.language,
        word_rules=word_rules(state.words.language),
        bm25_weight=state.weight.value,
        mean_length=float(lengths.mean()) if len(lengths) else 0.0,
    )
    _check_metadata(state.documents)
    _check_sizes(state.documents, state.passages, settings)
    with _errors_of(name):
        if client.collection_exists(name):
            _check_finished(name, client.get_collection(name).config)
            raise ValueError(
                f"name must be a new collection, got {name!r}, which exists: open it by QdrantSearch, or delete it by "
                "client.delete_collection."
            )
        nearest = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
        size, distance = state.embeddings.dimension, models.Distance.DOT  # for cosines, embeddings have length 1
        dense = models.VectorParams(size=size, distance=distance, multivector_config=nearest)
        client.create_collection(
            name,
            vectors_config={"dense": dense},
            sparse_vectors_config={"bm25": models.SparseVectorParams(modifier=models.Modifier.IDF)},
            metadata={_OURS: _UNFINISHED},
            **options,
        )
    _upload(client, name, state.documents, state.passages, state.embeddings.whole(), settings)
    with _errors_of(name):
        client.update_collection(name, metadata={_OURS: settings.to_json()})
    return QdrantSearch(client, name, encoder.model, batch_size=encoder.batch_size)


def _upload(
    client: QdrantClient,
    name: str,
    documents: Sequence[Document],
    passages: Passages,
    embeddings: Floats,
    settings: CollectionSettings,
) -> None:
    """Write N documents with their P passages and the embeddings (P, D) of these."""
    places = places_in_texts(documents, passages)
    rows = np.split(embeddings, passages.first[1:-1]) if documents else []
    points = ([_point(*parts, settings)] for parts in zip(documents, places, rows, strict=True))
    with _errors_of(name):
        for batch in _batches(points):
            client.upload_points(name, batch, batch_size=len(batch), wait=True)


def _batches(groups: Iterable[list[Any]]) -> Iterator[list[Any]]:
    """Yield points or changes in lists for a request each; those of a group stay together."""
    batch: list[Any] = []
    size = 0
    for group in groups:
        characters = sum(len(one.model_dump_json()) for one in group)
        if batch and size + characters > _MOST_CHARACTERS:
            yield batch
            batch, size = [], 0
        batch += group
        size += characters
    if batch:
        yield batch


def _check_finished(name: str, config: Any) -> None:
    """Check that all documents were written to a collection that is ours.

    Raises:
        ValueError: if they were not.
    """
    if (getattr(config, "metadata", None) or {}).get(_OURS) == _UNFINISHED:
        raise ValueError(
            f"name must be a collection that HybridSearch.to_qdrant made, got {name!r}, to which not all documents are "
            "written: wait for it, or delete it by client.delete_collection if that was stopped, and make it again."
        )


def point_id(key: Id) -> str:
    """Return the id of the point that holds a document: 7 and "7" are two documents."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{type(key).__name__} {key}"))


@contextmanager
def _errors_of(name: str) -> Iterator[None]:
    """Raise an OSError of one line where the client says that the server refused, or did not answer."""
    from grpc import RpcError
    from qdrant_client.common.client_exceptions import QdrantException
    from qdrant_client.http.exceptions import ApiException

    try:
        yield
    except (ApiException, QdrantException, RpcError, KeyError) as error:  # the last of local mode: no such point
        words = " ".join(str(error).split())
        raise OSError(
            f"Qdrant must do what it is asked for the collection {name!r}, got {type(error).__name__}: {words}"
        ) from error


def _check_client(client: Any) -> Any:
    from qdrant_client import QdrantClient

    return check_instance("client", client, QdrantClient)


def _check_name(name: Any) -> str:
    if not isinstance(name, str) or is_blank(name):
        raise ValueError(f"name must be the name of a collection, got {shown(name)}.")
    return name


def _check_metadata(documents: Sequence[Document]) -> None:
    """Check that payloads can hold the metadata of documents.

    Raises:
        ValueError: if they cannot.
    """
    for document in documents:
        for field, value in document.metadata.items():
            if field == _DOCUMENT:
                raise ValueError(
                    f"documents must have no metadata named {_DOCUMENT!r}, which holds the document in a payload, got "
                    f"one in {shown(document.id)}."
                )
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise ValueError(
                    f"documents must have numbers in their metadata that a payload can hold, of at most 64 bits, got "
                    f"{shown(value)} as {field!r} of {shown(document.id)}."
                )


def _check_sizes(documents: Sequence[Document], passages: Passages, settings: CollectionSettings) -> None:
    """Check that Qdrant can hold the embeddings of each document.

    Raises:
        ValueError: if it cannot.
    """
    most = (_MOST_NUMBERS - 1) // settings.encoder.probes.shape[1]
    for document, count in zip(documents, np.diff(passages.first).tolist(), strict=True):
        if count > most:
            raise ValueError(
                f"documents must have at most {counted(most, 'passage')}, which is what Qdrant holds of one, got "
                f"{count:,} in {shown(document.id)}: give it in parts."
            )


def _column(word: str) -> int:
    """Return the place of a word in the sparse vectors: 32 bits of its digest, so that no vocabulary is kept."""
    return int.from_bytes(blake2b(word.encode(), digest_size=4).digest(), "little")


def _point(document: Document, spans: list[Span], embeddings: Floats, settings: CollectionSettings) -> Any:
    """Return the point of a document; without a side that has nothing to compare, which then does not find it."""
    from qdrant_client import models

    words = search_words(document.full_text, settings.language, singles=True)
    counts = Counter(map(_column, words))
    norm = length_norm(len(words), settings.mean_length)
    vectors: dict[str, Any] = {}
    if embeddings.any():
        vectors["dense"] = embeddings.tolist()
    if counts:
        values = [count / (count + norm) for count in counts.values()]
        vectors["bm25"] = models.SparseVector(indices=[*counts], values=values)
    return models.PointStruct(id=point_id(document.id), vector=vectors, payload=_payload(document, spans))


def _new_metadata(document: Document, earlier: Document) -> list[models.SetPayloadOperation]:
    """Return what changes the metadata of a document in Qdrant.

    The text, the passages and the vectors stay as they are, since another process may have changed them together.
    """
    from qdrant_client import models

    payload = _payload(document, [])
    dates = {"dates": payload.pop(_DOCUMENT)["dates"]}
    metadata = {**dict.fromkeys(earlier.metadata), **payload}  # Qdrant removes what is None
    point: list[models.ExtendedPointId] = [point_id(document.id)]
    return [
        models.SetPayloadOperation(set_payload=models.SetPayload(payload=dates, key=_DOCUMENT, points=point)),
        models.SetPayloadOperation(set_payload=models.SetPayload(payload=metadata, points=point)),
    ]


def _payload(document: Document, spans: list[Span]) -> dict[str, Any]:
    """Return the metadata of a document, each field under its own name, and under one name what the search needs."""
    kinds = {
        field: type(value).__name__ for field, value in document.metadata.items() if type(value) in (date, datetime)
    }
    metadata = {
        field: value.isoformat() if isinstance(value, date) else value for field, value in document.metadata.items()
    }
    own = {"id": document.id, "title": document.title, "text": document.text, "passages": [[*span] for span in spans]}
    return {**metadata, _DOCUMENT: {**own, "dates": kinds}}


def _document(payload: Any) -> tuple[Document, list[Span]]:
    """Return the document that a payload holds, and where its passages stand in its text.

    Raises:
        ValueError: if another program wrote it.
    """
    try:
        own = payload[_DOCUMENT]
        metadata = {
            field: _restored(value, own["dates"].get(field))
            for field, value in payload.items()
            if field != _DOCUMENT and value is not None  # gone, to a local mode before 1.20
        }
        spans = [(int(first), int(last)) for first, last in own["passages"]]
        return Document(own["id"], own["title"], own["text"], metadata), spans
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise ValueError(
            f"the collection must hold points that QdrantSearch wrote, got one with the payload {shown(payload)}."
        ) from error


def _restored(value: Any, kind: str | None) -> Scalar:
    """Return a value of a payload as the metadata had it; what another program has changed since, as it is."""
    try:
        restored: Scalar = _RESTORE[kind](value) if kind else value
    except (KeyError, TypeError, ValueError):
        return value  # type: ignore[no-any-return]
    return restored


def _requests(
    embedding: Floats,
    query: str,
    settings: CollectionSettings,
    top_k: int,
    where: models.Filter | None,
    *,
    exact: bool,
) -> list[models.QueryRequest]:
    """Return what to ask for the first documents of a query: these, and what BM25 gives them; nothing if it is empty.

    Each side suggests its first documents, then all of these are scored by both sides, and the sum ranks them.

    Args:
        embedding: (D,) of the query. If it is 0, BM25 alone suggests documents.
        query: its text. If it has no words, the encoder alone suggests documents.
        settings: of the collection.
        top_k: how many documents.
        where: which documents.
        exact: compare with all embeddings.
    """
    from qdrant_client import models

    count = max(FEWEST_CANDIDATES, top_k)
    words = Counter(map(_column, search_words(query, settings.language)))
    sides: dict[str, tuple[Any, float]] = {}
    if embedding.any():
        sides["dense"] = [embedding.tolist()], 1.0
    if words:
        sparse = models.SparseVector(indices=[*words], values=[float(times) for times in words.values()])
        sides["bm25"] = sparse, settings.bm25_weight
    if not sides:
        return []
    params = models.SearchParams(exact=True) if exact else None
    first = [
        models.Prefetch(query=vector, using=side, limit=count, filter=where, params=params)
        for side, (vector, _) in sides.items()
    ]
    scored = {
        side: models.Prefetch(prefetch=first, query=vector, using=side, limit=2 * count)
        for side, (vector, _) in sides.items()
    }
    scores = [f"$score[{place}]" for place in range(len(sides))]
    terms: list[Any] = [
        models.MultExpression(mult=[factor, score]) for score, (_, factor) in zip(scores, sides.values(), strict=True)
    ]
    formula = models.FormulaQuery(formula=models.SumExpression(sum=terms), defaults=dict.fromkeys(scores, 0.0))
    requests = [
        models.QueryRequest(
            prefetch=[*scored.values()], query=formula, limit=top_k, with_payload=True, with_vector=["dense"]
        )
    ]
    if words:
        requests.append(models.QueryRequest(prefetch=first, query=sides["bm25"][0], using="bm25", limit=2 * count))
    return requests


def _hit(point: Any, embedding: Floats, query: str, language: str | None, *, bm25: float) -> Hit:
    """Return a point that was found as the hit of a query with the embedding (D,)."""
    document, spans = _document(point.payload)
    rows = np.array((point.vector or {}).get("dense", np.zeros((1, len(embedding)))), dtype=np.float32)
    similarities = rows @ embedding
    best = int(similarities.argmax())
    return make_hit(
        document, spans[best], query, language, score=float(point.score), dense=float(similarities[best]), bm25=bm25
    )
