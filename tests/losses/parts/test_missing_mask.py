"""What the messages say; what deletion does stands in the tests of the losses that delete."""

from __future__ import annotations

import pytest
from sentence_transformers import SentenceTransformer

from st_extras.losses.parts.missing_mask import check_mask_token


def test_a_missing_mask_token_is_an_error_that_names_the_way_out(encoder: SentenceTransformer) -> None:
    assert check_mask_token(encoder, "error", "words", "or stop") == "error"
    encoder.tokenizer.mask_token = None
    with pytest.raises(ValueError, match=r'in place of words, got a .* on_missing_mask="delete" .*, or stop\.$'):
        check_mask_token(encoder, "error", "words", "or stop")
    assert check_mask_token(encoder, "delete", "words", "or stop") == "delete"
    with pytest.raises(ValueError, match=r"^on_missing_mask must be one of 'error', 'delete', got True\.$"):
        check_mask_token(encoder, True, "words", "or stop")  # type: ignore[arg-type]
