"""What this package wrote into a folder, so that it overwrites that and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from st_extras.training.marker import write_json

MANIFEST = "st_extras_files.json"
CHECKPOINTS = "checkpoints"
STAGING = ".saving"
_OF_A_MODEL = re.compile(
    r"\d+_\w+|README\.md|vocab\.\w+|merges\.txt|.*\.(safetensors|bin|jinja)|spiece\.model|sentencepiece.*\.model|"
    r"(modules|router_config|config|config_\w+|sentence_\w+_config|tokenizer|tokenizer_config|special_tokens_map|"
    r"added_tokens|preprocessor_config|processor_config)\.json"
)


def read_manifest(folder: Path) -> set[str]:
    """Return the paths below ``folder`` that this package wrote; none without a manifest.

    Raises:
        ValueError: if the manifest is broken.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return set()
    try:
        names = json.loads(path.read_text(encoding="utf8"))["files"]
    except (KeyError, TypeError, ValueError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) and _is_below(name) for name in names):
        raise ValueError(f"{str(path)!r} must list files of its folder, got something else: remove the folder.")
    return set(names)


def write_manifest(folder: Path, names: Iterable[str]) -> None:
    """Record that this package wrote ``names``, paths below ``folder``."""
    write_json(folder / MANIFEST, {"version": 1, "files": sorted(names)})


def remove_written(folder: Path, names: Iterable[str]) -> None:
    """Remove these files of ``folder`` and the folders that are empty then."""
    for name in sorted(names, reverse=True):
        path = folder / name
        if path.is_file() or path.is_symlink():
            path.unlink()
        for parent in path.parents:
            if parent == folder or not parent.is_dir() or any(parent.iterdir()):
                break
            parent.rmdir()


def conflict(folder: Path, reports: Collection[str] = ()) -> str | None:
    """Return the name of something in ``folder`` that a run would write to and no earlier run wrote; None if none.

    Args:
        folder: an existing folder.
        reports: names that the run writes beside a model.
    """
    written = read_manifest(folder)
    tops = {name.split("/")[0] for name in written} | {MANIFEST, STAGING}
    for path in sorted(folder.iterdir()):
        if path.name not in tops and (path.name in {CHECKPOINTS, *reports} or _OF_A_MODEL.fullmatch(path.name)):
            return path.name
    return None


def _is_below(name: str) -> bool:
    parts = Path(name).parts
    return bool(parts) and not Path(name).is_absolute() and ".." not in parts
