"""Pooled redundancy against loops over the tokens that are left, in every mode of Pooling and their concatenations."""

import itertools
import math

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, WordWeights

from st_extras.modules import RepALPostProcessor
from st_extras.modules.masked_pooling import MaskedCopyPooling
from tests.modules.cases import KEYWORDS, LAMBDA_1, attach

pytest.importorskip("jieba")

MODES = ("cls", "lasttoken", "mean", "max", "mean_sqrt_len_tokens", "weightedmean")
TEXTS = ["a cat sat on the mat", "dog", "on the in a", "the old man read a red book"]  # one token a word
PROMPT = "the cat: "  # its keyword is kept


class FirstToken(Pooling):
    """A user's own pooling."""


CASES = [
    *itertools.product(MODES, ["left"], [None], [True]),
    *itertools.product([MODES], ["right", "left"], [PROMPT], [True, False]),
]


def pooled_by_hand(rows: list[tuple[int, np.ndarray]], mode: str) -> list[float]:
    """Pool (place in the text, embedding) pairs one number at a time."""
    size = len(rows[0][1])
    out = []
    for d in range(size):
        values = [float(vector[d]) for _, vector in rows]
        if mode == "max":
            out.append(max(values))
        elif mode == "weightedmean":
            out.append(sum(place * value for (place, _), value in zip(rows, values, strict=True)))
            out[-1] /= sum(place for place, _ in rows)
        elif mode == "mean_sqrt_len_tokens":
            out.append(sum(values) / math.sqrt(len(values)))
        else:
            out.append(sum(values) / len(values))
    return out


def redundant_by_hand(model, texts, modes, prompt, include_prompt):
    features = model.preprocess(texts, prompt=prompt)
    ids, mask = features["input_ids"].tolist(), features["attention_mask"].tolist()
    with torch.no_grad():
        embeddings = model[0](dict(features))["token_embeddings"].double().numpy()
    in_prompt = 1 + len(model.tokenizer.tokenize(prompt)) if prompt else 0  # [CLS] included
    result = []
    for row in range(len(texts)):
        tokens, place = [], 0
        for i, shown in enumerate(mask[row]):
            if shown:
                place += 1
                tokens.append((place, model.tokenizer.convert_ids_to_tokens(ids[row][i]), embeddings[row][i]))
        counted = [item for item in tokens if include_prompt or item[0] > in_prompt]
        kept = [item for item in counted if item[1] not in KEYWORDS or item[0] <= in_prompt] or counted
        pairs = [(place, vector) for place, _, vector in kept]
        result.append([value for mode in modes for value in pooled_by_hand(pairs, mode)])
    return np.array(result)


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


def test_a_text_of_keywords_alone_keeps_its_tokens(make_encoder):
    """Behind a prompt that does not count, for a tokenizer that adds nothing; in a user's own pooling too."""
    for pooling, prompt in (
        (Pooling(16, ("mean", "max"), include_prompt=False), PROMPT),
        (FirstToken(16, "mean"), None),
    ):
        model = make_encoder()
        model[1] = pooling
        attached = attach(model, redundancy="pooled", lambda_2=0.0, corpus=None)
        features = attached.preprocess(["cat mat"], prompt=prompt)
        features["keyword_tokens"][:, -3 if prompt else 0 :] = True
        with torch.no_grad():
            out = attached.eval()(features)["sentence_embedding"]
        plain = model.encode(["cat mat"], prompt=prompt)
        assert np.abs(out.numpy() - (1 - LAMBDA_1) * plain).max() < 1e-5


def test_half_precision_is_summed_in_float32():
    tokens = torch.full((1, 258, 2), 0.1, dtype=torch.bfloat16)
    mask = torch.ones(2, 258, dtype=torch.long)
    mask[1, 0] = 0
    features = {"token_embeddings": torch.cat([tokens, tokens]), "attention_mask": mask, "pooled_copies": True}
    out = MaskedCopyPooling(2, "mean")(features)["sentence_embedding"]
    assert out.dtype == torch.bfloat16
    assert torch.equal(out[1], tokens[0, 0])


def test_detach_gives_the_plain_pooling_back(make_encoder):
    model = make_encoder(pooling=("cls", "max"))
    model.set_pooling_include_prompt(False)
    plain = RepALPostProcessor.detach(attach(model, redundancy="pooled"))[1]
    assert type(plain) is Pooling
    assert plain.get_config_dict() == model[1].get_config_dict()


def test_poolings_that_pooled_redundancy_cannot_serve(make_encoder):
    model = make_encoder()
    model[1] = FirstToken(16, "cls")
    with pytest.raises(ValueError, match=r'^redundancy must be "encoder" for a FirstToken'):
        attach(model, redundancy="pooled")
    model[1] = FirstToken(16, "mean")
    assert type(attach(model, redundancy="pooled")[1]) is FirstToken
    words = model.tokenizer.convert_ids_to_tokens(range(len(model.tokenizer)))
    weights = WordWeights(vocab=words, word_weights={"cat": 2.0})
    weighted = SentenceTransformer(modules=[model[0], weights, Pooling(16)], device="cpu")
    with pytest.raises(ValueError, match=r'^redundancy must be "encoder" for a model that weights words'):
        attach(weighted, redundancy="pooled", corpus=None, lambda_2=0.0).encode(TEXTS)
