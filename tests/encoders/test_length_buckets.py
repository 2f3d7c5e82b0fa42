"""Rows in groups of like length: the same numbers, less padding."""

import copy
import pickle

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.encoders import use_length_buckets
from st_extras.encoders.forward import encode_tokens
from st_extras.encoders.loading import load_encoder
from st_extras.losses import AdCSELoss, ConSERTLoss

TEXTS = ["a", "a cat sat on the mat", "the old man read a red book", "", "two birds", "a woman walks to the market"]


def widths(model: SentenceTransformer) -> list[tuple[int, int]]:
    """Records the (rows, width) of every pass through the transformer's first layer."""
    seen: list[tuple[int, int]] = []
    model.transformers_model.embeddings.register_forward_hook(lambda *args: seen.append(tuple(args[2].shape[:2])))
    return seen


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("buckets", [2, 100])
def test_the_same_embeddings_and_gradients(still_encoder, buckets, side):
    model = still_encoder.double()
    model.tokenizer.padding_side = side
    bucketed = copy.deepcopy(model)
    use_length_buckets(bucketed, buckets)
    seen = widths(bucketed)
    features = model.preprocess(TEXTS)
    width = features["input_ids"].size(1)
    plain, grouped = (encode_tokens(encoder, dict(features)) for encoder in (model, bucketed))
    torch.testing.assert_close(grouped.sentence, plain.sentence, rtol=0, atol=1e-12)
    content = plain.content_mask
    torch.testing.assert_close(grouped.tokens[content], plain.tokens[content], rtol=0, atol=1e-12)
    assert grouped.tokens.shape == plain.tokens.shape
    assert sum(rows for rows, _ in seen) == len(TEXTS)
    if side == "right":
        assert len(seen) == len(torch.arange(len(TEXTS)).chunk(buckets))
        assert seen[0][1] < width == seen[-1][1]
    for encoded in (plain, grouped):
        (encoded.sentence.square().sum() + encoded.tokens[content].sum()).backward()
    for one, other in zip(model.parameters(), bucketed.parameters(), strict=True):
        if one.grad is not None:
            torch.testing.assert_close(other.grad, one.grad, rtol=0, atol=1e-10)


def test_shuffled_positions_and_given_embeddings_go_with_their_rows(still_encoder):
    losses = []
    for buckets in (0, 3):
        model = copy.deepcopy(still_encoder)
        if buckets:
            use_length_buckets(model, buckets)
        loss = ConSERTLoss(model, augmentations=("shuffle", "feature_cutoff"))
        torch.manual_seed(3)
        losses.append(loss([model.preprocess(TEXTS[:3] + TEXTS[4:])], None))
    torch.testing.assert_close(losses[0], losses[1], rtol=0, atol=1e-6)


def test_a_copy_runs_its_own_weights(still_encoder):
    use_length_buckets(still_encoder, 2)
    loss = AdCSELoss(still_encoder, projection=False)
    seen = widths(still_encoder)
    with torch.no_grad():
        for parameter in still_encoder.parameters():
            parameter.add_(1.0)
    features = still_encoder.preprocess(TEXTS)
    before = loss.momentum_encoder(dict(features))
    assert not seen
    assert not torch.allclose(before, still_encoder(dict(features))["sentence_embedding"])


def test_saved_and_sent_to_another_process(still_encoder, tmp_path):
    expected, kind = still_encoder.encode(TEXTS), type(still_encoder.transformers_model)
    use_length_buckets(still_encoder, 2)
    use_length_buckets(still_encoder, 3)  # a second call changes the number, and wraps nothing twice
    assert type(still_encoder.transformers_model).__mro__[1] is kind
    sent = pickle.loads(pickle.dumps(still_encoder))
    seen = widths(sent)
    assert abs(sent.encode(TEXTS) - expected).max() < 1e-6
    assert len(seen) == 3
    still_encoder.save(str(tmp_path / "saved"))
    assert type(SentenceTransformer(str(tmp_path / "saved"), device="cpu").transformers_model) is kind
    averaged = load_encoder(tmp_path / "saved", pooling="first-last", device="cpu")  # it needs all layers
    expected = averaged.encode(TEXTS)
    use_length_buckets(averaged, 2)
    assert abs(averaged.encode(TEXTS) - expected).max() < 1e-6
