from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import (
    AutoModelForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertTokenizer,
    DistilBertConfig,
    DistilBertForMaskedLM,
)

from st_extras.losses.parts.masked_lm import MaskedLM, vocabulary_cross_entropy
from tests.fixtures import SENTENCES, vocabulary
from tests.helpers import draw, generator
from tests.losses.phrases import features, make_loss

WORDS = len(vocabulary())


# ---- corruption


def test_corruption_draws_15_percent_80_10_10(encoder):
    tokenizer = encoder.tokenizer
    ids = torch.randint(max(tokenizer.all_special_ids) + 1, len(tokenizer), (600, 100), generator=generator(0))
    ids[:, ::10] = tokenizer.sep_token_id
    rows = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    copy, drawn = MaskedLM(encoder, generator=generator(1)).corrupt(encoder, rows)
    corrupted = copy["input_ids"]
    assert not drawn[:, ::10].any()
    assert torch.equal(corrupted[~drawn], ids[~drawn])
    masked = (corrupted[drawn] == tokenizer.mask_token_id).float().mean()
    assert drawn.sum() / (0.9 * ids.numel()) == pytest.approx(0.15, abs=0.01)
    assert masked == pytest.approx(0.8 + 0.1 / WORDS, abs=0.03)
    assert (corrupted == ids)[drawn].float().mean() == pytest.approx(0.1 + 0.1 / WORDS, abs=0.02)
    assert {0, WORDS - 1} < set(corrupted[corrupted != ids].tolist()), "from the whole vocabulary"


@pytest.mark.parametrize("biases", [0, 6, 11])
def test_cross_entropy_over_the_vocabulary(biases):
    """A bias of another length than the vocabulary of 9: words added since have 0, words taken away do not count."""
    hidden, embedding, targets = draw(4, 5), draw(9, 5, seed=1), torch.tensor([0, 8, 3, 3])
    bias, logits = draw(biases, seed=2), hidden @ embedding.T
    logits[:, :biases] += bias[:9]
    found = vocabulary_cross_entropy(hidden, embedding, targets, bias if biases else None)
    torch.testing.assert_close(found, torch.nn.functional.cross_entropy(logits, targets))
    assert vocabulary_cross_entropy(hidden[:0], embedding, targets[:0]) == 0


# ---- heads of checkpoints


def encoder_of(folder: Path, full: Any) -> SentenceTransformer:
    """The encoder of a whole model that is saved with the tests' tokenizer."""
    full.save_pretrained(folder)
    BertTokenizer(vocab={t: i for i, t in enumerate(vocabulary())}, model_max_length=16).save_pretrained(folder)
    return SentenceTransformer(modules=[Transformer(str(folder), max_seq_length=16), Pooling(16)], device="cpu")


@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_the_mlm_term_is_the_checkpoints_own(kind, tmp_path, make_encoder):
    model = make_encoder(dropout=0.0, with_head=True)
    if kind == "distilbert":
        config = DistilBertConfig(vocab_size=WORDS, dim=16, n_layers=1, n_heads=2, hidden_dim=32, dropout=0.0)
        full = DistilBertForMaskedLM(config)
        torch.nn.init.normal_(full.vocab_projector.bias)
        model = encoder_of(tmp_path, full)
    state = torch.random.get_rng_state()
    head = MaskedLM(model, generator=generator(2))
    assert torch.equal(state, torch.random.get_rng_state())
    assert head.from_checkpoint
    column = model.preprocess(SENTENCES)
    corrupted, drawn = head.corrupt(model, column)
    assert 0 < drawn.sum() < drawn.numel()
    full = AutoModelForMaskedLM.from_pretrained(model.transformers_model.config._name_or_path)
    labels = column["input_ids"].masked_fill(~drawn, -100)
    inputs = {"input_ids": corrupted["input_ids"], "attention_mask": column["attention_mask"]}
    tokens = model(dict(corrupted))["token_embeddings"][drawn]
    embedding = model.transformers_model.get_input_embeddings().weight
    value = head(tokens, column["input_ids"][drawn], embedding)
    torch.testing.assert_close(value, full(**inputs, labels=labels).loss)
    owned = sum(parameter.numel() for parameter in head.parameters())
    assert owned == 16 * 16 + 3 * 16 + WORDS  # transform, norm and one bias: no copy of the embedding


def test_without_a_head_to_use_in_the_checkpoint_there_is_a_new_one(encoder, make_encoder, tmp_path, caplog):
    config = BertConfig(vocab_size=WORDS, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    classifier = encoder_of(tmp_path / "classifier", BertForSequenceClassification(config))
    config.tie_word_embeddings = False
    untied = encoder_of(tmp_path / "untied", BertForMaskedLM(config))
    deleted = make_encoder(with_head=True)
    deleted.transformers_model.config._name_or_path = "nobody/nothing"
    for model in (encoder, classifier, untied, deleted):
        loss = make_loss(model, mlm_weight=1.0)
        assert not loss.masked_lm.from_checkpoint
        assert loss(features(model))["mlm"].isfinite()
    assert "an output layer of its own" in caplog.text
    assert "from 'nobody/nothing'" in caplog.text
