"""Which tokens are masked, in the text and after the encoder, and for whom copies are made."""

import numpy as np
import pytest

from st_extras.modules import RepALPostProcessor, load
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
    [("jieba", KOREAN, "without a keyword"), ("rake", NUMBERED, "nothing but keywords")],
)
def test_keywords_that_leave_no_text_different_from_its_copy_are_refused(still_encoder, keywords, corpus, words):
    with pytest.raises(ValueError, match=rf"^keywords must .*of 30 texts, .*100 % .*{words}"):
        RepALPostProcessor.attach(still_encoder, lambda_1=0.5, lambda_2=1.0, keywords=keywords, corpus=corpus)
    alone = RepALPostProcessor.attach(still_encoder, lambda_1=0, lambda_2=1.0, keywords=keywords, corpus=corpus)
    assert alone[2].corpus_size == 30, "the corpus term needs no keywords"


def test_many_texts_without_keywords_cause_a_warning(still_encoder, caplog):
    attach(still_encoder, keywords="jieba", corpus=MIXED)
    assert not caplog.text
    processor = attach(still_encoder, keywords="jieba", corpus=[*MIXED[:10], *KOREAN])[2]
    assert "of 40 texts, 75 % are without a keyword" in caplog.text
    processor.tune([("고양이가", "앉았다"), ("개가", "뛰었다")], [1.0, 2.0])
    assert "100 % are without a keyword" in caplog.text


def test_only_the_first_thousand_texts_are_looked_at_and_none_is_read_ahead(still_encoder):
    stream = iter(["고양이가 앉았다"] * 1100)
    with pytest.raises(ValueError, match="of 1000 texts"):
        attach(still_encoder, keywords="jieba", corpus=stream)
    assert len(list(stream)) >= 99
