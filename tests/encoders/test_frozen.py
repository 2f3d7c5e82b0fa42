from __future__ import annotations

import copy
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, Router
from tokenizers import processors
from transformers import BertTokenizer, PreTrainedTokenizerFast, Qwen2Config, Qwen2Model

from st_extras.encoders.embedding_table import EmbeddingTable
from st_extras.encoders.frozen import FrozenEncoder
from st_extras.losses import DCLRLoss
from tests.conftest import build_byte_level_encoder, vocabulary
from tests.encoders.test_templates import ONE_TURN, QUOTED, TURNS, with_template

Maker = Callable[..., SentenceTransformer]


def expected(model: SentenceTransformer, sentences: list[str]) -> torch.Tensor:
    return torch.nn.functional.normalize(model.encode(sentences, convert_to_tensor=True), dim=-1)


def test_frozen_encoder_has_no_dropout_no_gradients_and_is_hidden(make_encoder: Maker, sentences: list[str]) -> None:
    model, guide = make_encoder(), make_encoder(seed=1, hidden_size=8)
    guide.train()
    frozen = FrozenEncoder(guide, model)
    features = model.preprocess(sentences)
    keys = set(features)
    got = frozen(features)
    torch.testing.assert_close(got, guide.encode(sentences, convert_to_tensor=True))
    assert not got.requires_grad
    assert set(features) == keys
    assert not list(frozen.parameters())
    assert not frozen.state_dict()


def test_frozen_encoder_from_a_path(make_encoder: Maker, sentences: list[str], tmp_path: Path) -> None:
    model, guide = make_encoder(), make_encoder(seed=1)
    guide.save(str(tmp_path / "guide"))
    frozen = FrozenEncoder(tmp_path / "guide", model)
    got = frozen(model.preprocess(sentences))
    torch.testing.assert_close(got, guide.encode(sentences, convert_to_tensor=True))


def test_another_tokenizer_gets_the_decoded_texts(make_encoder: Maker, sentences: list[str]) -> None:
    model, guide = make_encoder(), make_encoder(seed=1)
    reordered = [*vocabulary()[:5], *reversed(vocabulary()[5:])]
    guide[0].processor = BertTokenizer(vocab={token: i for i, token in enumerate(reordered)}, model_max_length=16)
    frozen = FrozenEncoder(guide, model)
    assert frozen.must_retokenize
    features = model.preprocess(sentences)
    torch.testing.assert_close(frozen(features), guide.encode(sentences, convert_to_tensor=True))
    assert not torch.allclose(guide(dict(features))["sentence_embedding"], frozen(features))


def test_a_shorter_guide_retokenizes(make_encoder: Maker) -> None:
    model, guide = make_encoder(max_seq_length=16), make_encoder(max_seq_length=5)
    assert FrozenEncoder(guide, model).must_retokenize
    assert not FrozenEncoder(make_encoder(max_seq_length=16), model).must_retokenize
    unlimited = make_encoder(max_seq_length=16)
    unlimited.max_seq_length = int(1e30)  # as transformers writes it
    assert FrozenEncoder(make_encoder(max_seq_length=5), unlimited).must_retokenize
    assert not FrozenEncoder(unlimited, model).must_retokenize


def test_frozen_encoder_follows_and_copies(make_encoder: Maker) -> None:
    model, guide = make_encoder(), make_encoder()
    frozen = FrozenEncoder(guide, model)
    frozen.to(torch.float64)
    assert guide.dtype == torch.float64
    assert copy.deepcopy(frozen).encoder is not guide
    frozen.to("meta")
    with pytest.raises(ValueError, match=r"on meta and the batch on cpu"):
        frozen(model.preprocess(["a cat"]))


def test_the_trained_model_cannot_be_its_own_frozen_encoder(encoder: SentenceTransformer) -> None:
    with pytest.raises(ValueError, match="self"):
        FrozenEncoder(encoder, encoder)


