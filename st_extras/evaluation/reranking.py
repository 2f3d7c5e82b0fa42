"""Reranking of similar questions (AskUbuntu), as PaSeR evaluates it: a reader and an evaluator.

Nothing is downloaded. The data is the folder of github.com/taolei87/askubuntu (``text_tokenized.txt[.gz]``,
``dev.txt``, ``test.txt``).
"""

from __future__ import annotations

import logging
from os import PathLike
from pathlib import Path
from typing import Any

from sentence_transformers.sentence_transformer.evaluation import RerankingEvaluator

from st_extras.checks import check_choice, check_count, shown
from st_extras.evaluation.reporting import check_further_options, check_sentences, join_name
from st_extras.text.corpus import check_sentence
from st_extras.text.files import read_tsv

logger = logging.getLogger(__name__)

_MOST = 1_000_000  # questions in a ranking

Sample = dict[str, str | list[str]]


def read_askubuntu(folder: str | PathLike[str], split: str = "test", *, with_body: bool = False) -> list[Sample]:
    """Read AskUbuntu's queries and their candidates (20 each in the release) as samples for RerankingEvaluator.

    Candidates that are not marked as similar are the negatives. A query whose candidates are all similar, or all not,
    ranks nothing: it is left out, as in every published figure; the log says how many.

    Args:
        folder: holds ``text_tokenized.txt[.gz]`` (id, title, body) and ``<split>.txt`` (query id, similar ids,
            candidate ids, BM25 scores), tab-separated.
        split: "dev" or "test".
        with_body: whether the texts are title and body; the default is the title alone, as usual for short encoders.

    Returns:
        One dict per query: "query", "positive" and "negative".

    Raises:
        ValueError: if the folder or a file is missing, the split is unknown, a line is malformed, an id has no text,
            or there is no query.
    """
    check_choice("split", split, ("dev", "test"))
    root = Path(folder)
    rows = read_tsv(_existing(root, "text_tokenized.txt"), at_least=2)
    texts = {fields[0]: " ".join(fields[1 : 3 if with_body else 2]).strip() for _, fields in rows}
    file = _existing(root, f"{split}.txt")
    samples: list[Sample] = []
    skipped = 0
    for number, fields in read_tsv(file, at_least=3):
        similar = set(fields[1].split())
        candidates = list(dict.fromkeys(fields[2].split()))
        unknown = [key for key in (fields[0], *candidates) if key not in texts]
        if unknown:
            raise ValueError(f"{file}, line {number}: no text for the question {unknown[0]!r}.")
        positive = [texts[key] for key in candidates if key in similar]
        negative = [texts[key] for key in candidates if key not in similar]
        if positive and negative:
            samples.append({"query": texts[fields[0]], "positive": positive, "negative": negative})
        else:
            skipped += 1
    if not samples:
        raise ValueError(f"{file} holds no query with a similar and another candidate.")
    if skipped:
        logger.info("%s: %d queries without a similar candidate, or without another, left out.", file, skipped)
    return samples


def reranking_evaluator(samples: list[Sample], *, name: str = "", **options: Any) -> RerankingEvaluator:
    """Return a RerankingEvaluator on the samples (MAP, MRR@10, NDCG@10) with MAP as the primary metric.

    Sentence Transformers lists the positives first and does not break ties, so equal cosines raise the MRR, but neither
    MAP nor NDCG.

    Args:
        samples: from ``read_askubuntu``, or dicts with the same keys.
        name: prefix of the metrics and part of the CSV file's name.
        **options: further arguments of RerankingEvaluator (batch_size, at_k, truncate_dim, ...).

    Raises:
        ValueError: if there are no samples, one has no query, positive or negative, one of their texts is not a string,
            ``name`` cannot be part of a file's name, or another setting is not allowed.
    """
    if not isinstance(samples, list | tuple) or not samples:
        raise ValueError(f"samples must be a list of at least one query, got {shown(samples)}.")
    for row, sample in enumerate(samples):
        where = f"samples, row {row}"
        if not isinstance(sample, dict) or not all(sample.get(key) for key in ("query", "positive", "negative")):
            raise ValueError(f"{where}: expected a dict with query, positive and negative, got {shown(sample)}.")
        check_sentence(sample["query"], f"{where}, query")
        for key in ("positive", "negative"):
            texts: Any = [sample[key]] if isinstance(sample[key], str) else sample[key]
            check_sentences(f"{where}, {key}", texts, at_least=1)
    options = check_further_options(name, options)
    if "at_k" in options:
        options["at_k"] = check_count("at_k", options["at_k"], 1, _MOST)
    evaluator = RerankingEvaluator(samples, name=name, **options)
    evaluator.primary_metric = join_name(name, "map")
    return evaluator


def _existing(root: Path, name: str) -> Path:
    """Return the file of that name, plain or gzip."""
    for file in (root / name, root / f"{name}.gz"):
        if file.is_file():
            return file
    raise ValueError(f"{str(root)!r} holds neither {name} nor {name}.gz.")
