"""How much token embeddings tell about the frequency of their tokens: the bias that SLT-FAI sets out to remove."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.util import batch_to_device
from torch import Tensor

from st_extras.encoders import content_mask, encode, without_dropout
from st_extras.rows import Features
from st_extras.text.frequency import FrequencyTable

FOLDS = 5


def probe_accuracy(embeddings: Tensor, low_frequency: Tensor, types: Tensor, seed: int = 0) -> float:
    """Balanced accuracy of a logistic probe for low-frequency tokens, on token types it was not trained on.

    Args:
        embeddings: (N, D).
        low_frequency: (N,) bool.
        types: (N,), the token ids; no type stands on both sides of a split.
        seed: of the splits (5-fold).

    Returns:
        In [0, 1]; 0.5 is chance.
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


def neighbour_distances(embeddings: Tensor, types: Tensor, neighbours: int) -> Tensor:
    """Mean distance of each of N tokens to its nearest ``neighbours`` of other types, (N,): small where it is dense."""
    means = []
    for rows, own in zip(torch.split(embeddings, 512), torch.split(types, 512), strict=True):
        distances = torch.cdist(rows, embeddings).masked_fill(own.unsqueeze(1) == types, torch.inf)
        means.append(distances.topk(neighbours, dim=1, largest=False).values.mean(dim=1))
    return torch.cat(means)


class FrequencyBiasEvaluator(BaseEvaluator):
    """Compare the last-layer embeddings of low- and high-frequency tokens.

    Equally many content tokens of both groups are drawn from the sentences, at most ``max_per_type`` of a type.

    Metrics:
        probe_accuracy: balanced accuracy of a logistic probe that tells the groups apart, on unseen types; the
            primary metric. 0.5: the embeddings do not tell the frequency; lower is better.
        low_centre_distance, high_centre_distance: mean distance to the mean embedding.
        low_neighbour_distance, high_neighbour_distance: mean distance to the nearest tokens of other types, the
            inverse of the density.

    Distances are Euclidean, in units of the tokens' root-mean-square norm, so that encoders compare.

    Args:
        sentences: texts; a few thousand are enough.
        frequency_table: the token counts of the encoder's pre-training corpus, counted with its tokenizer.
        low_frequency_ratio: lambda, in (0, 1).
        tokens_per_group: tokens drawn from each group, at most.
        max_per_type: occurrences of one type drawn, at most.
        neighbours: k of the density.
        batch_size: for encoding.
        seed: of the draws.
        name: prefix of the metrics.
        write_csv: append a row to ``frequency_bias_{name}results.csv`` under the trainer's output path.
    """

    def __init__(
        self,
        sentences: Sequence[str],
        *,
        frequency_table: FrequencyTable,
        low_frequency_ratio: float = 0.5,
        tokens_per_group: int = 1000,
        max_per_type: int = 3,
        neighbours: int = 5,
        batch_size: int = 64,
        seed: int = 0,
        name: str = "",
        write_csv: bool = True,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        for key, value, least in (
            ("tokens_per_group", tokens_per_group, FOLDS),
            ("max_per_type", max_per_type, 1),
            ("neighbours", neighbours, 1),
        ):
            if value < least:
                raise ValueError(f"{key} must be at least {least}, got {value!r}.")
        if isinstance(sentences, str) or not len(sentences):
            raise ValueError(f"sentences must be a list of at least one text, got {sentences!r:.80}.")
        self.sentences = sorted(sentences, key=len)  # batches without much padding
        self.frequency_table = frequency_table
        self.low_frequency_ratio = low_frequency_ratio
        self.low_frequency = frequency_table.labels(low_frequency_ratio).bool()  # (V,)
        self.tokens_per_group = tokens_per_group
        self.max_per_type = max_per_type
        self.neighbours = neighbours
        self.batch_size = batch_size
        self.seed = seed
        self.name = name
        self.csv_file = f"frequency_bias_{name + '_' if name else ''}results.csv" if write_csv else None
        self.primary_metric = f"{name + '_' if name else ''}probe_accuracy"
        self.greater_is_better = False

    def __call__(  # type: ignore[override]
        self, model: SentenceTransformer, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        """Encode, probe, measure.

        Raises:
            ValueError: the table is another tokenizer's, or the sentences have too few tokens of a group.
        """
        self.frequency_table.check_tokenizer(model.tokenizer)
        embeddings, types = self._tokens(model)
        low = self.low_frequency[types]
        scaled = embeddings / embeddings.square().sum(dim=1).mean().sqrt()
        from_centre = (scaled - scaled.mean(dim=0)).norm(dim=1)
        from_neighbours = neighbour_distances(scaled, types, self.neighbours)
        metrics = {
            "probe_accuracy": probe_accuracy(embeddings, low, types, self.seed),
            "low_centre_distance": float(from_centre[low].mean()),
            "high_centre_distance": float(from_centre[~low].mean()),
            "low_neighbour_distance": float(from_neighbours[low].mean()),
            "high_neighbour_distance": float(from_neighbours[~low].mean()),
        }
        metrics = self.prefix_name_to_metrics(metrics, self.name)
        self.store_metrics_in_model_card_data(model, metrics, int(epoch), steps)
        if output_path is not None and self.csv_file is not None:
            path = Path(output_path) / self.csv_file
            path.parent.mkdir(parents=True, exist_ok=True)
            is_new = not path.is_file()
            with path.open("a", newline="", encoding="utf8") as stream:
                csv.writer(stream).writerows(
                    [["epoch", "steps", *metrics]] * is_new + [[epoch, steps, *metrics.values()]]
                )
        return metrics

    def _tokens(self, model: SentenceTransformer) -> tuple[Tensor, Tensor]:
        """Embeddings (N, D) of the tokens drawn, and their ids (N,), in float32 on the CPU."""
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
                    tokens = encode(model, batch_to_device(features, model.device)).tokens.float().cpu()
                    embeddings.append(tokens[mask][chosen])
        return torch.cat(embeddings), ids[drawn]

    def _draw(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the N content tokens to use, (N,)."""
        order = np.random.default_rng(self.seed).permutation(len(ids))
        by_type = order[np.argsort(ids[order], kind="stable")]  # random within a type
        _, first, sizes = np.unique(ids[by_type], return_index=True, return_counts=True)
        place = np.arange(len(ids)) - np.repeat(first, sizes)  # of an occurrence among its type's
        allowed = np.zeros(len(ids), dtype=bool)
        allowed[by_type[place < self.max_per_type]] = True
        low = self.low_frequency.numpy()[ids]
        groups = [order[allowed[order] & (low[order] == group)] for group in (True, False)]
        for group, name in zip(groups, ("low", "high"), strict=True):
            if len(np.unique(ids[group])) < max(FOLDS, self.neighbours + 1):
                raise ValueError(
                    f"sentences have {len(np.unique(ids[group]))} types of {name} frequency, which is too few to "
                    "measure: give more sentences, or another low_frequency_ratio."
                )
        count = min(self.tokens_per_group, *map(len, groups))
        chosen = np.zeros(len(ids), dtype=bool)
        for group in groups:
            chosen[group[:count]] = True
        return chosen

    @property
    def description(self) -> str:
        """For the model card."""
        return "Frequency Bias"

    def get_config_dict(self) -> dict[str, Any]:
        """For the model card."""
        return {"low_frequency_ratio": self.low_frequency_ratio, "neighbours": self.neighbours}
