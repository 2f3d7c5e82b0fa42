"""Search and duplicate questions: metrics against plain loops and scikit-learn, prompts, routes, BM25 beside."""

import copy
import logging
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router
from sklearn.metrics import average_precision_score

from st_extras.evaluation.reporting import bootstrap_interval
from st_extras.evaluation.retrieval import (
    QuestionRetrievalEvaluator,
    RetrievalEvaluator,
    compare_retrieval,
    fuse_ranks,
)
from st_extras.evaluation.retrieval_data import RetrievalTask, question_retrieval, read_question_pairs
from st_extras.text.term_weights import BM25, bm25_weight
from tests.fixtures import SENTENCES
from tests.helpers import write

HEADER = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
QQP = (
    HEADER
    + "0\t1\t2\ta cat sat\tthe cat sat\t1\n"
    + "1\t1\t3\ta cat sat\ttwo birds sing\t0\n"
    + '2\t4\t5\t"""the dog"" ran"\t"a dog\nran"\t1\n'
    + "3\t6\t7\ta river\t\t0\n"
    + "4\t8\t9\ttwo birds sing\tbirds sing\t1\n"
    + "5\t8\t9\ttwo birds sing\tthe cat sat\t1\n"
    + "6\t10\t11\tthe mat\n"
    + "7\t12\t13\ta red book\ta red book\t1\n"
)


@pytest.fixture
def qqp(tmp_path):
    return write(tmp_path / "quora_duplicate_questions.tsv", QQP)


