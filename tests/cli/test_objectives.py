"""The objectives of ``st-extras train`` without a training: settings, rows and losses."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from st_extras.cli import objectives
from st_extras.cli.objectives import loss_settings, make_loss, training_rows
from st_extras.text import PhraseMasking, RakePhrases
from st_extras.text.frequency import FrequencyTable
from tests.fixtures import SENTENCES

WITHOUT_MASK: Any = SimpleNamespace(tokenizer=SimpleNamespace(mask_token=None))
"""What stands for an encoder whose tokenizer has no mask token."""


def made(encoder: Any, objective: str, *pairs: str, sentences: list[str] = SENTENCES) -> Any:
    return make_loss(objective, loss_settings(objective, pairs), encoder, sentences, batch_size=4)


@pytest.mark.parametrize(
    ("pairs", "steps"),
    [
        ([], 20),
        (["base_loss=consert"], 100),
        (["base_loss=consert", "warmup_steps=7"], 7),
        (["base_loss=simcse", "warmup_steps=0"], 0),
    ],
)
def test_the_warm_up_of_slt_fai(encoder, pairs, steps):
    assert made(encoder, "slt-fai", *pairs, sentences=SENTENCES * 100).warmup_steps == steps


def test_settings_reach_the_loss(encoder):
    loss = made(encoder, "dclr", "noise_ratio=0", "mini_batch_size=5", "augmentations=feature_cutoff+shuffle")
    assert (loss.noise.ratio, loss.mini_batch_size) == (0, 5)
    assert loss.view_maker.augmentations == ("feature_cutoff", "shuffle")


def test_without_a_mask_token_paser_deletes_phrases_if_it_may():
    with pytest.raises(ValueError, match="on_missing_mask"):
        training_rows("paser", {}, WITHOUT_MASK, SENTENCES, 0)
    settings = loss_settings("paser", ["on_missing_mask=delete", "mlm_weight=0"])
    rows = training_rows("paser", settings, WITHOUT_MASK, SENTENCES, 0)
    assert len(rows) >= len(SENTENCES)
    for sentence, masked, phrase in zip(rows["sentence"], rows["masked"], rows["phrase"], strict=True):
        assert sorted(masked.split() + phrase.split()) == sorted(sentence.split())


def test_the_rows_of_paser_are_those_of_its_settings(encoder, capsys):
    """Phrases of a language, as many of a sentence as top_k says; the rest is counted on stderr."""
    sentences = [*SENTENCES, "the", "我们喜欢红苹果和绿梨"]
    for pairs, options, language in (
        ((), {}, "english"),
        (("top_k=1", "language=chinese"), {"top_k": 1}, "chinese"),
    ):
        rows = training_rows("paser", loss_settings("paser", pairs), encoder, sentences, 0)
        masking = PhraseMasking(RakePhrases(language=language), mask_token="[MASK]", **options)
        assert rows.to_dict() == masking.dataset(sentences).to_dict()
        said = f"{len(rows)} phrases; sentences without one: {masking.skipped} of 10, left out."
        out, err = (" ".join(text.split()) for text in capsys.readouterr())
        assert (out, said in err) == ("", True)


def test_other_losses_than_paser_take_the_sentences_of_any_encoder():
    assert training_rows("simcse", {}, SimpleNamespace(), SENTENCES, 0)["sentence"] == SENTENCES


@pytest.mark.parametrize("most", [3, 8, 100_000])
def test_slt_fai_counts_the_text_or_a_sample_of_it(encoder, monkeypatch, most):
    monkeypatch.setattr(objectives, "_COUNTED", most)
    labels = made(encoder, "slt-fai").adversarial.low_frequency
    counted = random.Random(0).sample(SENTENCES, min(most, len(SENTENCES)))
    assert labels.tolist() == (FrequencyTable.count(counted, encoder.tokenizer).labels() == 1).tolist()
