"""AdCSE: positives from a momentum encoder, and learned adversaries as negatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.checks import check_bool, check_count, check_temperature
from st_extras.citations import CITATIONS
from st_extras.encoders.momentum import MomentumEncoder, renew_at_state_dict
from st_extras.encoders.rows import Features
from st_extras.encoders.structure import embedding_dimension, require_trainable, unwrap
from st_extras.functional import cosine_scores, full_precision, unit_rows, unit_scores, weighted_info_nce
from st_extras.losses.pair_loss import PairLoss, PairOptions
from st_extras.losses.parts.adversaries import Adversaries, Ascent
from st_extras.losses.parts.gradient_cache import ColumnBatches, ViewBatches
from st_extras.losses.parts.wrapping import refuse_matryoshka

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AdCSELoss(PairLoss):
    """Pull a sentence towards a momentum encoder's embedding of it, and push it away from learned adversarial vectors.

    The positives come from a copy of the encoder that follows it slowly, so the trained encoder sees B rows per step
    where SimCSE shows it 2B: a cheaper step. The adversaries are vectors that ascend the loss while the encoder
    descends it. Use it on a raw encoder if the cost of a step matters; not if similar sentences meet in a batch, as all
    of them are negatives.

    Paper: AdCSE, Li et al., 2022, https://doi.org/10.1007/978-3-031-00129-1_11.
    Code: https://github.com/lirenhao1997/AdCSE.

    For B sentences, h_i = g_q(f_q(x_i)) with gradients and h_i^+ = g_p(f_p(x_i)) without, s = cos/tau (eq. 5)::

        loss = mean_i -log( e^{s(h_i,h_i^+)} / ( e^{s(h_i,h_i^+)} [+ N_i] + sum_m e^{s(h_i,n_m)} ) )
        N_i = sum_{j != i} e^{s(h_i,h_j^+)}                                        (in-batch negatives)
        theta_p = m theta_p + (1-m) theta_q                                        (eq. 4, before each step)
        v_m = mu v_m - dloss/dn_m + lambda n_m,   n_m = n_m - alpha v_m            (eq. 7, ascent, after each loss)

    f_q is the trained model and f_p a :class:`~st_extras.encoders.MomentumEncoder`, which starts as its exact copy.
    The adversaries n_1..n_M in R^D ascend the same loss by SGD, with the gradient in closed form. Drawn at random, they
    are nearly orthogonal to all embeddings and stay so at the paper's rate, see "adversary_share" and
    "adversary_angle" of ``instruments``; ``adversary_start="features"`` draws them from the embeddings instead.

    Args:
        model: the SentenceTransformer to train.
        num_adversaries: M. 0: none (the paper's "w/o negative adversaries").
        temperature: tau.
        momentum: m of the momentum encoder, in [0, 1].
        tied: one encoder for both sides, 2B rows, gradients on both (the paper's "w/o untied dual-encoder").
        adversary_start: how the adversaries are initialized. "random": drawn from N(0, I), as in the paper;
            "features": each is replaced, once, by a key of the first batches at length 1, after the batch's loss (as in
            AdCo, which the paper builds on). Until then it is random.
        adversary_learning_rate: alpha, beside mu = 0.9 and lambda = 1e-4. 0: the adversaries do not move. A step turns
            an adversary by an angle proportional to 1/|n_m|^2: the same rate turns unit vectors ("features") D times as
            far as random ones.
        in_batch_negatives: use the other sentences of the batch as negatives too. False: eq. 5 to the letter.
        options: ``projection``, ``gather_across_devices``, ``mini_batch_size``, ``mini_batch_num_tokens`` and
            ``generator`` (of the adversaries) of :class:`~st_extras.losses.pair_loss.PairLoss`. Here ``projection`` is
            True unless given: the heads g_q, trained, and g_p, which follows it by eq. 4.

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

    Works with: any encoder; if it has no dropout, a warning says that each positive nearly equals its anchor and only
    the negatives train it; prompts, LoRA, dictionaries of losses, several processes (with
    :class:`~st_extras.training.LossStateCallback` attached, which also saves the state; the adversaries' gradient is
    averaged). With gradient accumulation over k batches use ``momentum ** (1 / k)``: both updates happen once per
    training forward pass. A Router's encoder that only positives use is not trained, unless ``tied``.
    Refuses: MatryoshkaLoss, AdaptiveLayerLoss, a frozen model; with ``mini_batch_size``: flattened (unpadded) features
    and StaticEmbedding.

    Differs from the paper: eq. 5 has the adversaries alone as negatives. The released code, which produced the reported
    numbers, also uses in-batch negatives, which is the default here. Weight decay of the adversaries is the code's;
    ``adversary_start`` is AdCo's.
    Differs from the authors' code: the momentum encoder starts as a copy (theirs appears to start at random), and has
    a head of its own (theirs: the trained one, without gradients); the adversaries ascend the encoder's loss at its own
    temperature, and the loss is that of the anchors alone.
    Paper (BERT base): batch 64, learning rate 3e-5, max length 32, STS-B dev every 125 steps. The authors'
    code: 1 epoch.

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
        in_batch_negatives: bool = True,
        **options: Unpack[PairOptions],
    ) -> None:
        options.setdefault("projection", True)
        super().__init__(model, one_view=not check_bool("tied", tied), **options)
        num_adversaries = check_count("num_adversaries", num_adversaries, at_most=1_000_000)
        self.in_batch_negatives = check_bool("in_batch_negatives", in_batch_negatives)
        if num_adversaries == 0 and not in_batch_negatives:
            raise ValueError(
                "num_adversaries must be > 0 with in_batch_negatives=False, got 0: it leaves no negatives."
            )
        encoder = unwrap(model)
        require_trainable(encoder)
        self.temperature = check_temperature("temperature", temperature)
        self.momentum_encoder = None
        if not tied:
            self.momentum_encoder = MomentumEncoder(encoder, momentum, head=self.projection_head)
            renew_at_state_dict(self)
        self.adversaries = Adversaries(
            num_adversaries,
            embedding_dimension(encoder),
            encoder.device,
            start=adversary_start,
            learning_rate=adversary_learning_rate,
            temperature=self.temperature,
            generator=options.get("generator"),
        )

    def calculate_loss(
        self, view_batches: ViewBatches, *, with_backward: bool = False, columns: ColumnBatches | None = None
    ) -> Tensor:
        """Return eq. 5; afterwards, if gradients are enabled, the adversaries take their step.

        Args:
            view_batches: the embeddings of the queries after the head, in mini-batches of (b, D); those of the keys
                too, unless the momentum encoder makes them.
            with_backward: differentiate here, and return a value without a graph.
            columns: the tokenized columns in mini-batches; the momentum encoder makes the keys of the last one.
        """
        advice = "its adversaries take one step, so use SimCSELoss or DCLRLoss, with projection=False"
        refuse_matryoshka(self.model, "AdCSELoss", advice, cached=self)
        if self.momentum_encoder is not None and len(view_batches) == 1 and columns is not None:
            view_batches = [view_batches[0], self._keys(self.momentum_encoder, columns[-1])]
        other_signal = self.momentum_encoder is not None or len(self.adversaries) > 0
        queries, keys = self.whole(view_batches, other_signal=other_signal)  # (B, D) each
        adversaries = self.adversaries.vectors.to(full_precision(queries).dtype)  # (M, D)
        gathered, offset = self.gather(keys, other_negatives=len(adversaries))
        candidates = unit_rows(gathered)  # (world * B, D), anchor i's own positive in row offset + i
        ascent = Ascent(self.adversaries) if torch.is_grad_enabled() and len(adversaries) else None

        def contrast(batch: Tensor, candidates: Tensor, begin: int) -> Tensor:
            """Return eq. 5 for a mini-batch of anchors, the first of which is the batch's anchor ``begin``."""
            negatives = cosine_scores(batch, adversaries, self.temperature)  # (b, M)
            scores = unit_scores(unit_rows(batch), candidates, self.temperature)  # (b, world * B)
            if not self.in_batch_negatives:
                left_out = torch.ones_like(scores, dtype=torch.bool)
                left_out.diagonal(offset + begin).fill_(False)
                scores = scores.masked_fill(left_out, -torch.inf)
            logits = torch.cat([scores, negatives], dim=1)  # (b, world * B + M)
            if ascent is not None:
                ascent.add(batch, logits.detach())
            return weighted_info_nce(logits, offset=offset + begin)

        value = self.mean_over_mini_batches(view_batches[0], candidates, contrast, with_backward=with_backward)
        if ascent is not None:
            self.adversaries.step(ascent, keys)
        return value

    def _keys(self, momentum_encoder: MomentumEncoder, column: Sequence[Features]) -> list[Tensor]:
        """Return the momentum encoder's keys in mini-batches, (b, D) each; in training it first follows the model."""
        encoder = unwrap(self.model)
        if torch.is_grad_enabled():
            momentum_encoder.update(encoder, self.projection_head)
        momentum_encoder.train(encoder.training)  # all of it: the model may have been in evaluation mode when copied
        return [momentum_encoder(part) for part in column]

    @property
    def instruments(self) -> dict[str, Tensor]:
        """Measurements of the adversaries in the last training step."""
        return self.adversaries.instruments

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        copied = self.momentum_encoder
        own = {"tied": copied is None, "momentum": getattr(copied, "momentum", None)}
        return own | self.adversaries.config | super().get_config_dict()
