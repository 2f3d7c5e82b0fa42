"""AdCSE: a momentum encoder for the positives and learned adversaries for negatives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.checks import check_bool, check_count, check_temperature
from st_extras.citations import CITATIONS
from st_extras.encoders.heads import apply_head
from st_extras.encoders.momentum import MomentumEncoder, match_at_state_dict, require_trainable
from st_extras.encoders.rows import Features
from st_extras.encoders.structure import embedding_dimension, unwrap
from st_extras.functional import cosine_scores, full_precision, unit_rows, unit_scores, weighted_info_nce
from st_extras.losses.parts.adversaries import Adversaries, Climb
from st_extras.losses.parts.gradient_cache import mean_over_mini_batches
from st_extras.losses.parts.pair_step import Batches, Columns, PairStep
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
    are nearly orthogonal to all embeddings and stay so at the paper's rate, see "adversary_share" and
    "adversary_angle" of ``instruments``; ``adversary_start="features"`` puts them where the embeddings are.

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
        mini_batch_num_tokens: in its place, number of tokens, without padding, that the encoder sees at a time: for
            sentences of very different lengths. A sentence that has more of them goes alone.
        generator: torch.Generator that draws the adversaries, on the model's device. None: one is made from torch's
            seed.

    Attributes:
        instruments: 0-dim tensors of the last training step, by name, for the trainer's log. "adversary_similarity":
            mean cosine of adversaries and anchors: are they hard negatives? "adversary_share": mean share of the
            softmax that the adversaries take. "adversary_angle": mean angle in degrees by which they have turned since
            each was drawn.

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

    citation = CITATIONS["li2022adcse"]

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
        mini_batch_num_tokens: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        num_adversaries = check_count("num_adversaries", num_adversaries, at_most=1_000_000)
        self.in_batch_negatives = check_bool("in_batch_negatives", in_batch_negatives)
        if num_adversaries == 0 and not in_batch_negatives:
            raise ValueError("num_adversaries=0 with in_batch_negatives=False leaves no negatives: set one of them.")
        self.shared_head = check_bool("shared_head", shared_head)
        if shared_head and not projection:
            raise ValueError("shared_head=True needs a head, got projection=False: set projection=True too.")
        require_trainable(unwrap(model))
        check_bool("key_dropout", key_dropout)
        self.model = model
        self.temperature = check_temperature("temperature", temperature)
        self.symmetric = check_bool("symmetric", symmetric)
        self.step = PairStep(
            model,
            one_view=not check_bool("tied", tied),
            projection=projection,
            gather_across_devices=gather_across_devices,
            mini_batch_size=mini_batch_size,
            mini_batch_num_tokens=mini_batch_num_tokens,
        )
        self.uses_gradient_cache = self.step.caches
        self.momentum_encoder = None
        if not tied:
            self.momentum_encoder = MomentumEncoder(model, momentum, head=self.followed_head, dropout=key_dropout)
            match_at_state_dict(self)
        self.adversaries = Adversaries(
            num_adversaries,
            embedding_dimension(model),
            unwrap(model).device,
            start=adversary_start,
            learning_rate=adversary_learning_rate,
            momentum=adversary_momentum,
            weight_decay=adversary_weight_decay,
            temperature=self.temperature,
            climbed_temperature=adversary_temperature,
            generator=generator,
        )

    def views(self, sentence_features: Columns) -> tuple[Features, int]:
        """Return the rows that the trained encoder must see, for a loss that wraps this one.

        (B rows, 1): the keys are the momentum encoder's; tied: (2B rows, 2).
        """
        return self.step.views(self, sentence_features)

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; ``labels`` are not used."""
        return self.step.run(self, sentence_features)

    def compute_loss_from_embeddings(
        self, embeddings: Sequence[Tensor], labels: Tensor | None = None, *, sentence_features: Columns | None = None
    ) -> Tensor:
        """Return the loss; if gradients are enabled, the adversaries then take their step.

        Args:
            embeddings: [queries, keys], each (B, D), after the heads. With ``sentence_features``: the trained
                encoder's output for the rows of :meth:`views`, before the heads: [anchors]; tied: [anchors, positives].
            labels: not used.
            sentence_features: the untouched columns, which the momentum encoder makes the keys of.
        """
        return self.step.of_embeddings(self, embeddings, sentence_features, after_head=sentence_features is None)

    def calculate_loss(self, reps: Batches, *, with_backward: bool = False, columns: Batches | None = None) -> Tensor:
        """Return eq. 5 on the views' mini-batches, (b, D) each, after the head; then the adversaries take their step.

        If only the queries are given, the momentum encoder makes the keys of the ``columns``.
        """
        advice = "its adversaries take one step, so use SimCSELoss or DCLRLoss, with projection=False"
        refuse_wrapped(self.model, "AdCSELoss", advice, cached=self)
        if self.momentum_encoder is not None and len(reps) == 1 and columns is not None:
            reps = [reps[0], self._keys(columns[-1])]
        others = self.momentum_encoder is not None or len(self.adversaries.vectors) > 0
        queries, keys = self.step.join(self, reps, others=others)  # (B, D) each
        adversaries = self.adversaries.vectors.to(full_precision(queries).dtype)  # (M, D)
        climbs, climb = torch.is_grad_enabled() and len(adversaries) > 0, Climb(self.adversaries)
        directions = [(reps[0], keys), (reps[1], queries)] if self.symmetric else [(reps[0], keys)]

        def mean_of(anchors: list[Tensor], positives: Tensor) -> Tensor:
            gathered, offset = self.step.gather(
                self, positives, others=len(adversaries), gather=self.in_batch_negatives
            )
            candidates = unit_rows(gathered)  # (world * B, D)

            def contrast(batch: Tensor, shared: Sequence[Tensor], begin: int) -> Tensor:
                negatives = cosine_scores(batch, adversaries, self.temperature)  # (b, M)
                scores = unit_scores(unit_rows(batch), shared[0], self.temperature)  # (b, world * B)
                if not self.in_batch_negatives:
                    left_out = torch.ones_like(scores, dtype=torch.bool)
                    left_out.diagonal(offset + begin).fill_(False)
                    scores = scores.masked_fill(left_out, -torch.inf)
                logits = torch.cat([scores, negatives], dim=1)  # (b, world * B + M)
                if climbs:
                    climb.add(batch, logits.detach())
                return weighted_info_nce(logits, offset=offset + begin) / len(directions)

            return mean_over_mini_batches(anchors, [candidates], contrast, with_backward=with_backward)

        value = torch.stack([mean_of(*direction) for direction in directions]).sum()
        if climbs:
            self.adversaries.climb(climb, keys)
        return value

    def _keys(self, column: Sequence[Features]) -> list[Tensor]:
        """Return the momentum encoder's keys in mini-batches, (b, D) each; it follows the model in training."""
        momentum_encoder: Any = self.momentum_encoder
        if torch.is_grad_enabled():
            momentum_encoder.update(self.model, self.followed_head)
        momentum_encoder.train(unwrap(self.model).training)
        with torch.no_grad():
            keys = [momentum_encoder(part) for part in column]
            return apply_head(self.step.projection_head, keys) if self.shared_head else keys

    @property
    def followed_head(self) -> nn.Module | None:
        """The head that the momentum encoder has a copy of."""
        return None if self.shared_head else self.step.projection_head

    @property
    def instruments(self) -> dict[str, Tensor]:
        """What the last training step measured of the adversaries."""
        return self.adversaries.instruments

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        own = {name: getattr(self, name) for name in ("temperature", "in_batch_negatives", "symmetric", "shared_head")}
        copied = self.momentum_encoder
        own |= {"tied": copied is None, "momentum": getattr(copied, "momentum", None)}
        return own | {"key_dropout": getattr(copied, "dropout", None)} | self.adversaries.config | self.step.config
