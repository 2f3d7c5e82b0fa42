"""The studies of search: each way to fuse as a plain loop, records from their texts, the cache, and resuming."""

import itertools
import random
import statistics
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import hybrid, passages, refusals, retrieval
from benchmarks.records import records
from benchmarks.studies import KEPT, Options, named_study
from st_extras.adaptation.search_transforms import both_sides, queries_alone
from st_extras.evaluation import RetrievalEvaluator, RetrievalTask, load_retrieval
from st_extras.ranking import queries_from_documents
from st_extras.search import HybridSearch
from tests.fixtures import SENTENCES, build_encoder
from tests.helpers import draw

WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
TEXTS = [" ".join(random.Random(i).choices(WORDS, k=4)) for i in range(120)]


def unit(*shape: int, seed: int = 0) -> np.ndarray:
    return torch.nn.functional.normalize(draw(*shape, seed=seed).float() + 1, dim=1).numpy()


@pytest.mark.parametrize("count", [retrieval.FEWEST_QUERIES, retrieval.FEWEST_QUERIES - 1])
def test_the_first_harmless_routes_are_chosen(monkeypatch, count):
    monkeypatch.setattr(retrieval.PseudoRelevanceComparison, "compare", lambda self, queries, documents: (0.0, 0.0))
    queries = [f"{WORDS[i % len(WORDS)]} {i}" for i in range(count)]
    start = unit(count, 16), unit(120, 16, seed=1)
    for name, transforms in retrieval.SHIPPED.items():
        expected = both_sides(TEXTS, start, transforms, 42)
        expected = queries_alone(expected, start) if name == KEPT else expected
        after = retrieval.chosen_routes(name, transforms, start, queries, TEXTS).after(start)
        for side, wanted in zip(
            after, expected[0].after(start) if count == retrieval.FEWEST_QUERIES else start, strict=True
        ):
            np.testing.assert_allclose(side, wanted, atol=1e-6)


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data" / "retrieval" / "med"
    folder.mkdir(parents=True)
    tables = {
        "corpus": [("id", "text"), *enumerate(TEXTS)],
        "queries": [("id", "text"), *((f"q{i}", TEXTS[3 * i].rpartition(" ")[0]) for i in range(9))],
        "qrels": [("qid", "docid"), *((f"q{i}", 3 * i + k) for i in range(9) for k in (0, 1))],
    }
    for name, rows in tables.items():
        (folder / f"{name}.csv").write_text("".join(f"{key},{value}\n" for key, value in rows))
    return tmp_path / "data"


def test_a_study_resumes_and_encodes_once(data, encoder, tmp_path, monkeypatch):
    loaded = []
    monkeypatch.setattr(retrieval, "load_encoder", lambda **settings: (loaded.append(settings), encoder)[1])
    options = Options(data, tmp_path / "work", tmp_path / "results", encoders=["mpnet"], sets=["med"])
    study = named_study("hybrid")
    hybrid.run(study, options)
    (record,) = records("hybrid", root=options.root)
    expected = RetrievalEvaluator(load_retrieval(data / "retrieval" / "med"))(encoder)
    assert loaded == [study["encoders"]["mpnet"]]
    assert record["rows"]["start"]["ndcg@10"] == pytest.approx(100 * expected["cosine_ndcg@10"], abs=1e-3)
    assert record["rows"]["start"]["mrr@10"] == pytest.approx(100 * expected["cosine_mrr@10"], abs=1e-3)
    assert (record["run"], record["queries"], record["documents"]) == ("mpnet-med", 9, 120)
    hybrid.run(study, options)
    file = options.root / "hybrid.jsonl"
    file.unlink()
    hybrid.run(study, options)
    assert records("hybrid", root=options.root)[0]["rows"] == record["rows"]
    assert len(loaded) == 1
    file.unlink()
    for count in (3, 121):
        np.save(options.work / "retrieval" / "mpnet" / "med.d.npy", np.zeros((count, 4)))
        with pytest.raises(ValueError, match=rf"med\.d\.npy must hold 120 embeddings, got {count}"):
            hybrid.run(study, options)


