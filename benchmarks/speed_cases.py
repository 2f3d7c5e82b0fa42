"""What is timed: losses, and RepAL's ways to encode.

A case builds a step on a bench (encoder and sentences); the step takes a tokenized batch of B sentences. The step of a
loss is forward and backward, including all that the loss does in training (such as AdCSE's momentum update) but not the
optimizer.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import (
    DenoisingAutoEncoderLoss,
    GISTEmbedLoss,
    MultipleNegativesRankingLoss,
)
from torch import nn

from benchmarks.names import MNRL
from benchmarks.speed_bench import Batch, Bench, Step
from st_extras.encoders import EmbeddingTable, use_length_buckets
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


def encode_case(redundancy: str | None = None) -> Callable[[Bench], Step]:
    """Time ``model.encode`` of the batch's texts, with RepAL unless ``redundancy`` is None; nothing is trained.

    Keywords are extracted beforehand, untimed.
    """

    def build(bench: Bench) -> Step:
        model = bench.model
        if redundancy is not None:
            extract = JiebaKeywords()
            keywords = {text: extract(text) for text in bench.texts}.__getitem__
            weights = {"lambda_1": 0.6, "lambda_2": 1.6, "corpus": bench.texts[:64]}
            model = RepALPostProcessor.attach(model, keywords=keywords, redundancy=redundancy, **weights)
        return Step(model, lambda batch: model.encode(batch.texts, show_progress_bar=False))

    return build


def bucketed_simcse(bench: Bench) -> SimCSELoss:
    """Make SimCSE on a copy of the encoder that runs rows of similar length together, without needless padding."""
    model = copy.deepcopy(bench.model)
    use_length_buckets(model, 4)
    return SimCSELoss(model)


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
        return DenoisingAutoEncoderLoss(SentenceTransformer(folder, device=bench.device))


PAIR = ("sentence", "sentence")
ROWS = ("sentence", "masked", "phrase")
TRAINED: dict[str, Callable[[Bench], Step]] = {
    MNRL: loss_case(lambda bench: MultipleNegativesRankingLoss(bench.model), *PAIR),
    "simcse": loss_case(lambda bench: SimCSELoss(bench.model)),
    "simcse, 4 length buckets": loss_case(bucketed_simcse),
    "dclr": loss_case(lambda bench: DCLRLoss(bench.model)),
    "dclr, table": loss_case(dclr_with_table),
    "dclr, model": loss_case(lambda bench: DCLRLoss(bench.model, complementary_model=bench.guide)),
    "adcse": loss_case(lambda bench: AdCSELoss(bench.model)),
    "adcse, no head": loss_case(lambda bench: AdCSELoss(bench.model, projection=False)),
    "consert": loss_case(lambda bench: ConSERTLoss(bench.model)),
    "slt-fai": loss_case(slt_fai),
    "slt-fai over adcse": loss_case(lambda bench: slt_fai(bench, AdCSELoss(bench.model, projection=False))),
    "paser": loss_case(lambda bench: PaSeRLoss(bench.model), *ROWS),
    "paser, no mlm": loss_case(lambda bench: PaSeRLoss(bench.model, mlm_weight=0.0), *ROWS),
    "TSDAE": loss_case(tsdae, "damaged", "sentence"),
    "GISTEmbed": loss_case(lambda bench: GISTEmbedLoss(bench.model, bench.guide), *PAIR),
}
ENCODED: dict[str, Callable[[Bench], Step]] = {
    "encode": encode_case(),
    "repal": encode_case("encoder"),
    "repal pooled": encode_case("pooled"),
}
CASES = TRAINED | ENCODED
"""All cases; each is compared with the first one of its kind."""
