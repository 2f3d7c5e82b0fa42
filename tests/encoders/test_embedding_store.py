"""Embeddings that survive an interruption: what is found again, what is not, and when encoding stops."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.encoders import embedding_store
from st_extras.encoders.embedding_store import EmbeddingStore
from st_extras.encoders.fingerprint import PROBES
from tests.fixtures import SENTENCES


@pytest.fixture(autouse=True)
def encoded(monkeypatch) -> list[list[str]]:
    """The texts of each call of ``encode`` but for the probes; parts are of three texts."""
    original, calls = SentenceTransformer.encode, []

    def recording(self: Any, inputs: list[str], **options: Any) -> Any:
        if inputs != list(PROBES):
            calls.append(list(inputs))
        return original(self, inputs, **options)

    monkeypatch.setattr(SentenceTransformer, "encode", recording)
    monkeypatch.setattr(embedding_store, "PART", 3)
    return calls


def test_parts_are_joined_in_order_and_found_again(still_encoder, tmp_path, encoded):
    expected = still_encoder.encode(SENTENCES, convert_to_tensor=True)
    encoded.clear()
    for store in (EmbeddingStore(None), EmbeddingStore(tmp_path / "new")):
        torch.testing.assert_close(store.encode(still_encoder, SENTENCES), expected)
    parts = [SENTENCES[:3], SENTENCES[3:6], SENTENCES[6:]]
    assert encoded == 2 * parts
    found = store.encode(still_encoder, [*SENTENCES, "one more"], deadline=time.perf_counter() - 1)
    assert torch.equal(found, store.encode(still_encoder, SENTENCES[:6]))  # two whole parts, although time is over
    assert encoded == 2 * parts
    assert not len(store.encode(still_encoder, []))


@pytest.mark.parametrize("route", ["", "query", "document"])
def test_the_batch_size_arrives(still_encoder, route):
    seen: list[int] = []
    still_encoder.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0]["input_ids"])))
    EmbeddingStore(None).encode(still_encoder, SENTENCES[:3], route=route, batch_size=2)
    assert seen == [2, 1]


CHANGES: dict[str, Callable[[SentenceTransformer], Any]] = {
    "weights": lambda model: next(model.parameters()).data.mul_(-3),
    "length, that no probe reaches": lambda model: setattr(model, "max_seq_length", 510),
    "prompt": lambda model: (model.prompts.update(query="a "), setattr(model, "default_prompt_name", "query")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_encoder_finds_nothing(still_encoder, tmp_path, encoded, change):
    still_encoder.max_seq_length = 512
    store = EmbeddingStore(tmp_path)
    store.encode(still_encoder, SENTENCES[:3])
    CHANGES[change](still_encoder)
    store.encode(still_encoder, SENTENCES[:3])
    assert encoded == 2 * [SENTENCES[:3]]


def test_another_text_order_route_or_prompt_finds_nothing(still_encoder, tmp_path, encoded):
    store, first = EmbeddingStore(tmp_path), SENTENCES[:3]
    still_encoder.prompts = {"search_query": "the red ", "document": "the old "}
    store.encode(still_encoder, first)
    store.encode(still_encoder, first[::-1])
    store.encode(still_encoder, first[:2])
    queries = store.encode(still_encoder, first, route="query")
    documents = store.encode(still_encoder, first, route="document")
    assert len(encoded) == 5
    assert not torch.equal(documents, queries)
    assert torch.equal(store.encode(still_encoder, first, route="query"), queries)
    assert len(encoded) == 5
    still_encoder.prompts = {}
    for route in ("", "query", "document"):  # also where probe texts are the same by all of them
        store.encode(still_encoder, first, route=route)
    assert len(encoded) == 7, "plain encode had no prompt before either"


def test_an_encoder_that_rounds_otherwise_is_the_same(still_encoder, tmp_path, encoded):
    store, weights = EmbeddingStore(tmp_path), next(still_encoder.parameters()).data
    expected = store.encode(still_encoder, SENTENCES[:3])
    weights.mul_(1 + 1e-6)
    assert torch.equal(store.encode(still_encoder, SENTENCES[:3]), expected)
    weights.mul_(1.3)
    assert not torch.equal(store.encode(still_encoder, SENTENCES[:3]), expected)
    assert len(encoded) == 2


def test_encoding_stops_at_the_deadline(still_encoder, encoded, monkeypatch):
    clock = iter([1.0, 2.0, 3.0])
    monkeypatch.setattr(embedding_store.time, "perf_counter", lambda: next(clock))
    found = EmbeddingStore(None).encode(still_encoder, SENTENCES, deadline=2.5)
    assert len(found) == 6
    assert encoded == [SENTENCES[:3], SENTENCES[3:6]]


def test_a_damaged_part_is_encoded_again(still_encoder, tmp_path, encoded, caplog):
    store = EmbeddingStore(tmp_path)
    expected = store.encode(still_encoder, SENTENCES)
    last, longer, _ = sorted(tmp_path.glob("*.safetensors"), key=lambda path: path.stat().st_size)
    last.write_bytes(longer.read_bytes())
    encoded.clear()
    torch.testing.assert_close(store.encode(still_encoder, SENTENCES), expected)
    assert encoded == [SENTENCES[6:]]
    assert str(last) in caplog.text
    store.encode(still_encoder, SENTENCES)
    assert encoded == [SENTENCES[6:]]


def test_a_part_that_is_not_finite_is_not_kept(still_encoder, tmp_path):
    store, weights = EmbeddingStore(tmp_path), next(still_encoder.parameters()).data
    weights[still_encoder.tokenizer(SENTENCES[0])["input_ids"][1]] = torch.nan
    assert not store.encode(still_encoder, SENTENCES[:1]).isfinite().all()
    assert not list(tmp_path.glob("*.safetensors"))


def test_only_parts_are_removed(still_encoder, tmp_path):
    folder = tmp_path / "store"
    EmbeddingStore(folder).remove()
    store = EmbeddingStore(folder)
    store.encode(still_encoder, SENTENCES)
    part = next(folder.glob("*.safetensors"))
    (folder / f"{'0' * 32}.safetensors").write_text("mine")  # of names like ours
    (folder / f"{'0' * 32}.json").write_text("{}")
    part.with_name(f".{part.name}.17.partial").touch()  # of a run that was killed while writing
    (folder / "notes.txt").write_text("mine")
    store.remove()
    assert {path.name for path in folder.iterdir()} == {"notes.txt", f"{'0' * 32}.safetensors", f"{'0' * 32}.json"}
    for path in folder.iterdir():
        path.unlink()
    store.remove()
    assert not folder.exists()
