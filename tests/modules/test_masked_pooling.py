"""Pooled redundancy against loops over the tokens that are left, in every mode of Pooling and their concatenations."""

import itertools
import math

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, WordWeights

from st_extras.modules.masked_pooling import MaskedCopyPooling
from tests.modules.cases import KEYWORDS, LAMBDA_1, attach

MODES = ("cls", "lasttoken", "mean", "max", "mean_sqrt_len_tokens", "weightedmean")
TEXTS = ["a cat sat on the mat", "dog", "on the in a", "the old man read a red book"]  # one token a word
PROMPT = "the cat: "  # its keyword is kept


class FirstToken(Pooling):
    """A user's own pooling."""


CASES = [
    *itertools.product(MODES, ["left"], [None], [True]),
    *itertools.product([MODES], ["right", "left"], [PROMPT], [True, False]),
]


def pooled_by_hand(places, vectors, mode):
    """Pool the token embeddings that are kept, and stand at these places of their text, counted from 1."""
    if mode == "max":
        return vectors.max(axis=0)
    if mode == "weightedmean":
        return sum(place * vector for place, vector in zip(places, vectors, strict=True)) / sum(places)
    return sum(vectors) / (math.sqrt(len(vectors)) if mode == "mean_sqrt_len_tokens" else len(vectors))


def redundant_by_hand(model, texts, modes, prompt, include_prompt):
    features, result = model.preprocess(texts, prompt=prompt), []
    with torch.no_grad():
        embeddings = model[0](dict(features))["token_embeddings"].double().numpy()
    in_prompt = 1 + len(model.tokenizer.tokenize(prompt)) if prompt else 0  # [CLS] included
    for ids, mask, vectors in zip(features["input_ids"], features["attention_mask"].bool(), embeddings, strict=True):
        tokens = model.tokenizer.convert_ids_to_tokens(ids[mask])
        places = np.arange(1, len(tokens) + 1)
        counted = (places > in_prompt) | include_prompt
        kept = counted & ((places <= in_prompt) | ~np.isin(tokens, KEYWORDS))
        kept = kept if kept.any() else counted
        result.append([pooled_by_hand(places[kept], vectors[mask.numpy()][kept], mode) for mode in modes])
    return np.array(result).reshape(len(texts), -1)


@pytest.mark.parametrize(("pooling", "side", "prompt", "include_prompt"), CASES)
def test_every_pooling_against_a_loop(make_encoder, pooling, side, prompt, include_prompt):
    model = make_encoder(pooling=pooling)
    model.tokenizer.padding_side = side
    model.set_pooling_include_prompt(include_prompt)
    modes = (pooling,) if isinstance(pooling, str) else pooling
    attached = attach(model, redundancy="pooled", lambda_1=1.0, lambda_2=0.0, corpus=None)
    expected = redundant_by_hand(model, TEXTS, modes, prompt, include_prompt)
    plain = model.encode(TEXTS, prompt=prompt)
    refined = attached.encode(TEXTS, prompt=prompt)
    assert np.abs(plain - refined - expected).max() < 1e-5
    assert np.abs(refined.reshape(len(TEXTS), len(modes), -1)[0]).max(axis=-1).min() > 1e-3, "no mode gives zeros"


@pytest.mark.parametrize(
    ("pooling", "prompt"),
    [(Pooling(16, ("mean", "max"), include_prompt=False), PROMPT), (FirstToken(16, "mean"), None)],
)
def test_a_text_of_keywords_alone_keeps_its_tokens(make_encoder, pooling, prompt):
    """Behind a prompt that does not count, for a tokenizer that adds nothing; in a user's own pooling too."""
    model = make_encoder()
    model[1] = pooling
    attached = attach(model, redundancy="pooled", lambda_2=0.0, corpus=None).eval()
    features = attached.preprocess(["cat mat"], prompt=prompt)
    features["keyword_tokens"][:, -3 if prompt else 0 :] = True
    plain = model.encode(["cat mat"], prompt=prompt, convert_to_tensor=True)
    torch.testing.assert_close(attached(features)["sentence_embedding"], (1 - LAMBDA_1) * plain, atol=1e-5, rtol=0)


def test_half_precision_is_summed_in_float32():
    tokens = torch.full((1, 258, 2), 0.1, dtype=torch.bfloat16)
    mask = torch.ones(2, 258, dtype=torch.long)
    mask[1, 0] = 0
    features = {"token_embeddings": torch.cat([tokens, tokens]), "attention_mask": mask, "pooled_copies": True}
    out = MaskedCopyPooling(2, "mean")(features)["sentence_embedding"]
    assert out.dtype == torch.bfloat16
    assert torch.equal(out[1], tokens[0, 0])


def test_poolings_that_pooled_redundancy_cannot_serve(make_encoder):
    model = make_encoder()
    weights = WordWeights(vocab=sorted(model.tokenizer.get_vocab()), word_weights={"cat": 2.0})
    weighted = SentenceTransformer(modules=[model[0], weights, Pooling(16)], device="cpu")
    with pytest.raises(ValueError, match=r'^redundancy must be "encoder" for a model that weights words'):
        attach(weighted, redundancy="pooled", corpus=None, lambda_2=0.0).encode(TEXTS)
    model[1] = FirstToken(16, "cls")
    with pytest.raises(ValueError, match=r'^redundancy must be "encoder" for a FirstToken'):
        attach(model, redundancy="pooled")