def test_table_equals_the_encoder(make_encoder: Maker, sentences: list[str], tmp_path: Path) -> None:
    model, guide = make_encoder(), make_encoder(seed=1)
    long = " ".join(sentences)  # longer than max_seq_length
    corpus = [*sentences, long, sentences[0], "", "☃"]
    table = EmbeddingTable.compute(model, guide, corpus, batch_size=3, show_progress_bar=False)
    assert len(table) == len(corpus) - 1
    batch = [sentences[3], long, "☃", "", sentences[0]]
    torch.testing.assert_close(table(model.preprocess(batch)), expected(guide, batch))
    table.save(tmp_path / "table.safetensors")
    again = EmbeddingTable.load(tmp_path / "table.safetensors")
    assert torch.equal(again(model.preprocess(batch)), table(model.preprocess(batch)))


def test_table_with_a_prompt(make_encoder: Maker, sentences: list[str]) -> None:
    model, guide = make_encoder(), make_encoder(seed=1)
    table = EmbeddingTable.compute(model, guide, sentences, prompt="the red ", show_progress_bar=False)
    torch.testing.assert_close(table(model.preprocess(sentences, prompt="the red ")), expected(guide, sentences))
    with pytest.raises(ValueError, match="no embedding for"):
        table(model.preprocess(sentences))


def test_missing_sentence_is_shown(make_encoder: Maker, sentences: list[str]) -> None:
    model = make_encoder()
    table = EmbeddingTable.compute(model, make_encoder(), sentences, show_progress_bar=False)
    with pytest.raises(ValueError, match="a red cat"):
        table(model.preprocess(["a red cat"]), model.tokenizer.decode)


