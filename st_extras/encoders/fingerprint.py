"""Which encoder made some embeddings: recognized by its embeddings of two texts, not by its name.

The one answer to "is it the same encoder?", for searches and guides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.checks import shown
from st_extras.encoders.prompts import Role, encode_as, prompt_for

PROBES = ("A man is playing a guitar in the park.", "The market is closed on Sunday.")
"""Texts by whose embeddings encoders are recognized. These are stored: with other texts, none would be recognized."""
_TOLERANCES = {"float32": 0.01, "float64": 0.01}
_TOLERANCE_OF_HALVES = 0.05
"""How far two embeddings of a probe may be apart, relative to their length: other hardware and padding stay below."""


@dataclass(frozen=True)
class EncoderFingerprint:
    """An encoder and a prompt, as far as embeddings depend on them.

    Attributes:
        prompt: text put before every sentence; may be empty.
        max_seq_length: most tokens of a text, as text; "None" if the encoder has no limit.
        probes: (P, D) float32, the embeddings of ``PROBES``.
        dtype: precision that they were computed in: "float32", "bfloat16".
    """

    prompt: str
    max_seq_length: str
    probes: Tensor
    dtype: str = "float32"

    @classmethod
    def of(cls, encoder: SentenceTransformer, *, route: Role | None = None) -> EncoderFingerprint:
        """Return the fingerprint of an encoder; it encodes two texts.

        Args:
            encoder: the encoder.
            route: as which texts are encoded, by ``encode_as``. None: by ``encode``, with the encoder's default prompt.
        """
        options: dict[str, Any] = {"batch_size": len(PROBES), "show_progress_bar": False, "convert_to_tensor": True}
        if route is not None:
            prompt, probes = prompt_for(encoder, route), encode_as(encoder, route, PROBES, **options)
        else:
            prompt = encoder.prompts.get(encoder.default_prompt_name or "") or ""
            probes = encoder.encode(list(PROBES), prompt=prompt, **options)
        dtype = str(probes.dtype).removeprefix("torch.")
        return cls(prompt, str(encoder.max_seq_length), probes.float().cpu().clone(), dtype)

    def difference(self, other: EncoderFingerprint) -> str | None:
        """Return how ``other`` differs, as text for a message; None if it is the same encoder and prompt."""
        if self.prompt != other.prompt:
            return f"the prompt {shown(self.prompt)} here and {shown(other.prompt)} there"
        if self.max_seq_length != other.max_seq_length:
            return f"max_seq_length {self.max_seq_length} here and {other.max_seq_length} there"
        if self.probes.shape != other.probes.shape:
            return f"embeddings of {self.probes.shape[1]} dimensions here and {other.probes.shape[1]} there"
        return embedding_difference(self.probes, other.probes, self.dtype, other.dtype)

    def to_json(self) -> dict[str, Any]:
        """Return the fingerprint as JSON can hold it."""
        return {**vars(self), "probes": self.probes.tolist()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> EncoderFingerprint:
        """Return the fingerprint that :meth:`to_json` gave."""
        return cls(content["prompt"], content["max_seq_length"], torch.tensor(content["probes"]), content["dtype"])


def embedding_difference(embeddings: Tensor, others: Tensor, *dtypes: str) -> str | None:
    """Return how far embeddings of the same texts are apart, as text for a message; None if one encoder made both.

    Args:
        embeddings: (N, D) float32.
        others: (N, D) float32.
        dtypes: the precisions that they were computed in.
    """
    length = torch.maximum(embeddings.norm(dim=1), others.norm(dim=1))
    apart = ((embeddings - others).norm(dim=1) / length.clamp(min=1e-30)).max().item()
    if not apart <= max(_TOLERANCES.get(dtype, _TOLERANCE_OF_HALVES) for dtype in dtypes):
        return f"embeddings of one text that are {100 * apart:.0f} % apart"
    return None
