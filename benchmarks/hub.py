"""What the study ``papers`` takes from the Hugging Face hub: an encoder, and the data of SimCSE's authors.

``princeton-nlp/datasets-for-simcse`` has the million sentences of Wikipedia and, in ``senteval.tar``, the STS sets as
all five papers scored them (SentEval's copies: tokenized; SICK-R with its 4,927 test rows). ``data_folder`` writes them
as the files that every study reads, so that a study from the hub and one from a folder go the same way. Downloads are
the hub's own: its cache, its resuming, its ``HF_HUB_OFFLINE``.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock
from huggingface_hub import hf_hub_download, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

from benchmarks.studies import Mistake
from st_extras.encoder_names import find_encoder
from st_extras.files import whole_file

DATA = "princeton-nlp/datasets-for-simcse"
WIKIPEDIA, SENTEVAL = "wiki1m_for_simcse.txt", "senteval.tar"
MODEL_FILES = ["*.json", "*.txt", "*.model", "*.safetensors", "*/config.json"]
"""What Sentence Transformers loads of an encoder."""
DATA_FILES = ["*.parquet", "*.jsonl", "*.json", "*.gz", "*.md"]
"""What ``datasets`` reads of a data set; its page in Markdown names the files of each split."""
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model")
CHINESE = {
    "zh_atec": ("C-MTEB/ATEC", "test"),
    "zh_bq": ("C-MTEB/BQ", "test"),
    "zh_lcqmc": ("C-MTEB/LCQMC", "test"),
    "zh_pawsx": ("C-MTEB/PAWSX", "test"),
    "zh_stsb_test": ("C-MTEB/STSB", "test"),
    "zh_stsb_dev": ("C-MTEB/STSB", "validation"),
}
"""Data set and split of each set of RepAL's Chinese table."""

