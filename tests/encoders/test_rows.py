import pytest
import torch
from torch import Tensor

from st_extras.encoders.rows import split_rows, stack_columns, stack_rows


def test_split_rows_is_the_inverse_of_stacking(encoder, sentences):
    blocks = [encoder.preprocess(sentences[start : start + 2], prompt="two ") for start in (0, 0, 0)]
    for block, seed in zip(blocks, (1, 2, 3), strict=True):
        block["input_ids"] = block["input_ids"] + seed
    split = split_rows(stack_rows(blocks), 3)
    for block, part in zip(blocks, split, strict=True):
        assert block.keys() == part.keys()
        assert all(torch.equal(part[key], value) for key, value in block.items() if isinstance(value, Tensor))
        assert part["prompt_length"] == block["prompt_length"]


def test_one_column_is_repeated_and_several_are_padded(encoder, sentences):
    one, two = encoder.preprocess(["a cat"]), encoder.preprocess([sentences[0]])
    assert torch.equal(stack_columns([one], views=3)["input_ids"], one["input_ids"].repeat(3, 1))
    assert torch.equal(stack_columns([one])["input_ids"], one["input_ids"].repeat(2, 1))
    rows = stack_columns([one, two], views=3)  # views count for a single column only
    assert rows["attention_mask"].sum(dim=1).tolist() == [4, 8]
    assert torch.equal(rows["input_ids"][:1, :4], one["input_ids"])
    assert torch.equal(rows["input_ids"][1:], two["input_ids"])


def test_what_keeps_columns_from_one_pass_is_named(encoder, sentences):
    one, two = encoder.preprocess(sentences), encoder.preprocess(sentences, prompt="two ")
    with pytest.raises(ValueError, match="prompt_length"):
        stack_columns([one, two])
    with pytest.raises(ValueError, match="different prompts"):
        stack_columns([encoder.preprocess(sentences, prompt="the red "), two])


def test_flattened_features_are_refused_with_the_setting_to_change(encoder):
    features = {**encoder.preprocess(["a cat"]), "cu_seq_lens_q": torch.tensor([0, 3])}
    with pytest.raises(ValueError, match="unpad_inputs"):
        stack_rows([features] * 2)


def test_one_sentence_does_not_repeat_metadata(encoder):
    features = {**encoder.preprocess(["a cat"]), "prompt_length": torch.tensor([2])}
    assert stack_rows([features] * 3)["prompt_length"].shape == (1,)
    assert stack_rows([features] * 3)["input_ids"].shape[0] == 3
