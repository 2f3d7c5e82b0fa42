"""Saving and loading a post-processing module: every setting and tensor that a file holds is checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from sentence_transformers.base.modules import Module

from st_extras.checks import shown
from st_extras.files import Expected, read_tensors, write_tensors
from st_extras.text.files import parse_json

_TENSORS_FILE = "model.safetensors"
_OF_THE_HUB = ("subfolder", "token", "cache_folder", "revision", "local_files_only")
_Module = TypeVar("_Module", bound=Module)


def save_module(module: Module, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
    """Save a module's settings and buffers (an implementation of ``Module.save``); never as a pickle."""
    write_settings(Path(output_path, module.config_file_name), module.get_config_dict())
    write_tensors(Path(output_path, _TENSORS_FILE), module.state_dict(), {"format": "pt"})


def load_module(cls: type[_Module], model_name_or_path: str, **kwargs: Any) -> _Module:
    """Load a module's settings and buffers from a folder or the Hub (an implementation of ``Module.load``).

    Raises:
        ValueError: if a file is missing or broken, or a setting or tensor is missing, surplus, of another type or
            shape, or not finite; the error names the file.
    """
    settings_file = find_saved_file(cls, cls.config_file_name, model_name_or_path, kwargs)
    tensors_file = find_saved_file(cls, _TENSORS_FILE, model_name_or_path, kwargs)
    settings = read_settings(settings_file)
    if settings.keys() != set(cls.config_keys):
        raise ValueError(
            f"{settings_file} must hold the settings {', '.join(sorted(cls.config_keys))}, got "
            f"{', '.join(sorted(settings)) or 'none'}: save the model again."
        )
    try:
        with torch.device("meta"):  # the sizes are compared with those of the file before anything is allocated
            module = cls(**settings)
        stated = module.get_config_dict()
        if unset := [name for name, value in settings.items() if value is None and stated[name] is not None]:
            raise ValueError(f"{unset[0]} must be the one of the saved module, got None.")
    except ValueError as error:
        raise ValueError(f"{settings_file}: {error}") from None
    expected = {name: Expected(tuple(tensor.shape)) for name, tensor in module.state_dict().items()}
    what = f"the tensors of a {cls.__name__} with the settings beside it"
    tensors, _ = read_tensors(tensors_file, expected, what=what, remedy="fit the module again")
    module.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, assign=True)
    return module


def find_saved_file(cls: type[Module], name: str, model_name_or_path: str, arguments: Mapping[str, Any]) -> Path:
    """Return the path of one of a module's files; ``arguments`` are those of its ``load``.

    Raises:
        ValueError: if there is no such file.
    """
    hub = {name: arguments[name] for name in _OF_THE_HUB if name in arguments}
    path = cls.load_file_path(model_name_or_path, name, **hub)
    if path is None:
        folder = Path(model_name_or_path, hub.get("subfolder", ""))
        raise ValueError(f"{folder} must contain {name}, got a folder without it: save the whole model again.")
    return Path(path)


def write_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Write settings as JSON."""
    path.write_text(json.dumps(settings, ensure_ascii=False, indent=2), encoding="utf8")


def read_settings(path: Path) -> dict[str, Any]:
    """Return what :func:`write_settings` wrote.

    Raises:
        ValueError: if the file cannot be read, or is not a JSON object.
    """
    settings = read_json(path)
    if not isinstance(settings, dict):
        raise ValueError(f"{path} must hold a JSON object, got {shown(settings)}: save the model again.")
    return settings


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        ValueError: if the file cannot be read or is not JSON.
    """
    try:
        return parse_json(path.read_text(encoding="utf8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be a text file that can be read, got: {error}.") from None
