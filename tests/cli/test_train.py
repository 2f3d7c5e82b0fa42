"""``st-extras train``: every objective, what chooses the weights, resuming, and one line for every mistake."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from st_extras.cli.objectives import BASES
from st_extras.encoders.loading import load_encoder
from st_extras.evaluation import SEVEN_STS, UnlabeledSelectionEvaluator, sts_evaluator
from tests.cli.conftest import Run
from tests.conftest import SENTENCES
from tests.encoders.decoders import build_decoder
from tests.helpers import differing, snapshot

TRAIN = ("train", "dclr", "ENC", "TEXT", "-o", "out", "--batch-size", 4, "--lr", 1e-2)
SMALL = ("--batch-size", 4, "--quiet", "--json")
FOUR_STEPS = ("--steps", 4, "--eval-steps", 2)


@pytest.fixture(scope="module")
def frequencies(run_in: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Token counts of the text."""
    folder = tmp_path_factory.mktemp("frequencies")
    assert run_in(folder, "frequencies", "count", "ENC", "TEXT", "-o", "table.json", "--quiet")[0] == 0
    return folder / "table.json"


@pytest.fixture(scope="module")
def without_dev(run_in: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder and the stdout of a training of four steps that keeps its last weights."""
    folder = tmp_path_factory.mktemp("without_dev")
    code, out, err = run_in(folder, *TRAIN, *FOUR_STEPS, "--quiet")
    assert code == 0, err
    return folder, out


class TestReport:
    def test_json_report_with_dev_and_test_sets(self, run: Run, inputs: Path) -> None:
        code, out, err = run(*TRAIN, *FOUR_STEPS, "--dev", "STS", "--test", "STS", "--json")
        assert code == 0, err
        report = json.loads(out)  # nothing else on stdout, progress or not
        names = {*SEVEN_STS, "average", "stsb_dev"}
        assert report["before"].keys() == report["after"].keys() == names
        assert (report["steps"], report["output"]) == (4, "out")
        steps, scores = zip(*report["curve"], strict=True)
        assert steps == (0, 2, 4)
        best = 1 + int(np.argmax(scores[1:]))
        assert report["best_step"] == steps[best]
        assert report["after"]["stsb_dev"] == pytest.approx(100 * scores[best])
        assert report["before"]["stsb_dev"] == pytest.approx(100 * scores[0])
        model = SentenceTransformer("out", device="cpu")
        for name in ("stsb_dev", "sts14"):
            again = sts_evaluator(name, inputs)(model)[f"{name}_spearman_cosine"]
            assert report["after"][name] == pytest.approx(100 * again)
            start = sts_evaluator(name, inputs)(load_encoder(inputs / "encoder", device="cpu"))
            assert report["before"][name] == pytest.approx(100 * start[f"{name}_spearman_cosine"])

    def test_a_file_of_ones_own_is_called_by_its_name(self, run: Run, inputs: Path) -> None:
        shutil.copy(inputs / "stsb_dev.tsv", "mine.tsv")
        shutil.copy(inputs / "sts14.tsv", "other.tsv")
        words = (*TRAIN, "--steps", 2, "--json", "--overwrite", "--dev", "mine.tsv")
        for more, names in (
            ((), {"mine"}),
            (("--test", "other.tsv"), {"other", "mine"}),
            (("--test", "mine.tsv"), {"mine", "mine (dev)"}),
            (("--dev-set", "held out"), {"held out"}),
        ):
            code, out, err = run(*words, *more)
            assert code == 0, err
            report = json.loads(out)
            assert report["before"].keys() == report["after"].keys() == names

    def test_table(self, run: Run) -> None:
        code, out, _ = run(*TRAIN, "--steps", 2, "--dev", "STS", "--quiet")
        assert code == 0
        assert [word in out for word in ("before", "after", "stsb_dev", "weights of step 2 of 2")] == [True] * 4
        assert "saved to out" in out
        assert "No --dev" not in out

    def test_without_dev_it_says_so(self, without_dev: tuple[Path, str]) -> None:
        out = without_dev[1]
        assert "4 steps in" in out
        assert "No --dev: the last weights will be kept" in out


class TestTraining:
    def test_several_files_columns_and_limit(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "more.jsonl").write_text('{"body": "a cat"}\n{"body": "a dog"}\n{"body": "a bird"}\n')
        (tmp_path / "more.csv").write_text("body,id\nthe rain,1\n")
        words = ("train", "simcse", "ENC", tmp_path / "more.jsonl", tmp_path / "more.csv", "-o", "out")
        words = (*words, "--column", "body", "--batch-size", 1, "--json")
        code, out, err = run(*words)
        assert (code, json.loads(out)["steps"]) == (0, 4), err
        code, out, _ = run(*words, "--limit", 3, "--overwrite", "--epochs", 2)
        assert (code, json.loads(out)["steps"]) == (0, 6)

    def test_resuming_ends_with_the_same_weights(self, run: Run, without_dev: tuple[Path, str]) -> None:
        whole = without_dev[0] / "out"
        shutil.copytree(whole / "checkpoints" / "checkpoint-2", "out/checkpoints/checkpoint-2")
        code, _, err = run(*TRAIN, *FOUR_STEPS)
        assert (code, "output must be a new or empty folder" in err) == (2, True)
        code, out, err = run(*TRAIN, *FOUR_STEPS, "--resume", "--json")
        assert (code, json.loads(out or "{}").get("steps")) == (0, 4), err
        resumed = load_file("out/model.safetensors")
        assert differing(load_file(whole / "model.safetensors"), resumed) == set()
        assert differing(load_file("out/checkpoints/checkpoint-2/model.safetensors"), resumed) != set()

    @pytest.mark.slow
    def test_saved_model_loads_where_this_package_is_not(self, run: Run) -> None:
        code, _, err = run(*TRAIN, "--steps", 1, "--pooling", "first-last", "--layers", 1, "--max-length", 8, "--quiet")
        assert code == 0, err
        script = (
            "import sys; sys.modules['st_extras'] = None\n"
            "try:\n    import st_extras\nexcept ImportError:\n    pass\nelse:\n    raise SystemExit('not hidden')\n"
            "import numpy as np\n"
            "from sentence_transformers import SentenceTransformer\n"
            f"np.save('there.npy', SentenceTransformer('out', device='cpu').encode({SENTENCES!r}))\n"
        )
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([sys.executable, "-c", script], env=environment, check=True, capture_output=True)
        here = SentenceTransformer("out", device="cpu")
        np.testing.assert_allclose(np.load("there.npy"), here.encode(SENTENCES), atol=1e-6)
        assert (here.max_seq_length, len(here[0].auto_model.encoder.layer)) == (8, 1)

    def test_weights_chosen_without_labels(self, run: Run) -> None:
        text = [f"{first} and {second}" for first in SENTENCES for second in SENTENCES]
        Path("more.txt").write_text("\n".join(text))
        options = ("--steps", 6, "--eval-steps", 2, "--lr", 1e-2, "--length-buckets", 2)
        code, out, err = run("train", "simcse", "ENC", "more.txt", "-o", "out", "--dev", "unlabeled", *options, *SMALL)
        assert code == 0, err
        report = json.loads(out)
        assert [step for step, _ in report["curve"]] == [0, 2, 4, 6]
        trained = dict(report["curve"][1:])
        assert report["best_step"] == max(trained, key=trained.__getitem__)
        evaluator = UnlabeledSelectionEvaluator(text)
        kept = evaluator(SentenceTransformer("out", device="cpu"))[str(evaluator.primary_metric)]
        assert kept == pytest.approx(max(trained.values()), abs=1e-5)


class TestObjectives:
    @pytest.mark.parametrize("objective", BASES)
    def test_a_last_batch_of_one(self, run: Run, objective: str) -> None:
        code, out, err = run("train", objective, "ENC", "TEXT", "-o", "out", "--limit", 5, *SMALL)
        assert (code, json.loads(out or "{}").get("steps")) == (0, 2), err
        model = SentenceTransformer("out", device="cpu")
        assert all(bool(value.isfinite().all()) for value in snapshot(model).values())
        assert np.isfinite(model.encode(SENTENCES)).all()

    def test_settings_of_the_loss(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        from st_extras import losses

        seen = {}

        make = losses.DCLRLoss.__init__

        @functools.wraps(make)
        def spy(self, model, **options):
            seen.update(options)
            make(self, model, **options)

        monkeypatch.setattr(losses.DCLRLoss, "__init__", spy)
        settings = (
            "threshold=0.5",
            "noise_steps=2",
            "noise_norm=unit",
            "include_positive=False",
            "noise_temperature=null",
        )
        code, _, err = run(*TRAIN, "--steps", 1, *(word for pair in settings for word in ("--set", pair)))
        assert code == 0, err
        assert seen == {
            "threshold": 0.5,
            "noise_steps": 2,
            "noise_norm": "unit",
            "include_positive": False,
            "noise_temperature": None,
        }

    @pytest.mark.parametrize("complementary", ["self", "start", "ENC"])
    def test_complementary(self, run: Run, complementary: str) -> None:
        code, _, err = run(*TRAIN, "--steps", 1, "--complementary", complementary, "--json")
        assert code == 0, err

    def test_a_share_of_the_pairs_is_masked_by_the_start(self, run: Run) -> None:
        code, _, err = run(*TRAIN, "--steps", 1, "--complementary", "start", "--set", "masked_share=0.14")
        assert code == 0, err
        card = Path("out/README.md").read_text()
        assert all(setting in card for setting in ('"complementary": "start"', '"masked_share": 0.14'))

    @pytest.mark.parametrize("base", BASES)
    def test_slt_fai_over_every_base(self, run: Run, frequencies: Path, base: str) -> None:
        code, _, err = run(
            "train", "slt-fai", "ENC", "TEXT", "-o", "out", "--frequencies", frequencies, "--base", base, *SMALL
        )
        assert code == 0, err
        assert "loss:SLTFAILoss" in Path("out/README.md").read_text()

    def test_slt_fai_warm_up_and_settings_of_the_base(self, run: Run, frequencies: Path) -> None:
        options = ("--warmup-epochs", 1.5, "--base-set", "temperature=0.3", "--set", "mask_ratio=0.4")
        code, _, err = run(
            "train", "slt-fai", "ENC", "TEXT", "-o", "out", "--frequencies", frequencies, *options, *SMALL
        )
        assert code == 0, err
        card = Path("out/README.md").read_text().replace(" ", "")
        assert '"warmup_steps":3' in card
        assert '"temperature":0.3' in card
        assert '"mask_ratio":0.4' in card

    @pytest.mark.parametrize("top_k", [None, 1])
    def test_paser_masks_as_asked(self, run: Run, top_k: int | None) -> None:
        options = ("--set", "num_decoder_layers=1")
        if top_k is None:
            options = (*options, "--loss-lr", "1e-3")
        else:
            options = (*options, "--top-k", top_k, "--augment", "rd+rs", "--set", "mlm_weight=0", "--processes", 1)
        code, out, err = run("train", "paser", "ENC", "TEXT", "-o", "out", *options, *SMALL)
        assert code == 0, err
        phrases = int(err.split(" phrases;")[0].split()[-1])
        assert (phrases == len(SENTENCES)) if top_k == 1 else (phrases > len(SENTENCES))
        assert json.loads(out)["steps"] >= 2
        assert np.isfinite(SentenceTransformer("out", device="cpu").encode(SENTENCES)).all()


SIMCSE = ("train", "simcse", "ENC", "TEXT", "-o", "out")
SLT_FAI = ("train", "slt-fai", "ENC", "TEXT", "-o", "out")
PASER = ("train", "paser", "ENC", "TEXT", "-o", "out")
MISTAKES: dict[str, tuple[tuple[object, ...], str]] = {
    "missing text": (("train", "dclr", "ENC", "none.txt", "-o", "out"), r"There is no file 'none\.txt'"),
    "empty text": (("train", "dclr", "ENC", "EMPTY", "-o", "out"), "empty.txt' holds no sentences"),
    "not UTF-8": (("train", "dclr", "ENC", "LATIN", "-o", "out"), r"latin\.txt, line 3: not UTF-8"),
    "broken line": (("train", "dclr", "ENC", "JSONL", "-o", "out"), r"broken\.jsonl, line 2: not JSON"),
    "no such column": ((*TRAIN[:3], "JSONL", *TRAIN[4:], "--column", "x"), r"broken\.jsonl, line 1 has no column x"),
    "no encoder": (("train", "dclr", "FOLDER", "TEXT", "-o", "out"), r"modules\.json"),
    "file as encoder": (("train", "dclr", "TEXT", "TEXT", "-o", "out"), "is a file: give the encoder's folder"),
    "missing encoder": (("train", "dclr", "./none", "TEXT", "-o", "out"), "could not be loaded as an encoder"),
    "unknown objective": (("train", "word2vec", "ENC", "TEXT", "-o", "out"), r"objective must be one of .*'word2vec'"),
    "threshold": ((*TRAIN, "--set", "threshold=1.5"), r"threshold .*1\.5"),
    "a share without a guide": ((*TRAIN, "--set", "masked_share=0.14"), "masked_share needs a guide"),
    "threshold, low": ((*TRAIN, "--set", "threshold=-1"), "threshold .*-1"),
    "noise": ((*TRAIN, "--set", "noise_std=-0.5"), r"noise_std .*-0\.5"),
    "temperature": ((*TRAIN, "--set", "temperature=0"), "temperature .*0"),
    "unknown setting": ((*TRAIN, "--set", "nonsense=1"), "--set must name a setting of DCLRLoss .*nonsense"),
    "no value": ((*TRAIN, "--set", "threshold"), "--set must be NAME=VALUE, got 'threshold'"),
    "steps": ((*TRAIN, "--steps", 0), "--steps, unless it is -1, must be a whole number .*, got 0"),
    "patience alone": ((*TRAIN, "--patience", 2), "patience counts evaluations and needs an evaluator, got 2"),
    "layers": ((*TRAIN, "--layers", 9), r"layers must be .*2.*9"),
    "pooling": ((*TRAIN, "--pooling", "median"), "pooling must be one of"),
    "dev folder": ((*TRAIN, "--dev", "none"), "source .*'none'"),
    "dev without set": ((*TRAIN, "--dev", "FOLDER"), "stsb_dev.tsv"),
    "dev set": ((*TRAIN, "--dev", "STS", "--dev-set", "sts99"), "name must be one of .*'sts99'"),
    "dev unlabeled": ((*SIMCSE, "--dev", "unlabeled"), "at least 10 distinct"),
    "complementary": ((*SIMCSE, "--complementary", "self"), "--complementary needs the objective dclr.*, got simcse"),
    "no such complementary": ((*TRAIN, "--complementary", "./none"), "'./none' could not be loaded as an encoder"),
    "rate of no loss": ((*SIMCSE, "--loss-lr", "1e-3"), "loss with parameters of its own, got SimCSELoss"),
    "nothing to resume": ((*TRAIN, "--resume"), "resume needs a checkpoint in 'out/checkpoints', got none"),
    "forced from the start": ((*TRAIN, "--force"), "force needs resume"),
    "output is a file": ((*TRAIN[:5], "FILE", *TRAIN[6:]), "is a file"),
    "output not empty": ((*TRAIN[:5], "FOLDER", *TRAIN[6:]), "output must be a new or empty folder, got .*overwrite"),
    "slt-fai: no table": (SLT_FAI, "slt-fai needs --frequencies"),
    "slt-fai: missing table": ((*SLT_FAI, "--frequencies", "none.json"), r"none\.json"),
    "slt-fai: base": ((*SLT_FAI, "--frequencies", "t", "--base", "mnrl"), "--base must be one of .*'mnrl'"),
    "slt-fai: base's setting": ((*SLT_FAI, "--frequencies", "t", "--base-set", "x"), "--base-set must be NAME=VALUE"),
    "paser's mini-batches": (
        (*PASER, "--mini-batch-size", 2),
        "--mini-batch-size needs the objective simcse, consert, dclr, adcse, got paser",
    ),
    "slt-fai's base": ((*SIMCSE, "--base", "simcse"), "--base needs the objective slt-fai, got simcse"),
    "paser's phrases": ((*SIMCSE, "--top-k", 2), "--top-k needs the objective paser, got simcse"),
    "adcse: adversaries": (("train", "adcse", *SIMCSE[2:], "--set", "num_adversaries=-1"), "num_adversaries"),
    "paser: phrases": ((*PASER, "--phrases", "xp"), "--phrases must be rake, or np, vp and sbar"),
    "paser: augment": ((*PASER, "--augment", "xx"), "--augment must be sr, rd and rs joined by"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing(assert_refused, mistake: str) -> None:
    assert_refused(*MISTAKES[mistake])


def test_an_encoder_without_dropout_is_told_once(run_in: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    build_decoder(tmp_path / "decoder")
    words = ("train", "simcse", "decoder", "TEXT", "-o", "out", "--steps", "2", "--batch-size", "4", "--quiet")
    assert run_in(tmp_path, *words)[0] == 0
    told = [record.getMessage() for record in caplog.records if record.name.startswith("st_extras.losses")]
    assert len(told) == 1
    assert "--dropout 0.1" in told[0]
    assert "\n" not in told[0]
    caplog.clear()
    assert run_in(tmp_path, *words, "--overwrite", "--dropout", "0.1")[0] == 0
    assert not [record for record in caplog.records if record.name.startswith("st_extras.losses")]
    saved = json.loads((tmp_path / "out" / "config.json").read_text())
    assert saved["attention_dropout"] == 0.1
