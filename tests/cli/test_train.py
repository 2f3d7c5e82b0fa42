"""``st-extras train``: every objective, what chooses the weights, resuming, and one line for every mistake."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from st_extras.encoders.loading import load_encoder
from st_extras.evaluation import sts_evaluator
from st_extras.losses import SimCSELoss
from tests.cli.conftest import Run, shown
from tests.encoders.decoders import build_decoder
from tests.helpers import differing

TRAIN = ("train", "dclr", "ENC", "TEXT", "-o", "out", "--batch-size", 4, "--lr", 1e-2)


def trained(run: Run, *words: object) -> dict[str, Any]:
    code, out, err = run(*words, "--json")
    assert code == 0, err
    return dict(json.loads(out))  # nothing else on stdout, progress or not


@pytest.mark.slow
def test_the_best_weights_by_a_dev_set(run, inputs):
    words = (*TRAIN, "--pooling", "first-last", "--steps", 4, "--eval-steps", 2, "--dev", "STS")
    report = trained(run, *words)
    assert (report["steps"], report["output"]) == (4, "out")
    steps, scores = zip(*report["curve"], strict=True)
    assert (steps, report["best_step"]) == ((0, 2, 4), steps[int(np.argmax(scores))])
    assert "st_extras" not in Path("out/modules.json").read_text()
    saved = SentenceTransformer("out", device="cpu")
    base = load_encoder(inputs / "encoder", device="cpu", pooling="first-last")
    for score, model in ((scores[0], base), (max(scores), saved)):
        assert score == pytest.approx(sts_evaluator("stsb_dev", inputs)(model)["stsb_dev_spearman_cosine"])
    code, out, _ = run(*words, "--overwrite", "--quiet")
    kept = f"of 4 (stsb_dev_spearman_cosine: {scores[0]:.4f} before training, {max(scores):.4f} at best) in"
    assert (code, kept in out) == (0, True), out


def test_a_users_file_is_called_by_its_name(run, inputs):
    shutil.copy(inputs / "stsb_dev.tsv", "mine.tsv")
    code, out, err = run(*TRAIN, "--steps", 1, "--dev", "mine.tsv", "--quiet")
    first, last = out.splitlines()
    assert (code, first) == (0, "Text: 8 sentences, such as 'a cat sat on the mat'."), err
    kept = r"weights of step [01] of 1 \(mine_spearman_cosine: 0\.\d{4} before training, 0\.\d{4} at best\)"
    assert re.fullmatch(rf"{kept} in \d+ s, saved to out\.", last)
    code, out, err = run(*TRAIN, "--steps", 1, "--overwrite", "--quiet")
    first, warning, last = out.splitlines()
    assert warning == "No --dev: the last weights will be kept, though contrastive training peaks early."
    assert re.fullmatch(r"1 step in \d+ s, saved to out\.", last)


@pytest.mark.parametrize(("score", "warned"), [(69.9, False), (70.1, True)])
def test_a_good_encoder_is_warned_of(run, monkeypatch, score, warned):
    monkeypatch.setattr("st_extras.samples.graded_spearman", lambda model: score)
    code, _, err = run(*TRAIN, "--steps", 1, "--quiet")
    assert (code, "st-extras adapt" in err) == (0, warned), err


@pytest.mark.slow
def test_text_of_several_files_a_table_and_resuming_to_the_same_weights(run, tmp_path, monkeypatch):
    (tmp_path / "more.jsonl").write_text('{"body": "a cat"}\n{"body": "a dog"}\n{"body": "a bird"}\n')
    (tmp_path / "more.csv").write_text("body,id\nthe rain,1\n")
    words = ("train", "simcse", "ENC", tmp_path / "more.jsonl", tmp_path / "more.csv", "--column", "body")
    words = (*words, "--batch-size", 2, "--trainer", "num_train_epochs=2", "--eval-steps", 2, "--lr", 1e-2)
    code, out, _ = run(*words, "-o", "whole", "--quiet")
    printed = ("Text: 4 sentences, such as 'a cat'.", "4 steps in", "saved to whole", "No --dev: the last weights")
    assert (code, [text in out for text in printed]) == (0, [True] * 4)
    calls: list[int] = []

    def interrupted(self: SimCSELoss, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) > 3:
            raise RuntimeError("the machine fails")
        return forward(self, *arguments)

    forward = SimCSELoss.forward
    with monkeypatch.context() as patch:
        patch.setattr(SimCSELoss, "forward", interrupted)
        assert run(*words, "-o", "out", "--quiet")[0] != 0
    assert Path("out.checkpoints/checkpoint-2").is_dir()
    assert run(*words, "-o", "out")[0] == 2
    code, out, err = run(*words, "-o", "out", "--resume", "--quiet")
    assert (code, "4 steps in" in out) == (0, True), err
    assert differing(load_file("whole/model.safetensors"), load_file("out/model.safetensors")) == set()
    assert not Path("out.checkpoints").exists()
    assert trained(run, *words, "-o", "out", "--overwrite", "--limit", 2)["steps"] == 2


def test_an_encoder_without_dropout_is_refused_by_equal_views(run, caplog):
    build_decoder(Path("decoder"))
    words = ("train", "simcse", "decoder", "TEXT", "-o", "out", "--steps", 1, "--batch-size", 4, "--quiet")
    code, _, err = run(*words)
    assert (code, "load the encoder with dropout=0.1" in err, Path("out").exists()) == (2, True, False)
    assert "load the encoder with dropout=0.1" in caplog.text


OWN = """
import torch

