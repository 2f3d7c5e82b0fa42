from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import (
    DenoisingAutoEncoderLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)
from torch import Tensor, nn

from st_extras.losses import SimCSELoss
from st_extras.losses.parts.wrapping import (
    base_value,
    base_views,
    check_base_loss,
    is_repeated,
    is_wrapped,
)
from tests.helpers import Wrapped, draw

# ---- the base loss


def test_a_base_that_cannot_share_the_pass_is_refused(make_encoder):
    model = make_encoder()
    base = SimCSELoss(model)
    assert check_base_loss(base, Wrapped(model)) is base
    denoising = DenoisingAutoEncoderLoss.__new__(DenoisingAutoEncoderLoss)
    for wrong in (nn.Identity(), denoising, MatryoshkaLoss(model, base, [8])):
        with pytest.raises(ValueError, match=f"^base_loss must be .* got {type(wrong).__name__}"):
            check_base_loss(wrong, model)
    with pytest.raises(ValueError, match=r"^base_loss must be built on the same model"):
        check_base_loss(base, make_encoder())
    with pytest.raises(ValueError, match=r"^base_loss must have neither mini_batch_size nor"):
        check_base_loss(SimCSELoss(model, mini_batch_size=4), model)


def test_columns_that_cannot_share_a_pass_are_refused(encoder, sentences):
    other = [encoder.preprocess(sentences, prompt=prompt) for prompt in ("a ", "the red ")]
    for base in (SimCSELoss(encoder), MultipleNegativesRankingLoss(encoder)):
        with pytest.raises(ValueError, match="different prompts"):
            base_views(base, other)


def test_embeddings_and_labels_reach_the_base():
    class Recorder(nn.Module):
        def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor | None) -> Tensor:
            self.seen = embeddings, labels
            return embeddings[0].sum()

    base, labels, views = Recorder(), torch.tensor([1, 0]), draw(4, 3).chunk(2)
    assert base_value(base, views, labels, []) == {"base": views[0].sum()}
    assert isinstance(base.seen[0], list)  # as the losses of Sentence Transformers expect
    assert all(seen is view for seen, view in zip(base.seen[0], views, strict=True))
    assert base.seen[1] is labels


# ---- MatryoshkaLoss


class Noting(nn.Module):
    """Notes, before and after the encoder's pass, whether it is wrapped and repeated."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.seen: list[tuple[bool, bool, bool]] = []

    def forward(self, sentence_features: Any, labels: Tensor | None = None) -> Tensor:
        before = is_repeated(self.model)
        value = self.model(dict(next(iter(sentence_features))))["sentence_embedding"].sum()
        self.seen.append((is_wrapped(self.model), before, is_repeated(self.model)))
        return value


@pytest.mark.parametrize("outside", [False, True])
def test_the_first_run_of_matryoshka_is_distinguished_from_the_others(encoder, sentences, outside):
    """Also if DistributedDataParallel wraps the model inside or outside of it."""
    features, loss = [encoder.preprocess(sentences)], Noting(Wrapped(encoder))
    matryoshka = MatryoshkaLoss(encoder, loss, [4, 16, 8])
    matryoshka.model = loss.model if outside else encoder
    for _ in range(2):
        loss.seen.clear()
        matryoshka(features, None)
        assert loss.seen == [(True, False, False), (True, True, True), (True, True, True)]
    loss.seen.clear()
    loss(features)
    assert loss.seen == [(False, False, False)]