def test_qqp_is_read_with_quotes_line_breaks_and_gaps(qqp, tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        pairs = read_question_pairs(qqp)
    assert len(pairs) == 6
    assert pairs[2] == ('"the dog" ran', "a dog\nran", True)
    assert "2 rows with an empty question or too few fields" in caplog.text
    glue = write(tmp_path / "dev.tsv.gz", HEADER + '0\t1\t2\t"open quote\tplain\t1\n1\t3\t4\tone\ttwo\t0\n')
    assert read_question_pairs(glue, quoted=False) == [('"open quote', "plain", True), ("one", "two", False)]


def test_the_set_up_of_the_paper(qqp):
    task = question_retrieval(read_question_pairs(qqp))
    assert sorted(task.documents.values()) == [
        "a dog\nran",
        "a red book",
        "birds sing",
        "the cat sat",
        "two birds sing",
    ]
    named = {task.queries[q]: sorted(task.documents[d] for d in found) for q, found in task.relevant.items()}
    assert named == {
        "a cat sat": ["the cat sat"], '"the dog" ran': ["a dog\nran"], "two birds sing": ["birds sing", "the cat sat"],
    }  # fmt: skip
    literal = question_retrieval(read_question_pairs(qqp), exclude_identical=False)
    assert "a red book" in literal.queries.values()
    assert literal.documents == task.documents


def test_sampling_keeps_the_corpus(qqp):
    task = question_retrieval(read_question_pairs(qqp))
    small = task.sample(2, seed=3)
    assert len(small.queries) == 2
    assert small.documents == task.documents
    assert small == task.sample(2, seed=3)
    assert len(task.sample(99).queries) == 3
    with pytest.raises(ValueError, match="max_queries must be a whole number >= 1, got 0"):
        task.sample(0)


@pytest.mark.parametrize("exclude", [True, False])
def test_retrieval_metrics_equal_scikit_learns(encoder, qqp, exclude, tmp_path):
    task = question_retrieval(read_question_pairs(qqp))
    evaluator = QuestionRetrievalEvaluator(task, ignore_identical_ids=exclude, name="qqp", corpus_chunk_size=2)
    metrics = evaluator(encoder, str(tmp_path))
    average, reciprocal, skipped = [], [], 0
    for query, text in task.queries.items():
        documents = [key for key in task.documents if not (exclude and key == query)]
        skipped += len(task.documents) - len(documents)
        scores = encoder.similarity(
            encoder.encode([text]), encoder.encode([task.documents[key] for key in documents])
        ).numpy()[0]
        relevant = np.array([key in task.relevant[query] for key in documents])
        average.append(average_precision_score(relevant, scores))
        reciprocal.append(1 / (1 + (scores > scores[relevant].max()).sum()))
    assert skipped == (1 if exclude else 0)
    assert metrics["qqp_cosine_map@100"] == pytest.approx(np.mean(average))
    assert metrics["qqp_cosine_mrr@10"] == pytest.approx(np.mean(reciprocal))
    assert evaluator.primary_metric == "qqp_cosine_map@100"
    assert list(tmp_path.glob("*qqp_results.csv"))


def test_map_is_cut_at_the_depth_given(encoder, qqp):
    """One relevant document, ranked second: found at depth 2, worth a half, and not found at depth 1."""
    texts = ["a cat sat", "the cat sat", "two birds sing"]
    scores = encoder.similarity(encoder.encode(texts[:1]), encoder.encode(texts[1:]))[0]
    second = texts[1:][int(scores.argmin())]
    task = RetrievalTask({"q": texts[0]}, {text: text for text in texts[1:]}, {"q": {second: 1.0}})
    found = {}
    for depth in (1, 2):
        evaluator = QuestionRetrievalEvaluator(task, map_at_k=depth)
        assert evaluator.primary_metric == f"cosine_map@{depth}"
        found[depth] = evaluator(encoder)[evaluator.primary_metric]
    assert found == {1: 0.0, 2: 0.5}


TASK = RetrievalTask({"q": "a"}, {"d": "b"}, {"q": {"d": 1.0}})


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: QuestionRetrievalEvaluator(3), "task"),
        (lambda: QuestionRetrievalEvaluator(TASK, map_at_k=0), "map_at_k"),
        (lambda: compare_retrieval(TASK, [], ndcg_at_k=[5]), "options"),
        (lambda: compare_retrieval(TASK, [], truncate_dim=0), "truncate_dim"),
        (lambda: compare_retrieval(TASK, [("BM25", None)]), "models"),  # type: ignore[list-item]
        (lambda: RetrievalEvaluator(TASK, query_prompt=3), "query_prompt"),
        (lambda: RetrievalEvaluator(TASK, document_prompt=3), "document_prompt"),
        (lambda: RetrievalEvaluator(TASK, ignore_identical_ids=1), "ignore_identical_ids"),
        (lambda: RetrievalEvaluator(TASK, truncate_dim=2.5), "truncate_dim"),
        (lambda: question_retrieval([("a", "b", False), ("c", "c", True)]), "at least one duplicate pair"),
        (lambda: question_retrieval(3), "pairs"),
        (lambda: question_retrieval([("a", "b", "0")]), "pairs, row 0"),
        (lambda: question_retrieval([("a", "b", True), ("a", 3, True)]), "pairs, row 1"),
        (lambda: read_question_pairs("nowhere.tsv"), "nowhere.tsv"),
    ],
)
def test_settings_of_another_kind_are_named(call, named):
    with pytest.raises(ValueError, match=named):
        call()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("question1\tquestion2\tlabel\na\tb\t1\n", "no column is_duplicate"),
        (HEADER + "0\t1\t2\ta\tb\tyes\n", "line 2: is_duplicate"),
        (HEADER + '0\t1\t2\t"open\tplain\t1\n' + "1\t3\t4\tone\ttwo\t0\n" * 9, "quoted=False"),
    ],
)
def test_bad_question_files_are_refused(tmp_path, text, named):
    with pytest.raises(ValueError, match=named):
        read_question_pairs(write(tmp_path / "bad.tsv", text))


def test_the_score_matrix_stays_small():
    task = question_retrieval([(f"q{i}", f"d{i}", True) for i in range(4000)])
    assert QuestionRetrievalEvaluator(task).corpus_chunk_size == 2**27 // 4000


# --- search ---

WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
DOCUMENTS = {f"d{i}": f"{WORDS[i % 31]} {WORDS[(7 * i + 3) % 31]} {WORDS[(5 * i) % 29]}" for i in range(130)}
QUERIES = {f"q{i}": f"{WORDS[i]} {WORDS[(3 * i + 1) % 31]}" for i in range(9)} | {"unjudged": "cat"}
RELEVANT = {f"q{i}": {f"d{(i + 3 * j * j) % 130}": float(1 + (i + j) % 3) for j in range(1 + i * 2)} for i in range(9)}
SEARCH = RetrievalTask(QUERIES, DOCUMENTS, RELEVANT)


