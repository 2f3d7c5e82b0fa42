"""The study of the papers: its settings are the papers', its rows are built as the losses' tests build them."""

import copy
from typing import Any

import pytest
import torch

from benchmarks import building
from benchmarks.paper_settings import SETS, SETTINGS, TABLES
from benchmarks.studies import named_study
from st_extras import losses
from tests.fixtures import SENTENCES, build_encoder
from tests.losses.cases import build, set_decoder_dropout, total

STUDY = named_study("papers")
OF_THE_RUN = {"seeds", "post_processing", "no_duplicates"}
"""Settings that say nothing about a paper's training."""
TRAINED = [name for name, method in STUDY["methods"].items() if "loss" in method]


def flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by their whole names: ``options.threshold``."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def settings_of(name: str) -> dict[str, Any]:
    method = STUDY["training"] | STUDY["methods"][name]
    encoder = {key: value for key, value in (STUDY["encoder"] | method.get("encoder", {})).items() if key != "path"}
    used = flat({key: value for key, value in method.items() if key not in OF_THE_RUN} | {"encoder": encoder})
    if "SLTFAILoss" not in method["loss"]:
        used.pop("frequencies")
    return used


@pytest.mark.parametrize("name", SETTINGS)
def test_each_setting_is_the_papers(name):
    assert settings_of(name) == {setting: value for setting, (value, _) in SETTINGS[name].items()}


def test_each_setting_has_a_place_and_each_trained_row_its_settings():
    assert all(place for settings in SETTINGS.values() for _, place in settings.values())
    assert set(TRAINED) - set(SETTINGS) == {"recommended", "recommended-wikipedia"}, "a row without a paper's settings"


@pytest.mark.parametrize(
    ("table", "averages"),
    [
        (
            "dclr",
            {"SimCSE": 74.99, "DCLR": 76.89, "base model, [CLS]": 31.40, "base model, mean": 52.57},
        ),
        ("adcse", {"SimCSE": 76.25, "AdCSE": 77.26, "without adversaries": 76.63, "one encoder": 74.05}),
        (
            "slt-fai",
            {"SimCSE, batch 32": 74.60, "over SimCSE": 76.18, "over ConSERT": 73.29, "ConSERT, batch 32": 71.98},
        ),
        ("paser", {"PaSeR": 76.16, "SimCSE": 76.25}),
        ("repal", {"base model": 63.69, "SimCSE": 75.11, "ConSERT": 72.27, "RepAL after ConSERT": 72.69}),
        ("repal-zh", {"base model": 26.41, "RepAL after the base model": 31.06, "RepAL after SimCSE": 48.04}),
    ],
)
def test_the_figures_of_the_sets_have_the_mean_that_the_paper_prints(table, averages):
    for label, average in averages.items():
        assert TABLES[table].rows[label].average == pytest.approx(average, abs=0.011)


def test_each_row_of_a_table_is_one_of_the_study_and_has_a_figure_for_each_set():
    for table in TABLES.values():
        study = named_study(table.study)
        for row in table.rows.values():
            assert row.method in study["methods"]
            assert row.after in ("", *study["methods"][row.method].get("post_processing", []))
            assert len(row.reported) in (0, 1, len(study.get("sets", SETS)))
            assert bool(row.reported) == bool(row.place)
        for better, worse in table.claims:
            assert table.rows[better].setting == table.rows[worse].setting, "figures of one kind are compared"


LABELLED = {
    "[CLS]": ("encoder.pooling", "cls"),
    "base model, mean": ("encoder.pooling", "mean"),
    "first and last layer": ("encoder.pooling", "first-last"),
    "batch 32": ("batch_size", 32),
    "batch 128": ("batch_size", 128),
    "without noise": ("options.noise_ratio", 0.0),
    "random noise": ("options.noise_steps", 0),
    "without guide": ("guide.path", None),
    "noise and guide": ("guide.path", None),
    "self-weighting": ("options.complementary_model", "self"),
    "adversaries alone": ("options.in_batch_negatives", False),
    "without adversaries": ("options.num_adversaries", 0),
    "no adversaries": ("options.num_adversaries", 0),
    "one encoder": ("options.tied", True),
    "over SimCSE": ("base.loss", "SimCSELoss"),
    "over ConSERT": ("base.loss", "ConSERTLoss"),
    "without ISF": ("options.incomplete_weight", 0.0),
    "without AT": ("options.adversarial_weight", 0.0),
    "without synonyms": ("masking.synonym_ratio", None),
    "output layer shared": ("options.decoder_output", "tied"),
    "in SimCSE's settings": ("corpus", "wiki1m_for_simcse.txt"),
    "TF-IDF of characters": ("baseline", "characters"),
    "SIF": ("baseline", "sif_removed"),
}
"""What a part of a row's label says of its settings; None: that they lack this one."""
AFTER = {"whitened to 256": "whitened 256", "sentence term 0.3": "sentence term pooled, weight 0.3", "`adapt`": "adapt"}


