"""Models with modules of this package: loaded again, and exported as Sentence Transformers' own modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module

from st_extras.checks import check_instance
from st_extras.encoder_names import find_encoder
from st_extras.encoders.loading import check_complete, check_pooling, check_pools, place_of, warn_of_missing_weights
from st_extras.encoders.padding import fix_padding_side
from st_extras.modules import pipeline
from st_extras.modules.all_but_the_top import AllButTheTopPostProcessor
from st_extras.modules.locality_preserving import LocalityPreservingPostProcessor
from st_extras.modules.masked_pooling import MaskedCopyPooling
from st_extras.modules.model_card import descriptions
from st_extras.modules.partial_mask import PartialMaskTransformer, plain_modules
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
    already installed, so only they are allowed; any other custom code in the folder is still refused, unless
    ``trust_remote_code=True`` is given.

    Args:
        model_name_or_path: a folder, or a name on the Hugging Face Hub.
        **kwargs: as for ``SentenceTransformer``.

    Raises:
        ValueError: if the folder was not saved to the end, the model's output is no pooled embedding, or a file of one
            of these modules is missing or wrong.
    """
    path = find_encoder(model_name_or_path, **place_of(kwargs))
    folder = Path(path)
    check_complete(folder)
    check_pools(path, kwargs)
    if (folder / "modules.json").is_file():
        read_json(folder / "modules.json")
    classes = {f"{module.__module__}.{module.__name__}": module for module in _MODULES}
    model = SentenceTransformer._load_with_module_classes(path, classes, **kwargs)
    warn_of_missing_weights(model, path)
    check_pooling(model, path)
    fix_padding_side(model)
    return model


def to_stock(model: SentenceTransformer) -> SentenceTransformer:
    """Return a model of Sentence Transformers' own modules alone, with the same embeddings; weights are shared.

    Saved, it loads without this package and without ``trust_remote_code=True``. Whitening, all-but-the-top, locality
    preservation and RepAL's corpus term become ``Dense`` modules. What needs the text or the token ids cannot be
    exported: RepAL's sentence term (``lambda_1`` > 0) and SIF pooling.

    Raises:
        ValueError: if a module cannot be exported, or is not fitted.
    """
    check_instance("model", model, SentenceTransformer)
    parts: list[Any] = list(model)
    modules = [part.to_dense() if hasattr(part, "to_dense") else part for part in parts]
    stock = pipeline.rebuild_model(model, plain_modules(modules))
    left = [type(part).__name__ for part in stock.modules() if type(part).__module__.startswith("st_extras.")]
    if left:
        raise ValueError(
            f"model must hold only modules that are linear in the embedding to be exported, got {', '.join(left)}: "
            "keep it as it is, and load it with st_extras.load."
        )
    card: Any = stock.model_card_data
    card.exported = card.exported | descriptions(model)
    return stock
