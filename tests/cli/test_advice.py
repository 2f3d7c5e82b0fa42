"""What ``st-extras train`` reports about text and encoder."""

import logging
from pathlib import Path

import pytest

from st_extras.cli.advice import described_text, print_before_training, warnings_repeated


def test_a_text_is_described():
    assert described_text(["a b", "a b", "c"]) == "Text: 3 sentences, 2 different, 1.7 words each, such as 'a b'."


def test_a_column_of_one_value_is_refused(run):
    Path("tickets.csv").write_text("subject,content\n" + "".join(f"subject {number},open\n" for number in range(20)))
    code, _, err = run("train", "simcse", "ENC", "tickets.csv", "-o", "out")
    assert (code, "got 20 times 'open'" in err, "--column" in err) == (2, True, True)


@pytest.mark.parametrize(
    ("words", "score", "warned"), [(9, 69.9, "--column"), (10, 70.1, "st-extras adapt"), (10, 69.9, "")]
)
def test_numbers_and_a_good_encoder_are_warned_of(capsys, monkeypatch, words, score, warned):
    monkeypatch.setattr("st_extras.samples.graded_spearman", lambda model: score)
    rows = [f"{number}{' ok' if number < words else ''}" for number in range(20)]
    print_before_training("described", rows, object(), chooses=True)
    out, err = capsys.readouterr()
    assert (out, err.count("Warning: "), warned in err) == ("described\n", bool(warned), True)


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
