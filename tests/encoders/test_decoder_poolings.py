"""What a decoder's encoder pools and reads: by hand from transformers alone, padded on either side, saved in stock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from st_extras.encoders import load_encoder
from tests.conftest import SENTENCES, build_encoder
from tests.encoders.decoders import PROMPT_EOL, build_decoder

TEXTS = ["a cat", *SENTENCES[:3], "a"]  # of different lengths, so that padding is there
CHAT = "{{ 'system: be kind ' }}{{ messages | map(attribute='content') | join }}{{ ' assistant:' }}"
GEMMA = {
    "num_hidden_layers": 4, "head_dim": 8, "num_key_value_heads": 1, "sliding_window": 4,
    "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
}  # fmt: skip
Vectors = NDArray[np.float32]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("poolings")
    build_decoder(root / "llama", num_hidden_layers=4, bos=False)
    build_decoder(root / "gemma3_text", "gemma3_text", pad=True, **GEMMA)
    build_decoder(root / "chat", num_hidden_layers=4, pad=True)
    tokenizer = AutoTokenizer.from_pretrained(root / "chat")
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(root / "chat")
    return root


def by_hand(folder: Path, pooling: str, layers: int, before: str = "", after: str = "") -> Vectors:
    """One text after the other, so that there is no padding: (N, D). Each has exactly one start token."""
    tokenizer, body = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    found = []
    for text in TEXTS:
        ids = tokenizer(before + text + after, add_special_tokens=False)["input_ids"]
        if pooling == "mean-after-start" or folder.name != "llama":  # the Llama's tokenizer puts no start token
            ids = [tokenizer.bos_token_id, *ids]
        with torch.no_grad():
            states = body(torch.tensor([ids]), output_hidden_states=True).hidden_states
            tokens = (states[layers] if layers == 4 else body.norm(states[layers]))[0]  # (L, D)
        places = torch.arange(1, len(ids) + 1.0).unsqueeze(1)
        ways: dict[str, Any] = {
            "lasttoken": tokens[-1], "mean": tokens.mean(dim=0), "mean-after-start": tokens[1:].mean(dim=0),
            "weightedmean": (tokens * places).sum(dim=0) / places.sum(),
        }  # fmt: skip
        found.append(ways[pooling].numpy())
    return np.stack(found)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name.startswith("st_extras")]


@pytest.mark.parametrize("layers", [2, 4])
@pytest.mark.parametrize("pooling", ["mean", "mean-after-start", "weightedmean", "lasttoken"])
@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_poolings_by_hand(folders: Path, tmp_path: Path, kind: str, pooling: Any, layers: int) -> None:
    model = load_encoder(folders / kind, pooling=pooling, layers=layers, device="cpu")
    expected = by_hand(folders / kind, pooling, layers)
    for side in ("right", "left"):
        model.tokenizer.padding_side = side
        np.testing.assert_allclose(model.encode(TEXTS), expected, atol=2e-6)
        model.save(str(tmp_path / side))
        assert "st_extras" not in (tmp_path / side / "modules.json").read_text()
        again = SentenceTransformer(str(tmp_path / side), device="cpu")
        assert again.tokenizer.padding_side == side
        np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert not any(parameter.requires_grad for parameter in model[1].parameters()) or pooling != "mean-after-start"
    prompted = by_hand(folders / kind, pooling, layers, before="the dog: ")
    np.testing.assert_allclose(model.encode(TEXTS, prompt="the dog: "), prompted, atol=2e-6)


@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_the_start_stands_before_a_template(folders: Path, kind: str) -> None:
    model = load_encoder(folders / kind, pooling="mean-after-start", prompt_template=PROMPT_EOL, device="cpu")
    expected = by_hand(folders / kind, "mean-after-start", 4, *PROMPT_EOL.split("{}"))
    np.testing.assert_allclose(model.encode(TEXTS), expected, atol=2e-6)


def test_the_start_is_left_out_of_a_text_alone(folders: Path) -> None:
    model = load_encoder(folders / "gemma3_text", pooling="mean-after-start", device="cpu")
    assert np.isfinite(model.encode([""])).all()


def test_the_start_of_a_tokenizer_without_one_is_its_end_token(tmp_path: Path) -> None:
    folder = build_decoder(tmp_path / "qwen2", "qwen2", bos=False, pad=True)
    without(folder, "bos_token")
    model = load_encoder(folder, pooling="mean-after-start", device="cpu")
    assert model.preprocess(["a cat"])["input_ids"][0, 0] == 1
    model.save(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))


def test_a_tokenizer_that_takes_no_start_is_refused(tmp_path: Path) -> None:
    folder = build_decoder(tmp_path / "llama", bos=False, pad=True)
    without(folder, "bos_token", "eos_token")
    with pytest.raises(ValueError, match=r"^pooling must not be 'mean-after-start' for a .* takes none: use"):
        load_encoder(folder, pooling="mean-after-start", device="cpu")


def without(folder: Path, *tokens: str) -> None:
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    for token in tokens:
        del settings[token]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def test_a_bert_starts_with_its_cls_token(tmp_path: Path) -> None:
    build_encoder(tmp_path / "bert")
    model = load_encoder(tmp_path / "bert", pooling="mean-after-start", device="cpu")
    model.encode(TEXTS)
    assert model.preprocess(TEXTS)["input_ids"][0, :2].tolist().count(model.tokenizer.cls_token_id) == 1


def test_a_plain_transformer_reads_the_text_alone(
    folders: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = load_encoder(folders / "chat", pooling="mean", device="cpu")
    assert said(caplog) == [
        "The tokenizer's chat template is not used: each text is encoded alone; prompt_template='chat' uses it."
    ]
    np.testing.assert_allclose(model.encode(TEXTS), by_hand(folders / "chat", "mean", 4), atol=2e-6)
    model.save(str(tmp_path / "saved"))
    caplog.clear()
    for again in (SentenceTransformer(str(tmp_path / "saved"), device="cpu"), load_encoder(tmp_path / "saved")):
        np.testing.assert_allclose(again.encode(TEXTS), model.encode(TEXTS), atol=1e-6)
    assert not said(caplog)


def test_chat_is_what_sentence_transformers_does(
    folders: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = load_encoder(folders / "chat", prompt_template="chat", device="cpu")
    expected = SentenceTransformer(str(folders / "chat"), device="cpu").encode(TEXTS)
    np.testing.assert_array_equal(model.encode(TEXTS), expected)
    assert np.abs(expected - load_encoder(folders / "chat", device="cpu").encode(TEXTS)).max() > 0.01
    model.save(str(tmp_path / "saved"))
    caplog.clear()
    kept = load_encoder(tmp_path / "saved", device="cpu")  # what someone saved so is what they meant
    np.testing.assert_allclose(kept.encode(TEXTS), expected, atol=1e-6)
    assert not said(caplog)
    alone = load_encoder(tmp_path / "saved", prompt_template="{}", device="cpu")
    np.testing.assert_allclose(alone.encode(TEXTS), load_encoder(folders / "chat").encode(TEXTS), atol=1e-6)


def test_chat_needs_a_chat_template(folders: Path) -> None:
    with pytest.raises(ValueError, match=r"^prompt_template must not be 'chat' for a tokenizer without"):
        load_encoder(folders / "llama", prompt_template="chat", device="cpu")
