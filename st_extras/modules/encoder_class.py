"""The class of the encoder under RepAL, which may be the user's own: its name in a saved model, and its import."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from sentence_transformers.base.modules import Transformer
from sentence_transformers.util.misc import import_module_class

from st_extras.checks import shown


def class_path(kind: type) -> str:
    """Return where to import a class from."""
    return f"{kind.__module__}.{kind.__name__}"


def check_importable(kind: type) -> None:
    """Check that a saved model can name an encoder's class.

    Raises:
        ValueError: if it was defined inside a function, or comes from the folder of a model.
    """
    found = getattr(sys.modules.get(kind.__module__), kind.__name__, None)
    if found is not kind or kind.__module__.startswith("transformers_modules."):
        raise ValueError(
            f"the encoder's class must be one that can be imported, to be saved with RepAL attached, got "
            f"{class_path(kind)}: put it in an installed module, or save RepALPostProcessor.detach(model)."
        )


def import_encoder_class(
    name: str, model_name_or_path: str, trusted: bool, hub: Mapping[str, Any]
) -> type[Transformer]:
    """Import the class that a saved model names.

    Raises:
        ValueError: if it is not of Sentence Transformers and not ``trusted``, cannot be imported, or is no transformer.
    """
    options = {key: value for key, value in hub.items() if key != "subfolder"}
    try:
        kind: Any = import_module_class(name, model_name_or_path, trust_remote_code=trusted, **options)
    except (ImportError, AttributeError):
        kind = None
    if not isinstance(kind, type) or not issubclass(kind, Transformer):
        raise ValueError(
            f"{model_name_or_path}: encoder_class must be a subclass of Transformer that can be imported, got "
            f"{shown(name)}."
        )
    return kind


def shared_module(module: Any, cls: Any) -> Any:
    """Return ``module`` as an instance of ``cls`` that shares its weights but has settings of its own."""
    shared = cls.__new__(cls)
    shared.__dict__.update(module.__dict__)
    for name in ("_modules", "_parameters", "_buffers"):
        shared.__dict__[name] = dict(module.__dict__[name])
    if isinstance(module, Transformer):
        shared._prompt_length_mapping = {}
    return shared
