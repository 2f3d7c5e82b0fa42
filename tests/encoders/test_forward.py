from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.losses import AdaptiveLayerLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Router, StaticEmbedding
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import nn
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaModel

from st_extras.encoders import (
    check_augmentations,
    content_mask,
    embedding_dimension,
    encode,
    encode_pair,
    projection_head,
    unwrap,
    without_dropout,
)
from st_extras.generators import RandomSource
from st_extras.losses import AdCSELoss, ConSERTLoss, PaSeRLoss, SimCSELoss
from st_extras.phrase_decoder import without_prompt
from st_extras.rows import pair_views, views
from tests.conftest import SENTENCES
from tests.helpers import count_rows

Maker = Callable[..., SentenceTransformer]


def test_pair_is_one_pass_and_equals_separate_passes(still_encoder: SentenceTransformer, sentences: list[str]) -> None:
    one = still_encoder.preprocess(sentences)
    two = still_encoder.preprocess([f"{sentence} near a red book" for sentence in sentences])
    assert one["input_ids"].shape != two["input_ids"].shape
    with count_rows(still_encoder) as passes:
        anchors, positives = encode_pair(still_encoder, [one, two], ("dropout", "dropout"))
    assert passes == [2 * len(sentences)]
    torch.testing.assert_close(anchors, still_encoder(dict(one))["sentence_embedding"])
    torch.testing.assert_close(positives, still_encoder(dict(two))["sentence_embedding"])


def test_columns_with_other_prompts_take_a_pass_each(encoder: SentenceTransformer, sentences: list[str]) -> None:
    columns = [encoder.preprocess(sentences, prompt="a "), encoder.preprocess(sentences, prompt="the red ")]
    assert pair_views(columns) is None
    with count_rows(encoder) as passes:
        encode_pair(encoder, columns, ("dropout", "dropout"))
    assert passes == [len(sentences)] * 2


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_prompt_is_no_content(encoder: SentenceTransformer, side: str) -> None:
    encoder.tokenizer.padding_side = side
    features = encoder.preprocess(["a cat", "two birds sing"], prompt="the old ")
    for prompt_length in (3, torch.tensor([3, 3])):
        mask = content_mask(encoder, {**features, "prompt_length": prompt_length})
        rows = zip(features["input_ids"], mask, strict=True)
        assert [encoder.tokenizer.decode(ids[kept]) for ids, kept in rows] == ["a cat", "two birds sing"]


