"""An embedding depends on its own text alone: alone or beside longer texts, whatever side the tokenizer padded on."""

import copy
import tempfile

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Router
from torch import Tensor, nn

from st_extras import modules
from st_extras.encoders import FrozenEncoder, load_encoder
from st_extras.encoders.structure import fix_padding_side
from st_extras.losses import FrequencyAdversarialLoss, PaSeRLoss, SimCSELoss
from st_extras.search import HybridSearch
from st_extras.text.frequency import FrequencyTable
from st_extras.training import train_encoder
from tests.architectures.encoders import build
from tests.fixtures import SENTENCES
from tests.helpers import some_fast

TEXTS = ["a cat", "the old man read a red book"]


def change_in_a_batch(model: SentenceTransformer) -> float:
    together = model.encode(TEXTS, convert_to_tensor=True)
    alone = torch.stack([model.encode(text, convert_to_tensor=True) for text in TEXTS])
    change: Tensor = (together - alone).norm(dim=1) / alone.norm(dim=1)
    return float(change.max())


@pytest.fixture
def left(make_encoder):
    """A BERT whose tokenizer pads on the left."""
    model = make_encoder(dropout=0.0)
    model.tokenizer.padding_side = "left"
    return model


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", some_fast(["BERT", "GPT-2", "Llama", "RoBERTa", "BART", "XLNet"], ["GPT-2"]))
def test_an_embedding_is_the_same_alone_and_in_a_batch(tmp_path, name, side):
    build(name, tmp_path)
    model = load_encoder(tmp_path, device="cpu", processor_kwargs={"padding_side": side})
    assert model.tokenizer.padding_side == "right"
    assert change_in_a_batch(model) < 1e-5


WAYS = {
    "a pair loss": SimCSELoss,
    "AT": lambda model: FrequencyAdversarialLoss(model, frequency_table=table_of(model)),
    "PaSeR": lambda model: PaSeRLoss(model, num_decoder_layers=1),
    "a guide": lambda model: FrozenEncoder(model, copy.deepcopy(model)),
    "a new layer": lambda model: modules.whitening(model, SENTENCES),
    "another pooling": lambda model: modules.SIFPooling.attach(model, table_of(model)),
    "masked copies": lambda model: modules.RepALPostProcessor.attach(model, lambda_1=0.5, lambda_2=0, keywords="rake"),
    "hybrid search": lambda model: HybridSearch(model, SENTENCES),
    "any loss in train_encoder": lambda model: begin_training(model),
}


def begin_training(model: SentenceTransformer) -> None:
    """Have ``train_encoder`` take the model as it does for any loss, up to where it makes the loss."""

    def stop(model: SentenceTransformer) -> nn.Module:
        raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as folder, pytest.raises(KeyboardInterrupt):
        train_encoder(model, stop, SENTENCES, folder)


def table_of(model: SentenceTransformer) -> FrequencyTable:
    return FrequencyTable.count(SENTENCES, model.tokenizer)


@pytest.mark.parametrize("way", WAYS)
def test_a_model_of_the_user(left, way):
    assert change_in_a_batch(left) > 0.1
    WAYS[way](left)
    assert left.tokenizer.padding_side == "right"
    assert change_in_a_batch(left) < 1e-5


def test_every_route_pads_right(left, make_encoder):
    other = make_encoder(dropout=0.0)
    other.tokenizer.padding_side = "left"
    routes = {"query": [left[0], left[1]], "document": [other[0], other[1]]}
    router = SentenceTransformer(modules=[Router(routes, default_route="document")], device="cpu")
    fix_padding_side(router)
    assert (left.tokenizer.padding_side, other.tokenizer.padding_side) == ("right", "right")


def test_a_saved_model_is_loaded(left, tmp_path):
    modules.whitening(left, SENTENCES).save(str(tmp_path / "m"))
    again = modules.load(str(tmp_path / "m"), processor_kwargs={"padding_side": "left"})
    assert change_in_a_batch(again) < 1e-4
