"""Which encoder made some embeddings: recognized by its embeddings of two texts, not by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.checks import shown

PROBES = ("A man is playing a guitar in the park.", "The market is closed on Sunday.")
"""Texts by whose embeddings encoders are recognized. Saved statistics hold these: other texts make them unusable."""
_TOLERANCE = 0.05
"""How far two embeddings of a probe may be apart, relative to their length: bfloat16 on other hardware stays below."""


@dataclass(frozen=True)
class EncoderFingerprint:
    """An encoder and a prompt, as far as embeddings depend on them.

    Attributes:
        prompt: text put before every sentence; may be empty.
        max_seq_length: most tokens of a text, as text; "None" if the encoder has no limit.
        probes: (P, D) float32, the embeddings of ``PROBES``.
    """

    prompt: str
    max_seq_length: str
    probes: Tensor

    @classmethod
    def of(cls, encoder: SentenceTransformer, prompt: str) -> EncoderFingerprint:
        """Return the fingerprint of an encoder with a prompt; it encodes two texts."""
        probes = encoder.encode(
            list(PROBES), prompt=prompt, batch_size=len(PROBES), show_progress_bar=False, convert_to_tensor=True
        )
        return cls(prompt, str(encoder.max_seq_length), probes.float().cpu().clone())

    def difference(self, other: EncoderFingerprint) -> str | None:
        """Return how ``other`` differs, as text for a message; None if it is the same encoder and prompt."""
        if self.prompt != other.prompt:
            return f"the prompt {shown(self.prompt)} here and {shown(other.prompt)} there"
        if self.max_seq_length != other.max_seq_length:
            return f"max_seq_length {self.max_seq_length} here and {other.max_seq_length} there"
        if self.probes.shape != other.probes.shape:
            return f"embeddings of {self.probes.shape[1]} dimensions here and {other.probes.shape[1]} there"
        length = torch.maximum(self.probes.norm(dim=1), other.probes.norm(dim=1))
        apart = ((self.probes - other.probes).norm(dim=1) / length.clamp(min=1e-30)).max().item()
        if apart > _TOLERANCE:
            return f"embeddings of one text that are {100 * apart:.0f} % apart"
        return None

    def written(self) -> dict[str, Any]:
        """Return the fingerprint as JSON can hold it."""
        return {**vars(self), "probes": self.probes.tolist()}

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> EncoderFingerprint:
        """Return the fingerprint that :meth:`written` gave."""
        return cls(written["prompt"], written["max_seq_length"], torch.tensor(written["probes"]))
