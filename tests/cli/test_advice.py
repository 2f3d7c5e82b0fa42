"""What ``st-extras train`` says of text and encoder."""

import logging
from pathlib import Path

import pytest
from sentence_transformers.sentence_transformer import evaluation

from st_extras.cli.advice import described_text, warnings_repeated

ONE_STEP = ("-o", "out", "--steps", 1, "--batch-size", 4)


def test_what_the_text_is_like(run):
    code, out, err = run("train", "simcse", "ENC", "TEXT", *ONE_STEP)
    assert code == 0, err
    assert out.startswith("Text: 8 sentences, 8 different, 6.2 words each, such as '")
    assert "Warning" not in err
    assert described_text(["a b", "a b", "c"]) == "Text: 3 sentences, 2 different, 1.7 words each, such as 'a b'."


def test_a_column_of_one_value_is_refused(run):
    Path("tickets.csv").write_text("subject,content\n" + "".join(f"subject {number},open\n" for number in range(20)))
    code, _, err = run("train", "simcse", "ENC", "tickets.csv", *ONE_STEP)
    assert (code, "got 20 times 'open'" in err, "--column" in err) == (2, True, True)
    assert run("train", "simcse", "ENC", "tickets.csv", "--column", "subject", *ONE_STEP)[0] == 0


@pytest.mark.parametrize(("words", "warned"), [(9, True), (10, False)])
def test_numbers_are_warned_of(run, words, warned):
    rows = "".join(f"{number}{' ok' if number < words else ''},a title\n" for number in range(20))
    Path("tickets.csv").write_text(f"id,title\n{rows}")
    code, _, err = run("train", "simcse", "ENC", "tickets.csv", "--column", "id", *ONE_STEP)
    assert (code, "Warning: only 45% of the sentences have a letter" in err) == (0, warned)


@pytest.mark.parametrize(("score", "warned"), [(69.9, False), (70.1, True)])
def test_a_good_encoder_is_warned_of(run, monkeypatch, score, warned):
    found = {"spearman_cosine": score / 100}
    monkeypatch.setattr(evaluation.EmbeddingSimilarityEvaluator, "__call__", lambda *_, **__: found)
    code, _, err = run("train", "simcse", "ENC", "TEXT", *ONE_STEP)
    assert code == 0
    assert ("Warning: this encoder has 70 on the packaged pairs" in err) == warned
    assert ("st-extras adapt" in err) == warned


def test_warnings_of_a_training_are_repeated_at_its_end(capsys):
    logger = logging.getLogger("st_extras.losses")
    with warnings_repeated():
        logger.warning("%s twice", "said")
        logger.warning("said twice")
        logger.info("a remark")
        assert "Warning" not in capsys.readouterr().err
    assert capsys.readouterr().err == "Warning: said twice\n"
    logger.warning("afterwards")
    assert "Warning" not in capsys.readouterr().err
