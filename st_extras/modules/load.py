"""Load a saved model that contains modules of this package."""

from __future__ import annotations

from typing import Any

from sentence_transformers import SentenceTransformer

from st_extras.modules.partial_mask import PartialMaskTransformer
from st_extras.modules.repal import RepALPostProcessor
from st_extras.modules.whitening import WhiteningPostProcessor


def load(model_name_or_path: str, **kwargs: Any) -> SentenceTransformer:
    """Load a saved model that uses RepAL or whitening, without ``trust_remote_code=True``.

    Sentence Transformers asks for that flag for every module of another package. The modules of THIS package are
    already installed, so only they are allowed; any other custom code in the folder is still refused.

    Args:
        model_name_or_path: a folder, or a name on the Hugging Face Hub.
        **kwargs: as for ``SentenceTransformer``.
    """
    classes = {
        f"{module.__module__}.{module.__name__}": module
        for module in (PartialMaskTransformer, RepALPostProcessor, WhiteningPostProcessor)
    }
    return SentenceTransformer._load_with_module_classes(str(model_name_or_path), classes, **kwargs)
