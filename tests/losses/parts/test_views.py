from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.encoders.forward import encode_tokens, without_dropout
from st_extras.losses.parts.views import ViewMaker, shuffled_positions, takes_embeddings, token_cutoff
from tests.architectures.encoders import build
from tests.helpers import generator, some_fast


def rows_of_content(*lengths: int, width: int = 14) -> Tensor:
    """[CLS] content ... [SEP] padding ...: where rows of these lengths have content."""
    places = torch.arange(width)
    return torch.stack([(places >= 1) & (places <= length) for length in lengths])


def test_token_cutoff_zeroes_the_rounded_share_of_the_content():
    content = rows_of_content(10, 4, 1, 0)
    cut = token_cutoff(content, 0.3, generator())
    assert cut.sum(dim=1).tolist() == [3, 1, 0, 0]
    assert not (cut & ~content).any()


def test_shuffle_permutes_the_positions_of_the_content_alone():
    content = rows_of_content(6, 2, 1, 0)
    positions = torch.arange(14).expand(4, -1)
    shuffled = shuffled_positions(positions, content, generator(1))
    assert torch.equal(shuffled[~content], positions[~content])
    assert torch.equal(shuffled.sort(dim=1).values, positions)
    assert not torch.equal(shuffled[0], positions[0])
    many = shuffled_positions(positions[:1].expand(3000, -1), rows_of_content(3).expand(3000, -1), generator())
    assert len({tuple(row) for row in many[:, 1:4].tolist()}) == 6


def test_padding_changes_no_draw():
    for cut in (
        lambda content: shuffled_positions(torch.arange(content.size(1)).expand(content.shape), content, generator()),
        lambda content: token_cutoff(content, 0.4, generator()),
    ):
        narrow, wide = rows_of_content(6, 3, width=8), rows_of_content(6, 3, width=20)
        assert torch.equal(cut(narrow), cut(wide)[:, :8])


def test_each_view_gets_its_own_augmentation(still_encoder, sentences):
    maker = ViewMaker(still_encoder, ("feature_cutoff", "shuffle"), generator=generator())
    rows = maker.rows(still_encoder, [still_encoder.preprocess(sentences)])
    first, second = rows["inputs_embeds"].chunk(2)
    words = still_encoder.transformers_model.get_input_embeddings()(rows["input_ids"]).chunk(2)[0]
    zeroed = (first == 0).all(dim=1)  # (B, E): in all tokens
    assert (zeroed.sum(dim=1) == round(0.2 * first.size(2))).all()
    assert len(zeroed.unique(dim=0)) > 1  # each sentence loses other features
    assert torch.equal(first[~zeroed.unsqueeze(1).expand_as(first)], words[~zeroed.unsqueeze(1).expand_as(first)])
    assert torch.equal(second, words)
    natural, permuted = rows["position_ids"].chunk(2)
    assert torch.equal(natural, torch.arange(natural.size(1)).expand_as(natural))
    assert not torch.equal(natural, permuted)


def architecture(name: str, folder: Path) -> SentenceTransformer:
    """The tiny encoder, on which a position shows: the usual 0.02 hides what it does."""
    model = build(name, folder).eval()
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        for parameter in model[0].auto_model.parameters():
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=0.3)
    return model


TAKES_EMBEDDINGS = {"BERT": True, "RoBERTa": True, "OPT": True, "Llama": True, "MPNet": True, "BART": False}


@pytest.mark.parametrize("name", some_fast(TAKES_EMBEDDINGS, ["RoBERTa", "BART"]))
def test_cutoffs_of_encoders_that_take_embeddings(sentences, tmp_path, name):
    model = architecture(name, tmp_path)
    assert takes_embeddings(model) == TAKES_EMBEDDINGS[name]
    if not TAKES_EMBEDDINGS[name]:
        with pytest.raises(ValueError, match=r"^augmentations must be .*'shuffle'"):
            ViewMaker(model, ("token_cutoff", "none"))
        return
    maker = ViewMaker(model, ("token_cutoff", "none"))
    maker.cutoff_rate = 1e-6  # which cuts nothing
    with torch.no_grad():
        torch.testing.assert_close(*maker.encode(model, [model.preprocess(sentences)]), rtol=1e-4, atol=1e-5)


def test_trying_embeddings_draws_nothing_and_leaves_the_modes(make_encoder):
    model = make_encoder(dropout=0.5).train()
    model[0].eval()
    modes, state = [module.training for module in model.modules()], torch.get_rng_state()
    assert takes_embeddings(model)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)


def test_moved_positions_are_moved_tokens(sentences, tmp_path, monkeypatch):
    model, sums = architecture("BERT", tmp_path), []
    for kind in ("bert", "another"):
        monkeypatch.setattr(model[0].auto_model.config, "model_type", kind)
        maker = ViewMaker(model, ("shuffle", "none"), generator=generator(3))
        rows = maker.rows(model, [model.preprocess([*sentences, "a"])])
        with torch.no_grad(), without_dropout(model):
            encoded = encode_tokens(model, rows)
        sums.append((encoded.tokens * encoded.content_mask.unsqueeze(2)).sum(dim=1))
        assert ("position_ids" in rows) == (kind == "bert")
    torch.testing.assert_close(*sums, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(*sums[0].chunk(2), rtol=1e-3, atol=1e-4)