def loop(scores: dict[str, dict[str, float]]) -> tuple[dict[str, float], list[float]]:
    """The metrics, and nDCG@10 of each query, of similarities by query and document."""
    found: dict[str, list[float]] = {"ndcg@10": [], "recall@10": [], "recall@100": [], "mrr@10": []}
    for query, grades in RELEVANT.items():
        ranked = sorted(scores[query], key=lambda key: (-scores[query][key], key))
        gain = sum(grades.get(key, 0) / math.log2(rank + 1) for rank, key in enumerate(ranked[:10], start=1))
        best = sum(g / math.log2(r + 1) for r, g in enumerate(sorted(grades.values(), reverse=True)[:10], start=1))
        found["ndcg@10"].append(gain / best)
        for k in (10, 100):
            found[f"recall@{k}"].append(len(set(ranked[:k]) & set(grades)) / len(grades))
        found["mrr@10"].append(next((1 / r for r, key in enumerate(ranked[:10], start=1) if key in grades), 0.0))
    return {name: sum(values) / len(values) for name, values in found.items()}, found["ndcg@10"]


def by_id(scores: np.ndarray) -> dict[str, dict[str, float]]:
    return {query: dict(zip(DOCUMENTS, row, strict=True)) for query, row in zip(RELEVANT, scores.tolist(), strict=True)}


def dense_and_bm25(model: SentenceTransformer) -> tuple[np.ndarray, np.ndarray]:
    queries = [QUERIES[key] for key in RELEVANT]
    documents = list(DOCUMENTS.values())
    dense = model.similarity(model.encode_query(queries), model.encode_document(documents)).numpy()
    return dense, BM25(documents).scores(queries)


def test_the_metrics_are_those_of_a_loop(encoder):
    expected, per_query = loop(by_id(dense_and_bm25(encoder)[0]))
    assert 0 < expected["ndcg@10"] < 1
    evaluator = RetrievalEvaluator(SEARCH, name="faq")
    found = evaluator(encoder)
    assert evaluator.primary_metric == "faq_cosine_ndcg@10"
    assert {name: found[f"faq_cosine_{name}"] for name in expected} == pytest.approx(expected)
    assert evaluator.ndcg_of_queries[10] == pytest.approx(per_query)
    halves = RetrievalTask(QUERIES, DOCUMENTS, {q: dict.fromkeys(keys, 1.0) for q, keys in RELEVANT.items()})
    assert RetrievalEvaluator(halves)(encoder)["cosine_ndcg@10"] != pytest.approx(expected["ndcg@10"]), "grades count"


def fused_in_a_loop(dense: np.ndarray, bm25: np.ndarray) -> np.ndarray:
    fused = np.zeros(dense.shape)
    for side in (dense, bm25):
        for query, scores in enumerate(side.tolist()):
            order = sorted(range(len(scores)), key=lambda place: (-scores[place], place))
            for rank, document in enumerate(order[:100], start=1):
                if side is dense or scores[document] > 0:
                    fused[query, document] += 1 / (60 + rank)
    return fused


def test_ranks_are_fused_as_in_a_loop():
    draw = np.random.default_rng(0)
    dense = draw.integers(0, 40, (3, 150)) / 40  # with ties
    bm25 = np.maximum(0, draw.integers(-20, 30, (3, 150))) / 10
    bm25[2] = 0
    found = fuse_ranks(dense, bm25)
    assert (found == 0).any(), "some documents stand behind the first hundred of both"
    np.testing.assert_allclose(found, fused_in_a_loop(dense, bm25))


@pytest.mark.slow
def test_several_encoders_beside_bm25(encoder, monkeypatch):
    """The rows are those of a loop, with ties by id, in whatever blocks they are computed."""
    other = copy.deepcopy(encoder)
    with torch.no_grad():
        next(other.parameters()).normal_()
    (dense, bm25), (other_dense, _) = dense_and_bm25(encoder), dense_and_bm25(other)
    assert ((bm25 == 0).sum(axis=1) > 100).any(), "of documents that share no word, 100 are not all"
    scores = {}
    for name, of in (("a", dense), ("b", other_dense)):
        scores |= {name: of, f"{name} + BM25": of + bm25_weight(of, bm25) * bm25}
        scores[f"{name} and BM25, RRF"] = fused_in_a_loop(of, bm25)
    scores["BM25"] = bm25
    expected = {name: loop(by_id(np.asarray(values))) for name, values in scores.items()}
    start = np.array(expected["a"][1])
    for block in (2**24, 3 * len(DOCUMENTS)):
        monkeypatch.setattr("st_extras.evaluation.retrieval._BLOCK", block)
        found = compare_retrieval(SEARCH, (("a", encoder), ("b", other)))
        assert list(found) == list(scores)
        for name, (metrics, per_query) in expected.items():
            change = np.array(per_query) - start
            low, high = bootstrap_interval(change)
            interval = {"difference": change.mean(), "low": low, "high": high}
            assert found[name] == pytest.approx(metrics | interval, abs=1e-5), name
    assert found["BM25"]["low"] < found["BM25"]["difference"] < found["BM25"]["high"]
    assert list(compare_retrieval(SEARCH, [("a", encoder)], bm25=False)) == ["a"]
    with pytest.raises(ValueError, match="models must have different names"):
        compare_retrieval(SEARCH, [("a", encoder)] * 2, bm25=False)


