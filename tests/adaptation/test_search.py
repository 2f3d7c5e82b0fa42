"""``adapt`` for search: what queries and documents become, what the judge refuses, what is saved."""

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Router
from torch.nn.functional import normalize

from st_extras.adaptation import Adapted, adapt, search, search_judge
from st_extras.adaptation import encode as encoding
from st_extras.adaptation.report import write_searches
from st_extras.adaptation.search import BOTH_SIDES, QUERIES_ALONE, Routes, judged_row, propose_both_sides, routed
from st_extras.adaptation.search_judge import (
    JudgedQueries,
    PseudoRelevanceComparison,
    Searched,
    drawn_queries,
    first_documents,
)
from st_extras.encoders import load_encoder
from st_extras.evaluation import LabeledTexts, RetrievalEvaluator, RetrievalTask
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.text.term_weights import BM25, character_tfidf
from tests.fixtures import SENTENCES
from tests.helpers import differing, snapshot

pytestmark = pytest.mark.slow

WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})


def texts(count: int, words: int, seed: int) -> list[str]:
    drawn, found = random.Random(seed), {}
    while len(found) < count:
        found[" ".join(drawn.choices(WORDS, k=words))] = None
    return list(found)


DOCUMENTS = texts(300, 8, seed=1)
QUERIES = texts(40, 3, seed=2)


JUDGED = RetrievalTask(
    {"not judged": "a cat"} | dict(zip("abcdefgh", QUERIES, strict=False)),
    {str(number): text for number, text in enumerate(DOCUMENTS)},
    {name: {str(number): 1.0 for number in range(at, 300, 8)} for at, name in enumerate("abcdefgh")},
)


def run(model: SentenceTransformer, folder: Path, queries: Any = QUERIES, **options: Any) -> Adapted:
    return adapt(model, DOCUMENTS, folder, queries=queries, show_progress_bar=False, **options)


def unit(model: SentenceTransformer, role: str, of: list[str]) -> np.ndarray:
    found = getattr(model, f"encode_{role}")(of)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def expected(*encoders: SentenceTransformer) -> tuple[np.ndarray, np.ndarray]:
    """What the preferred step makes of QUERIES and DOCUMENTS, in their order."""
    asked, documents = encoding.drawn_texts(QUERIES, 12_000, 42)[0], encoding.drawn_texts(DOCUMENTS, 12_000, 42)[0]
    sides = (encoders[0], "query"), (encoders[-1], "document")
    start = tuple(torch.tensor(unit(*side, of)) for side, of in zip(sides, (asked, documents), strict=True))
    step = propose_both_sides(Searched(documents, asked), start, BOTH_SIDES, 42)[0]  # type: ignore[arg-type]
    given = tuple(torch.tensor(unit(*side, of)) for side, of in zip(sides, (QUERIES, DOCUMENTS), strict=True))
    queries, found = step.after(given)  # type: ignore[arg-type]
    return queries.numpy(), found.numpy()


@pytest.fixture
def accepting(monkeypatch):
    """A judge that finds nothing wrong: a random encoder's ranking says nothing about words."""
    monkeypatch.setattr(PseudoRelevanceComparison, "compare", lambda self, queries, documents: (0.0, 0.0))


# --- queries ---


def test_queries_are_different_texts_drawn_at_random():
    assert sorted(drawn_queries([*QUERIES, *QUERIES, " ", ""], DOCUMENTS, 0)[0]) == sorted(QUERIES)
    many = texts(2500, 4, seed=3)
    drawn, made = drawn_queries(many, DOCUMENTS, 0)
    assert (len(drawn), len(set(drawn)), made) == (2000, 2000, False)
    assert drawn != drawn_queries(many, DOCUMENTS, 1)[0]


def test_queries_are_made_of_sentences_of_documents():
    documents = [f"{first}. {second}! Yes." for first, second in zip(DOCUMENTS[::2], DOCUMENTS[1::2], strict=True)]
    made, said = drawn_queries("documents", documents, 0)
    assert said
    assert len(made) == 150
    assert all(any(text in document for document in documents) and len(text.split()) == 8 for text in made)
    chinese = [f"卡片{number}丢失怎么办。请立即挂失账户{number}！好的！" for number in range(100)]
    assert sorted({text[:2] for text in drawn_queries("documents", chinese, 0)[0]}) == ["卡片", "请立"]


