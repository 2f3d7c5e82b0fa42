"""The objectives of ``st-extras train`` without a training: options, rows and losses."""

from typing import Any

import pytest

from st_extras.cli.objectives import LossMaker, Objective, masked_rows, phrase_masking
from st_extras.encoders import EmbeddingTable
from st_extras.text.frequency import FrequencyTable
from tests.fixtures import SENTENCES


@pytest.fixture
def table(encoder, tmp_path):
    FrequencyTable.count(SENTENCES, encoder.tokenizer).save(tmp_path / "table.json")
    return str(tmp_path / "table.json")


def made(encoder: Any, objective: Objective, sentences: list[str] = SENTENCES) -> Any:
    maker = LossMaker(objective)
    maker.prepare(encoder)
    return maker.make(encoder, sentences, batch_size=4)


@pytest.mark.parametrize(
    ("base", "warmup_epochs", "epochs"),
    [(None, None, 0.1), ("consert", None, 0.5), ("consert", 2, 2), ("simcse", 0, 0)],
)
def test_the_warm_up_of_slt_fai(encoder, table, base, warmup_epochs, epochs):
    objective = Objective("slt-fai", frequencies=table, base=base, warmup_epochs=warmup_epochs)
    assert made(encoder, objective, SENTENCES * 100).warmup_steps == round(epochs * 200)


def test_files_are_loaded_once_and_the_guide_embeds_the_text_once(make_encoder, table, monkeypatch):
    """For the check of the settings, and for the training."""
    loaded, embedded, compute = [], [], EmbeddingTable.compute
    load = FrequencyTable.load
    monkeypatch.setattr(FrequencyTable, "load", lambda path, _: loaded.append(path) or load(path))
    monkeypatch.setattr(
        "st_extras.encoders.load_encoder", lambda path, **_: loaded.append(path) or make_encoder(seed=1)
    )
    monkeypatch.setattr(EmbeddingTable, "compute", lambda *given, **_: embedded.append(given[2]) or compute(*given))
    made(make_encoder(), Objective("slt-fai", (), None, "guide", frequencies=table, base="dclr"))
    assert ({*loaded}, len(loaded)) == ({table, "guide"}, 2)
    assert embedded == [["a"], SENTENCES]


def test_without_a_mask_token_paser_deletes_phrases_if_it_may():
    with pytest.raises(ValueError, match="--set on_missing_mask=delete --set mlm_weight=0"):
        phrase_masking(Objective("paser"), None)
    masking = phrase_masking(Objective("paser", ["on_missing_mask=delete", "mlm_weight=0"]), None)
    rows = masked_rows(masking, SENTENCES, None)
    assert len(rows) >= len(SENTENCES)
    for sentence, masked, phrase in zip(rows["sentence"], rows["masked"], rows["phrase"], strict=True):
        assert sorted(masked.split() + phrase.split()) == sorted(sentence.split())


def test_without_a_file_slt_fai_counts_the_text(encoder):
    labels = made(encoder, Objective("slt-fai")).adversarial.low_frequency
    assert labels.tolist() == (FrequencyTable.count(SENTENCES, encoder.tokenizer).labels() == 1).tolist()
