"""A table gives what the guide gives alone."""

import copy
import pickle
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from st_extras.encoders import EmbeddingTable
from st_extras.losses import DCLRLoss
from tests.encoders.test_frozen import with_other_ids

QUIET: dict[str, Any] = {"show_progress_bar": False, "batch_size": 4}
WORDS = ("cat", "dog", "mat", "park", "river", "man", "book", "woman", "market", "rain", "train", "soup")


def corpus(count: int) -> list[str]:
    """Distinct sentences, with repeated ones among them: every fifth is an earlier one."""
    made = [f"the {a} sat near a {b} in the {c}" for a in WORDS for b in WORDS for c in WORDS][:count]
    return [made[i // 2] if i % 5 == 4 else sentence for i, sentence in enumerate(made)]


@pytest.fixture
def pair(make_encoder):
    return make_encoder(), make_encoder(seed=1, hidden_size=8)


def lookup(table: EmbeddingTable, model: SentenceTransformer, texts: list[str], **options: Any) -> torch.Tensor:
    return table(model.preprocess(texts, **options))


def alone(guide: SentenceTransformer, texts: list[str]) -> torch.Tensor:
    return torch.nn.functional.normalize(guide.encode(texts, convert_to_tensor=True).float(), dim=-1)


def test_a_table_gives_what_the_guide_gives(pair):
    """In several batches; the last text is longer than max_seq_length."""
    texts = [*corpus(70), "", "☃", "a cat sings, " * 20]
    table = EmbeddingTable.compute(*pair, iter(texts), **QUIET)
    assert len(table) == len(set(texts))
    for one in (table, copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
        found = lookup(one, pair[0], texts)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, alone(pair[1], texts), atol=1e-6, rtol=0)


def test_no_text_is_encoded_twice_and_none_is_moved_in_its_batch(pair, monkeypatch):
    texts, encoded, forward = corpus(70), [], pair[1].forward
    monkeypatch.setattr(pair[1], "forward", lambda features: encoded.append(features["input_ids"]) or forward(features))
    table = EmbeddingTable.compute(*pair, texts, **QUIET)
    assert sum(map(len, encoded)) == len(set(texts)) == len(table)
    assert max(map(len, encoded)) == QUIET["batch_size"]
    assert [ids.size(1) for ids in encoded] == sorted(ids.size(1) for ids in encoded)  # texts of one length together


def test_of_equal_keys_the_last_counts():
    table = EmbeddingTable([[1, 5], [2], [1, 5]], 2 * torch.eye(3))
    features = {"input_ids": torch.tensor([[2, 0], [1, 5]]), "attention_mask": torch.tensor([[1, 0], [1, 1]])}
    assert table(features).tolist() == [[0, 1, 0], [0, 0, 1]]
    assert len(table) == 2


def test_a_table_of_the_model_itself_is_of_the_model_as_it_was(pair, sentences):
    model = pair[0]
    before = alone(model, sentences)
    table = EmbeddingTable.compute(model, model, sentences, **QUIET)
    with torch.no_grad():
        model[0].auto_model.embeddings.word_embeddings.weight.zero_()
    torch.testing.assert_close(lookup(table, model, sentences), before)


def test_a_guide_without_a_tokenizer_of_transformers_gets_the_texts(pair, sentences):
    guide = SentenceTransformer(modules=[StaticEmbedding(pair[0].tokenizer.backend_tokenizer, embedding_dim=8)])
    table = EmbeddingTable.compute(pair[0], guide.to(pair[0].device), sentences, **QUIET)
    torch.testing.assert_close(lookup(table, pair[0], sentences), alone(guide, sentences))


def test_a_loss_takes_a_table_with_all_its_sentences(pair, make_encoder):
    other, texts = with_other_ids(make_encoder(seed=1)), corpus(8)
    table = EmbeddingTable.compute(*pair, texts, **QUIET)
    loss = DCLRLoss(pair[0], complementary_table=table, threshold=0.5)
    loss([pair[0].preprocess(texts)]).backward()
    with pytest.raises(ValueError, match=r"^complementary_table has .* '.*a red cat"):
        loss([pair[0].preprocess([texts[0], "a red cat"])])
    with pytest.raises(ValueError, match=r"^complementary_table has .* same tokenizer"):
        DCLRLoss(other, complementary_table=table)([other.preprocess(texts)])


def test_what_a_table_refuses(pair):
    for wrong in ({"sentences": []}, {"sentences": [1]}, {"batch_size": 0}):
        with pytest.raises(ValueError, match=rf"^{next(iter(wrong))}"):
            EmbeddingTable.compute(*pair, **{"sentences": corpus(20), **QUIET, **wrong})
    for keys, embeddings in (([[1], [2]], torch.ones(1, 3)), ([[1]], torch.full((1, 3), torch.nan))):
        with pytest.raises(ValueError, match=r"^embeddings must"):
            EmbeddingTable(keys, embeddings)


@pytest.mark.parametrize("training", [True, False])
def test_the_modes_of_the_model_stay(encoder, sentences, training):
    """Else a loop that called model.train() before would train without dropout."""
    encoder.train(training)
    encoder[1].train(not training)
    EmbeddingTable.compute(encoder, encoder, sentences, **QUIET)
    modes = {name: module.training for name, module in encoder.named_modules()}
    assert modes == {name: training != name.startswith("1") for name in modes}
