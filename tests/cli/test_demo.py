"""``st-extras demo``: on the packaged encoder, and on a tiny one in its place."""

import hashlib
import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from sentence_transformers import SentenceTransformer

from st_extras import encoder_names as packaged
from st_extras.adaptation import demo
from st_extras.encoders.loading import load_encoder
from st_extras.evaluation import STSDataset, STSEvaluator
from st_extras.modules import RepALPostProcessor
from st_extras.samples import graded_pairs, sample_sentences


def test_missing_package_is_one_line(run, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, out, err = run("demo")
    assert (code, out, err.count("\n"), "st-extras[demo]" in err) == (2, "", 1, True)
    assert list(Path.cwd().iterdir()) == []


def test_other_weights_are_refused(run, monkeypatch, tmp_path):
    folder = tmp_path / "package" / "model"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights")
    spec = SimpleNamespace(origin=str(folder.parent / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    digest = hashlib.sha256(b"weights").hexdigest()
    code, _, err = run("demo", "--json")
    assert (code, digest in err, packaged.MINILM_SHA256 in err) == (2, True, True)
    monkeypatch.setattr(packaged, "MINILM_SHA256", digest)
    assert packaged.packaged_minilm() == str(folder)


def test_files_to_try_the_commands_with(run):
    code, out, err = run("demo", "--files", "samples")
    assert (code, err, "st-extras adapt demo samples/sentences.txt" in out) == (0, "", True)
    assert {path.name for path in Path("samples").iterdir()} == {"labels.tsv", "pairs.tsv", "search", "sentences.txt"}
    assert run("demo", "--files", "samples")[0] == 2


@pytest.mark.slow
def test_each_step_is_a_line_with_the_scores_before_and_after(run, inputs, monkeypatch):
    monkeypatch.setattr(demo, "raw_encoder", lambda: load_encoder(inputs / "encoder", device="cpu"))
    for module in (demo, packaged):
        monkeypatch.setattr(module, "packaged_minilm", lambda: inputs / "encoder")
    monkeypatch.setattr(demo, "sample_sentences", lambda: sample_sentences()[:60])
    monkeypatch.setattr("transformers.utils.logging._tqdm_active", False)  # as main() asks
    code, out, err = run("demo", "--steps", 3)
    lines = [line for line in re.split(r"[\r\n]", err) if line.strip()]
    assert (code, [line for line in lines if not line.startswith("Training: ")]) == (0, [])  # no bar but that of steps
    found = re.findall(r": (-?\d+\.\d) -> (-?\d+\.\d)$", out, flags=re.MULTILINE)
    (_, trained), (again, refined), (good, adapted) = [map(float, scores) for scores in found]
    pairs = STSEvaluator([STSDataset("pairs", *graded_pairs())], write_csv=False)
    saved = SentenceTransformer("demo-model", device="cpu")
    after = RepALPostProcessor.attach(saved, lambda_1=0.5, lambda_2=0, redundancy="pooled")
    for score, model in ((trained, saved), (refined, after)):
        assert score == pytest.approx(100 * pairs(model)["pairs_spearman_cosine"], abs=0.07)
    assert (again, adapted) == (trained, good), "too few texts to adapt to"
