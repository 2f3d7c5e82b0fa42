"""An index's part in a search: smoothing, and a dimension against hubs."""

import numpy as np
import pandas as pd
import pytest

from st_extras.search import refine_documents, refine_queries, refinement

ROWS = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32) * 3


def loop(rows: np.ndarray, smoothing: float, hubness: float, neighbors: int) -> np.ndarray:
    """The equation, a document at a time."""

    def nearest(unit: list[np.ndarray], i: int) -> list[int]:
        return sorted((j for j in range(len(unit)) if j != i), key=lambda j: -float(unit[i] @ unit[j]))[:neighbors]

    unit = [row / np.linalg.norm(row) for row in rows.astype(np.float64)]
    smooth = [unit[i] + smoothing * np.mean([unit[j] for j in nearest(unit, i)], axis=0) for i in range(len(unit))]
    smooth = [row / np.linalg.norm(row) for row in smooth]
    return np.stack(
        [
            np.append(row, -hubness * np.mean([float(row @ smooth[j]) for j in nearest(smooth, i)]))
            for i, row in enumerate(smooth)
        ]
    )


@pytest.mark.parametrize(("smoothing", "hubness", "neighbors"), [(0.0, 0.25, 10), (0.25, 0.5, 3), (1.0, 0.0, 39)])
@pytest.mark.parametrize("block", [2**24, 100])
def test_documents_are_those_of_a_loop(monkeypatch, smoothing, hubness, neighbors, block):
    monkeypatch.setattr(refinement, "_BLOCK", block)
    before = ROWS.copy()
    found = refine_documents(ROWS, smoothing=smoothing, hubness=hubness, neighbors=neighbors)
    np.testing.assert_allclose(found, loop(ROWS, smoothing, hubness, neighbors), atol=1e-5)
    np.testing.assert_array_equal(ROWS, before)


@pytest.mark.parametrize("finds_itself", [True, False])
def test_neighbours_by_an_index(finds_itself):
    unit = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)

    def search(rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        cosines = rows @ unit.T
        if not finds_itself:
            cosines[cosines > 1 - 1e-5] = -1
        order = np.argsort(-cosines, axis=1)[:, :k]
        return np.take_along_axis(cosines, order, axis=1), order

    np.testing.assert_allclose(refine_documents(ROWS, nearest=search), refine_documents(ROWS), atol=1e-5)


def test_a_hub_is_found_less():
    ring = np.array([[np.cos(a), np.sin(a), 0.2] for a in np.linspace(0, 6, 30)])
    found = refine_documents(np.vstack([ring, [[0, 0, 1.0]], [[5.0, 5.0, -5.0]]]), neighbors=5, hubness=1.0)
    query = refine_queries([[0.0, 0.0, 2.0]])
    plain = query[:, :-1] @ found[:, :-1].T
    np.testing.assert_allclose(query @ found.T, plain + found[:, -1], atol=1e-6)
    assert found[-2, -1] > found[:30, -1].max()  # alone: no hub


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (ROWS[:10], {}, "neighbors must be a whole number .*9"),
        (ROWS[0], {}, "embeddings must be .N, D. with N >= 2, got the shape .6,."),
        (ROWS * np.nan, {}, "embeddings must be finite"),
        (ROWS * 0, {}, "embeddings must have a direction in each row"),
        (ROWS[:20], {"nearest": lambda rows, k: (np.full((20, k), np.nan), np.zeros((20, k), int))}, "got nan"),
        (ROWS[:20], {"nearest": lambda rows, k: (np.full((20, k), 0.1), np.arange(20 * k).reshape(20, k))}, "to 219"),
        (ROWS[:20], {"nearest": lambda rows, k: (np.full((20, k), 0.1), np.tile(np.arange(k), (20, 1)))}, "got 0.1"),
        (ROWS, {"smoothing": 2}, "smoothing must be"),
        (ROWS, {"hubness": -1}, "hubness must be"),
        (ROWS[:20], {"nearest": lambda rows, k: (np.zeros((20, k)), np.full((20, k), -1))}, "of 11 documents, got 0"),
        (ROWS, {"smoothing": 0.5, "nearest": lambda rows, k: (rows, rows)}, "nearest must be None with smoothing"),
    ],
)
def test_what_is_refused(rows, options, message):
    with pytest.raises(ValueError, match=message):
        refine_documents(rows, **options)


@pytest.mark.parametrize(
    "rows",
    [
        (ROWS * 10).astype(np.int8),
        (ROWS * 10 + 128).astype(np.uint8),
        ROWS > 0,
        np.packbits(ROWS > 0, axis=1),
    ],
    ids=["int8", "uint8", "bool", "packed"],
)
def test_quantised_embeddings_are_refused(rows):
    for refine in (refine_documents, refine_queries):
        with pytest.raises(ValueError, match=r"^embeddings must be .*quantised"):
            refine(rows)


def test_a_data_frame_of_numbers_is_an_array():
    np.testing.assert_allclose(refine_documents(pd.DataFrame(ROWS)), refine_documents(ROWS), atol=1e-6)
    with pytest.raises(ValueError, match=r"^embeddings must be"):
        refine_documents(pd.DataFrame({"text": ["a", "b"]}))


@pytest.mark.slow
def test_in_a_vector_store(tmp_path):
    qdrant = pytest.importorskip("qdrant_client")
    found, queries = refine_documents(ROWS), refine_queries(ROWS[:4] + 1)
    store = qdrant.QdrantClient(path=str(tmp_path))
    config = qdrant.models.VectorParams(size=found.shape[1], distance=qdrant.models.Distance.DOT)
    store.create_collection("faq", vectors_config=config)
    store.upload_collection("faq", vectors=found, ids=range(len(found)))
    for query in queries:
        hits = store.query_points("faq", query=query.tolist(), limit=5).points
        assert [hit.id for hit in hits] == np.argsort(-(found @ query))[:5].tolist()
    store.close()
