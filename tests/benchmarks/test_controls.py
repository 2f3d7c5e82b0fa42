"""Losses that a study only compares with, by loops."""

import math
from pathlib import Path

import pytest
import torch

from benchmarks.authors_slt_fai import AuthorsSLTFAILoss
from benchmarks.controls import DistillationLoss
from st_extras.encoders import EmbeddingTable
from st_extras.encoders.forward import encode_tokens
from st_extras.losses import SimCSELoss
from st_extras.text.frequency import FrequencyTable
from tests.fixtures import SENTENCES, build_encoder


def make_loss(folder: Path, base: type = SimCSELoss, **options: object) -> AuthorsSLTFAILoss:
    torch.manual_seed(0)
    model = build_encoder(folder / "encoder", dropout=0.0)
    table = FrequencyTable.count(SENTENCES, model.tokenizer)
    return AuthorsSLTFAILoss(model, frequency_table=table, base_loss=base(model), **options)


def test_every_place_counts_in_at_as_a_loop(tmp_path):
    loss = make_loss(tmp_path)
    encoded = encode_tokens(loss.model, loss.model.preprocess(SENTENCES))
    linear, output, relu = loss.token_discriminator.layers
    total, count, padding = 0.0, 0, 0
    for row in range(len(SENTENCES)):
        for place in range(encoded.input_ids.size(1)):
            token = int(encoded.input_ids[row, place])
            logits = relu(output(linear(encoded.tokens[row, place]))).tolist()
            label = int(loss.low_frequency[token])
            assert label == 1 or encoded.content_mask[row, place]  # padding and special tokens are rare
            padding += not encoded.content_mask[row, place]
            total += math.log(sum(map(math.exp, logits))) - logits[label]
            count += 1
    assert 0 < padding < count
    value = loss.adversarial(encoded.tokens, encoded.input_ids)
    assert value.item() == pytest.approx(total / count, rel=1e-5)
    assert loss.instruments["adversarial_loss"] == value
    assert 0 < loss.instruments["labels_entropy"] <= math.log(2) + 1e-6


def test_both_terms_of_distillation_as_loops(tmp_path):
    model = build_encoder(tmp_path / "student", dropout=0.0, seed=1)
    teacher = build_encoder(tmp_path / "teacher", seed=2)
    table = EmbeddingTable.compute(model, teacher, SENTENCES, show_progress_bar=False)
    loss = DistillationLoss(model, complementary_table=table, weight=0.5)
    with torch.no_grad():
        terms = loss([model.preprocess(SENTENCES)])
    ours = torch.from_numpy(model.encode(SENTENCES, normalize_embeddings=True)).double()
    theirs = torch.from_numpy(teacher.encode(SENTENCES, normalize_embeddings=True)).double()
    expected = 0.0
    for own, other in zip(ours.tolist(), theirs.tolist(), strict=True):
        expected += 0.5 * sum((a - b) ** 2 for a, b in zip(own, other, strict=True)) / len(SENTENCES)
    assert expected > 0.01
    assert float(terms["distillation"]) == pytest.approx(expected, rel=1e-5)
    with torch.no_grad():
        assert float(terms["contrastive"]) == pytest.approx(float(loss.simcse([model.preprocess(SENTENCES)])), rel=1e-5)
