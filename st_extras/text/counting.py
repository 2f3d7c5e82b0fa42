"""Token counts of a stream of texts, batch by batch, in one process or several."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from st_extras.text.corpus import read_lines

_BATCH_CHARACTERS = 4_000_000  # a batch of whole documents must stay small, too
_Encode = Callable[[list[str]], list[list[int]]]


def token_encoder(tokenizer: PreTrainedTokenizerBase) -> _Encode:
    """Texts to lists of ids, without special tokens, truncation or padding."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return lambda texts: tokenizer(texts, add_special_tokens=False, truncation=False)["input_ids"]
    copy = Tokenizer.from_str(backend.to_str())  # calls of the original may have left truncation switched on
    copy.no_truncation()
    copy.no_padding()
    return lambda texts: [item.ids for item in copy.encode_batch_fast(texts, add_special_tokens=False)]


def _histogram(encode: _Encode, texts: list[str]) -> np.ndarray:
    ids = np.fromiter(chain.from_iterable(encode(texts)), dtype=np.int64)
    return np.bincount(ids)  # (highest id seen + 1,)


_worker_encode: _Encode | None = None


def _start_worker(tokenizer: PreTrainedTokenizerBase) -> None:
    global _worker_encode
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core a worker
    _worker_encode = token_encoder(tokenizer)


def _work(texts: list[str]) -> tuple[int, np.ndarray]:
    if _worker_encode is None:
        raise RuntimeError("the worker process was not started by FrequencyTable.count")
    return len(texts), _histogram(_worker_encode, texts)


def counted(
    batches: Iterator[list[str]], tokenizer: PreTrainedTokenizerBase, num_processes: int
) -> Iterator[tuple[int, np.ndarray]]:
    """(number of texts, counts of ids) for each batch; at most four batches a process are under way."""
    if num_processes == 1:
        encode = token_encoder(tokenizer)
        for batch in batches:
            yield len(batch), _histogram(encode, batch)
        return
    context = get_context("spawn")  # tokenizers' threads do not survive a fork
    with ProcessPoolExecutor(num_processes, context, _start_worker, (tokenizer,)) as pool:
        running: set[Future[tuple[int, np.ndarray]]] = set()
        while True:
            running |= {pool.submit(_work, batch) for batch in islice(batches, 4 * num_processes - len(running))}
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def stream(texts: Any) -> Iterator[str]:
    """The strings of an iterable, and the lines of the files in it; ValueError for anything else."""
    if isinstance(texts, str):
        raise ValueError(f"texts must be an iterable of strings or a pathlib.Path, got the string {texts[:80]!r}")
    for item in [texts] if isinstance(texts, os.PathLike) else texts:
        if isinstance(item, str):
            yield item
        elif isinstance(item, os.PathLike):
            for _, line in read_lines(Path(item)):
                yield line.rstrip("\r\n")
        else:
            hint = "; name the column: dataset['sentence']" if isinstance(item, dict) else ""
            raise ValueError(f"texts must hold strings, got {type(item).__name__}: {item!r:.80}{hint}")


def batches(texts: Iterator[str], batch_size: int) -> Iterator[list[str]]:
    """Lists of at most ``batch_size`` texts, fewer where they are long."""
    batch: list[str] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text)
        if len(batch) == batch_size or characters > _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
