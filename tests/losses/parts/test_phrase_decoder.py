from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import nn

from st_extras.losses import PaSeRLoss
from st_extras.losses.parts.phrase_decoder import (
    PhraseDecoder,
    bracketed,
    check_phrase_columns,
    check_phrase_tokenizer,
    phrase_brackets,
    without_prompt,
)
from tests.conftest import build_byte_level_encoder, vocabulary
from tests.losses.phrases import features, loop_decoder, one

MakeEncoder = Callable[..., SentenceTransformer]


# ---- the decoder


@pytest.mark.parametrize(("width", "dimension", "heads"), [(16, 16, 1), (128, 5, 2), (130, 130, 2)])
def test_the_decoder_is_a_transformer_decoder_layer(width: int, dimension: int, heads: int) -> None:
    torch.manual_seed(0)
    decoder = PhraseDecoder(width, dimension, 1, 0.0, 9).double()
    layer: Any = decoder.layers.layers[0]
    assert layer.self_attn.num_heads == heads
    words, signal = torch.randn(3, 5, width).double(), torch.randn(3, 4, dimension).double()
    expected = torch.stack([torch.stack(loop_decoder(decoder, w, s)) for w, s in zip(words, signal, strict=True)])
    torch.testing.assert_close(decoder(words, signal), expected)


def test_its_layers_start_apart() -> None:
    first, second = PhraseDecoder(16, 16, 2, 0.0, 9).layers.layers
    assert not torch.equal(first.linear1.weight, second.linear1.weight)
    assert not torch.equal(first.self_attn.in_proj_weight, second.self_attn.in_proj_weight)


def test_truncated_embeddings_keep_their_places() -> None:
    decoder = PhraseDecoder(16, 5, 1, 0.0, 9)
    words, signal = torch.randn(2, 3, 16), torch.randn(2, 4, 5)
    signal[..., 2:] = 0
    torch.testing.assert_close(decoder(words, signal[..., :2]), decoder(words, signal))


def test_no_position_sees_a_later_word_and_every_one_sees_the_signal() -> None:
    decoder = PhraseDecoder(16, 16, 2, 0.0, 9)
    words, signal = torch.randn(1, 5, 16), torch.randn(1, 4, 16)
    base = decoder(words, signal)
    changed = words.clone()
    changed[0, 3] += torch.randn(16)
    moved = (decoder(changed, signal) - base).abs().sum(-1)[0]
    assert (moved[:3] < 1e-6).all()
    assert (moved[3:] > 1e-3).all()
    for vector in range(4):
        other = signal.clone()
        other[0, vector] += torch.randn(16)
        assert ((decoder(words, other) - base).abs().sum(-1) > 1e-3).all()


def test_half_precision_words_are_decoded_in_the_decoders_own() -> None:
    decoder = PhraseDecoder(16, 5, 1, 0.0, 9)
    assert decoder(torch.randn(2, 3, 16).bfloat16(), torch.randn(2, 4, 5).bfloat16()).dtype == torch.float32


# ---- writing


def written_by_a_loop(
    decoder: PhraseDecoder, words: nn.Embedding, signal: torch.Tensor, brackets: tuple[int, int], max_length: int
) -> list[int]:
    """One phrase, token by token."""
    opening, closing = brackets
    ids = [opening]
    while len(ids) <= max_length:
        hidden = loop_decoder(decoder, words.weight[ids], signal)[-1]
        logits = [(word @ hidden).item() for word in words.weight]
        best = max(range(len(logits)), key=logits.__getitem__)
        if best == closing:
            break
        ids.append(best)
    return ids[1:]


def test_greedy_phrases_are_those_of_the_loop() -> None:
    torch.manual_seed(0)
    decoder, words = PhraseDecoder(16, 5, 1, 0.0, 9).double(), nn.Embedding(12, 16).double()
    with torch.no_grad():
        decoder.positions.weight.mul_(100)  # places and signals that matter: the phrases differ
        decoder.fit_signal.weight.mul_(8)
    signal = torch.randn(8, 4, 5).double()
    lengths = set()
    for closing in range(1, 12):
        brackets = 0, closing
        expected = [written_by_a_loop(decoder, words, s, brackets, 6) for s in signal]
        assert decoder.write(words, signal, brackets, 6) == expected
        lengths |= {len(phrase) for phrase in expected}
    assert {0, 6} <= lengths  # some end at once, some at the limit
    assert len(lengths) > 2  # and some between


