"""AdCSE: a momentum encoder for the positives and learned adversaries for negatives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import get_world_size
from torch import Tensor, nn

from st_extras.encoders import (
    apply_head,
    embedding_dimension,
    encode_pair,
    gather_rows,
    projection_head,
    require_synchronised,
    run,
    unwrap,
)
from st_extras.functional import (
    check_not_negative,
    check_positive,
    cosine_ascent_direction,
    cosine_scores,
    full_precision,
    weighted_info_nce,
)
from st_extras.generators import RandomSource
from st_extras.momentum import MomentumEncoder, require_trainable
from st_extras.rows import Features, check_columns, merged_pair


def adversarial_info_nce(
    queries: Tensor,
    keys: Tensor,
    adversaries: Tensor,
    *,
    temperature: float,
    in_batch_negatives: bool = True,
    offset: int = 0,
) -> tuple[Tensor, Tensor]:
    """Eq. 5: InfoNCE with learned vectors as further negatives.

    Args:
        queries: (B, D).
        keys: (K, D); the positive of query i is key ``i + offset``.
        adversaries: (M, D).
        temperature: tau.
        in_batch_negatives: whether the other keys are negatives too.
        offset: index of row 0's key (keys gathered across processes).

    Returns:
        The loss, (), and the share of the softmax that each adversary takes at each query, (B, M), detached.
    """
    negatives = cosine_scores(queries, adversaries.to(full_precision(queries).dtype), temperature)
    scores = torch.cat([cosine_scores(queries, keys, temperature), negatives], dim=1)  # (B, K + M)
    weights = None
    if not in_batch_negatives:
        weights = torch.ones_like(scores)
        weights[:, : len(keys)] = 0
        weights.diagonal(offset=offset).fill_(1)
    loss = weighted_info_nce(scores, weights, offset=offset)
    logits = scores.detach() if weights is None else scores.detach() + weights.log()
    return loss, logits.softmax(dim=1)[:, len(keys) :]


class AdCSELoss(nn.Module):
    """InfoNCE against learned adversaries, with positives from a momentum copy of the encoder (Li et al., 2022).

    For B sentences, h_i = g_q(f_q(x_i)) with gradients and h_i^+ = g_p(f_p(x_i)) without, s = cos/tau (eq. 5)::

        loss = mean_i -log( e^{s(h_i,h_i^+)} / ( e^{s(h_i,h_i^+)} [+ N_i] + sum_m e^{s(h_i,n_m)} ) )
        N_i = sum_{j != i} e^{s(h_i,h_j^+)}                                        (in-batch negatives)
        theta_p = m theta_p + (1-m) theta_q                                        (eq. 4, before each step)
        v_m = mu v_m - dloss/dn_m + lambda n_m,   n_m = n_m - alpha v_m            (eq. 7, ascent, after each loss)

    f_q is the trained model, f_p a :class:`~st_extras.momentum.MomentumEncoder` that starts as its exact copy, and
    the adversaries n_1..n_M in R^D climb the same loss by SGD, with the gradient in closed form. The trained
    encoder sees B rows a step where SimCSE shows it 2B.

    Args:
        model: the SentenceTransformer to train.
        num_adversaries: M. 0: none (the paper's "w/o negative adversaries").
        temperature: tau.
        momentum: m of the momentum encoder, in [0, 1].
        tied: one encoder for both sides, 2B rows, gradients on both (the paper's "w/o untied dual-encoder").
        adversary_learning_rate: alpha. 0: the adversaries stay where they are.
        adversary_momentum: mu of their SGD, in [0, 1).
        adversary_weight_decay: lambda of their SGD.
        in_batch_negatives: the other sentences of the batch are negatives too. False: eq. 5 to the letter.
        symmetric: also contrast each h_i^+ with the h_j and the adversaries; the mean of both directions.
        projection: heads g_q and g_p, Linear(D, D) + tanh, that belong to the loss and are dropped at evaluation.
        key_dropout: dropout of the momentum encoder.
        gather_across_devices: use the sentences of all processes as negatives.
        generator: the torch.Generator that draws the adversaries, on the model's device. None: one is made from
            torch's seed.

    Attributes (0-dim tensors, of the last training step):
        adversary_similarity: mean cosine of adversaries and anchors: are they hard?
        adversary_share: mean share of the softmax that the adversaries take.

    Inputs:
        +-------------------------------+--------+
        | Columns                       | Labels |
        +===============================+========+
        | sentence                      | none   |
        +-------------------------------+--------+
        | sentence, its positive        | none   |
        +-------------------------------+--------+

    The positive is encoded by the momentum encoder, so that an encoder for positives alone (a Router's for documents)
    is not trained, unless ``tied``. Both updates happen once per training forward, so with gradient accumulation over k
    batches use ``momentum ** (1 / k)``. In several processes the adversaries' gradient is averaged, and
    :class:`~st_extras.training.LossStateCallback` must be attached; it also saves this state.

    Differs from the authors' code: the momentum encoder starts as a copy (theirs appears to start at random).
    Differs from the paper: eq. 5 has the adversaries alone as negatives; the released code that made the reported
    numbers also keeps the in-batch negatives, as is the default here. Weight decay of the adversaries and
    ``symmetric`` are the code's, not the paper's.

    Paper (BERT base): batch 64, learning rate 3e-5, max length 32, STS-B dev every 125 steps. Script: 1 epoch.

    Example:
        >>> from datasets import Dataset
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from st_extras.losses import AdCSELoss
        >>> model = SentenceTransformer("bert-base-uncased")  # doctest: +SKIP
        >>> data = Dataset.from_dict({"sentence": ["A plane is taking off.", "A man plays a flute."]})
        >>> SentenceTransformerTrainer(model, train_dataset=data, loss=AdCSELoss(model)).train()  # doctest: +SKIP
    """

    adversaries: Tensor
    adversary_velocity: Tensor

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        num_adversaries: int = 64,
        temperature: float = 0.05,
        momentum: float = 0.995,
        tied: bool = False,
        adversary_learning_rate: float = 3e-3,
        adversary_momentum: float = 0.9,
        adversary_weight_decay: float = 1e-4,
        in_batch_negatives: bool = True,
        symmetric: bool = False,
        projection: bool = True,
        key_dropout: bool = True,
        gather_across_devices: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(num_adversaries, int) or num_adversaries < 0:
            raise ValueError(f"num_adversaries must be a whole number >= 0, got {num_adversaries!r}.")
        if num_adversaries == 0 and not in_batch_negatives:
            raise ValueError("num_adversaries=0 with in_batch_negatives=False leaves no negatives: set one of them.")
        if not 0 <= adversary_momentum < 1:
            raise ValueError(f"adversary_momentum must be in [0, 1), got {adversary_momentum!r}.")
        require_trainable(model)
        dimension, device = embedding_dimension(model), unwrap(model).device
        self.model = model
        self.temperature = check_positive("temperature", temperature)
        self.adversary_learning_rate = check_not_negative("adversary_learning_rate", adversary_learning_rate)
        self.adversary_momentum = adversary_momentum
        self.adversary_weight_decay = check_not_negative("adversary_weight_decay", adversary_weight_decay)
        self.in_batch_negatives = in_batch_negatives
        self.symmetric = symmetric
        self.gather_across_devices = gather_across_devices
        self.projection_head = projection_head(dimension).to(device) if projection else None
        self.momentum_encoder = (
            None if tied else MomentumEncoder(model, momentum, head=self.projection_head, dropout=key_dropout)
        )
        start = torch.randn(num_adversaries, dimension, device=device, generator=RandomSource(generator).on(device))
        self.register_buffer("adversaries", start)
        self.register_buffer("adversary_velocity", torch.zeros_like(start))
        self.adversary_similarity = self.adversary_share = torch.tensor(torch.nan)

    def views(self, sentence_features: Sequence[Features]) -> tuple[Features, int]:
        """The rows that the trained encoder must see, for a loss that wraps this one: (B rows, 1); tied (2B, 2)."""
        columns = check_columns(sentence_features, "AdCSELoss")
        if self.momentum_encoder is None:
            return merged_pair(columns, ("dropout", "dropout")), 2
        return dict(columns[0]), 1

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """The loss of a batch; ``labels`` are not used."""
        columns = check_columns(sentence_features, "AdCSELoss")
        if self.momentum_encoder is None:
            embeddings = encode_pair(self.model, columns, ("dropout", "dropout"))
        else:
            embeddings = [run(self.model, columns[0])["sentence_embedding"]]
        return self.compute_loss_from_embeddings(embeddings, labels, sentence_features=columns)

    def compute_loss_from_embeddings(
        self,
        embeddings: Sequence[Tensor],
        labels: Tensor | None = None,
        *,
        sentence_features: Sequence[Features] | None = None,
    ) -> Tensor:
        """The loss, and the adversaries' step where gradients are enabled.

        Args:
            embeddings: [queries, keys], each (B, D), after the heads. With ``sentence_features``: what the trained
                encoder gave for the rows of :meth:`views`, before the heads: [anchors]; tied: [anchors, positives].
            labels: not used.
            sentence_features: the untouched columns, of which the momentum encoder makes the keys.
        """
        untied = self.momentum_encoder is not None
        if sentence_features is not None and len(embeddings) == (1 if untied else 2):
            embeddings = apply_head(self.projection_head, embeddings)
            if untied:
                embeddings.append(self._keys(sentence_features[-1]))
        if len(embeddings) != 2:
            raise ValueError(
                f"embeddings must be [queries, keys], got {len(embeddings)}; the trained encoder's output for the rows "
                "of views() needs sentence_features, the tokenized columns, too."
            )
        return self._loss(*embeddings)

    def _keys(self, features: Features) -> Tensor:
        """(B, D) keys of the momentum encoder, which first follows the model where gradients are enabled."""
        momentum_encoder = cast(MomentumEncoder, self.momentum_encoder)
        if torch.is_grad_enabled():
            momentum_encoder.update(self.model, self.projection_head)
        momentum_encoder.train(unwrap(self.model).training)
        return cast(Tensor, momentum_encoder(features))

    def _loss(self, queries: Tensor, keys: Tensor) -> Tensor:
        sizes = {queries.size(-1), keys.size(-1), self.adversaries.size(-1)}
        if len(sizes) > 1 or len(queries) != len(keys):
            raise ValueError(
                f"AdCSELoss was made for embeddings of {self.adversaries.size(-1)} dimensions and got queries "
                f"{tuple(queries.shape)} and keys {tuple(keys.shape)}: make the loss after the model is complete, "
                "and not inside a loss that truncates embeddings (MatryoshkaLoss)."
            )
        directions = [(queries, keys), (keys, queries)] if self.symmetric else [(queries, keys)]
        losses, shares = [], []
        for anchors, positives in directions:
            candidates, offset = gather_rows(positives, self.gather_across_devices and self.in_batch_negatives)
            loss, share = adversarial_info_nce(
                anchors,
                candidates,
                self.adversaries,
                temperature=self.temperature,
                in_batch_negatives=self.in_batch_negatives,
                offset=offset,
            )
            losses.append(loss)
            shares.append(share)
        if torch.is_grad_enabled() and len(self.adversaries):
            require_synchronised(self)
            self._ascend(torch.cat([anchors for anchors, _ in directions]).detach(), torch.cat(shares))
        return torch.stack(losses).mean()

    @torch.no_grad()
    def _ascend(self, anchors: Tensor, shares: Tensor) -> None:
        """Eq. 7: one step of SGD with momentum and weight decay UP the loss of these anchors."""
        self.adversary_share = shares.sum(dim=1).mean()
        self.adversary_similarity = cosine_scores(anchors, self.adversaries.to(full_precision(anchors).dtype)).mean()
        gradient = cosine_ascent_direction(self.adversaries, anchors, shares) / (self.temperature * len(anchors))
        if get_world_size() > 1:
            dist.all_reduce(gradient)
            gradient /= get_world_size()
        step = self.adversary_weight_decay * self.adversaries - gradient
        self.adversary_velocity.mul_(self.adversary_momentum).add_(step)
        self.adversaries.sub_(self.adversary_velocity, alpha=self.adversary_learning_rate)

    def _match_momentum_encoder(self) -> None:
        if self.momentum_encoder is not None:
            self.momentum_encoder.match(self.model, self.projection_head)

    def _save_to_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._match_momentum_encoder()
        super()._save_to_state_dict(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._match_momentum_encoder()
        super()._load_from_state_dict(*args, **kwargs)

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, for the model card."""
        momentum_encoder = self.momentum_encoder
        return {
            "num_adversaries": len(self.adversaries),
            "temperature": self.temperature,
            "momentum": None if momentum_encoder is None else momentum_encoder.momentum,
            "tied": momentum_encoder is None,
            "adversary_learning_rate": self.adversary_learning_rate,
            "adversary_momentum": self.adversary_momentum,
            "adversary_weight_decay": self.adversary_weight_decay,
            "in_batch_negatives": self.in_batch_negatives,
            "symmetric": self.symmetric,
            "projection": self.projection_head is not None,
            "key_dropout": None if momentum_encoder is None else momentum_encoder.dropout,
            "gather_across_devices": self.gather_across_devices,
        }

    @property
    def citation(self) -> str:
        """BibTeX of the paper."""
        return """
@inproceedings{li2022adcse,
    title = "{AdCSE}: An Adversarial Method for Contrastive Learning of Sentence Embeddings",
    author = "Li, Renhao and Duan, Lei and Xie, Guicai and Xiao, Shan and Jiang, Weipeng",
    booktitle = "Database Systems for Advanced Applications (DASFAA)",
    year = "2022",
    pages = "165--180",
    url = "https://doi.org/10.1007/978-3-031-00129-1_11",
}
"""
