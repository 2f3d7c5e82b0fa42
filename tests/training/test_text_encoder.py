"""Encoding in parts that are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.training import text_encoder
from st_extras.training.text_encoder import TextEncoder, WorkFolder
from tests.conftest import SENTENCES


@pytest.fixture
def encode(still_encoder: SentenceTransformer, monkeypatch: pytest.MonkeyPatch) -> TextEncoder:
    monkeypatch.setattr(text_encoder, "_PART", 3)
    return TextEncoder(still_encoder, still_encoder, batch_size=2, show_progress_bar=False)


def test_parts_are_put_together_in_order(encode: TextEncoder, tmp_path: Path) -> None:
    expected = encode.encoder.encode(SENTENCES, convert_to_tensor=True).double()
    for kept in (None, tmp_path / "kept", tmp_path / "kept"):
        found = encode(SENTENCES, kept)
        assert found.dtype == torch.float64
        assert torch.allclose(found, expected, atol=1e-6)
    parts = sorted(path.name for path in (tmp_path / "kept").iterdir())
    assert parts == [f"{first:06d}.safetensors" for first in range(0, len(SENTENCES), 3)]


def test_a_kept_part_is_not_encoded_again(encode: TextEncoder, tmp_path: Path, monkeypatch: Any) -> None:
    first = encode(SENTENCES, tmp_path)
    (tmp_path / "000003.safetensors").unlink()
    encoded: list[str] = []
    original = TextEncoder._encode
    monkeypatch.setattr(TextEncoder, "_encode", lambda self, part: (encoded.extend(part), original(self, part))[1])
    assert torch.equal(encode(SENTENCES, tmp_path), first)
    assert encoded == SENTENCES[3:6]


def test_the_speed_is_that_of_some_texts(encode: TextEncoder) -> None:
    assert encode.seconds_per_text(SENTENCES) > 0
    assert encode.seconds_per_text([]) == 0


def test_a_folder_of_others_is_not_removed(encode: TextEncoder, tmp_path: Path) -> None:
    work = WorkFolder(tmp_path / "adapting")
    work.path.mkdir()
    (work.path / "notes.txt").write_text("mine")
    work.remove()
    assert (work.path / "notes.txt").exists()
    work.begin(encode.encoder, SENTENCES, 1, 5)
    assert work.resumed(encode.encoder, SENTENCES, 1) == 5
    work.remove()
    assert not work.path.exists()
