"""``python -m tests.architectures``: try every method on every encoder, and write docs/encoders.md."""

import sys
import tempfile
from pathlib import Path

import torch
from transformers.utils import logging

from tests.architectures.encoders import ARCHITECTURES
from tests.architectures.methods import METHODS, cells

PAGE = Path(__file__).parents[2] / "docs" / "encoders.md"


def table(found: dict[str, dict[str, str]]) -> str:
    """The table, of which encoders with equal cells share a row."""
    lines = ["| encoder | " + " | ".join(METHODS) + " |", "|---" * (len(METHODS) + 1) + "|"]
    alike: dict[str, list[str]] = {}
    for name, row in found.items():
        alike.setdefault(" | ".join(row.values()), []).append(name)
    return "\n".join([*lines, *(f"| {', '.join(names)} | {row} |" for row, names in alike.items())])


def read() -> dict[str, dict[str, str]]:
    """The cells of the page, by encoder and method."""
    rows = [line.strip("|").split("|") for line in PAGE.read_text(encoding="utf8").splitlines() if line[:1] == "|"]
    stripped = [[text.strip() for text in row] for row in rows]
    titles = stripped[0][1:]
    return {name: dict(zip(titles, row[1:], strict=True)) for row in stripped[2:] for name in row[0].split(", ")}


def main() -> int:
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.set_num_threads(1)
    found, faults = {}, 0
    for name in ARCHITECTURES:
        with tempfile.TemporaryDirectory() as folder:
            try:
                found[name] = cells(name, Path(folder) / "model")
            except AssertionError as fault:
                faults += 1
                sys.stdout.write(f"{name}: {fault}\n")
    if not faults:
        text = PAGE.read_text(encoding="utf8")
        start, end = text.index("| encoder |"), text.rindex("|\n") + 1
        PAGE.write_text(text[:start] + table(found) + text[end:], encoding="utf8")
    sys.stdout.write(f"{len(found)} encoders, {faults} faults: {PAGE}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
