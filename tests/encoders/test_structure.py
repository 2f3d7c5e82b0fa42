import re
from contextlib import suppress
from types import SimpleNamespace

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense
from sentence_transformers.sentence_transformer.modules import Normalize, Router
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import BertTokenizerFast

from st_extras.encoders.forward import without_dropout
from st_extras.encoders.rows import content_mask, non_content_ids, prompt_length
from st_extras.encoders.structure import (
    embedding_dimension,
    token_embedding_dimension,
    warn_if_poorly_read,
    why_poorly_read,
)
from st_extras.losses import ConSERTLoss, PaSeRLoss, SimCSELoss
from tests.architectures.encoders import build
from tests.helpers import Wrapped


def test_the_dimensions_of_sentences_and_of_tokens(encoder):
    encoder.append(Dense(16, 5))
    encoder.truncate_dim = 3
    for model in (encoder, Wrapped(encoder)):
        assert (embedding_dimension(model), token_embedding_dimension(model)) == (5, 16)
    for modules in ([nn.Identity()], [encoder[0]], [encoder[0], Dense(16, 5), Normalize()]):
        with pytest.raises(ValueError, match="must have a Pooling"):
            embedding_dimension(SentenceTransformer(modules=modules, device="cpu"))


def test_every_module_gets_its_own_mode_back(encoder):
    encoder.train()
    encoder[0].eval()
    before = [module.training for module in encoder.modules()]
    assert len(set(before)) == 2
    with suppress(RuntimeError), without_dropout(encoder):
        assert not any(module.training for module in encoder.modules())
        encoder.train()  # what is done inside is undone too
        raise RuntimeError
    assert [module.training for module in encoder.modules()] == before


# ---- content


def test_content_is_neither_special_nor_padding_nor_prompt(encoder):
    features = encoder.preprocess(["a cat ☃ sat [MASK]", "dog", ""])
    mask = content_mask(encoder, features)
    rows = zip(features["input_ids"], mask, strict=True)
    kept = [encoder.tokenizer.convert_ids_to_tokens(ids[content].tolist()) for ids, content in rows]
    assert kept == [["a", "cat", "[UNK]", "sat", "[MASK]"], ["dog"], []]


@pytest.mark.parametrize("role", ["bos", "pad"])
def test_a_token_that_frames_the_rows_is_not_content(encoder, role):
    token = encoder.tokenizer.unk_token
    setattr(encoder.tokenizer, f"{role}_token", token)  # as <|endoftext|> in CLIP and GPT-2
    assert encoder.tokenizer.convert_tokens_to_ids(token) in non_content_ids(encoder)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_prompt_is_not_content(encoder, side):
    encoder.tokenizer.padding_side = side
    features = encoder.preprocess(["a cat", "two birds sing"], prompt="the old ")
    for length in (3, torch.tensor([3, 3])):
        mask = content_mask(encoder, {**features, "prompt_length": length})
        rows = zip(features["input_ids"], mask, strict=True)
        assert [encoder.tokenizer.decode(ids[kept]) for ids, kept in rows] == ["a cat", "two birds sing"]


@pytest.mark.parametrize("prompt", ["query: ", "query:", "query: \n"])
@pytest.mark.parametrize("texts", [["dog"], ["dog", "cat sat"]])
def test_the_space_behind_a_prompt_takes_no_word_with_it(tmp_path, prompt, texts):
    model = build("RoBERTa", tmp_path)
    features = model.preprocess(texts, prompt=prompt)
    rows = zip(features["input_ids"], content_mask(model, features), strict=True)
    assert [model.tokenizer.decode(ids[kept]).strip() for ids, kept in rows] == texts


# ---- Router


def routed(query: SentenceTransformer, document: SentenceTransformer) -> SentenceTransformer:
    routes = Router.for_query_document(query_modules=list(query), document_modules=list(document))
    return SentenceTransformer(modules=[routes], device="cpu")


def test_routed_encoders_get_no_views_of_their_tokens(make_encoder, sentences):
    query, document = make_encoder(), make_encoder(seed=1)
    model = routed(query, document)
    for make in (PaSeRLoss, ConSERTLoss, lambda model: SimCSELoss(model, augmentations=("none", "token_cutoff"))):
        with pytest.raises(ValueError, match=r"the model's Router has one for each of \['document', 'query'\]"):
            make(model)
    columns = [{**model.preprocess(sentences, task=task), "task": task} for task in ("query", "document")]
    SimCSELoss(model)(columns).backward()
    assert all(any(p.grad is not None for p in encoder.parameters()) for encoder in (query, document))
    same = Router.for_query_document(query_modules=list(query), document_modules=[query[0], document[1]])
    assert SimCSELoss(SentenceTransformer(modules=[same], device="cpu"), augmentations=("none", "token_cutoff"))


