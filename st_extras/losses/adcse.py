"""AdCSE: a momentum encoder for the positives and learned adversaries for negatives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.checks import check_bool, check_count, check_temperature
from st_extras.encoders.distributed import gather_rows
from st_extras.encoders.forward import forward_pass
from st_extras.encoders.heads import apply_head, projection_head
from st_extras.encoders.momentum import MomentumEncoder, check_momentum, match_at_state_dict, require_trainable
from st_extras.encoders.rows import Features, check_columns
from st_extras.encoders.structure import embedding_dimension, unwrap
from st_extras.functional import unit_rows, unit_scores
from st_extras.losses.parts.adversaries import (
    Adversaries,
    adversarial_info_nce,
    adversary_scores,
    check_shapes,
    contrast_with,
)
from st_extras.losses.parts.dropout_views import warn_if_same_views
from st_extras.losses.parts.gradient_cache import (
    GradientCache,
    check_mini_batch_size,
    mean_over_mini_batches,
    mini_batches,
)
from st_extras.losses.parts.negatives import warn_without_negatives
from st_extras.losses.parts.views import TwoViews
from st_extras.losses.parts.wrapping import refuse_wrapped


class AdCSELoss(nn.Module):
    """Contrast each sentence with its momentum-encoded copy, against learned vectors that seek to be confused with it.

    The positive comes from a slowly following copy of the encoder, so the trained encoder sees B rows a step where
    SimCSE shows it 2B: a cheaper step. The adversaries are vectors that climb the loss as the encoder descends it.
    Use it on a raw encoder when the cost of a step matters; not where similar sentences meet in a batch, as all of
    them are negatives.

    Paper: AdCSE, Li et al., 2022, https://doi.org/10.1007/978-3-031-00129-1_11.
    Code: https://github.com/lirenhao1997/AdCSE.

    For B sentences, h_i = g_q(f_q(x_i)) with gradients and h_i^+ = g_p(f_p(x_i)) without, s = cos/tau (eq. 5; with
    ``shared_head``, g_p is g_q)::

        loss = mean_i -log( e^{s(h_i,h_i^+)} / ( e^{s(h_i,h_i^+)} [+ N_i] + sum_m e^{s(h_i,n_m)} ) )
        N_i = sum_{j != i} e^{s(h_i,h_j^+)}                                        (in-batch negatives)
        theta_p = m theta_p + (1-m) theta_q                                        (eq. 4, before each step)
        v_m = mu v_m - dloss/dn_m + lambda n_m,   n_m = n_m - alpha v_m            (eq. 7, ascent, after each loss)

    f_q is the trained model and f_p a :class:`~st_extras.encoders.MomentumEncoder`, which starts as its exact copy.
    The adversaries n_1..n_M in R^D climb the same loss by SGD, with the gradient in closed form. Drawn at random, they
    are nearly orthogonal to all embeddings and stay so at the paper's rate, see ``adversary_share`` and
    ``adversary_angle``; ``adversary_start="features"`` puts them where the embeddings are.

    Args:
        model: the SentenceTransformer to train.
        num_adversaries: M. 0: none (the paper's "w/o negative adversaries").
        temperature: tau.
        momentum: m of the momentum encoder, in [0, 1].
        tied: one encoder for both sides, 2B rows, gradients on both (the paper's "w/o untied dual-encoder").
        adversary_start: "random": drawn from N(0, I), as in the paper; "features": each is replaced, once, by a key of
            the first batches at length 1, after the batch's loss (as in AdCo, which the paper builds on). Until then
            it is random.
        adversary_learning_rate: alpha. 0: the adversaries do not move. A step turns an adversary by an angle in
            proportion to 1/|n_m|^2: a rate for unit vectors ("features") acts D times as much as on random ones.
        adversary_momentum: mu of their SGD, in [0, 1).
        adversary_weight_decay: lambda of their SGD.
        adversary_temperature: tau of the loss that the adversaries climb; the encoder's stays ``temperature``. Lower:
            each adversary follows the anchors nearest to it. None: ``temperature``, as in the paper.
        in_batch_negatives: use the other sentences of the batch as negatives too. False: eq. 5 to the letter.
        symmetric: also contrast each h_i^+ with the h_j and the adversaries; the mean of both directions.
        projection: heads g_q and g_p, Linear(D, D) + tanh, that belong to the loss and are dropped at evaluation.
        shared_head: g_p is the trained head g_q, without gradients from the keys (the released code), and not a copy
            of it that follows by eq. 4 (the paper). Needs ``projection``; with ``tied``, the head is shared anyway.
        key_dropout: dropout in the momentum encoder.
        gather_across_devices: use the sentences of all processes as negatives.
        mini_batch_size: number of sentences that the encoder sees at a time (gradient caching). Memory no longer grows
            with the batch's activations, and a step takes about 4/3 of the time. None: the whole batch at once.
        generator: torch.Generator that draws the adversaries, on the model's device. None: one is made from torch's
            seed.

    Attributes (0-dim tensors, of the last training step):
        adversary_similarity: mean cosine of adversaries and anchors: are they hard negatives?
        adversary_share: mean share of the softmax that the adversaries take.
        adversary_angle: mean angle in degrees by which the adversaries have turned since each was drawn.
        instruments: all three, by name, to log.

    Inputs:
        +-------------------------------+--------+
        | Columns                       | Labels |
        +===============================+========+
        | sentence                      | none   |
        +-------------------------------+--------+
        | sentence, its positive        | none   |
        +-------------------------------+--------+

    Works with: any encoder; one without dropout gets a warning, as each positive is then nearly its anchor and only
    the negatives teach; prompts, LoRA, dictionaries of losses, several processes (with
    :class:`~st_extras.training.LossStateCallback` attached, which also saves the state; the adversaries' gradient is
    averaged). With gradient accumulation over k batches use ``momentum ** (1 / k)``: both updates happen once per
    training forward. A Router's encoder that only positives use is not trained, unless ``tied``.
    Refuses: MatryoshkaLoss, AdaptiveLayerLoss, a frozen model; with ``mini_batch_size``: flattened (unpadded) features
    and StaticEmbedding.

    Differs from the paper: eq. 5 has the adversaries alone as negatives. The released code that made the reported
    numbers also keeps the in-batch negatives, which is the default here. Weight decay of the adversaries,
    ``adversary_temperature`` and ``symmetric`` are the code's; ``adversary_start`` is AdCo's.
    Differs from the authors' code: the momentum encoder starts as a copy (theirs appears to start at random), and has
    a head of its own unless ``shared_head``.
    Paper (BERT base): batch 64, learning rate 3e-5, max length 32, STS-B dev every 125 steps. Script: 1 epoch.

    Example:
        >>> from st_extras.losses import AdCSELoss
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> from st_extras.training import train_encoder
        >>> model = raw_encoder()  # the packaged demo encoder; any SentenceTransformer will do
        >>> loss = AdCSELoss(model, projection=False)
        >>> options = {"max_steps": 1, "show_progress_bar": False}
        >>> train_encoder(model, loss, sample_sentences()[:64], "adcse", **options).steps
        1
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        num_adversaries: int = 64,
        temperature: float = 0.05,
        momentum: float = 0.995,
        tied: bool = False,
        adversary_start: Literal["random", "features"] = "random",
        adversary_learning_rate: float = 3e-3,
        adversary_momentum: float = 0.9,
        adversary_weight_decay: float = 1e-4,
        adversary_temperature: float | None = None,
        in_batch_negatives: bool = True,
        symmetric: bool = False,
        projection: bool = True,
        shared_head: bool = False,
        key_dropout: bool = True,
        gather_across_devices: bool = False,
        mini_batch_size: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        num_adversaries = check_count("num_adversaries", num_adversaries, at_most=1_000_000)
        self.in_batch_negatives = check_bool("in_batch_negatives", in_batch_negatives)
        if num_adversaries == 0 and not in_batch_negatives:
            raise ValueError("num_adversaries=0 with in_batch_negatives=False leaves no negatives: set one of them.")
        require_trainable(unwrap(model))
        dimension, device = embedding_dimension(model), unwrap(model).device
        self.model = model
        self.temperature = check_temperature("temperature", temperature)
        self.symmetric = check_bool("symmetric", symmetric)
        self.gather_across_devices = check_bool("gather_across_devices", gather_across_devices)
        self.mini_batch_size = check_mini_batch_size(model, mini_batch_size)
        self.uses_gradient_cache = self.mini_batch_size is not None
        self.projection_head = projection_head(dimension).to(device) if check_bool("projection", projection) else None
        self.shared_head = check_bool("shared_head", shared_head)
        if shared_head and not projection:
            raise ValueError("shared_head=True needs a head, got projection=False: set projection=True too.")
        check_momentum(momentum)
        check_bool("key_dropout", key_dropout)
        self.two_views = TwoViews(model) if check_bool("tied", tied) else None
        self.momentum_encoder = (
            None if tied else MomentumEncoder(model, momentum, head=self.followed_head, dropout=key_dropout)
        )
        self.adversaries = Adversaries(
            num_adversaries,
            dimension,
            device,
            start=adversary_start,
            learning_rate=adversary_learning_rate,
            momentum=adversary_momentum,
            weight_decay=adversary_weight_decay,
            temperature=self.temperature,
            climbed_temperature=adversary_temperature,
            generator=generator,
        )
        if self.momentum_encoder is not None:
            match_at_state_dict(self)

    def views(self, sentence_features: Sequence[Features]) -> tuple[Features, int]:
        """Return the rows that the trained encoder must see, for a loss that wraps this one.

        (B rows, 1): the keys are the momentum encoder's; tied: (2B rows, 2).
        """
        columns = check_columns(sentence_features, "AdCSELoss")
        return (dict(columns[0]), 1) if self.two_views is None else (self.two_views.rows(self.model, columns), 2)

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; ``labels`` are not used."""
        columns = check_columns(sentence_features, "AdCSELoss")
        if self.uses_gradient_cache:
            self._refuse_wrapped()
            cache = GradientCache(self, columns, two_views=self.two_views, head=self.projection_head)
            return cache.value(sentence_features=columns)
        if self.two_views is None:
            embeddings = [forward_pass(self.model, columns[0])["sentence_embedding"]]
        else:
            embeddings = self.two_views.encode(self.model, columns)
        return self.compute_loss_from_embeddings(embeddings, sentence_features=columns)

    def compute_loss_from_embeddings(
        self,
        embeddings: Sequence[Tensor],
        labels: Tensor | None = None,
        *,
        sentence_features: Sequence[Features] | None = None,
    ) -> Tensor:
        """Return the loss; if gradients are enabled, the adversaries then take their step.

        Args:
            embeddings: [queries, keys], each (B, D), after the heads. With ``sentence_features``: the trained
                encoder's output for the rows of :meth:`views`, before the heads: [anchors]; tied: [anchors, positives].
            labels: not used.
            sentence_features: the untouched columns, which the momentum encoder makes the keys of.
        """
        self._refuse_wrapped()
        untied = self.momentum_encoder is not None
        if sentence_features is not None and len(embeddings) == (1 if untied else 2):
            embeddings = apply_head(self.projection_head, embeddings)
            if untied:
                embeddings.append(self._keys(sentence_features[-1]))
            if len(sentence_features) == 1:
                warn_if_same_views(self, *embeddings)  # the copy's first keys are the model's own embeddings
        if len(embeddings) != 2:
            raise ValueError(
                f"embeddings must be [queries, keys], got {len(embeddings)}; the trained encoder's output for the rows "
                "of views() needs sentence_features, the tokenized columns, too."
            )
        return self._loss(*embeddings)

    def calculate_loss(
        self,
        reps: list[list[Tensor]],
        labels: Tensor | None = None,
        *,
        with_backward: bool = False,
        sentence_features: Sequence[Features],
    ) -> Tensor:
        """Return the loss of the views' mini-batches, (b, D) each, after the head: see ``mini_batch_size``.

        ``sentence_features``, the untouched columns, are what the momentum encoder makes the keys of.
        """
        size, queries = len(reps[0][0]), torch.cat(reps[0])
        keys = self._keys(sentence_features[-1], size) if self.momentum_encoder else torch.cat(reps[1])
        check_shapes(queries, keys, self.adversaries.vectors)
        if len(sentence_features) == 1:
            warn_if_same_views(self, queries, keys)
        directions = [(reps[0], keys)]
        if self.symmetric:
            directions.append((reps[1] if self.momentum_encoder is None else list(torch.split(keys, size)), queries))
        values, climb, climbs = [], self.adversaries.new_climb(), self._climbs
        for anchors, positives in directions:
            candidates, offset = self._candidates(positives)

            def contrast(batch: Tensor, shared: Sequence[Tensor], begin: int, offset: int = offset) -> Tensor:
                scores = unit_scores(unit_rows(batch), shared[0], self.temperature)
                negatives = adversary_scores(batch, self.adversaries.vectors, self.temperature)
                loss, logits = contrast_with(scores, negatives, self.in_batch_negatives, offset + begin)
                if climbs:
                    climb.add(batch, logits)
                return loss / len(directions)

            value = mean_over_mini_batches(anchors, [unit_rows(candidates)], contrast, with_backward=with_backward)
            values.append(value)
        if climbs:
            self.adversaries.climb(climb, keys)
        return torch.stack(values).sum()

    def _refuse_wrapped(self) -> None:
        advice = "its adversaries take one step, so use SimCSELoss or DCLRLoss, with projection=False"
        refuse_wrapped(self.model, "AdCSELoss", advice, cached=self)

    def _keys(self, features: Features, mini_batch_size: int | None = None) -> Tensor:
        """Return the momentum encoder's (B, D) keys; it first follows the model if gradients are enabled."""
        momentum_encoder = cast(MomentumEncoder, self.momentum_encoder)
        if torch.is_grad_enabled():
            momentum_encoder.update(self.model, self.followed_head)
        momentum_encoder.train(unwrap(self.model).training)
        keys = torch.cat([momentum_encoder(part) for part in mini_batches(features, mini_batch_size)])
        with torch.no_grad():
            return apply_head(self.projection_head, [keys])[0] if self.shared_head else keys

    @property
    def followed_head(self) -> nn.Module | None:
        """The head that the momentum encoder has a copy of."""
        return None if self.shared_head else self.projection_head

    def _candidates(self, positives: Tensor) -> tuple[Tensor, int]:
        """Return what the anchors are contrasted with beside the adversaries, and the index of the first positive."""
        candidates, offset = gather_rows(positives, self.gather_across_devices and self.in_batch_negatives)
        in_batch = len(candidates) - 1 if self.in_batch_negatives else 0
        warn_without_negatives(self, in_batch + len(self.adversaries))
        return candidates, offset

    def _loss(self, queries: Tensor, keys: Tensor) -> Tensor:
        check_shapes(queries, keys, self.adversaries.vectors)
        directions = [(queries, keys), (keys, queries)] if self.symmetric else [(queries, keys)]
        losses, logits = [], []
        for anchors, positives in directions:
            candidates, offset = self._candidates(positives)
            loss, of_anchors = adversarial_info_nce(
                anchors,
                candidates,
                self.adversaries.vectors,
                temperature=self.temperature,
                in_batch_negatives=self.in_batch_negatives,
                offset=offset,
            )
            losses.append(loss)
            logits.append(of_anchors)
        if self._climbs:
            climb = self.adversaries.new_climb()
            climb.add(torch.cat([anchors for anchors, _ in directions]).detach(), torch.cat(logits))
            self.adversaries.climb(climb, keys)
        return torch.stack(losses).mean()

    @property
    def _climbs(self) -> bool:
        """Whether the adversaries take a step now."""
        return torch.is_grad_enabled() and len(self.adversaries) > 0

    @property
    def adversary_similarity(self) -> Tensor:
        """Mean cosine of adversaries and anchors of the last training step (0-dim)."""
        return self.adversaries.similarity

    @property
    def adversary_share(self) -> Tensor:
        """Mean share of the softmax that the adversaries took in the last training step (0-dim)."""
        return self.adversaries.share

    @property
    def adversary_angle(self) -> Tensor:
        """Mean angle in degrees between each adversary and what it was when drawn (0-dim)."""
        return self.adversaries.angle

    @property
    def instruments(self) -> dict[str, Tensor]:
        """How similar the adversaries are to the last training batch's anchors, their share, how far they turned."""
        return self.adversaries.instruments

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        names = ["temperature", "in_batch_negatives", "symmetric", "shared_head", "gather_across_devices"]
        copied = self.momentum_encoder
        return {
            "mini_batch_size": self.mini_batch_size,
            **self.adversaries.config,
            **{name: getattr(self, name) for name in names},
            "projection": self.projection_head is not None,
            "tied": copied is None,
            "momentum": None if copied is None else copied.momentum,
            "key_dropout": None if copied is None else copied.dropout,
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
