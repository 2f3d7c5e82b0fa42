"""Search: metrics against plain loops, prompts, routes, BM25 beside."""

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router

from st_extras.encoders import prompts
from st_extras.evaluation.reporting import bootstrap_interval
from st_extras.evaluation.retrieval import (
    RetrievalEvaluator,
    compare_retrieval,
    comparison_rows,
    fuse_ranks,
)
from st_extras.evaluation.retrieval_data import RetrievalTask
from st_extras.search import HybridSearch
from st_extras.text.term_weights import BM25, bm25_weight
from tests.fixtures import SENTENCES
from tests.helpers import count_rows
from tests.search.test_hybrid import DOCUMENTS as SHORT
from tests.search.test_hybrid import EQUAL, MANY

WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
DOCUMENTS = {f"d{i}": f"{WORDS[i % 31]} {WORDS[(7 * i + 3) % 31]} {WORDS[(5 * i) % 29]}" for i in range(130)}
QUERIES = {f"q{i}": f"{WORDS[i]} {WORDS[(3 * i + 1) % 31]}" for i in range(9)} | {"unjudged": "cat"}
RELEVANT = {f"q{i}": {f"d{(i + 3 * j * j) % 130}": float(1 + (i + j) % 3) for j in range(1 + i * 2)} for i in range(9)}
SEARCH = RetrievalTask(QUERIES, DOCUMENTS, RELEVANT)
FEW = RetrievalTask(
    {f"q{i}": QUERIES[f"q{i}"] for i in range(5)},
    {f"d{i}": DOCUMENTS[f"d{i}"] for i in range(20)},
    {f"q{i}": {f"d{3 * i + 1}": 1, f"d{4 * i}": 2} for i in range(5)},
)


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


def test_equal_documents_stand_in_the_order_of_their_ids_with_any_batch_size(still_encoder):
    """One of each seven is relevant, so that their order shows; some are encoded in other batches."""
    texts = {f"{place:02}": SENTENCES[place % len(SENTENCES)] for place in range(63)}
    queries = {key: " ".join(text.split()[:3]) for key, text in list(texts.items())[-7:]}
    task = RetrievalTask(
        {f"q{key}": text for key, text in queries.items()}, texts, {f"q{k}": {k: 1.0} for k in queries}
    )
    by_size = [RetrievalEvaluator(task, batch_size=size, write_csv=False)(still_encoder) for size in (1, 7, 64)]
    assert by_size == 3 * by_size[:1]


def test_many_equal_documents_have_one_order_in_any_block_with_an_index_or_without(make_encoder, tmp_path, monkeypatch):
    """A product with one query rounds the last of 299 otherwise, and must not put them before the first."""
    documents = {f"{number:03}": text for number, text in enumerate(MANY[:479])}
    queries = {f"q{number}": text for number, text in enumerate(SHORT)}
    task = RetrievalTask(queries, documents, {key: {f"{EQUAL[0]:03}": 1.0} for key in queries})
    models, ranks = [("a", make_encoder(dropout=0.0, hidden_size=48))], []
    for size in (1, 7, 64):
        monkeypatch.setattr("st_extras.functional._SCORES", size * len(documents))
        ranks += [
            compare_retrieval(task, models, index=index).ranks["a"] for index in (None, tmp_path / "index.parquet")
        ]
    assert ranks == 6 * ranks[:1]
    assert len({*ranks[0]}) > 3


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


def test_ranks_below_the_first_hundred_are_not_fused():
    draw = np.random.default_rng(0)
    dense, bm25 = draw.integers(0, 40, (3, 150)) / 40, np.maximum(0, draw.integers(-20, 30, (3, 150)))
    found = fuse_ranks(dense, bm25)
    assert (found == 0).any()
    np.testing.assert_allclose(found, fused_in_a_loop(dense, bm25))


def test_the_language_is_that_of_bm25():
    task = RetrievalTask({"a": "cats running"}, {"1": "dogs asleep", "2": "a cat ran and runs"}, {"a": {"2": 1.0}})
    found = [compare_retrieval(task, [], language=language).rows["BM25"]["ndcg@10"] for language in (None, "english")]
    assert found[0] < found[1] == 1.0


