import copy
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, Router
from tokenizers import processors
from transformers import BertTokenizer, PreTrainedTokenizerFast, Qwen2Config, Qwen2Model

from st_extras.encoders.embedding_table import EmbeddingTable
from st_extras.encoders.frozen import FrozenEncoder
from tests.architectures.encoders import build
from tests.encoders.test_templates import TURNS, with_template
from tests.fixtures import vocabulary
from tests.helpers import Recorder

Maker = Callable[..., SentenceTransformer]


def test_frozen_encoder_has_no_dropout_no_gradients_and_is_hidden(make_encoder, sentences):
    model, guide = make_encoder(), make_encoder(seed=1, hidden_size=8)
    alone = guide.encode(sentences, convert_to_tensor=True)
    guide.train()
    frozen = FrozenEncoder(guide, model)
    guide.preprocess = None  # type: ignore[assignment, method-assign]  # it gets the ids as they are
    got = frozen(model.preprocess(sentences))
    torch.testing.assert_close(got, alone)
    assert not got.requires_grad
    assert not list(frozen.parameters())
    assert not frozen.state_dict()
    for wrong, message in (
        (model, 'another encoder than the trained one.*"self"'),
        (7, "an encoder or the path of one"),
    ):
        with pytest.raises(ValueError, match=f"^complementary_model must be {message}"):
            FrozenEncoder(wrong, model)


def test_a_guide_is_loaded_to_the_device_of_the_trained_model(encoder, make_encoder, tmp_path, monkeypatch):
    make_encoder(seed=1).save(str(tmp_path))
    recorder = Recorder(monkeypatch)
    recorder.on("st_extras.encoders.frozen:load_encoder")
    assert FrozenEncoder(tmp_path, encoder).name == str(tmp_path)
    loaded = recorder.one("load_encoder")
    assert (loaded["path"], loaded["device"]) == (tmp_path, str(encoder.device))


def test_a_guide_moves_to_the_features(make_encoder, sentences, monkeypatch):
    model, guide = make_encoder(), make_encoder(seed=1).to("meta")
    moved = []

    def move(device: torch.device) -> None:
        moved.append(device)
        for tensor in [*guide.to_empty(device=device).parameters(), *guide.buffers()]:
            tensor.data.zero_()

    monkeypatch.setattr(guide, "to", move)
    frozen = FrozenEncoder(guide, model)
    frozen(model.preprocess(sentences))
    frozen(model.preprocess(sentences))
    assert moved == [torch.device("cpu")]


def with_other_ids(model: SentenceTransformer) -> SentenceTransformer:
    """Turn the vocabulary round."""
    tokens = [*vocabulary()[:5], *reversed(vocabulary()[5:])]
    model[0].processor = BertTokenizer(vocab={token: i for i, token in enumerate(tokens)}, model_max_length=16)
    return model


def test_another_tokenizer_gets_the_decoded_texts(make_encoder, sentences):
    model, guide = make_encoder(), with_other_ids(make_encoder(seed=1))
    features = model.preprocess(sentences)
    alone = guide.encode(sentences, convert_to_tensor=True)
    torch.testing.assert_close(FrozenEncoder(guide, model)(features), alone)
    assert not torch.allclose(guide(dict(features))["sentence_embedding"], alone)


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
    "left padding, own prompt": lambda make: with_prompt(causal_guide(make()), "the old "),
    "chat template": lambda make: causal_guide(make(), chat=True),
    "shorter": lambda make: make(seed=1, max_seq_length=5),
    "other special tokens": lambda make: without_special_tokens(make(seed=1)),
    "router": lambda make: routed(make(seed=1)),
    "truncated dimension": lambda make: cut(make(seed=1)),
}


