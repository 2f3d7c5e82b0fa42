"""A table gives what the guide gives alone."""

import copy
import pickle
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.encoders import EmbeddingTable
from st_extras.encoders import embedding_table as module
from st_extras.losses import DCLRLoss
from tests.encoders.test_frozen import with_other_ids

QUIET: dict[str, Any] = {"show_progress_bar": False, "batch_size": 4}
WORDS = ("cat", "dog", "mat", "park", "river", "man", "book", "woman", "market", "rain", "train", "soup")


def corpus(count: int) -> list[str]:
    """Distinct sentences, with repeated ones among them: every fifth is an earlier one."""
    made = [f"the {a} sat near a {b} in the {c}" for a in WORDS for b in WORDS for c in WORDS][:count]
    return [made[i // 2] if i % 5 == 4 else sentence for i, sentence in enumerate(made)]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 16)


@pytest.fixture
def pair(make_encoder):
    return make_encoder(), make_encoder(seed=1, hidden_size=8)


def lookup(table: EmbeddingTable, model: SentenceTransformer, texts: list[str], **options: Any) -> torch.Tensor:
    return table(model.preprocess(texts, **options))


def alone(guide: SentenceTransformer, texts: list[str]) -> torch.Tensor:
    return torch.nn.functional.normalize(guide.encode(texts, convert_to_tensor=True).float(), dim=-1)


def test_a_table_gives_what_the_guide_gives(pair):
    """In several chunks; the last text is longer than max_seq_length."""
    texts = [*corpus(70), "", "☃", "a cat sings, " * 20]
    table = EmbeddingTable.compute(*pair, iter(texts), **QUIET)
    assert len(table) == len(set(texts))
    for one in (table, copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
        found = lookup(one, pair[0], texts)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, alone(pair[1], texts), atol=1e-6, rtol=0)


def test_no_text_is_encoded_twice(pair, monkeypatch):
    texts, encoded, encode = corpus(70), [], pair[1].encode
    monkeypatch.setattr(pair[1], "encode", lambda texts, **options: encoded.extend(texts) or encode(texts, **options))
    EmbeddingTable.compute(*pair, texts, **QUIET)
    assert sorted(encoded) == sorted(set(texts))


def test_equal_keys_keep_the_first_embedding():
    given = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    table = EmbeddingTable([[1, 2], [3], [1, 2], [4]], given)
    batch = {
        "input_ids": torch.tensor([[4, 0], [1, 2], [3, 0]]),
        "attention_mask": torch.tensor([[1, 0], [1, 1], [1, 0]]),
    }
    assert len(table) == len(table.embeddings) == 3
    torch.testing.assert_close(table(batch), torch.nn.functional.normalize(given[[3, 0, 1]], dim=-1))


def test_a_loss_takes_a_table_of_its_vocabulary_with_all_its_sentences(pair, make_encoder):
    other, texts = with_other_ids(make_encoder(seed=1)), corpus(8)
    table = EmbeddingTable.compute(*pair, texts, **QUIET)
    loss = DCLRLoss(pair[0], complementary_table=table, threshold=0.5)
    loss([pair[0].preprocess(texts)]).backward()
    with pytest.raises(ValueError, match=r"^complementary_table has .* '.*a red cat"):
        loss([pair[0].preprocess([texts[0], "a red cat"])])
    with pytest.raises(ValueError, match=r"^complementary_table must .* tokenizer"):
        DCLRLoss(other, complementary_table=table)
    DCLRLoss(other, complementary_table=EmbeddingTable([[1]], torch.ones(1, 3)))  # made by hand: not known


def test_what_a_table_refuses(pair):
    for wrong in ({"sentences": []}, {"encode_options": {"prompt": "a"}}, {"batch_size": 0}):
        with pytest.raises(ValueError, match=rf"^{next(iter(wrong))}"):
            EmbeddingTable.compute(*pair, **{"sentences": corpus(20), **QUIET, **wrong})
    for keys, embeddings in (([[1], [2]], torch.ones(1, 3)), ([[1]], torch.full((1, 3), torch.nan))):
        with pytest.raises(ValueError, match=r"^embeddings must"):
            EmbeddingTable(keys, embeddings)
