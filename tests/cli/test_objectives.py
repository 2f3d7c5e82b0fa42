"""The objectives of ``st-extras train`` without a training: options, rows and losses."""

from typing import Any

import pytest
import torch

from st_extras.cli.objectives import LossMaker, Objective, masked_rows, phrase_masking
from st_extras.text.frequency import FrequencyTable
from tests.fixtures import SENTENCES


def made(encoder: Any, objective: Objective, sentences: list[str] = SENTENCES) -> Any:
    return LossMaker(objective).make(encoder, sentences, batch_size=4)


@pytest.mark.parametrize(
    ("base", "settings", "steps"),
    [(None, [], 20), ("consert", [], 100), ("consert", ["warmup_steps=7"], 7), ("simcse", ["warmup_steps=0"], 0)],
)
def test_the_warm_up_of_slt_fai(encoder, base, settings, steps):
    assert made(encoder, Objective("slt-fai", settings, base=base), SENTENCES * 100).warmup_steps == steps


def test_the_check_of_the_settings_moves_no_random_state(encoder):
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match="temperature"):
        LossMaker(Objective("simcse", ["temperature=0"])).check(encoder)
    assert (
        LossMaker(Objective("dclr", ["noise_ratio=0", "projection=True"], 5)).check(encoder).step.mini_batch_size == 5
    )
    assert torch.equal(torch.get_rng_state(), state)


def test_without_a_mask_token_paser_deletes_phrases_if_it_may():
    with pytest.raises(ValueError, match="--set on_missing_mask=delete --set mlm_weight=0"):
        phrase_masking(Objective("paser"), None)
    masking = phrase_masking(Objective("paser", ["on_missing_mask=delete", "mlm_weight=0"]), None)
    rows = masked_rows(masking, SENTENCES)
    assert len(rows) >= len(SENTENCES)
    for sentence, masked, phrase in zip(rows["sentence"], rows["masked"], rows["phrase"], strict=True):
        assert sorted(masked.split() + phrase.split()) == sorted(sentence.split())


def test_slt_fai_counts_the_text(encoder):
    labels = made(encoder, Objective("slt-fai")).adversarial.low_frequency
    assert labels.tolist() == (FrequencyTable.count(SENTENCES, encoder.tokenizer).labels() == 1).tolist()
