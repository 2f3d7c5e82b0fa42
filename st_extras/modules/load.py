"""Load a saved model that contains modules of this package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module

from st_extras.modules.all_but_the_top import AllButTheTopPostProcessor
from st_extras.modules.locality_preserving import LocalityPreservingPostProcessor
from st_extras.modules.masked_pooling import MaskedCopyPooling
from st_extras.modules.partial_mask import PartialMaskTransformer
from st_extras.modules.repal import RepALPostProcessor
from st_extras.modules.saving import read_json
from st_extras.modules.sif import SIFPooling
from st_extras.modules.whitening import WhiteningPostProcessor

_MODULES: tuple[type[Module], ...] = (
    AllButTheTopPostProcessor,
    LocalityPreservingPostProcessor,
    MaskedCopyPooling,
    PartialMaskTransformer,
    RepALPostProcessor,
    SIFPooling,
    WhiteningPostProcessor,
)


def load(model_name_or_path: str, **kwargs: Any) -> SentenceTransformer:
    """Load a saved model that uses RepAL, whitening or their like, without ``trust_remote_code=True``.

    Sentence Transformers asks for that flag for every module of another package. The modules of THIS package are
    already installed, so only they are allowed; any other custom code in the folder is still refused, a subclass of
    ``Transformer`` under RepAL too, unless ``trust_remote_code=True`` is given.

    Args:
        model_name_or_path: a folder, or a name on the Hugging Face Hub.
        **kwargs: as for ``SentenceTransformer``.

    Raises:
        ValueError: if the folder was not saved to the end, or a file of one of these modules is missing or wrong.
    """
    _check_listing(Path(model_name_or_path))
    classes = {f"{module.__module__}.{module.__name__}": module for module in _MODULES}
    return SentenceTransformer._load_with_module_classes(str(model_name_or_path), classes, **kwargs)


def _check_listing(folder: Path) -> None:
    """Check that a local model was saved to the end: without its list of modules, which is written last, a pooling
    would be guessed and the post-processing lost.

    Raises:
        ValueError: if the list is missing or broken.
    """
    if not folder.is_dir():
        return  # a name on the Hub
    listing = folder / "modules.json"
    if listing.is_file():
        read_json(listing)
    elif (folder / "config_sentence_transformers.json").is_file():
        raise ValueError(f"{folder} must contain modules.json, got a model that was not saved whole: save it again.")
