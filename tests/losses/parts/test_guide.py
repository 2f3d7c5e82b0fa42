from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.encoders import EmbeddingTable
from st_extras.functional import cosine_scores
from st_extras.losses import DCLRLoss, SimCSELoss
from st_extras.losses.parts import guide as guide_module
from st_extras.losses.parts.guide import (
    GuideSimilarities,
    describe_similarities,
    frozen_copy,
    make_similarities,
    self_similarities,
)
from tests.helpers import columns, cosine, count_rows, differing, draw, snapshot, train

Maker = Callable[..., SentenceTransformer]


@pytest.mark.parametrize("count", [1, 2])
def test_model_and_table_give_the_guides_cosines(make_encoder: Maker, sentences: list[str], count: int) -> None:
    model, guide = make_encoder(), make_encoder(seed=1, hidden_size=8)
    data = columns(sentences, count)
    features = [model.preprocess(list(column)) for column in data.values()]
    embeddings = [guide.encode(list(column), convert_to_tensor=True) for column in data.values()]
    expected = torch.tensor([[cosine(x, y) for y in embeddings[-1]] for x in embeddings[0]])
    table = EmbeddingTable.compute(model, guide, [t for c in data.values() for t in c], show_progress_bar=False)
    ignored = torch.zeros(len(sentences), len(sentences))
    by_model = make_similarities(model, guide, None)
    by_table = make_similarities(model, None, table)
    assert by_model is not None
    assert by_table is not None
    torch.testing.assert_close(by_model(features, ignored), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(by_table(features, ignored), by_model(features, ignored))
    assert not by_model(features, ignored).requires_grad


def test_a_guide_from_a_path(make_encoder: Maker, sentences: list[str], tmp_path: Path) -> None:
    model, guide = make_encoder(), make_encoder(seed=1)
    guide.save(str(tmp_path / "guide"))
    features = [model.preprocess(sentences)]
    by_path, by_model = make_similarities(model, tmp_path / "guide", None), make_similarities(model, guide, None)
    torch.testing.assert_close(by_path(features, torch.zeros(1)), by_model(features, torch.zeros(1)))


@pytest.mark.parametrize("count", [1, 2])
def test_each_sentence_is_encoded_once(make_encoder: Maker, sentences: list[str], count: int) -> None:
    model, guide = make_encoder(), make_encoder(seed=1)
    similarities = make_similarities(model, guide, None)
    before = snapshot(guide)
    with count_rows(guide) as asked:
        similarities([model.preprocess(column) for column in columns(sentences, count).values()], torch.zeros(1))
    assert asked == [len(sentences)] * count
    assert not differing(before, snapshot(guide))
    assert not list(similarities.parameters())  # hidden from the optimizer and from checkpoints
    assert not similarities.state_dict()


def test_the_sentences_of_all_processes(
    make_encoder: Maker, sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guide_module, "gather_rows", lambda x, across: (torch.cat([x, -x]) if across else x, 0))
    model, guide = make_encoder(), make_encoder(seed=1)
    features = [model.preprocess(sentences)]
    alone = make_similarities(model, guide, None)(features, torch.zeros(1))
    gathered = make_similarities(model, guide, None, gather_across_devices=True)(features, torch.zeros(1))
    torch.testing.assert_close(gathered, torch.cat([alone, -alone], dim=1))


def test_the_models_own_cosines_are_constants() -> None:
    a = draw(4, 8).requires_grad_()
    cosines = cosine_scores(a, draw(4, 8, seed=1))
    for similarities in (self_similarities, make_similarities(torch.nn.Identity(), "self", None)):
        got = similarities(None, cosines)
        assert torch.equal(got, cosines)
        assert not got.requires_grad


def test_columns_are_needed(make_encoder: Maker) -> None:
    similarities = make_similarities(make_encoder(), make_encoder(seed=1), None)
    with pytest.raises(ValueError, match="sentence_features is None"):
        similarities(None, torch.zeros(3, 3))


def test_a_sentence_that_the_table_lacks_is_shown(make_encoder: Maker, sentences: list[str]) -> None:
    model = make_encoder()
    table = EmbeddingTable.compute(model, make_encoder(), sentences, show_progress_bar=False)
    similarities = GuideSimilarities(table, model)
    with pytest.raises(ValueError, match="a red cat"):
        similarities([model.preprocess(["a red cat", sentences[0]])], torch.zeros(2, 2))


def test_bad_guides(make_encoder: Maker, sentences: list[str]) -> None:
    model, guide = make_encoder(), make_encoder()
    table = EmbeddingTable.compute(model, guide, sentences, show_progress_bar=False)
    for both in (guide, "self"):
        with pytest.raises(ValueError, match="not both"):
            make_similarities(model, both, table)
    with pytest.raises(ValueError, match='pass "self"'):
        make_similarities(model, model, None)
    assert make_similarities(model, None, None) is None


def test_what_the_card_says(make_encoder: Maker, sentences: list[str], tmp_path: Path) -> None:
    model, guide = make_encoder(), make_encoder(seed=1)
    guide.save(str(tmp_path / "guide"))

    def described(*options: Any) -> str | None:
        return describe_similarities(make_similarities(model, *options))

    assert described(tmp_path / "guide", None) == str(tmp_path / "guide")
    assert described(SentenceTransformer(str(tmp_path / "guide")), None) == str(tmp_path / "guide")
    guide.transformers_model.config.name_or_path = ""
    assert described(guide, None) == "a SentenceTransformer over BertModel"
    table = EmbeddingTable.compute(model, guide, sentences, show_progress_bar=False)
    assert described(None, table) == "EmbeddingTable of 8 sentences, 16 dimensions"
    table.save(tmp_path / "table.safetensors")
    for saved in (table, EmbeddingTable.load(tmp_path / "table.safetensors")):
        assert described(None, saved) == "EmbeddingTable table.safetensors of 8 sentences, 16 dimensions"
    assert described("self", None) == "self"
    assert describe_similarities(None) is None


def test_without_a_guide_a_warning_names_the_ways_out(
    make_encoder: Maker, caplog: pytest.LogCaptureFixture, sentences: list[str]
) -> None:
    model = make_encoder()
    loss = DCLRLoss(model)
    loss([model.preprocess(sentences)])
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert all(part in record.message for part in ("no negative is left out", "path", '"start"', '"self"'))
    caplog.clear()
    for guide in ("self", "start"):
        DCLRLoss(model, complementary_model=guide)
    assert not caplog.records


# ---- "start"


def start_cosines(model: SentenceTransformer, sentences: list[str]) -> torch.Tensor:
    """What the model computes now, without dropout."""
    embeddings = model.encode(sentences, convert_to_tensor=True)
    return cosine_scores(embeddings, embeddings)


def test_start_is_the_model_as_it_was(make_encoder: Maker, sentences: list[str], tmp_path: Path) -> None:
    model = make_encoder().train()
    expected = start_cosines(model, sentences)
    similarities = make_similarities(model, "start", None)
    train(model, SimCSELoss(model), columns(sentences), tmp_path)
    model.train()
    features, ignored = [model.preprocess(sentences)], torch.zeros(1)
    found = similarities(features, ignored)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert torch.equal(similarities(features, ignored), found)  # without dropout
    assert (start_cosines(model, sentences) - expected).abs().max() > 0.01
    assert not found.requires_grad
    assert describe_similarities(similarities) == "start"
    assert not list(similarities.parameters())
    assert not similarities.state_dict()


def test_start_after_a_training_is_what_was_trained(make_encoder: Maker, sentences: list[str], tmp_path: Path) -> None:
    """A trained model has a card with the trainer's data, and what autocast has put in place of its forward pass."""
    model = make_encoder()
    train(model, SimCSELoss(model), columns(sentences), tmp_path, bf16=True)
    similarities = make_similarities(model, "start", None)
    features = model.preprocess(sentences)
    embeddings = model.eval()(dict(features))["sentence_embedding"].detach()
    train(model, SimCSELoss(model), columns(sentences), tmp_path)
    found = similarities([features], torch.zeros(1))
    torch.testing.assert_close(found, cosine_scores(embeddings, embeddings), atol=1e-6, rtol=0)


def test_start_with_adapters_is_what_they_make_of_the_model(make_encoder: Maker, sentences: list[str]) -> None:
    peft = pytest.importorskip("peft")
    model = make_encoder()
    model.add_adapter(peft.LoraConfig(r=2, target_modules=["query", "value"], init_lora_weights=False))
    expected = start_cosines(model, sentences)
    similarities = make_similarities(model, "start", None)
    with torch.no_grad():
        for parameter in model.parameters():  # what was frozen may be trained later, or merged into
            parameter.mul_(1.5)
    torch.testing.assert_close(similarities([model.preprocess(sentences)], torch.zeros(1)), expected, atol=1e-6, rtol=0)
    assert (start_cosines(model, sentences) - expected).abs().max() > 0.01


def test_a_frozen_copy_shares_nothing_that_is_trained(make_encoder: Maker) -> None:
    model = make_encoder().train()
    copied = frozen_copy(model)
    own = {tensor.data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    assert not own & {tensor.data_ptr() for tensor in (*copied.parameters(), *copied.buffers())}
    assert not any(parameter.requires_grad for parameter in copied.parameters())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert (copied.training, model.training) == (False, True)


def test_a_loss_with_start_is_copied_with_it(make_encoder: Maker, sentences: list[str]) -> None:
    model = make_encoder()
    similarities = make_similarities(model, "start", None)
    twin = copy.deepcopy(similarities)
    features = [model.preprocess(sentences)]
    assert twin.guide.encoder is not similarities.guide.encoder
    assert torch.equal(twin(features, torch.zeros(1)), similarities(features, torch.zeros(1)))


def test_the_word_is_not_a_folder(
    make_encoder: Maker, sentences: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, other = make_encoder(), make_encoder(seed=1)
    other.save("start")
    features = [model.preprocess(sentences)]
    words, *folders = (make_similarities(model, name, None) for name in ("start", "./start", Path("start")))
    torch.testing.assert_close(words(features, torch.zeros(1)), start_cosines(model, sentences))
    for folder in folders:
        torch.testing.assert_close(folder(features, torch.zeros(1)), start_cosines(other, sentences))
