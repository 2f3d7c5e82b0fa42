"""Post-processing of a finished encoder: linear layers by functions, RepAL and SIF pooling as modules. No labels."""

from __future__ import annotations

from os import PathLike
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module

from st_extras.encoders.loading import load_encoder
from st_extras.modules.corpus_statistics import CorpusStatistics
from st_extras.modules.lambda_search import TuningResult, search_lambdas
from st_extras.modules.linear import all_but_the_top, embed_filter, locality_preserving, whitening
from st_extras.modules.masked_pooling import MaskedCopyPooling
from st_extras.modules.partial_mask import PartialMaskTransformer
from st_extras.modules.repal import RepALPostProcessor
from st_extras.modules.sif import SIFPooling

__all__ = [
    "CorpusStatistics",
    "PartialMaskTransformer",
    "RepALPostProcessor",
    "SIFPooling",
    "TuningResult",
    "all_but_the_top",
    "embed_filter",
    "load",
    "locality_preserving",
    "search_lambdas",
    "whitening",
]

_OWN: tuple[type[Module], ...] = (MaskedCopyPooling, PartialMaskTransformer, RepALPostProcessor, SIFPooling)


def load(path: str | PathLike[str], **options: Any) -> SentenceTransformer:
    """Load any encoder, also one with RepAL or SIF pooling in it, without ``trust_remote_code=True``.

    Sentence Transformers asks for that flag for every module of another package. The modules of THIS package are
    already installed, so only they are allowed; any other custom code in the folder is still refused, unless
    ``trust_remote_code=True`` is given.

    Args:
        path: a folder, a hub id, or "demo".
        **options: as for :func:`~st_extras.encoders.load_encoder`.

    Raises:
        ValueError: if no encoder can be loaded from the path, the model's output is no pooled embedding, or a setting
            of one of these modules is wrong.
    """
    classes = {f"{module.__module__}.{module.__name__}": module for module in _OWN}
    return load_encoder(path, module_classes=classes, **options)
