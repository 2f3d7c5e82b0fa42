"""``st-extras adapt``; tests/training/test_adapt.py tests what it calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from tests.cli.conftest import Run
from tests.training.test_adaptation import DEV, TEXTS


@pytest.fixture
def files(run: Run) -> None:
    """texts.txt and labels.tsv in the test's folder."""
    Path("texts.txt").write_text("\n".join(TEXTS), "utf8")
    rows = [f"{label}\t{text}" for label, text in zip(DEV.labels, DEV.texts, strict=True)]
    Path("labels.tsv").write_text("\n".join(["label\ttext", *rows]), "utf8")


CHOSEN = ("adapt", "ENC", "texts.txt", "-o", "out", "--labeled", "labels.tsv", "--any-general-loss")


@pytest.mark.usefixtures("files")
def test_what_was_chosen_and_how_to_load_it(run: Run) -> None:
    code, out, err = run(*CHOSEN, "--quiet")
    assert code == 0, err
    assert all(word in out for word in ("candidate", "gain", "general", "interval", "seconds", "yes"))
    assert out.startswith("Text: 600 read, 600 different ones used, 6.0 words each, ")
    assert "near-duplicates. Encoder: mean cosine 0." in out
    assert "as it is" in out
    *_, saved, last = out.splitlines()
    assert saved.endswith('was best. Saved to out: SentenceTransformer("out")')
    assert last == f"Neighbours before and after, to read: {Path('out/neighbors.md')}"
    assert max(map(len, out.splitlines())) > 80, "no row is broken where there is no terminal"
    assert len(SentenceTransformer("out", device="cpu")) == 3


@pytest.mark.usefixtures("files")
def test_json(run: Run) -> None:
    code, out, _ = run(*CHOSEN, "--json")
    report, written = json.loads(out), json.loads(Path("out/adaptation.json").read_text())
    assert code == 0
    assert report["output"] == "out"
    assert report["chosen"] is not None
    assert all(report[name] == written[name] for name in ("chosen", "reason", "candidates", "facts"))


def test_left_as_it_is_is_no_failure(run: Run) -> None:
    code, out, _ = run("adapt", "ENC", "TEXT", "-o", "out", "--quiet")
    assert (code, out.splitlines()) == (
        0,
        [
            "Text: 8 read, 8 different ones used, 6.2 words each.",
            'Left as it is: 500 different texts are needed, got 8. Saved to out: SentenceTransformer("out")',
        ],
    )
    assert len(SentenceTransformer("out", device="cpu")) == 2


@pytest.mark.usefixtures("files")
def test_without_labels(run: Run) -> None:
    code, out, _ = run("adapt", "ENC", "texts.txt", "-o", "out", "--quiet")
    assert code == 0
    assert "by the judge" in out
    assert " to +" in out or " to -" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("none.txt",), r"none\.txt"),
        (("TEXT", "--dev", "nowhere"), "nowhere"),
        (("TEXT", "--labeled", "none.tsv"), "no file of labelled texts"),
        (("TEXT", "--dev", "STS", "--labeled", "TSV"), "--dev does not go with --labeled"),
        (("TEXT", "--limit", "3"), "--limit must be"),
    ],
)
def test_mistakes(assert_refused, arguments: tuple[str, ...], message: str) -> None:
    assert_refused(("adapt", "ENC", arguments[0], "-o", "out", *arguments[1:]), message)
