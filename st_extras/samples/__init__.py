"""Sample text for the offline demo: sentences, graded pairs, some sentences by topic, and help pages with queries.

The files were written for this package and may be used under its licence. They are large enough to watch an
unsupervised objective change an encoder in a minute. They are not a benchmark: do not report figures measured on them
as one.
"""

import csv
import json
from collections.abc import Iterable
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any

__all__ = ["graded_pairs", "graded_spearman", "help_pages", "labeled_sentences", "sample_sentences", "write_samples"]


def sample_sentences() -> list[str]:
    """Return the training sentences: over 3,000 distinct English sentences of 4 to 30 words, in a fixed order."""
    return _read_sample("sentences.txt").splitlines()


def graded_pairs() -> tuple[list[str], list[str], list[float]]:
    """Return the graded set: 300 first sentences, their 300 second sentences, and 300 similarity scores.

    Scores run from 0.0 (unrelated) to 5.0 (same meaning) in half points and follow the guideline of the STS Benchmark
    (Cer et al., 2017, https://aclanthology.org/S17-2001, Table 1). One author wrote and scored the pairs. No sentence
    of the set is among :func:`sample_sentences`.
    """
    pairs = [(row["sentence1"], row["sentence2"], float(row["score"])) for row in _sample_rows("graded_pairs.tsv")]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs], [pair[2] for pair in pairs]


def graded_spearman(model: Any) -> float:
    """Return how well an encoder orders the graded set: Spearman correlation x 100."""
    from st_extras.correlation import spearman_of_pairs
    from st_extras.text.corpus import different_texts

    first, second, scores = graded_pairs()
    different, places = different_texts([*first, *second])
    embeddings = model.encode(different, convert_to_tensor=True, show_progress_bar=False)
    return spearman_of_pairs(embeddings[places], scores)


def labeled_sentences() -> tuple[list[str], list[str]]:
    """Return 48 of the training sentences, and their topics: six, assigned by hand."""
    rows = [line.split("\t") for line in _read_sample("topics.tsv").splitlines()]
    return [text for _, text in rows], [topic for topic, _ in rows]


def help_pages() -> tuple[list[tuple[str, str]], list[str], list[int]]:
    """Return the help pages of a made-up bank, queries to them, and the page that answers each query.

    Returns:
        107 pages, each a title and a text; 94 queries; and for each query the place of its page.
    """
    rows = _sample_rows("help_pages.tsv")
    pairs = [(query, place) for place, row in enumerate(rows) for query in row["queries"].split(";") if query != "-"]
    return [(row["title"], row["text"]) for row in rows], [query for query, _ in pairs], [place for _, place in pairs]


def write_samples(folder: str | PathLike[str]) -> list[Path]:
    """Write the samples as files that the commands read, to try them with.

    ``sentences.txt`` holds the training sentences but for those of ``labels.tsv`` (label, text); ``pairs.tsv`` is the
    graded set; the folder ``search`` holds the help pages in the layout of BEIR.

    Args:
        folder: a new or empty one.

    Returns:
        What was written: three files and the folder ``search``.

    Raises:
        ValueError: if the folder is not empty.
    """
    path = Path(folder)
    held = [path] if path.is_file() else sorted(path.iterdir()) if path.exists() else []
    if held:  # such as .DS_Store, which a listing hides
        raise ValueError(f"folder must be new or empty, got {str(path)!r} with {held[0].name!r}: name another one.")
    texts, topics = labeled_sentences()
    pages, queries, answers = help_pages()
    written = {
        "sentences.txt": (text for text in sample_sentences() if text not in texts),
        "labels.tsv": ("label\ttext", *map("\t".join, zip(topics, texts, strict=True))),
        "pairs.tsv": _read_sample("graded_pairs.tsv").splitlines(),
        "search/corpus.jsonl": (
            json.dumps({"_id": str(place), "title": title, "text": text}) for place, (title, text) in enumerate(pages)
        ),
        "search/queries.jsonl": (json.dumps({"_id": f"q{i}", "text": query}) for i, query in enumerate(queries)),
        "search/qrels/test.tsv": (
            "query-id\tcorpus-id\tscore",
            *(f"q{i}\t{place}\t1" for i, place in enumerate(answers)),
        ),
    }
    for name, lines in written.items():
        _write(path / name, lines)
    return [path / "sentences.txt", path / "labels.tsv", path / "pairs.tsv", path / "search"]


def _write(file: Path, lines: Iterable[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _sample_rows(name: str) -> list[dict[str, str]]:
    return [*csv.DictReader(_read_sample(name).splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)]


def _read_sample(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