def test_each_encoder_and_collection_has_a_record_and_a_place_in_the_cache(encoder, tmp_path, monkeypatch):
    loaded: list[Any] = []
    monkeypatch.setattr(retrieval, "load_encoder", lambda **settings: loaded.append(settings) or encoder)
    monkeypatch.setattr(retrieval, "packaged_minilm", lambda: "packaged")
    texts = {"med": SENTENCES[:3], "cran": SENTENCES[3:]}

    def run_one(name: str, settings: dict[str, Any], collection: str, data: Path, cache: Path) -> dict[str, Any]:
        (rows,) = retrieval.embeddings(name, settings, {f"{collection}.d": texts[collection]}, cache)
        np.testing.assert_allclose(rows, encoder.encode(texts[collection], normalize_embeddings=True), atol=1e-6)
        return {"rows": {"start": {"ndcg@10": 1.0}}, "from": [name, collection, data.name, cache.parent.name]}

    study = {"name": "s", "encoders": {"a": {}, "b": {"path": "p"}}, "collections": ["med", "cran"]}
    options = Options(tmp_path / "data", tmp_path / "work", tmp_path / "results")
    retrieval.over_collections(study, options, run_one)
    found = {one["run"]: one["from"] for one in records("s", root=options.root)}
    assert found == {f"{name}-{where}": [name, where, "data", "work"] for name in "ab" for where in ("cran", "med")}
    assert loaded == [{"path": "packaged"}] * 2 + [{"path": "p"}] * 2
    retrieval.over_collections(study | {"name": "t"}, replace(options, encoders=["b"], sets=["cran"]), run_one)
    assert [one["run"] for one in records("t", root=options.root)] == ["b-cran"]
    assert len(loaded) == 4, "the embeddings are there"


def test_a_row_is_compared_with_the_first_one(data):
    task = load_retrieval(data / "retrieval" / "med")
    evaluator = RetrievalEvaluator(task)
    scores = {name: numbers.normal(size=(9, 120)) for name in ("start", "better", "worse")}
    relevant = np.array([[key in task.relevant[q] for key in task.documents] for q in evaluator.queries_ids])
    scores["better"] += relevant
    found = retrieval.scored(scores.items(), evaluator)
    base = None
    for name, row in scores.items():
        places = [np.argsort(-one).tolist() for one in row]
        gains = [
            sum(good[i] / np.log2(at + 2) for at, i in enumerate(order[:10]))
            for order, good in zip(places, relevant, strict=True)
        ]
        ideal = [sum(1 / np.log2(at + 2) for at in range(min(10, good.sum()))) for good in relevant]
        ndcg = np.array(gains) / ideal
        base = ndcg if base is None else base
        first = [
            next((at for at, i in enumerate(order[:10]) if good[i]), None)
            for order, good in zip(places, relevant, strict=True)
        ]
        recalls = [good[order[:100]].sum() / good.sum() for order, good in zip(places, relevant, strict=True)]
        low, high = retrieval.bootstrap_interval(ndcg - base)
        expected = {
            "ndcg@10": ndcg.mean(), "difference": (ndcg - base).mean(), "low": low, "high": high,
            "recall@100": np.mean(recalls), "mrr@10": np.mean([0 if at is None else 1 / (at + 1) for at in first]),
        }  # fmt: skip
        assert found[name] == pytest.approx({key: 100 * value for key, value in expected.items()}, abs=2e-3)
    assert list(found) == list(scores)


numbers = np.random.default_rng(0)
DENSE = numbers.normal(size=(3, 150))
BM25 = np.maximum(0, numbers.normal(size=(3, 150)) * 5)
BM25[1, 3:] = 0
BM25[2] = 0


