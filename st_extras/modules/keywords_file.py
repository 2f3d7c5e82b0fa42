"""The file of a saved RepAL model that holds its keyword extractor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from st_extras.checks import check_not_negative, shown
from st_extras.modules.saving import read_settings, write_settings
from st_extras.text.keywords import Extractor, build_extractor

KEYWORDS_FILE = "repal_keywords.json"


def write_keywords(folder: str, config: dict[str, Any]) -> None:
    """Write the ``extractor_config`` of an extractor."""
    write_settings(Path(folder, KEYWORDS_FILE), config)


def read_keywords(path: Path) -> Extractor:
    """Build the extractor that a file describes.

    Raises:
        ValueError: if the file is broken, of another version, or holds a wrong setting; the error names it.
    """
    settings = read_settings(path)
    try:
        _check_tables(settings)
        return build_extractor(settings)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


def _check_tables(settings: dict[str, Any]) -> None:
    """Check the tables of words; the extractors check the rest."""
    weights, stop_words = settings.get("idf", {}), settings.get("stop_words") or []
    if not isinstance(weights, dict):
        raise ValueError(f"idf must hold a number for each word, got {shown(weights)}.")
    for word, weight in weights.items():
        check_not_negative(f"idf of {word!r}", weight)
    if "unseen_idf" in settings:
        check_not_negative("unseen_idf", settings["unseen_idf"])
    if not isinstance(stop_words, list) or not all(isinstance(word, str) for word in stop_words):
        raise ValueError(f"stop_words must be a list of words, got {shown(stop_words)}.")
