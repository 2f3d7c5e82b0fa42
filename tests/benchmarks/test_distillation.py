import pytest
import torch

from benchmarks.distillation import DistillationLoss
from st_extras.encoders import EmbeddingTable
from tests.fixtures import SENTENCES, build_encoder


def test_both_terms_by_hand(tmp_path):
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
