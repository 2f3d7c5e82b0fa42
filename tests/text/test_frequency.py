import sys
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from st_extras.text.frequency import FrequencyTable
from tests.fixtures import build_byte_level_encoder


def test_shards_add_up(frequency_table, tokenizer, sentences):
    merged = sum(FrequencyTable.count(sentences[i : i + 3], tokenizer) for i in range(0, len(sentences), 3))
    assert merged.counts.tolist() == frequency_table.counts.tolist()
    assert merged.num_texts == frequency_table.num_texts
    with pytest.raises(TypeError):
        frequency_table + 1


def test_labels_by_hand():
    table = FrequencyTable(["a", "b", "c", "d", "e", "f"], [5, 0, 1, 9, 7, 2])
    assert table.labels(0.5).tolist() == [0, 1, 1, 0, 0, 1]  # int(0.5 * 5) = 2 of the seen, and b
    assert table.labels(0.7).tolist() == [1, 1, 1, 0, 0, 1]
    assert table.labels(0.1).tolist() == [0, 1, 0, 0, 0, 0]
    tied = FrequencyTable(["a", "b", "c", "d"], [3, 3, 3, 3])
    assert tied.labels(0.5).tolist() == [1, 1, 0, 0]
    assert (table.total, table.num_seen, len(table)) == (24, 5, 6)


@pytest.mark.parametrize(
    ("tokens", "counts", "named"),
    [
        (["a"], [1, 2], r"\(2,\)"), (["a"], [-1], "counts"), (["a"], [1.5], "counts"), (["a"], [0], "count > 0"),
        (["a"], [float("nan")], "counts"),
    ],
)  # fmt: skip
def test_what_is_no_table_is_named(tokens, counts, named):
    with pytest.raises(ValueError, match=named):
        FrequencyTable(tokens, counts)


def test_bad_input_is_named(frequency_table):
    for ratio in (0, 1.0):
        with pytest.raises(ValueError, match="low_frequency_ratio"):
            frequency_table.labels(ratio)
    with pytest.raises(ValueError, match="num_texts"):
        FrequencyTable(["a"], [1], num_texts=-1)
    shorter = FrequencyTable(frequency_table.tokens[:-1], frequency_table.counts[:-1])
    for other, named in ((FrequencyTable(["a"], [1]), r"id 0 is '\[PAD\]' here and 'a' there"), (shorter, "ids here")):
        with pytest.raises(ValueError, match=named):
            frequency_table + other


def fast(vocabulary: dict[str, int], unknown: str = "u") -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(vocabulary, unk_token=unknown)))


def test_tokenizers_that_cannot_be_used_are_refused(encoder):
    for tokenizer in (None, str.split, encoder.tokenizer.backend_tokenizer, encoder):
        with pytest.raises(ValueError, match=r"^tokenizer must be one of transformers, got .*: give the .tokenizer of"):
            FrequencyTable.count(["a cat"], tokenizer)
    with pytest.raises(ValueError, match=r"^tokenizer must have a vocabulary, got one without a token\.$"):
        FrequencyTable.count(["a"], fast({}))
    assert FrequencyTable.count(["a"], fast({"a": 5, "u": 2})).counts.tolist() == [0, 0, 0, 0, 0, 1]


def test_wordfreq_words_begin_with_a_space_for_byte_level_tokenizers(tmp_path, monkeypatch):
    """In a corpus nearly every word follows a space, and its token there is another than at the start of a text."""
    words = {"park": 0.5, "river": 0.25}
    module = SimpleNamespace(
        available_languages=lambda: ["en"],
        get_frequency_dict=lambda language: words,
        word_frequency=lambda word, language: 0.0,
    )
    monkeypatch.setitem(sys.modules, "wordfreq", module)
    tokenizer = build_byte_level_encoder(tmp_path).tokenizer
    table = FrequencyTable.from_wordfreq(tokenizer, scale=1000)
    count = dict(zip(table.tokens, table.counts.tolist(), strict=True))
    assert (count["\u0120park"], count["\u0120river"], count["p"]) == (500, 250, 0)
    with pytest.raises(ValueError, match=r"language must be .* got 'xx'"):
        FrequencyTable.from_wordfreq(tokenizer, "xx")
