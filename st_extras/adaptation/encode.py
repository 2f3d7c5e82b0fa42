"""The texts of an adaptation and their embeddings, kept in parts, so that an interrupted run need not start again."""

from __future__ import annotations

import hashlib
import json
import logging
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from tqdm.auto import tqdm

from st_extras.encoders.fingerprint import PROBES, EncoderFingerprint
from st_extras.evaluation.geometry import mean_cosine
from st_extras.evaluation.label_free import FEWEST, MOST
from st_extras.files import Expected, read_tensors, write_json, write_tensors
from st_extras.modules import pipeline
from st_extras.modules.pipeline import part_of_model, prompt_text
from st_extras.text.corpus import (
    FEWEST_WITH_LETTERS,
    distinct_sample,
    is_blank,
    iterate_sentences,
    share_with_letters,
)
from st_extras.text.term_weights import near_duplicate_share

logger = logging.getLogger(__name__)
FEWEST_TEXTS = 5 * FEWEST
"""Fewer different texts are left alone: a fifth of them is kept for the judge."""
WORK = "adapting"
"""Folder in the output folder: what an interrupted run left."""
TRAINING = "training"
"""Folder in the work folder: what a short training saves."""
_SETTINGS = "settings.json"
_FORMAT = {"format": "st-extras adaptation", "version": "1"}
_PART = 500  # texts that are encoded and kept at a time
_RATE_TEXTS = 256  # encoded first, to find out how many fit into the time
_SAME_COSINE = 0.9999  # two different texts, on average

