"""Domains and question retrieval: the ranking against the evaluator's, the floors against plain loops, the command."""

import gzip
import json
import math
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from benchmarks import beyond, names
from benchmarks.floors import TFIDF
from st_extras.evaluation import label_scores
from tests.conftest import SENTENCES

WORDS = sorted({word for sentence in SENTENCES for word in sentence.split() if len(word) > 1})


def made_up(count: int, seed: int) -> list[tuple[str, str]]:
    """Texts of two labels, with words of their own."""
    draw, rows = random.Random(seed), []
    for number in range(count):
        label = number % 2
        rows.append((f"label {label}", " ".join([*draw.choices(WORDS[label::2], k=5), *draw.choices(WORDS, k=2)])))
    return rows


def write(path: Path, titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    with gzip.open(path, "wt", encoding="utf8") as file:
        file.writelines("\t".join(row) + "\n" for row in (titles, *rows))


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data" / "domains").mkdir(parents=True)
    for seed, name in enumerate(beyond.DOMAINS):
        for part, count in (("train", 40), ("test", 30)):
            rows = made_up(count, seed + 10 * count)
            write(tmp_path / "data" / "domains" / f"{name}_{part}.tsv.gz", ("label", "text"), rows)
    texts = [text for _, text in made_up(40, 99)]
    mixed = [" ".join(one.split()[:3] + other.split()[:4]) for one, other in zip(texts, texts[::-1], strict=True)]
    pairs = [(one, other, str(i % 2)) for i, (one, other) in enumerate(zip(texts, mixed, strict=True))]
    pairs += [(texts[2], texts[1], "0")]  # a query that is in the corpus
    write(tmp_path / "data" / beyond.QUESTIONS, ("question1", "question2", "is_duplicate"), pairs)
    return tmp_path / "data"


@pytest.fixture
def tasks(data):
    return beyond.Tasks(data)


def test_an_encoders_scores_are_those_of_its_embeddings(tasks, encoder):
    found = beyond.score_encoder(encoder, tasks)
    texts = tasks.domains["clinc150"]
    expected = label_scores(encoder.encode(texts.texts), texts.labels, metrics=beyond.MEASURES)
    assert found["domains"]["clinc150"] == pytest.approx({name: 100 * expected[name] for name in beyond.MEASURES})
    assert set(found["domains"]) == set(beyond.DOMAINS)
    evaluator = tasks.retrieval
    queries, corpus = (torch.from_numpy(encoder.encode(t)) for t in (evaluator.queries, evaluator.corpus))
    cosines = torch.nn.functional.normalize(queries, dim=1) @ torch.nn.functional.normalize(corpus, dim=1).T
    rows = dict(zip(evaluator.queries, cosines.numpy(), strict=True))
    ranked = beyond.rank(evaluator, lambda asked: np.stack([rows[query] for query in asked]))
    assert ranked == pytest.approx(found["questions"], abs=1e-3)
    assert 0 < ranked["map"] < 100


def test_the_ranking_of_tfidf_is_that_of_plain_loops(tasks, monkeypatch):
    monkeypatch.setattr(beyond, "QUERIES", 7)  # several blocks
    monkeypatch.setattr(beyond, "PROBED", 8)  # of 30 directions; with all of them a probe learns noise
    found = beyond.score_tfidf(TFIDF["words"], tasks)
    evaluator = tasks.retrieval
    text = [*evaluator.corpus, *evaluator.queries]
    number = {word: sum(word in line.split() for line in text) for word in WORDS}

    def vector(line: str) -> dict[str, float]:
        words = line.split()
        weights = {
            word: (1 + math.log(words.count(word))) * (1 + math.log((1 + len(text)) / (1 + number[word])))
            for word in set(words)
        }
        length = math.sqrt(sum(weight**2 for weight in weights.values()))
        return {word: weight / length for word, weight in weights.items()}

    documents = {key: vector(line) for key, line in zip(evaluator.corpus_ids, evaluator.corpus, strict=True)}
    precisions, reciprocal = [], []
    for key, query in zip(evaluator.queries_ids, evaluator.queries, strict=True):
        own = vector(query)
        score = {
            other: sum(own.get(word, 0) * weight for word, weight in documents[other].items()) for other in documents
        }
        order = sorted(
            (other for other in documents if other != key), key=lambda other: (-round(score[other], 5), other)
        )
        ranks = [order.index(other) + 1 for other in evaluator.relevant_docs[key]]
        assert len(ranks) == 1
        precisions.append(1 / ranks[0])
        reciprocal.append(1 / ranks[0] if ranks[0] <= 10 else 0)
    assert found["questions"]["map"] == pytest.approx(100 * np.mean(precisions), abs=0.5)
    assert found["questions"]["mrr"] == pytest.approx(100 * np.mean(reciprocal), abs=0.5)
    assert found["domains"]["banking77"]["knn_accuracy"] > 60  # its labels have words of their own
    assert found["domains"]["banking77"]["linear_probe"] > 60


def test_cosines_of_sparse_rows_are_kept():
    rows = csr_matrix(np.array([[0.6, 0.8, 0], [0.6, 0.8, 0], [0, 1, 0], [0, 0, 0], [0, 0.6, 0.8]]))
    unit = torch.nn.functional.normalize(beyond.same_cosines(rows), dim=1)
    expected = (rows @ rows.T).toarray() + np.diag([0, 0, 0, 1, 0])  # an empty row is like itself alone
    assert (unit @ unit.T).numpy() == pytest.approx(expected, abs=1e-4)


@pytest.fixture
def run(data, encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(beyond, "encoder", lambda name: encoder)
    monkeypatch.setattr(beyond, "PROBED", 8)
    monkeypatch.setitem(names.PRETRAINED, "own", str(tmp_path / "none"))
    encoder.save(str(tmp_path / "work" / "study" / "dclr-ours-3"))
    shutil.copytree(tmp_path / "work" / "study" / "dclr-ours-3", tmp_path / "work" / "study" / "unfinished-0")
    (tmp_path / "work" / "study" / "unfinished-0" / "modules.json").unlink()

    def command(*arguments: str) -> dict[str, Any]:
        folders = ["--data", str(data), "--results", str(tmp_path / "results"), "--work", str(tmp_path / "work")]
        monkeypatch.setattr(sys, "argv", ["beyond", *folders, *arguments])
        beyond.main()
        return {path.stem: json.loads(path.read_text()) for path in (tmp_path / "results" / "beyond").glob("*.json")}

    return command


@pytest.mark.slow
def test_the_command_records_every_row_once(run, capsys):
    found = run("--encoders", "minilm", "layers3", "own")
    assert set(found) == {
        *("text-TF-IDF_of_words-0", "text-TF-IDF_of_characters_3-5-0", "minilm-start-0", "layers3-start-0"),
        *(f"minilm-{kind.replace(' ', '_').replace(',', '')}-0" for kind in beyond.BAGS),
    }
    assert "own: left out, there is no" in capsys.readouterr().out
    assert found["minilm-start-0"]["domains"] == found["layers3-start-0"]["domains"]
    assert found["minilm-start-0"]["revision"]
    found = run("--studies", "study")
    assert capsys.readouterr().out.startswith("study-dclr-ours-3: MAP ")
    record = found["study-dclr-ours-3"]
    assert (record["encoder"], record["row"], record["seed"]) == ("study", "dclr-ours", 3)
    assert record["domains"] == found["minilm-start-0"]["domains"]
    assert "study-unfinished-0" not in found
    run("--studies", "study")
    assert capsys.readouterr().out == "", "a row with a record was run again"
