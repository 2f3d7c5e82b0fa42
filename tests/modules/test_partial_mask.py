"""Which tokens are masked, in the text and after the encoder, and for whom copies are made."""

import numpy as np
import pytest

from st_extras.modules import load
from tests.modules.cases import TEXTS, attach, reference


@pytest.mark.parametrize("include_prompt", [True, False])
def test_a_prompt_is_never_masked(make_encoder, include_prompt):
    """In pooled copies neither: tests/modules/test_masked_pooling.py."""
    model = make_encoder()
    model.set_pooling_include_prompt(include_prompt)
    model.prompts = {"query": "the cat: "}
    expected = reference(model, TEXTS, lambda_2=0.0, prompt="the cat: ")
    assert np.abs(attach(model, lambda_2=0.0, corpus=None).encode_query(TEXTS) - expected).max() < 1e-5


def test_a_tokenizer_without_a_mask_token(still_encoder, tmp_path):
    still_encoder.tokenizer.mask_token = None
    with pytest.raises(ValueError, match='on_missing_mask="delete"'):
        attach(still_encoder)
    attached = attach(still_encoder, on_missing_mask="delete")
    deleted = attached[0].partial_mask
    assert deleted("a cat sat on the mat") == "a on the"
    assert np.abs(attached.encode(TEXTS) - reference(still_encoder, TEXTS, mask=deleted)).max() < 1e-5
    attach(still_encoder, on_missing_mask="delete", keywords="jieba").save(str(tmp_path))
    assert load(str(tmp_path))[0].on_missing_mask == "delete"
    assert np.isfinite(attach(still_encoder, redundancy="pooled").encode(TEXTS)).all()


KOREAN = ["고양이가 앉았다", "개가 공원에서 뛰었다"] * 15
NUMBERED = [f"고양이가 매트 {i} 위에 앉았다" for i in range(30)]
MIXED = ["a cat sat on the mat", "the dog ran in the park"] * 20


@pytest.mark.parametrize(
    ("keywords", "corpus", "words"),
    [("jieba", KOREAN, "100 % are without a keyword"), ("rake", NUMBERED, "100 % are nothing but keywords")],
)
def test_keywords_that_leave_no_text_different_from_its_copy(still_encoder, caplog, keywords, corpus, words):
    attach(still_encoder, lambda_1=0, keywords=keywords, corpus=corpus)
    assert "keyword" not in caplog.text, "the corpus term needs none"
    attach(still_encoder, keywords=keywords, corpus=corpus)
    assert "Of 30 texts" in caplog.text
    assert words in caplog.text


def test_many_texts_without_keywords_cause_a_warning(still_encoder, caplog):
    attach(still_encoder, keywords="jieba", corpus=MIXED)
    assert not caplog.text
    processor = attach(still_encoder, keywords="jieba", corpus=[*MIXED[:10], *KOREAN])[2]
    assert "Of 40 texts, 75 % are without a keyword" in caplog.text
    processor.tune([("고양이가", "앉았다"), ("개가", "뛰었다")], [1.0, 2.0])
    assert "100 % are without a keyword" in caplog.text


def test_only_the_first_thousand_texts_are_looked_at(still_encoder, caplog):
    attach(still_encoder, keywords="jieba", corpus=["고양이가 앉았다"] * 1000 + ["a cat"] * 50)
    assert "Of 1000 texts, 100 % are without" in caplog.text
