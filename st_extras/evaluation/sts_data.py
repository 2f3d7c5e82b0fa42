"""Readers of the semantic textual similarity (STS) data sets."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from os import PathLike
from pathlib import Path
from typing import Any

from st_extras.checks import check_instance, check_pairs
from st_extras.samples import graded_pairs
from st_extras.text.corpus import check_sentence
from st_extras.text.folders import TABLES, find_file
from st_extras.text.tables import Column, open_file, read_number

SEVEN_STS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb_test", "sickr_test")
"""The sets in every paper's table. SICK-R stands for its 4,927 test rows."""

_NAMES = (*SEVEN_STS, "stsb_dev", "stsb_train", "sickr_trial", "sickr_train")
_ALIASES = {name.replace("_", ""): name for name in _NAMES}
_ALIASES |= {"stsb": "stsb_test", "stsbenchmark": "stsb_test", "sickr": "sickr_test"}
_HUB_SPLITS = {"stsb_train": "train", "stsb_dev": "validation"}


@dataclass
class STSDataset:
    """Sentence pairs with gold similarity scores.

    Attributes:
        name: for instance one of SEVEN_STS.
        sentences1: N first sentences.
        sentences2: N second sentences.
        scores: N gold scores on the set's own scale (0-5; SICK-R 1-5).
        subsets: N names of the subset that each pair belongs to.
    """

    name: str
    sentences1: list[str] = field(default_factory=list)
    sentences2: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    subsets: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sentences1, self.sentences2, self.subsets = [*self.sentences1], [*self.sentences2], [*self.subsets]
        self.scores = self.scores.tolist() if hasattr(self.scores, "tolist") else [*self.scores]

    def __len__(self) -> int:
        return len(self.scores)


_COLUMNS = {name: Column((name,)) for name in ("sentence1", "sentence2", "score")}
_COLUMNS |= {name: Column((name,), optional_up_to=math.inf) for name in ("subset", "split")}
_Rows = Iterable[tuple[str, Mapping[str, Any]]]  # of a table with these columns, with their places


def load_sts(name: str, source: str | PathLike[str] | None = None) -> STSDataset:
    """Read one STS set.

    Args:
        name: sts12 ... sts16, stsb_test, stsb_dev, stsb_train, sickr_test, sickr_trial or sickr_train; case and
            punctuation do not matter. "stsb" and "sickr" mean the test sets.
        source: one of these:
            a folder of ``NAME.tsv`` files (.csv, .jsonl, .parquet; also .gz) with the columns score, sentence1 and
            sentence2, and subset if there is one;
            one such file: any name will do, but the set is not called by the name of a known one that the file does not
            have; of a file with a column split, the rows of the one that the name ends in;
            None or "hub", for the ``mteb/...`` data sets of the Hugging Face hub.

    Raises:
        ValueError: if the name is unknown, the source does not contain the set, a row is malformed, or
            all scores are equal.
    """
    check_instance("name", name, str)
    if not name.strip():
        raise ValueError(f"name must be that of a set, such as stsb_test, got {name!r}.")
    key = re.sub(r"[^a-z0-9]", "", name.lower())
    key = _ALIASES.get(key, key)
    is_file = source is not None and Path(source).is_file()
    if key not in _NAMES and not is_file:
        raise ValueError(f"name must be one of {', '.join(_NAMES)}, got {name!r}.")
    rows: _Rows
    if source is None or str(source) == "hub":
        rows = _hub_rows(key)
    elif is_file:
        file = Path(source)
        own = file.name.partition(".")[0]
        rows = _table_rows(file, key if key in _NAMES else name)
        key = own if key in _NAMES and key != own else name
    elif Path(source).is_dir():
        rows = _table_rows(find_file(Path(source), key, TABLES), key)
    else:
        raise ValueError(f"The STS source must be a folder or a file that exists, got {str(source)!r}.")
    data = STSDataset(key)
    for where, row in rows:
        data.sentences1.append(check_sentence(row["sentence1"], where))
        data.sentences2.append(check_sentence(row["sentence2"], where))
        data.scores.append(read_number(row["score"], where, "score"))
        data.subsets.append(row.get("subset") or "all")
    check_graded(data, f"{key} in {source!s}")
    return data


def load_sets(names: Sequence[str], source: str | PathLike[str] | None = None) -> list[STSDataset]:
    """Read STS sets, see :func:`load_sts`.

    Raises:
        ValueError: if a set cannot be read, or ``source`` is one file but there are several names.
    """
    if len(names) > 1 and source is not None and Path(source).is_file():
        raise ValueError(f"names must be one name if source is one file ({str(source)!r}), got {', '.join(names)}.")
    return [load_sts(name, source) for name in names]


def check_graded(data: STSDataset, where: str, groups: Sequence[str] | None = None) -> None:
    """Check that graded pairs can be scored: together, and in each of the groups.

    Raises:
        ValueError: as :func:`~st_extras.checks.check_pairs`; the message begins with ``where``.
    """
    try:
        check_pairs(zip_longest(data.sentences1, data.sentences2), data.scores, groups)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _table_rows(file: Path, name: str) -> _Rows:
    splits: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for where, row in open_file(file, _COLUMNS, other=".tsv").rows():
        splits.setdefault(row.get("split", ""), []).append((where, row))
    split = name.rpartition("_")[2]
    if len(splits) > 1 and split not in splits:
        raise ValueError(
            f"{file} holds the splits {', '.join(sorted(splits))}: name must end in one of them, such as "
            f"{file.name.partition('.')[0]}_{min(splits)}, got {name!r}."
        )
    return splits.get(split) or next(iter(splits.values()), [])


def _hub_rows(name: str) -> _Rows:
    if name.startswith("sickr"):
        raise ValueError(
            "source must be a folder for SICK-R, because the hub copy (mteb/sickr-sts) holds all 9,927 rows, not the "
            "4,927 test rows of the papers."
        )
    repository = "mteb/stsbenchmark-sts" if name.startswith("stsb") else f"mteb/{name}-sts"
    try:
        from datasets import load_dataset

        rows = load_dataset(repository, split=_HUB_SPLITS.get(name, "test"))
    except Exception as error:
        raise ValueError(
            f"{repository} could not be read from the Hugging Face hub ({type(error).__name__}): go online, unset "
            "HF_HUB_OFFLINE, or give a folder with the STS sets as the source."
        ) from error
    for number, row in enumerate(rows):
        yield f"{repository}, row {number}", {**row, "subset": name}


def development_and_test(sts: str | PathLike[str] | None = None) -> tuple[STSDataset, STSDataset]:
    """Return graded pairs to choose by, and others to report: STS-B dev and test, or two halves of the sample pairs.

    A half has 150 pairs, too few to distinguish two encoders that differ by a few points of Spearman x 100.

    Args:
        sts: a folder with STS-B, or "hub", see :func:`~st_extras.evaluation.load_sts`. None or "": the packaged sample
            pairs, every second one in the development set, the others in the test set.

    Raises:
        ValueError: if it is one file, which cannot be both.
    """
    if sts and Path(sts).is_file():
        raise ValueError(f"sts must be a folder or 'hub', with STS-B dev and test, got the file {str(sts)!r}.")
    if sts:
        return load_sts("stsb_dev", sts), load_sts("stsb_test", sts)
    first, second, scores = graded_pairs()
    halves = [
        STSDataset(name, first[start::2], second[start::2], scores[start::2], [name] * len(scores[start::2]))
        for start, name in enumerate(("sample_dev", "sample_test"))
    ]
    return halves[0], halves[1]
