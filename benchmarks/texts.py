"""Which sentences of a text are trained or fitted on, which pairs of a set are scored, and files of token counts."""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from st_extras.evaluation import SEVEN_STS, STSDataset, load_sts
from st_extras.text import read_sentences
from st_extras.text.files import read_lines
from st_extras.text.folders import TABLES, find_file
from st_extras.text.frequency import FrequencyTable, vocabulary

DEV = "stsb_dev"
"""The set that chooses weights and settings."""
SHORT = 100  # characters of a sentence of "sts-unseen"
WORD = re.compile(r"\w+")


def spaced(sentences: Sequence[str], count: int) -> list[str]:
    """Return ``count`` of the sentences, evenly spaced."""
    return list(sentences[:: max(len(sentences) // count, 1)][:count])


def thinned(pairs: STSDataset, counts: Mapping[str, int]) -> STSDataset:
    """Return some of the pairs of a set, evenly spaced; all if there are no more.

    Args:
        pairs: the set.
        counts: how many, by the names of sets; "others" stands for those without a number. Empty: all.
    """
    if not counts:
        return pairs
    kept = spaced(range(len(pairs)), counts[pairs.name if pairs.name in counts else "others"])  # type: ignore[arg-type]
    columns = (pairs.sentences1, pairs.sentences2, pairs.scores, pairs.subsets)
    return STSDataset(pairs.name, *([column[i] for i in kept] for column in columns))


def scored_sets(study: dict[str, Any], data: Path) -> tuple[STSDataset, list[STSDataset]]:
    """Return the set that chooses weights, and the sets that a study reports, as many pairs of each as it says.

    Args:
        study: ``dev`` and ``sets`` name them (``NAME.tsv`` in the folder): STS-B dev and the seven STS sets, if absent.
        data: folder with the sets.
    """
    names = [study.get("dev", DEV), *study.get("sets", SEVEN_STS)]
    counts = study["training"].get("pairs", {})
    dev, *tests = (thinned(load_sts(name, find_file(data, name, TABLES)), counts) for name in names)
    return dev, tests


def without_sentences(text: Sequence[str], sets: Sequence[STSDataset]) -> list[str]:
    """Leave out of a text the sentences that one of the sets holds, whatever their case and punctuation.

    Raises:
        ValueError: if none is left.
    """
    known = {_key(sentence) for pairs in sets for sentence in (*pairs.sentences1, *pairs.sentences2)}
    left = [sentence for sentence in text if _key(sentence) not in known]
    if not left:
        raise ValueError(
            f"text must hold sentences that the test sets do not hold, got {len(text):,} that they hold: leave out the "
            "variants that are fitted without the test sentences."
        )
    return left


def corpus_sentences(settings: dict[str, Any], data: Path) -> list[str]:
    """Read the training text, or its first ``sentences``.

    Args:
        settings: settings of a method or of a study's training.
        data: folder with the corpora and the STS sets.
    """
    corpus, limit = settings["corpus"], settings.get("sentences")
    if corpus == "sts":
        return sts_sentences(data)[:limit]
    if corpus == "sts-unseen":
        return unseen_sentences(data, limit)
    return read_sentences(corpus if "://" in corpus else data / corpus, limit=limit)


def unseen_sentences(data: Path, count: int) -> list[str]:
    """Return sentences of the STS sets of at most SHORT characters that none of the scored ones holds."""
    scored = [load_sts(name, data) for name in (DEV, *SEVEN_STS)]
    return spaced([s for s in without_sentences(sts_sentences(data), scored) if len(s) <= SHORT], count)


def sts_sentences(data: Path) -> list[str]:
    """Read ``sts_unlabeled.txt[.gz]``, all sentences of the STS sets; if it is not there, those of the scored pairs."""
    for name in ("sts_unlabeled.txt", "sts_unlabeled.txt.gz"):
        if (data / name).is_file():
            return read_sentences(data / name)
    sets = [load_sts(name, data) for name in (*SEVEN_STS, "stsb_train", "stsb_dev", "sickr_train", "sickr_trial")]
    return [text for pairs in sets for text in (*pairs.sentences1, *pairs.sentences2)]


def _key(sentence: str) -> str:
    return " ".join(WORD.findall(sentence.lower()))


def read_counts(file: Path, tokenizer: Any = None) -> FrequencyTable:
    """Read ``token<TAB>count`` lines, packed or not, with or without this header, as :func:`write_counts` writes them.

    Args:
        file: the file.
        tokenizer: puts the tokens at its ids; those left out get count 0. None: the ids are the order of the lines.

    Raises:
        ValueError: if the tokenizer does not know a token.
    """
    rows = (line.rstrip("\r\n").rpartition("\t") for _, line in read_lines(file))  # a token may hold a tab itself
    counts = {token: int(count) for token, _, count in rows if token and count != "count"}
    tokens = tuple(counts) if tokenizer is None else vocabulary(tokenizer)
    if unknown := sorted(counts.keys() - set(tokens)):
        raise ValueError(
            f"{file} must be counted with this tokenizer, got {len(unknown)} others, such as {unknown[:3]}."
        )
    return FrequencyTable(tokens, [counts.get(token or "", 0) for token in tokens])


def write_counts(table: FrequencyTable, file: Path) -> None:
    """Write the counts as ``token<TAB>count`` lines, packed, as the configurations name them."""
    rows = zip(table.tokens, table.counts.tolist(), strict=True)
    file.write_bytes(gzip.compress("".join(f"{token}\t{count}\n" for token, count in rows if token).encode()))
