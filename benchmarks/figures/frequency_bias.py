"""How well token embeddings predict the frequency of their tokens: the bias that SLT-FAI is meant to remove."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device
from torch import Tensor

from st_extras.encoders.forward import encode_tokens, without_dropout
from st_extras.encoders.rows import Features
from st_extras.encoders.structure import content_mask
from st_extras.evaluation.reporting import ReportingEvaluator
from st_extras.text.frequency import FrequencyTable

FOLDS = 5


def probe_accuracy(embeddings: Tensor, low_frequency: Tensor, types: Tensor, seed: int = 0) -> float:
    """Balanced accuracy of a logistic probe for low-frequency tokens, on token types it was not trained on.

    Args:
        embeddings: (N, D).
        low_frequency: (N,) bool.
        types: (N,) token ids; no type is on both sides of a split.
        seed: seed of the splits (5-fold).

    Returns:
        Accuracy in [0, 1]; 0.5 is chance.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedGroupKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    splits = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed)
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


class FrequencyBiasEvaluator(ReportingEvaluator):
    """Compare the last-layer embeddings of low- and high-frequency tokens.

    The same number of content tokens is drawn from the sentences for both groups, at most ``max_per_type`` of a type.

    Metrics:
        probe_accuracy: balanced accuracy of a logistic probe that tells the groups apart, on unseen types. It is the
            primary metric; lower is better, and 0.5 means that the embeddings do not reveal the frequency.
        low_centre_distance, high_centre_distance: mean distance to the mean embedding.
        low_neighbour_distance, high_neighbour_distance: mean distance to the nearest tokens of other types (the
            inverse of the density).

    Distances are Euclidean, in units of the tokens' root-mean-square norm, so that encoders can be compared.

    Args:
        sentences: texts; a few thousand are enough.
        frequency_table: token counts, ideally from the encoder's pre-training corpus, with its tokenizer.
        low_frequency_ratio: share of the vocabulary that counts as low-frequency (lambda), in (0, 1).
        tokens_per_group: largest number of tokens drawn from each group, >= 5.
        max_per_type: largest number of occurrences drawn of one type.
        neighbors: number of nearest tokens in the neighbour distances.
        batch_size: sentences per forward pass.
        seed: seed of the draws and of the probe's splits.
        name: prefix of the metrics and part of the CSV file's name.
        write_csv: whether to append a row to ``frequency_bias[_name]_results.csv`` in the output path.
    """

    def __init__(
        self,
        sentences: Sequence[str],
        *,
        frequency_table: FrequencyTable,
        low_frequency_ratio: float = 0.5,
        tokens_per_group: int = 1000,
        max_per_type: int = 3,
        neighbors: int = 5,
        batch_size: int = 64,
        seed: int = 0,
        name: str = "",
        write_csv: bool = True,
    ) -> None:
        super().__init__("frequency_bias", "probe_accuracy", name, batch_size, False, write_csv)
        self.sentences = sorted(sentences, key=len)  # batches without much padding
        self.frequency_table = frequency_table
        self.low_frequency_ratio = low_frequency_ratio
        self.low_frequency = frequency_table.labels(low_frequency_ratio).bool()  # (V,)
        self.tokens_per_group = tokens_per_group
        self.max_per_type = max_per_type
        self.neighbors = neighbors
        self.seed = seed
        self.greater_is_better = False

    def measure(self, model: SentenceTransformer) -> dict[str, float]:
        """Return the metrics by name.

        Raises:
            ValueError: if the table was counted with another tokenizer, or the sentences have too few tokens of a
                group.
        """
        self.frequency_table.check_tokenizer(model.tokenizer)
        embeddings, types = self._tokens(model)
        if not embeddings.isfinite().all():
            raise ValueError("token embeddings must be finite, got NaN or infinite values: did the training diverge?")
        low = self.low_frequency[types]
        scaled = embeddings / embeddings.square().sum(dim=1).mean().sqrt()
        from_centre = (scaled - scaled.mean(dim=0)).norm(dim=1)
        from_neighbours = neighbor_distances(scaled, types, self.neighbors)
        return {
            "probe_accuracy": probe_accuracy(embeddings, low, types, self.seed),
            "low_centre_distance": float(from_centre[low].mean()),
            "high_centre_distance": float(from_centre[~low].mean()),
            "low_neighbour_distance": float(from_neighbours[low].mean()),
            "high_neighbour_distance": float(from_neighbours[~low].mean()),
        }

    def _tokens(self, model: SentenceTransformer) -> tuple[Tensor, Tensor]:
        """Return the embeddings (N, D) of the drawn tokens, in float32 on the CPU, and their ids (N,)."""
        starts = range(0, len(self.sentences), self.batch_size)
        batches: list[Features] = [model.preprocess(self.sentences[i : i + self.batch_size]) for i in starts]
        content = [content_mask(model, features) for features in batches]
        ids = torch.cat([features["input_ids"][mask] for features, mask in zip(batches, content, strict=True)])
        drawn = torch.from_numpy(self._draw(ids.numpy()))
        embeddings = []
        with torch.no_grad(), without_dropout(model):
            counts = [int(mask.sum()) for mask in content]
            for features, mask, chosen in zip(batches, content, torch.split(drawn, counts), strict=True):
                if chosen.any():
                    tokens = encode_tokens(model, batch_to_device(features, model.device)).tokens.float().cpu()
                    embeddings.append(tokens[mask][chosen])
        return torch.cat(embeddings), ids[drawn]

    def _draw(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of the N content tokens to use, (N,)."""
        order = np.random.default_rng(self.seed).permutation(len(ids))
        by_type = order[np.argsort(ids[order], kind="stable")]  # random within a type
        _, first, sizes = np.unique(ids[by_type], return_index=True, return_counts=True)
        place = np.arange(len(ids)) - np.repeat(first, sizes)  # number of an occurrence within its type
        allowed = np.zeros(len(ids), dtype=bool)
        allowed[by_type[place < self.max_per_type]] = True
        low = self.low_frequency.numpy()[ids]
        groups = [order[allowed[order] & (low[order] == group)] for group in (True, False)]
        for group, name in zip(groups, ("low", "high"), strict=True):
            if len(np.unique(ids[group])) < max(FOLDS, self.neighbors + 1):
                raise ValueError(
                    f"sentences must contain at least {max(FOLDS, self.neighbors + 1)} types of {name} frequency, got "
                    f"{len(np.unique(ids[group]))}: give more sentences, or another low_frequency_ratio."
                )
        count = min(self.tokens_per_group, *map(len, groups))
        chosen = np.zeros(len(ids), dtype=bool)
        for group in groups:
            chosen[group[:count]] = True
        return chosen

    def get_config_dict(self) -> dict[str, Any]:
        """Settings in the model card."""
        return {"low_frequency_ratio": self.low_frequency_ratio, "neighbors": self.neighbors}