def test_several_encoders_beside_bm25(encoder, make_encoder, monkeypatch):
    """The rows are those of a loop, with ties by id, in whatever blocks they are computed."""
    models = {"a": encoder, "b": make_encoder(seed=1)}
    scores = {}
    for name, model in models.items():
        dense, bm25 = dense_and_bm25(model)
        scores |= {name: dense, f"{name} + BM25": dense + bm25_weight(dense, bm25) * bm25}
        scores[f"{name} and BM25, RRF"] = fused_in_a_loop(dense, bm25)
    scores["BM25"] = bm25
    expected = {name: loop(by_id(np.asarray(values))) for name, values in scores.items()}
    monkeypatch.setattr("st_extras.functional._SCORES", 3 * len(DOCUMENTS))
    compared = compare_retrieval(SEARCH, models.items())
    found = compared.rows
    assert list(found) == list(scores)
    for name, (metrics, per_query) in expected.items():
        change = np.array(per_query) - np.array(expected["a"][1])
        low, high = bootstrap_interval(change)
        interval = {"difference": change.mean(), "low": low, "high": high}
        assert found[name] == pytest.approx(metrics | interval, abs=1e-5), name
        reciprocal = [1 / rank if rank is not None and rank <= 10 else 0 for rank in compared.ranks[name]]
        assert np.mean(reciprocal) == pytest.approx(metrics["mrr@10"]), "each row has its own ranks"
        assert None in compared.ranks[name] or max(compared.ranks[name]) > 10
    assert compared.queries == [QUERIES[key] for key in RELEVANT]
    assert found["BM25"]["low"] < found["BM25"]["difference"] < found["BM25"]["high"]
    for names in (("a", "a"), ("a", "a + BM25"), ("a", "a and BM25, RRF"), ("BM25",)):
        with pytest.raises(ValueError, match=rf"^models must .*, got '{re.escape(names[-1])}' again"):
            compare_retrieval(SEARCH, [(name, encoder) for name in names])
    encoder.similarity_fn_name = "euclidean"
    with pytest.raises(ValueError, match=r"^model\.similarity_fn_name must"):
        compare_retrieval(SEARCH, [("a", encoder)])


def test_any_row_is_the_baseline(encoder, make_encoder):
    models = [("a", encoder), ("b", make_encoder(seed=1))]
    rows = comparison_rows(["a", "b"])
    plain = compare_retrieval(SEARCH, models).rows
    assert list(plain) == rows
    for baseline in rows:
        found = compare_retrieval(SEARCH, models, baseline=baseline).rows
        assert list(found) == [baseline, *(row for row in rows if row != baseline)]
        assert (found[baseline]["difference"], found[baseline]["low"]) == (0, 0)
        for row in rows:
            assert found[row]["ndcg@10"] == plain[row]["ndcg@10"]
            change = plain[row]["ndcg@10"] - plain[baseline]["ndcg@10"]
            assert found[row]["difference"] == pytest.approx(change)
    names = [*compare_retrieval(SEARCH, models, baseline="bm25").rows]
    assert names == ["BM25", *rows[:-1]]
    with pytest.raises(ValueError, match=r"^baseline must be one of 'a', 'a \+ BM25', 'a and BM25, RRF'.*, got 'c'"):
        compare_retrieval(SEARCH, models, baseline="c")


