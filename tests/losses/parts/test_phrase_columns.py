import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from st_extras.losses.parts.phrase_columns import bracketed, check_phrase_columns, check_tokenizer, phrase_brackets
from tests.fixtures import build_byte_level_encoder, vocabulary
from tests.losses.phrases import features, one


def test_tokenizers_that_cannot_be_used_are_refused(encoder):
    static = SentenceTransformer(modules=[StaticEmbedding(encoder.tokenizer, embedding_dim=8)], device="cpu")
    with pytest.raises(ValueError, match="StaticEmbedding"):
        check_tokenizer(static)
    check_tokenizer(encoder)
    encoder.tokenizer.mask_token = None
    with pytest.raises(ValueError, match=r'mask token.*on_missing_mask="delete"'):
        check_tokenizer(encoder)
    assert check_tokenizer(encoder, "delete") == "delete"
    encoder.tokenizer.backend_tokenizer.post_processor = None
    encoder.tokenizer.sep_token = None
    with pytest.raises(ValueError, match=r"a token that ends a sequence.*set model\.tokenizer\.eos_token\.$"):
        check_tokenizer(encoder, "delete")


@pytest.mark.parametrize(("special", "expected"), [
    ({}, ("[CLS]", "[SEP]")),
    ({"eos_token": "[PAD]"}, ("[CLS]", "[PAD]")),
    ({"bos_token": "[UNK]"}, ("[UNK]", "[SEP]")),
    ({"cls_token": None}, ("[SEP]", "[SEP]")),
])  # fmt: skip
def test_brackets_with_and_without_a_tokenizer_that_writes_them(encoder, tmp_path, special, expected):
    assert phrase_brackets(encoder) == (vocabulary().index("[CLS]"), vocabulary().index("[SEP]"))
    encoder.tokenizer.backend_tokenizer.post_processor = None
    for name, token in special.items():
        setattr(encoder.tokenizer, name, token)
    assert phrase_brackets(encoder) == tuple(vocabulary().index(token) for token in expected)
    model = build_byte_level_encoder(tmp_path)
    assert model.tokenizer.convert_ids_to_tokens(list(phrase_brackets(model))) == ["<s>", "</s>"]


@pytest.mark.parametrize("prompt", [None, "the old "])
@pytest.mark.parametrize("side", ["left", "right"])
def test_brackets_are_put_around_the_content(make_encoder, side, prompt):
    texts, usual, model = ["red book", "cat", "old man read"], make_encoder(), make_encoder()
    expected = bracketed(usual, usual.preprocess(texts))
    model.tokenizer.backend_tokenizer.post_processor = None
    model.tokenizer.padding_side = side
    found = bracketed(model, model.preprocess(texts, prompt=prompt))
    present = expected["attention_mask"].bool()
    assert torch.equal(found["attention_mask"].bool(), present)
    assert torch.equal(found["input_ids"][present], expected["input_ids"][present])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"sentence": ["a cat"], "masked": ["a [MASK]"]}, "got 2 columns: .*sentence, masked, phrase"),
        ({**one("a", "[MASK]", "a"), "more": ["a"]}, "got 4 columns"),
        ({"sentence": ["a cat"], "phrase": ["cat"], "masked": ["a [MASK]"]}, r"'phrase' holds \[MASK\]"),
        ({"masked": ["a [MASK]"], "sentence": ["a cat"], "phrase": ["cat"]}, r"'masked' has a row without \[MASK\]"),
        ({"p": ["cat"], "m": ["a [MASK] sat on"], "s": ["a cat sat on"]}, "'phrase' is longer than the sentences"),
        ({"s": ["a cat", "a dog"], "m": ["a [MASK]"] * 2, "p": ["cat", ""]}, "'phrase' has an empty phrase"),
        (one("a cat a cat", "a [MASK]", "a cat a"), "A phrase has 5 tokens, more than max_phrase_length=4"),
    ],
)
def test_wrong_columns(encoder, data, message):
    with pytest.raises(ValueError, match=message):
        check_phrase_columns(features(encoder, data), encoder, 4, with_base=False)
