"""RepAL: refine sentence embeddings by subtracting what is redundant in them, without training."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module
from torch import Tensor

from st_extras.functional import check_not_negative
from st_extras.modules import partial_mask, pipeline
from st_extras.modules.partial_mask import PartialMaskTransformer
from st_extras.modules.tuning import (
    LAMBDA_1_GRID,
    LAMBDA_2_GRID,
    TuningResult,
    check_groups,
    check_pairs,
    search_lambdas,
)
from st_extras.text.keywords import build_extractor

logger = logging.getLogger(__name__)


class RepALPostProcessor(Module):
    """Refined sentence embeddings from any finished encoder, without training (RepAL, Shen et al., 2023).

    Equation 3: v' = f(x) - lambda_1 f(x*) - lambda_2 mean_corpus(f), where x* is x with its keywords masked (what is
    left is redundant within the sentence) and the mean is what all sentences of a corpus share.

    The pipeline is [PartialMaskTransformer, Pooling, ..., RepALPostProcessor(, Normalize)]; ``attach`` builds it,
    ``detach`` takes it off. ``redundancy="encoder"`` is the paper: text and masked text go through the encoder in one
    pass, at twice the cost. ``redundancy="pooled"`` is ours, at about the plain cost: f(x*) is approximated by pooling
    the un-masked tokens of the first pass (their mean, where [CLS] is the pooling: [CLS] is never masked).

    Args:
        embedding_dimension: D.
        lambda_1: weight of the sentence term, >= 0 (lambda_1). At 0 no masked copy is made or encoded.
        lambda_2: weight of the corpus term, >= 0 (lambda_2). Above 0 it needs a mean: ``fit``.
        corpus_size: number of sentences that the mean was taken over (0: not fitted).

    Differs from the authors' code: none is published. Decided here: a keyword is a word of the TEXT, one mask token
    whatever its word pieces, at every occurrence, on word boundaries; a prompt is never masked; the refined embedding
    is taken before a final ``Normalize``. A text without keywords has x* = x. The authors average the data set that
    they evaluate on (target-fit): ``fit`` takes any sentences, so say beside a figure which ones.

    Example:
        >>> from st_extras.modules import RepALPostProcessor
        >>> model = RepALPostProcessor.attach(model, lambda_1=0.5, lambda_2=1.0, corpus=sentences)
        >>> model.encode(["a cat sat on the mat"]).shape
        (1, 16)
    """

    config_keys: list[str] = ["embedding_dimension", "lambda_1", "lambda_2", "corpus_size"]  # noqa: RUF012
    lambda_1: float
    lambda_2: float
    corpus_mean: Tensor

    def __init__(
        self, embedding_dimension: int, lambda_1: float = 0.0, lambda_2: float = 0.0, corpus_size: int = 0
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.embedding_dimension = embedding_dimension
        self.lambda_1 = lambda_1
        self.lambda_2 = lambda_2
        self.corpus_size = corpus_size
        self.register_buffer("corpus_mean", torch.zeros(embedding_dimension))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("lambda_1", "lambda_2"):
            value = check_not_negative(name, value)
        super().__setattr__(name, value)

    @staticmethod
    def attach(
        model: SentenceTransformer,
        *,
        lambda_1: float,
        lambda_2: float,
        keywords: Any = "jieba",
        redundancy: str = "encoder",
        corpus: Iterable[str] | None = None,
        on_missing_mask: str = "error",
        batch_size: int = 32,
    ) -> SentenceTransformer:
        """A new model: ``model`` with RepAL before a final ``Normalize``. Weights are shared, ``model`` stays plain.

        Args:
            model: starts with a ``Transformer`` and pools; may have whitening attached.
            lambda_1: weight of the sentence term (``tune`` finds both).
            lambda_2: weight of the corpus term.
            keywords: "jieba" (the paper), "tfidf" (fitted on ``corpus``), "rake", an extractor of
                ``st_extras.text.keywords``, or a callable text -> (start, end) spans or words (it cannot be saved).
            redundancy: "encoder" (the paper) or "pooled".
            corpus: sentences for the mean; None: call ``fit`` later.
            on_missing_mask: "error" or "delete", for a tokenizer without a mask token.
            batch_size: of the pass over ``corpus``.

        Raises:
            ValueError: for a bad setting, a model that RepAL cannot work on, or one that has it already.
        """
        modules, normalize = pipeline.split_before_normalize(model)
        if any(isinstance(module, RepALPostProcessor) for module in modules):
            raise ValueError("model has RepAL attached already: RepALPostProcessor.detach(model) takes it off")
        if keywords == "tfidf" and corpus is not None:
            corpus = list(corpus)  # read twice
        extractor = build_extractor(keywords, corpus)
        first = PartialMaskTransformer.share(modules, extractor, redundancy, on_missing_mask)
        processor = RepALPostProcessor(pipeline.embedding_dimension(modules), lambda_1, lambda_2)
        attached = pipeline.build_model(model, [first, *modules[1:], processor, *normalize])
        if corpus is not None:
            processor.fit(corpus, batch_size=batch_size)
        return attached

    @staticmethod
    def detach(model: SentenceTransformer) -> SentenceTransformer:
        """The plain model again (weights are shared), for instance to train it."""
        modules = [module for module in model if not isinstance(module, RepALPostProcessor)]
        return pipeline.build_model(model, partial_mask.plain_modules(modules))

    def fit(
        self, sentences: Iterable[str], *, batch_size: int = 32, show_progress_bar: bool = False
    ) -> RepALPostProcessor:
        """Take the corpus mean (equation 2) over ``sentences``: any iterable, of any size, in one stream.

        Raises:
            ValueError: for no sentences, or an embedding with NaN or infinity (the sentence is named).
        """
        before = partial_mask.plain_modules(pipeline.modules_before(self))
        total, count = torch.zeros(self.embedding_dimension, dtype=torch.float64), 0
        for embeddings in pipeline.stream_embeddings(
            pipeline.view(self, before), sentences, batch_size=batch_size, show_progress_bar=show_progress_bar
        ):
            total += embeddings.sum(dim=0)
            count += len(embeddings)
        self.corpus_mean.copy_(total / count)
        self.corpus_size = count
        return self

    def parts(
        self, sentences: Sequence[str], *, batch_size: int = 32, show_progress_bar: bool = False
    ) -> tuple[Tensor, Tensor]:
        """f(x) and f(x*) of each sentence, unrefined, from one encode: two float32 tensors (N, D) on the CPU."""
        both = pipeline.view(self, partial_mask.joined_modules(pipeline.modules_before(self))).encode(
            list(sentences), batch_size=batch_size, show_progress_bar=show_progress_bar, convert_to_tensor=True
        )
        embeddings, redundant = both.float().cpu().clone().chunk(2, dim=1)
        return embeddings, redundant

    def tune(
        self,
        pairs: Sequence[tuple[str, str]],
        scores: Sequence[float],
        *,
        lambda_1_grid: Sequence[float] = LAMBDA_1_GRID,
        lambda_2_grid: Sequence[float] = LAMBDA_2_GRID,
        groups: Sequence[object] | None = None,
        batch_size: int = 32,
        show_progress_bar: bool = False,
    ) -> TuningResult:
        """Set both weights to the best of a grid (3,751 settings by default) by Spearman correlation of cosines.

        f(x) and f(x*) are encoded once, whatever the grid. 0 / 0 is always compared. A module that has not been fitted
        takes its mean over the sentences of ``pairs`` (said in the log).

        Args:
            pairs: labelled sentence pairs: a development set, never the one that is reported.
            scores: their gold scores.
            lambda_1_grid: weights of the sentence term to try.
            lambda_2_grid: weights of the corpus term to try.
            groups: a label for each pair, such as its genre: the best mean over the groups of Spearman within each is
                then sought. On a set that mixes genres a large corpus term can gain more than within any of them.
            batch_size: of the one encode.
            show_progress_bar: of the one encode.

        Raises:
            ValueError: for fewer than two pairs, scores or groups that do not match them, or scores that are all equal,
                in one of the groups too.
        """
        scores = check_pairs(pairs, scores)
        if groups is not None:
            check_groups(groups, scores)
        one = [check_not_negative("lambda_1_grid", value) for value in lambda_1_grid]
        two = [check_not_negative("lambda_2_grid", value) for value in lambda_2_grid]
        texts = [pair[0] for pair in pairs] + [pair[1] for pair in pairs]
        embeddings, redundant = self.parts(texts, batch_size=batch_size, show_progress_bar=show_progress_bar)
        if not self.corpus_size:
            logger.info("RepAL is not fitted: the corpus mean is taken over the sentences that tune was given")
            self.corpus_mean.copy_(embeddings.double().mean(dim=0))
            self.corpus_size = len(texts)
        v, v_redundant, n = embeddings.double().numpy(), redundant.double().numpy(), len(pairs)
        mean = self.corpus_mean.double().cpu().numpy()
        first, second = (v[:n], v_redundant[:n]), (v[n:], v_redundant[n:])
        result = search_lambdas(first, second, mean, scores, one, two, groups)
        self.lambda_1, self.lambda_2 = result.lambda_1, result.lambda_2
        if result.at_edge:
            logger.warning("the best weights lie on the edge of the grid (%s): try a wider one", result)
        return result

    def to_dense(self, lambda_2: float | None = None) -> Module:
        """The corpus term alone as a stock ``Dense`` module (identity and a bias), which loads without this package.

        Args:
            lambda_2: its weight; None: this module's, whose ``lambda_1`` must then be 0 (a Dense sees no text).
        """
        if lambda_2 is None and self.lambda_1 != 0:
            raise ValueError(
                f"lambda_1={self.lambda_1!r}: a Dense module cannot hold the sentence term. Set lambda_1 to 0, or "
                "give lambda_2 to export the corpus term alone (best after tune with lambda_1_grid=[0])"
            )
        weight = self.lambda_2 if lambda_2 is None else check_not_negative("lambda_2", lambda_2)
        self._check_fitted(weight)
        return pipeline.as_dense(torch.eye(self.embedding_dimension), -weight * self.corpus_mean.float().cpu())

    def _check_fitted(self, lambda_2: float) -> None:
        if lambda_2 != 0 and not self.corpus_size:
            raise ValueError(
                f"lambda_2={lambda_2!r} needs the corpus mean, and this RepALPostProcessor is not fitted: call "
                "fit(sentences), pass corpus= to attach, or set lambda_2 to 0"
            )

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Refine ``sentence_embedding`` (2B, D), the masked copies last, to (B, D); halve what else is batch-first."""
        partial_mask.refuse_training(self)
        self._check_fitted(self.lambda_2)
        features, redundant = partial_mask.split_copies(features)
        embedding = features["sentence_embedding"]  # (B, D)
        if embedding.shape[-1] != self.embedding_dimension:
            raise ValueError(
                f"embedding_dimension={self.embedding_dimension}, but the embeddings that arrive have "
                f"{embedding.shape[-1]} dimensions: attach RepAL to this model again"
            )
        if self.lambda_1 != 0:
            if redundant is None:
                raise ValueError(
                    f"lambda_1={self.lambda_1!r} needs masked copies of the texts, and none came: build the model "
                    "with RepALPostProcessor.attach, and encode texts"
                )
            embedding = embedding - self.lambda_1 * redundant
        if self.lambda_2 != 0:
            embedding = embedding - self.lambda_2 * self.corpus_mean.to(embedding)
        features["sentence_embedding"] = embedding
        return features

    def get_embedding_dimension(self) -> int:
        """D: refining does not change it."""
        return self.embedding_dimension

    def on_model_ready(self, model: Any) -> None:
        """Learn the model that ``fit`` and ``tune`` encode with."""
        pipeline.remember_owner(self, model)

    save = pipeline.save_module

    @classmethod
    def load(cls, *args: Any, **kwargs: Any) -> RepALPostProcessor:
        """Load from a folder or the Hub."""
        return pipeline.load_module(cls, *args, **kwargs)
