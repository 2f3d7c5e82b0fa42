"""Semantic textual similarity: readers of the seven sets and one evaluator for all of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import BaseEvaluator
from sentence_transformers.util import pairwise_cos_sim

from st_extras.evaluation.reporting import report
from st_extras.text.corpus import read_lines

SEVEN_STS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb_test", "sickr_test")
"""The sets of every paper's table. SICK-R means its 4,927 test rows."""

_ALIASES = {
    "stsb": "stsb_test",
    "stsbenchmark": "stsb_test",
    "sickr": "sickr_test",
    "stsbdev": "stsb_dev",
    "stsbtest": "stsb_test",
    "stsbtrain": "stsb_train",
    "sickrtest": "sickr_test",
    "sickrtrial": "sickr_trial",
    "sickrtrain": "sickr_train",
}
_NAMES = (*SEVEN_STS, "stsb_dev", "stsb_train", "sickr_trial", "sickr_train")
_HUB_SPLITS = {"stsb_train": "train", "stsb_dev": "validation"}
Setting = Literal["all", "wmean"]


@dataclass
class STSDataset:
    """Sentence pairs with gold similarity scores.

    Attributes:
        name: as in SEVEN_STS.
        sentences1: first sentences.
        sentences2: second sentences.
        scores: gold scores in the set's own scale (0-5; SICK-R 1-5).
        subsets: the subset that each pair belongs to.
    """

    name: str
    sentences1: list[str] = field(default_factory=list)
    sentences2: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    subsets: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.scores)


_Row = tuple[str, str, str, str]  # subset, score, sentence1, sentence2


def load_sts(name: str, source: str | PathLike[str] | None = None) -> STSDataset:
    """Read one STS set.

    Args:
        name: sts12 ... sts16, stsb_test, stsb_dev, stsb_train, sickr_test, sickr_trial or sickr_train, in any
            case and punctuation; "stsb" and "sickr" mean the test sets.
        source: a folder of ``NAME.tsv[.gz]`` files (header ``subset score sentence1 sentence2``), a SentEval
            folder (``STS/STS12-en-test/...``, ``STS/STSBenchmark``, ``SICK``; subsets concatenated, rows without
            gold dropped), or None or "hub": the ``mteb/...`` data sets of the Hugging Face hub. One .tsv[.gz] file
            with that header may be given too; then the name is free.

    Raises:
        ValueError: an unknown name, a source that does not hold the set, a malformed row, or constant scores.
    """
    key = re.sub(r"[^a-z0-9]", "", name.lower())
    key = _ALIASES.get(key, key)
    is_file = source is not None and Path(source).is_file()
    if key not in _NAMES and not is_file:
        raise ValueError(f"name must be one of {', '.join(_NAMES)}, got {name!r}.")
    if source is None or str(source) == "hub":
        rows = _hub_rows(key)
    elif is_file:
        key, rows = name, _tsv_rows(Path(source))
    else:
        rows = _folder_rows(key, Path(source))
    data = STSDataset(key)
    for subset, score, sentence1, sentence2 in rows:
        try:
            data.scores.append(_finite(score))
        except ValueError:
            raise ValueError(f"{key}: {score!r} is no score (pair {len(data) + 1}: {sentence1[:60]!r}).") from None
        data.sentences1.append(sentence1)
        data.sentences2.append(sentence2)
        data.subsets.append(subset)
    if len(set(data.scores)) < 2:
        raise ValueError(f"{key} in {source!s}: {len(data)} pairs with fewer than two different scores.")
    return data


def _finite(score: str) -> float:
    value = float(score)
    if not math.isfinite(value):
        raise ValueError(score)
    return value


def _folder_rows(name: str, folder: Path) -> Iterator[_Row]:
    if not folder.is_dir():
        raise ValueError(f"The STS source {str(folder)!r} is no folder.")
    for file in (folder / f"{name}.tsv", folder / f"{name}.tsv.gz"):
        if file.is_file():
            return _tsv_rows(file)
    for root in (folder, folder / "downstream", folder / "data" / "downstream"):
        rows = _senteval_rows(name, root)
        if rows is not None:
            return rows
    raise ValueError(
        f"{str(folder)!r} holds neither {name}.tsv, nor {name}.tsv.gz, nor SentEval's folders for {name} "
        "(STS/STS12-en-test, ..., STS/STSBenchmark, SICK)."
    )