def test_bad_tables(tmp_path: Path, encoder: SentenceTransformer) -> None:
    with pytest.raises(ValueError, match="sentences must hold at least one"):
        EmbeddingTable.compute(encoder, encoder, [])
    with pytest.raises(ValueError, match="got 2 and 1"):
        EmbeddingTable([[1], [2]], torch.ones(1, 3))
    with pytest.raises(ValueError, match="keys must be a Sequence, got 29"):
        EmbeddingTable(29, torch.ones(1, 3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="NaN"):
        EmbeddingTable([[1]], torch.full((1, 3), torch.nan))
    with pytest.raises(ValueError, match="path must be an existing file"):
        EmbeddingTable.load(tmp_path / "none.safetensors")
    with pytest.raises(ValueError, match="path must be in an existing folder"):
        EmbeddingTable([[1]], torch.ones(1, 3)).save(tmp_path / "none" / "table.safetensors")
    for embeddings in (torch.ones(3), torch.ones(1, 3).long(), [[1.0]], torch.ones(1, 2, 3)):
        with pytest.raises(ValueError, match=r"^embeddings must be "):
            EmbeddingTable([[1]], embeddings)  # type: ignore[arg-type]
    for keys in (["ab"], [[1.5]], [5], [None]):
        with pytest.raises(ValueError, match=r"^keys must be the token ids of each sentence, got "):
            EmbeddingTable(keys, torch.ones(1, 3))  # type: ignore[arg-type]
    for batch_size in (0, 1.5, "8"):
        with pytest.raises(ValueError, match=r"^batch_size must be a whole number >= 1, got "):
            EmbeddingTable.compute(encoder, encoder, ["a"], batch_size=batch_size)  # type: ignore[arg-type]


@pytest.mark.parametrize("sentences", ["a cat", None, 5, [5], {"train": ["a cat"]}])
def test_a_table_is_of_sentences(encoder: SentenceTransformer, sentences: Any) -> None:
    with pytest.raises(ValueError, match=r"^sentences"):
        EmbeddingTable.compute(encoder, encoder, sentences)


def test_a_table_of_a_data_set(make_encoder: Maker, sentences: list[str]) -> None:
    model, guide = make_encoder(), make_encoder(seed=1)
    data = Dataset.from_dict({"number": list(range(len(sentences))), "sentence": sentences})
    table = EmbeddingTable.compute(model, guide, data, show_progress_bar=False)
    torch.testing.assert_close(table(model.preprocess(sentences)), expected(guide, sentences))


def test_equal_keys_keep_the_last_embedding_when_saved(tmp_path: Path) -> None:
    given = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    table = EmbeddingTable([[1, 2], [3], [1, 2], [4]], given)
    table.save(tmp_path / "table.safetensors")
    again = EmbeddingTable.load(tmp_path / "table.safetensors")
    assert (len(again), len(again.embeddings)) == (3, 3)
    batch = {
        "input_ids": torch.tensor([[4, 0], [1, 2], [3, 0]]),
        "attention_mask": torch.tensor([[1, 0], [1, 1], [1, 0]]),
    }
    torch.testing.assert_close(again(batch), torch.nn.functional.normalize(given[[3, 2, 1]], dim=-1))
    assert torch.equal(again(batch), table(batch))


FAULTS: dict[str, tuple[Callable[[dict[str, torch.Tensor]], object], str]] = {
    "no ids": (lambda stored: stored.pop("ids"), "must hold embeddings, ids, lengths, and holds embeddings, lengths"),
    "more": (lambda stored: stored.update(more=torch.ones(1)), "and holds embeddings, ids, lengths, more"),
    "whole": (lambda stored: stored.update(embeddings=torch.ones(2, 3).long()), "embeddings must be .* torch.int64"),
    "flat": (lambda stored: stored.update(embeddings=torch.ones(2)), r"embeddings must be \(N, D\)"),
    "rough ids": (lambda stored: stored.update(ids=torch.ones(3)), "ids must be a list of int64, and is torch.float32"),
    "lengths": (lambda stored: stored.update(lengths=torch.tensor([[2, 1]])), r"lengths must be .* of shape \(1, 2\)"),
    "fewer": (lambda stored: stored.update(lengths=torch.tensor([3])), "an embedding for each length"),
    "none": (
        lambda stored: stored.update(lengths=stored["lengths"][:0], embeddings=torch.ones(0, 3)),
        "for each length",
    ),
    "no width": (lambda stored: stored.update(embeddings=torch.ones(2, 0)), "for each length"),
    "sum": (lambda stored: stored["lengths"].add_(1), "add up to the number of ids, 3"),
    "negative": (lambda stored: stored["lengths"].copy_(torch.tensor([-1, 4])), "lengths must be >= 0"),
    "negative id": (lambda stored: stored["ids"].sub_(2), "ids must be >= 0, and the lowest is -1"),
    "NaN": (lambda stored: stored["embeddings"][0].fill_(torch.nan), "finite and of norm 1"),
    "infinity": (lambda stored: stored["embeddings"][0].fill_(torch.inf), "finite and of norm 1"),
    "norm": (lambda stored: stored["embeddings"].mul_(1.1), "finite and of norm 1"),
    "twice": (lambda stored: stored.update(ids=torch.tensor([1, 1]), lengths=torch.tensor([1, 1])), "a sentence twice"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_file_is_refused_by_name(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "table.safetensors"
    EmbeddingTable([[1, 2], [3]], torch.eye(3)[:2]).save(path)
    with safe_open(str(path), framework="pt") as file:
        metadata = file.metadata()
    stored = load_file(str(path))
    change, message = FAULTS[fault]
    change(stored)
    save_file(stored, str(path), metadata)
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))} is not an embedding table .*{message}.*\.$"):
        EmbeddingTable.load(path)


def test_another_version_format_or_half_a_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "table.safetensors"
    table = EmbeddingTable([[1, 2], [3]], torch.eye(3)[:2])
    table.save(path)
    table.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["table.safetensors"]
    stored = load_file(str(path))
    for metadata in (None, {"format": "st-extras embedding table", "version": "2"}, {"version": "1"}):
        save_file(stored, str(path), metadata)
        with pytest.raises(ValueError, match=rf"^{re.escape(str(path))} is not .*must say .*version 1, and says .*\.$"):
            EmbeddingTable.load(path)
    table.save(path)
    whole = path.read_bytes()
    for content in (b"", whole[:5], whole[:-1], b"x" * len(whole), whole + b"x"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}: not a complete safetensors file .*\.$"):
            EmbeddingTable.load(path)


def test_a_table_of_another_vocabulary_is_refused(make_encoder: Maker, sentences: list[str], tmp_path: Path) -> None:
    model, other = make_encoder(), make_encoder(seed=1)
    reordered = [*vocabulary()[:5], *reversed(vocabulary()[5:])]
    other[0].processor = BertTokenizer(vocab={token: i for i, token in enumerate(reordered)}, model_max_length=16)
    table = EmbeddingTable.compute(model, make_encoder(seed=2), sentences, show_progress_bar=False)
    table.save(tmp_path / "table.safetensors")
    for one in (table, EmbeddingTable.load(tmp_path / "table.safetensors")):
        assert DCLRLoss(model, complementary_table=one)([model.preprocess(sentences)]).isfinite()
        with pytest.raises(ValueError, match="complementary_table must be computed with the trained model's tokenizer"):
            DCLRLoss(other, complementary_table=one)
    DCLRLoss(other, complementary_table=EmbeddingTable([[1]], torch.ones(1, 3)))  # made by hand: not known


def expected_alone(guide: SentenceTransformer, texts: list[str]) -> torch.Tensor:
    return guide.encode(texts, convert_to_tensor=True)


def with_prompt(model: SentenceTransformer, prompt: str) -> SentenceTransformer:
    model.prompts = {"own": prompt}
    model.default_prompt_name = "own"
    return model


def causal_guide(like: SentenceTransformer, *, chat: bool = False) -> SentenceTransformer:
    """A tiny decoder of the same vocabulary that pads on the left and pools its last token."""
    torch.manual_seed(5)
    config = Qwen2Config(
        vocab_size=len(vocabulary()), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=2, eos_token_id=3,
    )  # fmt: skip
    folder = Path(tempfile.mkdtemp())
    try:
        Qwen2Model(config).save_pretrained(folder)
        names = {name: getattr(like.tokenizer, name) for name in ("cls_token", "pad_token", "sep_token", "unk_token")}
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=like.tokenizer.backend_tokenizer, **names)
        tokenizer.padding_side = "left"
        if chat:
            tokenizer.chat_template = (
                "{% for message in messages %}{{ message['role'] }} the {{ message['content'] }}{% endfor %}"
                "{% if add_generation_prompt %} dog{% endif %}"
            )
        tokenizer.save_pretrained(folder)
        transformer = Transformer(str(folder), max_seq_length=32)
        transformer.processor = tokenizer  # not the one that transformers prefers for this architecture
        transformer.max_seq_length = 32
    finally:
        shutil.rmtree(folder)
    return SentenceTransformer(modules=[transformer, Pooling(16, pooling_mode="lasttoken")], device="cpu")


