"""Unsupervised sentence-embedding objectives as drop-in parts of Sentence Transformers.

Importing this package is cheap: losses, modules and evaluators live in ``st_extras.losses``,
``st_extras.modules`` and ``st_extras.evaluation``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

__version__ = "0.1.0"

__all__ = ["__version__", "load"]


def load(model_name_or_path: str, **kwargs: Any) -> SentenceTransformer:
    """Load a saved model with RepAL or whitening in it, without ``trust_remote_code=True``.

    Only the modules of this package are let in; other custom code in the folder is refused as before.

    Args:
        model_name_or_path: a folder or a hub id.
        kwargs: as for SentenceTransformer.
    """
    from st_extras.modules import load as load_model

    return load_model(model_name_or_path, **kwargs)