def test_words_that_no_document_has_leave_the_encoders_order(encoder):
    foreign = replace(SEARCH, queries=dict.fromkeys(SEARCH.queries, "zzz"))
    found = compare_retrieval(foreign, [("a", encoder)])
    assert found["a + BM25"] == found["a and BM25, RRF"] == found["a"]


def test_the_interval_is_that_of_resampled_means():
    values = np.array([0.5, -0.25, 0.0, 1.0, 0.125])
    draw = np.random.default_rng(7)
    means = sorted(sum(values[i] for i in draw.integers(0, 5, 5)) / 5 for _ in range(200))
    places = [0.025 * 199, 0.975 * 199]
    ends = [means[int(at)] + (at % 1) * (means[int(at) + 1] - means[int(at)]) for at in places]
    assert bootstrap_interval(values, resamples=200, seed=7) == pytest.approx(ends)


@pytest.mark.parametrize("given", [{}, {"query_prompt": "a ", "document_prompt": "the "}])
def test_queries_and_documents_have_their_prompts(encoder, given):
    """The model's own, by name, unless others are given."""
    encoder.prompts = {"query": "he ", "document": "she "}
    used = ("a ", "the ") if given else ("he ", "she ")
    plain = RetrievalTask(
        {key: used[0] + text for key, text in QUERIES.items()},
        {key: used[1] + text for key, text in DOCUMENTS.items()},
        RELEVANT,
    )
    found = RetrievalEvaluator(SEARCH, **given)(encoder)
    rows = compare_retrieval(SEARCH, [("", encoder)], bm25=False, **given)
    encoder.prompts = {}
    assert found == pytest.approx(RetrievalEvaluator(plain)(encoder))
    assert found["cosine_ndcg@10"] != pytest.approx(RetrievalEvaluator(SEARCH)(encoder)["cosine_ndcg@10"])
    assert rows[""]["ndcg@10"] == pytest.approx(found["cosine_ndcg@10"])


def test_a_router_sends_queries_and_documents_their_ways(encoder):
    """Queries see another space than documents: as when their embeddings are turned by hand."""
    width = encoder.get_embedding_dimension()
    turn = Dense(width, width, bias=True, activation_function=torch.nn.Identity())
    with torch.no_grad():
        turn.linear.weight.copy_(torch.randn(width, width, generator=torch.Generator().manual_seed(0)))
    router = Router({"query": [turn], "document": [Normalize()]}, default_route="document")
    model = SentenceTransformer(modules=[*encoder, router], device="cpu")
    queries = encoder.encode([QUERIES[key] for key in RELEVANT], convert_to_tensor=True)
    documents = encoder.encode(list(DOCUMENTS.values()), convert_to_tensor=True)
    with torch.no_grad():
        scores = encoder.similarity(turn.linear(queries), documents).numpy()
    expected = loop(by_id(scores))[0]
    assert expected["ndcg@10"] != pytest.approx(loop(by_id(dense_and_bm25(encoder)[0]))[0]["ndcg@10"])
    assert RetrievalEvaluator(SEARCH)(model)["cosine_ndcg@10"] == pytest.approx(expected["ndcg@10"])
    assert compare_retrieval(SEARCH, [("", model)])[""]["ndcg@10"] == pytest.approx(expected["ndcg@10"])


def test_the_models_own_similarity_is_used(encoder):
    encoder.similarity_fn_name = "dot"
    evaluator = RetrievalEvaluator(SEARCH)
    expected = loop(by_id(dense_and_bm25(encoder)[0]))[0]
    assert evaluator(encoder)["dot_ndcg@10"] == pytest.approx(expected["ndcg@10"])
    assert evaluator.primary_metric == "dot_ndcg@10"
    assert compare_retrieval(SEARCH, [("", encoder)])[""]["ndcg@10"] == pytest.approx(expected["ndcg@10"])
    encoder.similarity_fn_name = "cosine"
    assert loop(by_id(dense_and_bm25(encoder)[0]))[0]["ndcg@10"] != pytest.approx(expected["ndcg@10"])


