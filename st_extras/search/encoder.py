"""The encoder of a search: the embeddings that it compares, and whether it is the one that made the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from st_extras.checks import check_batch_size, check_finite_embeddings, check_instance
from st_extras.encoders.fingerprint import EncoderFingerprint
from st_extras.encoders.prompts import Role, encode_as
from st_extras.ranking import Floats, check_product, comparable


class SearchEncoder:
    """Encodes queries and documents such that the inner products of their embeddings are the similarities.

    Args:
        model: compares by cosine or dot product.
        batch_size: texts per forward pass.

    Raises:
        ValueError: if one of them is not allowed.
    """

    def __init__(self, model: SentenceTransformer, batch_size: int) -> None:
        check_instance("model", model, SentenceTransformer)
        check_product(model)
        self.model = model
        self.batch_size = check_batch_size(batch_size)

    def embed(self, role: Role, texts: Sequence[str]) -> Floats:
        """Return the embeddings (N, D) of N >= 1 queries or documents; for cosines, of length 1.

        Raises:
            ValueError: if a text is not valid, or its embedding not finite.
        """
        options: dict[str, Any] = {"batch_size": self.batch_size, "convert_to_tensor": True}
        embeddings = encode_as(self.model, role, texts, show_progress_bar=False, **options)
        check_finite_embeddings(embeddings, texts)
        return comparable(self.model, embeddings)

    def fingerprint(self) -> EncoderFingerprint:
        """Return which encoder the model encodes documents by; with cosine, lengths do not count."""
        found = EncoderFingerprint.of(self.model, route="document")
        return replace(found, probes=torch.from_numpy(comparable(self.model, found.probes)))

    def check_similarity(self, similarity: str) -> None:
        """Check that the model compares as a search was made with: by "cosine" or "dot".

        Raises:
            ValueError: if it does not.
        """
        if self.model.similarity_fn_name != similarity:
            raise ValueError(
                f"model.similarity_fn_name must be {similarity!r} as the search was made with, got "
                f"{self.model.similarity_fn_name!r}."
            )


def check_same_encoder(made_with: EncoderFingerprint, encoder: EncoderFingerprint) -> None:
    """Check that an encoder is the one that made a search.

    Raises:
        ValueError: if it is another.
    """
    if other := made_with.difference(encoder):
        raise ValueError(f"model must be the encoder that made the search, got another ({other}).")