EncodeTexts = Callable[..., Tensor]
""":func:`encode_texts` with its batch size and bar: takes a model and texts, and returns their embeddings."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """Texts and their embeddings by one encoder.

    Attributes:
        judged: J texts that are kept for the judge.
        fitted: F others, from which candidates are made.
        embeddings: (J + F, D), of the judged texts first, before a Normalize module.
        facts: what was found out about texts and encoder.
        reason: why nothing can be tried; empty if something can.
    """

    judged: list[str]
    fitted: list[str]
    embeddings: Tensor = field(repr=False)
    facts: dict[str, Any] = field(default_factory=dict)
    reason: str = ""

    @property
    def of_judged(self) -> Tensor:
        """The (J, D) embeddings of the judged texts."""
        return self.embeddings[: len(self.judged)]

    @property
    def of_fitted(self) -> Tensor:
        """The (F, D) embeddings of the fitted texts."""
        return self.embeddings[len(self.judged) :]


def drawn_texts(sentences: Any, limit: int, seed: int) -> tuple[list[str], int]:
    """Return different texts in random order, and how many texts were read."""
    read = 0

    def texts() -> Iterator[str]:
        nonlocal read
        for text in map(str.strip, iterate_sentences(sentences)):
            if not is_blank(text):
                read += 1
                yield text

    drawn = distinct_sample(texts(), limit, seed)
    random.Random(seed).shuffle(drawn)  # text is often sorted, by label or source: the judge must see all kinds
    return drawn, read


def encode(
    model: SentenceTransformer, texts: Sequence[str], encode_texts: EncodeTexts, kept: Path | None = None
) -> Encoded:
    """Encode the texts, and look whether they can be used.

    Args:
        model: the encoder.
        texts: different ones, in random order: the first fifth of them, at most 2,000, is kept for the judge.
        encode_texts: encodes them.
        kept: folder for their embeddings.

    Raises:
        ValueError: if an embedding is not finite.
    """
    embeddings = torch.zeros(len(texts), 0)
    if len(texts) >= FEWEST_TEXTS:
        embeddings = encode_texts(model, texts, kept=kept)
    return looked_at(texts, embeddings)


def looked_at(texts: Sequence[str], embeddings: Tensor) -> Encoded:
    """Look whether texts and their embeddings, (N, D), can be used; too few texts need none.

    Raises:
        ValueError: if an embedding is not finite.
    """
    if len(texts) >= FEWEST_TEXTS:
        pipeline.check_finite(embeddings, texts)
        has_one = (embeddings != 0).any(dim=1)  # a table of words gives 0 to unknown words
        texts = [text for text, has in zip(texts, has_one.tolist(), strict=True) if has]
        embeddings = embeddings[has_one]
    words = sum(len(text.split()) for text in texts) / max(1, len(texts))
    facts: dict[str, Any] = {"texts": len(texts), "mean_words": round(words, 1)}
    if len(texts) < FEWEST_TEXTS:
        reason = f"Left as it is: {FEWEST_TEXTS} different texts are needed, got {len(texts)}."
        return Encoded([], [], embeddings, facts, reason)
    lettered = share_with_letters(texts)
    if lettered < FEWEST_WITH_LETTERS:
        reason = f"Left as it is: only {lettered:.0%} of the texts have a letter, so they hold no words to compare."
        return Encoded([], [], embeddings, facts, reason)
    count = min(MOST, len(texts) // 5)
    judged, fitted = list(texts[:count]), list(texts[count:])
    facts |= {"judged": count, "near_duplicates": near_duplicate_share(judged), "mean_cosine": mean_cosine(embeddings)}
    same = facts["mean_cosine"] > _SAME_COSINE
    reason = "Left as it is: the encoder gives all texts about the same embedding." if same else ""
    return Encoded(judged, fitted, embeddings, facts, reason)


def encode_texts(
    model: SentenceTransformer,
    texts: Sequence[str],
    *,
    batch_size: int,
    show_progress_bar: bool,
    label: str = "Encoding",
    kept: Path | None = None,
    role: str = "",
) -> Tensor:
    """Return (N, D) embeddings in float64, on the CPU.

    Args:
        model: the encoder.
        texts: (N,).
        batch_size: texts per forward pass.
        show_progress_bar: show how many texts are done and how long the others take.
        label: of the bar.
        kept: folder that parts are read from, and written to as soon as they are done.
        role: "query" or "document": with the prompt and by the route that the model has for it; "": before a
            Normalize module.
    """
    options: dict[str, Any] = {"batch_size": batch_size, "convert_to_tensor": True, "show_progress_bar": False}
    parts = []
    bar = tqdm(total=len(texts), unit=" texts", desc=label, disable=not show_progress_bar)
    with bar, _part_for(model, role) as encoder:
        encoded_by = getattr(encoder, f"encode_{role}") if role else encoder.encode
        for first in range(0, len(texts), _PART):
            part = list(texts[first : first + _PART])
            path = None if kept is None else kept / f"{role}{first:06d}.safetensors"
            found = _kept_part(path, part) if path is not None and path.is_file() else None
            parts.append(encoded_by(part, **options).cpu() if found is None else found)
            if path is not None and found is None:
                write_tensors(path, {"embeddings": parts[-1]}, _FORMAT | {"texts": _digest(part)})
            bar.update(len(part))
    return torch.cat(parts).double()


def _kept_part(path: Path, texts: Sequence[str]) -> Tensor | None:
    """Return the embeddings of a part's file; None if it is damaged, or holds those of other texts."""
    expected = {"embeddings": Expected((len(texts), "D"), finite=False)}
    metadata = _FORMAT | {"texts": _digest(texts)}
    try:
        stored, _ = read_tensors(path, expected, what="a part", remedy="it is encoded again", metadata=metadata)
    except ValueError as error:
        logger.warning("%s", error)
        return None
    return stored["embeddings"]


def seconds_per_text(model: SentenceTransformer, texts: Sequence[str], encode_texts: EncodeTexts) -> float:
    """Return how long a text takes, found by encoding some; 0 if there are none."""
    if not texts:
        return 0.0
    began = time.perf_counter()
    encode_texts(model, texts[:_RATE_TEXTS], show_progress_bar=False)
    return (time.perf_counter() - began) / min(len(texts), _RATE_TEXTS)