@pytest.mark.parametrize("score", [RetrievalEvaluator(SEARCH), lambda model: compare_retrieval(SEARCH, [("", model)])])
def test_an_encoder_that_diverged_is_named(encoder, score):
    with torch.no_grad():
        next(encoder.parameters()).fill_(math.nan)
    with pytest.raises(ValueError, match=r"sentence 0 is not finite \(NaN or infinity\): '"):
        score(encoder)


# --- a query's own document ---

OWN = RetrievalTask(
    {"a": "a cat sat", "b": "the dog ran", "1": "two birds sing"},
    {"a": "a  cat sat", "b": "the dog ran", "1": "another text", "x": "a cat", "y": "dog", "z": "birds"},
    {"a": {"x": 1.0}, "b": {"b": 1.0, "y": 1.0}, "1": {"z": 1.0}},
)
"""Of a, its own document; of b, one that is judged relevant; of 1, another that has the same number."""


def test_a_document_is_a_querys_own_by_its_id_and_text():
    assert OWN.own_documents() == {"a"}
    titled = replace(OWN, documents=OWN.documents | {"a": "Title a cat sat"})
    assert titled.own_documents() == {"a"}
    assert replace(OWN, documents=OWN.documents | {"a": "a cat"}).own_documents() == frozenset()


def test_a_querys_own_document_is_no_hit(encoder, caplog):
    evaluator = RetrievalEvaluator(OWN)
    (message,) = caplog.messages
    assert "1 of 3" in message
    found = evaluator(encoder)
    scores = encoder.similarity(
        encoder.encode(list(OWN.queries.values())), encoder.encode(list(OWN.documents.values()))
    )
    expected = []
    for query, row in zip(OWN.queries, scores.tolist(), strict=True):
        ranked = sorted(zip(row, OWN.documents, strict=True), key=lambda hit: (-hit[0], hit[1]))
        listed = [key for _, key in ranked if (query, key) != ("a", "a")]
        expected.append(next(1 / rank for rank, key in enumerate(listed, 1) if key in OWN.relevant[query]))
    assert found["cosine_mrr@10"] == pytest.approx(np.mean(expected))
    assert compare_retrieval(OWN, [("", encoder)], bm25=False)[""]["ndcg@10"] == pytest.approx(found["cosine_ndcg@10"])
    kept = RetrievalEvaluator(OWN, ignore_identical_ids=False)(encoder)
    assert kept["cosine_mrr@10"] < found["cosine_mrr@10"]


def test_bm25_does_not_find_a_querys_own_document_either(encoder):
    found = compare_retrieval(OWN, [("", encoder)])
    assert found["BM25"]["mrr@10"] == 1.0
    assert compare_retrieval(OWN, [("", encoder)], ignore_identical_ids=False)["BM25"]["mrr@10"] < 1


# --- prompts under other names ---


@pytest.mark.parametrize(
    "names",
    [
        ("s2p_query", "passage"),
        ("search_query", "search_document"),
        ("Query", "Document"),
        ("web.queries", "corpus_doc"),
    ],
)
def test_prompts_under_other_names_are_used(encoder, names):
    encoder.prompts = {"query": "he ", "document": "she "}
    expected = RetrievalEvaluator(SEARCH)(encoder)
    encoder.prompts = {"query": "", "document": "", names[0]: "he ", names[1]: "she ", "clustering": "the "}
    assert RetrievalEvaluator(SEARCH)(encoder) == pytest.approx(expected)
    row = compare_retrieval(SEARCH, [("", encoder)], bm25=False)[""]
    assert row["ndcg@10"] == pytest.approx(expected["cosine_ndcg@10"])


def test_prompts_that_could_both_be_meant_are_warned_of(encoder, caplog):
    plain = RetrievalEvaluator(SEARCH)(encoder)
    encoder.prompts = {"s2p_query": "he ", "s2s_query": "she "}
    assert RetrievalEvaluator(SEARCH)(encoder) == pytest.approx(plain)
    (message,) = [message for message in caplog.messages if "prompt" in message]
    assert "s2p_query, s2s_query" in message
    assert "query_prompt" in message