def test_a_phrase_may_repeat_the_opening_token_and_one_row_does_not_wait_for_another() -> None:
    class Fixed(PhraseDecoder):
        """Writes the tokens that are prescribed for each row."""

        def forward(self, words: torch.Tensor, signal: torch.Tensor) -> torch.Tensor:
            step = words.size(1) - 1
            rows = [torch.eye(16)[row[min(step, len(row) - 1)]] for row in phrases]
            return torch.stack(rows).unsqueeze(1)

    phrases = [[3, 0, 5, 1, 7], [1, 4, 4, 4, 4], [2, 2, 2, 2, 2]]
    words = nn.Embedding(16, 16)
    with torch.no_grad():
        words.weight[:] = torch.eye(16)
    signal = torch.zeros(3, 4, 16)
    decoder = Fixed(16, 16, 1, 0.0, 9)
    assert decoder.write(words, signal, (0, 1), 5) == [[3, 0, 5], [], [2] * 5]
    assert decoder.write(words, signal, (0, 1), 1) == [[3], [], [2]]
    assert decoder.write(words, signal, (1, 1), 4) == [[3, 0, 5], [], [2] * 4]  # one token opens and closes


# ---- the tokenizer


def test_brackets(encoder: SentenceTransformer, tmp_path: Path) -> None:
    assert phrase_brackets(encoder) == (vocabulary().index("[CLS]"), vocabulary().index("[SEP]"))
    model = build_byte_level_encoder(tmp_path)
    assert model.tokenizer.convert_ids_to_tokens(list(phrase_brackets(model))) == ["<s>", "</s>"]
    for able in (encoder, model):
        check_phrase_tokenizer(able)


def test_tokenizers_that_do_not_serve_are_refused(encoder: SentenceTransformer) -> None:
    static = SentenceTransformer(modules=[StaticEmbedding(encoder.tokenizer, embedding_dim=8)], device="cpu")
    with pytest.raises(ValueError, match="needs a transformer with a word embedding, got StaticEmbedding"):
        check_phrase_tokenizer(static)
    check_phrase_tokenizer(encoder)
    encoder.tokenizer.mask_token = None
    with pytest.raises(ValueError, match=r'mask token.*on_missing_mask="delete"'):
        check_phrase_tokenizer(encoder)
    assert check_phrase_tokenizer(encoder, "delete") == "delete"
    encoder.tokenizer.backend_tokenizer.post_processor = None
    encoder.tokenizer.sep_token = None
    with pytest.raises(ValueError, match=r"a token that ends a sequence.*set model\.tokenizer\.eos_token\.$"):
        check_phrase_tokenizer(encoder, "delete")


@pytest.mark.parametrize(("special", "expected"), [
    ({}, ("[CLS]", "[SEP]")),
    ({"eos_token": "[PAD]"}, ("[CLS]", "[PAD]")),
    ({"bos_token": "[UNK]"}, ("[UNK]", "[SEP]")),
    ({"cls_token": None}, ("[SEP]", "[SEP]")),
])  # fmt: skip
def test_brackets_where_the_tokenizer_writes_none(
    encoder: SentenceTransformer, special: dict[str, str | None], expected: tuple[str, str]
) -> None:
    assert phrase_brackets(encoder) == (vocabulary().index("[CLS]"), vocabulary().index("[SEP]"))
    encoder.tokenizer.backend_tokenizer.post_processor = None
    for name, token in special.items():
        setattr(encoder.tokenizer, name, token)
    assert phrase_brackets(encoder) == tuple(vocabulary().index(token) for token in expected)


@pytest.mark.parametrize("prompt", [None, "the old "])
@pytest.mark.parametrize("side", ["left", "right"])
def test_brackets_are_put_around_the_content(make_encoder: MakeEncoder, side: str, prompt: str | None) -> None:
    texts = ["red book", "cat", "old man read"]
    usual = make_encoder()
    expected = bracketed(usual, usual.preprocess(texts))
    model = make_encoder()
    model.tokenizer.backend_tokenizer.post_processor = None
    model.tokenizer.padding_side = side
    found = bracketed(model, model.preprocess(texts, prompt=prompt))
    present = expected["attention_mask"].bool()
    assert torch.equal(found["attention_mask"].bool(), present)
    assert torch.equal(found["input_ids"][present], expected["input_ids"][present])


# ---- the prompt


def test_without_a_prompt_the_phrases_stay(encoder: SentenceTransformer) -> None:
    phrase = encoder.preprocess(["cat", "red book"])
    assert without_prompt(encoder, phrase) is phrase