def _lines(file: Path) -> list[str]:
    return [line.rstrip("\r\n") for _, line in read_lines(file)]


def _fields(file: Path, number: int, line: str, least: int) -> list[str]:
    fields = line.split("\t")
    if len(fields) < least:
        raise ValueError(f"{file}, line {number}: {len(fields)} tab-separated fields, expected {least}.")
    return fields


def _tsv_rows(file: Path) -> Iterator[_Row]:
    lines = _lines(file)
    if not lines or lines[0].split("\t")[:4] != ["subset", "score", "sentence1", "sentence2"]:
        raise ValueError(f"{file}: the first line must be subset<TAB>score<TAB>sentence1<TAB>sentence2.")
    for number, line in enumerate(lines[1:], start=2):
        subset, score, sentence1, sentence2 = _fields(file, number, line, 4)[:4]
        yield subset, score, sentence1, sentence2


def _senteval_rows(name: str, root: Path) -> Iterator[_Row] | None:
    if name.startswith("stsb"):
        file = root / "STS" / "STSBenchmark" / f"sts-{name.removeprefix('stsb_')}.csv"
        return _stsb_rows(file) if file.is_file() else None
    if name.startswith("sickr"):
        split = name.removeprefix("sickr_")
        file = root / "SICK" / ("SICK_test_annotated.txt" if split == "test" else f"SICK_{split}.txt")
        return _sick_rows(file) if file.is_file() else None
    inputs = sorted((root / "STS" / f"{name.upper()}-en-test").glob("STS.input.*.txt"))
    return _semeval_rows(inputs) if inputs else None


def _semeval_rows(inputs: Iterable[Path]) -> Iterator[_Row]:
    for file in inputs:
        subset = file.name.removeprefix("STS.input.").removesuffix(".txt")
        gold_file = file.with_name(f"STS.gs.{subset}.txt")
        if not gold_file.is_file():
            raise ValueError(f"{gold_file} is missing.")
        pairs, gold = _lines(file), _lines(gold_file)
        if len(pairs) != len(gold):
            raise ValueError(f"{file} has {len(pairs)} lines, {gold_file.name} has {len(gold)}.")
        for number, (line, score) in enumerate(zip(pairs, gold, strict=True), start=1):
            if score.strip():
                sentence1, sentence2 = _fields(file, number, line, 2)[:2]
                yield subset, score, sentence1, sentence2


def _stsb_rows(file: Path) -> Iterator[_Row]:
    for number, line in enumerate(_lines(file), start=1):
        genre, _, _, _, score, sentence1, sentence2 = _fields(file, number, line, 7)[:7]
        yield genre, score, sentence1, sentence2


def _sick_rows(file: Path) -> Iterator[_Row]:
    for number, line in enumerate(_lines(file)[1:], start=2):
        _, sentence1, sentence2, score = _fields(file, number, line, 4)[:4]
        yield file.stem, score, sentence1, sentence2


