from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor

from st_extras.encoders.structure import content_mask
from st_extras.losses.incomplete_sentence import (
    IncompleteSentenceFilteringLoss,
    delete_tokens,
    draw_masked,
    incomplete_cross_entropy,
)
from st_extras.text.frequency import FrequencyTable
from tests.helpers import (
    assert_resume_is_seamless,
    columns,
    count_rows,
    differing,
    fit,
    generator,
    padded,
    snapshot,
    train,
)


def small_batch() -> tuple[Tensor, Tensor, Tensor]:
    source = torch.Generator().manual_seed(0)
    original, incomplete = (torch.randn(4, 2, generator=source, dtype=torch.float64) for _ in range(2))
    return original, incomplete, torch.tensor([True, False, True, True])


def incomplete_cross_entropy_loop(original: Tensor, incomplete: Tensor, kept: Tensor) -> float:
    def cross_entropy(logits: Tensor, label: int) -> float:
        zero, one = logits.tolist()
        return math.log(math.exp(zero) + math.exp(one)) - (one if label else zero)

    terms = [cross_entropy(incomplete[i], 1) + cross_entropy(original[i], 0) for i in range(len(kept)) if bool(kept[i])]
    return sum(terms) / len(terms)


def test_equation_as_a_loop() -> None:
    original, incomplete, kept = small_batch()
    expected = incomplete_cross_entropy_loop(original, incomplete, kept)
    assert incomplete_cross_entropy(original, incomplete, kept).item() == pytest.approx(expected, abs=1e-12)
    everything = torch.ones_like(kept)
    assert incomplete_cross_entropy(original, incomplete, everything).item() != pytest.approx(expected, abs=1e-3)
    blind = torch.zeros(4, 2, dtype=torch.float64)
    assert incomplete_cross_entropy(blind, blind, kept).item() == pytest.approx(2 * math.log(2))


def test_gradcheck_and_nothing_kept() -> None:
    original, incomplete, kept = small_batch()
    inputs = (original.requires_grad_(), incomplete.requires_grad_())
    assert torch.autograd.gradcheck(lambda a, b: incomplete_cross_entropy(a, b, kept), inputs)
    nothing = incomplete_cross_entropy(original, incomplete, torch.zeros_like(kept))
    nothing.backward()
    assert nothing.item() == 0
    assert (original.grad == 0).all()


def make_loss(model: SentenceTransformer, table: FrequencyTable, seed: int = 0, **options: object):
    return IncompleteSentenceFilteringLoss(model, frequency_table=table, generator=generator(seed), **options)