def test_the_prompt_goes_and_the_opening_token_stays(encoder: SentenceTransformer) -> None:
    plain, prompted = (encoder.preprocess(["cat", "red book"], prompt=prompt) for prompt in (None, "the old "))
    bare = without_prompt(encoder, prompted)
    for key in ("input_ids", "attention_mask"):
        assert torch.equal(bare[key], plain[key])


@pytest.mark.parametrize("prompt", ["query: ", "query:", "query: \n"])
@pytest.mark.parametrize("texts", [["dog"], ["dog", "cat sat"], ["dog", "dog"]])
def test_the_space_behind_a_prompt_takes_no_word_with_it(tmp_path: Path, prompt: str, texts: list[str]) -> None:
    model = build_byte_level_encoder(tmp_path)
    features = model.preprocess(texts, prompt=prompt)
    bare = without_prompt(model, features)
    ids, present = bare["input_ids"], bare["attention_mask"].bool()
    assert [
        model.tokenizer.decode(row[1:][kept[1:]][:-1]).strip() for row, kept in zip(ids, present, strict=True)
    ] == texts
    terms = PaSeRLoss(model, num_decoder_layers=1)([
        features,
        model.preprocess(["<mask>", *texts[1:]] if len(texts) == 1 else ["<mask>", "<mask> sat"], prompt=prompt),
        features,
    ])  # fmt: skip
    assert all(torch.isfinite(term) for term in terms.values())


# ---- the columns


def test_rows_whose_masks_were_cut_off_are_told(make_encoder: MakeEncoder) -> None:
    model = make_encoder(max_seq_length=8)
    long = "a " * 20
    data = {
        "sentence": ["a cat sat", f"{long} cat", "the dog"],
        "masked": ["a [MASK] sat", f"{long} [MASK]", "the [MASK]"],
        "phrase": ["cat", "cat", "dog"],
    }
    assert check_phrase_columns(features(model, data), model, 8, with_base=False).tolist() == [True, False, True]


def test_columns_of_a_base_may_stand_between(encoder: SentenceTransformer) -> None:
    columns = features(encoder, one("a cat", "a [MASK]", "cat"))
    more = [columns[0], *encoder_columns(encoder), *columns[1:]]
    assert check_phrase_columns(more, encoder, 4, with_base=True).all()
    with pytest.raises(ValueError, match=r"got 5 columns"):
        check_phrase_columns(more, encoder, 4, with_base=False)


def encoder_columns(encoder: SentenceTransformer) -> list[dict[str, Any]]:
    return [encoder.preprocess([text]) for text in ("the cat", "a dog")]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"sentence": ["a cat"], "masked": ["a [MASK]"]}, r"got 2 columns: .*sentence, masked, phrase"),
        ({**one("a", "[MASK]", "a"), "more": ["a"]}, r"got 4 columns"),
        ({"sentence": ["a cat"], "phrase": ["cat"], "masked": ["a [MASK]"]}, r"'phrase' holds \[MASK\].*in this order"),
        ({"masked": ["a [MASK]"], "sentence": ["a cat"], "phrase": ["cat"]}, r"'masked' has a row without \[MASK\]"),
        ({"p": ["cat"], "m": ["a [MASK] sat on"], "s": ["a cat sat on"]}, r"'phrase' is longer than the sentences"),
        (one("a cat", "a [MASK]", ""), r"'phrase' has an empty phrase"),
        (
            {"sentence": ["a cat", "a dog"], "masked": ["a [MASK]", "a [MASK]"], "phrase": ["cat", ""]},
            r"'phrase' has an empty phrase",
        ),
        (one("a cat a cat", "a [MASK]", "a cat a"), r"A phrase has 5 tokens, more than max_phrase_length=4"),
    ],
)
def test_wrong_columns(encoder: SentenceTransformer, data: dict[str, list[str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_phrase_columns(features(encoder, data), encoder, 4, with_base=False)


def test_flattened_columns_are_refused(encoder: SentenceTransformer) -> None:
    columns = features(encoder, one("a cat", "a [MASK]", "cat"))
    columns[1] = {"input_ids": torch.ones(9, dtype=torch.long), "cu_seq_lens_q": torch.tensor([0, 4, 9])}
    with pytest.raises(ValueError, match=r"column 'masked': use unpad_inputs=False"):
        check_phrase_columns(columns, encoder, 4, with_base=False)
