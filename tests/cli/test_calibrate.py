"""``st-extras calibrate``: the cosines of unrelated texts."""

import json
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

from st_extras.cli import calibrate
from st_extras.evaluation.geometry import unrelated_cosines
from tests.adaptation.texts import topical
from tests.helpers import draw

pytestmark = pytest.mark.slow


def test_cosines_are_those_of_all_pairs():
    rows = draw(200, 6)
    unit = normalize(rows.double())
    cosines = sorted((float(unit[i] @ unit[j]) for i in range(200) for j in range(i)), reverse=True)
    found = unrelated_cosines(rows)
    assert list(found) == [100, 1000]
    for n, (value, low, high) in found.items():
        assert value == pytest.approx(cosines[len(cosines) // n - 1], abs=1e-5)
        assert low < value < high
    others = [unrelated_cosines(torch.cat([rows[i::20] for i in range(20) if i != left]))[100][0] for left in range(20)]
    spread = 19**0.5 * torch.tensor(others, dtype=torch.float64).std(correction=0)
    value, low, high = found[100]
    assert (high - low) / 2 == pytest.approx(1.96 * float(spread), rel=1e-3)


def test_too_few_texts():
    with pytest.raises(ValueError, match="N >= 40"):
        unrelated_cosines(draw(39, 6))


def test_what_has_no_embedding_is_left_out(run, monkeypatch):
    Path("texts.txt").write_text("\n".join(topical(60).texts), "utf8")
    for zeros, value, message in ((9, 0.0, "51"), (11, 0.0, "to compare, got 49"), (1, torch.nan, "is not finite")):
        rows = torch.cat([torch.full((zeros, 6), value), draw(60 - zeros, 6)])
        monkeypatch.setattr("sentence_transformers.SentenceTransformer.encode", lambda *_, rows=rows, **__: rows)
        code, out, err = run("calibrate", "ENC", "texts.txt")
        assert (code == 0, message in out + err) == (zeros == 9, True)


def test_the_command(run):
    Path("texts.txt").write_text("\n".join(topical(300).texts), "utf8")
    code, out, err = run("calibrate", "ENC", "texts.txt", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert report["texts"] == 300
    assert list(report["cosines"]) == ["100", "1000"]
    assert report["cosines"]["100"]["low"] <= report["cosines"]["100"]["cosine"] < report["cosines"]["1000"]["cosine"]
    code, out, err = run("calibrate", "ENC", "texts.txt")
    assert code == 0, err
    assert f"{report['cosines']['1000']['cosine']:.3f}" in out
    code, out, err = run("calibrate", "ENC", "texts.txt", "--before", "ENC", "--prompt", "a ", "--json")
    compared = json.loads(out)
    assert compared["before"] == compared["cosines"] != report["cosines"]
    Path("texts.txt").write_text("\n".join(topical(49).texts), "utf8")
    code, _, err = run("calibrate", "ENC", "texts.txt")
    assert (code, "at least 50 different texts to compare, got 49." in err) == (2, True)


def test_what_is_wrong_with_the_picture_is_known_before_anything_is_encoded(run, monkeypatch):
    Path("texts.txt").write_text("\n".join(topical(60).texts), "utf8")
    code, _, err = run("calibrate", "ENC", "texts.txt", "--before", "ENC", "--picture", "cosines.svg")
    assert (code, "<svg" in Path("cosines.svg").read_text("utf8")) == (0, True), err
    monkeypatch.setattr(calibrate, "load_any", lambda path: pytest.fail("loaded"))
    Path("folder.png").mkdir()
    for wrong in ("nowhere/cosines.png", "folder.png", "cosines.xyz", "texts.txt/cosines.png"):
        code, _, err = run("calibrate", "ENC", "texts.txt", "--picture", wrong)
        assert (code, "--picture must" in err) == (2, True), err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = run("calibrate", "ENC", "texts.txt", "--picture", "cosines.png")
    assert (code, "st-extras[plot]" in err) == (2, True)
