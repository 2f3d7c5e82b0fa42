"""A loss of one's own on the base of the pair losses: its mathematics, and all the rest comes with the base."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy, normalize, one_hot

from st_extras.functional import cosine_scores, unit_rows, unit_scores, weighted_info_nce
from st_extras.losses import SimCSELoss, SLTFAILoss
from st_extras.losses.pair_loss import PairLoss
from st_extras.losses.parts.gradient_cache import ColumnBatches, ViewBatches
from tests.losses.cases import total


class OwnLoss(PairLoss):
    """SimCSE, written again."""

    def calculate_loss(
        self, view_batches: ViewBatches, *, with_backward: bool = False, columns: ColumnBatches | None = None
    ) -> Tensor:
        _, positives = self.whole(view_batches)
        candidates, offset = self.gather(positives)

        def contrast(anchors: Tensor, candidates: Tensor, begin: int) -> Tensor:
            return weighted_info_nce(unit_scores(unit_rows(anchors), candidates, 0.05), offset=offset + begin)

        return self.mean_over_mini_batches(
            view_batches[0], unit_rows(candidates), contrast, with_backward=with_backward
        )


@pytest.mark.parametrize(
    "options", [{}, {"projection": True, "mini_batch_size": 3}, {"augmentations": ("shuffle",) * 2}]
)
@pytest.mark.parametrize("around", ["nothing", "Matryoshka", "SLT-FAI"])
def test_it_has_what_simcse_has(make_encoder, sentences, frequency_table, options, around):
    if around != "nothing" and "projection" in options:
        options = {"mini_batch_size": 3} if around == "Matryoshka" else {"projection": True}
    found = []
    for kind in (OwnLoss, SimCSELoss):
        model = make_encoder().train()
        torch.manual_seed(0)
        loss = kind(model, **options)
        if around == "Matryoshka":
            loss = MatryoshkaLoss(model, loss, [16, 8])
        if around == "SLT-FAI":
            loss = SLTFAILoss(model, frequency_table=frequency_table, base_loss=loss)
        value = total(loss([model.preprocess(sentences)], None))
        value.backward()
        found.append([value.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


class MarginLoss(PairLoss):
    """That of docs/training.md: SimCSE whose positive must be closer by a margin."""

    def __init__(self, model: Any, margin: float = 0.1, **options: Any) -> None:
        super().__init__(model, **options)
        self.margin = margin

    def calculate_loss(self, view_batches: Any, *, with_backward: bool = False, columns: Any = None) -> Tensor:
        candidates, offset = self.gather(self.whole(view_batches)[1])

        def contrast(anchors: Tensor, candidates: Tensor, begin: int) -> Tensor:
            own = torch.arange(len(anchors), device=anchors.device) + offset + begin
            scores = cosine_scores(anchors, candidates) - self.margin * one_hot(own, len(candidates))
            return self.reduced(cross_entropy(scores / 0.05, own, reduction="none"))

        return self.mean_over_mini_batches(view_batches[0], candidates, contrast, with_backward=with_backward)

    def reduced(self, rows: Tensor) -> Tensor:
        return rows.mean()


class RowsLoss(MarginLoss):
    """It forgets the mean."""

    def reduced(self, rows: Tensor) -> Tensor:
        return rows


class PlainRowsLoss(PairLoss):
    """The same without mini-batches of its own."""

    def calculate_loss(self, view_batches: Any, *, with_backward: bool = False, columns: Any = None) -> Tensor:
        return 1 - cosine_similarity(*self.whole(view_batches))


def test_a_margin_is_the_loop_over_the_rows(encoder, sentences):
    model = encoder.eval()
    loss = MarginLoss(model, margin=0.2)
    first, second = (normalize(torch.randn(5, 16), dim=1) for _ in range(2))
    expected = 0.0
    for i in range(5):
        scores = [(float(first[i] @ second[j]) - (0.2 if i == j else 0.0)) / 0.05 for j in range(5)]
        expected += (math.log(sum(map(math.exp, scores))) - scores[i]) / 5
    assert float(loss.compute_loss_from_embeddings([first, second])) == pytest.approx(expected, abs=1e-5)


def test_a_margin_in_mini_batches_is_that_of_the_whole_batch(make_encoder, sentences):
    found = []
    for size in (None, 3):
        model = make_encoder().train()
        torch.manual_seed(0)
        loss = MarginLoss(model, mini_batch_size=size, augmentations=("none", "none"), dropout=False)
        value = loss([model.preprocess(sentences)], None)
        value.backward()
        found.append([value.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_a_loss_that_leaves_the_backward_pass_to_the_base_has_its_gradients_in_mini_batches(make_encoder, sentences):
    class PlainLoss(PlainRowsLoss):
        def calculate_loss(self, view_batches: Any, *, with_backward: bool = False, columns: Any = None) -> Tensor:
            return super().calculate_loss(view_batches).mean()

    found = []
    for size in (None, 3):
        model = make_encoder().train()
        torch.manual_seed(0)
        loss = PlainLoss(model, mini_batch_size=size, augmentations=("none", "none"))
        value = loss([model.preprocess(column) for column in (sentences, sentences[::-1])])
        value.backward()
        found.append([value.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [RowsLoss, PlainRowsLoss])
@pytest.mark.parametrize("size", [None, 3])
def test_a_loss_per_row_is_refused_with_the_shape_that_is_wanted(encoder, sentences, kind, size):
    loss = kind(encoder.train(), mini_batch_size=size)
    with pytest.raises(ValueError, match=r"must return the mean .* of shape \(\), got \([38],\): add \.mean\(\)\.$"):
        loss([encoder.preprocess(sentences)], None)


def test_settings_that_are_plain_attributes_are_on_the_card(encoder):
    class OwnMargin(MarginLoss):
        def __init__(self, model: Any, names: Sequence[str] = ("a", "b"), weights: Any = None, **options: Any) -> None:
            super().__init__(model, **options)
            self.names, self.weights, self.unknown = names, torch.ones(2), 3

    config = OwnMargin(encoder, names=("c",), margin=0.3).get_config_dict()
    assert config["margin"] == 0.3
    assert config["names"] == ("c",)
    assert config["mini_batch_size"] is None
    assert not {"weights", "unknown", "model"} & config.keys(), "no plain value, no argument, no setting"


def test_the_base_alone_is_abstract(encoder):
    with pytest.raises(TypeError, match="calculate_loss"):
        PairLoss(encoder)  # type: ignore[abstract]