def first(scores: list[float], found: bool) -> list[int]:
    order = sorted(range(len(scores)), key=lambda i: -scores[i])[:100]
    return [i for i in order if found or scores[i] > 0]


def of_distribution(values: list[float]) -> list[float]:
    mean, deviation = statistics.mean(values), statistics.stdev(values)
    return [(value - (mean - 3 * deviation)) / (6 * deviation) for value in values]


def of_range(values: list[float]) -> list[float]:
    return [(value - min(values)) / (max(values) - min(values)) / 2 for value in values]


@pytest.mark.parametrize(
    ("fuse", "scale"), [(hybrid.fuse_distributions, of_distribution), (hybrid.fuse_ranges, of_range)]
)
def test_first_scores_are_scaled_and_added(fuse, scale):
    expected = np.zeros((3, 150))
    for query in range(3):
        for side in (DENSE, BM25):
            places = first(side[query].tolist(), side is DENSE)
            if places:
                for place, value in zip(places, scale([side[query, i] for i in places]), strict=True):
                    expected[query, place] += value
    np.testing.assert_allclose(fuse(DENSE, BM25), expected)


def test_a_record_is_what_hybrid_search_finds(data, encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(retrieval, "load_encoder", lambda **_: encoder)
    record = hybrid.score("mpnet", {}, "med", data, tmp_path, shares=[0.1, 0.2])
    task = load_retrieval(data / "retrieval" / "med")
    queries = list(task.queries.values())
    made = HybridSearch(encoder, TEXTS)
    assert record["weights"]["start + BM25, 0.2, weight from documents"] == pytest.approx(made.bm25_weight, abs=1e-5)
    found = HybridSearch(encoder, TEXTS, queries=queries, share=0.1)
    assert record["weights"]["start + BM25, 0.1"] == pytest.approx(found.bm25_weight, abs=1e-5)
    keys = list(task.documents)
    evaluator = RetrievalEvaluator(task)
    hits = [[{**hit, "corpus_id": keys[hit["corpus_id"]]} for hit in one] for one in found.search(queries, 100)]
    metrics = evaluator.compute_metrics(hits)
    assert record["rows"]["start + BM25, 0.1"]["ndcg@10"] == pytest.approx(100 * metrics["ndcg@k"][10], abs=0.01)
    assert {"BM25", "start, RRF", "adapt, DBSF", "adapt, keep_index + BM25, 0.2"} <= record["rows"].keys()
    base = record["rows"]["start"]["ndcg@10"]
    for row in record["rows"].values():
        assert row["difference"] == pytest.approx(row["ndcg@10"] - base, abs=2e-3)
        assert row["low"] <= row["difference"] <= row["high"]
    assert len({row["difference"] for row in record["rows"].values()}) > 2


def test_the_weight_of_an_adapted_row_is_that_of_its_own_embeddings(data, encoder, tmp_path, monkeypatch):
    by = {"adapt": 3.0, KEPT: 0.2}

    def moved(rows: np.ndarray, name: str) -> np.ndarray:
        moved = rows * np.linspace(1, 1 + by[name], rows.shape[1], dtype=np.float32)
        return moved / np.linalg.norm(moved, axis=1, keepdims=True)

    def chosen_routes(name: str, *_: Any) -> Any:
        return SimpleNamespace(after=lambda start: (moved(start[0], name), moved(start[1], name)))

    monkeypatch.setattr(retrieval, "load_encoder", lambda **_: encoder)
    monkeypatch.setattr(hybrid, "chosen_routes", chosen_routes)
    record = hybrid.score("mpnet", {}, "med", data, tmp_path, shares=[0.2])
    task = load_retrieval(data / "retrieval" / "med")
    sentences, index = queries_from_documents(TEXTS), hybrid.BM25(TEXTS)
    queries = [task.queries[key] for key in RetrievalEvaluator(task).queries_ids]
    found = [encoder.encode(one, normalize_embeddings=True) for one in (queries, TEXTS, sentences)]
    for name in by:
        of_queries, of_documents, of_sentences = (moved(one, name) for one in found)
        expected = hybrid.bm25_weight(of_sentences @ of_documents.T, index.scores(sentences))
        assert record["weights"][f"{name} + BM25, 0.2, weight from documents"] == pytest.approx(expected, abs=1e-5)
        expected = hybrid.bm25_weight(of_queries @ of_documents.T, index.scores(queries), 0.2)
        assert record["weights"][f"{name} + BM25, 0.2"] == pytest.approx(expected, abs=1e-5)
    assert len(set(record["weights"].values())) == 6, "each row has its own"


def test_documents_are_joined_on_like_topics_and_are_relevant_to_the_queries_of_each():
    words = [[f"{topic}{i}" for i in range(12)] for topic in ("car", "dog", "sea")]
    texts = {f"d{i}": " ".join([*random.Random(i).sample(words[i % 3], 6), f"own{i}"]) for i in range(60)}
    relevant = {f"q{i}": {f"d{i}": 1, f"d{59 - i}": i % 2} for i in range(60)} | {"none": {"gone": 1}}
    task = RetrievalTask({key: f"query {key}" for key in relevant}, texts, relevant)
    made = passages.joined(task, 50)
    parts = [text.split(passages.PARAGRAPHS) for text in made.documents.values()]
    drawn = [part for of_one in parts for part in of_one]
    assert len(drawn) == len(set(drawn)) == 50
    assert {*drawn} < {*texts.values()}
    assert {len(of_one) for of_one in parts[:-3]} <= {3, 4, 5, 6}
    assert len({len(of_one) for of_one in parts}) > 2
    topics = [len({part[:3] for part in of_one}) for of_one in parts]
    assert statistics.mean(topics) < 1.5, "the nearest texts are joined"
    for query, keys in relevant.items():
        wanted = {
            name for name, text in made.documents.items()
            for key, grade in keys.items() if grade and texts.get(key, "-") in text.split(passages.PARAGRAPHS)
        }  # fmt: skip
        assert {*made.relevant.get(query, ())} == wanted
        assert made.queries.get(query) == (f"query {query}" if wanted else None)
    assert "none" not in made.queries
    assert passages.joined(task, 50).documents == made.documents
    assert len([part for text in passages.joined(task, 99).documents.values() for part in text.split("\n\n")]) == 60


def test_the_rows_of_passages_are_of_the_best_of_halfway_and_of_the_beginning():
    best, mean, start = (numbers.normal(size=(3, 150)) for _ in range(3))
    found = dict(passages.rows_of("L", best, mean, BM25, start))
    dense = {"L": best, "L, mean": best / 2 + mean / 2, "L, beginning": np.where(start > best, start, best)}
    assert list(found) == [name for one in dense for name in (one, f"{one} + BM25")]
    for name, scores in dense.items():
        np.testing.assert_allclose(found[name], scores)
        expected = hybrid.weighted(scores, BM25, hybrid.bm25_weight(scores, BM25))
        np.testing.assert_array_equal(found[f"{name} + BM25"], expected)


@pytest.mark.parametrize("union", [True, False])
def test_the_scores_are_of_the_first_documents_of_each_side(monkeypatch, union):
    """Of BM25 those with a word of the query alone; with ``union`` false, of the encoder's first ones."""
    monkeypatch.setattr(hybrid, "FEWEST_CANDIDATES", 20)
    found = hybrid.weighted(DENSE, BM25, 0.3, union=union)
    for query in range(3):
        kept = {*np.argsort(-DENSE[query])[:20].tolist()}
        if union:
            kept |= {i for i in np.argsort(-BM25[query], kind="stable")[:20].tolist() if BM25[query, i] > 0}
        for i in range(150):
            expected = DENSE[query, i] + 0.3 * BM25[query, i] if i in kept else -np.inf
            assert found[query, i] == pytest.approx(expected)


def test_passages_are_those_of_hybrid_search(data, encoder, tmp_path, monkeypatch):
    for module in (retrieval, passages):
        monkeypatch.setattr(module, "load_encoder", lambda **_: encoder)
    encoder.max_seq_length = 8
    record = passages.score("minilm", {}, "long-med", data, tmp_path, cuts=[[4, 3], [6, 2]], texts=100)
    task = passages.read_collection("long-med", data, 100)
    assert passages.read_collection("med", data, 100).documents == load_retrieval(data / "retrieval" / "med").documents
    assert (record["documents"], record["longer"] > 20) == (len(task.documents), True)
    mean_words = statistics.mean(len(text.split()) for text in task.documents.values())
    assert record["words"] == pytest.approx(mean_words, abs=0.06)
    assert {name for name in record["rows"] if "words" in name} == {
        f"{cut}{kind}{bm25}"
        for cut in ("4 words, step 3", "6 words, step 2")
        for kind in ("", ", mean", ", beginning")
        for bm25 in ("", " + BM25")
    }
    queries, evaluator = list(task.queries.values()), RetrievalEvaluator(task)
    of_queries = encoder.encode([task.queries[key] for key in evaluator.queries_ids], normalize_embeddings=True)
    halfway = np.zeros((len(of_queries), len(task.documents)))
    for place, text in enumerate(task.documents.values()):
        is_longer = bool(passages.longer_than_read(encoder, [text])[0])
        spans = passages.passage_spans(text, 4, 3) if is_longer else [(0, len(text))]
        parts = encoder.encode([text[begin:end] for begin, end in spans], normalize_embeddings=True)
        cosines = of_queries @ parts.T
        halfway[:, place] = (cosines.max(axis=1) + cosines.mean(axis=1)) / 2
    rows = retrieval.scored([("mean", halfway)], evaluator)
    assert record["rows"]["4 words, step 3, mean"]["ndcg@10"] == pytest.approx(rows["mean"]["ndcg@10"], abs=0.01)
    for name, options in {
        "4 words, step 3 + BM25": {"passages": 4},
        "start + BM25": {"passages": None},
        "start + BM25, english": {"passages": None, "language": "english"},
    }.items():
        found = HybridSearch(encoder, task.documents, queries=queries, **options)
        metrics = evaluator.compute_metrics(found.search(queries, 100))
        assert record["rows"][name]["ndcg@10"] == pytest.approx(100 * metrics["ndcg@k"][10], abs=0.01), name
    assert len({row["ndcg@10"] for row in record["rows"].values()}) > 4


def test_bounds_are_of_sentences_and_documents_that_do_not_hold_them(encoder):
    """Each document has two sentences; those of a seed's documents stand for queries."""
    texts = [f"{one.capitalize()} there. {other.capitalize()} here." for one, other in itertools.pairwise(TEXTS[:25])]
    search = HybridSearch(encoder, texts, bm25_weight=0.05)
    for seed in (0, 1):
        sentences = queries_from_documents(random.Random(seed).sample(texts, 19))
        dense, bm25 = search.scores(sentences)
        rows: dict[str, list[float]] = {"cosine": [], "sum": []}
        for i, sentence in enumerate(sentences):
            for j, text in enumerate(texts):
                if sentence not in text:
                    rows["cosine"].append(dense[i, j])
                    rows["sum"].append(dense[i, j] + 0.05 * bm25[i, j])
        expected = {
            f"{side}, 1 in {n:,}": np.quantile(values, 1 - 1 / n) for side, values in rows.items() for n in (4, 1000)
        }
        assert refusals.bounds(search, [4, 1000], seed) == pytest.approx(expected)


def test_each_encoder_opens_its_own_search_and_has_a_record_for_each_collection(data, tmp_path, monkeypatch):
    asked: list[Any] = []
    monkeypatch.setattr(
        refusals, "score", lambda *given, **more: asked.append((given, more)) or {"good": 1, "queries": 2}
    )
    study = {"name": "s", "encoders": {"a": {}, "b": {"path": "p"}}, "collections": ["med", "cran"]}
    options = Options(data, tmp_path / "work", tmp_path / "results")
    refusals.run(study | {"one_in": [5], "seeds": [3]}, options)
    places, more = (data, tmp_path / "work" / "refusals"), {"one_in": [5], "seeds": [3]}
    assert asked == [((n, study["encoders"][n], c, *places), more) for n in "ab" for c in ("med", "cran")]
    runs = [one["run"] for one in records("s", root=options.root)]
    assert runs == ["a-cran", "a-med", "b-cran", "b-med"]
    task = load_retrieval(data / "retrieval" / "med")
    models = {"packaged": build_encoder(tmp_path / "one"), "p": build_encoder(tmp_path / "two", seed=1)}
    monkeypatch.setattr(refusals, "load_encoder", lambda path: models[path])
    monkeypatch.setattr(refusals, "packaged_minilm", lambda: "packaged")
    for _ in range(2):
        for name, settings in study["encoders"].items():
            search = refusals.opened(name, settings, "med", task, tmp_path)
            expected = HybridSearch(models[settings.get("path", "packaged")], task.documents).scores(["a cat"])[0]
            np.testing.assert_allclose(search.scores(["a cat"])[0], expected, atol=1e-5)


def test_refusals_are_those_of_hybrid_search(data, encoder, tmp_path, monkeypatch):
    """Query by query, by the hits: the first one that is good, and those once the relevant documents are removed."""
    monkeypatch.setattr(refusals, "load_encoder", lambda **_: encoder)
    judged = [(f"q{i}", 3 * i + k) for i in range(9) for k in ((0, 1) if i % 3 else (2, 7))]
    qrels = "".join(f"{query},{document}\n" for query, document in [("qid", "docid"), *judged])
    (data / "retrieval" / "med" / "qrels.csv").write_text(qrels)
    given = "minilm", {}, "med", data, tmp_path
    record = refusals.score(*given, one_in=[3, 400], seeds=[0, 1])
    assert refusals.score(*given, one_in=[3, 400], seeds=[0, 1]) == record  # from the file
    task = load_retrieval(data / "retrieval" / "med")
    search = HybridSearch(encoder, task.documents)
    first = {key: hits[0] for key, hits in zip(task.queries, search.search([*task.queries.values()], 1), strict=True)}
    good = [key for key, hit in first.items() if hit["corpus_id"] in task.relevant[key]]
    left = {
        key: search.search(query, 10, among=[one for one in search.ids if one not in task.relevant[key]])[0]
        for key, query in task.queries.items()
    }
    assert (record["good"], record["queries"], record["documents"]) == (len(good), 9, 120)
    assert 0 < len(good) < 9
    for row, seeds in record["rows"].items():
        score = "dense" if row.startswith("cosine") else "score"
        for found in seeds:
            kept = [first[key][score] >= found["bound"] for key in good]
            refused = [all(hit[score] < found["bound"] for hit in hits) for hits in left.values()]
            assert found["kept"] == pytest.approx(100 * np.mean(kept), abs=0.01)
            assert found["refused"] == pytest.approx(100 * np.mean(refused), abs=0.01)
    assert any(0 < found["kept"] < 100 for seeds in record["rows"].values() for found in seeds)
    assert len({found["bound"] for seeds in record["rows"].values() for found in seeds}) == 8, "another seed is seen"
    bounds = refusals.bounds(search, [1000], 0)
    assert bounds["cosine, 1 in 1,000"] == pytest.approx(search.unrelated_similarity(1000), abs=0.02)
