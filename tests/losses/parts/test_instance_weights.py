from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.functional import cosine_scores, unit_rows
from st_extras.losses.parts.instance_weights import InstanceWeights, count_negatives
from tests.helpers import columns, draw, generator

Maker = Callable[..., SentenceTransformer]


def made(model: SentenceTransformer, guide: Any, **options: Any) -> InstanceWeights:
    settings = {"threshold": None, "masked_share": None, "gather_across_devices": False} | options
    return InstanceWeights(model, guide, None, **settings)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("options", [{"threshold": 0.1}, {"masked_share": 0.4}])
@pytest.mark.parametrize("guide", ["start", "self"])
def test_rows_have_the_weights_of_the_batch(
    make_encoder: Maker, sentences: list[str], guide: str, options: dict[str, float], count: int
) -> None:
    model = make_encoder()
    features = [model.preprocess(column) for column in columns(sentences, count).values()]
    anchors, candidates = draw(8, 16).float(), unit_rows(draw(8, 16, seed=1).float())
    cosines = cosine_scores(anchors, candidates)
    expected = made(model, guide, **options).of_batch(cosines, features)
    assert expected is not None
    by_rows = made(model, guide, **options).of_rows(anchors, candidates, features, 3)
    assert by_rows is not None
    parts = [by_rows(cosines[begin : begin + 3], begin) for begin in (0, 3, 6)]
    assert torch.equal(torch.cat(parts), expected)
    if guide == "self" or "masked_share" in options:
        assert 0 < expected.sum() < 64


def test_without_a_guide_there_are_no_weights(make_encoder: Maker) -> None:
    weights = made(make_encoder(), None, threshold=0.5)
    assert weights.of_batch(draw(4, 4), None) is None
    assert weights.of_rows(draw(4, 8), draw(4, 8), None, 2) is None
    assert weights.masked_negatives.isnan()


def test_what_is_measured() -> None:
    given = (torch.rand(4, 6, generator=generator(1)) > 0.5).float()
    left = [sum(float(given[i][j]) for j in range(6) if j != i + 2) for i in range(4)]
    assert count_negatives(given, 2).tolist() == left
    weights = made(SentenceTransformer(modules=[torch.nn.Identity()], device="cpu"), "self")
    weights.measure(torch.tensor([0.0, 5.0, 3.0, 0.0]), 6, others=True)
    assert (float(weights.masked_negatives), int(weights.anchors_without_negatives)) == (pytest.approx(0.6), 0)
    weights.measure(torch.tensor([0.0, 5.0, 3.0, 0.0]), 6, others=False)
    assert int(weights.anchors_without_negatives) == 2