def test_an_index_keeps_the_documents_and_its_weight(encoder, tmp_path, make_encoder):
    """The rows are those without one; the second time, queries alone are encoded."""
    task = replace(SEARCH, documents={**DOCUMENTS, "long": " ".join(DOCUMENTS.values())})
    path = tmp_path / "index.parquet"
    path.touch()  # an empty file is a new one
    expected = compare_retrieval(task, [("a", encoder)], passages=8).rows
    texts = [QUERIES[key] for key in RELEVANT]
    for encoded in (None, len(texts) + 2):
        with count_rows(encoder) as rows:
            found = compare_retrieval(task, [("a", encoder)], passages=8, index=path).rows
        assert encoded is None or sum(rows) == encoded, "queries, and probes of the encoder"
        for row, metrics in expected.items():
            assert found[row] == pytest.approx(metrics, abs=1e-6), row
    search = HybridSearch.open(path, encoder)
    assert (search.weight_source, search.passages) == ("queries", 8)
    search.update(search.documents, bm25_weight=100.0)
    search.save(path)
    found = compare_retrieval(task, [("a", encoder)], index=path).rows
    hybrid, words = (found[row]["ndcg@10"] for row in ("a + BM25", "BM25"))
    assert expected["a + BM25"]["ndcg@10"] != hybrid == pytest.approx(words, abs=0.02)
    before = path.read_bytes()
    for settings, named in (
        ({"language": "english"}, "language must be that of the index"),
        ({"passages": 110}, "passages must be those of the index"),
        ({"passages": None}, "passages must be those of the index"),
        ({"query_prompt": "a "}, "options: each must be one of 'batch_size', 'show_progress_bar'"),
    ):
        with pytest.raises(ValueError, match=f"^{named}"):
            compare_retrieval(task, [("a", encoder)], index=path, **settings)
    for models, documents, named in (
        ([("a", encoder)], DOCUMENTS, "index must be of the documents of the task"),
        ([("a", encoder)], task.documents | {"d7": "another text"}, "index must be of the documents of the task"),
        ([("a", encoder), ("b", encoder)], task.documents, "index must be None with several encoders"),
        ([], task.documents, "index must be None without an encoder, got .*: give one"),
        ([("a", make_encoder(seed=1))], task.documents, "model must be the encoder"),
    ):
        with pytest.raises(ValueError, match=f"^{named}"):
            compare_retrieval(replace(task, documents=documents), models, index=path)
    assert path.read_bytes() == before, "what a user indexed stays"
    path.write_bytes(before[:-9])
    for wrong in (path, tmp_path / "no" / "such.parquet"):
        with pytest.raises(ValueError, match=r"^index must be .*got"):
            compare_retrieval(task, [("a", encoder)], index=wrong)


def test_an_index_counts_its_own_words(encoder, tmp_path):
    """Of its language, alone, with the encoder and in its ranks."""
    task = RetrievalTask({"a": "cats running"}, {"1": "dogs asleep", "2": "a cat ran and runs"}, {"a": {"2": 1.0}})
    path = tmp_path / "index.parquet"
    HybridSearch(encoder, task.documents, language="english", bm25_weight=50.0).save(path)
    rows = compare_retrieval(task, [("a", encoder)], index=path).rows
    assert {row: rows[row]["mrr@10"] for row in ("BM25", "a + BM25")} == {"BM25": 1.0, "a + BM25": 1.0}
    expected = compare_retrieval(task, [("a", encoder)], language="english").rows
    assert rows["a and BM25, RRF"] == expected["a and BM25, RRF"]
    new = tmp_path / "new.parquet"
    assert compare_retrieval(task, [("a", encoder)], language="english", index=new).rows["BM25"] == expected["BM25"]
    assert HybridSearch.open(new, encoder).language == "english"


def test_an_index_with_titles_serves_too(encoder, tmp_path):
    parts = {key: text.partition(" ") for key, text in DOCUMENTS.items()}
    rows = [{"_id": key, "title": title, "text": text} for key, (title, _, text) in parts.items()]
    HybridSearch(encoder, rows[::-1], queries=[QUERIES[key] for key in RELEVANT]).save(tmp_path / "index.parquet")
    expected = compare_retrieval(SEARCH, [("a", encoder)]).rows
    found = compare_retrieval(SEARCH, [("a", encoder)], index=tmp_path / "index.parquet").rows
    for row, metrics in expected.items():
        assert found[row] == pytest.approx(metrics, abs=1e-6), row
    blank = replace(SEARCH, documents={"blank": " ", **DOCUMENTS})
    rows = compare_retrieval(blank, [("a", encoder)], index=tmp_path / "index.parquet").rows
    assert rows["a"] == pytest.approx(expected["a"], abs=1e-6), "what has no text is not found"


def test_a_document_without_text_is_found_last(encoder, tmp_path):
    """Also behind documents whose cosine is negative."""
    centre = Dense(16, 16, activation_function=torch.nn.Identity())
    with torch.no_grad():
        centre.linear.weight.copy_(torch.eye(16))
        centre.linear.bias.copy_(-torch.from_numpy(encoder.encode([*FEW.documents.values()])).mean(dim=0))
    encoder.append(centre)
    HybridSearch(encoder, FEW.documents, bm25_weight=0).save(tmp_path / "index.parquet")
    texts, relevant = {"blank": " ", **FEW.documents}, {key: {"blank": 1.0} for key in FEW.queries}
    task = replace(FEW, documents=texts, relevant=relevant)
    ranks = compare_retrieval(task, [("a", encoder)], index=tmp_path / "index.parquet").ranks["a"]
    assert ranks == [len(texts)] * len(FEW.queries)


