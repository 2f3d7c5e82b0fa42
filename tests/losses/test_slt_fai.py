"""SLT-FAI is the sum of a base and of the two terms, which are tested on their own."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from torch import nn
from transformers import FunnelBaseModel, FunnelConfig

from st_extras.losses import (
    AdCSELoss,
    ConSERTLoss,
    FrequencyAdversarialLoss,
    IncompleteSentenceFilteringLoss,
    SimCSELoss,
    SLTFAILoss,
    epochs_to_steps,
)
from st_extras.text.frequency import FrequencyTable
from tests.helpers import count_rows, generator
from tests.losses import phrases
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
    measured = instruments(loss)
    assert 0 < measured["left_out"] < len(sentences)
    for name, term in (("adversarial", adversarial), ("incomplete", incomplete)):
        expected_accuracy = instruments(term)["discriminator_accuracy"]
        assert measured[f"{name}_discriminator_accuracy"] == pytest.approx(expected_accuracy)


def test_matryoshka_runs_the_base_at_every_dimension_and_the_terms_once(still_encoder, sentences, frequency_table):
    features = [still_encoder.preprocess(sentences)]
    settings: dict[str, Any] = {"base_weight": 0.5, "adversarial_weight": 2.0, "incomplete_weight": 3.0}
    loss = make_loss(still_encoder, frequency_table, **settings)
    with torch.no_grad():
        whole = MatryoshkaLoss(still_encoder, loss, [16, 8], matryoshka_weights=[1, 0.25])(features, None)
        terms = loss(features)
        alone = part(loss, "incomplete", frequency_table)
        ids, views = [], []
        still_encoder.register_forward_hook(lambda m, args, out: ids.append(args[0]) or views.append(out))
        torch.testing.assert_close(3 * alone(features), terms["incomplete"])
        kept = (ids[0]["input_ids"][:8] != ids[0]["input_ids"][8:]).any(dim=1)
        pair = [F.normalize(side, dim=-1) for side in views[0]["sentence_embedding"].chunk(2)]  # as MatryoshkaLoss does
        half = F.normalize(views[0]["sentence_embedding"][:8, :8], dim=-1)
        smaller = SimCSELoss(still_encoder).compute_loss_from_embeddings([half, half])
        expected = terms["base"] + terms["adversarial"] + 3 * alone.compute_loss_from_embeddings(pair, kept=kept)
    torch.testing.assert_close(whole, expected + 0.25 * 0.5 * smaller)


def test_without_a_term(encoder, sentences, frequency_table):
    features = [encoder.preprocess(sentences)]
    for name, rows in (("base", 24), ("adversarial", 24), ("incomplete", 16)):
        loss = make_loss(encoder, frequency_table, **{f"{name}_weight": 0})
        with count_rows(encoder) as passes:
            assert set(loss(features)) == {"base", "adversarial", "incomplete"} - {name}
        assert passes == [rows]
        assert not any(key.startswith(f"{name}.") for key in loss.state_dict())
        assert loss.get_config_dict()[f"{name}_weight"] == 0
    assert "discriminator_accuracy" in make_loss(encoder, frequency_table, adversarial_weight=0).instruments
    assert "adversary_share" in make_loss(encoder, frequency_table, base_loss=AdCSELoss(encoder)).instruments


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
        assert int(loss.state_dict()["adversarial.steps"]) == max(0, step - 1)


def test_epochs_to_steps_counts_those_of_a_process():
    assert epochs_to_steps(0.5, 89192, 32) == 1394
    assert epochs_to_steps(0.1, 1_000_000, 32, num_processes=2) == 1562


def test_bad_input(encoder, frequency_table):
    static = SentenceTransformer(modules=[StaticEmbedding(encoder.tokenizer.backend_tokenizer, embedding_dim=8)])
    nothing = {"base_weight": 0, "adversarial_weight": 0, "incomplete_weight": 0}
    for model, options, message in (
        (encoder, nothing, "^base_weight must be > 0"),
        (encoder, {"base_weight": 0, "warmup_steps": 1}, "^warmup_steps must be 0"),
        (encoder, {"warmup_discriminators": True}, "^warmup_discriminators must be False"),
        (static, {}, "StaticEmbedding"),
    ):
        with pytest.raises(ValueError, match=message):
            SLTFAILoss(model, frequency_table=frequency_table, **options)


def test_terms_on_tokens_need_one_embedding_for_each_token(encoder, sentences, frequency_table, tmp_path):
    """A Funnel without its decoder gives half as many token embeddings as tokens."""
    config = FunnelConfig(
        vocab_size=len(encoder.tokenizer), block_sizes=[1, 1], d_model=16, n_head=2, d_head=8, d_inner=32
    )
    FunnelBaseModel(config).save_pretrained(tmp_path)
    encoder.tokenizer.save_pretrained(tmp_path)
    funnel = SentenceTransformer(modules=[Transformer(str(tmp_path), max_seq_length=16), Pooling(16)], device="cpu")
    rows = [funnel.preprocess(sentences)]
    with pytest.raises(ValueError, match="adversarial_weight=0"):
        SLTFAILoss(funnel, frequency_table=frequency_table)(rows)
    with pytest.raises(ValueError, match="mlm_weight=0"):
        phrases.make_loss(funnel, mlm_weight=1.0)(phrases.features(funnel))
    able = SLTFAILoss(funnel, frequency_table=frequency_table, adversarial_weight=0)
    assert all(term.isfinite() for term in able(rows).values())
    assert phrases.make_loss(funnel)(phrases.features(funnel)).isfinite()
