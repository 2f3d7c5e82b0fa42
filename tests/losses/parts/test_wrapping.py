from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from torch import Tensor, nn

from st_extras.losses import SimCSELoss
from st_extras.losses.parts.wrapping import base_value, check_base_loss, is_repeated, is_wrapped
from tests.helpers import Wrapped, draw


def test_a_base_that_cannot_share_the_pass_is_refused(make_encoder):
    model = make_encoder()
    base = SimCSELoss(model)
    assert check_base_loss(base, Wrapped(model)) is base
    for wrong, message in (
        (MatryoshkaLoss(model, base, [8]), "^base_loss must be .* got MatryoshkaLoss"),
        (SimCSELoss(make_encoder()), "^base_loss must be built on the same model"),
        (SimCSELoss(model, mini_batch_size=4), "^base_loss must have neither mini_batch_size nor"),
    ):
        with pytest.raises(ValueError, match=message):
            check_base_loss(wrong, model)


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
