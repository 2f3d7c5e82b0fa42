"""Baselines that train nothing, as plain loops; losses by others: the rows that they get, and what they train."""

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from benchmarks import building, training, word_baselines
from benchmarks.records import records
from benchmarks.studies import Options
from benchmarks.texts import DEV, write_counts
from st_extras.evaluation import SEVEN_STS, STSDataset
from st_extras.text.frequency import FrequencyTable
from tests.fixtures import SENTENCES, build_encoder

OTHERS = SENTENCES[3:] + SENTENCES[:3]
GOLDS = [0.0, 4.0, 3.0, 1.0, 2.5, 5.0, 0.5, 2.0]
PAIRS = STSDataset("pairs", SENTENCES, OTHERS, GOLDS, ["x"] * 8)


def pooled(model: Any, text: str, weights: dict[int, float]) -> np.ndarray:
    """The weighted mean of the embeddings of a text's tokens before the first layer."""
    table = model.transformers_model.get_input_embeddings().weight.detach().double().numpy()
    ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    return sum(weights[i] * table[i] for i in ids) / sum(weights[i] for i in ids)


def cosines(first: list[np.ndarray], second: list[np.ndarray]) -> list[float]:
    return [a @ b / math.sqrt((a @ a) * (b @ b)) for a, b in zip(first, second, strict=True)]


def test_sif_weighs_tokens_by_the_counts_of_its_text_and_leaves_out_the_first_direction(encoder, monkeypatch):
    text = [*SENTENCES, *SENTENCES[:3], SENTENCES[0]]
    ids = [i for one in text for i in encoder.tokenizer(one, add_special_tokens=False)["input_ids"]]
    a, size = 1e-3, len(encoder.tokenizer)
    weights = {token: a / (a + ids.count(token) / len(ids)) for token in range(size)}
    even = dict.fromkeys(range(size), 1.0)
    embeddings = word_baselines.embeddings_of(encoder)
    for found, by in (
        (word_baselines.mean_cosines(embeddings), even),
        (word_baselines.fitted_baseline("sif", encoder, text), weights),
    ):
        sides = [[pooled(encoder, one, by) for one in side] for side in (SENTENCES, OTHERS)]
        np.testing.assert_allclose(found(SENTENCES, OTHERS), cosines(*sides))
    monkeypatch.setattr(word_baselines, "DIRECTIONS", 5)
    rows = np.array([pooled(encoder, one, weights) for one in text[:5]])
    direction = np.linalg.svd(rows)[2][0]
    sides = [
        [(v := pooled(encoder, one, weights)) - (v @ direction) * direction for one in side]
        for side in (SENTENCES, OTHERS)
    ]
    removed = word_baselines.fitted_baseline("sif_removed", encoder, text)
    np.testing.assert_allclose(removed(SENTENCES, OTHERS), cosines(*sides), atol=1e-8)
    assert removed(["", SENTENCES[0]], [SENTENCES[0], ""]).tolist() == [0, 0], "no token, no direction"


def test_tfidf_knows_the_words_of_its_text_alone():
    found = word_baselines.fitted_baseline("words", None, ["aa bb", "aa cc"])  # type: ignore[arg-type]
    a, b = 1.0, math.log(3 / 2) + 1
    expected = [1 / math.hypot(a, b), b * (1 + math.log(2)) / math.hypot(a, b * (1 + math.log(2))), 0, 0]
    assert found(["aa bb", "bb bb aa", "bb", "dd"], ["aa dd", "bb", "cc", "dd"]).tolist() == pytest.approx(expected)
    characters = word_baselines.fitted_baseline("characters", None, ["abc", "abd"])  # type: ignore[arg-type]
    assert 0 < characters(["abc"], ["ab"])[0] < 1