class MyLoss(torch.nn.Module):
    def __init__(self, model, scale=1.0):
        super().__init__()
        self.model, self.scale = model, scale

    def forward(self, sentence_features, labels=None):
        (features,) = sentence_features
        return self.scale * self.model(dict(features))["sentence_embedding"].tanh().mean()
"""


def test_the_card_names_the_files(run):
    Path("more.txt").write_text("the rain\n")
    words = ("TEXT", "more.txt", "-o", "out", "--steps", 1, "--batch-size", 4, "--quiet")
    code, _, err = run("train", "simcse", "ENC", *words)
    assert code == 0, err
    assert "on the text.txt, more.txt dataset" in Path("out", "README.md").read_text(encoding="utf8")


def test_a_loss_of_ones_own(run):
    """A file where the command is run; console scripts do not look there by themselves."""
    Path("my_losses.py").write_text(OWN)
    saved = {}
    for scale in (0, 2):
        words = ("--set", f"scale={scale}", "-o", f"out-{scale}", "--steps", 1, "--batch-size", 4, "--lr", 1e-2)
        code, _, err = run("train", "my_losses:MyLoss", "ENC", "TEXT", *words, "--quiet")
        assert code == 0, err
        saved[scale] = load_file(f"out-{scale}/model.safetensors")
    assert differing(saved[0], saved[2])


FAULTY = """
import torch

def function(model):
    return torch.nn.Identity()

instance = torch.nn.Identity()

class WithoutModel(torch.nn.Module):
    def __init__(self):
        super().__init__()

class NoModule:
    def __init__(self, model):
        self.model = model

class Fails(torch.nn.Module):
    def __init__(self, model, error="KeyError", made=True):
        super().__init__()
        self.model, self.error = model, error
        if not made:
            raise self.kinds()[error]("made")

    def kinds(self):
        import builtins
        return vars(builtins)

    def forward(self, sentence_features, labels=None):
        raise self.kinds()[self.error]("forward")

class ReturnsNothing(Fails):
    def forward(self, sentence_features, labels=None):
        pass