@dataclass(frozen=True)
class WorkFolder:
    """What an adaptation has found out so far: which texts it uses, and their embeddings.

    Attributes:
        path: the folder, which need not exist.
    """

    path: Path

    def is_one(self) -> bool:
        """Whether an adaptation left it, so that it may be continued or removed."""
        try:
            found = json.loads((self.path / _SETTINGS).read_text(encoding="utf8"))
        except (
            OSError,
            ValueError,
        ):  # a kill before they were written, or after they were removed, leaves nothing else
            return self.path.is_dir() and all(path.suffix == ".partial" for path in self.path.iterdir())
        return isinstance(found, dict) and found.items() >= _FORMAT.items()

    def resumed(self, now: EncoderFingerprint, texts: Sequence[str], seed: int, what: str = "text") -> int:
        """Return how many of the texts the interrupted run uses, which there must be.

        Raises:
            ValueError: if it has another encoder, other texts or another seed.
        """
        found = f"resume needs an interrupted adaptation in {str(self.path.parent)!r}, got"
        again = "start again with overwrite (--overwrite)"
        try:
            before = json.loads((self.path / _SETTINGS).read_text(encoding="utf8"))
            source = EncoderFingerprint(before["prompt"], before["max_seq_length"], torch.tensor(before["probes"]))
            differing = {what: before["text"] != _digest(texts), "seed": before["seed"] != seed}
            used = int(before["used"])
        except (KeyError, OSError, TypeError, ValueError):
            raise ValueError(f"{found} one whose {_SETTINGS} is missing or broken: {again}.") from None
        differing["encoder"] = now.probes.shape != source.probes.shape or now.difference(source) is not None
        if names := " and ".join(name for name, differs in differing.items() if differs):
            raise ValueError(f"{found} one with another {names}: give the same again, or {again}.")
        return used

    def begin(self, source: EncoderFingerprint, texts: Sequence[str], seed: int, used: int) -> None:
        """Make the folder and write down what the run is about."""
        self.path.mkdir(parents=True, exist_ok=True)
        settings = _FORMAT | {"text": _digest(texts), "seed": seed, "used": used, "prompt": source.prompt}
        settings |= {"max_seq_length": source.max_seq_length, "probes": source.probes.tolist()}
        write_json(self.path / _SETTINGS, settings)

    def remove(self) -> None:
        """Remove what an adaptation left; files of others stay.

        The settings go last: as long as there is anything, the folder is known as an adaptation's.
        """
        if self.is_one():
            shutil.rmtree(self.path / TRAINING, ignore_errors=True)
            for part in [*self.path.glob("*.safetensors"), *self.path.glob(".*.partial")]:
                part.unlink()
            (self.path / _SETTINGS).unlink(missing_ok=True)
            if not any(self.path.iterdir()):
                self.path.rmdir()

    @contextmanager
    def removed_after_mistakes(self) -> Iterator[None]:
        """Remove what was found out if it cannot be gone on with; an interruption leaves it."""
        try:
            yield
        except ValueError:
            self.remove()
            raise


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()


def source_of(model: SentenceTransformer, role: str = "") -> EncoderFingerprint:
    """Return which encoder :func:`encode_texts` asks with this role."""
    with _part_for(model, role) as encoder:
        if not role:
            return EncoderFingerprint.of(encoder, prompt_text(model, {}))
        ways: list[Any] = [encoder.encode_query, encoder.encode_document]  # a Router may have an encoder for each
        probes = torch.cat([way(list(PROBES), convert_to_tensor=True, show_progress_bar=False) for way in ways])
        return EncoderFingerprint(json.dumps(model.prompts), str(encoder.max_seq_length), probes.float().cpu())


def _part_for(model: SentenceTransformer, role: str) -> AbstractContextManager[SentenceTransformer]:
    """Open the part of a model that a step can be put after: with a role, its routes decide where that is."""
    return part_of_model(model, list(model) if role else pipeline.split_before_normalize(model)[0])
