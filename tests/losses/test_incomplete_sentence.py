"""ISF alone: equation 6 as a loop over what the encoder saw and gave, and which tokens are masked or deleted."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.encoders.rows import content_mask
from st_extras.losses import IncompleteSentenceFilteringLoss
from tests.helpers import draw, generator
from tests.losses.cases import owned


@pytest.fixture
def make(still_encoder, frequency_table):
    def build(seed: int = 0, model: SentenceTransformer = still_encoder, **options: Any) -> Any:
        torch.manual_seed(1)
        settings: dict[str, Any] = {"frequency_table": frequency_table, "generator": generator(seed)}
        return IncompleteSentenceFilteringLoss(model, **settings | options)

    return build


@contextmanager
def watched(model: SentenceTransformer) -> Iterator[dict[str, Any]]:
    """What the encoder sees and gives: the sentences' rows, then their incomplete copies."""
    seen: dict[str, Any] = {}
    handles = [
        model.register_forward_pre_hook(lambda module, args: seen.update(args[0])),
        model.register_forward_hook(lambda module, args, output: seen.update(given=output["sentence_embedding"])),
    ]
    yield seen
    for handle in handles:
        handle.remove()


def rows_of(loss: Any, features: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The ids of the sentences and those of their copies."""
    with watched(loss.model) as seen, torch.no_grad():
        loss([features])
    whole, incomplete = seen["input_ids"].chunk(2)
    return whole, incomplete


def test_equation_6_as_a_loop(make, sentences):
    """Over the sentences whose copy differs, which one of a frequent word and a mask token does not."""
    loss, terms, right = make(mask_ratio=0.3).double(), [], 0
    with watched(loss.model) as seen:
        value = loss([loss.model.preprocess([*sentences, "the [MASK] the"] * 2)])
    first, bias, last, shift = owned(loss, loss.model).values()
    whole, incomplete = seen["input_ids"].chunk(2)
    for i, (sentence, copy) in enumerate(zip(*seen["given"].chunk(2), strict=True)):
        if not torch.equal(whole[i], incomplete[i]):
            for vector, label in ((copy, 1), (sentence, 0)):
                logits = ((first @ vector + bias).relu() @ last.T + shift).tolist()
                terms.append(math.log(sum(math.exp(logit) for logit in logits)) - logits[label])
                right += (logits[1] > logits[0]) == label
    count = len(terms) // 2
    assert value.item() == pytest.approx(sum(terms) / count, abs=1e-10)
    assert 0 < count < 2 * len(sentences)
    assert int(loss.instruments["left_out"]) == len(whole) - count
    assert float(loss.instruments["discriminator_accuracy"]) == pytest.approx(right / len(terms))
    value.backward()
    assert loss.model[0].model.embeddings.word_embeddings.weight.grad.any()


def test_the_gradient_is_right_for_both_sentences(make):
    loss, kept = make().double(), torch.tensor([True, False, True])
    pair = [3 * draw(3, 16, seed=i + 2).requires_grad_() for i in range(2)]
    assert torch.autograd.gradcheck(lambda a, b: loss.compute_loss_from_embeddings([a, b], kept=kept), pair)


def test_only_low_frequency_content_is_masked_at_the_ratio(make, sentences, frequency_table):
    loss = make(mask_ratio=0.3)
    features = loss.model.preprocess(sentences * 150)
    ids, incomplete = rows_of(loss, features)
    masked = incomplete != ids
    maskable = (frequency_table.labels()[ids] == 1) & content_mask(loss.model, features)
    assert (incomplete[masked] == loss.model.tokenizer.mask_token_id).all()
    assert not (masked & ~maskable).any()
    count = int(maskable.sum())
    assert count > 2000
    assert abs(masked.sum().item() / count - 0.3) < 4 * math.sqrt(0.3 * 0.7 / count)


# ---- encoders without a mask token


@pytest.mark.parametrize("side", ["right", "left"])
def test_deleted_tokens_leave_the_rows_of_the_shorter_sentences(make, still_encoder, sentences, side):
    model = still_encoder
    model.tokenizer.padding_side = side
    features = model.preprocess(sentences, prompt="the old ")
    ids, masked = rows_of(make(mask_ratio=0.5), features)  # the draws are the same, masked or deleted
    model.tokenizer.mask_token = None
    loss = make(on_missing_mask="delete", mask_ratio=0.5)
    model.tokenizer.padding_side = side  # which a loss changes for a BERT
    with watched(model) as seen:
        loss([features]).backward()
    content = content_mask(model, features)
    texts = [
        model.tokenizer.decode(row[kept & ~deleted])
        for row, kept, deleted in zip(ids, content, ids != masked, strict=True)
    ]
    alone = model.preprocess(texts, prompt="the old ")
    width, length = alone["input_ids"].size(1), ids.size(1)
    part = slice(length - width, None) if side == "left" else slice(width)
    for key in ("input_ids", "attention_mask", "token_type_ids"):
        whole, shorter = seen[key].chunk(2)
        assert torch.equal(whole, features[key])
        assert torch.equal(shorter[:, part], alone[key])
    assert seen["attention_mask"].chunk(2)[1].sum() == alone["attention_mask"].sum()
    assert 0 < int(loss.instruments["left_out"]) < len(sentences)


def test_a_sentence_keeps_some_content(make, still_encoder):
    still_encoder.tokenizer.mask_token = None
    loss = make(on_missing_mask="delete", mask_ratio=0.999)
    features = still_encoder.preprocess(["birds", "birds birds", "the birds birds", ""])
    with watched(still_encoder) as seen:
        loss([features])
    assert loss.instruments["left_out"] == 3
    assert seen["attention_mask"].chunk(2)[1].sum(dim=1).tolist() == [3, 4, 3, 2]
