import gzip
import itertools
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, Future

import pytest
from datasets import Dataset
from transformers import BertTokenizer

from st_extras.text import counting
from st_extras.text.frequency import FrequencyTable

DATA = Dataset.from_dict({"text": ["the cat"]})


def counted_by_hand(texts: list[str], tokenizer: BertTokenizer) -> list[int]:
    seen = Counter(token for text in texts for token in tokenizer.tokenize(text))
    return [seen[token] for token in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))]


def test_counts_are_those_of_a_loop_without_special_tokens(frequency_table, tokenizer, sentences):
    assert frequency_table.counts.tolist() == counted_by_hand(sentences, tokenizer)
    assert frequency_table.counts[tokenizer.convert_tokens_to_ids("the")] == 7
    assert frequency_table.counts[tokenizer.cls_token_id] == 0
    assert frequency_table.num_texts == len(sentences)
    assert frequency_table.total == frequency_table.counts.sum()


def test_neither_truncation_nor_padding_of_an_earlier_call_counts(tokenizer, sentences):
    text = " ".join(sentences * 5)
    tokenizer([text, "a"], truncation=True, max_length=4, padding=True)
    assert FrequencyTable.count([text, "a"], tokenizer).counts.tolist() == counted_by_hand([text, "a"], tokenizer)


def test_every_kind_of_corpus_gives_the_same_table(frequency_table, tokenizer, sentences, tmp_path):
    plain, packed = tmp_path / "corpus.txt", tmp_path / "corpus.txt.gz"
    plain.write_text("\n".join(sentences[:3]) + "\n", encoding="utf-8")
    with gzip.open(packed, "wt", encoding="utf-8") as file:
        file.write("\n".join(sentences[3:]))
    rows = Dataset.from_dict({"sentence": sentences})
    corpora = {
        "generator": (s for s in sentences),
        "files": [plain, packed],
        "column": rows["sentence"],
        "streamed column": rows.to_iterable_dataset()["sentence"],
        "data set": rows,
        "streamed data set": rows.to_iterable_dataset(),
    }
    for name, corpus in corpora.items():
        counted = FrequencyTable.count(corpus, tokenizer, batch_size=3)
        assert counted.counts.tolist() == frequency_table.counts.tolist(), name
        assert counted.num_texts == len(sentences), name


@pytest.mark.slow
def test_several_processes_count_the_same(frequency_table, tokenizer, sentences):
    counted = FrequencyTable.count(sentences, tokenizer, num_processes=2, batch_size=2, show_progress_bar=True)
    assert counted.counts.tolist() == frequency_table.counts.tolist()
    assert counted.num_texts == len(sentences)


class InstantPool(Executor):
    """Does each task as it is handed in."""

    def __init__(self, workers, context, initializer, arguments) -> None:
        initializer(*arguments)

    def submit(self, function, *arguments):
        future = Future()
        future.set_result(function(*arguments))
        return future


@pytest.mark.parametrize("num_processes", [1, 2])
def test_the_corpus_is_never_held(tokenizer, num_processes, monkeypatch):
    handed_out = itertools.count(1)
    lead = []
    done = [0]
    original = counting.count_batches
    if num_processes > 1:  # what counts is how far the stream is read ahead of the results
        monkeypatch.setattr(counting, "ProcessPoolExecutor", InstantPool)

    def corpus() -> Iterator[str]:
        for _ in range(400):
            lead.append(next(handed_out) - done[0])
            yield "the cat"

    def watched(*arguments):
        for size, ids in original(*arguments):
            done[0] += size
            yield size, ids

    monkeypatch.setattr(counting, "count_batches", watched)
    counted = FrequencyTable.count(corpus(), tokenizer, batch_size=5, num_processes=num_processes)
    assert counted.num_texts == 400
    assert max(lead) <= 5 * (1 if num_processes == 1 else 4 * num_processes)


@pytest.mark.parametrize(
    ("texts", "options", "named"),
    [
        ([], {}, "texts must hold at least one text"), (["", ""], {}, "no token"), ("a string", {}, "'a string'"),
        (["a"], {"num_processes": 10**11}, "num_processes"), (DATA, {"column": "body"}, "texts has no column body"),
    ],
)  # fmt: skip
def test_bad_input_is_named(texts, options, named, tokenizer):
    with pytest.raises(ValueError, match=named):
        FrequencyTable.count(texts, tokenizer, **options)


def test_text_that_the_tokenizer_does_not_know(tokenizer, caplog):
    with pytest.raises(ValueError, match="texts must hold words that the tokenizer knows"):
        FrequencyTable.count(["今天天气很好", "一二三"], tokenizer)
    FrequencyTable.count(["the cat sat on 天", "the cat"], tokenizer)
    assert "14% of the tokens are words that the tokenizer does not know" in caplog.text
    caplog.clear()
    FrequencyTable.count(["the cat sat on the mat"], tokenizer)
    assert not caplog.messages
