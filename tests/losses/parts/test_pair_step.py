import pytest
import torch

from st_extras.losses import AdCSELoss, ConSERTLoss, DCLRLoss, SimCSELoss
from st_extras.losses.parts.batch_checks import are_equal_views
from tests.helpers import draw


def test_views_that_differ_or_are_meant_to_be_equal_say_nothing(make_encoder, sentences, caplog):
    for dropout, views in ((0.1, ("dropout", "dropout")), (0.0, ("none", "none")), (0.0, ("dropout", "token_cutoff"))):
        model = make_encoder(dropout=dropout).train()
        for make in (SimCSELoss, ConSERTLoss):
            make(model, augmentations=views)([model.preprocess(sentences)])
    assert "same vector" not in caplog.text


def test_evaluation_says_nothing_and_leaves_it_to_training(still_encoder, sentences, caplog):
    features = [still_encoder.preprocess(sentences)]
    loss = SimCSELoss(still_encoder)
    with torch.no_grad():
        loss(features)
    still_encoder.eval()
    loss(features)
    assert not caplog.records
    still_encoder.train()
    loss(features)
    assert "same vector" in caplog.text


def test_a_fresh_adapter_is_looked_at_again(still_encoder, sentences, caplog):
    """LoRA adds 0 at first, so its dropout tells no views apart before the first step."""
    peft = pytest.importorskip("peft")
    model = still_encoder
    model.transformers_model.add_adapter(peft.LoraConfig(r=2, lora_dropout=0.5, target_modules=["query"]))
    model.train()
    loss = SimCSELoss(model)
    features = [model.preprocess(sentences)]
    loss(features)
    assert not hasattr(loss, "_compared_views")
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    loss(features)
    assert loss._compared_views
    assert "same vector" not in caplog.text


def test_same_views():
    views = draw(4, 8).float()
    assert are_equal_views(views, views.clone())
    assert are_equal_views(views, views * (1 + 1e-7))
    assert not are_equal_views(views, views + 1e-3 * draw(4, 8, seed=1))
    one_row = views.clone()
    one_row[2] += 0.1
    assert not are_equal_views(views, one_row)
    assert not are_equal_views(views, views[:3])
    assert are_equal_views(views.bfloat16(), (views * (1 + 1e-4)).bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert are_equal_views(views, views * (1 + 1e-3))
    assert are_equal_views(torch.zeros(2, 3), torch.zeros(2, 3))


def test_views_of_other_shapes_are_refused(encoder):
    for loss in (SimCSELoss(encoder), ConSERTLoss(encoder), DCLRLoss(encoder), AdCSELoss(encoder)):
        for views in ([draw(4, 16), draw(3, 16)], [draw(4, 16)], [draw(4, 16)] * 3):
            with pytest.raises(ValueError, match=rf"^{type(loss).__name__} compares two views of one shape, got "):
                loss.compute_loss_from_embeddings(views)
