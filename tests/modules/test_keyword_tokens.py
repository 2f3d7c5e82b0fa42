"""Keywords are looked for in the user's text alone: in chat templates, behind prompts, in texts that are cut."""

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device

from st_extras.encoders.loading import with_pooling
from tests.modules.cases import LAMBDA_1, attach, reference

TURNS = (
    "{% for message in messages %}[CLS] {{ message['role'] }} the cat : {{ CONTENT }} [SEP] {% endfor %}"
    "{% if add_generation_prompt %}a dog : {% endif %} man ."
)
TEXTS = ["a cat sat on the mat", "  the dog ran ", "on the in a", "a"]


@pytest.fixture
def make_chat(make_encoder, tmp_path):
    """An encoder whose texts go through a template that itself holds the words that are keywords in a text."""

    def build(content: str = "", side: str = "right") -> SentenceTransformer:
        model = make_encoder(dropout=0.0, max_seq_length=40)
        model.tokenizer.chat_template = TURNS.replace("CONTENT", f"message['content'] {content}")
        model.transformers_model.save_pretrained(tmp_path)
        model.tokenizer.save_pretrained(tmp_path)
        model = with_pooling(SentenceTransformer(str(tmp_path)), "mean")
        assert "message" in model[0].modality_config
        model.max_seq_length, model.tokenizer.padding_side = 40, side
        return model

    return build


def hidden(attached, texts, prompt=None):
    """The tokens that are flagged as keywords, row by row."""
    features = attached.preprocess(texts, prompt=prompt)
    return [
        [token for token, flag in zip(attached.tokenizer.convert_ids_to_tokens(ids), flags, strict=True) if flag]
        for ids, flags in zip(features["input_ids"], features["keyword_tokens"], strict=True)
    ]


def test_exact_redundancy_masks_the_text_and_not_its_template(make_chat):
    model, prompt = make_chat("| trim", "left"), "the cat: "
    attached = attach(model, lambda_2=0.0, corpus=None)
    expected = reference(model, TEXTS, lambda_2=0.0, corpus=TEXTS, prompt=prompt)
    # one by one: with padding on the left, the positions of a BERT would move
    assert np.abs(attached.encode(TEXTS, prompt=prompt, batch_size=1) - expected).max() < 1e-5


def test_a_template_is_refused_for_pooled_redundancy(make_chat):
    with pytest.raises(ValueError, match=r'^redundancy must be "encoder" for a model with a prompt or chat template'):
        attach(make_chat(), redundancy="pooled")


@pytest.mark.parametrize(("prompt", "side"), [(None, "right"), ("the cat: ", "left")])
def test_pooled_redundancy_finds_the_keywords_after_a_prompt(make_encoder, prompt, side):
    model = make_encoder(dropout=0.0, max_seq_length=40)
    model.tokenizer.padding_side = side
    attached = attach(model, redundancy="pooled", lambda_2=0.0, corpus=None)
    assert hidden(attached, TEXTS, prompt) == [["cat", "sat", "mat"], ["dog", "ran"], [], []]
    features = batch_to_device(model.preprocess(TEXTS, prompt=prompt), model.device)
    flags = attached.preprocess(TEXTS, prompt=prompt)["keyword_tokens"].numpy()
    tokens = model[0](dict(features))["token_embeddings"].detach().cpu().double().numpy()
    shown = features["attention_mask"].bool().cpu().numpy()
    plain, rest = (
        np.array([row[kept].mean(axis=0) for row, kept in zip(tokens, some, strict=True)])
        for some in (shown, shown & ~flags)
    )
    assert np.abs(attached.encode(TEXTS, prompt=prompt) - (plain - LAMBDA_1 * rest)).max() < 1e-5
