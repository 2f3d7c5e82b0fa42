"""Texts of six topics, in words that the tiny encoder knows."""

import dataclasses
import random
from typing import Any

from st_extras.adaptation import AdaptationOptions
from st_extras.evaluation import LabeledTexts
from tests.fixtures import SENTENCES

WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
TOPICS = [WORDS[i::6] for i in range(6)]


def topical(count: int, seed: int = 0) -> LabeledTexts:
    """Different texts of four words of their topic and two of any."""
    drawn, found = random.Random(seed), {}
    while len(found) < count:
        topic = drawn.randrange(6)
        text = " ".join([*drawn.choices(TOPICS[topic], k=4), *drawn.choices(WORDS, k=2)])
        found.setdefault(text, str(topic))
    return LabeledTexts(list(found), list(found.values()))


def quiet(**given: Any) -> dict[str, Any]:
    """The arguments of a job, with those of the run in its ``options``, which show no progress bar."""
    names = {one.name for one in dataclasses.fields(AdaptationOptions)} & set(given)
    run = {name: given.pop(name) for name in names}
    return given | {"options": AdaptationOptions(**{"show_progress_bar": False, **run})}


TEXTS = topical(600).texts
DEV = topical(200, seed=9)