def without_special_tokens(guide: SentenceTransformer) -> SentenceTransformer:
    backend = guide.tokenizer.backend_tokenizer
    backend.post_processor = processors.TemplateProcessing(single="$A [SEP]", special_tokens=[("[SEP]", 3)])
    return guide


def routed(guide: SentenceTransformer) -> SentenceTransformer:
    routes = {"query": list(guide), "document": list(guide)}
    return SentenceTransformer(modules=[Router(routes, default_route="document")], device="cpu")


def cut(guide: SentenceTransformer) -> SentenceTransformer:
    guide.truncate_dim = 5
    return guide


GUIDES: dict[str, Callable[[Maker], SentenceTransformer]] = {
    "plain": lambda make: make(seed=1),
    "own prompt": lambda make: with_prompt(make(seed=1), "the old "),
    "left padding": lambda make: causal_guide(make()),
    "left padding, own prompt": lambda make: with_prompt(causal_guide(make()), "the old "),
    "chat template": lambda make: causal_guide(make(), chat=True),
    "chat template, own prompt": lambda make: with_prompt(causal_guide(make(), chat=True), "old "),
    "shorter": lambda make: make(seed=1, max_seq_length=5),
    "longer": lambda make: make(seed=1, max_seq_length=40),
    "other special tokens": lambda make: without_special_tokens(make(seed=1)),
    "router": lambda make: routed(make(seed=1)),
    "truncated dimension": lambda make: cut(make(seed=1)),
}


