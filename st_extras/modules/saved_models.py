"""Models with modules of this package, RepAL and SIF pooling, loaded again."""

from __future__ import annotations

from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module

from st_extras.encoder_names import find_encoder
from st_extras.encoders.loading import load_files, place_of
from st_extras.modules.masked_pooling import MaskedCopyPooling
from st_extras.modules.partial_mask import PartialMaskTransformer
from st_extras.modules.repal import RepALPostProcessor
from st_extras.modules.sif import SIFPooling

_MODULES: tuple[type[Module], ...] = (MaskedCopyPooling, PartialMaskTransformer, RepALPostProcessor, SIFPooling)


def load(model_name_or_path: str, **kwargs: Any) -> SentenceTransformer:
    """Load a saved model that uses RepAL or SIF pooling, without ``trust_remote_code=True``.

    Sentence Transformers asks for that flag for every module of another package. The modules of THIS package are
    already installed, so only they are allowed; any other custom code in the folder is still refused, unless
    ``trust_remote_code=True`` is given.

    Args:
        model_name_or_path: a folder, or a name on the Hugging Face Hub.
        **kwargs: as for ``SentenceTransformer``.

    Raises:
        ValueError: if the folder was not saved to the end, the model's output is no pooled embedding, or a setting of
            one of these modules is wrong.
    """
    classes = {f"{module.__module__}.{module.__name__}": module for module in _MODULES}

    def with_our_modules(path: str, **options: Any) -> SentenceTransformer:
        # no public argument of SentenceTransformer allows known modules without allowing any code in the folder
        return SentenceTransformer._load_with_module_classes(path, classes, **options)  # noqa: SLF001

    return load_files(with_our_modules, find_encoder(model_name_or_path, **place_of(kwargs)), kwargs)
