"""The encoder of a search: the embeddings that it compares, and whether it is the one that made the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from st_extras.checks import check_batch_size, check_finite_embeddings, check_instance
from st_extras.encoders.fingerprint import EncoderFingerprint, embedding_difference
from st_extras.encoders.passages import Passages, cut_documents, warn_of_long_ones
from st_extras.encoders.prompts import Role, encode_as
from st_extras.encoders.structure import warn_if_poorly_read
from st_extras.ranking import Floats, check_product, comparable

_PROVED = 4  # texts whose embeddings are compared with given ones, to know that the encoder made them


class SearchEncoder:
    """Encodes queries and documents such that the inner products of their embeddings are the similarities.

    Args:
        model: compares by cosine or dot product.
        batch_size: texts per forward pass.

    Attributes:
        similarity: "cosine" or "dot", as the model compared when this was made. Once it compares in another way, it is
            refused.

    Raises:
        ValueError: if one of them is not allowed.
    """

    def __init__(self, model: SentenceTransformer, batch_size: int) -> None:
        check_instance("model", model, SentenceTransformer)
        check_product(model)
        self.model = model
        self.similarity = str(model.similarity_fn_name)
        self.batch_size = check_batch_size(batch_size)

    @cached_property
    def fingerprint(self) -> EncoderFingerprint:
        """Which encoder the model encodes documents by; with cosine, lengths do not count."""
        found = EncoderFingerprint.of(self.model, route="document")
        return replace(found, probes=torch.from_numpy(comparable(self.model, found.probes)))

    def check_made(self, made_with: EncoderFingerprint, similarity: str) -> None:
        """Check that this encoder made a search that compares by "cosine" or "dot".

        Raises:
            ValueError: if another did, or the model compares in another way.
        """
        self._check_similarity(similarity)
        if other := made_with.difference(self.fingerprint):
            raise ValueError(f"model must be the encoder that made the search, got another ({other}).")

    def _check_similarity(self, similarity: str) -> None:
        if self.model.similarity_fn_name != similarity:
            raise ValueError(
                f"model.similarity_fn_name must be {similarity!r} as the search was made with, got "
                f"{self.model.similarity_fn_name!r}."
            )

    def cut(self, texts: Sequence[str], passage_words: int | None) -> Passages:
        """Return the passages of N documents; None: they stay whole. What the model does not read is warned of."""
        warn_if_poorly_read(self.model, texts)
        if passage_words is None:
            warn_of_long_ones(self.model, texts)
        return cut_documents(self.model, texts, passage_words)

    def embed(self, role: Role, texts: Sequence[str]) -> Floats:
        """Return the embeddings (N, D) of N >= 1 queries or documents; for cosines, of length 1.

        Raises:
            ValueError: if a text is not valid, its embedding not finite, or the model compares in another way by now.
        """
        self._check_similarity(self.similarity)
        options: dict[str, Any] = {"batch_size": self.batch_size, "convert_to_tensor": True}
        embeddings = encode_as(self.model, role, texts, show_progress_bar=False, **options)
        check_finite_embeddings(embeddings, texts)
        return comparable(self.model, embeddings)

    def check_embeddings(self, texts: Sequence[str], given: Floats) -> Floats:
        """Return given embeddings (N, D) of N documents as :meth:`embed` would, if they are the model's.

        Raises:
            ValueError: if they are not, as those of another encoder or in another order.
        """
        dimension = self.fingerprint.probes.shape[1]
        if given.shape[1] != dimension:
            raise ValueError(f"embeddings must have the model's {dimension} dimensions, got {given.shape[1]}.")
        embeddings = comparable(self.model, torch.from_numpy(given))
        longest = sorted(range(len(texts)), key=lambda i: -len(texts[i]))[:_PROVED]
        if longest:
            again = torch.from_numpy(self.embed("document", [texts[i] for i in longest]))
            dtype = self.fingerprint.dtype
            if other := embedding_difference(torch.from_numpy(embeddings[longest]), again, "unknown", dtype):
                raise ValueError(
                    f"embeddings must be those of the model, got others ({other}): give those of model.encode_document "
                    "for these documents, in their order."
                )
        return embeddings
