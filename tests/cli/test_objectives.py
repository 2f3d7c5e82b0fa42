"""The objectives of ``st-extras train`` without a training: options, rows and losses."""

from typing import Any

import pytest

from st_extras.cli import objectives
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
    """Settings go to the loss and to its base."""
    loaded, embedded, compute = [], [], EmbeddingTable.compute
    monkeypatch.setattr(
        objectives, "load_frequencies", lambda path, _: loaded.append(path) or FrequencyTable.load(path)
    )
    monkeypatch.setattr(
        "st_extras.encoders.load_encoder", lambda path, **_: loaded.append(path) or make_encoder(seed=1)
    )
    monkeypatch.setattr(EmbeddingTable, "compute", lambda *given, **_: embedded.append(given[2]) or compute(*given))
    settings = ["mask_ratio=0.4", "warmup_steps=7"]
    loss = made(
        make_encoder(),
        Objective("slt-fai", settings, None, "guide", frequencies=table, base="dclr", base_set=["threshold=0.25"]),
    )
    assert sorted(loaded) == sorted([table, "guide"])
    assert embedded == [[""], SENTENCES]
    base = loss.base_loss.get_config_dict()
    assert (base["complementary"], base["threshold"]) == ("EmbeddingTable of 8 sentences, 16 dimensions", 0.25)
    assert (loss.get_config_dict()["mask_ratio"], loss.warmup_steps) == (0.4, 7)


@pytest.mark.parametrize(
    ("objective", "argument"),
    [
        (Objective("simcse", ["1x=2"]), "--set"),
        (Objective("slt-fai", base="adcse", base_set=["nonsense=1"]), "--base-set"),
        (Objective("slt-fai", ["warmup_steps=7"], warmup_epochs=0.5), "--warmup-epochs"),
        (Objective("simcse", ["mini_batch_size=7"], 5), "--mini-batch-size"),
    ],
)
def test_a_setting_is_refused_by_its_option_before_an_encoder_is_loaded(objective, argument):
    with pytest.raises(ValueError, match=f"^{argument} must"):
        LossMaker(objective)


def test_without_a_mask_token_paser_deletes_phrases_if_it_may():
    with pytest.raises(ValueError, match="--set on_missing_mask=delete --set mlm_weight=0"):
        phrase_masking(Objective("paser"), None)
    masking = phrase_masking(Objective("paser", ["on_missing_mask=delete", "mlm_weight=0"]), None)
    rows = masked_rows(masking, SENTENCES, None)
    assert len(rows) >= len(SENTENCES)
    for sentence, masked, phrase in zip(rows["sentence"], rows["masked"], rows["phrase"], strict=True):
        assert sorted(masked.split() + phrase.split()) == sorted(sentence.split())
