"""What is timed: losses, the bare passes that they cannot do without, and RepAL's ways to encode.

A case builds a step on a bench (encoder and sentences); the step takes a tokenized batch of B sentences. The step of a
loss is forward and backward, including all that the loss does in training (such as AdCSE's momentum update) but not the
optimizer. A bare pass does only the work of the encoder (and decoder), in the plainest code.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.merged_forward import merge_feature_batches
from sentence_transformers.sentence_transformer.losses import (
    ContrastiveTensionLossInBatchNegatives,
    DenoisingAutoEncoderLoss,
    GISTEmbedLoss,
    MultipleNegativesRankingLoss,
)
from torch import Tensor, nn

from benchmarks.speed_bench import Batch, Bench, Case, Step
from benchmarks.studies import MNRL
from st_extras.encoders import EmbeddingTable
from st_extras.encoders.rows import content_mask
from st_extras.losses import AdCSELoss, ConSERTLoss, DCLRLoss, PaSeRLoss, SimCSELoss, SLTFAILoss
from st_extras.modules import RepALPostProcessor
from st_extras.text import JiebaKeywords
from st_extras.text.frequency import FrequencyTable


def loss_case(make: Callable[[Bench], nn.Module], *columns: str) -> Callable[[Bench], Step]:
    """Time forward and backward of a loss on the named columns of the batch; by default, on the sentence only."""

    def build(bench: Bench) -> Step:
        loss = make(bench).to(bench.model.device)

        def run(batch: Batch) -> None:
            value = loss([dict(getattr(batch, column)) for column in columns or ("sentence",)], None)
            (sum(value.values()) if isinstance(value, dict) else value).backward()

        return Step(loss, run)

    return build


def bare_case(
    copies: int, beside: Callable[[Bench], Callable[[Batch], Any]] | None = None, *, dropout: bool = True
) -> Callable[[Bench], Step]:
    """Time forward and backward of the encoder over ``copies`` x B rows.

    Args:
        copies: how often the encoder sees the batch.
        beside: makes a further pass without gradients.
        dropout: whether the encoder runs with dropout.
    """

    def build(bench: Bench) -> Step:
        model, other = bench.model, beside(bench) if beside else None

        def run(batch: Batch) -> None:
            if other:
                other(batch)
            if not dropout:
                model.eval()
            rows: Any = merge_feature_batches([dict(batch.sentence)] * copies)
            model(rows)["sentence_embedding"].square().mean().backward()

        return Step(model, run)

    return build


def guide_rows(bench: Bench) -> Callable[[Batch], Any]:
    """Pass B rows through the frozen guide."""
    guide = bench.guide
    return torch.no_grad()(lambda batch: guide(dict(batch.sentence)))


def averaged_copy_rows(bench: Bench) -> Callable[[Batch], Any]:
    """Average the weights into a copy of the encoder in one fused call, and pass B rows through it, as AdCSE does."""
    other = copy.deepcopy(bench.model).train()
    own, theirs = list(other.parameters()), [parameter.detach() for parameter in bench.model.parameters()]

    @torch.no_grad()
    def run(batch: Batch) -> None:
        torch._foreach_lerp_(own, theirs, 0.005)
        other(dict(batch.sentence))

    return run


def bare_paser(*, mlm: bool) -> Callable[[Bench], Step]:
    """Time what PaSeR needs: encoder, decoder and vocabulary at the target positions.

    The encoder sees [sentence; masked], and the sentence once more for masked language modelling if ``mlm``.
    """

    def build(bench: Bench) -> Step:
        model = bench.model
        loss = PaSeRLoss(model, mlm_weight=float(mlm)).to(model.device)  # only for its decoder and MLM head
        words: Any = model.transformers_model.get_input_embeddings()

        def run(batch: Batch) -> None:
            columns = [batch.sentence, batch.masked, batch.sentence][: 3 if mlm else 2]
            merged: Any = merge_feature_batches([dict(column) for column in columns])
            output = model(merged)
            whole, masked = output["sentence_embedding"].chunk(len(columns))[:2]
            signal = torch.stack([whole, masked, whole - masked, whole * masked], dim=1)
            ids, counted = batch.phrase["input_ids"], batch.phrase["attention_mask"][:, 1:].bool()
            hidden = loss.decoder(words(ids[:, :-1]), signal)[counted]
            value = F.cross_entropy(F.linear(hidden, words.weight), ids[:, 1:][counted])
            if loss.masked_lm is not None:
                ids = batch.sentence["input_ids"]
                drawn = content_mask(model, batch.sentence) & (torch.rand(ids.shape, device=ids.device) < 0.15)
                tokens: Tensor = output["token_embeddings"][-len(ids) :, : ids.size(1)][drawn]
                head: Any = loss.masked_lm.head
                logits = F.linear(head(tokens), words.weight, loss.masked_lm.bias)
                value = value + F.cross_entropy(logits, ids[drawn])
            value.backward()

        return Step(loss, run)

    return build


def encode_case(**options: Any) -> Callable[[Bench], Step]:
    """Time ``model.encode`` of the batch's texts, with RepAL if there are options for it; nothing is trained."""

    def build(bench: Bench) -> Step:
        model = bench.model
        if options:
            settings = dict(options)
            if settings["keywords"] == "given":  # extracted beforehand, untimed
                extract = JiebaKeywords()
                settings["keywords"] = {text: extract(text) for text in bench.texts}.__getitem__
            model = RepALPostProcessor.attach(model, lambda_1=0.6, lambda_2=1.6, corpus=bench.texts[:64], **settings)
        return Step(model, lambda batch: model.encode(batch.texts, show_progress_bar=False))

    return build


