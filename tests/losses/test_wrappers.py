"""Every loss inside Sentence Transformers' loss modifiers: each pair works, or is refused in one sentence."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import (
    AdaptiveLayerLoss,
    Matryoshka2dLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)
from torch import nn

from st_extras.losses import (
    AdCSELoss,
    ConSERTLoss,
    DCLRLoss,
    FrequencyAdversarialLoss,
    IncompleteSentenceFilteringLoss,
    PaSeRLoss,
    SimCSELoss,
    SLTFAILoss,
)
from st_extras.text.frequency import FrequencyTable
from tests.helpers import differing, snapshot
from tests.losses.phrases import features as phrase_features

Make = Callable[[SentenceTransformer, FrequencyTable], nn.Module]

HEAD = r"^projection=True was built for embeddings of 16 dimensions, got 8: use projection=False"
ADCSE = r"^AdCSELoss cannot run inside MatryoshkaLoss, .* use SimCSELoss or DCLRLoss, with projection=False\.$"
ALONE = r"^{} cannot run inside MatryoshkaLoss, .*: wrap the whole SLTFAILoss instead\.$"


def over(base: Callable[..., nn.Module], **options: Any) -> Make:
    return lambda model, table: SLTFAILoss(model, frequency_table=table, base_loss=base(model, **options))


def paser(base: Callable[..., nn.Module] | None = None, **options: Any) -> Make:
    return lambda model, table: PaSeRLoss(
        model, num_decoder_layers=1, base_loss=None if base is None else base(model), **options
    )


INSIDE_MATRYOSHKA: dict[str, tuple[Make, str | None]] = {
    "SimCSE": (lambda model, table: SimCSELoss(model), None),
    "SimCSE, head": (lambda model, table: SimCSELoss(model, projection=True), HEAD),
    "DCLR": (lambda model, table: DCLRLoss(model, complementary_model="self"), None),
    "DCLR, head": (lambda model, table: DCLRLoss(model, projection=True), HEAD),
    "ConSERT": (lambda model, table: ConSERTLoss(model), None),
    "AdCSE": (lambda model, table: AdCSELoss(model), ADCSE),
    "AdCSE, no head": (lambda model, table: AdCSELoss(model, projection=False), ADCSE),
    "AdCSE, tied": (lambda model, table: AdCSELoss(model, projection=False, tied=True), ADCSE),
    "AT": (
        lambda model, table: FrequencyAdversarialLoss(model, frequency_table=table),
        ALONE.format("FrequencyAdversarialLoss"),
    ),
    "ISF": (
        lambda model, table: IncompleteSentenceFilteringLoss(model, frequency_table=table),
        ALONE.format("IncompleteSentenceFilteringLoss"),
    ),
    "SLT-FAI": (over(SimCSELoss), None),
    "SLT-FAI over a head": (over(SimCSELoss, projection=True), HEAD),
    "SLT-FAI over ConSERT": (over(ConSERTLoss), None),
    "SLT-FAI over DCLR": (over(DCLRLoss), None),
    "SLT-FAI over MNRL": (over(MultipleNegativesRankingLoss), None),
    "SLT-FAI over AdCSE": (over(AdCSELoss), ADCSE),
    "PaSeR": (paser(), None),
    "PaSeR without MLM": (paser(mlm_weight=0), None),
    "PaSeR over SimCSE": (paser(SimCSELoss), None),
    "PaSeR over MNRL, with MLM": (paser(MultipleNegativesRankingLoss, mlm_weight=1), None),
    "PaSeR over AdCSE": (paser(AdCSELoss), ADCSE),
}
"""Each loss, and what MatryoshkaLoss around it is refused with (None: it works)."""


def batch(model: SentenceTransformer, name: str, sentences: list[str]) -> list[dict[str, Any]]:
    return phrase_features(model) if name.startswith("PaSeR") else [model.preprocess(sentences)]


def train_three_steps(encoder: SentenceTransformer, wrapped: nn.Module, columns: list[dict[str, Any]]) -> None:
    before = snapshot(encoder)
    optimizer = torch.optim.SGD([parameter for parameter in wrapped.parameters() if parameter.requires_grad], lr=0.01)
    for _ in range(3):
        value = wrapped(columns, None)
        assert value.dim() == 0
        assert value.isfinite()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    assert differing(before, snapshot(encoder))


@pytest.mark.parametrize("name", INSIDE_MATRYOSHKA)
def test_matryoshka(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable, name: str
) -> None:
    make, refusal = INSIDE_MATRYOSHKA[name]
    wrapped = MatryoshkaLoss(encoder, make(encoder, frequency_table), [16, 8])
    columns = batch(encoder, name, sentences)
    if refusal is None:
        train_three_steps(encoder, wrapped, columns)
    else:
        with pytest.raises(ValueError, match=refusal):
            wrapped(columns, None)


@pytest.mark.parametrize("name", INSIDE_MATRYOSHKA)
@pytest.mark.parametrize("kind", ["AdaptiveLayer", "Matryoshka2d"])
def test_layers(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable, name: str, kind: str
) -> None:
    make, refusal = INSIDE_MATRYOSHKA[name]
    loss = make(encoder, frequency_table)
    wrapped = (
        AdaptiveLayerLoss(encoder, loss, n_layers_per_step=-1)
        if kind == "AdaptiveLayer"
        else Matryoshka2dLoss(encoder, loss, [16, 8], n_layers_per_step=-1, n_dims_per_step=-1)
    )
    columns = batch(encoder, name, sentences)
    if refusal is None or (refusal == HEAD and kind == "AdaptiveLayer"):  # all layers have one dimension
        train_three_steps(encoder, wrapped, columns)
    else:
        with pytest.raises(ValueError, match=refusal.replace("MatryoshkaLoss", "(MatryoshkaLoss|AdaptiveLayerLoss)")):
            wrapped(columns, None)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("make", "options"), [(SimCSELoss, {}), (DCLRLoss, {"noise_ratio": 0}), (SimCSELoss, {"projection": True})]
)
def test_each_layer_is_the_encoder_cut_there(
    make_encoder: Callable[..., SentenceTransformer],
    sentences: list[str],
    count: int,
    make: Callable[..., nn.Module],
    options: dict[str, Any],
) -> None:
    encoder = make_encoder(dropout=0.0, layers=3).eval()  # where equal views are meant
    columns = [encoder.preprocess(texts) for texts in (sentences, [f"{text} ." for text in sentences])][:count]
    loss = make(encoder, **options)
    value = AdaptiveLayerLoss(encoder, loss, n_layers_per_step=-1, kl_temperature=0)(columns, None)
    parts = []
    for layers in range(4):
        cut: Any = copy.deepcopy(encoder)
        cut.transformers_model.encoder.layer = cut.transformers_model.encoder.layer[:layers]
        loss.model = cut
        parts.append(loss(columns))
    torch.testing.assert_close(value, parts[3] + sum(parts[:3]) / 3)


def test_the_divergence_is_that_of_another_loss(
    make_encoder: Callable[..., SentenceTransformer], sentences: list[str]
) -> None:
    encoder = make_encoder(dropout=0.0, layers=3)
    columns = [encoder.preprocess(texts) for texts in (sentences, [f"{text} ." for text in sentences])]
    ours, theirs = (
        AdaptiveLayerLoss(encoder, loss, n_layers_per_step=-1)([dict(column) for column in columns], None)
        for loss in (SimCSELoss(encoder), MultipleNegativesRankingLoss(encoder, scale=20))
    )
    torch.testing.assert_close(ours, theirs)


def test_over_layers_the_terms_on_tokens_count_once(
    make_encoder: Callable[..., SentenceTransformer], sentences: list[str], frequency_table: FrequencyTable
) -> None:
    encoder = make_encoder(layers=3)
    columns = [encoder.preprocess(sentences)]
    loss = SLTFAILoss(encoder, frequency_table=frequency_table)
    wrapped = AdaptiveLayerLoss(encoder, loss, n_layers_per_step=-1)
    for _ in range(3):
        wrapped(columns, None).backward()
    assert loss.steps == loss.adversarial.steps == 3
    with pytest.raises(ValueError, match=r"^AdaptiveLayerLoss takes this combination .* with one column, got 2\.$"):
        wrapped(columns * 2, None)
