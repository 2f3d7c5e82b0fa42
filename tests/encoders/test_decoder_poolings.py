"""What a decoder's encoder pools and reads: by hand from transformers alone, padded on either side."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from st_extras.encoders import load_encoder
from tests.encoders.decoders import build_decoder
from tests.fixtures import SENTENCES

TEXTS = ["a cat", *SENTENCES[:3], "a"]  # of different lengths, so that padding is there
CHAT = "{{ 'system: be kind ' }}{{ messages | map(attribute='content') | join }}{{ ' assistant:' }}"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("poolings")
    build_decoder(root / "llama", num_hidden_layers=4, bos=False)
    build_decoder(root / "chat", num_hidden_layers=4, pad=True)
    tokenizer = AutoTokenizer.from_pretrained(root / "chat")
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(root / "chat")
    return root


def by_hand(folder: Path, pooling: str, layers: int, before: str = "") -> NDArray[np.float32]:
    """One text after the other, so that there is no padding: (N, D)."""
    tokenizer, body = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    found = []
    for text in TEXTS:
        ids = tokenizer(before + text, add_special_tokens=False)["input_ids"]
        ids = ids if folder.name == "llama" else [tokenizer.bos_token_id, *ids]  # that tokenizer puts no start token
        with torch.no_grad():
            states = body(torch.tensor([ids]), output_hidden_states=True).hidden_states
            tokens = (states[layers] if layers == 4 else body.norm(states[layers]))[0]  # (L, D)
        places = torch.arange(1, len(ids) + 1.0).unsqueeze(1)
        ways: dict[str, Any] = {
            "lasttoken": tokens[-1], "mean": tokens.mean(dim=0),
            "weightedmean": (tokens * places).sum(dim=0) / places.sum(),
        }  # fmt: skip
        found.append(ways[pooling].numpy())
    return np.stack(found)


@pytest.mark.parametrize(("pooling", "layers"), [("mean", 4), ("weightedmean", 4), ("lasttoken", 2)])
def test_poolings_by_hand(folders, pooling, layers):
    model = load_encoder(folders / "llama", pooling=pooling, layers=layers, device="cpu")
    for side in ("right", "left"):
        model.tokenizer.padding_side = side
        np.testing.assert_allclose(model.encode(TEXTS), by_hand(folders / "llama", pooling, layers), atol=2e-6)
    prompted = by_hand(folders / "llama", pooling, layers, before="the dog: ")
    np.testing.assert_allclose(model.encode(TEXTS, prompt="the dog: "), prompted, atol=2e-6)


def test_a_chat_template_is_used_if_it_was_saved(folders, tmp_path, caplog):
    alone = load_encoder(folders / "chat", pooling="mean", device="cpu")
    assert "chat template is not used" in caplog.text
    np.testing.assert_allclose(alone.encode(TEXTS), by_hand(folders / "chat", "mean", 4), atol=2e-6)
    chat = SentenceTransformer(str(folders / "chat"), device="cpu")
    expected = chat.encode(TEXTS)
    caplog.clear()
    for model in (alone, chat):  # what someone saved so is what they meant
        model.save(str(tmp_path / "saved"))
        for again in (SentenceTransformer(str(tmp_path / "saved"), device="cpu"), load_encoder(tmp_path / "saved")):
            np.testing.assert_allclose(again.encode(TEXTS), model.encode(TEXTS), atol=1e-6)
    assert "chat template is" not in caplog.text
    plain = load_encoder(tmp_path / "saved", prompt_template="{}", device="cpu").encode(TEXTS)
    np.testing.assert_allclose(plain, load_encoder(folders / "chat").encode(TEXTS), atol=1e-6)
    assert np.abs(plain - expected).max() > 0.01