def test_the_weight_of_many_queries_is_found_from_some_of_them(encoder, tmp_path, monkeypatch):
    """The same ones with an index and without."""
    monkeypatch.setattr("st_extras.ranking.MOST_QUERIES", 3)
    rows = [compare_retrieval(SEARCH, [("a", encoder)], index=index).rows for index in (None, tmp_path / "i.parquet")]
    assert rows[0]["a + BM25"] == pytest.approx(rows[1]["a + BM25"], abs=1e-6)
    monkeypatch.undo()
    assert compare_retrieval(SEARCH, [("a", encoder)]).rows["a + BM25"] != pytest.approx(rows[0]["a + BM25"], abs=1e-6)


def test_an_index_with_whole_numbers_as_ids_serves_a_task_read_from_files(encoder, tmp_path):
    task = RetrievalTask(
        QUERIES, {key[1:]: text for key, text in DOCUMENTS.items()},
        {query: {key[1:]: grade for key, grade in grades.items()} for query, grades in RELEVANT.items()},
    )  # fmt: skip
    search = HybridSearch(encoder, [*DOCUMENTS.values()], queries=[QUERIES[key] for key in RELEVANT])
    search.save(tmp_path / "index.parquet")
    expected = compare_retrieval(task, [("a", encoder)]).rows
    found = compare_retrieval(task, [("a", encoder)], index=tmp_path / "index.parquet").rows
    assert found["a + BM25"] == pytest.approx(expected["a + BM25"], abs=1e-6)


def test_long_documents_count_by_their_best_passage_as_search_finds_them(encoder, caplog):
    """What is scored is what search finds, alone and with BM25; without passages, a warning says what is not read."""
    keys = list(DOCUMENTS)
    long = {key: " ".join(DOCUMENTS[other] for other in keys[i : i + 7 * (i % 2) + 1]) for i, key in enumerate(keys)}
    task = replace(SEARCH, documents=long)
    rows = {}
    for words in (8, None):
        caplog.clear()
        rows[words] = compare_retrieval(task, [("a", encoder)], passages=words).rows
        told = "documents are longer than the 16 tokens that the encoder reads" in caplog.text
        assert told == (words is None)
        for weight, row in ((0, "a"), (None, "a + BM25")):
            asked = {"bm25_weight": 0} if weight == 0 else {"queries": [QUERIES[key] for key in RELEVANT]}
            search = HybridSearch(encoder, long, passages=words, **asked)
            hits = search.search([QUERIES[key] for key in RELEVANT], 130)
            scores = {
                key: dict.fromkeys(long, -9.0) | {hit["corpus_id"]: hit["score"] for hit in found}
                for key, found in zip(RELEVANT, hits, strict=True)
            }
            assert rows[words][row]["ndcg@10"] == pytest.approx(loop(scores)[0]["ndcg@10"], abs=1e-5), (words, row)
    assert rows[8]["a"] != rows[None]["a"]
    with pytest.raises(ValueError, match=r"^passages must be"):
        compare_retrieval(task, [("a", encoder)], passages=2)


def test_the_tokens_of_a_prompt_count_where_documents_are_cut(encoder):
    """Of 13 words, the encoder reads all but for a prompt, whether that is given or its own."""
    texts = {key: f"{text} {text} {text} {text} cat" for key, text in FEW.documents.items()}
    task, prompts = replace(FEW, documents=texts), {"query_prompt": "he ", "document_prompt": "the old red "}
    found = [
        compare_retrieval(task, [("a", encoder)], passages=words, **given).rows["a"]["ndcg@10"]
        for words, given in ((8, prompts), (None, prompts), (8, {}), (None, {}))
    ]
    assert found[0] != pytest.approx(found[1])
    assert found[2] == pytest.approx(found[3])
    encoder.prompts = {"query": "he ", "document": "the old red "}
    assert compare_retrieval(task, [("a", encoder)], passages=8).rows["a"]["ndcg@10"] == pytest.approx(found[0])


PROMPTS = {"query": "he ", "document": "she "}
OTHER_NAMES = {"query": "", "document": "", "s2p_query": "he ", "passage": "she ", "clustering": "the "}


