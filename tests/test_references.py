"""Every number that the package reports, against somebody else's code or a plain loop.

The inputs are random, tied (most embeddings stand several times), dense (cosines that deviate by 1e-2 to 1e-7, as those
of raw encoders do) and degenerate. The references come with the extra ``dev``; ranx, which needs many packages, is a
package of its own to install.
"""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import bootstrap, spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from sklearn.metrics import v_measure_score
from torch import Tensor
from torch.nn.functional import normalize

from st_extras import correlation
from st_extras.correlation import cosines_of_pairs, spearman, spearman_of_pairs
from st_extras.encoders import load_encoder
from st_extras.evaluation import (
    LabeledTextEvaluator,
    RetrievalEvaluator,
    RetrievalTask,
    STSDataset,
    STSEvaluator,
    label_scores,
    load_labeled_texts,
    load_sts,
)
from st_extras.evaluation.geometry import iso_score
from st_extras.evaluation.label_metrics import average_precisions, knn_hits, label_numbers, v_measure
from st_extras.evaluation.paired import compare_sts
from st_extras.evaluation.reporting import bootstrap_interval, check_embeddings
from st_extras.evaluation.retrieval import fuse_ranks
from st_extras.modules.corpus_statistics import CorpusStatistics
from st_extras.modules.lambda_search import spearman_surface
from st_extras.modules.linear import whitening_transform
from st_extras.samples import graded_pairs
from st_extras.text.term_weights import BM25, search_words
from tests.evaluation.test_label_metrics import loop_of_neighbors
from tests.evaluation.test_sts import fixed
from tests.helpers import cosine, draw, generator
from tests.text.test_phrases import RAKE, plain_rake

COUNT, SIZE = 80, 24


def scattered(seed: int) -> Tensor:
    """Embeddings in all directions."""
    return draw(COUNT, SIZE, seed=seed).float()


