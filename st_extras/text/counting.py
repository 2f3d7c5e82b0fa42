"""Token counts: of a stream of texts, in one process or several, or of wordfreq's word list."""

from __future__ import annotations

import logging
import os
import string
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from st_extras.checks import check_choice
from st_extras.text.columns import TextColumns, iterate_values
from st_extras.text.corpus import check_sentence
from st_extras.text.files import MAX_LINE, read_lines

_MANY_UNKNOWN = 0.1  # a larger share of unknown tokens is warned of
_BATCH_CHARACTERS = 4_000_000  # keeps a batch of whole documents small
logger = logging.getLogger(__name__)
_Encode = Callable[[list[str]], list[list[int]]]


def _token_encoder(tokenizer: PreTrainedTokenizerBase) -> _Encode:
    """Return a function from texts to lists of ids, without special tokens, truncation or padding."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return lambda texts: tokenizer(texts, add_special_tokens=False, truncation=False)["input_ids"]
    copy = Tokenizer.from_str(backend.to_str())  # an earlier call may have left truncation on in the original
    copy.no_truncation()
    copy.no_padding()
    return lambda texts: [item.ids for item in copy.encode_batch_fast(texts, add_special_tokens=False)]


def _histogram(encode: _Encode, texts: list[str]) -> np.ndarray:
    return np.bincount(np.fromiter(chain.from_iterable(encode(texts)), dtype=np.int64))  # (highest id seen + 1,)


_worker_encode: _Encode


def _start_worker(tokenizer: PreTrainedTokenizerBase) -> None:
    global _worker_encode
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core per worker
    _worker_encode = _token_encoder(tokenizer)


def _work(texts: list[str]) -> tuple[int, np.ndarray]:
    return len(texts), _histogram(_worker_encode, texts)


def count_batches(
    batches: Iterator[list[str]], tokenizer: PreTrainedTokenizerBase, num_processes: int
) -> Iterator[tuple[int, np.ndarray]]:
    """Count batches of texts; at most four batches per process are in memory.

    Yields:
        ``(number of texts, counts)`` of each batch in the order in which they are done; counts[i] belongs to id i, up
        to the highest id of the batch.
    """
    if num_processes == 1:
        encode = _token_encoder(tokenizer)
        for batch in batches:
            yield len(batch), _histogram(encode, batch)
        return
    context = get_context("spawn")  # the threads of tokenizers do not survive a fork
    with ProcessPoolExecutor(num_processes, context, _start_worker, (tokenizer,)) as pool:
        running: set[Future[tuple[int, np.ndarray]]] = set()
        while True:
            running |= {pool.submit(_work, batch) for batch in islice(batches, 4 * num_processes - len(running))}
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def iterate_texts(texts: Any, column: str | None = None, max_line: int = MAX_LINE) -> Iterator[str]:
    """Iterate over the sentences of an iterable or a data set, and over the lines of the files in it.

    Args:
        texts: as for :func:`~st_extras.text.corpus.iterate_sentences`; a path, alone or among them, is a text file.
        column: column of a data set.
        max_line: longest line of a file allowed, in bytes.

    Raises:
        ValueError: if ``texts`` is a string, or holds anything but strings and paths.
    """
    items = [texts] if isinstance(texts, os.PathLike) else texts
    for row, item in iterate_values(items, TextColumns(column), name="texts"):
        if isinstance(item, os.PathLike):
            for _, line in read_lines(Path(item), max_line=max_line):
                yield line.rstrip("\r\n")
        else:
            yield check_sentence(item, f"texts, row {row}")


def batch_texts(texts: Iterator[str], batch_size: int) -> Iterator[list[str]]:
    """Make batches of at most ``batch_size`` texts, of fewer if the texts are long."""
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


def warn_of_unknown_tokens(unknown: int, total: int) -> None:
    """Warn if many of the tokens of a text are the one for unknown words, and refuse if all are.

    Raises:
        ValueError: if the tokenizer knows no word of the text.
    """
    if unknown and unknown == total:
        raise ValueError(
            "texts must hold words that the tokenizer knows, got only unknown tokens: use another encoder."
        )
    if unknown > _MANY_UNKNOWN * total:
        logger.warning(
            f"{unknown / total:.0%} of the tokens are words that the tokenizer does not know: an encoder of this "
            "language would see them."
        )


def wordfreq_counts(
    tokens: Sequence[str | None], tokenizer: PreTrainedTokenizerBase, language: str, scale: float
) -> np.ndarray:
    """Estimate how often each token occurs in a corpus of ``scale`` words; see ``FrequencyTable.from_wordfreq``."""
    try:
        import wordfreq
    except ImportError as error:
        raise ImportError('from_wordfreq needs the package wordfreq: pip install "st-extras[wordfreq]".') from error
    check_choice("language", language, sorted(wordfreq.available_languages()))
    words = {
        word: frequency
        for word, frequency in wordfreq.get_frequency_dict(language).items()
        if not any(character.isdigit() for character in word)  # the list writes every digit as 0: "0000"
    }
    weights = np.zeros(len(tokens))
    encoded = _token_encoder(tokenizer)([f" {word}" for word in words])  # byte-level tokenizers see the space
    for ids, frequency in zip(encoded, words.values(), strict=True):
        np.add.at(weights, ids, frequency)
    for index, token in enumerate(tokens):
        surface = (token or "").lstrip("Ġ▁").removeprefix("##")
        if surface and all(character in string.punctuation for character in surface):
            weights[index] = np.inf
        elif surface.isdigit():
            weights[index] = wordfreq.word_frequency(surface, language)
    highest = weights[np.isfinite(weights)].max()
    counts: np.ndarray = np.rint(np.minimum(weights, highest) * scale).astype(np.int64)
    return counts
