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
    hub = [np.mean([float(row @ smooth[j]) for j in nearest(smooth, i)]) for i, row in enumerate(smooth)]
    return np.stack([np.append(row, -hubness * mean) for row, mean in zip(smooth, hub, strict=True)])


@pytest.mark.parametrize(("smoothing", "hubness", "neighbors"), [(0.0, 0.25, 10), (0.25, 0.5, 3), (1.0, 0.0, 39)])
@pytest.mark.parametrize("block", [2**24, 100])
def test_documents_are_those_of_a_loop(monkeypatch, smoothing, hubness, neighbors, block):
    monkeypatch.setattr(refinement, "_BLOCK", block)
    before = ROWS.copy()
    found = refine_documents(ROWS, smoothing=smoothing, hubness=hubness, neighbors=neighbors)
    np.testing.assert_allclose(found, loop(ROWS, smoothing, hubness, neighbors), atol=1e-5)
    np.testing.assert_array_equal(ROWS, before)
    queries = refine_queries(ROWS[:3])
    unit = ROWS[:3] / np.linalg.norm(ROWS[:3], axis=1, keepdims=True)
    np.testing.assert_allclose(queries @ found.T, unit @ found[:, :-1].T + found[:, -1], atol=1e-5)


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


@pytest.mark.parametrize(
    ("cosines", "numbers"),
    [(np.nan, np.zeros((40, 11), int)), (0.1, np.arange(440).reshape(40, 11)), (0.1, np.tile(np.arange(11), (40, 1)))],
    ids=["cosines", "numbers", "its own cosine"],
)
def test_an_index_that_does_not_return_cosines_is_refused(cosines, numbers):
    with pytest.raises(ValueError, match=r"^nearest must return"):
        refine_documents(ROWS, nearest=lambda rows, k: (np.full((40, k), cosines), numbers))


@pytest.mark.parametrize(
    ("rows", "options", "argument"),
    [
        (ROWS[:10], {}, "neighbors"),
        (ROWS * 0, {}, "embeddings"),
        (pd.DataFrame({"text": ["a", "b"]}), {}, "embeddings"),
        (ROWS, {"smoothing": 2}, "smoothing"),
        (ROWS, {"hubness": -1}, "hubness"),
        (ROWS, {"smoothing": 0.5, "nearest": lambda rows, k: (rows, rows)}, "nearest"),
    ],
)
def test_what_is_refused(rows, options, argument):
    with pytest.raises(ValueError, match=f"^{argument} must"):
        refine_documents(rows, **options)