def test_heads_behind_one_encoder_are_not_encoders(encoder, sentences):
    heads = Router({"query": [Dense(16, 16)], "document": [Dense(16, 16)]}, default_route="query")
    model = SentenceTransformer(modules=[*encoder, heads], device="cpu")
    assert torch.isfinite(ConSERTLoss(model)([model.preprocess(sentences)]))


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_prompt_ends_before_the_text_where_two_tokens_close_a_row(encoder, side):
    tokenizer = encoder.tokenizer
    tokenizer.padding_side = side
    closing = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("[SEP]", "[CLS]")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="$A [SEP] [CLS]", special_tokens=closing)
    features = encoder.preprocess(["a cat", "the old dog", ""], prompt="the man ")
    kept = [
        tokenizer.convert_ids_to_tokens(row[mask].tolist())
        for row, mask in zip(features["input_ids"], content_mask(encoder, features), strict=True)
    ]
    assert kept == [["a", "cat"], ["the", "old", "dog"], []]


def test_a_text_that_ends_in_a_special_token_moves_no_prompt(encoder):
    both = encoder.preprocess(["cat", "cat [SEP]"], prompt="the old ")
    alone = encoder.preprocess(["cat"], prompt="the old ")
    assert prompt_length(encoder, both) == prompt_length(encoder, alone)
    assert content_mask(encoder, both).sum(dim=1).tolist() == [1, 1]


CHINESE = [
    "我们喜欢吃苹果",
    "天气很好",
    "银行卡丢失了怎么办",
    "如何重置密码",
    "今天下雨",
    "他在学校",
    "她喜欢读书",
    "火车晚点",
]
RUSSIAN = [
    "привет мир",
    "как дела сегодня",
    "карта потеряна",
    "забыл пароль",
    "идёт дождь",
    "он в школе",
    "поезд",
    "книга",
]
MIXED = [f"{text} the lost card is blocked at once" for text in RUSSIAN]


def with_vocabulary(words: list[str]) -> SentenceTransformer:
    """An encoder whose tokenizer knows these words, and single letters of Latin and Russian."""
    letters = [chr(code) for code in (*range(97, 123), *range(0x430, 0x450))]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{one}" for one in letters), *words]
    tokenizer = BertTokenizerFast(vocab={token: number for number, token in enumerate(dict.fromkeys(tokens))})
    return SimpleNamespace(tokenizer=tokenizer)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("words", "texts", "reason"),
    [
        (
            [],
            CHINESE,
            "tokens are unknown, and most of their letters are CJK, in which its tokenizer has 0 words;",
        ),
        ([chr(0x4E00 + i) for i in range(1999)], CHINESE[:1] * 8, "its tokenizer has 1999 words;"),
        ([chr(0x4E00 + i) for i in range(2000)] + sorted({*"".join(CHINESE)}), CHINESE, None),
        ([], RUSSIAN, r"^This encoder hardly reads the texts: \d+% of .*Cyrillic, in which its tokenizer has 0 words;"),
        ([f"{a}{b}" for a in "абвгдежзик" for b in "абвгдежзиклмнопрсту"], RUSSIAN, "has 190 words"),
        ([f"{a}{b}" for a in "абвгдежзик" for b in "абвгдежзиклмнопрстуф"], RUSSIAN, None),
        ([], MIXED, None),
        ([], ["the lost card is blocked"] * 8, None),
        ([], ["12 + 3 = 15"] * 8, "100% of their tokens are unknown;"),
        ([], CHINESE[:7], None),
        ([], [], None),
    ],
)
def test_an_encoder_that_hardly_reads_the_texts_is_known(caplog, words, texts, reason):
    found = why_poorly_read(with_vocabulary(words), texts)
    assert (found is None) == (reason is None), found
    assert reason is None or re.search(reason, found), found
    assert warn_if_poorly_read(with_vocabulary(words), texts) == found
    assert caplog.messages == ([] if found is None else [found])


def test_the_first_two_thousand_texts_show_whether_they_are_read():
    model = with_vocabulary([])
    assert warn_if_poorly_read(model, [*MIXED, *RUSSIAN * 249]) is not None
    assert warn_if_poorly_read(model, [*MIXED * 250, *RUSSIAN * 500]) is None


def test_the_first_letters_of_a_text_show_its_script():
    english, russian = "the lost card is blocked " * 30, "привет мир " * 100
    assert why_poorly_read(with_vocabulary([]), [f"{english}{russian}"] * 8) is None
    assert why_poorly_read(with_vocabulary([]), [f"{english[:200]}{russian}"] * 8) is not None


def test_what_has_no_tokenizer_is_not_asked():
    assert why_poorly_read(SentenceTransformer(modules=[nn.Identity()], device="cpu"), CHINESE) is None
