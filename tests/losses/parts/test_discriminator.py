import pytest
import torch

from st_extras.encoders import distributed
from st_extras.losses.parts.discriminator import Discriminator
from tests.helpers import draw


def test_the_running_accuracy():
    labels, answers = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 0, 1, 1, 0])
    counted, logits = torch.tensor([True, True, True, True, False]), torch.nn.functional.one_hot(answers, 2).float()
    discriminator = Discriminator(3, memory=0.5)
    assert discriminator.accuracy.isnan()
    discriminator.observe(logits, labels, counted)
    assert discriminator.accuracy.item() == pytest.approx(3 / 4)
    assert discriminator.balanced_accuracy.item() == pytest.approx((2 / 3 + 1) / 2)
    discriminator.observe(logits.flip(1), labels, counted)
    assert discriminator.accuracy.item() == pytest.approx((0.5 * 3 + 1) / (0.5 * 4 + 4))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_logits_are_in_full_precision(dtype):
    discriminator = Discriminator(3).to(dtype)
    assert discriminator(draw(2, 3).bfloat16()).dtype == torch.promote_types(dtype, torch.float32)


def test_several_processes_need_the_callback(monkeypatch):
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    with pytest.raises(ValueError, match=r"LossStateCallback\.attach"):
        Discriminator(3)(torch.zeros(2, 3))
