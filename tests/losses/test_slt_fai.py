"""SLT-FAI is the sum of a base and of the two terms, which are tested on their own."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss
from torch import nn

from st_extras.losses import (
    ConSERTLoss,
    FrequencyAdversarialLoss,
    IncompleteSentenceFilteringLoss,
    SimCSELoss,
    SLTFAILoss,
    epochs_to_steps,
)
from st_extras.text.frequency import FrequencyTable
from tests.helpers import count_rows, generator
from tests.losses.cases import instruments, owned, total


def make_loss(model: SentenceTransformer, table: FrequencyTable, **options: Any) -> SLTFAILoss:
    torch.manual_seed(1)
    return SLTFAILoss(model, frequency_table=table, generator=generator(), **options)


def part(loss: SLTFAILoss, name: str, table: FrequencyTable) -> nn.Module:
    """The term alone, with the same discriminator and the masks that the loss draws next."""
    kinds: dict[str, Any] = {"adversarial": FrequencyAdversarialLoss, "incomplete": IncompleteSentenceFilteringLoss}
    options = {"generator": generator()} if name == "incomplete" else {}
    alone: nn.Module = kinds[name](loss.model, frequency_table=table, **options)
    state = {key: value for key, value in loss.state_dict().items() if key.startswith(f"{name}.discriminator")}
    alone.load_state_dict({key.removeprefix(f"{name}."): value for key, value in state.items()}, strict=False)
    return alone


@pytest.mark.parametrize("base", [SimCSELoss, MultipleNegativesRankingLoss])
def test_the_sum_is_eq_2_term_by_term(still_encoder, sentences, frequency_table, base):
    loss = make_loss(
        still_encoder, frequency_table, base_loss=base(still_encoder), base_weight=0.5, adversarial_weight=2.0,
        incomplete_weight=3.0,
    )  # fmt: skip
    features = still_encoder.preprocess(sentences)
    view = still_encoder(dict(features))["sentence_embedding"]
    adversarial, incomplete = (part(loss, name, frequency_table) for name in ("adversarial", "incomplete"))
    expected = {
        "base": 0.5 * base(still_encoder).compute_loss_from_embeddings([view, view], None),
        "adversarial": 2 * adversarial([features]),
        "incomplete": 3 * incomplete([features]),
    }
    terms = loss([features])
    assert list(terms) == list(expected)
    for name, term in expected.items():
        torch.testing.assert_close(terms[name], term, msg=name)
        assert term > 0.1
        if name != "base":
            accuracy = instruments(adversarial if name == "adversarial" else incomplete)["discriminator_accuracy"]
            assert instruments(loss)[f"{name}_discriminator_accuracy"] == accuracy


def test_matryoshka_runs_the_base_at_every_dimension_and_the_terms_once(still_encoder, sentences, frequency_table):
    features = [still_encoder.preprocess(sentences)]
    loss = make_loss(still_encoder, frequency_table, base_weight=0.5, incomplete_weight=0)
    with torch.no_grad():
        view = still_encoder(dict(features[0]))["sentence_embedding"]
        half = F.normalize(view[:, :8], dim=-1)
        smaller = SimCSELoss(still_encoder).compute_loss_from_embeddings([half, half])
        expected = total(loss(features)) + 0.25 * 0.5 * smaller
        whole = MatryoshkaLoss(still_encoder, loss, [16, 8], matryoshka_weights=[1, 0.25])(features, None)
        torch.testing.assert_close(whole, expected)
        loss = make_loss(still_encoder, frequency_table, adversarial_weight=0)
        assert MatryoshkaLoss(still_encoder, loss, [8, 4])(features, None).isfinite()  # zeros for the last dimensions


def test_without_a_term(encoder, sentences, frequency_table):
    features = [encoder.preprocess(sentences)]
    for name, rows in (("base", 24), ("adversarial", 24), ("incomplete", 16)):
        loss = make_loss(encoder, frequency_table, **{f"{name}_weight": 0})
        with count_rows(encoder) as passes:
            assert set(loss(features)) == {"base", "adversarial", "incomplete"} - {name}
        assert passes == [rows]
        assert not any(key.startswith(f"{name}.") for key in loss.state_dict())


def test_the_incomplete_row_has_the_first_views_augmentation(make_encoder, sentences, frequency_table):
    model = make_encoder(dropout=0.5).train()
    loss = make_loss(model, frequency_table, base_loss=ConSERTLoss(model))
    inputs: list[Any] = []
    model[0].register_forward_pre_hook(lambda module, args: inputs.append((dict(args[0]), module.training)))
    loss([model.preprocess(sentences)])
    (rows, training), size = inputs[0], len(sentences)
    assert not training  # ConSERT's dropout is off, in the whole pass
    first, second, incomplete = rows["inputs_embeds"].split(size)
    cut = [(block == 0).all(dim=1).sum(dim=1) for block in (first, second, incomplete)]
    assert cut[0].tolist() == cut[2].tolist() == [3] * size  # round(0.2 * 16) features
    assert cut[1].sum() == 0
    natural, shuffled, masked = rows["position_ids"].split(size)
    assert torch.equal(natural, masked)
    assert not torch.equal(natural, shuffled)


@pytest.mark.parametrize(
    ("adversary", "discriminators"), [("reversal", False), ("reversal", True), ("confusion", True)]
)
def test_in_the_warm_up_the_base_alone_moves_the_encoder(
    still_encoder, sentences, frequency_table, adversary, discriminators
):
    features = [still_encoder.preprocess(sentences)]
    SimCSELoss(still_encoder)(features).backward()
    wanted = {name: p.grad.clone() for name, p in still_encoder.named_parameters() if p.grad is not None}
    loss = make_loss(
        still_encoder, frequency_table, warmup_steps=2, warmup_discriminators=discriminators, adversary=adversary
    )
    with torch.no_grad():
        loss(features)  # does not count
    for step in range(4):
        loss.zero_grad()
        with count_rows(still_encoder) as passes:
            terms = loss(features)
        total(terms).backward()
        warming = step < 2
        assert passes == [16 if warming and not discriminators else 24]
        assert bool(terms["adversarial"] > 0) == bool(terms["incomplete"] > 0) == (discriminators or not warming)
        own = [p.grad is not None and bool(p.grad.any()) for p in owned(loss, still_encoder).values()]
        assert own == [discriminators or not warming] * 8
        moved = {n: p.grad for n, p in still_encoder.named_parameters() if p.grad is not None}
        same = all(torch.allclose(moved[name], gradient, atol=1e-7) for name, gradient in wanted.items())
        assert same == warming


def test_epochs_to_steps_counts_those_of_a_process():
    assert epochs_to_steps(0.5, 89192, 32) == 1394
    assert epochs_to_steps(0.1, 1_000_000, 32, num_processes=2) == 1562


def test_bad_input(encoder, frequency_table):
    nothing = {"base_weight": 0, "adversarial_weight": 0, "incomplete_weight": 0}
    for options, message in (
        (nothing, "^base_weight must be > 0"),
        ({"base_weight": 0, "warmup_steps": 1}, "^warmup_steps must be 0"),
        ({"warmup_discriminators": True}, "^warmup_discriminators must be False"),
    ):
        with pytest.raises(ValueError, match=message):
            SLTFAILoss(encoder, frequency_table=frequency_table, **options)


def test_terms_on_tokens_need_one_embedding_for_each_token(encoder, sentences, frequency_table):
    """As a Funnel without its decoder, which gives half as many."""
    loss, rows = SLTFAILoss(encoder, frequency_table=frequency_table), [encoder.preprocess(sentences)]
    encoder[1].register_forward_hook(lambda _, args, out: out | {"token_embeddings": out["token_embeddings"][:, ::2]})
    with pytest.raises(ValueError, match="adversarial_weight=0"):
        loss(rows)
