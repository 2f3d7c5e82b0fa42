"""Input that changes nothing, changes nothing: on tiny encoders of many architectures, padded on either side."""

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.encoders.forward import forward_pass, without_dropout
from st_extras.encoders.padding import fix_padding_side
from st_extras.encoders.positions import InputWays, find_input_ways, position_ids
from st_extras.encoders.structure import content_mask
from st_extras.losses.parts.views import TwoViews
from tests.architectures.encoders import build
from tests.helpers import generator, some_fast

BY_PLACE, BY_PADDING = InputWays("place", True, True), InputWays("padding", True, True)
TOKENS_MOVE, IDS_ALONE = InputWays(None, False, True), InputWays()
WAYS = {
    "BERT": BY_PLACE, "RoBERTa": BY_PADDING, "OPT": TOKENS_MOVE, "Llama": TOKENS_MOVE, "BART": IDS_ALONE,
    "Longformer": InputWays("padding", False, True),
}  # fmt: skip
"""What the encoders of each kind are found to take; that no view of nothing changes a row: tests/architectures."""


def architecture(name: str, folder: Path, side: str = "right") -> SentenceTransformer:
    """The tiny encoder, on which a position shows: the usual 0.02 hides what it does."""
    model = build(name, folder).eval()
    model.tokenizer.padding_side = side
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        for parameter in model[0].auto_model.parameters():
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=0.3)
    return model


def summaries(model: SentenceTransformer, rows: dict[str, Any]) -> Tensor:
    """One vector a row in evaluation mode: the sum of the content's tokens, in any order, or the embedding."""
    with torch.no_grad(), without_dropout(model):
        output = forward_pass(model, rows)
    tokens = output.get("token_embeddings")
    if tokens is None or tokens.shape[:2] != rows["input_ids"].shape:
        return output["sentence_embedding"]
    return (tokens * content_mask(model, rows).unsqueeze(2)).sum(dim=1)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", some_fast(WAYS, ["RoBERTa", "Llama"]))
def test_what_an_encoder_takes(sentences, tmp_path, name, side):
    model, ways = architecture(name, tmp_path, side), WAYS[name]
    assert find_input_ways(model) == ways
    if not ways.embeddings:
        with pytest.raises(ValueError, match=r"^augmentations must be .*'shuffle'"):
            TwoViews(model, ("token_cutoff", "none"))
    if ways.permutes:  # moved tokens are permuted positions
        found = []
        for chosen in (ways, TOKENS_MOVE):
            two_views = TwoViews(model, ("shuffle", "none"), generator=generator(3))
            two_views.ways = chosen
            found.append(summaries(model, two_views.rows(model, [model.preprocess([*sentences, "a"])])))
        torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("find_out", [find_input_ways, fix_padding_side])
def test_finding_out_draws_nothing_and_leaves_the_modes(make_encoder, find_out):
    model = make_encoder(dropout=0.5).train()
    model[0].eval()
    modes, state = [module.training for module in model.modules()], torch.get_rng_state()
    find_out(model)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)


def test_one_token_tells_nothing_of_order(encoder):
    encoder.max_seq_length = 3  # [CLS] 1 [SEP]
    assert find_input_ways(encoder) == TOKENS_MOVE


def test_positions_of_the_published_roberta(tmp_path):
    """They begin behind the id of the padding, which is 1 there."""
    roberta = architecture("RoBERTa", tmp_path)
    roberta.transformers_model.embeddings.padding_idx = 1
    rows = {"input_ids": torch.tensor([[1, 1, 5, 6], [5, 6, 7, 1]])}
    assert position_ids(roberta, rows, "padding").tolist() == [[1, 1, 2, 3], [2, 3, 4, 1]]
