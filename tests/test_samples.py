"""The sample files keep the promises that their docstrings make."""

import re
import unicodedata
from collections import Counter
from importlib import resources

import pytest

from st_extras.evaluation import load_labeled_texts, load_retrieval, load_sts
from st_extras.samples import graded_pairs, help_pages, labeled_sentences, sample_sentences, write_samples
from st_extras.text import read_sentences


def normalized(sentence: str) -> str:
    """Lower-cased words only, so that case and punctuation cannot hide a repetition."""
    return " ".join(re.findall(r"\w+", sentence.lower()))


def test_sentences_are_many_distinct_and_of_4_to_30_words():
    sentences = sample_sentences()
    assert len(sentences) >= 3000
    assert len({normalized(sentence) for sentence in sentences}) == len(sentences)
    assert not [sentence for sentence in sentences if not 4 <= len(sentence.split()) <= 30]
    texts, topics = labeled_sentences()
    assert {*texts} <= {*sentences}
    assert (len({*texts}), {*Counter(topics).values()}) == (48, {8})


def test_pairs_are_300_distinct_and_cover_the_scale_in_half_points():
    pairs = [*zip(*graded_pairs(), strict=True)]
    assert len({frozenset(map(normalized, pair[:2])) for pair in pairs}) == len(pairs) == 300
    assert all(normalized(first) != normalized(second) for first, second, _ in pairs)
    training = {normalized(sentence) for sentence in sample_sentences()}
    assert not [pair for pair in pairs if training & {normalized(pair[0]), normalized(pair[1])}]
    counts = Counter(score for _, _, score in pairs)
    assert {*counts} == {half / 2 for half in range(11)}
    assert all(20 <= count <= 40 for count in counts.values())


def test_help_pages_are_distinct_and_each_query_has_its_page():
    pages, queries, answers = help_pages()
    assert len({*pages}) == len({title for title, _ in pages}) == 107
    assert len({*queries}) == len(queries) == len(answers) == 94
    assert pages[answers[queries.index("what does E42 mean")]][0] == "PIN entered wrongly three times"


def test_written_samples_are_what_the_readers_read(tmp_path):
    folder = tmp_path / "samples"
    assert write_samples(folder) == [folder / name for name in ("sentences.txt", "labels.tsv", "pairs.tsv", "search")]
    texts, topics = labeled_sentences()
    assert read_sentences(folder / "sentences.txt") == [text for text in sample_sentences() if text not in texts]
    labeled = load_labeled_texts(folder / "labels.tsv")
    assert ([*labeled.texts], [*labeled.labels]) == (texts, topics)
    graded = load_sts("pairs", folder / "pairs.tsv")
    assert (list(graded.sentences1), list(graded.sentences2), list(graded.scores)) == tuple(map(list, graded_pairs()))
    task, (pages, queries, answers) = load_retrieval(folder / "search"), help_pages()
    assert [*task.queries.values()] == queries
    assert all(title in text for (title, _), text in zip(pages, task.documents.values(), strict=True))
    assert [*task.relevant.values()] == [{str(place): 1.0} for place in answers]
    with pytest.raises(ValueError, match=r"^folder must be new or empty"):
        write_samples(folder)


@pytest.mark.parametrize("name", ["sentences.txt", "graded_pairs.tsv", "topics.tsv", "help_pages.tsv"])
def test_files_hold_clean_text(name):
    text = resources.files("st_extras.samples").joinpath(name).read_bytes().decode("utf-8")
    assert not {char for char in text if unicodedata.category(char).startswith("C")} - {"\n", "\t"}
    assert text == unicodedata.normalize("NFC", text)
    assert text.endswith("\n")
    cells = [cell for line in text.splitlines() for cell in line.split("\t")]
    assert not [cell for cell in cells if cell != cell.strip() or not cell or "  " in cell]
