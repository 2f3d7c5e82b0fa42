"""How candidates are tried: fitted on one part of the text, compared with the start on the other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from st_extras.evaluation import LabeledTexts, STSDataset
from st_extras.evaluation.change import FEWEST, LEAST_CONFIRMED, MOST, ChangeJudge
from st_extras.evaluation.geometry import mean_cosine
from st_extras.modules import pipeline
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.text.lexical import character_tfidf, near_duplicate_share
from st_extras.text.words import FEWEST_WITH_LETTERS, share_with_letters
from st_extras.training.candidates import CANDIDATES, RAW, Row
from st_extras.training.measures import SMALLEST_GENERAL_SCORE, Pairs, development
from st_extras.training.text_encoder import TextEncoder

FEWEST_TEXTS = 5 * FEWEST
"""Fewer different texts are left alone: a fifth of them is kept for the judge."""
_SAME_COSINE = 0.9999  # two different texts, on average
Step = tuple[TextEncoder, Tensor | None, Tensor | None]
"""An encoder, and the matrix (D, D) and offset (D,) of what follows it; None: nothing follows."""


class Trial:
    """Tries candidates on texts.

    Args:
        encode: the start.
        texts: different ones, in random order: the first fifth of them, at most 2,000, is kept for the judge.
        dev: chooses in place of the judge.
        max_general_loss: how much a candidate may lose on general pairs; None: a fortieth of what the start lacks.
        seed: random seed.
        kept: folder for the embeddings of the start.

    Attributes:
        facts: what was found out about texts and encoder.
        rows: the table.
        steps: what each row's candidate consists of, by name.
        reason: why nothing was tried; empty if something was.
        judged: the texts that were kept for the judge; none if nothing was tried.
        fitted: the others.

    Raises:
        ValueError: if an embedding is not finite, or ``dev`` cannot be scored.
    """

    def __init__(
        self,
        encode: TextEncoder,
        texts: Sequence[str],
        dev: STSDataset | LabeledTexts | None,
        max_general_loss: float | None,
        seed: int,
        kept: Path | None = None,
    ) -> None:
        self.seed = seed
        self.rows: list[Row] = []
        self.steps: dict[str, Step] = {}
        self._judged: dict[TextEncoder, Tensor] = {}
        self.judged: list[str] = []
        self.fitted: list[str] = []
        self.facts: dict[str, Any] = {}
        texts, self._start = _encoded(encode, texts, kept)
        self.reason = self._looked_at(texts) or self._split(texts)
        if self.reason:
            return
        self._dev = None if dev is None else development(dev)
        if dev is None:
            self._judge = ChangeJudge(self.judged, self._start[: len(self.judged)], seed=seed)
            self.facts["confirmed_share"] = self._judge.confirmed_share
            if self._judge.confirmed_share < LEAST_CONFIRMED:
                self.reason = (
                    f"Left as it is: only {self._judge.confirmed_share:.0%} of the texts have a neighbour that "
                    "embeddings and words agree on, so nothing can be judged without labels."
                )
                return
        self._general = Pairs.of_general_english()
        self._words = character_tfidf(self.fitted)
        self._max_general_loss = max_general_loss
        self.add(encode, "", self._start)

    def add(self, encode: TextEncoder, name: str, embeddings: Tensor | None = None, spent: float = 0.0) -> None:
        """Try an encoder's candidates, and the encoder itself if it is not the start.

        Args:
            encode: the encoder.
            name: put before the names of the candidates; empty for the start.
            embeddings: (N, D) of the judged and the fitted texts, if they are known.
            spent: seconds that it took to make the encoder.
        """
        began = time.perf_counter()
        if embeddings is None:
            embeddings = encode([*self.judged, *self.fitted])
            pipeline.check_finite(embeddings, [*self.judged, *self.fitted])
        self._judged[encode] = embeddings[: len(self.judged)]
        general = encode(self._general.texts)
        dev = None if self._dev is None else encode(self._dev.texts)
        spent += time.perf_counter() - began
        if name:
            self._try(name, (encode, None, None), general, dev, spent)
        else:
            self._note_start(general, dev)
        began = time.perf_counter()
        fitted = embeddings[len(self.judged) :]
        try:
            found = neighbor_directions(fitted, words=self._words, seed=self.seed)
        except ValueError as error:
            if not name:
                self.reason = f"Left as it is: {error}"
            return
        spent += time.perf_counter() - began
        tuned = self._dev is None and (self.facts["general"] or 0) >= RAW
        for candidate in CANDIDATES:
            if candidate.for_raw and tuned:
                continue
            full_name = f"{name}, then {candidate.name}" if name else candidate.name
            self._try(full_name, (encode, *candidate.affine(found)), general, dev, spent)

    def judged_before_and_after(self, name: str) -> tuple[Tensor, Tensor]:
        """Return (J, D) embeddings of the judged texts, by the start and by the candidate of a row."""
        step = self.steps[name]
        return self._start[: len(self.judged)], after(self._judged[step[0]], step)

    def _note_start(self, general: Tensor, dev: Tensor | None) -> None:
        """Score the start on the general pairs and the development set."""
        score = self._general.score(general)
        self.facts["general"] = score if score >= SMALLEST_GENERAL_SCORE else None
        self._may_lose = (100 - score) / 40 if self._max_general_loss is None else self._max_general_loss
        if self._dev is not None and dev is not None:
            self.facts["dev"] = self._dev.score(dev)

    def _try(self, name: str, step: Step, general: Tensor, dev: Tensor | None, spent: float) -> None:
        """Measure a candidate and add its row."""
        began = time.perf_counter()
        self.steps[name] = step
        low = high = value = None
        if self._dev is not None and dev is not None:
            gain = self._dev.score(after(dev, step)) - self.facts["dev"]
            why = [] if gain > 0 else ["not better than the start"]
        else:
            verdict = self._judge.compare(after(self._judged[step[0]], step))
            gain, low, high = verdict.gain, verdict.low, verdict.high
            why = [] if low > 0 else ["not better than the start, by the 95 % interval"]
        if self.facts["general"] is not None:
            value = self._general.score(after(general, step))
            lost = self.facts["general"] - value
            if lost > self._may_lose:
                why.append(f"loses {lost:.2f} on general pairs, {self._may_lose:.2f} allowed")
        seconds = round(spent + time.perf_counter() - began, 1)
        self.rows.append(Row(name, gain, low, high, value, not why, "; ".join(why), seconds))

    def _looked_at(self, texts: Sequence[str]) -> str:
        """Note facts of the texts; return why they cannot be used, if so."""
        words = sum(len(text.split()) for text in texts) / max(1, len(texts))
        self.facts |= {"texts": len(texts), "mean_words": round(words, 1)}
        if len(texts) < FEWEST_TEXTS:
            return f"Left as it is: {FEWEST_TEXTS} different texts are needed, got {len(texts)}."
        lettered = share_with_letters(texts)
        if lettered < FEWEST_WITH_LETTERS:
            return f"Left as it is: only {lettered:.0%} of the texts have a letter, so they hold no words to compare."
        return ""

    def _split(self, texts: Sequence[str]) -> str:
        """Keep some texts for the judge; return why there is nothing to judge, if so."""
        count = min(MOST, len(texts) // 5)
        self.judged, self.fitted = list(texts[:count]), list(texts[count:])
        self.facts |= {"judged": count, "near_duplicates": near_duplicate_share(self.judged)}
        self.facts["mean_cosine"] = mean_cosine(self._start)
        if self.facts["mean_cosine"] > _SAME_COSINE:
            return "Left as it is: the encoder gives all texts about the same embedding."
        return ""


def after(embeddings: Tensor, step: Step) -> Tensor:
    """Return (N, D) embeddings of a step's encoder after the rest of the step."""
    _, matrix, offset = step
    return embeddings if matrix is None or offset is None else embeddings @ matrix + offset


def _encoded(encode: TextEncoder, texts: Sequence[str], kept: Path | None) -> tuple[Sequence[str], Tensor]:
    """Return the texts that have an embedding, and the embeddings (N, D): a table of words gives 0 to unknown words.

    Too few texts are not encoded.
    """
    if len(texts) < FEWEST_TEXTS:
        return texts, torch.zeros(0, 0)
    embeddings = encode(texts, kept)
    pipeline.check_finite(embeddings, texts)
    has_one = (embeddings != 0).any(dim=1)
    return [text for text, has in zip(texts, has_one.tolist(), strict=True) if has], embeddings[has_one]