def _hub_rows(name: str) -> Iterator[_Row]:
    if name.startswith("sickr"):
        raise ValueError(
            "SICK-R on the hub (mteb/sickr-sts) holds all 9,927 rows, not the 4,927 test rows of the papers: "
            "give a folder as the source."
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
    for row in rows:
        yield name, str(row["score"]), row["sentence1"], row["sentence2"]


class STSEvaluator(BaseEvaluator):
    """Spearman's correlation of cosine similarity with the gold scores, for several sets at once.

    Every distinct sentence is encoded once. Results, in [-1, 1]: ``{set}_spearman_cosine`` for each set and, for more
    than one, ``average_spearman_cosine``, their plain mean, which is then the primary metric (``evaluator=``,
    ``load_best_model_at_end`` with ``metric_for_best_model=evaluator.primary_metric``).

    Args:
        datasets: the sets.
        setting: "all": the field's setting, over all pairs of a set; "wmean": the mean over its subsets weighted by
            their sizes, which BERT-whitening and RepAL report.
        name: prefix of the metrics and of the CSV file.
        batch_size: for encoding.
        show_progress_bar: whether encoding shows one.
        write_csv: append a row to ``sts_evaluation_{name}results.csv`` under the trainer's output path.
    """

    def __init__(
        self,
        datasets: Sequence[STSDataset],
        *,
        setting: Setting = "all",
        name: str = "",
        batch_size: int = 64,
        show_progress_bar: bool = False,
        write_csv: bool = True,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if not datasets:
            raise ValueError("datasets is empty: give at least one STS set.")
        if setting not in ("all", "wmean"):
            raise ValueError(f'setting must be "all" or "wmean", got {setting!r}.')
        names = [data.name for data in datasets]
        if len(set(names)) < len(names):
            raise ValueError(f"datasets holds a set twice: {', '.join(names)}.")
        for data in datasets:
            if not np.isfinite(data.scores).all():
                raise ValueError(f"{data.name} holds scores that are no finite numbers: leave those pairs out.")
        for data in datasets if setting == "wmean" else ():
            if set(data.subsets) == {data.name}:
                raise ValueError(f'setting="wmean" needs the subsets of {data.name}, which the hub copy does not tell.')
            different = {*zip(data.subsets, data.scores, strict=True)}
            for subset in sorted(set(data.subsets)):
                if sum(name == subset for name, _ in different) < 2:
                    raise ValueError(f'setting="wmean": subset {subset!r} of {data.name} has only one score.')
        self.datasets = list(datasets)
        self.setting = setting
        self.name = name
        self.batch_size = batch_size
        self.show_progress_bar = show_progress_bar
        parts = ["sts_evaluation", *filter(None, [name, "wmean" if setting == "wmean" else ""]), "results.csv"]
        self.csv_file = "_".join(parts) if write_csv else None
        key = self.datasets[0].name if len(self.datasets) == 1 else "average"
        self.primary_metric = f"{name + '_' if name else ''}{key}_spearman_cosine"

    def __call__(  # type: ignore[override]
        self, model: SentenceTransformer, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        """Encode, correlate, write the CSV row."""
        rows: dict[str, int] = {}
        for data in self.datasets:
            for sentence in (*data.sentences1, *data.sentences2):
                rows.setdefault(sentence, len(rows))
        embeddings = model.encode(
            list(rows),
            batch_size=self.batch_size,
            show_progress_bar=self.show_progress_bar,
            convert_to_tensor=True,
        )
        metrics = {}
        for data in self.datasets:
            first = embeddings[[rows[sentence] for sentence in data.sentences1]]
            second = embeddings[[rows[sentence] for sentence in data.sentences2]]
            similarities = pairwise_cos_sim(first, second).float().cpu().numpy()
            metrics[f"{data.name}_spearman_cosine"] = self._correlation(data, similarities)
        if len(metrics) > 1:
            metrics["average_spearman_cosine"] = float(np.mean(list(metrics.values())))
        csv_path = Path(output_path) / self.csv_file if output_path is not None and self.csv_file else None
        return report(self, model, metrics, name=self.name, csv_path=csv_path, epoch=epoch, steps=steps)

    def _correlation(self, data: STSDataset, similarities: np.ndarray[Any, Any]) -> float:
        gold = np.asarray(data.scores)
        if self.setting == "all":
            return float(spearmanr(gold, similarities).statistic)
        subsets = np.asarray(data.subsets)
        total = 0.0
        for subset in np.unique(subsets):
            chosen = subsets == subset
            total += float(spearmanr(gold[chosen], similarities[chosen]).statistic) * int(chosen.sum())
        return total / len(gold)

    @property
    def description(self) -> str:
        """For the model card."""
        return "Semantic Textual Similarity"

    def get_config_dict(self) -> dict[str, Any]:
        """For the model card."""
        return {"sets": [data.name for data in self.datasets], "setting": self.setting}


def sts_evaluator(
    names: str | Iterable[str] = SEVEN_STS,
    source: str | PathLike[str] | None = None,
    *,
    setting: Setting = "all",
    **options: Any,
) -> STSEvaluator:
    """An evaluator of STS sets by name: ``sts_evaluator(["stsb_dev"], "data/sts")``.

    Args:
        names: one name or several, see :func:`load_sts`.
        source: see :func:`load_sts`.
        setting: "all" or "wmean", see :class:`STSEvaluator`.
        options: further arguments of :class:`STSEvaluator`.
    """
    wanted = [names] if isinstance(names, str) else list(names)
    if len(wanted) > 1 and source is not None and Path(source).is_file():
        raise ValueError(f"source {str(source)!r} is one file: name one set, got {', '.join(wanted)}.")
    return STSEvaluator([load_sts(name, source) for name in wanted], setting=setting, **options)
