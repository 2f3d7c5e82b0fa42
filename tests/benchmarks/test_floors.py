"""The floors by plain loops on texts small enough to follow, and the command that records them."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from benchmarks import floors, names
from st_extras.evaluation import SEVEN_STS
from tests.conftest import SENTENCES

TEXT = ["a cat sat on the mat", "the dog ran in the park", "the old man read a red book"]
FIRST = ["a cat sat on the mat", "the dog and the cat", "xyz"]
SECOND = ["the cat ran in the park", "a red book", "a cat"]


def tfidf_by_loops(text: list[str], first: str, second: str) -> float:
    """Cosine of two texts: (1 + ln tf) (1 + ln((1 + N) / (1 + df))) for every word that the text holds."""
    words = {word for line in text for word in line.split() if len(word) > 1}
    weight = {word: 1 + math.log((1 + len(text)) / (1 + sum(word in line.split() for line in text))) for word in words}

    def vector(line: str) -> dict[str, float]:
        found = [word for word in line.split() if word in words]
        return {word: (1 + math.log(found.count(word))) * weight[word] for word in found}

    left, right = vector(first), vector(second)
    length = math.sqrt(sum(x * x for x in left.values()) * sum(x * x for x in right.values()))
    return sum(left[word] * right.get(word, 0.0) for word in left) / length if length else 0.0


def test_tfidf_is_that_of_plain_loops():
    found = floors.tfidf_cosines(floors.TFIDF["words"], TEXT)(FIRST, SECOND)
    assert found == pytest.approx([tfidf_by_loops(TEXT, *pair) for pair in zip(FIRST, SECOND, strict=True)], abs=1e-6)
    assert found[0] > 0
    assert found[2] == 0  # "xyz" is not in the text


def pooled_by_loops(encoder: SentenceTransformer, text: str, weights: dict[int, float]) -> list[float]:
    """Weighted mean of the input embeddings of a text's tokens, without special tokens."""
    table = encoder.transformers_model.get_input_embeddings().weight.detach()  # type: ignore[union-attr]
    ids = encoder.tokenizer(text, add_special_tokens=False)["input_ids"]
    total = sum(weights[token] for token in ids)
    return [sum(weights[t] * float(table[t, d]) for t in ids) / total for d in range(table.shape[1])]


def embeddings_of(encoder: SentenceTransformer) -> floors.InputEmbeddings:
    table = encoder.transformers_model.get_input_embeddings().weight  # type: ignore[union-attr]
    return floors.InputEmbeddings(encoder.tokenizer, table.detach().double().numpy())


def cosine(x: list[float], y: list[float]) -> float:
    return float(np.dot(x, y) / np.linalg.norm(x) / np.linalg.norm(y))


def test_means_of_input_embeddings_are_those_of_plain_loops(encoder):
    embeddings = embeddings_of(encoder)
    ids = [token for line in TEXT for token in encoder.tokenizer(line, add_special_tokens=False)["input_ids"]]
    even = dict.fromkeys(range(len(embeddings.weights)), 1.0)
    sif = {token: 1e-3 / (1e-3 + ids.count(token) / len(ids)) for token in even}
    for cosines, weights in (
        (floors.mean_cosines(embeddings), even),
        (floors.sif_cosines(embeddings, TEXT, removed=False), sif),
    ):
        expected = [
            cosine(pooled_by_loops(encoder, one, weights), pooled_by_loops(encoder, other, weights))
            for one, other in zip(FIRST, SECOND, strict=True)
        ]
        assert cosines(FIRST, SECOND) == pytest.approx(expected, abs=1e-6)
    assert sif[ids[0]] < 0.1 < sif[max(even)]


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    pairs = [(one, other) for i, one in enumerate(SENTENCES) for other in SENTENCES[i + 1 :]]
    for shift, name in enumerate(["stsb_dev", *SEVEN_STS]):
        rows = [f"{'ab'[i % 2]}\t{(i * 7 + shift) % 11}\t{one}\t{other} {name}" for i, (one, other) in enumerate(pairs)]
        (folder / f"{name}.tsv").write_text("\n".join(["subset\tscore\tsentence1\tsentence2", *rows]), "utf8")
    for name in floors.FLOOR_TEXTS.values():
        (folder / name.removesuffix(".gz")).write_text("\n".join(SENTENCES), "utf8")
    return folder


@pytest.fixture
def run(data, encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(floors, "FLOOR_TEXTS", {name: f.removesuffix(".gz") for name, f in floors.FLOOR_TEXTS.items()})
    for name in names.PRETRAINED:
        monkeypatch.setitem(names.PRETRAINED, name, str(tmp_path / name))
    monkeypatch.setattr(floors, "packaged_minilm", lambda: tmp_path / "minilm")
    encoder.save(str(tmp_path / "minilm"))

    def command(*encoders: str) -> Path:
        arguments = ["--data", data, "--results", tmp_path / "results", "--encoders", *encoders]
        monkeypatch.setattr(sys, "argv", ["floors", *map(str, arguments)])
        floors.main()
        return tmp_path / "results" / "floors"

    return command


def test_the_command_records_every_row_once(run, encoder, data, tmp_path, capsys):
    found = {path.stem: json.loads(path.read_text()) for path in run("minilm", "own", "better").glob("*.json")}
    assert set(found) == {
        *(f"{kind}-{text}" for kind in ("words", "characters") for text in ("wiki", "sts")),
        "minilm-mean",
        *(f"minilm-{kind}-{text}" for kind in ("sif", "sif_removed") for text in ("wiki", "sts")),
    }
    printed = capsys.readouterr().out
    assert f"own: left out, there is no {tmp_path / 'own'}: python -m benchmarks.pretrain_encoder makes it." in printed
    assert f"no {tmp_path / 'better'}: python -m benchmarks.pretrain_encoder --recipe better makes it." in printed
    record = found["minilm-sif-sts"]
    assert record["average"] == pytest.approx(sum(record["scores"].values()) / 7)
    assert len(record["resampled"]) == 500
    assert record["revision"]
    assert {"dev", "dev_by_genre", "without_dev"} <= set(record)
    encoder.save(str(tmp_path / "own"))
    encoder.save(str(tmp_path / "better"))
    own = run("own", "better")
    assert {"own-mean", "better-mean"} <= {path.stem for path in own.glob("*.json")}
    assert "characters" not in capsys.readouterr().out, "a row with a record was run again"
    same, other = (json.loads((own / f"{name}-mean.json").read_text()) for name in ("minilm", "own"))
    assert same["scores"] == other["scores"]
