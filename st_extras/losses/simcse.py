"""SimCSE: InfoNCE between two views of each sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.checks import check_temperature
from st_extras.citations import CITATIONS
from st_extras.encoders.rows import Features
from st_extras.functional import unit_rows, unit_scores, weighted_info_nce
from st_extras.losses.parts.gradient_cache import CutColumns, Views, mean_over_mini_batches
from st_extras.losses.parts.pair_step import Columns, PairStep


class SimCSELoss(nn.Module):
    """Pull two dropout views of a sentence together and push the other sentences of the batch away.

    This spreads the embeddings over the sphere. Use it on a raw encoder (one that was not fine-tuned for similarity)
    with unlabeled sentences, and as the baseline of any other objective. It treats every other sentence of the batch
    as a negative, even one with the same meaning: do not use it on an encoder that already recognizes such sentences.

    Paper: SimCSE, Gao et al., 2021, https://aclanthology.org/2021.emnlp-main.552.
    Code: https://github.com/princeton-nlp/SimCSE.

    For the views h_i, h_i^+ of B sentences::

        loss = mean_i -log( e^{cos(h_i, h_i^+)/tau} / sum_j e^{cos(h_i, h_j^+)/tau} )

    On the same embeddings it equals Sentence Transformers' ``MultipleNegativesRankingLoss(scale=1/tau)``, but it
    takes a single column and encodes both views in one pass.

    Args:
        model: the SentenceTransformer to train.
        temperature: tau.
        augmentations: how each of the two views is made: "dropout", "none", "shuffle", "token_cutoff", "span_cutoff"
            or "feature_cutoff", explained in :class:`~st_extras.losses.parts.views.TwoViews`.
        cutoff_rate: share of the tokens or features that a cutoff zeroes, in (0, 1).
        projection: train with a head, Linear(D, D) + tanh, that belongs to the loss and is dropped at evaluation.
        gather_across_devices: use the sentences of all processes as negatives.
        mini_batch_size: number of sentences that the encoder sees at a time (gradient caching). Memory no longer grows
            with the batch's activations, and a step takes about 4/3 of the time. None: the whole batch at once.
        mini_batch_num_tokens: instead, number of tokens, without padding, that the encoder sees at a time: for
            sentences of very different lengths. A sentence with more tokens is a mini-batch of its own.

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
    also with ``mini_batch_size``), AdaptiveLayerLoss together with ``mini_batch_size``.

    Differs from the paper: nothing in the loss.
    Differs from the authors' code: the head is off by default (their script trains with one), and the model's own
    pooling is used. Script (BERT base): batch 64, learning rate 3e-5, 1 epoch of a million Wikipedia sentences,
    [CLS], STS-B dev every 125 steps.

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
        augmentations: Sequence[str] = ("dropout", "dropout"),
        cutoff_rate: float = 0.2,
        projection: bool = False,
        gather_across_devices: bool = False,
        mini_batch_size: int | None = None,
        mini_batch_num_tokens: int | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.temperature = check_temperature("temperature", temperature)
        self.step = PairStep(
            type(self).__name__,
            model,
            augmentations,
            cutoff_rate=cutoff_rate,
            projection=projection,
            gather_across_devices=gather_across_devices,
            mini_batch_size=mini_batch_size,
            mini_batch_num_tokens=mini_batch_num_tokens,
        )
        self.dropout, self.uses_gradient_cache = self.step.dropout, self.step.uses_gradient_cache

    def views(self, sentence_features: Columns) -> tuple[Features, int]:
        """Return the rows that the encoder must see, for a loss that wraps this one: (2B rows, 2)."""
        return self.step.rows(self.model, sentence_features)

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; ``labels`` are not used."""
        return self.step.run(self, sentence_features)

    def compute_loss_from_embeddings(self, embeddings: Sequence[Tensor], labels: Tensor | None = None) -> Tensor:
        """Return the loss of [anchors, positives], each (B, D), before the projection head."""
        return self.step.of_embeddings(self, embeddings, None)

    def calculate_loss(self, reps: Views, *, with_backward: bool = False, columns: CutColumns | None = None) -> Tensor:
        """Return the loss of both views' mini-batches, (b, D) each, after the head; ``columns`` are not used."""
        _, positives = self.step.join(self.model, reps)  # (B, D)
        gathered, offset = self.step.gather(positives)
        candidates = unit_rows(gathered)  # (world * B, D), anchor i's own positive in row offset + i

        def contrast(anchors: Tensor, candidates: Tensor, begin: int) -> Tensor:
            scores = unit_scores(unit_rows(anchors), candidates, self.temperature)  # (b, world * B)
            return weighted_info_nce(scores, offset=offset + begin)

        return mean_over_mini_batches(reps[0], candidates, contrast, with_backward=with_backward)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        return {"temperature": self.temperature} | self.step.config
