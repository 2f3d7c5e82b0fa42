from __future__ import annotations

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.rows import merged_pair, repeat_rows, views


def test_views_repeat_rows_and_leave_the_features_alone(encoder: SentenceTransformer, sentences: list[str]) -> None:
    features = encoder.preprocess(sentences, prompt="two ")
    keys, ids = set(features), features["input_ids"].clone()
    twice = views(features)
    assert torch.equal(twice["input_ids"], torch.cat([ids, ids]))
    assert twice["attention_mask"].shape[0] == 2 * len(sentences)
    assert twice["prompt_length"] == features["prompt_length"]
    encoder(twice)
    assert set(features) == keys
    assert torch.equal(features["input_ids"], ids)


def test_one_sentence_does_not_repeat_metadata(encoder: SentenceTransformer) -> None:
    features = {**encoder.preprocess(["a cat"]), "prompt_length": torch.tensor([2])}
    assert repeat_rows(features, 3)["prompt_length"].shape == (1,)
    assert repeat_rows(features, 3)["input_ids"].shape[0] == 3


def test_what_keeps_columns_from_one_pass_is_named(encoder: SentenceTransformer, sentences: list[str]) -> None:
    one, two = encoder.preprocess(sentences), encoder.preprocess(sentences, prompt="two ")
    with pytest.raises(ValueError, match=r"only some have \['prompt_length'\]: use one prompt for all"):
        merged_pair([one, two], ("dropout", "dropout"))
    with pytest.raises(ValueError, match="they have different prompts"):
        merged_pair([encoder.preprocess(sentences, prompt="the red "), two], ("dropout", "dropout"))