@pytest.mark.parametrize(
    ("prompts", "given", "used"),
    [
        (PROMPTS, {}, ("he ", "she ")),
        (OTHER_NAMES, {}, ("he ", "she ")),
        (PROMPTS, {"query_prompt": "a ", "document_prompt": "the "}, ("a ", "the ")),
    ],
)
def test_queries_and_documents_have_their_prompts(encoder, prompts, given, used):
    """The model's own, by name, unless others are given."""
    encoder.prompts = prompts
    plain = RetrievalTask(
        {key: used[0] + text for key, text in QUERIES.items()},
        {key: used[1] + text for key, text in DOCUMENTS.items()},
        RELEVANT,
    )
    found = RetrievalEvaluator(SEARCH, **given)(encoder)
    rows = compare_retrieval(SEARCH, [("", encoder)], **given).rows
    encoder.prompts = {}
    assert found == pytest.approx(RetrievalEvaluator(plain)(encoder))
    assert found["cosine_ndcg@10"] != pytest.approx(RetrievalEvaluator(SEARCH)(encoder)["cosine_ndcg@10"])
    assert rows[""]["ndcg@10"] == pytest.approx(found["cosine_ndcg@10"])


def test_a_router_sends_queries_and_documents_their_ways(encoder):
    """Queries see another space than documents: as when their embeddings are turned by hand."""
    turn = Dense(16, 16, bias=True, activation_function=torch.nn.Identity())
    router = Router({"query": [turn], "document": [Normalize()]}, default_route="document")
    model = SentenceTransformer(modules=[*encoder, router], device="cpu")
    queries = encoder.encode([QUERIES[key] for key in RELEVANT], convert_to_tensor=True)
    documents = encoder.encode(list(DOCUMENTS.values()), convert_to_tensor=True)
    with torch.no_grad():
        expected = loop(by_id(encoder.similarity(turn.linear(queries), documents).numpy()))[0]
    assert expected["ndcg@10"] != pytest.approx(loop(by_id(dense_and_bm25(encoder)[0]))[0]["ndcg@10"])
    assert RetrievalEvaluator(SEARCH)(model)["cosine_ndcg@10"] == pytest.approx(expected["ndcg@10"])
    assert compare_retrieval(SEARCH, [("", model)]).rows[""]["ndcg@10"] == pytest.approx(expected["ndcg@10"])


def test_the_models_own_similarity_is_used(encoder):
    encoder.similarity_fn_name = "dot"
    evaluator = RetrievalEvaluator(SEARCH)
    expected = loop(by_id(dense_and_bm25(encoder)[0]))[0]
    assert evaluator(encoder)["dot_ndcg@10"] == pytest.approx(expected["ndcg@10"])
    assert evaluator.primary_metric == "dot_ndcg@10"
    assert compare_retrieval(SEARCH, [("", encoder)]).rows[""]["ndcg@10"] == pytest.approx(expected["ndcg@10"])


@pytest.mark.parametrize("entrance", ["evaluator", "comparison", "new index", "index"])
def test_every_option_reaches_what_it_is_for(encoder, tmp_path, capfd, entrance):
    """Whichever entrance takes it; the dimensions of an index are the encoder's, and its documents are not encoded."""
    index = tmp_path / "index.parquet" if "index" in entrance else None

    def run(model: SentenceTransformer, **options: Any) -> float:
        if entrance == "evaluator":
            return RetrievalEvaluator(FEW, **options)(model)["cosine_ndcg@10"]
        return compare_retrieval(FEW, [("a", model)], index=index, **options).rows["a"]["ndcg@10"]

    if entrance == "index":
        run(encoder)
    for shown in (True, False):
        if entrance == "new index":
            index.unlink(missing_ok=True)
        with count_rows(encoder) as passes:
            whole = run(encoder, batch_size=3, show_progress_bar=shown)
        assert max(passes) == 3
        assert ("%" in capfd.readouterr().err) == (shown and entrance != "index")
    if index is None:
        cut = run(encoder, truncate_dim=4)
        encoder.truncate_dim = 4
        assert cut == pytest.approx(run(encoder)) != pytest.approx(whole)


def test_the_evaluator_takes_the_options_of_sentence_transformers(encoder):
    encoder.prompts = PROMPTS
    expected = RetrievalEvaluator(SEARCH)(encoder)
    encoder.prompts = {"q": "he ", "d": "she "}
    assert RetrievalEvaluator(SEARCH, query_prompt_name="q", corpus_prompt_name="d")(encoder) == pytest.approx(expected)
    assert "cosine_ndcg@5" in RetrievalEvaluator(SEARCH, ndcg_at_k=[5, 10])(encoder)
    with count_rows(encoder) as passes:
        RetrievalEvaluator(replace(SEARCH, documents={**DOCUMENTS, "again": DOCUMENTS["d0"]}))(encoder)
    assert sum(passes) == len({*DOCUMENTS.values()}) + len(RELEVANT), "equal ones are encoded once"


