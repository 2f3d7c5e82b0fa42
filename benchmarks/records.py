"""The result files of the studies: where they are, and how they are read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from st_extras.files import whole_file

ROOT = Path(__file__).resolve().parent
RESULTS = ROOT / "results"


def records(folder: str, pattern: str = "*.json", *, root: Path | None = None) -> list[dict[str, Any]]:
    """Read the records of a folder of result files, in the order of their names.

    Args:
        folder: name of a study, or of another folder of ``root``.
        pattern: which files of the folder.
        root: folder of all results; None: those of the repository.
    """
    files = sorted(((root or RESULTS) / folder).glob(pattern))
    return [json.loads(file.read_text(encoding="utf8")) for file in files]


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf8")
