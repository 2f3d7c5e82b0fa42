"""``st-extras train``: every objective, what chooses the weights, resuming, and one line for every mistake."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from st_extras.cli.objectives import BASES
from st_extras.encoders.loading import load_encoder
from st_extras.evaluation import SEVEN_STS, UnlabeledSelectionEvaluator, sts_evaluator
from tests.cli.conftest import Run
from tests.encoders.decoders import build_decoder
from tests.fixtures import SENTENCES
from tests.helpers import differing, snapshot, some_fast

pytestmark = pytest.mark.slow

TRAIN = ("train", "dclr", "ENC", "TEXT", "-o", "out", "--batch-size", 4, "--lr", 1e-2)
SMALL = ("--batch-size", 4, "--quiet", "--json")


def trained(run: Run, *words: object) -> dict[str, Any]:
    code, out, err = run(*words, "--json")
    assert code == 0, err
    return dict(json.loads(out))  # nothing else on stdout, progress or not


def test_the_best_weights_by_a_dev_set_and_scores_before_and_after(run, inputs):
    report = trained(run, *TRAIN, "--steps", 4, "--eval-steps", 2, "--dev", "STS", "--test", "STS")
    assert report["before"].keys() == report["after"].keys() == {*SEVEN_STS, "average", "stsb_dev"}
    assert (report["steps"], report["output"]) == (4, "out")
    steps, scores = zip(*report["curve"], strict=True)
    best = int(np.argmax(scores))
    assert (steps, report["best_step"]) == ((0, 2, 4), steps[best])
    assert report["after"]["stsb_dev"] == pytest.approx(100 * scores[best])
    assert report["before"]["stsb_dev"] == pytest.approx(100 * scores[0])
    base, saved = load_encoder(inputs / "encoder", device="cpu"), SentenceTransformer("out", device="cpu")
    for state, model in (("before", base), ("after", saved)):
        again = sts_evaluator("sts14", inputs)(model)["sts14_spearman_cosine"]
        assert report[state]["sts14"] == pytest.approx(100 * again)


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ((), {"mine"}),
        (("--test", "other.tsv"), {"other", "mine"}),
        (("--test", "mine.tsv"), {"mine", "mine (dev)"}),
        (("--dev-set", "held out"), {"held out"}),
        (("--dev-set", "stsb_dev"), {"mine"}),
    ],
)
def test_a_users_file_is_called_by_its_name(run, inputs, more, names):
    shutil.copy(inputs / "stsb_dev.tsv", "mine.tsv")
    shutil.copy(inputs / "sts14.tsv", "other.tsv")
    report = trained(run, *TRAIN, "--steps", 1, "--dev", "mine.tsv", *more)
    assert report["before"].keys() == report["after"].keys() == names


@pytest.mark.parametrize(
    ("objective", "options", "message"),
    [
        ("simcse", ("--set", "temperature=0"), r"temperature .*0"),
        ("dclr", ("--set", "threshold=1.5"), r"threshold .*1\.5"),
        ("paser", ("--set", "mlm_weight=-1"), "mlm_weight .*-1"),
        ("paser", ("--set", "on_missing_mask=x"), "on_missing_mask .*x"),
        ("paser", ("--phrases", "xp"), "--phrases must be rake, or np, vp and sbar"),
        ("paser", ("--augment", "xx"), "--augment must be sr, rd and rs joined by"),
        ("paser", ("--language", "klingon"), "klingon"),
        ("paser", ("--top-k", 10**7), "--top-k .*10000000"),
        ("slt-fai", ("--frequencies", "t"), "'t': No such file"),
        ("slt-fai", ("--frequencies", "TABLE", "--base-set", "temperature=0"), "temperature .*0"),
        ("slt-fai", ("--frequencies", "TABLE", "--set", "mask_ratio=2"), "mask_ratio .*2"),
        ("slt-fai", ("--frequencies", ""), "slt-fai needs --frequencies: a file"),
        ("dclr", ("--complementary", "./none"), "'./none' could not be loaded as an encoder"),
        ("simcse", ("--patience", 2), "--patience needs --dev"),
        ("simcse", ("--loss-lr", "1e-3"), "--loss-learning-rate needs a loss with its own parameters, got SimCSELoss"),
        ("simcse", ("--layers", 9), r"--layers must be .*2.*9"),
    ],
)
def test_a_setting_is_refused_before_the_text_is_read(
    assert_refused, monkeypatch, inputs, run, objective, options, message
):
    table = inputs.parent / "table.json"
    if "TABLE" in options and not table.exists():
        assert run("frequencies", "count", "ENC", "TEXT", "-o", table, "--quiet")[0] == 0

    def read(*_: object, **__: object) -> Any:
        yield pytest.fail("read")

    monkeypatch.setattr("st_extras.text.corpus.stream_sentences", read)
    words = (table if word == "TABLE" else word for word in options)
    assert_refused(("train", objective, *TRAIN[2:6], *words), message)


def test_text_of_several_files_a_table_and_resuming_to_the_same_weights(run, tmp_path):
    (tmp_path / "more.jsonl").write_text('{"body": "a cat"}\n{"body": "a dog"}\n{"body": "a bird"}\n')
    (tmp_path / "more.csv").write_text("body,id\nthe rain,1\n")
    words = ("train", "simcse", "ENC", tmp_path / "more.jsonl", tmp_path / "more.csv", "--column", "body")
    words = (*words, "--batch-size", 2, "--epochs", 2, "--eval-steps", 2, "--lr", 1e-2)
    code, out, err = run(*words, "-o", "whole", "--quiet")
    assert (code, "4 steps in" in out, "saved to whole" in out, "No --dev: the last weights" in out) == (0, *[True] * 3)
    shutil.copytree("whole/checkpoints/checkpoint-2", "out/checkpoints/checkpoint-2")
    code, _, err = run(*words, "-o", "out")
    assert (code, "output must be a new or empty folder" in err) == (2, True)
    code, out, err = run(*words, "-o", "out", "--resume", "--quiet")
    at = Path("out/checkpoints/checkpoint-2")
    assert (code, f"Resuming after step 2, from {at}.\n" in out, "4 steps in" in out) == (0, True, True), err
    resumed = load_file("out/model.safetensors")
    assert differing(load_file("whole/model.safetensors"), resumed) == set()
    assert differing(load_file("out/checkpoints/checkpoint-2/model.safetensors"), resumed) != set()
    assert trained(run, *words, "-o", "out", "--overwrite", "--limit", 2)["steps"] == 2


def test_the_saved_model_needs_sentence_transformers_alone(run):
    trained(run, *TRAIN, "--steps", 1, "--pooling", "first-last", "--layers", 2, "--max-length", 8)
    assert "st_extras" not in Path("out/modules.json").read_text()
    model = SentenceTransformer("out", device="cpu")
    assert (model.max_seq_length, len(model[0].auto_model.encoder.layer)) == (8, 2)


def test_weights_chosen_without_labels(run):
    text = [f"{first} and {second}" for first in SENTENCES for second in SENTENCES]
    Path("more.txt").write_text("\n".join(text))
    words = ("train", "simcse", "ENC", "more.txt", "-o", "out", "--dev", "unlabeled", "--batch-size", 4)
    report = trained(run, *words, "--steps", 4, "--eval-steps", 2, "--lr", 1e-2, "--length-buckets", 2)
    steps = dict(report["curve"][1:])
    assert (report["before"], [*steps], report["best_step"]) == ({}, [2, 4], max(steps, key=steps.__getitem__))
    evaluator = UnlabeledSelectionEvaluator(text)
    kept = evaluator(SentenceTransformer("out", device="cpu"))[str(evaluator.primary_metric)]
    assert kept == pytest.approx(max(steps.values()), abs=1e-5)


# ------------------------------------------------------------------------------------------- objectives


@pytest.mark.parametrize("objective", some_fast(BASES, ["dclr"]))
def test_a_last_batch_of_one(run, objective):
    assert trained(run, "train", objective, "ENC", "TEXT", "-o", "out", "--limit", 5, *SMALL)["steps"] == 2
    model = SentenceTransformer("out", device="cpu")
    assert all(bool(value.isfinite().all()) for value in snapshot(model).values())


def test_slt_fai_over_another_base(run):
    assert run("frequencies", "count", "ENC", "TEXT", "-o", "table.json", "--quiet")[0] == 0
    options = ("--base", "consert", "--warmup-epochs", 1.5, "--base-set", "temperature=0.3", "--set", "mask_ratio=0.4")
    trained(run, "train", "slt-fai", "ENC", "TEXT", "-o", "out", "--frequencies", "table.json", *options, *SMALL)
    card = Path("out/README.md").read_text().replace(" ", "")
    assert [text in card for text in ('"warmup_steps":3', '"temperature":0.3', '"mask_ratio":0.4')] == [True] * 3
    assert [f"loss:{name}" in card for name in ("SLTFAILoss", "ConSERTLoss")] == [True, False]


@pytest.mark.parametrize(
    ("options", "exactly"),
    [(("--loss-lr", "1e-3"), False), (("--top-k", 1, "--augment", "rd+rs", "--set", "mlm_weight=0"), True)],
)
def test_paser_masks_as_asked(run, options, exactly):
    words = ("train", "paser", "ENC", "TEXT", "-o", "out", *options, "--set", "num_decoder_layers=1", "--steps", 1)
    code, _, err = run(*words, *SMALL)
    assert code == 0, err
    phrases = int(err.split(" phrases;")[0].split()[-1])
    assert (phrases == len(SENTENCES)) if exactly else (phrases > len(SENTENCES))


def test_an_encoder_without_dropout_is_refused_by_equal_views(run, caplog):
    build_decoder(Path("decoder"))
    words = ("train", "simcse", "decoder", "TEXT", "-o", "out", "--steps", 1, "--batch-size", 4, "--quiet")

    code, _, err = run(*words)
    assert (code, "same vector twice" in err, Path("out").exists()) == (2, True, False)
    (message,) = [record.getMessage() for record in caplog.records if record.name.startswith("st_extras.losses")]
    assert "load the encoder with --dropout 0.1" in message
    assert "load the encoder with --dropout 0.1" in err
    caplog.clear()
    assert run(*words, "--dropout", "0.1")[0] == 0
    assert "same vector twice" not in caplog.text
    assert json.loads(Path("out/config.json").read_text())["attention_dropout"] == 0.1


# ------------------------------------------------------------------------------------------- mistakes

SIMCSE = ("train", "simcse", *TRAIN[2:6])
SLT_FAI = ("train", "slt-fai", *TRAIN[2:6], "--frequencies", "t")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*SIMCSE[:3], "EMPTY", *SIMCSE[4:]), "empty.txt' holds no sentences"),
        ((*SIMCSE[:3], "JSONL", *SIMCSE[4:], "--column", "x"), r"broken\.jsonl, line 1 has no column x"),
        ((*SIMCSE[:2], "./none", *SIMCSE[3:]), "could not be loaded as an encoder"),
        (("train", "word2vec", *SIMCSE[2:]), r"OBJECTIVE must be one of .*'paser', got 'word2vec'"),
        ((*TRAIN, "--set", "masked_share=0.14"), "masked_share needs a guide"),
        ((*TRAIN, "--set", "nonsense=1"), "--set must name a setting of DCLRLoss .*nonsense"),
        ((*SIMCSE, "--pooling", "median"), "--pooling must be one of"),
        ((*SIMCSE, "--lora", "8", "--dtype", "int8"), "--dtype must be one of"),
        ((*SIMCSE, "--dev", "none"), "source .*'none'"),
        ((*SIMCSE, "--dev", "STS", "--dev-set", "sts99"), "name must be one of .*'sts99'"),
        ((*SIMCSE, "--dev", "unlabeled"), "at least 10 distinct"),
        ((*SIMCSE, "--steps", "4", "--epochs", "1"), r"--epochs does not go with --steps: train for one of them\."),
        ((*SIMCSE, "--column", "text"), r"--column is not for \.txt files: each of their lines is a sentence\."),
        ((*SIMCSE, "--dev-set", "stsb_dev"), r"--dev-set needs --dev with labelled pairs\."),
        ((*SIMCSE, "--dev", "unlabeled", "--dev-set", "x"), "--dev-set needs --dev with labelled pairs"),
        ((*SIMCSE, "--resume"), "--resume needs a checkpoint in 'out/checkpoints', got none"),
        ((*SIMCSE, "--force"), "--force needs --resume"),
        ((*SIMCSE[:5], "FOLDER"), r"--output must be a new or empty folder, got .* or set --overwrite\."),
        (SLT_FAI[:6], "slt-fai needs --frequencies"),
        ((*SLT_FAI, "--base", "mnrl"), "--base must be one of .*'mnrl'"),
        ((*SLT_FAI, "--base-set", "x"), "--base-set must be NAME=VALUE"),
        ((*SLT_FAI, "--mini-batch-size", 2), "--mini-batch-size needs the objective simcse, .*, got slt-fai"),
        ((*SLT_FAI, "--base", "simcse", "--complementary", "self"), "--complementary needs .*, got slt-fai"),
        *(
            ((*SIMCSE, option, value), rf"{option} needs the objective {owner}, got simcse\.")
            for owner, options in {
                "slt-fai": {"--frequencies": "t", "--base": "simcse", "--base-set": "a=1", "--warmup-epochs": 0},
                "paser": {"--top-k": 3, "--phrases": "rake", "--language": "de", "--augment": "rd", "--processes": 1},
            }.items()
            for option, value in options.items()
        ),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(assert_refused, words, message):
    assert_refused(words, message)
