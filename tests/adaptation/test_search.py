"""``adapt_search``: what queries and documents become, what is compared, what is saved."""

import json
import random
import statistics
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Router

from st_extras.adaptation import adapt_search, search, search_transforms
from st_extras.adaptation.neighbors import write_searches
from st_extras.adaptation.run import AdaptationRun, Sample, sample_texts
from st_extras.adaptation.search import PseudoRelevanceComparison
from st_extras.adaptation.search_transforms import BOTH_SIDES, QUERIES_ALONE, both_sides
from st_extras.encoders.passages import PASSAGE_WORDS
from st_extras.evaluation import RetrievalEvaluator, RetrievalTask, compare_retrieval
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.ranking import first_documents
from st_extras.search import HybridSearch
from st_extras.text.term_weights import BM25, bm25_weight, character_tfidf
from tests.adaptation.test_search_comparison import QUERIES, texts
from tests.adaptation.texts import WORDS, quiet
from tests.helpers import differing, snapshot, some_fast

DOCUMENTS = texts(150, 8, seed=1)
JUDGED = RetrievalTask(
    {"not judged": "a cat"} | dict(zip("abcdefgh", QUERIES, strict=False)),
    {str(number): text for number, text in enumerate(DOCUMENTS)},
    {name: {str(number): 1.0 for number in range(at, 150, 8)} for at, name in enumerate("abcdefgh")},
)


SEED = 7
"""Not the default."""


def run(model: SentenceTransformer, folder: Path, queries: Any = QUERIES, **options: Any) -> Any:
    return adapt_search(model, DOCUMENTS, folder, queries=queries, **quiet(**({"seed": SEED} | options)))


def unit(model: SentenceTransformer, role: str, of: list[str]) -> np.ndarray:
    found = getattr(model, f"encode_{role}")(of, normalize_embeddings=True)
    return np.asarray(found)


def assert_routes_are_the_preferred_transform(folder: Path, *encoders: SentenceTransformer) -> SentenceTransformer:
    """Check the saved model against BOTH_SIDES[0] after the encoder, or after those of queries and documents."""
    of_queries, of_documents = encoders[0], encoders[-1]
    documents = sample_texts(DOCUMENTS, 12_000, SEED).texts
    base = unit(of_queries, "query", QUERIES), unit(of_documents, "document", documents)
    (routes,) = both_sides(documents, base, BOTH_SIDES[:1], SEED)
    expected = routes.after((unit(of_queries, "query", QUERIES), unit(of_documents, "document", DOCUMENTS)))
    loaded = SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(loaded.encode_query(QUERIES), expected[0], atol=1e-4)
    np.testing.assert_allclose(loaded.encode_document(DOCUMENTS), expected[1], atol=1e-4)
    return loaded


@pytest.fixture
def accepting(monkeypatch):
    """A comparison that finds nothing wrong: a random encoder's ranking says nothing about words.

    It is made all the same, of embeddings that were transformed.
    """
    compare = PseudoRelevanceComparison.compare

    def accept(self: Any, queries: np.ndarray, documents: np.ndarray) -> tuple[float, float]:
        gain, _ = compare(self, queries, documents)
        assert gain != 0
        for rows in (queries, documents):
            np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-4)
        return 0.0, 0.0

    monkeypatch.setattr(PseudoRelevanceComparison, "compare", accept)