SUBSETS = {
    "sts12": ("STS12-en-test", ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews")),
    "sts13": ("STS13-en-test", ("headlines", "OnWN", "FNWN")),
    "sts14": ("STS14-en-test", ("images", "OnWN", "tweet-news", "deft-news", "deft-forum", "headlines")),
    "sts15": ("STS15-en-test", ("answers-forums", "answers-students", "belief", "headlines", "images")),
    "sts16": (
        "STS16-en-test",
        ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
    ),
}
"""Folder and subsets of each set in SentEval, in the order in which ConSERT's authors read them."""
TABLES = {
    "stsb_train": ("STS/STSBenchmark/sts-train.csv", (4, 5, 6), 0),
    "stsb_dev": ("STS/STSBenchmark/sts-dev.csv", (4, 5, 6), 0),
    "stsb_test": ("STS/STSBenchmark/sts-test.csv", (4, 5, 6), 0),
    "sickr_train": ("SICK/SICK_train.txt", (3, 1, 2), 1),
    "sickr_trial": ("SICK/SICK_trial.txt", (3, 1, 2), 1),
    "sickr_test": ("SICK/SICK_test_annotated.txt", (3, 1, 2), 1),
}
"""File of each other set, its columns score and sentences, and the lines of its header."""

Pair = tuple[str, str, str, str]  # subset, score ("" where nobody gave one), first and second sentence


@dataclass(frozen=True)
class Download:
    """A file or model of the hub.

    Attributes:
        name: what it is.
        size: bytes.
        is_cached: whether it is there already.
    """

    name: str
    size: int
    is_cached: bool


# --- what will be downloaded ---


def planned_download(name: str, files: str | Sequence[str], *, kind: str = "model") -> Download:
    """Ask the hub, or the cache without a network, what a download will take; nothing is downloaded.

    Args:
        name: of the repository.
        files: a file, or patterns of files.
        kind: "model" or "dataset".

    Raises:
        Mistake: if there is no such repository, or neither a network nor the cache has it.
    """
    patterns = [files] if isinstance(files, str) else list(files)
    try:
        found = snapshot_download(name, repo_type=kind, allow_patterns=patterns, dry_run=True)
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise Mistake(f"{name!r} must be a {kind} on the hub, or a folder, got neither.") from error
    except (OSError, HfHubHTTPError, ValueError) as error:
        return _cached(name, patterns, kind, error)
    label = f"{name}, {files}" if isinstance(files, str) else name
    size = sum(file.file_size or 0 for file in found)
    return Download(label, size, not any(file.will_download for file in found))


def _cached(name: str, patterns: list[str], kind: str, error: Exception) -> Download:
    """Return what the cache holds of a repository.

    Raises:
        Mistake: if it holds nothing of it.
    """
    try:
        folder = Path(snapshot_download(name, repo_type=kind, allow_patterns=patterns, local_files_only=True))
    except Exception:
        raise Mistake(
            f"{name!r} must be in the cache of the hub if there is no network, got neither ({type(error).__name__}): "
            "go online, unset HF_HUB_OFFLINE, or give a folder with --data or --encoder."
        ) from error
    held = [path for pattern in patterns for path in folder.glob(pattern)]
    if not held:
        raise Mistake(
            f"{name!r} must have {', '.join(patterns)} in the cache of the hub, got a cache without: go online."
        )
    label = f"{name}, {patterns[0]}" if len(patterns) == 1 else name
    return Download(label, sum(path.stat().st_size for path in held), is_cached=True)


def check_encoder(name: str, option: str = "--encoder") -> list[Download]:
    """Check that there is an encoder with a tokenizer, and return what will be downloaded of it: nothing for a folder.

    Raises:
        Mistake: if there is none, or it has no tokenizer.
    """
    try:
        found = find_encoder(name)
    except (ValueError, ImportError) as error:
        raise Mistake(f"{option} must be a folder or a model on the hub, got {name!r}: {error}") from None
    if Path(found).exists():
        files, downloads = {path.name for path in Path(found).rglob("*")}, []
        if "config.json" not in files and "modules.json" not in files:
            raise Mistake(f"{option} must be an encoder's folder, with config.json, got {name!r} without.")
    else:
        downloads = [planned_download(found, MODEL_FILES)]
        files = _names(found)
    if not files & set(TOKENIZERS):
        raise Mistake(f"{option} must be an encoder with a tokenizer, got {name!r} without a file of one.")
    return downloads


def _names(name: str) -> set[str]:
    """Return the names of the files of a model that can be loaded: on the hub, or in the cache without a network."""
    try:
        return {file.filename for file in snapshot_download(name, allow_patterns=MODEL_FILES, dry_run=True)}
    except (OSError, HfHubHTTPError, ValueError):
        return {path.name for path in Path(snapshot_download(name, local_files_only=True)).glob("*")}


def data_downloads(*, chinese: bool) -> list[Download]:
    """Return what ``data_folder`` will download."""
    if chinese:
        names = sorted({name for name, _ in CHINESE.values()})
        return [planned_download(name, DATA_FILES, kind="dataset") for name in names]
    return [planned_download(DATA, file, kind="dataset") for file in (WIKIPEDIA, SENTEVAL)]


# --- the data folder ---


def data_folder(folder: Path, *, chinese: bool) -> Path:
    """Make the data folder of a study from the hub, unless it is there; a kill leaves it unfinished, and it is redone.

    Args:
        folder: where it goes.
        chinese: whether it is that of the study ``papers_zh``.

    Returns:
        The folder: ``NAME.tsv`` for each set, and the training text.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):  # processes that train together
        if not (folder / "complete").is_file():
            _write_folder(folder, chinese=chinese)
    return folder


def _write_folder(folder: Path, *, chinese: bool) -> None:
    sets = dict(_chinese_sets() if chinese else _senteval_sets(hf_hub_download(DATA, SENTEVAL, repo_type="dataset")))
    for name, pairs in sets.items():
        _write_set(folder / f"{name}.tsv", pairs)
    text = "zh_unlabeled.txt" if chinese else "sts_unlabeled.txt"
    _write_lines(folder / text, (sentence for pairs in sets.values() for pair in pairs for sentence in pair[2:]))
    if not chinese:
        (folder / WIKIPEDIA).unlink(missing_ok=True)
        (folder / WIKIPEDIA).symlink_to(Path(hf_hub_download(DATA, WIKIPEDIA, repo_type="dataset")).resolve())
    (folder / "complete").touch()


def _senteval_sets(file: str) -> Iterator[tuple[str, list[Pair]]]:
    """Yield the pairs of each set of SentEval's archive, in the order of ConSERT's training text."""
    with tarfile.open(file) as archive:
        members = {member.name.removeprefix("./"): member for member in archive.getmembers() if member.isfile()}

        def lines(name: str) -> list[str]:
            member = members.get(name)
            content = None if member is None else archive.extractfile(member)
            if content is None:
                raise ValueError(f"{file} must hold {name}, got an archive without: remove it from the cache.")
            return content.read().decode("utf8").splitlines()

        for name, (folder, subsets) in SUBSETS.items():
            yield name, [pair for subset in subsets for pair in _subset(subset, f"STS/{folder}", lines)]
        for name, (path, columns, header) in TABLES.items():
            rows = (line.strip().split("\t") for line in lines(path)[header:] if line.strip())
            yield name, [(name, *(row[column] for column in columns)) for row in rows]  # type: ignore[misc]


def _subset(subset: str, folder: str, lines: Any) -> Iterator[Pair]:
    texts, scores = lines(f"{folder}/STS.input.{subset}.txt"), lines(f"{folder}/STS.gs.{subset}.txt")
    for text, score in zip(texts, scores + [""] * (len(texts) - len(scores)), strict=True):
        first, second = text.split("\t")[:2]
        yield subset, score.strip(), first, second


def _chinese_sets() -> Iterator[tuple[str, list[Pair]]]:
    from datasets import load_dataset

    for name, (repository, split) in CHINESE.items():
        folder = snapshot_download(repository, repo_type="dataset", allow_patterns=DATA_FILES)
        rows = load_dataset(folder, split=split, streaming=True)
        yield name, [(name, str(row["score"]), row["sentence1"], row["sentence2"]) for row in rows]


def _write_set(file: Path, pairs: Iterable[Pair]) -> None:
    """Write the pairs that have a score."""
    rows = ("\t".join(" ".join(part.split()) for part in pair) for pair in pairs if pair[1])
    _write_lines(file, ["subset\tscore\tsentence1\tsentence2", *rows])


def _write_lines(file: Path, lines: Iterable[str]) -> None:
    with whole_file(file) as partial, partial.open("w", encoding="utf8") as written:
        for line in lines:
            written.write(f"{' '.join(line.split()) if file.suffix == '.txt' else line}\n")
