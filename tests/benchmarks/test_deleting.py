from __future__ import annotations

import pytest

from benchmarks.deleting import DeletingSLTFAILoss
from st_extras.losses import SLTFAILoss
from st_extras.text.frequency import FrequencyTable
from tests.conftest import SENTENCES, build_encoder


def test_incomplete_sentences_lack_their_rare_tokens_and_show_no_mask(tmp_path):
    model = build_encoder(tmp_path / "encoder")
    table = FrequencyTable.count(SENTENCES, model.tokenizer)
    features = model.preprocess(SENTENCES)
    masked, deleted = (
        make(model, frequency_table=table, mask_ratio=0.5).incomplete.make_incomplete(features)[0]
        for make in (SLTFAILoss, DeletingSLTFAILoss)
    )
    mask = model.tokenizer.mask_token_id
    shown = masked["input_ids"] == mask
    assert shown.any()
    assert not (deleted["input_ids"] == mask).any()
    assert (features["attention_mask"] - deleted["attention_mask"]).sum() > 0
    with pytest.raises(ValueError, match="incomplete_weight must not be 0"):
        DeletingSLTFAILoss(model, frequency_table=table, incomplete_weight=0)