@pytest.mark.parametrize(
    "options",
    [
        {"keep_index": 1}, {"dev": ["a"]}, {"queries": "what"}, {"passages": 3}, {"language": "xx"},
        {"queries": [*QUERIES, *DOCUMENTS[:41]]}, {"passages": True},
    ],
    ids=lambda options: f"{options}"[:30],
)  # fmt: skip
def test_a_refusal_leaves_nothing(still_encoder, tmp_path, options):
    with pytest.raises(ValueError, match=f"^{next(iter(options))} must"):
        run(still_encoder, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("documents", "queries", "reason"),
    [
        (DOCUMENTS[:99], QUERIES, "100 different documents are needed, got 99."),
        (DOCUMENTS, QUERIES[:19] * 2, "20 different queries are needed, got 19."),
        (DOCUMENTS, None, "the documents are too short to make queries of: most have a single sentence"),
        (DOCUMENTS, QUERIES, "sentences must have at least 50 different embeddings"),
    ],
    ids=["documents", "queries", "sentences", "embeddings"],
)
def test_too_little_text_leaves_the_encoder_unchanged(still_encoder, tmp_path, documents, queries, reason):
    """As ``adapt`` does: a script over many collections goes on, and each has an encoder."""
    words = PASSAGE_WORDS
    if "embeddings" in reason:
        still_encoder.max_seq_length, words = 3, None  # reads one word, of few different ones
    found = adapt_search(still_encoder, documents, tmp_path, queries=queries, passages=words, **quiet())
    assert found.reason.startswith(f"Left unchanged: {reason}")
    assert (found.chosen, found.model, found.texts.read) == (None, still_encoder, len(documents))
    expected = HybridSearch(still_encoder, documents, queries=queries, passages=words).bm25_weight
    assert found.details.bm25_weight == pytest.approx(expected, rel=1e-4), "given queries find it all the same"
    loaded = SentenceTransformer(str(tmp_path), device="cpu")
    np.testing.assert_array_equal(loaded.encode(DOCUMENTS[:3]), still_encoder.encode(DOCUMENTS[:3]))


def test_a_hundred_documents_and_twenty_queries_are_enough(still_encoder, tmp_path):
    found = adapt_search(still_encoder, DOCUMENTS[:100], tmp_path, queries=QUERIES[:20], **quiet())
    assert (len(found.candidates), found.details.compared) == (3, 20)


def test_keep_index_is_refused_before_all_documents_are_encoded(still_encoder, tmp_path, monkeypatch):
    """To encode all of them may be hours of work."""
    still_encoder.similarity_fn_name = "dot"
    monkeypatch.setattr(search, "PART", 100, raising=False)
    encoded: list[int] = []
    encode = AdaptationRun.encode
    monkeypatch.setattr(AdaptationRun, "encode", lambda *a, **k: encoded.append(len(a[1])) or encode(*a, **k))
    with pytest.raises(ValueError, match=r"^keep_index must be False"):
        run(still_encoder, tmp_path / "out", keep_index=True)
    assert encoded == [100]


@pytest.mark.parametrize(
    ("length", "refused"), [(0.98, True), (0.995, False), (0, False), (1.005, False), (1.02, True)]
)
def test_documents_of_another_length_than_one_are_not_kept_for_dot_products(length, refused):
    rows = torch.eye(4).double()
    rows[2] *= length
    with pytest.raises(ValueError, match=r"^keep_index must be False") if refused else nullcontext():
        search._check_lengths(rows)


# --- the transforms ---


@pytest.mark.parametrize("fitted", [10_000, 75])
def test_transforms_are_the_equation(still_encoder, monkeypatch, fitted):
    monkeypatch.setattr(search_transforms, "_FIT_TEXTS", fitted)
    base = unit(still_encoder, "query", QUERIES), unit(still_encoder, "document", DOCUMENTS)
    found = neighbor_directions(
        torch.from_numpy(base[1][:fitted]), tfidf=character_tfidf(DOCUMENTS[:fitted], 0.1), seed=0
    )
    kernel = found.kernel(recolor=0.0)
    covariance = (found.axes * found.variances) @ found.axes.T
    kernel *= (covariance.trace() / (kernel.T @ covariance @ kernel).trace()).sqrt()
    share = 0.5 * 150 / 1150
    matrix = (1 - share) * torch.eye(16, dtype=torch.float64) + share * kernel
    m_q, m_d = (side.astype(np.float64).mean(axis=0) for side in base)
    means = {"own means": 1.0, "halfway means": 0.5, "one mean": 0.0}
    assert [one.name for one in BOTH_SIDES] == [f"half whitening with {name}" for name in means]
    quarter = [(one.name.replace("quarter", "half"), one.strength, one.own_mean) for one in QUERIES_ALONE]
    assert quarter == [(one.name, 0.25, one.own_mean) for one in BOTH_SIDES]
    for one, routes in zip(BOTH_SIDES, both_sides(DOCUMENTS, base, BOTH_SIDES, 0), strict=True):
        own_mean = means[one.name.removeprefix("half whitening with ")]
        queries, documents = routes.after(base)
        for row in range(5):
            query = (base[0][row] - m_d - own_mean * (m_q - m_d)) @ matrix.numpy()
            np.testing.assert_allclose(queries[row], query / np.linalg.norm(query), atol=1e-4)
            document = (base[1][row] - m_d) @ matrix.numpy()
            np.testing.assert_allclose(documents[row], document / np.linalg.norm(document), atol=1e-4)