@pytest.mark.parametrize("name", TABLES)
def test_the_label_of_a_row_says_what_its_records_are_of(name):
    table = TABLES[name]
    methods = named_study(table.study)["methods"]
    seen = [(row.method, row.after, row.setting) for row in table.rows.values()]
    assert len(set(seen)) == len(seen), "two rows show the same records"
    everywhere = {label: row.method for other in TABLES.values() for label, row in other.rows.items()}
    for label, row in table.rows.items():
        method = named_study(table.study)["training"] | methods[row.method]
        settings = flat(method | {"encoder": named_study(table.study)["encoder"] | method.get("encoder", {})})
        for part, (setting, value) in LABELLED.items():
            if part in label:
                assert settings.get(setting) == value, (label, part)
        assert row.method == everywhere[label], "one label, one method in all tables"
        first, _, last = label.partition(", ")
        if {first, last} <= table.rows.keys():
            assert (row.method, row.after) == (table.rows[first].method, table.rows[last].after)
        elif label.startswith("RepAL after "):
            plain = table.rows[label.removeprefix("RepAL after ").removeprefix("the ")]
            assert (row.method, row.after, row.setting) == (plain.method, "RepAL", plain.setting)
            assert plain.after == "plain"
        elif name == "ours":
            assert row.after == AFTER.get(label, "")
    weighted = {label for label, row in table.rows.items() if row.setting == "wmean"}
    assert weighted == ({"base model", "RepAL after the base model"} if name == "repal" else set()), table.note


def test_a_claim_compares_rows_of_equal_batches_of_which_the_paper_has_the_first_as_better():
    unlike, not_better = [], []
    for table in TABLES.values():
        methods, training = named_study(table.study)["methods"], named_study(table.study)["training"]
        for claim in table.claims:
            better, worse = (table.rows[label] for label in claim)
            if better.reported and worse.reported and better.average <= worse.average:
                not_better.append(claim)
            if len({(training | methods[row.method])["batch_size"] for row in (better, worse)}) > 1:
                unlike.append(claim)
    assert unlike == [("DCLR", "SimCSE")], "DCLR's paper has a batch of its own"
    assert not_better == [("PaSeR", "SimCSE")], "-0.09 in PaSeR's paper"


@pytest.mark.parametrize("name", TRAINED)
def test_a_rows_step_is_the_one_that_the_losses_tests_build(name, tmp_path):
    """``make_loss`` makes the loss that ``cases.build`` makes of the same options: equal value and gradients."""
    build_encoder(tmp_path / "encoder", layers=3)
    method = STUDY["training"] | STUDY["methods"][name] | {"frequencies": building.COUNTED}
    if "guide" in method:
        method["guide"] = method["guide"] | {"path": str(tmp_path / "encoder"), "device": "cpu"}
    encoder = STUDY["encoder"] | method.get("encoder", {}) | {"path": str(tmp_path / "encoder"), "device": "cpu"}
    model = building.starting_encoder(encoder)

    def ours(new: Any) -> Any:
        return building.make_loss(new, method, SENTENCES, {}, tmp_path)

    def theirs(new: Any) -> Any:
        options = dict(method.get("options", {}))
        if "guide" in method:
            options["complementary_model"] = building.load_encoder(**method["guide"])
        if "warmup_epochs" in method:
            options["warmup_steps"] = round(method["warmup_epochs"] * -(-len(SENTENCES) // method["batch_size"]))
        inner = method.get("base")
        base = inner and (lambda one: build(getattr(losses, inner["loss"]), one, **inner["options"]))
        return build(getattr(losses, method["loss"]), new, base=base, **options)

    def step(make: Any) -> tuple[float, list[torch.Tensor]]:
        new = copy.deepcopy(model).train()
        torch.manual_seed(3)
        loss = make(new).train()
        columns = [SENTENCES]
        if "masking" in method:  # without synonyms, which need WordNet
            set_decoder_dropout(loss.decoder, 0.0)
            rows = building.training_rows(new, method | {"masking": {"top_k": 1}}, SENTENCES, 0)
            columns = [list(rows[column]) for column in rows.column_names]
        torch.manual_seed(4)
        value = total(loss([new.preprocess(column) for column in columns]))
        value.backward()
        return value.item(), [p.grad for p in new.parameters() if p.grad is not None]

    (value, gradients), (expected, others) = step(ours), step(theirs)
    assert value == pytest.approx(expected, abs=1e-6)
    assert gradients
    for one, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    # to a random guide all sentences are alike, so that no negative is left without noise
    assert any(one.abs().sum() > 0 for one in gradients) or name == "dclr-no-noise"


@pytest.mark.parametrize("processes", [1, 2])
def test_epochs_of_warm_up_are_steps_of_the_whole_training(tmp_path, monkeypatch, processes):
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    model = build_encoder(tmp_path / "encoder")
    for name, steps in {"slt-fai": 3, "consert-slt-fai": 13}.items():  # 0.1 and 0.5 of 25 or 26 steps
        method = STUDY["training"] | STUDY["methods"][name] | {"frequencies": building.COUNTED}
        share = building.share_of_a_process(method, processes)
        loss = building.make_loss(model, share, SENTENCES * 104, {}, tmp_path)
        assert loss.warmup_steps == steps