"""
FAULTS = {
    "faulty:function": "a class of torch.nn.Module, got 'faulty:function', which is an object of type function",
    "faulty:instance": "a class of torch.nn.Module, got 'faulty:instance', which is an object of type Identity",
    "faulty:NoModule": "a class of torch.nn.Module, got 'faulty:NoModule', which is a class of another kind",
    "faulty:WithoutModel": r"objective must name a class that is made from an encoder .*'faulty:WithoutModel': TypeErr",
    "broken:Loss": "objective must name a class that can be imported, got 'broken:Loss': ZeroDivisionError: division",
    "ends:Loss": "objective must name a class that can be imported, got 'ends:Loss': SystemExit: 3",
    "syntax:Loss": "objective must name a class that can be imported, got 'syntax:Loss': SyntaxError: ",
    "faulty:Fails --set made=false": "'faulty:Fails': KeyError: 'made'",
    "faulty:Fails --set made=false --set error=ValueError": "'faulty:Fails': ValueError: made",
    "faulty:Fails --set error=5": "'faulty:Fails' and --set error=5 failed: KeyError: 5;",
    "sentence_transformers.losses:DenoisingAutoEncoderLoss --set decoder_name_or_path=x": "AutoEncoderLoss': ",
}
"""Objectives that cannot train, and what the one line says."""


@pytest.mark.parametrize("words", FAULTS)
def test_what_a_loss_of_the_users_raises_is_one_line(run, words):
    for name, code in {"faulty": FAULTY, "broken": "1 / 0", "ends": "raise SystemExit(3)", "syntax": "a b"}.items():
        Path(f"{name}.py").write_text(code)
    code, _, err = run("train", *words.split()[:1], "ENC", "TEXT", "-o", "out", *words.split()[1:], "--quiet")
    line = shown(err)[-1]
    assert (code in (1, 2), bool(re.search(FAULTS[words], line))) == (True, True), err
    assert ("Traceback" in err, Path("out").exists()) == (False, False)


@pytest.mark.parametrize("kind", ["KeyError", "ValueError", "EOFError", "RuntimeError", "StopIteration"])
def test_an_error_in_the_step_of_a_loss(run, kind):
    Path("faulty.py").write_text(FAULTY)
    words = ("train", "faulty:Fails", "ENC", "TEXT", "-o", "out", "--set", f"error={kind}", "--quiet")
    said = f"training with objective 'faulty:Fails' and --set error={kind}"
    code, _, err = run(*words)
    assert (code, f"{said} failed: {kind}: " in shown(err)[-1]) == (1, True), err


def test_the_traceback_is_shown_if_wanted(run, monkeypatch):
    Path("faulty.py").write_text(FAULTY)
    monkeypatch.setenv("ST_EXTRAS_DEBUG", "1")
    code, _, err = run("train", "faulty:Fails", "ENC", "TEXT", "-o", "out", "--quiet")
    assert (code, err.count("Traceback (most recent call last)") >= 1, 'faulty.py", line' in err) == (1, True, True)
    assert shown(err)[-1].startswith("Error: training with objective 'faulty:Fails' failed")


def test_a_loss_without_a_result_names_what_was_done(run):
    Path("faulty.py").write_text(FAULTY)
    options = ("--set", "error=KeyError", "--set", "made=true", "--trainer", "weight_decay=0.1")
    options += ("--trainer", "warmup_steps=1")
    code, _, err = run("train", "faulty:ReturnsNothing", "ENC", "TEXT", "-o", "out", *options, "--quiet")
    given = " and ".join(map(" ".join, zip(options[::2], options[1::2], strict=True)))
    said = f"training with objective 'faulty:ReturnsNothing' and {given} failed: "
    assert (code, said in shown(err)[-1]) == (1, True), err


@pytest.mark.parametrize("name", ["gradient_accumulation_steps", "logging_steps", "save_steps"])
@pytest.mark.parametrize("value", ["0", "-1"])
def test_steps_of_the_trainer_are_positive(assert_refused, name, value):
    words = ("train", "simcse", "ENC", "TEXT", "-o", "out", "--trainer", f"{name}={value}")
    assert_refused(words, rf"^Error: {name} must be .*, got {value}")


def test_a_later_command_of_the_process_finds_everything_as_it_was(run):
    """Else it would end in "Interrupted." where the process is terminated."""

    def state() -> tuple[Any, ...]:
        return signal.getsignal(signal.SIGTERM), datasets.are_progress_bars_disabled(), torch.get_num_threads()

    before, words = state(), ("train", "simcse", *TRAIN[2:8], "--overwrite")
    for more, code in ((("--quiet",), 0), (("--trainer", "lora=8", "--quiet"), 0), (("--set", "temperature=0"), 2)):
        assert (run(*words, *more)[0], state()) == (code, before)


@pytest.mark.parametrize("words", [("--quiet",), ("--json",), ()])
def test_quiet_shows_no_bar(run, words):
    _, _, err = run("train", "simcse", "ENC", "TEXT", "-o", "out", "--batch-size", 4, *words)
    assert ("| 2/2 [" in err) == (not words), "the bar of the steps"


TERMINATE = """
import os, signal, sys
from sentence_transformers import SentenceTransformerTrainer as Trainer
from st_extras.cli import app

step = Trainer.training_step

def training_step(self, *arguments, **options):
    if self.state.global_step == STEP:
        os.kill(os.getpid(), signal.SIGTERM)
    return step(self, *arguments, **options)

Trainer.training_step = training_step
app.main()
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to handle")
@pytest.mark.parametrize(("step", "said"), [(1, "before its first checkpoint: nothing was saved."), (3, "--resume")])
def test_a_training_that_is_terminated_says_how_to_go_on(run, inputs, step, said):
    """In a process of its own, as the signal is sent to it."""
    words = ["train", "simcse", str(inputs / "encoder"), str(inputs / "text.txt"), "-o", "out", "--steps", "4"]
    words += ["--eval-steps", "2", "--batch-size", "4", "--quiet"]
    script = TERMINATE.replace("STEP", str(step))
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stderr, "Traceback" in done.stderr) == (130, True, False), done.stderr
    assert {path.name for path in Path().iterdir()} == ({"out.checkpoints"} if step == 3 else set())
    if step == 3:
        code, _, err = run(*words, "--resume")
        assert (code, {path.name for path in Path().iterdir()}) == (0, {"out"}), err
