"""The sample files keep the promises that their docstrings make."""

from collections import Counter

import pytest

from st_extras.evaluation import load_labeled_texts, load_retrieval, load_sts
from st_extras.samples import graded_pairs, help_pages, labeled_sentences, sample_sentences, write_samples
from st_extras.text import read_sentences


def test_sentences_and_pairs_are_distinct_and_share_nothing():
    sentences, pairs = sample_sentences(), [*zip(*graded_pairs(), strict=True)]
    assert len({*sentences}) == len(sentences) >= 3000
    assert len({frozenset(pair[:2]) for pair in pairs}) == len(pairs) == 300
    assert not {*sentences} & {text for pair in pairs for text in pair[:2]}
    texts, topics = labeled_sentences()
    assert {*texts} <= {*sentences}
    assert (len({*texts}), {*Counter(topics).values()}) == (48, {8})


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