@pytest.mark.parametrize(
    ("queries", "documents", "message"),
    [
        ("what", DOCUMENTS, 'queries must be a collection of texts or "documents"'),
        ([1] * 30, DOCUMENTS, "queries, row 0: expected a sentence, got 1"),
        (QUERIES[:19] * 2, DOCUMENTS, "queries must hold at least 20 different ones, got 19."),
        ("documents", DOCUMENTS, "too few documents have two sentences"),
        (DOCUMENTS[:21] + QUERIES[:19], DOCUMENTS, "queries must differ from the documents, but 21 of 40 are"),
        ([*QUERIES, "\ud800"], DOCUMENTS, "queries, row 40: a sentence must be valid text"),
        (QUERIES, DOCUMENTS[:99], "sentences must hold at least 100 different documents, got 99."),
    ],
)
def test_queries_that_cannot_be_used(queries, documents, message):
    with pytest.raises(ValueError, match=message):
        drawn_queries(queries, documents, 0)


def test_without_bm25s_nothing_is_encoded(
    still_encoder: SentenceTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(ImportError, match="BM25 needs bm25s"):
        run(still_encoder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queries": None, "keep_index": True}, "keep_index must be False without queries"),
        ({"train": True}, "train and max_general_loss must be left out with queries"),
        ({"dev": LabeledTexts(["a", "b"], ["c", "c"])}, "dev must be a RetrievalTask, as queries are given, or None"),
        ({"queries": None, "dev": JUDGED}, "dev must be an STSDataset, LabeledTexts or None"),
        ({"queries": QUERIES[:3]}, "at least 20"),
    ],
)
def test_a_refusal_leaves_nothing(still_encoder, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        run(still_encoder, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


# --- the steps ---


@pytest.mark.parametrize("fitted", [10_000, 150])
def test_steps_are_the_equation(still_encoder, monkeypatch, fitted):
    monkeypatch.setattr(search, "_FIT_TEXTS", fitted)
    start = (
        torch.tensor(unit(still_encoder, "query", QUERIES)),
        torch.tensor(unit(still_encoder, "document", DOCUMENTS)),
    )
    searched = Searched(DOCUMENTS, QUERIES)
    found = neighbor_directions(start[1][:fitted], words=character_tfidf(DOCUMENTS[:fitted], 0.1), seed=0)
    kernel = found.kernel(power=1.0, recolor=0.0)
    covariance = (found.axes * found.variances) @ found.axes.T
    kernel *= (covariance.trace() / (kernel.T @ covariance @ kernel).trace()).sqrt()
    share = 0.5 * 300 / 1300
    matrix = (1 - share) * torch.eye(16, dtype=torch.float64) + share * kernel
    m_q, m_d = (side.double().mean(dim=0) for side in start)
    for step, routes in zip(BOTH_SIDES, propose_both_sides(searched, start, BOTH_SIDES, 0), strict=True):
        queries, documents = routes.after(start)
        for row in range(5):
            query = (start[0][row].double() - m_d - step.own_mean * (m_q - m_d)) @ matrix
            torch.testing.assert_close(queries[row].double(), query / query.norm(), atol=1e-4, rtol=0)
            document = (start[1][row].double() - m_d) @ matrix
            torch.testing.assert_close(documents[row].double(), document / document.norm(), atol=1e-4, rtol=0)


def test_queries_made_from_documents_get_no_mean_of_their_own(
    still_encoder: SentenceTransformer, tmp_path: Path, accepting: None
) -> None:
    documents = [f"{first}. {second}!" for first, second in zip(DOCUMENTS[::2], DOCUMENTS[1::2], strict=True)]
    found = adapt(still_encoder, documents, tmp_path, queries="documents", show_progress_bar=False)
    assert (found.chosen, len(found.rows), found.facts["made"]) == ("half white, one mean", 1, True)
    kept = adapt(
        still_encoder, documents, tmp_path / "kept", queries="documents", keep_index=True, show_progress_bar=False
    )
    assert (kept.chosen, len(kept.rows)) == ("quarter white, one mean", 1)
    assert "queries made from them" in (tmp_path / "README.md").read_text()


# --- the judge ---


def test_the_judge_is_that_of_a_loop(monkeypatch):
    monkeypatch.setattr(search_judge, "_BLOCK", 900)  # three queries at a time
    queries, documents = [*QUERIES[:39], "rare"], [*DOCUMENTS[:299], "rare cat"]
    draw = torch.Generator().manual_seed(0)
    before, after = ((torch.randn(40, 8, generator=draw), torch.randn(300, 8, generator=draw)) for _ in range(2))
    changes = []
    for row, words in enumerate(torch.from_numpy(BM25(documents).scores(queries))):
        wanted = {number for number in words.topk(5).indices.tolist() if words[number] > 0}
        scores = []
        for of_queries, of_documents in (before, after):
            found, precisions = 0, []
            for place, number in enumerate((of_documents @ of_queries[row]).argsort(descending=True).tolist(), start=1):
                if number in wanted:
                    found += 1
                    precisions.append(found / place)
            scores.append(sum(precisions) / len(wanted))
        changes.append(scores[1] - scores[0])
    gain, error = PseudoRelevanceComparison(Searched(documents, queries), before).compare(*after)
    assert gain == pytest.approx(np.mean(changes), rel=1e-4)
    assert error == pytest.approx(np.std(changes, ddof=1) / 40**0.5, rel=1e-4)


def test_what_is_equally_near_comes_first_if_it_was_not_looked_for():
    found = search_judge.average_precision(torch.zeros(1, 9), torch.tensor([[3, 4, -1]]))
    assert found.tolist() == pytest.approx([(1 / 9 + 2 / 9) / 2])


def hashed(of: list[str]) -> torch.Tensor:
    """Embeddings that know words: the sum of a random vector a word."""
    vectors = torch.randn(len(WORDS), 32, generator=torch.Generator().manual_seed(0))
    return normalize(torch.stack([sum(vectors[WORDS.index(word)] for word in text.split()) for text in of]))  # type: ignore[arg-type]


def test_the_judge_refuses_what_harms_and_takes_what_does_not():
    start = hashed(QUERIES), hashed(DOCUMENTS)
    judge = PseudoRelevanceComparison(Searched(DOCUMENTS, QUERIES), start)
    assert judge.judged == list(range(len(QUERIES)))
    assert judge.compare(*start) == (0.0, 0.0)
    identity = torch.eye(32, dtype=torch.float64)
    turned = torch.linalg.qr(torch.randn(32, 32, generator=torch.Generator().manual_seed(1)))[0].double()
    harmed, kept = (
        judged_row(judge, BOTH_SIDES[0], Routes((matrix, identity[0] * 0)).after(start))
        for matrix in (turned, identity)
    )
    assert not harmed.accepted
    assert harmed.gain < -0.3
    assert "later than the start" in harmed.why
    assert kept.accepted
    gain, error = judge.compare(normalize(start[0] @ turned.float()), start[1])
    assert (harmed.low, harmed.high) == pytest.approx((gain - 1.96 * error, gain + 1.96 * error))


def test_a_step_is_refused_by_more_than_a_standard_error(monkeypatch):
    start = hashed(QUERIES), hashed(DOCUMENTS)
    judge = PseudoRelevanceComparison(Searched(DOCUMENTS, QUERIES), start)
    for gain, accepted in ((-0.011, False), (-0.009, True)):
        monkeypatch.setattr(judge, "compare", lambda *_, gain=gain: (gain, 0.01))
        assert judged_row(judge, BOTH_SIDES[0], start).accepted is accepted


def test_queries_without_a_word_of_the_documents_are_not_judged(still_encoder, tmp_path):
    others = [f"zz{number} qq{number}" for number in range(30)]
    judge = PseudoRelevanceComparison(
        Searched(DOCUMENTS, [*others, *QUERIES[:5]]), (hashed([*QUERIES[:35]]), hashed(DOCUMENTS))
    )
    assert judge.judged == [30, 31, 32, 33, 34]
    found = run(still_encoder, tmp_path / "out", queries=[*others, *QUERIES[:19]])
    assert found.chosen is None
    assert found.reason.startswith("Left as it is: 19 queries share a word with a document")
    assert found.model is still_encoder
    np.testing.assert_allclose(
        SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(SENTENCES), still_encoder.encode(SENTENCES)
    )


def test_the_first_accepted_step_is_taken(still_encoder, tmp_path, monkeypatch):
    gains = iter([(-1.0, 0.1), (0.1, 0.1), (0.5, 0.1)])
    monkeypatch.setattr(PseudoRelevanceComparison, "compare", lambda self, queries, documents: next(gains))
    found = run(still_encoder, tmp_path)
    assert found.chosen == BOTH_SIDES[1].name
    assert [row.accepted for row in found.rows] == [False, True, True]
    assert all("Left as it is" not in text for text in (found.reason, str(found)))


def test_all_refused_is_left_as_it_is(still_encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(PseudoRelevanceComparison, "compare", lambda self, queries, documents: (-1.0, 0.1))
    found = run(still_encoder, tmp_path)
    assert found.chosen is None
    assert found.reason.startswith("Left as it is: each candidate")
    assert not (tmp_path / "searches.md").exists()


@pytest.mark.parametrize("better", [1, -1])
def test_judgements_choose_in_the_place_of_the_judge(still_encoder, tmp_path, monkeypatch, better):
    compare = JudgedQueries.compare
    gains: list[float] = []
    monkeypatch.setattr(
        JudgedQueries,
        "compare",
        lambda *given: gains.append(better * abs(compare(*given)) + 1e-3 * better) or gains[-1],
    )
    found = run(still_encoder, tmp_path, dev=JUDGED)
    assert [row.gain for row in found.rows] == gains
    if better == 1:
        assert found.chosen == BOTH_SIDES[int(np.argmax(gains))].name
        assert found.reason == f"{found.chosen} was best."
    else:
        assert (found.chosen, found.reason) == (None, "Left as it is: no candidate was better than the start.")


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_judgements_are_those_of_the_evaluator(still_encoder, tmp_path, similarity):
    still_encoder.similarity_fn_name = similarity
    found = run(still_encoder, tmp_path, dev=JUDGED)
    evaluator = RetrievalEvaluator(JUDGED)
    start = 100 * evaluator(still_encoder)[f"{similarity}_ndcg@10"]
    assert found.facts["dev"] == pytest.approx(start)
    if found.chosen is not None:
        gain = next(row.gain for row in found.rows if row.name == found.chosen)
        assert 100 * evaluator(found.model)[f"{similarity}_ndcg@10"] - start == pytest.approx(gain, abs=1e-3)
        assert gain > 0


# --- what is saved ---


def test_the_result_is_stock_and_each_side_has_its_route(still_encoder, tmp_path, accepting):
    still_encoder.append(Normalize())
    before = snapshot(still_encoder)
    found = run(still_encoder, tmp_path)
    assert found.chosen == BOTH_SIDES[0].name
    assert not differing(before, snapshot(still_encoder))
    assert "st_extras" not in (tmp_path / "modules.json").read_text()
    assert "st_extras" not in (tmp_path / "2_Router/router_config.json").read_text()
    assert len([path for path in tmp_path.rglob("*.safetensors") if path.stat().st_size > 2**14]) == 1
    loaded = SentenceTransformer(str(tmp_path), device="cpu")
    queries, documents = expected(still_encoder)
    np.testing.assert_allclose(loaded.encode_query(QUERIES), queries, atol=1e-4)
    np.testing.assert_allclose(loaded.encode_document(DOCUMENTS), documents, atol=1e-4)
    np.testing.assert_array_equal(loaded.encode(DOCUMENTS), loaded.encode_document(DOCUMENTS))
    np.testing.assert_allclose(np.linalg.norm(loaded.encode_query(QUERIES), axis=1), 1, atol=1e-5)
    assert np.abs(loaded.encode_query(QUERIES) - loaded.encode_document(QUERIES)).max() > 0.01


def test_half_precision(still_encoder, tmp_path, accepting):
    wanted = expected(still_encoder.append(Normalize()))[0]
    found = run(still_encoder.half(), tmp_path)
    loaded = SentenceTransformer(str(tmp_path), device="cpu").encode_query(QUERIES)
    assert loaded.dtype == np.float16
    np.testing.assert_array_equal(loaded, found.model.encode_query(QUERIES))
    np.testing.assert_allclose(loaded, wanted, atol=0.05)


def test_what_is_written_beside_it(still_encoder, tmp_path, accepting):
    found = run(still_encoder, tmp_path)
    read = (tmp_path / "searches.md").read_text()
    after = first_documents(
        torch.tensor(found.model.encode_query(QUERIES)), torch.tensor(found.model.encode_document(DOCUMENTS))
    )
    start = first_documents(
        torch.tensor(unit(still_encoder, "query", QUERIES)), torch.tensor(unit(still_encoder, "document", DOCUMENTS))
    )
    changed = int((after[:, 0] != start[:, 0]).sum())
    assert changed > 3
    assert found.facts["changed"] == changed / 40
    assert f"Of 40 queries, {changed} ({changed / 40:.0%})" in read
    assert read.count("**Query:**") == min(20, changed)
    assert found.facts["queries"] == found.facts["judged"] == 40
    assert "adapt, for search" in (tmp_path / "README.md").read_text()
    assert not (tmp_path / "adapting").exists()
    adapt(still_encoder, DOCUMENTS[:60], tmp_path, overwrite=True, show_progress_bar=False)
    assert not (tmp_path / "searches.md").exists()
    found_first = torch.tensor([[0, 1, 2]]), torch.tensor([[1, 3, 0]])
    assert write_searches(tmp_path, ["q"], list("abcd"), *found_first, 0) == 1
    assert (tmp_path / "searches.md").read_text().endswith("| a | b |\n| b | **new:** d |\n| c | a |\n")


def test_with_keep_index_stored_documents_stay(still_encoder, tmp_path, monkeypatch):
    gains = iter([(-1.0, 0.1), (0.0, 0.1), (0.5, 0.1)])
    monkeypatch.setattr(PseudoRelevanceComparison, "compare", lambda self, queries, documents: next(gains))
    found = run(still_encoder, tmp_path, keep_index=True)
    assert found.chosen == QUERIES_ALONE[1].name
    assert {step.whitened for step in QUERIES_ALONE} == {0.25}
    np.testing.assert_allclose(
        found.model.encode_document(DOCUMENTS), unit(still_encoder, "document", DOCUMENTS), atol=1e-6
    )
    asked, documents = (encoding.drawn_texts(given, 12_000, 42)[0] for given in (QUERIES, DOCUMENTS))
    start = torch.tensor(unit(still_encoder, "query", asked)), torch.tensor(unit(still_encoder, "document", documents))
    both = propose_both_sides(Searched(documents, asked), start, QUERIES_ALONE[1:2], 42)[0]
    (matrix, of_queries), (_, of_documents) = (
        [part.numpy() for part in side] for side in (both.queries, both.documents)
    )
    moved, rows = start[1].numpy() @ matrix + of_documents, start[1].numpy() - start[1].numpy().mean(axis=0)
    lengths = np.linalg.norm(moved, axis=1)
    ridge = (0.1 * (rows**2).sum() / 16) ** 0.5 * np.eye(16)
    slope = np.linalg.lstsq(np.vstack([rows, ridge]), [*(lengths - lengths.mean()), *[0] * 16], rcond=None)[0]
    scores = np.sort((start[0].numpy() @ matrix + of_queries) @ (moved / lengths[:, None]).T, axis=1)[:, -5:]
    queries = (unit(still_encoder, "query", QUERIES) @ matrix + of_queries) @ matrix.T - scores.mean() * slope
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    np.testing.assert_allclose(found.model.encode_query(QUERIES), queries, atol=1e-4)


@pytest.mark.parametrize(
    ("style", "document"),
    [("E5", "passage"), ("BGE", None), ("Nomic", "document"), ("Qwen3", None), ("corpus", "corpus")],
)
def test_prompts_by_the_names_that_models_have(make_encoder, tmp_path, accepting, style, document):
    prompts = {"query": "the dog "} | ({document: "a cat "} if document else {})
    prompts |= {"classification": "of "} if style == "Nomic" else {"document": ""} if style == "Qwen3" else {}
    model = make_encoder(dropout=0.0)
    model.prompts = prompts
    model.save(str(tmp_path / "start"))
    start, plain = load_encoder(tmp_path / "start", device="cpu"), make_encoder(dropout=0.0)
    before = "a cat " if document else ""
    asked, given = plain.encode([f"the dog {text}" for text in QUERIES]), plain.encode([before + t for t in DOCUMENTS])
    np.testing.assert_allclose(start.encode_query(QUERIES), asked, atol=1e-5)
    np.testing.assert_allclose(start.encode_document(DOCUMENTS), given, atol=1e-5)
    queries, documents = expected(start)
    run(start, tmp_path / "out")
    loaded = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert loaded.prompts == start.prompts
    np.testing.assert_allclose(loaded.encode_query(QUERIES), queries, atol=1e-4)
    np.testing.assert_allclose(loaded.encode_document(DOCUMENTS), documents, atol=1e-4)
    scores = RetrievalEvaluator(JUDGED)(start)
    start.prompts = {}
    assert RetrievalEvaluator(JUDGED, query_prompt="the dog ", document_prompt=before)(start) == scores


def test_encoders_of_their_own_for_queries_and_documents(make_encoder, tmp_path, accepting):
    sides = [list(make_encoder(dropout=0.0, seed=seed)) for seed in (0, 1)]
    router = Router(dict(zip(("query", "document"), sides, strict=True)), default_route="query")
    model = SentenceTransformer(modules=[router, Normalize()], device="cpu")
    run(model, tmp_path)
    loaded = SentenceTransformer(str(tmp_path), device="cpu")
    parts = [SentenceTransformer(modules=side, device="cpu") for side in sides]
    queries, documents = expected(*parts)
    np.testing.assert_allclose(loaded.encode_query(QUERIES), queries, atol=1e-4)
    np.testing.assert_allclose(loaded.encode_document(DOCUMENTS), documents, atol=1e-4)
    np.testing.assert_array_equal(loaded.encode(DOCUMENTS), loaded.encode_document(DOCUMENTS))
    assert model[0].default_route == "query"
    other = SentenceTransformer(modules=[Router.for_query_document(sides[1], sides[1]), Normalize()], device="cpu")
    assert encoding.source_of(model, "document").difference(encoding.source_of(other, "document")) is not None


def test_encoders_that_are_refused(still_encoder, tmp_path):
    model = SentenceTransformer(modules=[Router({"left": list(still_encoder)}, default_route="left")], device="cpu")
    with pytest.raises(ValueError, match="must have the routes 'query' and 'document'"):
        run(model, tmp_path / "out")
    for name, value, message in (
        ("similarity_fn_name", "manhattan", "similarity_fn_name must be one of 'cosine', 'dot', got 'manhattan'"),
        ("similarity_fn_name", "dot", "keep_index must be False where dot products see lengths"),
        ("truncate_dim", 8, "truncate_dim must be None, as all dimensions are adapted, got 8"),
    ):
        setattr(still_encoder, name, value)
        with pytest.raises(ValueError, match=message):
            run(still_encoder, tmp_path / "out", keep_index=value == "dot")
    assert not (tmp_path / "out").exists()


def test_routes_share_the_encoder(still_encoder):
    model = routed(still_encoder, Routes((torch.eye(16, dtype=torch.float64), torch.zeros(16))))
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in still_encoder.parameters()) + 272
    np.testing.assert_allclose(model.encode_query(SENTENCES), unit(still_encoder, "query", SENTENCES), atol=1e-6)


# --- interrupted ---


@pytest.fixture
def interrupted(still_encoder, tmp_path, monkeypatch):
    """A run that stops when everything is encoded."""
    with monkeypatch.context() as stopped:
        stopped.setattr(search, "PseudoRelevanceComparison", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(still_encoder, tmp_path / "out")
    return tmp_path / "out"


def test_a_resumed_run_encodes_nothing_again_and_ends_the_same(still_encoder, interrupted, tmp_path, monkeypatch):
    whole = run(still_encoder, tmp_path / "whole")
    encoded: list[int] = []
    plain = encoding.write_tensors
    monkeypatch.setattr(encoding, "write_tensors", lambda *given: encoded.append(1) or plain(*given))
    resumed = run(still_encoder, interrupted, resume=True)
    assert not encoded
    assert (resumed.chosen, resumed.reason) == (whole.chosen, whole.reason)
    assert [row.gain for row in resumed.rows] == [row.gain for row in whole.rows]
    np.testing.assert_array_equal(resumed.model.encode_query(QUERIES), whole.model.encode_query(QUERIES))
    assert not (interrupted / "adapting").exists()


@pytest.mark.parametrize("changed", ["queries", "prompt"])
def test_it_does_not_go_on_with_other_queries_or_prompts(still_encoder, interrupted, changed):
    still_encoder.prompts = {"query": "a cat "} if changed == "prompt" else {}
    with pytest.raises(ValueError, match=r"one with another (text or queries|encoder)"):
        run(still_encoder, interrupted, queries=QUERIES[::-1] if changed == "queries" else QUERIES, resume=True)
