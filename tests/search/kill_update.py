"""Kills a process that updates a saved search, again and again: the folder holds the old index or the new one.

    python -m tests.search.kill_update --kills 40

Each time, a process alternates between two sets of documents, saving each, until it is killed at a random moment. What
is there must load, and be one of the two; what the next save leaves must be its files alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

from st_extras.samples.encoder import raw_encoder
from st_extras.search import HybridSearch, index

_LONGEST = 2.0  # seconds until a process is killed


def documents_of(number: int) -> dict[str, str]:
    """One of two sets of documents, of which most are the same."""
    return {f"d{i}": f"document {i} of the {'old' if i % 7 or not number else 'new'} cards" for i in range(300)}


def save_forever(search: HybridSearch, folder: Path) -> None:
    """Update and save until killed."""
    for number in itertools.cycle((1, 0)):
        search.update(documents_of(number))
        search.save(folder)


def check_kills(kills: int, folder: Path, seed: int = 0) -> Counter[str]:
    """Kill so many processes; return how often the old and the new index were found.

    Raises:
        ValueError: if the index cannot be loaded, or is another one.
    """
    torch.set_num_threads(1)  # a forked process has no other threads
    model, draw, found = raw_encoder(), random.Random(seed), Counter[str]()
    path = folder / "index"
    searches = [HybridSearch(model, documents_of(number), bm25_weight=0.1) for number in (0, 1)]
    searches[0].save(path)
    queries = ["old cards", "new cards", "document 7"]
    for _ in range(kills):
        child = os.fork()
        if not child:
            save_forever(HybridSearch.load(path, model), path)
        time.sleep(draw.random() * _LONGEST)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        loaded = HybridSearch.load(path, model)
        (number,) = (number for number in (0, 1) if loaded.holds(documents_of(number)))
        for hits, expected in zip(loaded.search(queries), searches[number].search(queries), strict=True):
            for hit, wanted in zip(hits, expected, strict=True):
                if hit["corpus_id"] != wanted["corpus_id"] or abs(hit["score"] - wanted["score"]) > 1e-6:
                    raise ValueError(f"the index must find {wanted}, got {hit}.")
        about = json.loads((path / index.ABOUT).read_text())
        unfinished = "unfinished" in about or any(path.glob(".*.partial"))
        found[f"{'new' if number else 'old'}{', killed while writing' if unfinished else ''}"] += 1
    searches[0].save(path)
    names = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
    about = json.loads((path / index.ABOUT).read_text())
    if names != {*about["files"], index.ABOUT}:
        raise ValueError(f"the folder must hold the index alone, got {sorted(names)}.")
    return found


def main() -> None:
    """Kill, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40, help="default: %(default)s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, count in sorted(check_kills(options.kills, Path(folder)).items()):
            sys.stdout.write(f"{count:4} {name}\n")


if __name__ == "__main__":
    main()