def dclr_with_table(bench: Bench) -> DCLRLoss:
    """Make DCLR with a table of the guide's embeddings."""
    table = EmbeddingTable.compute(bench.model, bench.guide, bench.texts, show_progress_bar=False)
    return DCLRLoss(bench.model, complementary_table=table)


def slt_fai(bench: Bench, base_loss: nn.Module | None = None) -> SLTFAILoss:
    """Make SLT-FAI with token counts of the bench's sentences."""
    table = FrequencyTable.count(bench.texts, bench.model.tokenizer)
    return SLTFAILoss(bench.model, frequency_table=table, base_loss=base_loss)


def tsdae(bench: Bench) -> DenoisingAutoEncoderLoss:
    """Make TSDAE on a copy of the encoder: it loads its decoder from the encoder's folder and ties the two."""
    with tempfile.TemporaryDirectory() as folder:
        bench.model.save(folder)
        return DenoisingAutoEncoderLoss(SentenceTransformer(folder, device=bench.settings.device))


TWO, THREE, STILL = "bare 2B rows", "bare 3B rows", "bare 2B rows, no dropout"
GUIDED, AVERAGED = "bare 2B rows + guide", "bare B rows + averaged copy"
SLT_AVERAGED, WRITING, WRITING_MLM = "bare 2B rows + averaged copy", "bare 2B rows + decoder", "bare 3B rows + decoder"
PAIR = ("sentence", "sentence")
ROWS = ("sentence", "masked", "phrase")

CASES: dict[str, Case] = {
    MNRL: Case(loss_case(lambda bench: MultipleNegativesRankingLoss(bench.model), *PAIR)),
    TWO: Case(bare_case(2)),
    THREE: Case(bare_case(3)),
    STILL: Case(bare_case(2, dropout=False)),
    GUIDED: Case(bare_case(2, guide_rows)),
    AVERAGED: Case(bare_case(1, averaged_copy_rows)),
    SLT_AVERAGED: Case(bare_case(2, averaged_copy_rows)),
    WRITING: Case(bare_paser(mlm=False)),
    WRITING_MLM: Case(bare_paser(mlm=True)),
    "simcse": Case(loss_case(lambda bench: SimCSELoss(bench.model)), {TWO: 1.05, MNRL: 1.05}),
    "dclr": Case(loss_case(lambda bench: DCLRLoss(bench.model)), {TWO: 1.05, MNRL: 1.08}),
    "dclr, table": Case(loss_case(dclr_with_table), {TWO: 1.05, MNRL: 1.08}),
    "dclr, model": Case(
        loss_case(lambda bench: DCLRLoss(bench.model, complementary_model=bench.guide)), {GUIDED: 1.05, MNRL: None}
    ),
    "adcse": Case(loss_case(lambda bench: AdCSELoss(bench.model)), {AVERAGED: 1.05, MNRL: 0.85}),
    "adcse, no head": Case(
        loss_case(lambda bench: AdCSELoss(bench.model, projection=False)), {AVERAGED: 1.05, MNRL: 0.85}
    ),
    "consert": Case(loss_case(lambda bench: ConSERTLoss(bench.model)), {STILL: None, MNRL: None}),
    "slt-fai": Case(loss_case(slt_fai), {THREE: 1.05, MNRL: None}),
    "slt-fai over adcse": Case(
        loss_case(lambda bench: slt_fai(bench, AdCSELoss(bench.model, projection=False))),
        {SLT_AVERAGED: 1.05, MNRL: None},
    ),
    "paser": Case(loss_case(lambda bench: PaSeRLoss(bench.model), *ROWS), {WRITING_MLM: 1.10, MNRL: None}),
    "paser, no mlm": Case(
        loss_case(lambda bench: PaSeRLoss(bench.model, mlm_weight=0.0), *ROWS), {WRITING: 1.10, MNRL: None}
    ),
    "TSDAE": Case(loss_case(tsdae, "damaged", "sentence"), {MNRL: None}),
    "Contrastive Tension": Case(
        loss_case(lambda bench: ContrastiveTensionLossInBatchNegatives(bench.model)), {MNRL: None}
    ),
    "GISTEmbed": Case(
        loss_case(lambda bench: GISTEmbedLoss(bench.model, bench.guide), *PAIR), {GUIDED: None, MNRL: None}
    ),
    "encode": Case(encode_case()),
    "repal": Case(encode_case(keywords="given"), {"encode": 1 / 0.47}),
    "repal, jieba": Case(encode_case(keywords="jieba"), {"encode": 1 / 0.43}),
    "repal pooled": Case(encode_case(keywords="given", redundancy="pooled"), {"encode": 1 / 0.9}),
    "repal pooled, jieba": Case(encode_case(keywords="jieba", redundancy="pooled"), {"encode": None}),
}
"""All cases; those that others are compared with come first."""
