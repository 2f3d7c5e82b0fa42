from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import BertTokenizer

from st_extras.encoders.frozen import EmbeddingTable, FrozenEncoder
from tests.conftest import vocabulary

Maker = Callable[..., SentenceTransformer]


def expected(model: SentenceTransformer, sentences: list[str]) -> torch.Tensor:
    return torch.nn.functional.normalize(model.encode(sentences, convert_to_tensor=True), dim=-1)


def test_frozen_encoder_has_no_dropout_no_gradients_and_is_hidden(make_encoder: Maker, sentences: list[str]) -> None:
    model, guide = make_encoder(), make_encoder(seed=1, hidden_size=8)
    guide.train()
    frozen = FrozenEncoder(guide, model)
    features = model.preprocess(sentences)
    keys = set(features)
    got = frozen(features)
    torch.testing.assert_close(got, guide.encode(sentences, convert_to_tensor=True))
    assert not got.requires_grad
    assert set(features) == keys
    assert not list(frozen.parameters())
    assert not frozen.state_dict()


def test_frozen_encoder_from_a_path(make_encoder: Maker, sentences: list[str], tmp_path: Path) -> None:
    model, guide = make_encoder(), make_encoder(seed=1)
    guide.save(str(tmp_path / "guide"))
    frozen = FrozenEncoder(tmp_path / "guide", model)
    got = frozen(model.preprocess(sentences))
    torch.testing.assert_close(got, guide.encode(sentences, convert_to_tensor=True))


def test_another_tokenizer_gets_the_decoded_texts(make_encoder: Maker, sentences: list[str]) -> None:
    model, guide = make_encoder(), make_encoder(seed=1)
    reordered = [*vocabulary()[:5], *reversed(vocabulary()[5:])]
    guide[0].processor = BertTokenizer(vocab={token: i for i, token in enumerate(reordered)}, model_max_length=16)
    frozen = FrozenEncoder(guide, model)
    assert frozen.must_retokenize
    features = model.preprocess(sentences)
    torch.testing.assert_close(frozen(features), guide.encode(sentences, convert_to_tensor=True))
    assert not torch.allclose(guide(dict(features))["sentence_embedding"], frozen(features))


def test_a_shorter_guide_retokenizes(make_encoder: Maker) -> None:
    model, guide = make_encoder(max_seq_length=16), make_encoder(max_seq_length=5)
    assert FrozenEncoder(guide, model).must_retokenize
    assert not FrozenEncoder(make_encoder(max_seq_length=16), model).must_retokenize


def test_frozen_encoder_follows_and_copies(make_encoder: Maker) -> None:
    model, guide = make_encoder(), make_encoder()
    frozen = FrozenEncoder(guide, model)
    frozen.to(torch.float64)
    assert guide.dtype == torch.float64
    assert copy.deepcopy(frozen).encoder is not guide
    frozen.to("meta")
    with pytest.raises(ValueError, match=r"on meta and the batch on cpu"):
        frozen(model.preprocess(["a cat"]))


def test_the_trained_model_cannot_be_its_own_frozen_encoder(encoder: SentenceTransformer) -> None:
    with pytest.raises(ValueError, match="self"):
        FrozenEncoder(encoder, encoder)


def test_table_equals_the_encoder(make_encoder: Maker, sentences: list[str], tmp_path: Path) -> None:
    model, guide = make_encoder(), make_encoder(seed=1)
    long = " ".join(sentences)  # longer than max_seq_length
    corpus = [*sentences, long, sentences[0], "", "☃"]
    table = EmbeddingTable.compute(model, guide, corpus, batch_size=3, show_progress_bar=False)
    assert len(table) == len(corpus) - 1
    batch = [sentences[3], long, "☃", "", sentences[0]]
    torch.testing.assert_close(table(model.preprocess(batch)), expected(guide, batch))
    table.save(tmp_path / "table.safetensors")
    again = EmbeddingTable.load(tmp_path / "table.safetensors")
    assert torch.equal(again(model.preprocess(batch)), table(model.preprocess(batch)))


def test_table_with_a_prompt(make_encoder: Maker, sentences: list[str]) -> None:
    model, guide = make_encoder(), make_encoder(seed=1)
    table = EmbeddingTable.compute(model, guide, sentences, prompt="the red ", show_progress_bar=False)
    torch.testing.assert_close(table(model.preprocess(sentences, prompt="the red ")), expected(guide, sentences))
    with pytest.raises(ValueError, match="no embedding for"):
        table(model.preprocess(sentences))


def test_missing_sentence_is_shown(make_encoder: Maker, sentences: list[str]) -> None:
    model = make_encoder()
    table = EmbeddingTable.compute(model, make_encoder(), sentences, show_progress_bar=False)
    with pytest.raises(ValueError, match="a red cat"):
        table(model.preprocess(["a red cat"]), model.tokenizer.decode)


def test_bad_tables(tmp_path: Path, encoder: SentenceTransformer) -> None:
    with pytest.raises(ValueError, match="sentences must hold at least one"):
        EmbeddingTable.compute(encoder, encoder, [])
    with pytest.raises(ValueError, match="got 2 and 1"):
        EmbeddingTable([[1], [2]], torch.ones(1, 3))
    with pytest.raises(ValueError, match="NaN"):
        EmbeddingTable([[1]], torch.full((1, 3), torch.nan))
    with pytest.raises(ValueError, match="path must be an existing file"):
        EmbeddingTable.load(tmp_path / "none.safetensors")