def tied(seed: int) -> Tensor:
    """A quarter as many embeddings, each of which stands several times."""
    return scattered(seed)[torch.randint(COUNT // 4, (COUNT,), generator=generator(seed))]


def dense(deviation: float) -> Callable[[int], Tensor]:
    """Embeddings around a direction, whose cosines deviate by about this; float32, as encoders give them."""

    def rows(seed: int) -> Tensor:
        apart = math.sqrt(5 * deviation * math.sqrt(SIZE)) * draw(COUNT, SIZE, seed=seed)
        return (draw(SIZE, seed=99) * 2 + apart).float()

    return rows


def dense_and_tied(seed: int) -> Tensor:
    """Close together, and each of them several times."""
    return dense(1e-6)(seed)[torch.randint(COUNT // 2, (COUNT,), generator=generator(seed))]


def two(seed: int) -> Tensor:
    """Two different embeddings."""
    return scattered(seed)[torch.arange(COUNT) % 2]


CLOUDS = {"random": scattered, "tied": tied, "dense-and-tied": dense_and_tied, "two": two}
CLOUDS |= {f"dense-{deviation:g}": dense(deviation) for deviation in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)}
clouds = pytest.mark.parametrize("cloud", CLOUDS.values(), ids=CLOUDS)


def loop_of_cosines(first: Tensor, second: Tensor) -> list[float]:
    return [cosine(a, b) for a, b in zip(first.double(), second.double(), strict=True)]


def test_the_dense_clouds_are_dense():
    for deviation in (1e-2, 1e-4, 1e-7):
        found = np.std(loop_of_cosines(dense(deviation)(0), dense(deviation)(1)))
        assert deviation / 3 < found < 3 * deviation


# --- Spearman: scipy ---


@clouds
def test_spearman_is_scipys(cloud, monkeypatch):
    """In blocks of seven pairs, as those of many pairs are."""
    monkeypatch.setattr(correlation, "_BLOCK", 7 * SIZE)
    first, second = cloud(0), cloud(1)
    second[::9] = first[::9]  # pairs of equal texts, which are tied
    cosines = [1.0 if torch.equal(a, b) else cosine(a.double(), b.double()) for a, b in zip(first, second, strict=True)]
    noise = np.random.default_rng(2).normal(size=COUNT)
    scores = np.round(4 * (np.argsort(np.argsort(cosines)) / COUNT + noise / 3)).tolist()
    expected = spearmanr(cosines, scores).statistic
    assert 0.2 < expected < 0.99
    assert spearman_of_pairs(torch.cat([first, second]), scores) == pytest.approx(100 * expected, abs=1e-9)
    vectors = {f"{side}{row}": x for side, rows in (("a", first), ("b", second)) for row, x in enumerate(rows)}
    texts = [[f"{side}{row}" for row in range(COUNT)] for side in "ab"]
    data = STSDataset("toy", *texts, scores, ["x", "y"] * (COUNT // 2))
    assert STSEvaluator([data])(fixed(vectors))["toy_spearman_cosine"] == pytest.approx(expected, abs=1e-11)
    halves = [spearmanr(cosines[start::2], scores[start::2]).statistic for start in (0, 1)]
    metrics = STSEvaluator([data], setting="wmean")(fixed(vectors))
    assert metrics["toy_spearman_cosine"] == pytest.approx(np.mean(halves), abs=1e-11)


def test_spearman_of_what_has_none_is_not_a_number():
    nearly = 1 - 1e-10 * np.arange(9)
    assert np.isnan(spearman(nearly, range(9)))
    assert spearman(1 - 1e-9 * np.arange(9), range(9)) == -1
    assert np.isnan(spearman(np.arange(9), np.ones(9)))
    assert spearman([nearly, np.arange(9)], range(9)).tolist() == [pytest.approx(np.nan, nan_ok=True), 1]
    assert np.isnan(spearman([0.5], [1.0]))
    rows = torch.tensor([[1.0, 2.0], [0.0, 0.0], [3.0, 4.0]])
    assert cosines_of_pairs(rows, rows).tolist() == [1.0, 0.0, 1.0]


@clouds
def test_the_surface_of_weights_is_scipys(cloud):
    first, second = ((cloud(seed), cloud(seed + 10)) for seed in (0, 1))
    second[0][::9], second[1][::9] = first[0][::9], first[1][::9]
    second[0][1], second[1][1], second[0][0], second[1][0] = first[0][0], first[1][0], first[0][1], first[1][1]
    first, second = (tuple(side.double().numpy() for side in sides) for sides in (first, second))
    mean, scores = first[0].mean(axis=0), np.random.default_rng(0).integers(0, 5, COUNT)
    grid = [0.0, 0.3, 0.9]
    found = spearman_surface(first, second, mean, scores, grid, grid)
    for i, lambda_1 in enumerate(grid):
        for j, lambda_2 in enumerate(grid):
            a, b = (x - lambda_1 * redundant - lambda_2 * mean for x, redundant in (first, second))
            cosines = cosines_of_pairs(torch.from_numpy(a), torch.from_numpy(b))
            assert found[i, j] == pytest.approx(spearmanr(cosines, scores).statistic, abs=0.01 if i or j else 1e-9)


# --- 1-NN, k-NN and MAP@R: a loop ---


@clouds
def test_neighbours_are_those_of_a_loop(cloud):
    x = cloud(0)
    near = (x - x.mean(dim=0)).double() @ draw(SIZE, 4, seed=5)  # labels that neighbours share
    labels = torch.where(draw(COUNT, seed=6) > 0, near.argmax(dim=1), near.argmin(dim=1)).tolist()
    labels[3] = 7  # which stands once
    found, expected = label_scores(x, labels), loop_of_neighbors(x.double(), labels)
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert 0.02 < expected["map_at_r"] < 0.98


def test_of_equal_embeddings_none_is_near():
    collapsed = torch.ones(6, 3) / 3
    found = label_scores(collapsed, [0, 0, 1, 1, 2, 2])
    assert (found["knn_accuracy"], found["map_at_r"]) == (0, 0)
    hits = knn_hits(check_embeddings("x", collapsed), torch.tensor([0, 0, 0, 1, 0, 0]), [1])[0]
    assert not hits.any()
    assert average_precisions(check_embeddings("x", collapsed), torch.zeros(6, dtype=torch.long)).tolist() == [1] * 6


# --- V-measure: scikit-learn ---


def test_v_measure_is_scikit_learns():
    random = np.random.default_rng(0)
    for sizes in ((4, 7), (1, 5), (5, 1), (1, 1), (40, 40)):
        labels, found = (random.integers(0, size, 60) for size in sizes)
        assert v_measure(labels, found) == pytest.approx(v_measure_score(labels, found), abs=1e-12)
        assert v_measure(labels, labels) == pytest.approx(1)
    apart, halves = np.arange(60), np.repeat([0, 1], 30)
    for labels, found in ((apart, apart), (halves, np.tile([0, 1], 30)), (apart, halves)):
        assert v_measure(labels, found) == pytest.approx(v_measure_score(labels, found), abs=1e-12)
        assert v_measure(labels, found) >= 0


# --- nDCG, recall, MAP and MRR: trec_eval; reciprocal rank fusion: ranx ---


@pytest.mark.parametrize("kind", ["random", "tied", "equal"])
def test_search_metrics_are_trec_evals(kind):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    random = np.random.default_rng(0)
    documents, queries = [f"d{i:03}" for i in range(150)], [f"q{i}" for i in range(12)]
    graded = {
        query: {str(key): int(random.integers(1, 4)) for key in random.choice(documents, 1 + 3 * i, replace=False)}
        for i, query in enumerate(queries)
    }
    scores = {"random": random.normal(size=(12, 150)), "tied": random.integers(0, 9, (12, 150)).astype(float)}
    task = RetrievalTask(
        {query: query for query in queries},
        {key: key for key in documents},
        {query: {key: float(grade) for key, grade in grades.items()} for query, grades in graded.items()},
    )
    evaluator = RetrievalEvaluator(task)
    hits = evaluator.rank(scores.get(kind, np.zeros((12, 150))))
    found = evaluator.compute_metrics(hits)
    # of equal scores, trec_eval takes higher ids first: it gets the places as scores
    run = {
        q: {hit["corpus_id"]: 1000.0 - place for place, hit in enumerate(row)}
        for q, row in zip(queries, hits, strict=True)
    }
    whole = pytrec_eval.RelevanceEvaluator(graded, {"ndcg_cut_10", "recall_10", "recall_100", "map_cut_100"}).evaluate(
        run
    )
    first = {q: dict(list(row.items())[:10]) for q, row in run.items()}
    of_first = pytrec_eval.RelevanceEvaluator(graded, {"recip_rank"}).evaluate(first)
    expected = {name: np.mean([row[name] for row in whole.values()]) for name in whole["q0"]}
    expected["recip_rank"] = np.mean([row["recip_rank"] for row in of_first.values()])
    ours = {
        "ndcg_cut_10": found["ndcg@k"][10],
        "recall_10": found["recall@k"][10],
        "recall_100": found["recall@k"][100],
        "map_cut_100": found["map@k"][100],
        "recip_rank": found["mrr@k"][10],
    }
    assert ours == pytest.approx(expected, abs=1e-9)
    assert evaluator.ndcg_of_queries[10].tolist() == pytest.approx([whole[q]["ndcg_cut_10"] for q in queries], abs=1e-9)
    if kind == "equal":
        assert [hit["corpus_id"] for hit in hits[0][:3]] == documents[:3]


@pytest.mark.weekly
def test_rank_fusion_is_ranxs():
    ranx = pytest.importorskip("ranx")
    random = np.random.default_rng(0)
    dense_scores, words = random.normal(size=(5, 90)), random.normal(size=(5, 90)).clip(0)
    runs = [
        ranx.Run({f"q{q}": {f"d{i}": float(s) for i, s in enumerate(row) if kept(s)} for q, row in enumerate(scores)})
        for scores, kept in ((dense_scores, lambda _: True), (words, lambda score: score > 0))
    ]
    expected = ranx.fuse(runs, norm=None, method="rrf", params={"k": 60}).to_dict()
    found = fuse_ranks(dense_scores, words)
    for q, row in enumerate(found):
        assert {f"d{i}": score for i, score in enumerate(row)} == pytest.approx(expected[f"q{q}"])


# --- BM25: bm25s ---


@pytest.mark.parametrize("kind", ["random", "tied", "one", "words that are everywhere"])
def test_bm25_is_bm25s(kind):
    bm25s = pytest.importorskip("bm25s")
    random = np.random.default_rng(0)
    words = [f"w{i}" for i in range(40)]
    drawn = [" ".join(random.choice(words, random.integers(1, 30))) for _ in range(60)]
    documents = {"random": drawn, "tied": drawn[:6] * 10, "one": drawn[:1]}.get(
        kind, [f"the cat {text}" for text in drawn]
    )
    queries = ["w3 w7 w7 cat", "the", *drawn[:3]]
    index = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    index.index([search_words(text, singles=True) for text in documents], show_progress=False)
    expected = [index.get_scores(search_words(query)) for query in queries]
    np.testing.assert_allclose(BM25(documents).scores(queries), expected, rtol=2e-6, atol=1e-7)


# --- RAKE: rake-nltk ---


@pytest.mark.parametrize(
    "sentence",
    [
        "big red apples, and a red pear",
        "the and of",
        "",
        "cat cat, cat",
        "red sweet apple, red, sweet and red apple sweet",
    ],
)
def test_rake_is_rake_nltks(sentence):
    found = {(round(score, 9), phrase.lower()) for score, phrase in RAKE.scores(sentence)}
    assert found == {(round(score, 9), phrase) for score, phrase in plain_rake(sentence)}


# --- IsoScore: its authors' package; whitening: an eigendecomposition ---


@clouds
def test_iso_score_is_its_authors(cloud):
    authors = pytest.importorskip("IsoScore.IsoScore")
    x = cloud(0) * torch.linspace(1, 3, SIZE)
    unit = torch.nn.functional.normalize(x.double())
    assert iso_score(x) == pytest.approx(float(authors.IsoScore(unit.tolist())), abs=2e-5)


def test_iso_score_of_what_does_not_vary_is_zero():
    assert iso_score(torch.ones(9, 4)) == 0  # the authors' is not a number


@pytest.mark.parametrize("cloud", [scattered, dense(1e-3), dense(1e-7), "flat"], ids=["random", "1e-3", "1e-7", "flat"])
def test_whitening_is_an_eigendecomposition(cloud):
    x = (
        scattered(0) @ (draw(SIZE, 5, seed=1) @ draw(5, SIZE, seed=2)).float() if cloud == "flat" else cloud(0)
    ).double()
    found = whitening_transform(CorpusStatistics(SIZE).update(x[:30]).update(x[30:])).apply(x)
    centred = (x - x.mean(dim=0)).numpy()
    variances, directions = np.linalg.eigh(np.cov(centred.T))
    kept = variances > 1e-10 * variances.max()
    assert kept.sum() == (5 if cloud == "flat" else SIZE)
    expected = centred @ directions[:, kept] / np.sqrt(variances[kept])
    np.testing.assert_allclose((found @ found.T).numpy(), expected @ expected.T, atol=1e-5)


# --- paired intervals: scipy's bootstrap ---


def test_intervals_of_means_are_scipys():
    values = np.random.default_rng(0).normal(0.1, 1, 800)
    found = bootstrap_interval(values)
    expected = bootstrap((values,), np.mean, method="percentile", n_resamples=2000, rng=1).confidence_interval
    width = expected.high - expected.low
    assert found == pytest.approx(tuple(expected), abs=0.1 * width)


@pytest.mark.parametrize("deviation", [None, 1e-4, 1e-7])
def test_intervals_of_spearman_are_scipys(deviation):
    cloud = scattered if deviation is None else dense(deviation)
    sides = [torch.cat([cloud(seed), cloud(seed + 1), cloud(seed + 2)]) for seed in (0, 10)]
    other = [torch.cat([scattered(seed), scattered(seed + 1), scattered(seed + 2)]) for seed in (20, 30)]
    base, end = (cosines_of_pairs(*x) for x in (sides, other))
    noise = np.random.default_rng(0).normal(size=len(base))
    scores = np.argsort(np.argsort(base)) / 30 + np.argsort(np.argsort(end)) / 60 + 2 * noise
    vectors = [
        {f"{side}{i}": x for side, rows in zip("ab", rows, strict=True) for i, x in enumerate(rows)}
        for rows in (sides, other)
    ]
    texts = [[f"{side}{i}" for i in range(len(base))] for side in "ab"]
    data = STSDataset("toy", *texts, scores.tolist(), ["x"] * len(base))
    found = compare_sts(STSEvaluator([data]), [("base", fixed(vectors[0])), ("end", fixed(vectors[1]))])["end"]

    def difference(a: np.ndarray, b: np.ndarray, gold: np.ndarray) -> float:
        return spearmanr(b, gold).statistic - spearmanr(a, gold).statistic

    expected = bootstrap(
        (base, end, scores), difference, paired=True, vectorized=False, method="percentile", n_resamples=500, rng=1
    ).confidence_interval
    assert found["difference"] == pytest.approx(difference(base, end, scores), abs=1e-9)
    width = expected.high - expected.low
    assert (found["low"], found["high"]) == pytest.approx(tuple(expected), abs=0.2 * width)


# --- six encoders and real data ---


def words(model: SentenceTransformer) -> SentenceTransformer:
    """A table of its words' embeddings."""
    weights = model[0].model.get_input_embeddings().weight.detach().numpy()
    return SentenceTransformer(modules=[StaticEmbedding(model.tokenizer, embedding_weights=weights)], device="cpu")


ENCODERS = {
    "all-MiniLM-L6-v2": lambda: load_encoder("demo"),
    "three layers": lambda: load_encoder("demo", layers=3, pooling="mean"),
    "three layers, [CLS]": lambda: load_encoder("demo", layers=3, pooling="cls"),
    "all layers, last token": lambda: load_encoder("demo", pooling="lasttoken"),
    "two layers, first and last": lambda: load_encoder("demo", layers=2, pooling="first-last"),
    "words": lambda: words(load_encoder("demo")),
}


@pytest.mark.slow
@pytest.mark.parametrize("make", ENCODERS.values(), ids=ENCODERS)
def test_encoders_have_the_figures_of_sentence_transformers_scipy_and_a_loop(make, data_folder):
    model = make()
    dev = load_sts("stsb_dev", data_folder)
    part = STSDataset("dev", dev.sentences1[::5], dev.sentences2[::5], dev.scores[::5], dev.subsets[::5])
    sets = [STSDataset("sample", *graded_pairs(), ["x"] * 300), part]
    evaluator = STSEvaluator(sets)
    similarities = evaluator.similarities(model)
    metrics = evaluator.metrics(similarities)
    for data, found in zip(sets, similarities, strict=True):
        ours = metrics[f"{data.name}_spearman_cosine"]
        assert ours == pytest.approx(spearmanr(found, data.scores).statistic, abs=1e-12)
        if len(np.unique(found.astype(np.float32))) > 0.99 * len(np.unique(found)):
            theirs = EmbeddingSimilarityEvaluator(data.sentences1, data.sentences2, data.scores)(model)
            assert ours == pytest.approx(theirs["spearman_cosine"], abs=1e-4)
    domain = load_labeled_texts(Path(data_folder) / "domains" / "banking77_test.tsv.gz")
    texts, labels = domain.texts[::9], label_numbers(domain.labels[::9])
    found = LabeledTextEvaluator(texts, labels)(model)
    unit = normalize(model.encode(texts, convert_to_tensor=True).double())
    cosines = (unit @ unit.T).fill_diagonal_(-2)
    order = cosines.argsort(dim=1, descending=True)
    hits = (labels[order] == labels.unsqueeze(1)).numpy()
    others = np.bincount(labels)[labels] - 1
    precisions = [
        np.mean([row[:r][: i + 1].mean() * row[i] for i in range(r)]) for row, r in zip(hits, others, strict=True)
    ]
    assert found["knn_accuracy"] == pytest.approx(
        hits[:, 0].mean(), abs=1e-3
    )  # texts that the tokenizer takes as equal
    assert found["map_at_r"] == pytest.approx(np.mean(precisions), abs=1e-3)
