"""The one answer to "is it the same encoder?"."""

import json

import pytest
import torch

from st_extras.encoders.fingerprint import PROBES, EncoderFingerprint


def test_the_same_encoder_has_no_difference(still_encoder):
    one = EncoderFingerprint.of(still_encoder, route="document")
    next(still_encoder.parameters()).data.mul_(1 + 1e-5)
    assert one.difference(EncoderFingerprint.of(still_encoder, route="document")) is None
    again = EncoderFingerprint.from_json(json.loads(json.dumps(one.to_json())))
    assert again.difference(one) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda model: setattr(model, "max_seq_length", 510), "max_seq_length 512 here and 510 there"),
        (lambda model: model.prompts.update(document="a "), "the prompt '' here and 'a ' there"),
        (lambda model: next(model.parameters()).data.add_(0.5 * torch.rand(16)), "% apart"),
    ],
    ids=["length, that no probe reaches", "prompt", "weights"],
)
def test_what_changes_embeddings_is_a_difference(still_encoder, change, reason):
    still_encoder.max_seq_length = 512
    one = EncoderFingerprint.of(still_encoder, route="document")
    change(still_encoder)
    assert reason in one.difference(EncoderFingerprint.of(still_encoder, route="document"))


def test_half_precision_may_be_further_apart():
    probes = torch.ones(2, 8)
    near = probes + 0.03
    full, half = EncoderFingerprint("", "9", probes), EncoderFingerprint("", "9", near, "bfloat16")
    assert full.difference(half) is None
    assert "3 % apart" in full.difference(EncoderFingerprint("", "9", near))
    assert full.difference(EncoderFingerprint("", "9", probes * torch.nan)) is not None
    assert full.difference(EncoderFingerprint.from_json(json.loads(json.dumps(half.to_json())))) is None
    for row in (0, 1):
        other = probes.clone()
        other[row] += 0.03
        assert "3 % apart" in full.difference(EncoderFingerprint("", "9", other)), "each probe counts"


def test_without_a_route_the_default_prompt_counts(still_encoder):
    plain = EncoderFingerprint.of(still_encoder)
    still_encoder.prompts, still_encoder.default_prompt_name = {"own": "the old "}, "own"
    prompted = EncoderFingerprint.of(still_encoder)
    assert (plain.prompt, prompted.prompt) == ("", "the old ")
    torch.testing.assert_close(prompted.probes, still_encoder.encode(list(PROBES), convert_to_tensor=True))
    assert plain.difference(prompted) == "the prompt '' here and 'the old ' there"