def test_each_baseline_has_a_record_for_each_text_and_encoder(encoder, tmp_path, monkeypatch, capsys):
    """Of each text its first sentences; an encoder that is not there is left out, with a line."""
    files = {"wiki": "wiki.txt", "sts": "sts.txt"}
    for name, text in {"wiki": SENTENCES, "sts": OTHERS}.items():
        (tmp_path / files[name]).write_text("\n".join(text), encoding="utf8")
    turned = {
        name: STSDataset(name, OTHERS, SENTENCES, GOLDS[i:] + GOLDS[:i], ["x"] * 8) for i, name in enumerate(SEVEN_STS)
    }
    sets = turned | {DEV: PAIRS}
    monkeypatch.setattr(word_baselines, "BASELINE_TEXTS", files)
    monkeypatch.setattr(word_baselines, "FITTED", 6)
    monkeypatch.setattr(word_baselines, "PRETRAINED", {"own": str(tmp_path / "none")})
    monkeypatch.setattr("benchmarks.studies.PRETRAINED", {"own": str(tmp_path / "none")})
    monkeypatch.setattr(word_baselines, "load_sts", lambda name, data: sets[name])
    monkeypatch.setattr(word_baselines, "load_encoder", lambda path, **given: encoder)
    word_baselines.run({"name": "floors"}, Options(tmp_path, tmp_path, tmp_path))
    assert "own: left out, there is no " in capsys.readouterr().out
    found = {one["run"]: one for one in records("floors", root=tmp_path)}
    embeddings = word_baselines.embeddings_of(encoder)
    expected = {"minilm-mean": word_baselines.mean_cosines(embeddings)}
    for name, text in {"wiki": SENTENCES[:6], "sts": OTHERS[:6]}.items():
        expected |= {
            f"{kind}-{name}": word_baselines.tfidf_cosines(word_baselines.TFIDF[kind], text)
            for kind in ("words", "characters")
        }
        for kind in ("sif", "sif_removed"):
            expected[f"minilm-{kind}-{name}"] = word_baselines.fitted_baseline(kind, encoder, text)
    assert found.keys() == expected.keys()
    for run, of in expected.items():
        record = found[run]
        scores = {
            name: 100 * spearmanr(of(one.sentences1, one.sentences2), one.scores).statistic
            for name, one in sets.items()
        }
        assert record["dev"] == pytest.approx(scores.pop(DEV))
        assert record["scores"] == pytest.approx(scores)
        assert record["average"] == pytest.approx(np.mean(list(scores.values())))
        kind, _, text = run.removeprefix("minilm-").partition("-")
        assert (record["kind"], record["text"], record["sentences"]) == (kind, text, 6 if text else 0)
        assert record["encoder"] == ("minilm" if run.startswith("minilm") else "")


def test_a_baseline_of_a_study_is_scored_in_place_of_its_encoder(encoder):
    found = training.scores_of(
        encoder, {"baseline": "sif"}, PAIRS, [STSDataset("t", OTHERS, SENTENCES, GOLDS, ["x"] * 8)], SENTENCES
    )
    of = word_baselines.fitted_baseline("sif", encoder, SENTENCES)
    assert found["dev"] == pytest.approx(100 * spearmanr(of(SENTENCES, OTHERS), GOLDS).statistic)
    assert found["scores"]["t"] == pytest.approx(100 * spearmanr(of(OTHERS, SENTENCES), GOLDS).statistic)


def test_the_rows_of_a_loss_have_the_options_and_the_seed_of_the_study(encoder):
    method = {"loss": "DenoisingAutoEncoderLoss", "rows": {"deleted": 0.0}}
    assert list(building.training_rows(encoder, method, SENTENCES, 1)["damaged"]) == SENTENCES
    of_seeds = [building.training_rows(encoder, {"loss": "ContrastiveTensionLoss"}, SENTENCES, seed) for seed in (1, 2)]
    for seed, rows in zip((1, 2), of_seeds, strict=True):
        assert rows.to_dict() == building.tension_pairs(SENTENCES, seed).to_dict()
    assert building.training_rows(encoder, {"loss": "SimCSELoss"}, SENTENCES, 1) is SENTENCES


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ({"loss": "SimCSELoss"}, True),
        ({"loss": "GISTEmbedLoss"}, True),
        ({"loss": "PaSeRLoss", "masking": {}}, False),
        ({"loss": "PaSeRLoss", "masking": {}, "base": {"loss": "SimCSELoss"}}, True),
        ({"loss": "ContrastiveTensionLoss"}, False),
        ({"loss": "DenoisingAutoEncoderLoss", "rows": {}}, False),
    ],
)
def test_equal_sentences_must_not_meet_where_a_batch_is_its_own_negatives(method, expected):
    assert building.has_negatives(method) == expected


