"""Saving and loading a post-processing module: every setting and tensor that a file holds is checked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from sentence_transformers.base.modules import Module
from torch import Tensor

from st_extras.checks import shown
from st_extras.text.files import parse_json

_TENSORS_FILE = "model.safetensors"
_VERSION = 1
_Module = TypeVar("_Module", bound=Module)


@runtime_checkable
class ChecksStatistics(Protocol):
    """A module whose tensors must fit its ``corpus_size`` and settings in a way of their own."""

    def check_statistics(self) -> None:
        """Raise ValueError if they do not."""
        ...


def save_module(module: Module, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
    """Save a module's settings and buffers (an implementation of ``Module.save``); never as a pickle."""
    write_settings(Path(output_path, module.config_file_name), module.get_config_dict())
    tensors = {name: tensor.contiguous() for name, tensor in module.state_dict().items()}
    save_file(tensors, Path(output_path, _TENSORS_FILE), metadata={"format": "pt"})


def load_module(cls: type[_Module], model_name_or_path: str, **kwargs: Any) -> _Module:
    """Load a module's settings and buffers from a folder or the Hub (an implementation of ``Module.load``).

    Raises:
        ValueError: if a file is missing or broken or of another version, or a setting or tensor is missing, surplus, of
            another type or shape, or not finite; the error names the file.
    """
    hub = hub_options(kwargs)
    settings_file = find_file(cls, cls.config_file_name, model_name_or_path, hub)
    tensors_file = find_file(cls, _TENSORS_FILE, model_name_or_path, hub)
    settings = read_settings(settings_file)
    _check_names(settings_file, "settings", settings, cls.config_keys)
    try:
        with torch.device("meta"):  # the sizes are compared with those of the file before anything is allocated
            module = cls(**settings)
    except ValueError as error:
        raise ValueError(f"{settings_file}: {error}") from None
    for name, value in module.get_config_dict().items():
        if value is not None and settings[name] is None:  # a default would take its place
            raise ValueError(f"{settings_file}: {name} must be given, got None: save the model again.")
    tensors = _read_tensors(tensors_file)
    expected = module.state_dict()
    _check_names(tensors_file, "tensors", tensors, expected)
    for name, tensor in tensors.items():
        _check_tensor(f"{tensors_file}: {name}", tensor, tuple(expected[name].shape))
    module.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, assign=True)
    _check_corpus_size(settings_file, tensors_file, module)
    return module


def find_file(cls: type[Module], name: str, model_name_or_path: str, hub: Mapping[str, Any]) -> Path:
    """Return the path of one of a module's files.

    Raises:
        ValueError: if there is no such file.
    """
    path = cls.load_file_path(model_name_or_path, name, **hub)
    if path is None:
        folder = Path(model_name_or_path, hub.get("subfolder", ""))
        raise ValueError(f"{folder} must contain {name}, got a folder without it: save the whole model again.")
    return Path(path)


def hub_options(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Pick the arguments of a module's ``load`` that say where its files are."""
    names = ("subfolder", "token", "cache_folder", "revision", "local_files_only")
    return {name: kwargs[name] for name in names if name in kwargs}


def write_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Write settings and the version of their format as JSON."""
    text = json.dumps({"version": _VERSION, **settings}, ensure_ascii=False, indent=2)
    path.write_text(text, encoding="utf8")


def read_settings(path: Path) -> dict[str, Any]:
    """Read what ``write_settings`` wrote; a file without a version counts as the first one.

    Raises:
        ValueError: if the file cannot be read, is not a JSON object, or is of another version.
    """
    settings = read_json(path)
    if not isinstance(settings, dict):
        raise ValueError(f"{path} must hold a JSON object, got {shown(settings)}: save the model again.")
    version = settings.pop("version", _VERSION)
    if version != _VERSION or isinstance(version, bool):
        raise ValueError(
            f"{path} must be of version {_VERSION}, got {shown(version)}: load the model with the st-extras that "
            "saved it, or save it again."
        )
    return settings


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        ValueError: if the file cannot be read or is not JSON.
    """
    try:
        text = path.read_bytes().decode("utf8")
    except OSError as error:
        raise ValueError(f"{path} must be a file that can be read, got: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error.reason} at byte {error.start}).") from None
    return parse_json(text, str(path))


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path}: not a whole safetensors file ({error}): save the model again.") from None


def _check_names(path: Path, what: str, got: Iterable[str], expected: Iterable[str]) -> None:
    if set(got) != set(expected):
        raise ValueError(
            f"{path} must hold the {what} {', '.join(sorted(expected))}, got {', '.join(sorted(got)) or 'none'}: "
            "save the model again."
        )


def _check_tensor(where: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{where} must have the shape {shape}, got {tuple(tensor.shape)}.")
    if not tensor.is_floating_point():
        raise ValueError(f"{where} must hold floating-point numbers, got {tensor.dtype}.")
    wrong = tensor[~tensor.isfinite()]
    if len(wrong):
        raise ValueError(f"{where} must be finite, got {float(wrong[0])}: fit the module again.")


def _check_corpus_size(settings_file: Path, tensors_file: Path, module: Any) -> None:
    """Check that statistics and the number of sentences behind them fit together."""
    if not module.corpus_size and any(bool(tensor.any()) for tensor in module.state_dict().values()):
        raise ValueError(
            f"{settings_file}: corpus_size must be the number of sentences behind the statistics in "
            f"{_TENSORS_FILE}, got {module.corpus_size}: fit the module again."
        )
    if isinstance(module, ChecksStatistics):
        try:
            module.check_statistics()
        except ValueError as error:
            raise ValueError(f"{tensors_file}: {error}") from None
