from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import BertTokenizer, PreTrainedTokenizerFast

from st_extras.text.frequency import FrequencyTable


def test_shards_add_up(frequency_table: FrequencyTable, tokenizer: BertTokenizer, sentences: list[str]) -> None:
    shards = [FrequencyTable.count(sentences[i : i + 3], tokenizer) for i in range(0, len(sentences), 3)]
    merged = sum(shards)
    assert merged.counts.tolist() == frequency_table.counts.tolist()
    assert merged.num_texts == frequency_table.num_texts


def test_labels_by_hand() -> None:
    table = FrequencyTable(["a", "b", "c", "d", "e", "f"], [5, 0, 1, 9, 7, 2])
    assert table.labels(0.5).tolist() == [0, 1, 1, 0, 0, 1]  # int(0.5 * 5) = 2 of the seen, and b
    assert table.labels(0.7).tolist() == [1, 1, 1, 0, 0, 1]
    assert table.labels(0.1).tolist() == [0, 1, 0, 0, 0, 0]
    ids = torch.tensor([[0, 1], [5, 3]])
    assert table.rare(ids).tolist() == [[False, True], [True, False]]
    tied = FrequencyTable(["a", "b", "c", "d"], [3, 3, 3, 3])
    assert tied.labels(0.5).tolist() == [1, 1, 0, 0]


def test_another_tokenizers_table_is_refused(
    frequency_table: FrequencyTable, tokenizer: BertTokenizer, tmp_path: Path
) -> None:
    frequency_table.check_tokenizer(tokenizer)
    frequency_table.save(tmp_path / "table.json")
    tokenizer.add_tokens(["moor"])
    with pytest.raises(ValueError, match="same vocabulary"):
        frequency_table.check_tokenizer(tokenizer)
    with pytest.raises(ValueError, match="same vocabulary"):
        FrequencyTable.load(tmp_path / "table.json", tokenizer)


def test_bookcorpus_labels_agree_with_the_sorted_counts(data_folder: Path) -> None:
    table = FrequencyTable.from_file(data_folder / "bookcorpus_bert_base_uncased.tsv.gz")
    labels = table.labels(0.5)
    counts = table.counts
    seen = counts[counts > 0].sort().values
    middle = seen[len(seen) // 2]  # the authors call low what lies below it, and nothing ties with it here
    assert len(table) == 30522
    assert table.num_seen == 27528
    assert (labels == (counts < middle).long()).all()
    assert labels[(counts > 0)].sum() == len(seen) // 2


def test_bad_input_is_named(frequency_table: FrequencyTable) -> None:
    cases = [
        (lambda: frequency_table.labels(0), "low_frequency_ratio .* 0"),
        (lambda: frequency_table.labels(1.0), "low_frequency_ratio .* 1.0"),
        (lambda: FrequencyTable(["a"], [1, 2]), r"\(2,\)"),
        (lambda: FrequencyTable(["a"], [-1]), "-1"),
        (lambda: FrequencyTable(["a"], [1.5]), "counts must be whole numbers"),
        (lambda: FrequencyTable(["a"], [float("nan")]), "counts must be whole numbers"),
        (lambda: FrequencyTable(["a"], ["1"]), "counts must be whole numbers"),
        (lambda: FrequencyTable(["a"], [10**30]), "counts must be whole numbers"),
        (lambda: FrequencyTable(["a"], [1], num_texts=-1), "num_texts must be .* got -1"),
        (lambda: FrequencyTable(["a", "b"], [2**62, 2**62]), r"sum below 2\*\*63"),
        (lambda: frequency_table + FrequencyTable(["a"], [1]), r"id 0 is '\[PAD\]' here and 'a' there"),
        (
            lambda: frequency_table + FrequencyTable(frequency_table.tokens[:-1], frequency_table.counts[:-1]),
            "ids here",
        ),
    ]
    for action, message in cases:
        with pytest.raises(ValueError, match=message):
            action()
    with pytest.raises(TypeError):
        frequency_table + 1


class _Processor:
    """What AutoProcessor gives: a tokenizer among other parts."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer


def test_tokenizers_that_cannot_be_used_are_refused_in_one_line(encoder: SentenceTransformer) -> None:
    backend = encoder.tokenizer.backend_tokenizer
    own = "give its .tokenizer"
    wrap = r"wrap it, PreTrainedTokenizerFast\(tokenizer_object=...\)"
    none = "give the tokenizer of an encoder that is a transformer"
    for tokenizer, remedy in (
        (None, none),
        ("bert", none),
        (str.split, none),
        (WhitespaceTokenizer(["cat"]), none),
        (backend, wrap),
        (StaticEmbedding(backend, embedding_dim=4).tokenizer, wrap),
        (encoder, own),
        (_Processor(encoder.tokenizer), own),
    ):
        with pytest.raises(ValueError, match=rf"^tokenizer must be one of transformers, got .*: {remedy}\.$"):
            FrequencyTable.count(["a cat"], tokenizer)


def test_a_tokenizer_without_a_vocabulary_or_unknown_token_is_refused() -> None:
    def fast(vocabulary: dict[str, int], unknown: str = "u") -> PreTrainedTokenizerFast:
        return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(vocabulary, unk_token=unknown)))

    with pytest.raises(ValueError, match=r"^tokenizer must have a vocabulary, got one without a token\.$"):
        FrequencyTable.count(["a"], fast({}))
    with pytest.raises(ValueError, match=r"^tokenizer must tokenize every text, got an error of its own: .*UNK.*\.$"):
        FrequencyTable.count(["b"], fast({"a": 5}, "z"))
    assert FrequencyTable.count(["a"], fast({"a": 5, "u": 2})).counts.tolist() == [0, 0, 0, 0, 0, 1]


class _Beyond(BertTokenizer):
    """Gives ids that its own vocabulary does not have."""

    backend_tokenizer = None

    def __call__(self, texts: list[str], **options: Any) -> dict[str, list[list[int]]]:
        return {"input_ids": [[10_000] for _ in texts]}


def test_ids_beyond_the_vocabulary_are_refused() -> None:
    tokenizer = _Beyond(vocab={"[PAD]": 0, "[UNK]": 1, "a": 2})
    with pytest.raises(ValueError, match=r"^tokenizer must give ids of its vocabulary, below \d+, got 10000\.$"):
        FrequencyTable.count(["a"], tokenizer)
