import pytest
import torch
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from torch import Tensor, nn

from st_extras.losses import SimCSELoss
from st_extras.losses.parts.wrapping import base_value, check_base_loss, is_repeated
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


@pytest.mark.parametrize("outside", [False, True])
def test_the_first_run_of_matryoshka_is_distinguished_from_the_others(encoder, sentences, outside):
    """Before and after the encoder's pass; also if DistributedDataParallel wraps the model inside or outside of it."""
    loss = SimCSELoss(encoder)
    loss.model, features, seen = Wrapped(encoder), [encoder.preprocess(sentences)], []
    loss.model.register_forward_pre_hook(lambda *_: seen.append(is_repeated(loss.model)))
    calculate = loss.calculate_loss
    loss.calculate_loss = lambda *given, **more: seen.append(is_repeated(loss.model)) or calculate(*given, **more)
    matryoshka = MatryoshkaLoss(encoder, loss, [4, 16, 8])
    matryoshka.model = loss.model if outside else encoder
    for _ in range(2):
        seen.clear()
        matryoshka(features, None)
        assert seen == [False, False, True, True, True, True]
    seen.clear()
    loss(features)
    assert seen == [False, False]
