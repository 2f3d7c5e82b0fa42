"""A loss of one's own on the base of the pair losses: its mathematics, and all the rest comes with the base."""

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from torch import Tensor

from st_extras.functional import unit_rows, unit_scores, weighted_info_nce
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


def test_the_base_alone_is_abstract(encoder):
    with pytest.raises(TypeError, match="calculate_loss"):
        PairLoss(encoder)  # type: ignore[abstract]
