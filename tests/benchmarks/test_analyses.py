"""The papers' small analyses: parts that are encoded once against the models themselves, one record an analysis."""

import gzip
import json
import sys
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import pairwise_cos_sim

from benchmarks import analyses, names, refined_parts
from benchmarks.figures.redundancy import trivial_word_importance
from benchmarks.refined_parts import Encoded
from st_extras.evaluation import load_sts
from st_extras.modules import RepALPostProcessor
from tests.conftest import SENTENCES

pytest.importorskip("jieba")

PAIRS = [(one, other) for i, one in enumerate(SENTENCES) for other in SENTENCES[i + 1 :]]
TEXTS = [text for side in zip(*PAIRS, strict=True) for text in side]
COUNTS = {"[PAD]": 0, "the": 70, "[unused0]": 0, "cat": 5, "a": 20, "rare": 0, "mat": 4, "dog": 1}


def gold(shift: int) -> list[float]:
    return [float((i * 7 + shift) % 11) for i in range(len(PAIRS))]


def attached(model: SentenceTransformer, weights: dict[str, Any]) -> SentenceTransformer:
    """The encoder with RepAL itself, at the weights of a row."""
    chosen = {name: weights[name] for name in ("lambda_1", "lambda_2")}
    return RepALPostProcessor.attach(model, **chosen, corpus=TEXTS)


@pytest.fixture
def dev_gold(still_encoder):
    """Scores that ask for both terms: the cosines of a model with RepAL."""
    model = attached(still_encoder, {"lambda_1": 0.6, "lambda_2": 0.3})
    first, second = (model.encode(list(side)) for side in zip(*PAIRS, strict=True))
    return [round(5 * float(score), 3) for score in pairwise_cos_sim(first, second)]


@pytest.fixture
def data(tmp_path, dev_gold):
    folder = tmp_path / "data"
    folder.mkdir()
    scores = [dev_gold, *map(gold, range(len(analyses.SIX)))]
    for name, of_set in zip([refined_parts.DEV, *analyses.SIX], scores, strict=True):
        rows = [f"a\t{score}\t{one}\t{other}" for score, (one, other) in zip(of_set, PAIRS, strict=True)]
        text = "\n".join(["subset\tscore\tsentence1\tsentence2", *rows]) + "\n"
        (folder / f"{name}.tsv.gz").write_bytes(gzip.compress(text.encode()))
    lines = "".join(f"{token}\t{count}\n" for token, count in {"token": "count", **COUNTS}.items())
    (folder / analyses.COUNTS).write_bytes(gzip.compress(lines.encode()))
    return folder


@pytest.fixture
def encoded(data, still_encoder, monkeypatch):
    monkeypatch.setattr(refined_parts, "encoder", lambda name: still_encoder)
    monkeypatch.setattr(analyses, "DRAWN", 5)
    return Encoded("tiny", {name: load_sts(name, data) for name in (refined_parts.DEV, *analyses.SIX)})


def test_dev_chooses_what_tune_chooses(encoded, still_encoder, dev_gold):
    for row, grids in (("RepAL", {}), ("sentence term", {"lambda_2_grid": [0.0]})):
        model = RepALPostProcessor.attach(still_encoder, lambda_1=0, lambda_2=0)
        processor = next(module for module in model if isinstance(module, RepALPostProcessor))
        found = processor.tune(PAIRS, dev_gold, **grids)
        own = encoded.weights[row]
        assert (own["lambda_1"], own["lambda_2"]) == (found.lambda_1, found.lambda_2)
        assert own["stsb_dev"] == pytest.approx(100 * found.spearman, abs=0.01)
        assert own["lambda_1"] > 0
    assert encoded.weights["plain"]["stsb_dev"] == pytest.approx(100 * found.plain_spearman, abs=0.01)


def test_word_importance_is_that_of_the_models(encoded, still_encoder):
    found = analyses.importances(encoded)
    for row, weights in encoded.weights.items():
        expected = trivial_word_importance(attached(still_encoder, weights), PAIRS)
        assert set(expected) == {"the", "a", "to", "in"}
        assert found["rows"][row] == pytest.approx(expected, abs=1e-3)
    assert found["rows"]["RepAL"] != pytest.approx(found["rows"]["plain"], abs=1e-2)
    assert found["pairs"] == len(PAIRS)
    assert found["pairs_with_word"]["in"] == 6 + 2  # sentences 1 and 5 stand first in so many pairs
    assert found["pairs_with_word"]["some"] == 0


def test_counts_by_rank(data, monkeypatch):
    monkeypatch.setattr(analyses, "RANKS", (1, 3, 100))
    found = analyses.token_counts(data / analyses.COUNTS)
    assert found == {
        "tokens": 8,
        "occurrences": 100,
        "count_at_rank": {"1": 70, "3": 5},
        "count_at_share": {"0.1": 70, "0.25": 5, "0.5": 1, "0.75": 0, "0.9": 0},
        "never_seen": 3,
        "never_seen_reserved": 2,
        "least_half_percent": 1.0,  # dog and the three that never occur
        "labelled_low": 5,  # of the five that occur, the two rarest: mat and dog
        "labelled_low_percent": 5.0,
    }


@pytest.fixture
def run(data, encoded, tmp_path, monkeypatch):
    monkeypatch.setitem(names.PRETRAINED, "own", str(tmp_path / "none"))

    def command(*encoders: str) -> dict[str, dict[str, Any]]:
        arguments = ["--data", str(data), "--results", str(tmp_path / "results"), "--encoders", *encoders]
        monkeypatch.setattr(sys, "argv", ["analyses", *arguments])
        analyses.main()
        return {path.stem: json.loads(path.read_text()) for path in (tmp_path / "results" / "analyses").iterdir()}

    return command


def test_the_command_records_every_analysis_once(run, tmp_path, capsys):
    found = run("layers3", "own")
    of_encoder = {f"layers3-{analysis}" for analysis in analyses.ANALYSES}
    assert set(found) == {"bookcorpus-frequencies"} | of_encoder
    assert "own: left out, there is no" in capsys.readouterr().out
    for name in of_encoder:
        assert (found[name]["study"], found[name]["encoder"]) == ("analyses", "layers3")
        assert found[name]["weights"] == found["layers3-overlap"]["weights"]
        assert found[name]["revision"]
    assert run("layers3") == found
    assert capsys.readouterr().out == "", "an analysis with a record was run again"
    (tmp_path / "results" / "analyses" / "layers3-overlap.json").unlink()
    again = run("layers3")
    assert capsys.readouterr().out.startswith("layers3-overlap: ")
    assert again["layers3-overlap"]["draws"] == found["layers3-overlap"]["draws"]