@pytest.mark.parametrize(
    ("keep_index", "strength"), some_fast([(False, "half"), (True, "quarter")], [(True, "quarter")])
)
def test_queries_made_from_documents_get_no_mean_of_their_own(still_encoder, tmp_path, accepting, keep_index, strength):
    sentences = texts(300, 8, seed=1)
    documents = [f"{first}. {second}!" for first, second in zip(sentences[::2], sentences[1::2], strict=True)]
    found = adapt_search(still_encoder, documents, tmp_path, keep_index=keep_index, **quiet())
    assert (found.chosen, len(found.candidates)) == (f"{strength} whitening with one mean", 1)
    assert found.details.made_from_documents
    assert "queries made from them" in (tmp_path / "README.md").read_text()


# --- what is compared ---


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_the_base_model_is_compared_as_it_searches(still_encoder, tmp_path, monkeypatch, similarity):
    """By dot product, lengths count: those of its documents differ. Texts and embeddings are in one order."""
    given: list[Any] = []
    original = PseudoRelevanceComparison.__init__

    def init(self: Any, index: Any, queries: list[str], base: tuple[np.ndarray, np.ndarray], *passages: Any) -> None:
        given.extend([queries, sample_texts(DOCUMENTS, 12_000, SEED).texts, *base])
        original(self, index, queries, base, *passages)

    firsts: list[Any] = []
    monkeypatch.setattr(PseudoRelevanceComparison, "__init__", init)
    monkeypatch.setattr(PseudoRelevanceComparison, "compare", lambda *_: (0.0, 0.0))
    monkeypatch.setattr(search, "first_documents", lambda *both: firsts.append(both) or first_documents(*both))
    still_encoder.similarity_fn_name = similarity
    still_encoder.prompts = {"query": "the dog ", "document": "a cat "}
    run(still_encoder, tmp_path / "out")
    assert given[0] == random.Random(0).sample(sorted(QUERIES), len(QUERIES))
    assert all(map(np.array_equal, firsts[0], given[2:]))  # searches.md shows what the base model finds
    for sampled, found, encode in zip(given[:2], given[2:], ("encode_query", "encode_document"), strict=True):
        expected = torch.tensor(getattr(still_encoder, encode)(sampled))
        expected = expected if similarity == "dot" else expected / expected.norm(dim=1, keepdim=True)
        np.testing.assert_allclose(found, expected, atol=1e-5)


LONG = [" ".join(random.Random(i).choices(WORDS, k=30)) if i % 3 else text for i, text in enumerate(DOCUMENTS[:120])]
"""Of which two in three are longer than the encoder reads; none shares a passage with another."""


