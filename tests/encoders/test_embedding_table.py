"""A table gives what the guide gives: in memory or from a folder, resumed, merged, saved."""

import copy
import pickle
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.encoders import EmbeddingTable
from st_extras.encoders import embedding_table as module
from st_extras.encoders.fingerprint import PROBES
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
    monkeypatch.setattr(module, "CHUNK", 16)


@pytest.fixture
def pair(make_encoder):
    return make_encoder(), make_encoder(seed=1, hidden_size=8)


def lookup(table: EmbeddingTable, model: SentenceTransformer, texts: list[str], **options: Any) -> torch.Tensor:
    return table(model.preprocess(texts, **options))


def alone(guide: SentenceTransformer, texts: list[str]) -> torch.Tensor:
    return torch.nn.functional.normalize(guide.encode(texts, convert_to_tensor=True).float(), dim=-1)


@pytest.mark.parametrize("place", ["half a folder", "merged", "saved"])
def test_a_table_gives_what_the_guide_gives(pair, tmp_path, place):
    texts = [*corpus(70), "", "☃", "a cat sings, " * 20]  # the last is longer than max_seq_length
    path = tmp_path / "table"
    if place == "half a folder":
        table = EmbeddingTable.compute(*pair, iter(texts), folder=path, dtype="float16", **QUIET)
    elif place == "saved":
        table = EmbeddingTable.compute(*pair, texts, **QUIET)
        table.save(path)
    else:
        shards = [tmp_path / f"{number}" for number in range(3)]
        for number, shard in enumerate(shards):
            EmbeddingTable.compute(*pair, [*texts[number::3], texts[0]], folder=shard, **QUIET)
        table = EmbeddingTable.merge(shards, path)
        for shard in shards:
            shutil.rmtree(shard)  # the merged table does not need them
    assert len(table) == len(set(texts))
    again = EmbeddingTable.load(path)
    assert isinstance(again._rows, np.memmap)
    expected = alone(pair[1], texts)
    for one in (table, again, copy.deepcopy(again), pickle.loads(pickle.dumps(table))):
        found = lookup(one, pair[0], texts)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, expected, atol=1e-3 if place.startswith("half") else 1e-6, rtol=0)


def test_equal_keys_keep_the_first_embedding():
    given = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    table = EmbeddingTable([[1, 2], [3], [1, 2], [4]], given)
    batch = {
        "input_ids": torch.tensor([[4, 0], [1, 2], [3, 0]]),
        "attention_mask": torch.tensor([[1, 0], [1, 1], [1, 0]]),
    }
    assert len(table) == len(table.embeddings) == 3
    torch.testing.assert_close(table(batch), torch.nn.functional.normalize(given[[3, 0, 1]], dim=-1))


def test_hashes_that_end_in_zero_bytes_are_found():
    """About a dozen of these do; numpy's byte strings drop trailing zeros."""
    ids, angles = torch.arange(3000).unsqueeze(1), torch.linspace(0, 3, 3000)
    table = EmbeddingTable(ids.tolist(), torch.stack([angles.cos(), angles.sin()], dim=1))
    assert any(len(key) < 16 for key in table._rows["key"].tolist())
    torch.testing.assert_close(table({"input_ids": ids, "attention_mask": torch.ones_like(ids)}), table.embeddings)


def interrupted(texts: list[str], at: int) -> Iterator[str]:
    yield from texts[:at]
    raise KeyboardInterrupt


