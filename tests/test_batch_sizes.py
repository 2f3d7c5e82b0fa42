"""No figure and no decision hangs on the batch in which a text was encoded: sizes 1, 7 and 64 agree."""

import math
from collections.abc import Iterator

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.encoders import load_encoder
from st_extras.evaluation import (
    GeometryEvaluator,
    LabeledTextEvaluator,
    LabelFreeComparison,
    STSDataset,
    STSEvaluator,
)
from st_extras.evaluation.paired import compare_labeled, compare_sts
from st_extras.modules import RepALPostProcessor
from st_extras.ranking import EmbeddingBlocks, comparable, hybrid_weight
from st_extras.samples import graded_pairs, sample_sentences
from st_extras.samples.encoder import raw_encoder
from st_extras.text.term_weights import BM25

SIZES = (1, 7, 64)
TEXTS = [text for i, text in enumerate(sample_sentences()[:60]) for text in [text] * (1 + i % 2)]  # half of them twice
LABELS = [str((i * i) % 4) for i in range(len(TEXTS))]  # which equal texts do not always share
PAIRS = [side[:90] for side in graded_pairs()]
SAME, GRADES = PAIRS[0][:30], [5.0, 1.0, 3.0] * 10  # pairs of equal texts
GRADED = STSDataset("pairs", PAIRS[0] + SAME, PAIRS[1] + SAME, PAIRS[2] + GRADES, ["x"] * 120)


@pytest.fixture(scope="module", params=["mean", "cls"])
def model(request) -> SentenceTransformer:
    """Raw: the cosines of [CLS] lie within 3e-6."""
    return raw_encoder() if request.param == "mean" else load_encoder("demo", layers=3, pooling="cls")


def figures(model: SentenceTransformer, size: int) -> Iterator[tuple[str, dict[str, float]]]:
    """All that evaluators and comparisons find with this batch size."""
    options = {"batch_size": size, "write_csv": False}
    other = raw_encoder()
    yield "sts", compare_sts(STSEvaluator([GRADED], **options), [("model", model), ("other", other)])["other"]
    labelled = LabeledTextEvaluator(TEXTS, LABELS, **options)
    yield "labels", compare_labeled(labelled, [("model", model), ("other", other)])["other"]
    yield "labels alone", labelled(model)
    yield "geometry", GeometryEvaluator(sorted(set(TEXTS)), **options)(model)
    processor = RepALPostProcessor.attach(model, lambda_1=0, lambda_2=0)[2]
    grid = [0.0, 0.5, 1.0]
    tuned = processor.tune(
        list(zip(*PAIRS[:2], strict=True)), PAIRS[2], lambda_1_grid=grid, lambda_2_grid=grid, batch_size=size
    )
    yield "tune", {"lambda_1": tuned.lambda_1, "lambda_2": tuned.lambda_2, "spearman": tuned.spearman}
    texts = sample_sentences()[:120]
    base, end = (one.encode(texts, batch_size=size, convert_to_tensor=True) for one in (model, other))
    yield "label-free", vars(LabelFreeComparison(texts, base).compare(end))


@pytest.mark.slow
def test_figures_are_those_of_any_batch_size(model):
    expected = dict(figures(model, SIZES[0]))
    for size in SIZES[1:]:
        for name, found in figures(model, size):
            assert found == pytest.approx(expected[name], abs=2e-4), (name, size)


@pytest.mark.parametrize("size", SIZES)
def test_a_collapsed_encoder_is_found_out_with_any_batch_size(make_encoder, size):
    """Weights that give every text the same embedding, but for rounding."""
    model = make_encoder(seed=0)
    last = model[0].model.encoder.layer[-1].output.LayerNorm
    with torch.no_grad():
        last.weight.fill_(1e-9)
        last.bias.normal_(generator=torch.Generator().manual_seed(0))
    options = {"batch_size": size, "write_csv": False}
    assert math.isnan(STSEvaluator([GRADED], **options)(model)["pairs_spearman_cosine"])
    geometry = GeometryEvaluator(sorted(set(TEXTS)), **options)(model)
    assert (geometry["iso_score"], geometry["mean_cosine"]) == (0, pytest.approx(1))
    documents = ["the same document"] * 61
    rows = comparable(model, model.encode(documents, batch_size=size, convert_to_tensor=True))
    assert hybrid_weight(BM25(documents), ["the same", "document"], rows[:2], EmbeddingBlocks.of(rows)) == 0
