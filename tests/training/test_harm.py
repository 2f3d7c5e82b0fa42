"""A training that made the encoder worse on its own text is warned of, and nothing else changes."""

from typing import Any

import pytest
import torch
from datasets import Dataset

from st_extras.evaluation.label_free import FEWEST
from st_extras.losses import SimCSELoss
from st_extras.training.harm import COMPARED, HarmCheck
from tests.adaptation.texts import TEXTS
from tests.fixtures import SENTENCES
from tests.helpers import differing, snapshot
from tests.training.test_run import ScriptedEvaluator, short_training

WARNING = "made the encoder worse on its own text"


class Encoder(torch.nn.Module):
    """Knows the topic of each text, or nothing after it was ruined."""

    def __init__(self, noise: float = 0.3) -> None:
        super().__init__()
        self.noise, self.encoded = noise, []

    def encode(self, texts: list[str], **_: Any) -> torch.Tensor:
        self.encoded.append(texts)
        words = sorted({word for text in TEXTS for word in text.split()})
        counts = torch.tensor([[float(text.split().count(word)) for word in words] for text in texts])
        return counts + self.noise * torch.randn(counts.shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("noise", "warned"), [(0.3, False), (0.0, False), (5.0, True)])
def test_embeddings_that_lost_what_they_knew_are_warned_of(caplog, noise, warned):
    model = Encoder()
    check = HarmCheck(model, [*TEXTS, *TEXTS])
    model.noise = noise
    check.warn_if_worse(model)
    assert model.encoded == [TEXTS[:COMPARED]] * 2
    assert (WARNING in caplog.text) == warned


@pytest.mark.parametrize("case", ["few", "no words in common", "zero", "NaN", "no route"])
def test_what_shows_nothing_is_not_compared(caplog, monkeypatch, case):
    model = Encoder()
    texts = {"few": TEXTS[:99], "no words in common": [chr(0x4E00 + number) * 3 for number in range(300)]}
    if case not in texts:

        def encode(given: list[str], **_: Any) -> torch.Tensor:
            if case == "no route":
                raise ValueError("You must provide a route")
            return torch.full((len(given), 4), float("nan") if case == "NaN" else 0.0)

        monkeypatch.setattr(model, "encode", encode)
    check = HarmCheck(model, texts.get(case, TEXTS))
    monkeypatch.undo()
    model.noise = 5.0
    check.warn_if_worse(model)
    assert caplog.messages == []


def test_modes_stay(make_encoder, monkeypatch):
    monkeypatch.setattr("st_extras.training.harm.LEAST_CONFIRMED", 0.0)
    model = make_encoder().train()
    model[1].eval()
    before = [module.training for module in model.modules()]
    check = HarmCheck(model, TEXTS[: FEWEST + 9])
    assert [module.training for module in model.modules()] == before
    check.warn_if_worse(model)
    assert [module.training for module in model.modules()] == before


@pytest.mark.parametrize("stream", [False, True])
def test_a_training_is_checked_without_an_evaluator_and_its_weights_do_not_change(
    make_encoder, tmp_path, caplog, monkeypatch, stream
):
    def trained(name: str, texts: Any, **options: Any) -> Any:
        model = make_encoder()
        data = Dataset.from_dict({"sentence": texts})
        torch.manual_seed(7)
        data = data.to_iterable_dataset() if stream else data
        short_training(model, tmp_path / name, SimCSELoss, data, **{"max_steps": 1} | options)
        return snapshot(model), torch.get_rng_state()

    monkeypatch.setattr("st_extras.training.harm.LEAST_CONFIRMED", 0.0)
    monkeypatch.setattr("st_extras.training.harm._LOWEST", 10.0)
    texts = TEXTS[: FEWEST + 9]
    with_check = trained("with", texts)
    assert caplog.text.count(WARNING) == 1
    monkeypatch.setattr("st_extras.training.harm.FEWEST", 10**6)
    without = trained("without", texts)
    assert differing(with_check[0], without[0]) == set()
    assert torch.equal(with_check[1], without[1])
    monkeypatch.undo()
    monkeypatch.setattr("st_extras.training.harm._LOWEST", 10.0)
    trained("scored", texts, evaluator=ScriptedEvaluator([0.1, 0.2]))
    trained("few", SENTENCES)
    assert caplog.text.count(WARNING) == 1