def test_only_low_frequency_content_is_masked_at_the_ratio(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    loss = make_loss(encoder, frequency_table, mask_ratio=0.3)
    features = encoder.preprocess(sentences * 500)
    incomplete, kept = loss.make_incomplete(features)
    ids, masked = features["input_ids"], incomplete["input_ids"] != features["input_ids"]
    maskable = frequency_table.rare(ids) & content_mask(encoder, features)
    assert (incomplete["input_ids"][masked] == encoder.tokenizer.mask_token_id).all()
    assert not (masked & ~maskable).any()
    count = int(maskable.sum())
    assert count > 8000
    deviation = math.sqrt(0.3 * 0.7 / count)
    assert abs(masked.sum().item() / count - 0.3) < 4 * deviation
    by_token = [masked[(ids == token) & maskable].float().mean() for token in ids[maskable].unique()]
    assert max(abs(rate - 0.3) for rate in by_token) < 4 * math.sqrt(0.21 / 500)
    assert torch.equal(kept, masked.any(dim=1))
    assert 0 < kept.sum() < len(kept)
    pairs = masked[:, 1:] & masked[:, :-1] & maskable[:, 1:] & maskable[:, :-1]
    both = maskable[:, 1:] & maskable[:, :-1]
    assert abs(pairs.sum().item() / both.sum().item() - 0.09) < 0.02  # independent of the neighbour


def test_a_mask_token_in_the_sentence_is_not_masked_again(
    encoder: SentenceTransformer, frequency_table: FrequencyTable
) -> None:
    loss = make_loss(encoder, frequency_table, mask_ratio=0.999)
    features = encoder.preprocess(["the [MASK] the", "the birds"])
    assert frequency_table.rare(features["input_ids"])[0].any()
    incomplete, kept = loss.make_incomplete(features)
    assert kept.tolist() == [False, True]
    assert (incomplete["input_ids"] != features["input_ids"]).sum() == 1


def test_always_mask_one() -> None:
    maskable = torch.zeros(3000, 9, dtype=torch.bool)
    maskable[:2000, 2:5] = True
    masked = draw_masked(maskable, 0.2, generator(), always_mask_one=True)
    assert not (masked & ~maskable).any()
    assert masked[:2000].any(dim=1).all()
    rate = masked[:2000].float().mean(dim=0)[2:5]
    expected = 0.2 + 0.8**3 / 3  # the ratio, and a third of the sentences that drew none
    assert torch.allclose(rate, torch.full((3,), expected), atol=0.04)
    plain = draw_masked(maskable, 0.2, generator())
    assert torch.equal(masked[plain.any(dim=1)], plain[plain.any(dim=1)])


def test_sentences_that_drew_none_are_left_out_and_counted(
    still_encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    loss = make_loss(still_encoder, frequency_table)
    features = still_encoder.preprocess(sentences)
    _, kept = make_loss(still_encoder, frequency_table).make_incomplete(features)
    value = loss([features])
    assert 0 < kept.sum() < len(kept)
    assert loss.left_out == (~kept).sum()
    assert loss.discriminator.confusion.sum() == 2 * kept.sum()
    # the same sentences alone, with the same masks
    incomplete, _ = make_loss(still_encoder, frequency_table).make_incomplete(features)
    embeddings = [still_encoder(dict(rows))["sentence_embedding"][kept] for rows in (features, incomplete)]
    logits = [loss.discriminator(embedding) for embedding in embeddings]
    expected = incomplete_cross_entropy(*logits, torch.ones(int(kept.sum()), dtype=torch.bool))
    assert torch.allclose(value, expected, atol=1e-6)


def test_both_sentences_reach_encoder_and_discriminator(
    encoder: SentenceTransformer, frequency_table: FrequencyTable
) -> None:
    loss = make_loss(encoder, frequency_table)
    for side in range(2):
        embeddings = [torch.randn(3, 16, requires_grad=True) for _ in range(2)]
        loss.compute_loss_from_embeddings(embeddings, kept=torch.tensor([True, False, True])).backward()
        grad = embeddings[side].grad
        assert (grad[[0, 2]].abs().sum(dim=1) > 0).all()
        assert (grad[1] == 0).all()
    assert all(p.grad.abs().sum() > 0 for p in loss.discriminator.parameters())


def test_padding_changes_neither_loss_nor_gradients(
    still_encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    features = still_encoder.preprocess(sentences)
    results = []
    torch.manual_seed(0)
    loss = make_loss(still_encoder, frequency_table)
    for batch in (features, padded(features)):
        loss.mask_source.generator.manual_seed(3)
        loss.zero_grad()
        value = loss([batch])
        value.backward()
        results.append([value.detach(), *(p.grad.clone() for p in loss.parameters() if p.grad is not None)])
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*results, strict=True))


def test_one_pass_and_features_untouched(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    loss = make_loss(encoder, frequency_table)
    features = encoder.preprocess(sentences)
    before = {key: value.clone() for key, value in features.items() if isinstance(value, Tensor)}
    with count_rows(encoder) as passes:
        loss([features])
    assert passes == [16]
    assert all(torch.equal(features[key], kept) for key, kept in before.items())


def test_evaluation_moves_nothing(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    loss = make_loss(encoder, frequency_table)
    features = [encoder.preprocess(sentences)]
    loss(features)
    before, left_out = snapshot(loss), loss.left_out
    with torch.no_grad():
        assert torch.equal(loss(features), loss(features))
    assert not differing(before, snapshot(loss))
    assert loss.left_out is left_out


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("how", ["fit", "trainer"])
def test_training(
    encoder: SentenceTransformer,
    sentences: list[str],
    frequency_table: FrequencyTable,
    tmp_path: Path,
    how: str,
    count: int,
) -> None:
    loss = IncompleteSentenceFilteringLoss(encoder, frequency_table=frequency_table, always_mask_one=True)
    before = snapshot(loss)
    (fit if how == "fit" else train)(encoder, loss, columns(sentences, count), tmp_path)
    changed = differing(before, snapshot(loss))
    assert any(name.startswith("model.") for name in changed)
    assert any(name.startswith("discriminator.layers") for name in changed)


def test_resume(
    make_encoder: Callable[..., SentenceTransformer],
    sentences: list[str],
    frequency_table: FrequencyTable,
    tmp_path: Path,
) -> None:
    def make(model: SentenceTransformer) -> IncompleteSentenceFilteringLoss:
        return IncompleteSentenceFilteringLoss(model, frequency_table=frequency_table)

    assert_resume_is_seamless(make_encoder, make, columns(sentences), tmp_path)


def test_bf16_stays_close(encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable) -> None:
    loss = make_loss(encoder, frequency_table)
    features = [encoder.preprocess(sentences)]
    plain = loss(features)
    loss.mask_source.generator.manual_seed(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = loss(features)
    assert half.dtype == torch.float32
    assert half.item() == pytest.approx(plain.item(), rel=0.05)


@pytest.mark.parametrize("texts", [["a cat"], ["two birds"] * 4, ["", ""], ["", "a birds"], ["birds " * 90, "a"]])
def test_edge_batches(encoder: SentenceTransformer, texts: list[str], frequency_table: FrequencyTable) -> None:
    loss = make_loss(encoder, frequency_table)
    value = loss([encoder.preprocess(texts)])
    value.backward()
    assert value.isfinite()
    assert (value.item() == 0) == (loss.left_out == len(texts))
    assert loss.left_out == len(texts) or texts != ["", ""]


def test_bad_input(encoder: SentenceTransformer, frequency_table: FrequencyTable) -> None:
    static = SentenceTransformer(modules=[StaticEmbedding(encoder.tokenizer.backend_tokenizer, embedding_dim=8)])
    other = FrequencyTable([*frequency_table.tokens[:-1], "other"], frequency_table.counts)
    for model, options, message in (
        (encoder, {"mask_ratio": 0}, "mask_ratio .* 0"),
        (encoder, {"mask_ratio": 1.0}, "mask_ratio .* 1.0"),
        (encoder, {"low_frequency_ratio": 1.2}, "low_frequency_ratio .* 1.2"),
        (encoder, {"frequency_table": other}, "'other'"),
        (static, {}, "StaticEmbedding"),
    ):
        with pytest.raises(ValueError, match=message):
            IncompleteSentenceFilteringLoss(model, **{"frequency_table": frequency_table, **options})
    loss = make_loss(encoder, frequency_table)
    with pytest.raises(ValueError, match="unpad_inputs"):
        loss([{"input_ids": torch.ones(1, 9, dtype=torch.long), "cu_seq_lens_q": torch.tensor([0, 4, 9])}])
    with pytest.raises(ValueError, match="MatryoshkaLoss"):
        loss.compute_loss_from_embeddings([torch.zeros(2, 8)] * 2, kept=torch.ones(2, dtype=torch.bool))
    encoder.tokenizer.mask_token = None
    with pytest.raises(ValueError, match=r'must have a tokenizer with a mask token.*on_missing_mask="delete"'):
        make_loss(encoder, frequency_table)
    with pytest.raises(ValueError, match=r"^on_missing_mask must be one of 'error', 'delete', got None\.$"):
        make_loss(encoder, frequency_table, on_missing_mask=None)


def test_config_and_citation(encoder: SentenceTransformer, frequency_table: FrequencyTable) -> None:
    loss = make_loss(encoder, frequency_table)
    settings = {"low_frequency_ratio": 0.5, "mask_ratio": 0.2, "always_mask_one": False, "on_missing_mask": "error"}
    assert loss.get_config_dict() == settings
    assert "wang2023unsupervised" in loss.citation


def test_the_running_accuracy_counts_right_answers_on_both_sides(
    encoder: SentenceTransformer, frequency_table: FrequencyTable
) -> None:
    loss = make_loss(encoder, frequency_table)
    loss.discriminator.layers = torch.nn.Linear(16, 2)
    with torch.no_grad():
        loss.discriminator.layers.weight.zero_()
        loss.discriminator.layers.weight[1, 0] = 1.0  # calls incomplete what is positive in its first feature
        loss.discriminator.layers.bias.zero_()
    whole, incomplete = -torch.ones(3, 16), torch.ones(3, 16)
    kept = torch.tensor([True, True, False])
    loss.compute_loss_from_embeddings([whole, incomplete], kept=kept)
    assert loss.discriminator.accuracy == 1
    loss.discriminator.confusion.zero_()
    incomplete[0] = -1
    loss.compute_loss_from_embeddings([whole, incomplete], kept=kept)
    assert loss.discriminator.accuracy == 0.75


# ---- encoders without a mask token


@pytest.mark.parametrize("side", ["right", "left"])
def test_deleted_tokens_leave_the_rows_of_the_shorter_sentences(
    still_encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable, side: str
) -> None:
    model = still_encoder
    model.tokenizer.mask_token = None
    model.tokenizer.padding_side = side
    loss = make_loss(model, frequency_table, on_missing_mask="delete", mask_ratio=0.5)
    features = model.preprocess(sentences, prompt="the old ")
    incomplete, kept = loss.make_incomplete(features)
    drawn = draw_masked(frequency_table.rare(features["input_ids"]) & content_mask(model, features), 0.5, generator())
    texts = [
        model.tokenizer.decode(row[content & ~gone])
        for row, content, gone in zip(features["input_ids"], content_mask(model, features), drawn, strict=True)
    ]
    assert torch.equal(kept, drawn.any(dim=1))
    assert 0 < kept.sum() < len(kept)
    alone = model.preprocess(texts, prompt="the old ")
    width, length = alone["input_ids"].size(1), features["input_ids"].size(1)
    assert incomplete["input_ids"].shape == features["input_ids"].shape
    part = slice(length - width, None) if side == "left" else slice(width)
    for key in ("input_ids", "attention_mask", "token_type_ids"):
        assert torch.equal(incomplete[key][:, part], alone[key])
    assert incomplete["attention_mask"].sum() == alone["attention_mask"].sum()
    assert incomplete["prompt_length"] == features["prompt_length"]


def test_position_ids_keep_their_places(encoder: SentenceTransformer) -> None:
    encoder.tokenizer.mask_token = None
    ids = torch.tensor([[2, 7, 8, 9, 3, 0]])
    rows = {"input_ids": ids, "attention_mask": (ids > 0).long(), "position_ids": torch.arange(6).unsqueeze(0)}
    shorter = delete_tokens(encoder, rows, ids == 8)
    assert shorter["input_ids"].tolist() == [[2, 7, 9, 3, 0, 0]]
    assert shorter["attention_mask"].tolist() == [[1, 1, 1, 1, 0, 0]]
    assert shorter["position_ids"].tolist() == [[0, 1, 2, 3, 4, 5]]
    both = {key: torch.nn.functional.pad(value, (2, 0)) for key, value in rows.items()}  # padding on both sides
    encoder.tokenizer.padding_side = "left"
    shorter = delete_tokens(encoder, both, both["input_ids"] == 8)
    assert shorter["input_ids"].tolist() == [[0, 0, 0, 2, 7, 9, 3, 0]]
    assert shorter["attention_mask"].tolist() == [[0, 0, 0, 1, 1, 1, 1, 0]]
    assert ids.tolist() == [[2, 7, 8, 9, 3, 0]]


def test_a_sentence_keeps_some_content(encoder: SentenceTransformer, frequency_table: FrequencyTable) -> None:
    encoder.tokenizer.mask_token = None
    loss = make_loss(encoder, frequency_table, on_missing_mask="delete", mask_ratio=0.999)
    features = encoder.preprocess(["birds", "birds birds", "the birds birds", ""])
    incomplete, kept = loss.make_incomplete(features)
    assert kept.tolist() == [False, False, True, False]
    assert torch.equal(incomplete["input_ids"][[0, 1, 3]], features["input_ids"][[0, 1, 3]])
    assert incomplete["attention_mask"].sum(dim=1).tolist() == [3, 4, 3, 2]
    assert torch.isfinite(loss([features]))
    assert loss.left_out == 3


def test_a_mask_token_is_used_where_there_is_one(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    features = encoder.preprocess(sentences)
    plain, deleting = (
        make_loss(encoder, frequency_table, **options).make_incomplete(features)[0]["input_ids"]
        for options in ({}, {"on_missing_mask": "delete"})
    )
    assert torch.equal(plain, deleting)


def test_training_without_a_mask_token(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable, tmp_path: Path
) -> None:
    encoder.tokenizer.mask_token = None
    loss = make_loss(encoder, frequency_table, on_missing_mask="delete")
    before = snapshot(loss)
    train(encoder, loss, columns(sentences), tmp_path)
    assert any(name.startswith("model.") for name in differing(before, snapshot(loss)))


def test_instruments(encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable) -> None:
    loss = make_loss(encoder, frequency_table)
    loss([encoder.preprocess(sentences)])
    assert loss.instruments["left_out"] is loss.left_out
    assert torch.equal(loss.instruments["discriminator_accuracy"], loss.discriminator.accuracy)


def test_matryoshka_around_this_term_alone_is_refused(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    loss = MatryoshkaLoss(encoder, make_loss(encoder, frequency_table), [16, 8])
    with pytest.raises(ValueError, match=r"^IncompleteSentenceFilteringLoss cannot run inside MatryoshkaLoss.*SLTFAI"):
        loss([encoder.preprocess(sentences)], None)