def byte_level_encoder(folder: Path) -> SentenceTransformer:
    """A tiny RoBERTa: a blank belongs to the word behind it."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special, initial_alphabet=alphabet)
    backend.train_from_iterator([f"query: {sentence}" for sentence in SENTENCES] * 9, trainer)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    names = dict(zip(("cls_token", "pad_token", "sep_token", "unk_token", "mask_token"), special, strict=True))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=40, **names)
    tokenizer.save_pretrained(folder)
    config = RobertaConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, pad_token_id=1,
    )  # fmt: skip
    RobertaModel(config).save_pretrained(folder)
    return SentenceTransformer(modules=[Transformer(str(folder), max_seq_length=40), Pooling(16)], device="cpu")


@pytest.mark.parametrize("prompt", ["query: ", "query:", "query: \n"])
@pytest.mark.parametrize("texts", [["dog"], ["dog", "cat sat"], ["dog", "dog"]])
def test_the_blank_behind_a_prompt_takes_no_word_with_it(tmp_path: Path, prompt: str, texts: list[str]) -> None:
    model = byte_level_encoder(tmp_path)
    features = model.preprocess(texts, prompt=prompt)
    mask = content_mask(model, features)
    rows = zip(features["input_ids"], mask, strict=True)
    assert [model.tokenizer.decode(ids[kept]).strip() for ids, kept in rows] == texts
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


def test_the_dimension_in_training_is_not_truncated(encoder: SentenceTransformer, sentences: list[str]) -> None:
    encoder.truncate_dim = 8
    assert (embedding_dimension(encoder), encoder.get_embedding_dimension()) == (16, 8)
    assert torch.isfinite(AdCSELoss(encoder)([encoder.preprocess(sentences)]))


def test_routed_encoders_get_no_views_of_their_tokens(make_encoder: Maker, sentences: list[str]) -> None:
    query, document = make_encoder(), make_encoder(seed=1)
    routes = Router.for_query_document(query_modules=list(query), document_modules=list(document))
    model = SentenceTransformer(modules=[routes], device="cpu")
    for build in (PaSeRLoss, ConSERTLoss, lambda model: SimCSELoss(model, augmentations=("none", "token_cutoff"))):
        with pytest.raises(ValueError, match=r"the model's Router has one for each of \['document', 'query'\]"):
            build(model)
    columns = [{**model.preprocess(sentences, task=task), "task": task} for task in ("query", "document")]
    SimCSELoss(model)(columns).backward()
    assert all(any(p.grad is not None for p in encoder.parameters()) for encoder in (query, document))
    same = Router.for_query_document(query_modules=list(query), document_modules=[query[0], document[1]])
    assert SimCSELoss(SentenceTransformer(modules=[same], device="cpu"), augmentations=("none", "token_cutoff"))


def test_heads_behind_one_encoder_are_no_encoders(encoder: SentenceTransformer, sentences: list[str]) -> None:
    heads = Router({"query": [Dense(16, 16)], "document": [Dense(16, 16)]}, default_route="query")
    model = SentenceTransformer(modules=[*encoder, heads], device="cpu")
    assert torch.isfinite(ConSERTLoss(model)([model.preprocess(sentences)]))


@pytest.mark.parametrize("make", [SimCSELoss, AdCSELoss, ConSERTLoss])
def test_adaptive_layers_are_refused(encoder: SentenceTransformer, sentences: list[str], make: Any) -> None:
    with pytest.raises(ValueError, match="AdaptiveLayerLoss cannot wrap this loss"):
        AdaptiveLayerLoss(encoder, make(encoder))([encoder.preprocess(sentences)], None)


def test_dropout_is_on_or_off_as_a_whole(encoder: SentenceTransformer, sentences: list[str]) -> None:
    encoder.train()
    features = [encoder.preprocess(sentences)]
    a, b = encode_pair(encoder, features, ("dropout", "dropout"))
    assert not torch.allclose(a, b)
    a, b = encode_pair(encoder, features, ("none", "none"))
    torch.testing.assert_close(a, b)
    assert all(module.training for module in encoder.modules())


def test_without_dropout_restores_every_modules_mode(encoder: SentenceTransformer) -> None:
    encoder.train()
    encoder[0].eval()
    before = [module.training for module in encoder.modules()]
    assert len(set(before)) == 2
    with without_dropout(encoder):
        assert not any(module.training for module in encoder.modules())
    assert [module.training for module in encoder.modules()] == before


@pytest.mark.parametrize("wrong", [("dropout",), ("dropout", "cuttoff"), ("dropout", "none"), "dropout"])
def test_augmentations_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="augmentations"):
        check_augmentations(wrong)


def test_content_mask(encoder: SentenceTransformer) -> None:
    features = encoder.preprocess(["a cat ☃ sat [MASK]", "dog"])
    encoded = encode(encoder, features)
    kept = [
        encoder.tokenizer.convert_ids_to_tokens(ids[mask].tolist())
        for ids, mask in zip(encoded.input_ids, encoded.content_mask, strict=True)
    ]
    assert kept == [["a", "cat", "[UNK]", "sat", "[MASK]"], ["dog"]]
    assert encoded.tokens.shape[:2] == encoded.input_ids.shape
    assert encoded.sentence.shape == (2, 16)


def test_flattened_features_are_refused_with_the_setting_to_change(encoder: SentenceTransformer) -> None:
    features = {**encoder.preprocess(["a cat"]), "cu_seq_lens_q": torch.tensor([0, 3])}
    with pytest.raises(ValueError, match="unpad_inputs"):
        views(features)


def test_static_embedding_is_refused(encoder: SentenceTransformer) -> None:
    static = SentenceTransformer(modules=[StaticEmbedding(encoder.tokenizer, embedding_dim=8)], device="cpu")
    features = static.preprocess(["a cat", "the dog"])
    with pytest.raises(ValueError, match="two columns"):
        views(features)
    with pytest.raises(ValueError, match="token embeddings"):
        encode(static, features)


class Wrapper(nn.Module):
    """What DistributedDataParallel ("module") and torch.compile ("_orig_mod") look like from outside."""

    def __init__(self, inner: nn.Module, attribute: str) -> None:
        super().__init__()
        setattr(self, attribute, inner)


def test_unwrap(encoder: SentenceTransformer) -> None:
    assert unwrap(Wrapper(Wrapper(encoder, "_orig_mod"), "module")) is encoder
    with pytest.raises(ValueError, match="Linear"):
        unwrap(nn.Linear(2, 2))


def test_projection_head_is_linear_and_tanh() -> None:
    head = projection_head(4)
    x = torch.randn(3, 4)
    torch.testing.assert_close(head(x), torch.tanh(x @ head[0].weight.T + head[0].bias))


class TestRandomSource:
    def draws(self, source: RandomSource, count: int = 3) -> list[float]:
        return [torch.rand((), generator=source.on(torch.device("cpu"))).item() for _ in range(count)]

    def test_follows_torchs_seed_without_moving_it(self) -> None:
        torch.manual_seed(5)
        state = torch.get_rng_state()
        first = self.draws(RandomSource())
        assert torch.equal(torch.get_rng_state(), state)
        assert self.draws(RandomSource()) == first
        assert self.draws(RandomSource(salt=1)) != first
        torch.manual_seed(6)
        assert self.draws(RandomSource()) != first

    def test_state_continues(self) -> None:
        source = RandomSource(torch.Generator().manual_seed(1))
        self.draws(source)
        twin = RandomSource()
        twin.load_state_dict(source.state_dict())
        assert self.draws(twin) == self.draws(source)

    def test_no_state_moves_without_gradients(self) -> None:
        source = RandomSource(torch.Generator().manual_seed(1))
        with torch.no_grad():
            seen = self.draws(source, 1)
            assert self.draws(source, 1) == seen
        assert self.draws(source, 1) == seen
        assert self.draws(source, 1) != seen

    def test_unused_source_stays_unused_without_gradients(self) -> None:
        source = RandomSource()
        with torch.no_grad():
            self.draws(source)
        assert source.get_extra_state().numel() == 0

    def test_state_of_another_device_starts_a_new_stream(self, caplog: pytest.LogCaptureFixture) -> None:
        source = RandomSource()
        source.set_extra_state(torch.zeros(16, dtype=torch.uint8))  # the size of a CUDA generator's state
        assert len(self.draws(source)) == 3
        assert "another kind of device" in caplog.text

    def test_generator_of_another_device_is_refused(self) -> None:
        with pytest.raises(ValueError, match="generator is on cpu"):
            RandomSource(torch.Generator()).on(torch.device("meta"))

    def test_its_own_generator_follows_the_model_to_another_device(self) -> None:
        own, given = RandomSource(), RandomSource(torch.Generator())
        for source in (own, given):
            source.generator = SimpleNamespace(device=torch.device("cuda"))  # type: ignore[assignment]
        assert own.on(torch.device("cpu")).device.type == "cpu"
        with pytest.raises(ValueError, match="generator is on cuda"):
            given.on(torch.device("cpu"))