def test_token_counts_are_read_from_the_data_or_from_a_pre_training_or_counted(encoder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data, runs = Path("data"), Path("runs")
    tables = {
        name: FrequencyTable.count(text, encoder.tokenizer)
        for name, text in {"all": SENTENCES, "few": SENTENCES[:2]}.items()
    }
    for folder in (data, runs):
        folder.mkdir()
    tables["all"].save(data / "a.json.gz")
    tables["few"].save(data / "b.json")
    write_counts(tables["few"], data / "c.tsv.gz")
    write_counts(tables["all"], runs / "d.tsv.gz")
    named = {"a.json.gz": "all", "b.json": "few", "c.tsv.gz": "few", "runs/d.tsv.gz": "all", building.COUNTED: "few"}
    for name, expected in named.items():
        found = building.frequency_table(encoder, {"frequencies": name}, SENTENCES[:2], data)
        assert torch.equal(found.counts, tables[expected].counts), name


def test_the_complementary_encoder_is_the_one_of_its_method(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "loss_class", lambda name: lambda model, **options: options)
    weights = {name: tmp_path / name for name in ("simcse", "other")}
    for seed, folder in enumerate(weights.values(), 1):
        build_encoder(folder / "made", seed=seed).save(str(folder))
    method = {"loss": "DCLRLoss", "options": {"threshold": 0.5}}
    for name, folder in weights.items():
        made: Any = building.make_loss(encoder, method | {"complementary": name}, SENTENCES, weights, tmp_path)
        table = building.EmbeddingTable.compute(
            encoder, building.load_encoder(folder), SENTENCES, show_progress_bar=False
        )
        assert (made.keys(), made["threshold"]) == ({"threshold", "complementary_table"}, 0.5)
        torch.testing.assert_close(made["complementary_table"].embeddings, table.embeddings)
    assert method["options"] == {"threshold": 0.5}, "the study's own settings stay"


@pytest.mark.parametrize("tied", [True, False])
def test_the_decoder_of_tsdae_starts_from_the_encoders_own_weights(encoder, tied):
    """Whatever it was loaded from, whose name stays."""
    transformer = encoder.transformers_model
    name = transformer.config._name_or_path
    with torch.no_grad():
        transformer.get_input_embeddings().weight.mul_(3)
    options = {} if tied else {"tie_encoder_decoder": False}
    loss: Any = building.denoising_loss(encoder, **options)
    own = transformer.get_input_embeddings().weight
    decoders = loss.decoder.get_input_embeddings().weight
    torch.testing.assert_close(decoders, own)
    assert (decoders.data_ptr() == own.data_ptr()) == tied
    assert encoder.transformers_model.config._name_or_path == name


def test_making_a_loss_or_its_rows_leaves_the_settings_of_the_study(encoder, tmp_path):
    method = {
        "loss": "SLTFAILoss", "frequencies": building.COUNTED, "options": {"mask_ratio": 0.3}, "batch_size": 4,
        "warmup_epochs": 1.0, "base": {"loss": "SimCSELoss", "options": {"temperature": 0.1}},
        "masking": {"top_k": 1, "synonym_ratio": 0.0}, "rows": {},
    }  # fmt: skip
    before = copy.deepcopy(method)
    loss: Any = building.make_loss(encoder, method, SENTENCES, {}, tmp_path)
    building.training_rows(encoder, method, SENTENCES, 0)
    assert method == before
    assert loss.warmup_steps == 2
    build_encoder(tmp_path / "encoder")
    settings = {"path": str(tmp_path / "encoder"), "pooling": "cls"}
    building.starting_encoder(settings)
    assert settings.keys() == {"path", "pooling"}


def test_damaged_rows_keep_some_of_the_words_in_order():
    rows = building.damaged(SENTENCES, seed=0)
    assert list(rows["text"]) == SENTENCES
    for noisy, text in zip(rows["damaged"], SENTENCES, strict=True):
        words = iter(text.split())
        assert noisy
        assert all(word in words for word in noisy.split()), "other words, or in another order"
    kept, whole = (sum(len(text.split()) for text in rows[column]) for column in ("damaged", "text"))
    assert 0.2 < kept / whole < 0.6
    assert list(rows["damaged"]) != list(building.damaged(SENTENCES, seed=1)["damaged"])
    short = [f"only{number}" for number in range(20)]
    assert list(building.damaged(short, seed=0)["damaged"]) == short, "a word is left of each"


def test_an_eighth_of_the_rows_of_contrastive_tension_are_a_sentence_twice():
    text = [f"sentence {number}" for number in range(20_000)]
    rows = building.tension_pairs(text, seed=0)
    assert list(rows["first"]) == text
    same = sum(one == other for one, other in zip(rows["first"], rows["second"], strict=True)) / len(text)
    assert same == pytest.approx(1 / 8, abs=0.008)
    assert set(rows["second"]) <= set(text)


def test_the_guide_of_gist_is_frozen(encoder, tmp_path):
    encoder.save(str(tmp_path / "simcse"))
    method = {"loss": "GISTEmbedLoss", "complementary": "simcse", "options": {"margin": 0.1}}
    loss: Any = building.make_loss(encoder, method, SENTENCES, {"simcse": tmp_path / "simcse"}, tmp_path)
    assert loss.margin == 0.1
    assert not any(parameter.requires_grad for parameter in loss.guide.parameters())
    assert not loss.guide.training
