from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.encoders import EmbeddingTable
from st_extras.functional import cosine_scores
from st_extras.losses import DCLRLoss, SimCSELoss
from st_extras.losses.parts import guide as guide_module
from st_extras.losses.parts.guide import make_guide
from tests.helpers import columns, cosine, train


def cosines(guide: Any, features: list[Any]) -> torch.Tensor:
    """The guide's cosines of the first column's sentences with the last one's."""
    sentences, candidates = guide([[column] for column in features])
    found: torch.Tensor = sentences @ candidates.T
    return found


@pytest.mark.parametrize("count", [1, 2])
def test_model_path_and_table_give_the_guides_cosines(make_encoder, sentences, tmp_path, count):
    model, guide = make_encoder(), make_encoder(seed=1, hidden_size=8)
    guide.save(str(tmp_path / "guide"))
    data = columns(sentences, count)
    features = [model.preprocess(list(column)) for column in data.values()]
    embeddings = [guide.encode(list(column), convert_to_tensor=True) for column in data.values()]
    expected = torch.tensor([[cosine(x, y) for y in embeddings[-1]] for x in embeddings[0]])
    table = EmbeddingTable.compute(model, guide, [t for c in data.values() for t in c], show_progress_bar=False)
    for made in (make_guide(model, guide, None), make_guide(model, tmp_path / "guide", None)):
        found = cosines(made, features)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
        assert not found.requires_grad
    torch.testing.assert_close(cosines(make_guide(model, None, table), features), found)


def test_the_sentences_of_all_processes(make_encoder, sentences, monkeypatch):
    monkeypatch.setattr(guide_module, "gather_rows", lambda x, across: (torch.cat([x, -x]) if across else x, 0))
    model, guide = make_encoder(), make_encoder(seed=1)
    features = [model.preprocess(sentences)]
    alone = cosines(make_guide(model, guide, None), features)
    gathered = cosines(make_guide(model, guide, None, gather_across_devices=True), features)
    torch.testing.assert_close(gathered, torch.cat([alone, -alone], dim=1))


def test_what_the_card_says(make_encoder, sentences, tmp_path):
    model, guide = make_encoder(), make_encoder(seed=1)
    guide.save(str(tmp_path / "guide"))

    def described(encoder: Any, table: Any = None) -> Any:
        loss = DCLRLoss(model, complementary_model=encoder, complementary_table=table)
        return loss.get_config_dict()["complementary"]

    assert described(tmp_path / "guide") == str(tmp_path / "guide")
    assert described(SentenceTransformer(str(tmp_path / "guide"))) == str(tmp_path / "guide")
    guide.transformers_model.config.name_or_path = ""
    assert described(guide) == "a SentenceTransformer over BertModel"
    table = EmbeddingTable.compute(model, guide, sentences, show_progress_bar=False)
    assert described(None, table) == "EmbeddingTable of 8 sentences, 16 dimensions"
    assert [described(word) for word in ("self", "start", None)] == ["self", "start", None]


def test_without_a_guide_the_log_names_the_ways_out_and_nothing_warns(make_encoder, caplog, sentences):
    caplog.set_level("INFO", logger=guide_module.__name__)
    model = make_encoder()
    loss = DCLRLoss(model)
    loss([model.preprocess(sentences)])
    (record,) = caplog.records
    assert record.levelname == "INFO"
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


def test_start_is_the_model_as_it_was(make_encoder, sentences, tmp_path):
    model = make_encoder().train()
    expected = start_cosines(model, sentences)
    guide = make_guide(model, "start", None)
    train(model, SimCSELoss(model), columns(sentences), tmp_path)
    model.train()
    features = [model.preprocess(sentences)]
    found = cosines(guide, features)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert torch.equal(cosines(guide, features), found)  # without dropout
    assert (start_cosines(model, sentences) - expected).abs().max() > 0.01
    assert not found.requires_grad
    assert guide.source.name == "start"
    assert not list(guide.parameters())
    assert list(guide.state_dict()) == ["_extra_state"]  # the probe


def test_start_after_a_training_is_what_was_trained(make_encoder, sentences, tmp_path):
    """A trained model has a card with the trainer's data, and what autocast has put in place of its forward pass."""
    model = make_encoder()
    train(model, SimCSELoss(model), columns(sentences), tmp_path, bf16=True)
    guide = make_guide(model, "start", None)
    features = model.preprocess(sentences)
    embeddings = model.eval()(dict(features))["sentence_embedding"].detach()
    train(model, SimCSELoss(model), columns(sentences), tmp_path)
    found = cosines(guide, [features])
    torch.testing.assert_close(found, cosine_scores(embeddings, embeddings), atol=1e-6, rtol=0)


def test_start_with_adapters_is_what_they_make_of_the_model(make_encoder, sentences):
    peft = pytest.importorskip("peft")
    model = make_encoder()
    model.add_adapter(peft.LoraConfig(r=2, target_modules=["query", "value"], init_lora_weights=False))
    expected = start_cosines(model, sentences)
    guide = make_guide(model, "start", None)
    with torch.no_grad():
        for parameter in model.parameters():  # what was frozen may be trained later, or merged into
            parameter.mul_(1.5)
    torch.testing.assert_close(cosines(guide, [model.preprocess(sentences)]), expected, atol=1e-6, rtol=0)
    assert (start_cosines(model, sentences) - expected).abs().max() > 0.01


def test_the_word_is_not_a_folder(make_encoder, sentences, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, other = make_encoder(), make_encoder(seed=1)
    other.save("start")
    features = [model.preprocess(sentences)]
    words, *folders = (make_guide(model, name, None) for name in ("start", "./start", Path("start")))
    torch.testing.assert_close(cosines(words, features), start_cosines(model, sentences))
    for folder in folders:
        torch.testing.assert_close(cosines(folder, features), start_cosines(other, sentences))