@pytest.mark.parametrize("at", [0, 40])
def test_an_interrupted_computation_goes_on(pair, tmp_path, at, monkeypatch):
    texts, path = corpus(70), tmp_path / "table"
    whole = EmbeddingTable.compute(*pair, texts, folder=tmp_path / "whole", **QUIET)
    with pytest.raises(KeyboardInterrupt):
        EmbeddingTable.compute(*pair, interrupted(texts, at), folder=path, **QUIET)
    with pytest.raises(ValueError, match="/table' must be"):
        EmbeddingTable.load(path)
    encoded, encode = [], pair[1].encode
    monkeypatch.setattr(pair[1], "encode", lambda texts, **options: encoded.extend(texts) or encode(texts, **options))
    table = EmbeddingTable.compute(*pair, texts, folder=path, **QUIET)
    assert len(encoded) - len(PROBES) == len(set(texts)) - len(set(texts[: at // 16 * 16]))
    assert torch.equal(lookup(table, pair[0], texts), lookup(whole, pair[0], texts))
    for name in ("rows.bin", "index.bin", "rows.json"):
        assert (path / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_finished_folder_takes_more_sentences_but_no_others(pair, tmp_path):
    texts = corpus(60)
    EmbeddingTable.compute(*pair, texts[:40], folder=tmp_path / "table", **QUIET)
    table = EmbeddingTable.compute(*pair, texts, folder=tmp_path / "table", **QUIET)
    assert len(table) == len(set(texts))
    torch.testing.assert_close(lookup(table, pair[0], texts), alone(pair[1], texts))
    for others in ([texts[1], texts[0], *texts[2:]], texts[:5], []):
        with pytest.raises(ValueError, match=r"^sentences must begin"):
            EmbeddingTable.compute(*pair, others, folder=tmp_path / "table", **QUIET)
    EmbeddingTable.merge([tmp_path / "table"], tmp_path / "merged")
    more = EmbeddingTable.compute(*pair, [*texts[:3], "a dog"], folder=tmp_path / "merged", **QUIET)
    torch.testing.assert_close(lookup(more, pair[0], ["a dog", texts[50]]), alone(pair[1], ["a dog", texts[50]]))


def test_swapped_rows_are_seen(pair, tmp_path):
    """Each of the two is whole: only its key tells that it is not the one that the index means."""
    texts, path = corpus(4), tmp_path / "table"
    EmbeddingTable.compute(*pair, texts, folder=path, **QUIET)
    content = (path / "rows.bin").read_bytes()
    size = len(content) // 4
    (path / "rows.bin").write_bytes(content[size : 2 * size] + content[:size] + content[2 * size :])
    with pytest.raises(ValueError, match="damaged row"):
        lookup(EmbeddingTable.load(path), pair[0], texts[:1])


def test_a_damaged_index_is_refused_and_made_again(pair, tmp_path):
    texts, path = corpus(20), tmp_path / "table"
    EmbeddingTable.compute(*pair, texts, folder=path, **QUIET)
    whole = (path / "index.bin").read_bytes()
    for content in (whole[:-9], whole[:40] + bytes([whole[40] ^ 4]) + whole[41:], b""):
        (path / "index.bin").write_bytes(content)
        with pytest.raises(ValueError, match="must be a complete table"):
            EmbeddingTable.load(path)
        table = EmbeddingTable.compute(*pair, texts, folder=path, **QUIET)
        torch.testing.assert_close(lookup(table, pair[0], texts), alone(pair[1], texts))


def test_a_loss_takes_a_table_of_its_vocabulary_with_all_its_sentences(pair, make_encoder, tmp_path):
    other, texts = with_other_ids(make_encoder(seed=1)), corpus(8)
    table = EmbeddingTable.compute(*pair, texts, folder=tmp_path / "table", **QUIET)
    loss = DCLRLoss(pair[0], complementary_table=table, threshold=0.5)
    loss([pair[0].preprocess(texts)]).backward()
    with pytest.raises(ValueError, match=r"^complementary_table has .* '.*a red cat"):
        loss([pair[0].preprocess([texts[0], "a red cat"])])
    with pytest.raises(ValueError, match=r"^complementary_table must .* tokenizer"):
        DCLRLoss(other, complementary_table=table)
    DCLRLoss(other, complementary_table=EmbeddingTable([[1]], torch.ones(1, 3)))  # made by hand: not known


def test_what_a_table_refuses(pair, make_encoder, tmp_path):
    texts, path = corpus(20), tmp_path / "table"
    EmbeddingTable.compute(*pair, texts, folder=path, **QUIET)
    for model, options, name in (
        (pair[0], {"prompt": "the "}, "prompt"),
        (pair[0], {"dtype": "float16"}, "dtype"),
        (make_encoder(max_seq_length=9), {}, "max_seq_length"),
    ):
        with pytest.raises(ValueError, match=rf"^folder must .* another {name}"):
            EmbeddingTable.compute(model, pair[1], texts, folder=path, **options, **QUIET)
    before = EmbeddingTable.load(path)
    with torch.no_grad():
        next(pair[1].parameters()).mul_(-3)  # trained on: of one object, or one path, another guide may come
    with pytest.raises(ValueError, match=r"^folder must .* another guide"):
        EmbeddingTable.compute(*pair, texts, folder=path, **QUIET)
    EmbeddingTable.compute(*pair, texts, folder=tmp_path / "second", **QUIET)
    with pytest.raises(ValueError, match=r"^tables must .* another guide"):
        EmbeddingTable.merge([before.path, tmp_path / "second"], tmp_path / "merged")
    for wrong in ({"sentences": []}, {"dtype": "int8"}, {"encode_options": {"prompt": "a"}}):
        with pytest.raises(ValueError, match=rf"^{next(iter(wrong))}"):
            EmbeddingTable.compute(*pair, **{"sentences": texts, **QUIET, **wrong})
    with pytest.raises(ValueError, match=r"^embeddings must"):
        EmbeddingTable([[1], [2]], torch.ones(1, 3))
