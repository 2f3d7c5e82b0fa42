"""What ``st-extras train`` prints about text and encoder before it trains, and again after it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from st_extras.checks import shown
from st_extras.cli.console import print_line

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_GOOD = 70.0  # on the packaged pairs: Spearman correlation times 100


def described_text(sentences: list[str]) -> str:
    """Return how much text there is, with an example, for a line of output.

    Raises:
        ValueError: if all sentences are the same.
    """
    different = len(set(sentences))
    if len(sentences) > 1 and different == 1:
        raise ValueError(
            f"text must hold different sentences, got {len(sentences):,} times {shown(sentences[0])}: if it is a "
            "table, choose the column of its sentences (--column)."
        )
    words = sum(len(text.split()) for text in sentences) / len(sentences)
    counts = f"{len(sentences):,} sentences, {different:,} different, {words:.1f} words each"
    return f"Text: {counts}, such as {shown(sentences[0])}."


def warn_of_good_encoder(model: SentenceTransformer) -> None:
    """Warn if the encoder is good on general English before any training."""
    from st_extras.samples import graded_spearman

    score = graded_spearman(model)
    if score >= _GOOD:
        _print_warning(
            f"this encoder has {score:.0f} on the packaged pairs of general English, as encoders tuned for similarity "
            "have. Training on sentences alone mostly harms such an encoder; `st-extras adapt` keeps only what helps."
        )


def print_before_training(description: str, sentences: list[str], model: SentenceTransformer, *, chooses: bool) -> None:
    """Print the description of the text, the warnings, and that the last weights are kept if nothing chooses them."""
    from st_extras.text.corpus import FEWEST_WITH_LETTERS, share_with_letters

    print_line(description)
    share = share_with_letters(sentences)
    if share < FEWEST_WITH_LETTERS:
        _print_warning(
            f"only {share:.0%} of the sentences have a letter: if the text is a table, --column names another column."
        )
    warn_of_good_encoder(model)
    if not chooses:
        print_line(
            "No --dev: the last weights will be kept, though contrastive training peaks early. --dev unlabeled chooses "
            "the best weights by the sentences alone."
        )


@contextmanager
def warnings_repeated() -> Iterator[None]:
    """Repeat at the end the warnings that were logged while a progress bar ran."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    ours = logging.getLogger("st_extras")
    ours.addHandler(handler)
    try:
        yield
    finally:
        ours.removeHandler(handler)
    for message in dict.fromkeys(messages):
        _print_warning(message)


def _print_warning(message: str) -> None:
    print_line(f"Warning: {message}", to_stderr=True)
