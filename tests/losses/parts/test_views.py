import torch
from torch import Tensor

from st_extras.losses.parts.views import TwoViews, shuffled_positions, span_cutoff, token_cutoff
from tests.helpers import generator


def rows_of_content(*lengths: int, width: int = 14) -> Tensor:
    """[CLS] content ... [SEP] padding ...: where rows of these lengths have content."""
    places = torch.arange(width)
    return torch.stack([(places >= 1) & (places <= length) for length in lengths])


def test_token_cutoff_zeroes_the_rounded_share_of_the_content():
    content = rows_of_content(10, 4, 1, 0)
    cut = token_cutoff(content, 0.3, generator())
    assert cut.sum(dim=1).tolist() == [3, 1, 0, 0]
    assert not (cut & ~content).any()


def test_span_cutoff_is_one_run_anywhere_in_the_content():
    content = rows_of_content(6).expand(3000, -1)
    cut = span_cutoff(content, 0.34, generator())
    starts = cut.int().argmax(dim=1)
    assert (cut.sum(dim=1) == 2).all()
    assert cut[torch.arange(3000), starts + 1].all()
    assert set(starts.tolist()) == {1, 2, 3, 4, 5}
    assert span_cutoff(rows_of_content(0, 1), 0.2, generator()).sum() == 0


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
        lambda content: span_cutoff(content, 0.4, generator()),
    ):
        narrow, wide = rows_of_content(6, 3, width=8), rows_of_content(6, 3, width=20)
        assert torch.equal(cut(narrow), cut(wide)[:, :8])


def test_each_view_gets_its_own_augmentation(still_encoder, sentences):
    two_views = TwoViews(still_encoder, ("feature_cutoff", "shuffle"), generator=generator())
    rows = two_views.rows(still_encoder, [still_encoder.preprocess(sentences)])
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
