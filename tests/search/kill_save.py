"""Kills a process that saves a search, again and again: the file holds the earlier documents or the new ones.

    python -m tests.search.kill_save --kills 40

Each time, a process saves two sets of documents by turns until it is killed at a random moment of a save. What is there
must open, be one of the two, and find what a new search of it finds.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from st_extras.samples.encoder import raw_encoder
from st_extras.search import HybridSearch

QUERIES = ["old cards", "new cards", "document 7"]


def quick_encoder() -> SentenceTransformer:
    """The mean of a table's vectors of the words, so that most of the time is spent writing."""
    model = raw_encoder()
    vectors = model[0].model.get_input_embeddings().weight.detach().numpy()
    tokenizer = model.tokenizer.backend_tokenizer
    tokenizer.no_padding()
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=vectors)], device="cpu")


def documents_of(number: int) -> dict[str, str]:
    """One of two sets of documents, of which some are the same."""
    return {
        f"d{i}": f"document {i} of the {'old' if i % 7 or not number else 'new'} cards {'and more ' * 40}"
        for i in range(2000 + 2000 * number)
    }


def save_forever(path: Path, searches: Sequence[HybridSearch], started: int) -> None:
    """Save two searches by turns until killed, and write a byte to ``started`` before each."""
    for search in itertools.cycle(searches):
        os.write(started, b"s")
        search.save(path, overwrite=True)


def check_kills(kills: int, folder: Path, seed: int = 0) -> Counter[str]:
    """Kill so many processes; return how often the earlier and the new documents were found.

    Raises:
        ValueError: if the file cannot be opened, or holds others.
    """
    torch.set_num_threads(1)  # a forked process has no other threads
    model, draw, found = quick_encoder(), random.Random(seed), Counter[str]()
    path = folder / "index.parquet"
    searches = [HybridSearch(model, documents_of(number), bm25_weight=0.1) for number in (0, 1)]
    expected = [search.search(QUERIES) for search in searches]
    begin = time.perf_counter()
    for search in searches:
        search.save(path, overwrite=True)
    seconds = time.perf_counter() - begin
    for _ in range(kills):
        reading, started = os.pipe()
        child = os.fork()
        if not child:
            save_forever(path, searches[::-1], started)
        for _ in range(draw.randint(1, 3)):
            os.read(reading, 1)
        time.sleep(draw.random() * seconds)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(started)
        unfinished = [file for file in folder.iterdir() if file != path]
        search = HybridSearch.open(path, model)
        documents = {document.id: document.text for document in search.documents}
        (number,) = (number for number in (0, 1) if documents == documents_of(number))
        for hits, wanted in zip(search.search(QUERIES), expected[number], strict=True):
            if any(abs(hit["score"] - one["score"]) > 1e-5 for hit, one in zip(hits, wanted, strict=True)):
                raise ValueError(f"the search must find {wanted}, got {hits}.")
        found[f"{'new' if number else 'earlier'} documents{', killed while writing' if unfinished else ''}"] += 1
        for file in unfinished:
            file.unlink()
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