def pieces_of(text: str, words: int = 8) -> list[str]:
    """The passages of a text, each of which shares a quarter with the next; a text that the encoder reads is one."""
    found = text.split()
    if len(found) + 2 <= 16:
        return [text]
    starts = [*range(0, len(found) - words, 3 * words // 4), len(found) - words]
    return [" ".join(found[start : start + words]) for start in starts]


def loop_of_gains(model: SentenceTransformer, candidates: int, language: str | None) -> list[tuple[float, float]]:
    """The gain of each candidate on long documents and its standard error, as plain loops.

    The average precision with which BM25's first five documents are found by their best passages.
    """
    documents = sample_texts(LONG, 12_000, SEED).texts
    cut = [pieces_of(text) for text in documents]
    pieces = [piece for one in cut for piece in one]
    starts = np.cumsum([len(one) for one in cut])[:-1]
    base = unit(model, "query", QUERIES), unit(model, "document", pieces)
    wanted = [
        [number for number in np.argsort(-scores, kind="stable")[:5].tolist() if scores[number] > 0]
        for scores in BM25(documents, language).scores(QUERIES)
    ]

    def precisions(queries: np.ndarray, passages: np.ndarray) -> np.ndarray:
        found = []
        for query, relevant in zip(queries, wanted, strict=True):
            scores = [float(max(of_document)) for of_document in np.split(passages @ query, starts)]
            order = sorted(range(len(documents)), key=lambda number: -scores[number])
            places = sorted(order.index(number) + 1 for number in relevant)
            found.append(sum(count / place for count, place in enumerate(places, start=1)) / len(places))
        return np.array(found)

    before = precisions(*base)
    changes = [precisions(*one.after(base)) - before for one in both_sides(pieces, base, BOTH_SIDES[:candidates], SEED)]
    return [(float(one.mean()), statistics.stdev(one.tolist()) / len(one) ** 0.5) for one in changes]


@pytest.mark.parametrize("language", some_fast([None, "english"], ["english"]))
def test_gains_are_those_of_the_best_passages_of_long_documents(still_encoder, tmp_path, language):
    """What is compared, in which order and how it is chosen, without a stand-in."""
    settings = quiet(seed=SEED, queries=QUERIES, passages=8, language=language)
    found = adapt_search(still_encoder, LONG, tmp_path, **settings)
    expected = loop_of_gains(still_encoder, len(BOTH_SIDES), language)
    assert [one.name for one in found.candidates] == [one.name for one in BOTH_SIDES]
    for one, (gain, error) in zip(found.candidates, expected, strict=True):
        interval = pytest.approx((gain, gain - 1.96 * error, gain + 1.96 * error), abs=1e-4)
        assert (one.gain, one.low, one.high) == interval
    assert len({round(gain, 4) for gain, _ in expected}) == len(expected)
    allowed = [one.name for one, (gain, error) in zip(BOTH_SIDES, expected, strict=True) if gain >= -error]
    assert found.chosen == (allowed[0] if allowed else None)


def test_documents_of_judgements_are_cut_too(still_encoder, tmp_path):
    """nDCG@10 of the base model is that of the evaluator, which cuts them likewise, each side with its prompt."""
    still_encoder.prompts = {"query": "the dog ", "document": "a cat "}
    judged = RetrievalTask(
        dict(zip("abcdefgh", QUERIES, strict=False)),
        {str(number): text for number, text in enumerate(LONG)},
        {name: {str(number): 1.0 for number in range(at, len(LONG), 8)} for at, name in enumerate("abcdefgh")},
    )
    found = adapt_search(still_encoder, LONG, tmp_path, **quiet(seed=SEED, queries=QUERIES, dev=judged, passages=6))
    cut, *others = (
        100 * compare_retrieval(judged, [("base", still_encoder)], passages=words).rows["base"]["ndcg@10"]
        for words in (6, PASSAGE_WORDS, None)
    )
    assert found.details.dev == pytest.approx(cut, abs=1e-3)
    assert [other for other in others if other == pytest.approx(cut, abs=0.1)] == []
    best = max(found.candidates, key=lambda one: one.gain)
    assert [(one.accepted, one.low, one.high) for one in found.candidates] == [
        (one.gain > 0, None, None) for one in found.candidates
    ]
    assert (found.chosen, found.details.compared) == (best.name if best.gain > 0 else None, None)
    documents = sample_texts(LONG, 12_000, SEED).texts
    pieces = [piece for text in documents for piece in pieces_of(text, 6)]
    base = unit(still_encoder, "query", QUERIES), unit(still_encoder, "document", pieces)
    of_judged = [piece for text in LONG for piece in pieces_of(text, 6)]
    sides = unit(still_encoder, "query", QUERIES[:8]), unit(still_encoder, "document", of_judged)
    starts = np.cumsum([len(pieces_of(text, 6)) for text in LONG])[:-1]
    evaluator = RetrievalEvaluator(judged)
    for one, routes in zip(found.candidates, both_sides(pieces, base, BOTH_SIDES, SEED), strict=True):
        queries, passages = routes.after(sides)
        scores = [part.max(axis=1) for part in np.split(queries @ passages.T, starts, axis=1)]
        hits = evaluator.rank(np.stack(scores, axis=1))
        assert one.gain == pytest.approx(100 * evaluator.compute_metrics(hits)["ndcg@k"][10] - cut, abs=1e-2), one.name


def test_too_few_queries_that_share_a_word(still_encoder, tmp_path):
    found = run(still_encoder, tmp_path, queries=[*(f"zz{number} qq{number}" for number in range(30)), *QUERIES[:19]])
    assert (found.chosen, found.details.compared) == (None, 19)
    assert found.model is still_encoder
    none = run(still_encoder, tmp_path / "none", queries=[])
    assert none.reason == "Left unchanged: 20 different queries are needed, got 0."
    assert (none.details.made_from_documents, none.details.bm25_weight) == (False, None)


@pytest.mark.parametrize(("dev", "chosen"), [(JUDGED, 1), (None, 0)])
def test_judgements_choose_the_best_and_without_them_the_first_that_does_no_harm(
    still_encoder, tmp_path, monkeypatch, dev, chosen
):
    gains, rows = iter([1.0, 3.0, 2.0]), np.eye(16, dtype=np.float32)
    monkeypatch.setattr(search, "judge", lambda *_: (lambda *after: 50 + next(gains), 50.0, (rows, rows)))
    monkeypatch.setattr(PseudoRelevanceComparison, "compare", lambda *_: (next(gains), 0.1))
    found = run(still_encoder, tmp_path, dev=dev)
    assert [one.gain for one in found.candidates] == [1.0, 3.0, 2.0]
    assert found.chosen == BOTH_SIDES[chosen].name


@pytest.mark.slow
def test_judgements_are_those_of_the_evaluator(still_encoder, tmp_path):
    still_encoder.similarity_fn_name = "dot"
    found = run(still_encoder, tmp_path, dev=JUDGED)
    evaluator = RetrievalEvaluator(JUDGED)
    base = 100 * evaluator(still_encoder)["dot_ndcg@10"]
    assert found.details.dev == pytest.approx(base)
    after = 100 * evaluator(found.model)["dot_ndcg@10"]
    gains = [0.0 if found.chosen is None else found.chosen_result.gain, *(one.gain for one in found.candidates)]
    assert (after - base, gains[0]) == (pytest.approx(gains[0], abs=1e-3), max(0, *gains))


# --- what is saved ---


def test_the_result_is_stock_and_each_side_has_its_route(still_encoder, tmp_path, accepting):
    still_encoder.append(Normalize())
    before = snapshot(still_encoder)
    found = run(still_encoder, tmp_path)
    assert found.chosen == BOTH_SIDES[0].name
    assert not differing(before, snapshot(still_encoder))
    assert not [path for path in tmp_path.rglob("*.json") if "st_extras" in path.read_text()]
    assert len([path for path in tmp_path.rglob("*.safetensors") if path.stat().st_size > 2**14]) == 1
    loaded = assert_routes_are_the_preferred_transform(tmp_path, still_encoder)
    np.testing.assert_array_equal(loaded.encode(DOCUMENTS), loaded.encode_document(DOCUMENTS))
    assert np.abs(loaded.encode_query(QUERIES) - loaded.encode_document(QUERIES)).max() > 0.01
    base, after = (
        first_documents(unit(model, "query", QUERIES), unit(model, "document", DOCUMENTS), 1)
        for model in (still_encoder, loaded)
    )
    changed = int((after[:, 0] != base[:, 0]).sum())
    assert (found.details.changed, found.details.queries, found.details.compared) == (changed / 40, 40, 40)
    assert (tmp_path / "searches.md").read_text().count("**Query:**") == min(20, changed) > 3


@pytest.mark.parametrize(("similarity", "gain"), [("cosine", 0.0), ("dot", -1.0)])
def test_the_weight_of_bm25_is_that_of_the_saved_model(still_encoder, tmp_path, monkeypatch, similarity, gain):
    """Whether a candidate was chosen or none."""
    still_encoder.similarity_fn_name = similarity
    monkeypatch.setattr(PseudoRelevanceComparison, "compare", lambda self, queries, documents: (gain, 0.1))
    monkeypatch.setattr("st_extras.functional._SCORES", 3000)
    found = run(still_encoder, tmp_path)
    assert (found.chosen is None) == found.reason.startswith("Left unchanged: each candidate") == (gain < 0)
    loaded = SentenceTransformer(str(tmp_path), device="cpu")
    dense = loaded.similarity(loaded.encode_query(QUERIES), loaded.encode_document(DOCUMENTS))
    weight = bm25_weight(dense, BM25(DOCUMENTS).scores(QUERIES))
    assert found.details.bm25_weight == pytest.approx(weight, rel=1e-4)
    assert json.loads((tmp_path / "adaptation.json").read_text())["details"]["bm25_weight"] == pytest.approx(weight)
    assert (f"cosine + {weight:.4g} x BM25" in (tmp_path / "README.md").read_text()) == (gain == 0)
    assert (tmp_path / "searches.md").exists() == (gain == 0)


def test_the_weight_is_the_one_that_search_finds_of_long_documents(still_encoder, tmp_path, accepting, caplog):
    """A number of one's collection, whichever finds it: whole documents have another one."""
    weights = {}
    for words in (8, None):
        out = tmp_path / str(words)
        found = adapt_search(still_encoder, LONG, out, queries=QUERIES, passages=words, **quiet())
        assert (found.chosen, found.texts.used) == (BOTH_SIDES[0].name, len({*LONG}))
        weights[words] = found.details.bm25_weight
        assert ("documents are longer than the 16 tokens" in caplog.text) == (words is None)
        hybrid = HybridSearch(found.model, LONG, queries=QUERIES, passages=words)
        assert hybrid.bm25_weight == pytest.approx(weights[words], rel=1e-4)
        firsts = [
            [
                hits[0]["corpus_id"]
                for hits in HybridSearch(model, LONG, passages=words, bm25_weight=0).search(QUERIES, 1)
            ]
            for model in (still_encoder, found.model)
        ]
        assert found.details.changed == sum(a != b for a, b in zip(*firsts, strict=True)) / len(QUERIES)
    assert weights[8] != pytest.approx(weights[None], rel=2e-3)


def test_documents_that_were_encoded_in_part_are_left_out(still_encoder):
    """And passages of unknown words, to which a table of words gives 0."""
    documents = [text for text in LONG if len(pieces_of(text)) > 1][:4]
    counts = [len(pieces_of(text)) for text in documents]
    rows = torch.ones(sum(counts[:3]) + 1, 16, dtype=torch.float64)  # the time ended within the last document
    rows[1] = 0
    given: Any = SimpleNamespace(
        model=still_encoder, encode=lambda texts, *_, **__: rows[: len(texts)], encode_sample=lambda *_, **__: rows
    )
    found = search.encode_collection(given, Sample(documents, 9), ["q"], 8, None, keep_index=False)
    pieces = [piece for text in documents[:3] for piece in pieces_of(text)]
    assert (found.documents, found.passage_texts) == (documents[:3], [pieces[0], *pieces[2:]])
    assert np.diff(found.passages.first).tolist() == [counts[0] - 1, *counts[1:3]]
    assert found.embeddings[1].shape == found.unit_embeddings[1].shape == (sum(counts[:3]) - 1, 16)
    summary = found.summary
    assert (summary.read, summary.sampled, summary.encoded, summary.used) == (9, 4, 3, 3)


def test_with_keep_index_stored_documents_stay(still_encoder, tmp_path, monkeypatch):
    """The equation of queries_alone, with its slope from a least-squares problem, of the first 120 documents."""
    monkeypatch.setattr(search_transforms, "_FIT_TEXTS", 120)
    gains = iter([(-1.0, 0.1), (0.0, 0.1), (0.5, 0.1)])
    monkeypatch.setattr(PseudoRelevanceComparison, "compare", lambda self, queries, documents: next(gains))
    found = run(still_encoder, tmp_path, keep_index=True)
    assert found.chosen == QUERIES_ALONE[1].name
    stored = unit(still_encoder, "document", DOCUMENTS)
    np.testing.assert_allclose(found.model.encode_document(DOCUMENTS), stored, atol=1e-6)
    texts = sample_texts(DOCUMENTS, 12_000, SEED).texts
    base = unit(still_encoder, "query", QUERIES), unit(still_encoder, "document", texts)
    (both,) = both_sides(texts, base, QUERIES_ALONE[1:2], SEED)
    (matrix, of_queries), (_, of_documents) = (
        [part.numpy() for part in side] for side in (both.queries, both.documents)
    )
    documents = base[1][:120]
    moved, rows = documents @ matrix + of_documents, documents - documents.mean(axis=0)
    lengths = np.linalg.norm(moved, axis=1)
    ridge = (0.1 * (rows**2).sum() / 16) ** 0.5 * np.eye(16)
    slope = np.linalg.lstsq(np.vstack([rows, ridge]), [*(lengths - lengths.mean()), *[0] * 16], rcond=None)[0]
    scores = np.sort((base[0] @ matrix + of_queries) @ (moved / lengths[:, None]).T, axis=1)[:, -5:]
    queries = unit(still_encoder, "query", QUERIES) @ matrix + of_queries
    queries = queries @ matrix.T - scores.mean() * slope
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    np.testing.assert_allclose(found.model.encode_query(QUERIES), queries, atol=1e-4)


@pytest.mark.slow
def test_an_encoder_for_queries_and_another_for_documents(make_encoder, tmp_path, accepting):
    sides = [list(make_encoder(dropout=0.0, seed=seed)) for seed in (0, 1)]
    router = Router(dict(zip(("query", "document"), sides, strict=True)), default_route="query")
    run(SentenceTransformer(modules=[router, Normalize()], device="cpu"), tmp_path)
    encoders = [SentenceTransformer(modules=side, device="cpu") for side in sides]
    loaded = assert_routes_are_the_preferred_transform(tmp_path, *encoders)
    np.testing.assert_array_equal(loaded.encode(DOCUMENTS), loaded.encode_document(DOCUMENTS))
    assert router.default_route == "query"


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_texts_without_an_embedding_are_left_out(still_encoder, tmp_path, monkeypatch, accepting, similarity):
    still_encoder.append(Normalize())
    still_encoder.similarity_fn_name = similarity

    def some_zero(*given: Any, original: Any = AdaptationRun.encode, **options: Any) -> Any:
        embeddings = original(*given, **options)
        embeddings[:2] = 0
        return embeddings

    monkeypatch.setattr(AdaptationRun, "encode", some_zero)
    found = run(still_encoder, tmp_path, keep_index=True)
    assert found.chosen is not None
    assert (found.texts.used, found.details.queries) == (len(set(DOCUMENTS)) - 2, len(QUERIES) - 2)
    assert f"from {found.texts.used} documents" in (tmp_path / "README.md").read_text()


def test_prompts_by_other_names_are_saved_by_the_usual_ones(make_encoder, tmp_path, accepting):
    model = make_encoder(dropout=0.0)
    model.prompts = {"search_query": "the dog ", "query": "", "document": ""}
    run(model, tmp_path)
    assert SentenceTransformer(str(tmp_path), device="cpu").prompts["query"] == "the dog "
    assert model.prompts["query"] == ""


def test_encoders_that_are_refused(still_encoder, tmp_path):
    for name, missing in (("left", r"'document', 'query'"), ("query", "'document'"), ("document", "'query'")):
        one = SentenceTransformer(modules=[Router({name: list(still_encoder)}, default_route=name)], device="cpu")
        with pytest.raises(ValueError, match=rf"^model must have the routes .* got '{name}': no \[{missing}\]\.$"):
            run(one, tmp_path / "out")
    for similarity, argument in (("manhattan", r"model\.similarity_fn_name"), ("dot", "keep_index")):
        still_encoder.similarity_fn_name = similarity
        with pytest.raises(ValueError, match=f"^{argument} must be"):
            run(still_encoder, tmp_path / "out", keep_index=True)
    assert not (tmp_path / "out").exists()


# --- settings ---


def test_every_setting_reaches_what_it_is_for(still_encoder, tmp_path, accepting, capfd):
    """A run beside its parts, called one by one with these settings."""
    rows: list[int] = []
    still_encoder[0].register_forward_pre_hook(lambda _, given: rows.append(len(given[0]["input_ids"])))
    settings = {"seed": SEED, "batch_size": 5, "limit": 777, "minutes": 50, "language": "english"}
    found = run(still_encoder, tmp_path, **settings)
    assert (max(rows), "Encoding" in capfd.readouterr().err) == (5, False)
    assert (found.texts.sampled, found.cut_short) == (len(DOCUMENTS), None)
    documents = sample_texts(DOCUMENTS, 777, SEED).texts
    queries = random.Random(0).sample(sorted(QUERIES), len(QUERIES))
    before, after = (
        (unit(model, "query", queries), unit(model, "document", documents)) for model in (still_encoder, found.model)
    )
    weight = bm25_weight(torch.from_numpy(after[0] @ after[1].T), BM25(documents, "english").scores(queries))
    assert found.details.bm25_weight == pytest.approx(weight, rel=1e-3)
    assert found.details.bm25_weight != pytest.approx(
        bm25_weight(torch.from_numpy(after[0] @ after[1].T), BM25(documents).scores(queries)), rel=1e-3
    )
    firsts = [torch.from_numpy(first_documents(*side, 3)) for side in (before, after)]
    assert not torch.equal(*firsts)
    (tmp_path / "expected").mkdir()
    write_searches(tmp_path / "expected", queries, documents, *firsts, SEED)
    expected, shown = ((folder / "searches.md").read_text() for folder in (tmp_path / "expected", tmp_path))
    assert shown.splitlines()[2] == expected.splitlines()[2]
    asked = [[line for line in page.splitlines() if line.startswith("**Query")] for page in (expected, shown)]
    assert asked[0] == asked[1]
    by_stems = f'cosine + {found.details.bm25_weight:.4g} x BM25 with language="english".'
    assert f"from {len(DOCUMENTS)} documents and 40 queries" in (tmp_path / "README.md").read_text()
    assert by_stems in (tmp_path / "README.md").read_text()
    assert "he2003locality" in (tmp_path / "README.md").read_text()
    assert (found.details.made_from_documents, found.details.dev) == (False, None)


def test_queries_and_judged_documents_are_encoded_whatever_the_time(still_encoder, tmp_path, monkeypatch, capfd):
    """Each batch takes a second; the documents have 60 % of 4 of them, one of which the queries take."""
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr("st_extras.adaptation.run.PART", 50)

    def tick(*_: Any) -> None:
        clock[0] += 1

    still_encoder[0].register_forward_pre_hook(tick)
    options = {"minutes": 4 / 60, "batch_size": 50, "dev": JUDGED, "show_progress_bar": True}
    found = run(still_encoder, tmp_path, **options)
    assert (found.texts.sampled, found.texts.encoded, found.details.queries) == (150, 100, 40)
    assert found.cut_short == "Cut short by its minutes: 100 of 150 texts were encoded."
    evaluator = RetrievalEvaluator(JUDGED)
    assert found.details.dev == pytest.approx(100 * evaluator(still_encoder)["cosine_ndcg@10"])
    shown = capfd.readouterr().err
    for label in ("Encoding queries:", "Encoding documents:", "Encoding judged queries:", "Encoding judged documents:"):
        assert label in shown


def test_a_weight_is_that_of_all_documents_or_none(still_encoder, tmp_path, accepting):
    """HybridSearch over all of them finds another one than over the sample."""
    found = adapt_search(still_encoder, [*DOCUMENTS, DOCUMENTS[0]], tmp_path, queries=QUERIES, **quiet())
    assert (found.chosen, found.details.bm25_weight) == (BOTH_SIDES[0].name, None)
    assert "BM25" not in (tmp_path / "README.md").read_text().partition("st-extras adapt-search")[2].partition("\n")[0]