@pytest.mark.parametrize("prompt", [None, "the red "])
@pytest.mark.parametrize("guide_name", GUIDES)
def test_a_guide_sees_what_it_would_see_alone(make_encoder, sentences, guide_name, prompt):
    model, guide = make_encoder(), GUIDES[guide_name](make_encoder)
    texts = [*sentences, "A Cat, in the rain!", "cat"]
    features = model.preprocess(texts, prompt=prompt)
    assert features["input_ids"].size(1) < 16  # nothing is cut by the trained model
    alone = guide.encode(texts, convert_to_tensor=True)
    torch.testing.assert_close(FrozenEncoder(guide, model)(features), alone, atol=1e-5, rtol=0)
    table = EmbeddingTable.compute(model, guide, texts, prompt=prompt, batch_size=4, show_progress_bar=False)
    alone = torch.nn.functional.normalize(alone, dim=-1)
    torch.testing.assert_close(table(features), alone, atol=1e-5, rtol=0)
    # what the trained model cuts, a guide in training and its table cut alike
    model.max_seq_length = 8
    texts = [*sentences[:3], "a cat sings, " * 9, "playing play " * 5]
    features = model.preprocess(texts, prompt=prompt)
    table = EmbeddingTable.compute(model, guide, texts, prompt=prompt, batch_size=4, show_progress_bar=False)
    alive = torch.nn.functional.normalize(FrozenEncoder(guide, model)(features), dim=-1)
    torch.testing.assert_close(table(features), alive, atol=1e-5, rtol=0)


def test_prompts_of_byte_level_tokenizers_leave_the_texts_whole(tmp_path, sentences):
    model = build("RoBERTa", tmp_path)
    guide = copy.deepcopy(model)
    torch.nn.init.normal_(guide[0].auto_model.embeddings.word_embeddings.weight)
    for prompt, own in ((None, None), ("query: ", None), (None, "query: "), ("query: ", "the"), ("query:", None)):
        if own:
            with_prompt(guide, own)
        features = model.preprocess(sentences, prompt=prompt)
        alone = guide.encode(sentences, convert_to_tensor=True)
        torch.testing.assert_close(FrozenEncoder(guide, model)(features), alone, atol=1e-5, rtol=0)


def test_flattened_features_are_the_same_sentences(make_encoder, sentences, monkeypatch):
    model, guide = make_encoder(), make_encoder(seed=1, hidden_size=8)
    alone, padded = guide.encode(sentences, convert_to_tensor=True), model.preprocess
    monkeypatch.setattr(model, "preprocess", lambda *texts, **options: flattened(padded(*texts, **options)))
    for prompt in (None, "the red "):
        features = model.preprocess(sentences, prompt=prompt)
        torch.testing.assert_close(FrozenEncoder(guide, model)(features), alone)
        table = EmbeddingTable.compute(model, guide, sentences, prompt=prompt, show_progress_bar=False)
        torch.testing.assert_close(table(features), torch.nn.functional.normalize(alone, dim=-1))


def flattened(features: dict[str, Any]) -> dict[str, Any]:
    """What preprocess gives where ``unpad_inputs`` is on: all rows in one, and where each begins."""
    kept = features["attention_mask"].bool()
    starts = torch.nn.functional.pad(kept.sum(dim=1).cumsum(dim=0), (1, 0)).int()
    return {"input_ids": features["input_ids"][kept][None], "cu_seq_lens_q": starts, "cu_seq_lens_k": starts} | {
        key: features[key] for key in ("prompt_length",) if key in features
    }


def test_a_trained_model_with_a_chat_template(make_encoder, sentences):
    model = causal_guide(make_encoder(), chat=True)
    guides = copy.deepcopy(model), make_encoder(seed=1), with_prompt(copy.deepcopy(model), "the old ")
    for guide in guides:
        features = model.preprocess(sentences)
        assert features["modality"] == "message"
        alone = guide.encode(sentences, convert_to_tensor=True)
        torch.testing.assert_close(FrozenEncoder(guide, model)(features), alone)


def test_a_byte_level_model_with_a_chat_template(make_encoder, tmp_path, sentences):
    model, other = with_template(tmp_path, TURNS, "left"), make_encoder(seed=1)
    model.max_seq_length = other.max_seq_length = 64
    features = model.preprocess(sentences)
    alone = other.encode(sentences, convert_to_tensor=True)
    torch.testing.assert_close(FrozenEncoder(other, model)(features), alone, atol=1e-5, rtol=0)
