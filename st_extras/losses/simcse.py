"""SimCSE: InfoNCE between two views of each sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.checks import check_bool, check_temperature
from st_extras.citations import CITATIONS
from st_extras.functional import unit_rows, unit_scores, weighted_info_nce
from st_extras.losses.pair_loss import PairLoss, PairOptions
from st_extras.losses.parts.gradient_cache import ColumnBatches, ViewBatches

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SimCSELoss(PairLoss):
    """Pull two views of a sentence together and push the other sentences of the batch away.

    This spreads the embeddings over the sphere. Use it on a raw encoder (one that was not fine-tuned for similarity)
    with unlabeled sentences, and as the baseline of any other objective. It treats every other sentence of the batch
    as a negative, even one with the same meaning: do not use it on an encoder that already recognizes such sentences.

    Recommended: ``SimCSELoss(model, include_positive=False, augmentations=("feature_cutoff", "shuffle"))`` with a
    learning rate of 1e-4, the best training of most raw encoders: decoupled SimCSE on ConSERT's views. The plain
    ``SimCSELoss(model)`` is the paper's.

    Paper: SimCSE, Gao et al., 2021, https://aclanthology.org/2021.emnlp-main.552; without the positive in the
    denominator: decoupled contrastive learning, Yeh et al., 2022, https://arxiv.org/abs/2110.06848.
    Code: https://github.com/princeton-nlp/SimCSE.

    For the views h_i, h_i^+ of B sentences::

        loss = mean_i -log( e^{cos(h_i, h_i^+)/tau} / sum_j e^{cos(h_i, h_j^+)/tau} )

    With ``include_positive=False`` the sum is over j != i, and the loss can be negative.

    On the same embeddings, the paper's equals Sentence Transformers' ``MultipleNegativesRankingLoss(scale=1/tau)``, but
    it takes a single column and encodes both views in one pass.

    Args:
        model: the SentenceTransformer to train.
        temperature: tau.
        include_positive: keep the positive in the denominator. False: decoupled contrastive learning.
        augmentations: how each of the two views is made, see :class:`~st_extras.losses.pair_loss.PairLoss`.
        options: ``projection``, ``gather_across_devices``, ``mini_batch_size``, ``mini_batch_num_tokens`` and
            ``generator`` of :class:`~st_extras.losses.pair_loss.PairLoss`.

    Inputs:
        +-------------------------------+--------+
        | Columns                       | Labels |
        +===============================+========+
        | sentence                      | none   |
        +-------------------------------+--------+
        | sentence, its positive        | none   |
        +-------------------------------+--------+

    Equal sentences in one batch are false negatives: use ``BatchSamplers.NO_DUPLICATES``.

    Works with: any encoder that has dropout, or other views ("shuffle": any transformer; cutoffs: transformers that
    take input embeddings, not BART or CLIP); prompts, chat templates, LoRA, MatryoshkaLoss (without ``projection``),
    dictionaries of losses, several processes. If the encoder has no dropout, dropout views are equal: a warning at the
    first training batch names the remedies.
    Refuses: a frozen encoder, StaticEmbedding with one column, flattened (unpadded) features with one column (both
    also with ``mini_batch_size``), AdaptiveLayerLoss.

    Differs from the paper: nothing in the loss, by default.
    Differs from the authors' code: the head is off by default (theirs trains with one), and the model's own pooling is
    used. The authors' code (BERT base): batch 64, learning rate 3e-5, 1 epoch of a million Wikipedia sentences, [CLS],
    STS-B dev every 125 steps.

    Example:
        >>> from st_extras.losses import SimCSELoss
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> from st_extras.training import train_encoder
        >>> model = raw_encoder()  # the packaged demo encoder; any SentenceTransformer will do
        >>> options = {"max_steps": 1, "show_progress_bar": False}
        >>> train_encoder(model, SimCSELoss(model), sample_sentences()[:64], "simcse", **options).steps
        1
    """

    citation = CITATIONS["gao2021simcse"]

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.05,
        include_positive: bool = True,
        augmentations: Sequence[str] = ("dropout", "dropout"),
        **options: Unpack[PairOptions],
    ) -> None:
        super().__init__(model, augmentations=augmentations, **options)
        self.temperature = check_temperature("temperature", temperature)
        self.include_positive = check_bool("include_positive", include_positive)

    def calculate_loss(
        self, view_batches: ViewBatches, *, with_backward: bool = False, columns: ColumnBatches | None = None
    ) -> Tensor:
        """Return the loss of both views' mini-batches, (b, D) each, after the head; ``columns`` are not used."""
        _, positives = self.whole(view_batches)  # (B, D)
        gathered, offset = self.gather(positives)
        candidates = unit_rows(gathered)  # (world * B, D), anchor i's own positive in row offset + i

        def contrast(anchors: Tensor, candidates: Tensor, begin: int) -> Tensor:
            scores = unit_scores(unit_rows(anchors), candidates, self.temperature)  # (b, world * B)
            return weighted_info_nce(scores, include_positive=self.include_positive, offset=offset + begin)

        return self.mean_over_mini_batches(view_batches[0], candidates, contrast, with_backward=with_backward)