def test_settings_of_another_kind_are_named():
    with pytest.raises(ValueError, match=r"^task must be a RetrievalTask"):
        RetrievalEvaluator(SEARCH.queries)
    for options, named in (
        ({"ndcg_at_k": [5]}, "options"), ({"query_prompt": 3}, "query_prompt"),
        ({"document_prompt": 3}, "document_prompt"), ({"batch_size": 0}, "batch_size"),
        ({"language": "xx"}, "language"), ({"show_progress_bar": 1}, "show_progress_bar"),
        ({"passages": 3}, "passages"), ({"name": "a"}, "options"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=rf"^{named}"):
            compare_retrieval(SEARCH, [], **options)


# --- a query's own document ---

OWN = RetrievalTask(
    {"a": "a cat sat", "b": "the dog ran", "1": "two birds sing", "c": "the rain"},
    {
        "c": "the rain",
        "a": "a  cat sat",
        "b": "the dog ran",
        "1": "another text",
        "x": "a cat",
        "y": "dog",
        "z": "birds",
    },
    {"a": {"x": 1.0}, "b": {"b": 1.0, "y": 1.0}, "1": {"z": 1.0}},
)
"""Of a, its own document; of b, one that is judged relevant; of 1, another of the same number; c is not judged."""


def test_a_document_is_a_querys_own_by_its_id_and_text():
    assert OWN.own_documents() == {"a", "c"}
    assert replace(OWN, documents=OWN.documents | {"a": "Title a cat sat"}).own_documents() == {"a", "c"}


def test_a_querys_own_document_is_no_hit(encoder, caplog):
    evaluator = RetrievalEvaluator(OWN)
    (message,) = caplog.messages
    assert "1 of 3" in message
    assert evaluator.own_documents == {"a"}
    found = evaluator(encoder)
    scores = encoder.similarity(
        encoder.encode(list(OWN.queries.values())), encoder.encode(list(OWN.documents.values()))
    )
    expected = []
    for query, row in zip(OWN.relevant, scores.tolist(), strict=False):
        ranked = sorted(zip(row, OWN.documents, strict=True), key=lambda hit: (-hit[0], hit[1]))
        listed = [key for _, key in ranked if (query, key) != ("a", "a")]
        expected.append(next(1 / rank for rank, key in enumerate(listed, 1) if key in OWN.relevant[query]))
    assert found["cosine_mrr@10"] == pytest.approx(np.mean(expected))
    assert found["cosine_recall@10"] == 1.0, "what is judged relevant is a hit"
    compared = compare_retrieval(OWN, [("", encoder)])
    assert compared.rows[""]["ndcg@10"] == pytest.approx(found["cosine_ndcg@10"])
    ranks = [1 / rank if rank is not None and rank <= 10 else 0 for rank in compared.ranks[""]]
    assert np.mean(ranks) == pytest.approx(found["cosine_mrr@10"])  # the query's own document has no rank
    assert compare_retrieval(OWN, [("", encoder)]).rows["BM25"]["mrr@10"] == 1.0


def test_prompts_that_could_both_be_meant_are_warned_of(encoder, caplog):
    prompts._warn_once.cache_clear()  # another test may have had this warning, which is given once
    plain = RetrievalEvaluator(SEARCH)(encoder)
    encoder.prompts = {"s2p_query": "he ", "s2s_query": "she "}
    assert RetrievalEvaluator(SEARCH)(encoder) == pytest.approx(plain)
    (message,) = [message for message in caplog.messages if "prompt" in message]
    assert "s2p_query, s2s_query" in message
    assert "query_prompt" in message


def test_the_score_matrix_stays_small():
    queries = {f"q{number}": f"query {number}" for number in range(4000)}
    task = RetrievalTask(queries, {"d": "a cat"}, {name: {"d": 1.0} for name in queries})
    assert RetrievalEvaluator(task).corpus_chunk_size == 2**27 // 4000
    assert RetrievalEvaluator(SEARCH).corpus_chunk_size == 50_000
