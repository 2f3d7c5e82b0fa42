"""The objectives of ``st-extras train`` without a training: options, rows and losses."""

from typing import Any

import pytest

from st_extras import losses
from st_extras.cli.objectives import Objective, loss_maker, training_rows
from st_extras.text.frequency import FrequencyTable
from tests.fixtures import SENTENCES


@pytest.fixture
def table(encoder, tmp_path):
    FrequencyTable.count(SENTENCES, encoder.tokenizer).save(tmp_path / "table.json")
    return str(tmp_path / "table.json")


@pytest.mark.parametrize(
    ("base", "warmup_epochs", "steps"),
    [(None, None, 0.1), ("dclr", None, 0.1), ("consert", None, 0.5), ("consert", 2.0, 2.0), ("simcse", 0.0, 0.0)],
)
def test_the_warm_up_of_slt_fai(encoder, table, base, warmup_epochs, steps):
    objective = Objective("slt-fai", frequencies=table, base=base, warmup_epochs=warmup_epochs)
    loss = loss_maker(objective, SENTENCES * 100, batch_size=4)(encoder)
    assert isinstance(loss, losses.SLTFAILoss)
    assert loss.warmup_steps == round(steps * 200)


def test_settings_go_to_the_loss_and_to_its_base(encoder, table):
    settings, of_base = ["mask_ratio=0.4", "warmup_steps=7"], ["threshold=0.25"]
    objective = Objective("slt-fai", settings, None, "self", frequencies=table, base="dclr", base_set=of_base)
    loss: Any = loss_maker(objective, SENTENCES, batch_size=4)(encoder)
    own, base = loss.get_config_dict(), loss.base_loss.get_config_dict()
    assert (type(loss.base_loss), base["complementary"], base["threshold"]) == (losses.DCLRLoss, "self", 0.25)
    assert (own["mask_ratio"], loss.warmup_steps) == (0.4, 7)


def test_a_setting_is_refused_by_its_option_before_an_encoder_is_loaded():
    with pytest.raises(ValueError, match=r"^--set must be NAME=VALUE, got '1x=2'\.$"):
        loss_maker(Objective("simcse", ["1x=2"]), SENTENCES, 4)
    objective = Objective("slt-fai", frequencies="t", base="adcse", base_set=["nonsense=1"])
    with pytest.raises(ValueError, match=r"^--base-set must name a setting of AdCSELoss \(.*\), got 'nonsense'\.$"):
        loss_maker(objective, SENTENCES, 4)


def test_the_warm_up_is_given_once():
    objective = Objective("slt-fai", ["warmup_steps=7"], frequencies="t", warmup_epochs=0.5)
    with pytest.raises(ValueError, match=r"^--warmup-epochs must not be given with --set warmup_steps, got both\.$"):
        loss_maker(objective, SENTENCES, 4)


def test_paser_needs_a_mask_token():
    with pytest.raises(ValueError, match="got one without: --set on_missing_mask=delete --set mlm_weight=0 deletes"):
        training_rows(Objective("paser"), SENTENCES, None, seed=0)


def test_paser_deletes_phrases_if_told_to():
    deleting = Objective("paser", ["on_missing_mask=delete", "mlm_weight=0"])
    rows = training_rows(deleting, SENTENCES, None, seed=0)
    assert len(rows) >= len(SENTENCES)
    for sentence, masked, phrase in zip(rows["sentence"], rows["masked"], rows["phrase"], strict=True):
        assert sorted(masked.split() + phrase.split()) == sorted(sentence.split())
