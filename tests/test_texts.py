"""Wherever a list of texts is expected, a dict of columns is refused: its keys would be taken for the texts."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from st_extras.adaptation import adapt
from st_extras.encoders import EmbeddingTable
from st_extras.evaluation import GeometryEvaluator, LabeledTextEvaluator, LabelFreeComparison
from st_extras.losses import PaSeRLoss, SimCSELoss
from st_extras.modules import RepALPostProcessor, SIFPooling, whitening
from st_extras.search import HybridSearch
from st_extras.text import PhraseMasking, TfidfKeywords
from st_extras.text.frequency import FrequencyTable
from st_extras.text.term_weights import BM25
from st_extras.training import train_encoder
from tests.fixtures import SENTENCES

COLUMNS: Any = {"sentence": SENTENCES}
ENTRANCES: dict[str, Callable[[Any], object]] = {
    "PhraseMasking": lambda model: PhraseMasking()(COLUMNS),
    "PhraseMasking.dataset": lambda model: PhraseMasking().dataset(COLUMNS),
    "TfidfKeywords.fit": lambda model: TfidfKeywords.fit(COLUMNS),
    "FrequencyTable.count": lambda model: FrequencyTable.count(COLUMNS, model.tokenizer),
    "BM25": lambda model: BM25(COLUMNS),
    "BM25.scores": lambda model: BM25(SENTENCES).scores(COLUMNS),
    "EmbeddingTable.compute": lambda model: EmbeddingTable.compute(model, model, COLUMNS, show_progress_bar=False),
    "PaSeRLoss.reconstruct": lambda model: PaSeRLoss(model, num_decoder_layers=1).reconstruct(COLUMNS, SENTENCES),
    "whitening": lambda model: whitening(model, COLUMNS),
    "RepALPostProcessor.attach": lambda model: RepALPostProcessor.attach(
        model, lambda_1=0.1, lambda_2=0.1, corpus=COLUMNS
    ),
    "SIFPooling.attach": lambda model: SIFPooling.attach(model, corpus=COLUMNS),
    "GeometryEvaluator": lambda model: GeometryEvaluator(COLUMNS),
    "LabeledTextEvaluator": lambda model: LabeledTextEvaluator(COLUMNS, ["a", "b"] * 4),
    "LabelFreeComparison": lambda model: LabelFreeComparison(COLUMNS, torch.randn(100, 4)),
    "HybridSearch.search": lambda model: HybridSearch(model, SENTENCES, show_progress_bar=False).search(COLUMNS),
    "train_encoder": lambda model: train_encoder(model, SimCSELoss(model), COLUMNS, "out", max_steps=1),
    "adapt": lambda model: adapt(model, COLUMNS, "out"),
}


@pytest.mark.parametrize("name", ENTRANCES)
def test_a_dict_of_columns_is_refused_with_the_hint_to_give_one(encoder, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"(with the keys? 'sentence'.*|a dict with.*): give .*\['sentence'\]"):
        ENTRANCES[name](encoder)
    assert not list(tmp_path.iterdir())