@pytest.mark.parametrize("prompt", [None, "the red "])
@pytest.mark.parametrize("guide_name", GUIDES)
def test_a_guide_sees_what_it_would_see_alone(
    make_encoder: Maker, sentences: list[str], guide_name: str, prompt: str | None
) -> None:
    model, guide = make_encoder(), GUIDES[guide_name](make_encoder)
    texts = [*sentences, "A Cat, in the rain!", "☃ the cat", "cat"]
    features = model.preprocess(texts, prompt=prompt)
    assert features["input_ids"].size(1) < 16  # nothing is cut by the trained model
    alone = expected_alone(guide, texts)
    torch.testing.assert_close(FrozenEncoder(guide, model)(features), alone, atol=1e-5, rtol=0)
    table = EmbeddingTable.compute(model, guide, texts, prompt=prompt, batch_size=4, show_progress_bar=False)
    alone = torch.nn.functional.normalize(alone, dim=-1)
    torch.testing.assert_close(table(features), alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("prompt", [None, "the red "])
@pytest.mark.parametrize("guide_name", GUIDES)
def test_guide_and_table_agree_on_texts_that_the_trained_model_cuts(
    make_encoder: Maker, sentences: list[str], guide_name: str, prompt: str | None
) -> None:
    model, guide = make_encoder(max_seq_length=8), GUIDES[guide_name](make_encoder)
    texts = [*sentences, "a cat sings, " * 9, "☃ playing play" * 5]
    features = model.preprocess(texts, prompt=prompt)
    table = EmbeddingTable.compute(model, guide, texts, prompt=prompt, batch_size=4, show_progress_bar=False)
    alive = torch.nn.functional.normalize(FrozenEncoder(guide, model)(features), dim=-1)
    torch.testing.assert_close(table(features), alive, atol=1e-5, rtol=0)


def test_prompts_of_byte_level_tokenizers_leave_the_texts_whole(tmp_path: Path, sentences: list[str]) -> None:
    model = build_byte_level_encoder(tmp_path)
    guide = copy.deepcopy(model)
    torch.nn.init.normal_(guide[0].auto_model.embeddings.word_embeddings.weight)
    for prompt, own in ((None, None), ("query: ", None), (None, "query: "), ("query: ", "the"), ("query:", None)):
        if own:
            with_prompt(guide, own)
        features = model.preprocess(sentences, prompt=prompt)
        alone = expected_alone(guide, sentences)
        torch.testing.assert_close(FrozenEncoder(guide, model)(features), alone, atol=1e-5, rtol=0)


def test_two_columns_with_prompts_of_their_own(make_encoder: Maker, sentences: list[str]) -> None:
    model, guide = make_encoder(), with_prompt(make_encoder(seed=1), "the old ")
    both = [model.preprocess(sentences, prompt=prompt) for prompt in ("a ", "the red ")]
    frozen = FrozenEncoder(guide, model)
    for features in both:
        torch.testing.assert_close(frozen(features), expected_alone(guide, sentences), atol=1e-5, rtol=0)


def flattened(features: dict[str, Any]) -> dict[str, Any]:
    """What preprocess gives where ``unpad_inputs`` is on: all rows in one, and where each begins."""
    kept = features["attention_mask"].bool()
    starts = torch.nn.functional.pad(kept.sum(dim=1).cumsum(dim=0), (1, 0)).int()
    return {"input_ids": features["input_ids"][kept][None], "cu_seq_lens_q": starts, "cu_seq_lens_k": starts} | {
        key: features[key] for key in ("prompt_length",) if key in features
    }


@pytest.mark.parametrize("prompt", [None, "the red "])
def test_flattened_features_are_the_same_sentences(
    make_encoder: Maker, sentences: list[str], prompt: str | None
) -> None:
    model, guide = make_encoder(), make_encoder(seed=1, hidden_size=8)
    features = flattened(model.preprocess(sentences, prompt=prompt))
    table = EmbeddingTable.compute(model, guide, sentences, prompt=prompt, show_progress_bar=False)
    torch.testing.assert_close(table(features), expected(guide, sentences))
    whole = model.preprocess
    model.preprocess = lambda *a, **k: flattened(whole(*a, **k))  # type: ignore[method-assign]
    table = EmbeddingTable.compute(model, guide, sentences, prompt=prompt, show_progress_bar=False)
    torch.testing.assert_close(table(features), expected(guide, sentences))
    torch.testing.assert_close(FrozenEncoder(guide, model)(features), expected_alone(guide, sentences))


def test_a_trained_model_with_a_chat_template(make_encoder: Maker, sentences: list[str]) -> None:
    model = causal_guide(make_encoder(), chat=True)
    guide, other = copy.deepcopy(model), make_encoder(seed=1)
    own_prompt = with_prompt(copy.deepcopy(model), "the old ")
    for chosen in (guide, other, own_prompt):
        frozen = FrozenEncoder(chosen, model)
        assert frozen.must_retokenize == (chosen is not guide)
        for prompt in (None, "old "):
            features = model.preprocess(sentences, prompt=prompt)
            assert features["modality"] == "message"
            torch.testing.assert_close(frozen(features), expected_alone(chosen, sentences))
            table = EmbeddingTable.compute(model, chosen, sentences, prompt=prompt, show_progress_bar=False)
            torch.testing.assert_close(table(features), expected(chosen, sentences))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("template", [TURNS, QUOTED, ONE_TURN])
def test_a_byte_level_model_with_a_chat_template(
    make_encoder: Maker, tmp_path: Path, sentences: list[str], template: str, side: str
) -> None:
    model, other = with_template(tmp_path, template, side), make_encoder(seed=1)
    model.max_seq_length = other.max_seq_length = 64
    frozen = FrozenEncoder(other, model)
    for prompt in (None, "find the birds near a river"):
        features = model.preprocess(sentences, prompt=prompt)
        torch.testing.assert_close(frozen(features), expected_alone(other, sentences), atol=1e-5, rtol=0)


def test_guide_and_table_agree_on_templated_texts_that_are_cut(make_encoder: Maker, sentences: list[str]) -> None:
    model = causal_guide(make_encoder(), chat=True)
    model.max_seq_length = 8
    for guide in (copy.deepcopy(model), make_encoder(seed=1)):
        features = model.preprocess([*sentences, "a cat sings, " * 9])
        texts = [*sentences, "a cat sings, " * 9]
        table = EmbeddingTable.compute(model, guide, texts, batch_size=4, show_progress_bar=False)
        alive = torch.nn.functional.normalize(FrozenEncoder(guide, model)(features), dim=-1)
        torch.testing.assert_close(table(features), alive, atol=1e-5, rtol=0)


def test_a_guide_of_the_same_kind_gets_the_ids_as_they_are(make_encoder: Maker, sentences: list[str]) -> None:
    model, guide = make_encoder(), make_encoder(seed=1)
    frozen = FrozenEncoder(guide, model)
    assert not frozen.must_retokenize
    features = model.preprocess(sentences)
    direct = guide.eval()(dict(features))["sentence_embedding"]
    guide.preprocess = None  # type: ignore[assignment, method-assign]
    assert torch.equal(frozen(features), direct)


def test_a_router_without_a_default_route_is_refused(make_encoder: Maker) -> None:
    guide = make_encoder(seed=1)
    router = Router({"query": list(guide), "document": list(guide)}, allow_empty_key=False)
    with pytest.raises(ValueError, match=r"^complementary_model must encode sentences without a task.*\.$"):
        FrozenEncoder(SentenceTransformer(modules=[router], device="cpu"), make_encoder())
