"""How well token embeddings predict the frequency of their tokens: the bias that SLT-FAI is meant to remove."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device
from torch import Tensor

from st_extras.encoders.forward import encode_tokens, without_dropout
from st_extras.encoders.rows import Features
from st_extras.encoders.structure import content_mask
from st_extras.text.frequency import FrequencyTable

FOLDS = 5
MOST_OF_A_TYPE = 3
BATCH = 64
SEED = 0


def probe_accuracy(embeddings: Tensor, low_frequency: Tensor, types: Tensor) -> float:
    """Balanced accuracy of a logistic probe for low-frequency tokens, on token types it was not trained on.

    Args:
        embeddings: (N, D).
        low_frequency: (N,) bool.
        types: (N,) token ids; no type is on both sides of a split.

    Returns:
        Accuracy in [0, 1]; 0.5 is chance.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedGroupKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    splits = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=SEED)
    scores = cross_val_score(
        probe, embeddings.numpy(), low_frequency.numpy(), groups=types.numpy(), cv=splits, scoring="balanced_accuracy"
    )
    return float(scores.mean())


def neighbor_distances(embeddings: Tensor, types: Tensor, neighbors: int) -> Tensor:
    """Mean distance (N,) of each token to its nearest ``neighbors`` of other types; small in dense regions."""
    means = []
    for rows, own in zip(torch.split(embeddings, 512), torch.split(types, 512), strict=True):
        distances = torch.cdist(rows, embeddings).masked_fill(own.unsqueeze(1) == types, torch.inf)
        means.append(distances.topk(neighbors, dim=1, largest=False).values.mean(dim=1))
    return torch.cat(means)


def frequency_bias(
    model: SentenceTransformer,
    sentences: Sequence[str],
    frequency_table: FrequencyTable,
    *,
    low_frequency_ratio: float = 0.5,
    tokens_per_group: int = 1000,
    neighbors: int = 5,
) -> dict[str, float]:
    """Compare the last-layer embeddings of low- and high-frequency tokens.

    The same number of content tokens is drawn from the sentences for both groups, at most MOST_OF_A_TYPE of a type.
    Distances are Euclidean, in units of the tokens' root-mean-square norm, so that encoders can be compared.

    Args:
        model: the encoder.
        sentences: texts; a few thousand are enough.
        frequency_table: token counts, ideally from the encoder's pre-training corpus, with its tokenizer.
        low_frequency_ratio: share of the vocabulary that counts as low-frequency (lambda), in (0, 1).
        tokens_per_group: largest number of tokens drawn from each group.
        neighbors: number of nearest tokens in the neighbour distances.

    Returns:
        ``probe_accuracy``: balanced accuracy of a logistic probe that tells the groups apart, on unseen types; 0.5
        means that the embeddings do not reveal the frequency. ``low_centre_distance``, ``high_centre_distance``: mean
        distance to the mean embedding. ``low_neighbour_distance``, ``high_neighbour_distance``: mean distance to the
        nearest tokens of other types (the inverse of the density).

    Raises:
        ValueError: if the table was counted with another tokenizer, or the sentences have too few tokens of a group.
    """
    frequency_table.check_tokenizer(model.tokenizer)
    low_frequency = frequency_table.labels(low_frequency_ratio).bool()  # (V,)
    embeddings, types = drawn_tokens(model, sentences, low_frequency, tokens_per_group, max(FOLDS, neighbors + 1))
    low = low_frequency[types]
    scaled = embeddings / embeddings.square().sum(dim=1).mean().sqrt()
    from_centre = (scaled - scaled.mean(dim=0)).norm(dim=1)
    from_neighbours = neighbor_distances(scaled, types, neighbors)
    return {
        "probe_accuracy": probe_accuracy(embeddings, low, types),
        "low_centre_distance": float(from_centre[low].mean()),
        "high_centre_distance": float(from_centre[~low].mean()),
        "low_neighbour_distance": float(from_neighbours[low].mean()),
        "high_neighbour_distance": float(from_neighbours[~low].mean()),
    }


def drawn_tokens(
    model: SentenceTransformer, sentences: Sequence[str], low_frequency: Tensor, count: int, fewest: int
) -> tuple[Tensor, Tensor]:
    """Return the embeddings (N, D) of the drawn tokens, in float32 on the CPU, and their ids (N,).

    Args:
        model: the encoder.
        sentences: the texts.
        low_frequency: (V,) bool.
        count: largest number of tokens of each group.
        fewest: number of types that each group must have.
    """
    ordered = sorted(sentences, key=len)  # batches without much padding
    batches: list[Features] = [model.preprocess(ordered[i : i + BATCH]) for i in range(0, len(ordered), BATCH)]
    content = [content_mask(model, features) for features in batches]
    ids = torch.cat([features["input_ids"][mask] for features, mask in zip(batches, content, strict=True)])
    drawn = torch.from_numpy(drawn_places(ids.numpy(), low_frequency.numpy(), count, fewest))
    embeddings = []
    with torch.no_grad(), without_dropout(model):
        counts = [int(mask.sum()) for mask in content]
        for features, mask, chosen in zip(batches, content, torch.split(drawn, counts), strict=True):
            if chosen.any():
                tokens = encode_tokens(model, batch_to_device(features, model.device)).tokens.float().cpu()
                embeddings.append(tokens[mask][chosen])
    return torch.cat(embeddings), ids[drawn]


def drawn_places(
    ids: NDArray[np.int64], low_frequency: NDArray[np.bool_], count: int, fewest: int
) -> NDArray[np.bool_]:
    """Return which of the N content tokens to use, (N,)."""
    order = np.random.default_rng(SEED).permutation(len(ids))
    by_type = order[np.argsort(ids[order], kind="stable")]  # random within a type
    _, first, sizes = np.unique(ids[by_type], return_index=True, return_counts=True)
    place = np.arange(len(ids)) - np.repeat(first, sizes)  # number of an occurrence within its type
    allowed = np.zeros(len(ids), dtype=bool)
    allowed[by_type[place < MOST_OF_A_TYPE]] = True
    low = low_frequency[ids]
    groups = {name: order[allowed[order] & (low[order] == (name == "low"))] for name in ("low", "high")}
    for name, group in groups.items():
        if (types := len(np.unique(ids[group]))) < fewest:
            raise ValueError(
                f"sentences must hold at least {fewest} types of {name} frequency, got {types}: give more."
            )
    count = min(count, *map(len, groups.values()))
    chosen = np.zeros(len(ids), dtype=bool)
    for group in groups.values():
        chosen[group[:count]] = True
    return chosen
