"""SIF pooling against a plain loop in float64: prompts, special tokens, texts without content, files."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import Pooling
from torch.nn.utils.rnn import pad_sequence

from st_extras.modules import RepALPostProcessor, SIFPooling
from st_extras.text.frequency import FrequencyTable
from tests.modules.cases import TEXTS, corpus_of_words

A = 0.05
CORPUS = corpus_of_words(60)


def reference(model, table, texts, prompt, include_prompt):
    """The formula written again, one text and one token at a time, in float64."""
    tokenizer, rows = model.tokenizer, []
    total = sum(table.counts.tolist())
    features = model.preprocess(texts, prompt=prompt)
    with torch.no_grad():
        encoded = model[0](dict(features))["token_embeddings"].double().numpy()
    skipped = 0 if include_prompt or not prompt else len(tokenizer(prompt)["input_ids"]) - 1
    for ids, tokens, mask in zip(features["input_ids"], encoded, features["attention_mask"], strict=True):
        pairs = [pair for *pair, present in zip(ids.tolist(), tokens, mask.tolist(), strict=True) if present][skipped:]
        special = {tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id}
        above, below = np.zeros(len(tokens[0])), 0.0
        for token, vector in pairs:
            if token not in special:
                weight = A / (A + table.counts[token].item() / total)
                above, below = above + weight * vector, below + weight
        rows.append(above / below if below else sum(vector for _, vector in pairs) / len(pairs))
    return np.array(rows)


@pytest.fixture
def table(still_encoder):
    return FrequencyTable.count(CORPUS, still_encoder.tokenizer)


@pytest.mark.parametrize(
    ("prompt", "include_prompt", "side"),
    [(None, True, "right"), ("the old man ", True, "right"), ("the old man ", False, "left")],
)
def test_against_a_loop_in_float64(still_encoder, table, prompt, include_prompt, side):
    """A text without content is the plain mean."""
    still_encoder.tokenizer.padding_side = side
    still_encoder[1].include_prompt = include_prompt
    out = SIFPooling.attach(still_encoder, table, a=A).encode(TEXTS, prompt=prompt)
    assert np.abs(out - reference(still_encoder, table, TEXTS, prompt, include_prompt)).max() < 1e-5
    assert np.abs(out - still_encoder.encode(TEXTS, prompt=prompt)).max() > 1e-2
    assert type(still_encoder[1]) is Pooling, "changed by attaching"


def test_flattened_features(still_encoder, table):
    module = SIFPooling.attach(still_encoder, table, a=A)[1]
    lengths, ids = [3, 1, 4], torch.tensor([[2, 30, 3, 3, 2, 31, 32, 3]])
    flat = {"token_embeddings": torch.randn(1, 8, 16), "input_ids": ids, "attention_mask": torch.ones_like(ids)}
    rows = {key: pad_sequence(value[0].split(lengths), batch_first=True) for key, value in flat.items()}
    del flat["attention_mask"]
    flat["cu_seq_lens_q"] = torch.tensor([0, *lengths]).cumsum(dim=0)
    for prompt in ({}, {"prompt_length": torch.tensor([1])}):
        module.include_prompt = not prompt
        found, expected = (module({**features, **prompt})["sentence_embedding"] for features in (flat, rows))
        torch.testing.assert_close(found, expected)


def test_saved_and_loaded_to_the_bit_and_fitted_again(still_encoder, table, tmp_path):
    still_encoder.append(Normalize())
    model = SIFPooling.attach(still_encoder, table, a=A)
    counted = SIFPooling.attach(still_encoder, corpus=iter(CORPUS), a=A)
    model.save(str(tmp_path))
    again = SentenceTransformer(str(tmp_path), trust_remote_code=True, device="cpu")
    by_hand = SentenceTransformer(modules=[still_encoder[0], SIFPooling(table, a=A), Normalize()], device="cpu")
    assert by_hand.get_embedding_dimension() == 16
    for other in (again, counted, by_hand):
        assert np.array_equal(other.encode(TEXTS), model.encode(TEXTS))
        assert (other[1].a, other[1].corpus_size, other[1].include_prompt) == (A, 60, True)
    assert again[1].fit(CORPUS[:9]).corpus_size == 9


def test_what_is_refused(still_encoder, table):
    unfitted, wrong = SIFPooling.attach(still_encoder), FrequencyTable(["a", "b"], [1, 1])
    both = SentenceTransformer(modules=[still_encoder[0], Pooling(16, ["mean", "max"])], device="cpu")
    refined = RepALPostProcessor.attach(still_encoder, lambda_1=0.5, lambda_2=0, keywords="rake")
    for call, message in (
        (lambda: SIFPooling.attach(still_encoder, wrong), "vocabulary"),
        (lambda: SIFPooling.attach(still_encoder, table, corpus=CORPUS), "got both"),
        (lambda: unfitted.encode("a cat"), "not fitted"),
        (lambda: SIFPooling.attach(both, table), "one Pooling of one kind"),
        (lambda: SIFPooling.attach(refined, table), "attach SIF pooling before it"),
        (lambda: SIFPooling(table).fit(CORPUS), "not part of a model"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_a_mean_in_half_precision_is_summed_in_full(still_encoder, table):
    pooling = SIFPooling.attach(still_encoder, table, a=1.0)[1]
    rows = {
        "token_embeddings": torch.ones(1, 700, 16, dtype=torch.bfloat16),
        "input_ids": torch.full((1, 700), int(table.counts.argmin())),
        "attention_mask": torch.ones(1, 700, dtype=torch.long),
    }
    assert (pooling(rows)["sentence_embedding"] == 1).all()
