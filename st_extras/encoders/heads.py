"""Projection heads: trained with the encoder, owned by the loss, dropped at evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from st_extras.encoders.distributed import require_synchronised


def projection_head(dimension: int) -> nn.Sequential:
    """Return Linear(D, D) + tanh, the head that the authors of SimCSE, DCLR and AdCSE train with."""
    return nn.Sequential(nn.Linear(dimension, dimension), nn.Tanh())


def apply_head(head: nn.Module | None, embeddings: Sequence[Tensor]) -> list[Tensor]:
    """Return the embeddings after a projection head, in the head's dtype; unchanged if ``head`` is None.

    Raises:
        ValueError: if the embeddings have another dimension than the head, or a multi-process run does not keep
            the head equal across processes.
    """
    if head is None:
        return list(embeddings)
    require_synchronised(head)
    check_head_size(head, embeddings[0])
    dtype = next(head.parameters()).dtype
    return [head(x.to(dtype)) for x in embeddings]


def check_head_size(head: nn.Module, embeddings: Tensor) -> None:
    """Refuse embeddings, (B, D) before or after a projection head, of another dimension than the head's.

    Raises:
        ValueError: if they are.
    """
    expected = cast(nn.Linear, cast(nn.Sequential, head)[0]).in_features
    if embeddings.size(-1) != expected:
        raise ValueError(
            f"projection=True was built for embeddings of {expected} dimensions, got {embeddings.size(-1)}: "
            "use projection=False with a loss that truncates embeddings (MatryoshkaLoss)."
        )
