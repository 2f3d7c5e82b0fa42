"""RepAL: refine sentence embeddings by subtracting what is redundant in them, without training."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor

from st_extras.modules.partial_mask import (
    JoinedParts,
    PartialMaskTransformer,
    plain_modules,
    refuse_training,
    same_encoder,
    split_copies,
)
from st_extras.modules.pipeline import (
    as_dense,
    build_model,
    check_weight,
    embedding_dimension,
    load_module,
    modules_before,
    owner,
    remember_owner,
    save_module,
    split_before_normalize,
    stream_embeddings,
    view,
)
from st_extras.modules.tuning import LAMBDA_1_GRID, LAMBDA_2_GRID, TuningResult, search_lambdas
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
        self,
        embedding_dimension: int,
        lambda_1: float = 0.0,
        lambda_2: float = 0.0,
        corpus_size: int = 0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.embedding_dimension = embedding_dimension
        self.lambda_1 = lambda_1
        self.lambda_2 = lambda_2
        self.corpus_size = corpus_size
        self.register_buffer("corpus_mean", torch.zeros(embedding_dimension))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("lambda_1", "lambda_2"):
            value = check_weight(name, value)
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
        modules, normalize = split_before_normalize(model)
        if any(isinstance(module, RepALPostProcessor) for module in modules):
            raise ValueError("model has RepAL attached already: RepALPostProcessor.detach(model) takes it off")
        encoder = modules[0] if modules else None
        if not isinstance(encoder, Transformer) or type(encoder) is not Transformer:
            raise ValueError(
                f"model must start with Sentence Transformers' Transformer module; got {type(encoder).__name__}"
            )
        if redundancy == "pooled" and any(
            isinstance(module, Pooling) and "cls" in module.pooling_mode and not module.include_prompt
            for module in modules
        ):
            raise ValueError('redundancy="pooled" does not go with CLS pooling that excludes the prompt; use "encoder"')
        if keywords == "tfidf" and corpus is not None:
            corpus = list(corpus)  # read twice
        extractor = build_extractor(keywords, corpus)
        first = PartialMaskTransformer.share(encoder, extractor, redundancy, on_missing_mask)
        processor = RepALPostProcessor(embedding_dimension(modules), lambda_1, lambda_2)
        processor.to(model.device)
        attached = build_model(model, [first, *modules[1:], processor, *normalize])
        if corpus is not None:
            processor.fit(corpus, batch_size=batch_size)
        return attached

    @staticmethod
    def detach(model: SentenceTransformer) -> SentenceTransformer:
        """The plain model again (weights are shared), for instance to train it."""
        modules = [module for module in model if not isinstance(module, RepALPostProcessor)]
        return build_model(model, plain_modules(modules))

    def fit(
        self, sentences: Iterable[str], *, batch_size: int = 32, show_progress_bar: bool = False
    ) -> RepALPostProcessor:
        """Take the corpus mean (equation 2) over ``sentences``: any iterable, of any size, in one stream.

        Raises:
            ValueError: for no sentences, or an embedding with NaN or infinity (the sentence is named).
        """
        plain = view(owner(self), plain_modules(modules_before(self)))
        total, count = torch.zeros(self.embedding_dimension, dtype=torch.float64), 0
        for embeddings in stream_embeddings(
            plain, sentences, batch_size=batch_size, show_progress_bar=show_progress_bar
        ):
            total += embeddings.sum(dim=0)
            count += len(embeddings)
        self._set_mean(total / count, count)
        return self

    def _set_mean(self, mean: Tensor, count: int) -> None:
        self.corpus_mean.copy_(mean)
        self.corpus_size = count

    def parts(
        self, sentences: Sequence[str], *, batch_size: int = 32, show_progress_bar: bool = False
    ) -> tuple[Tensor, Tensor]:
        """f(x) and f(x*) of each sentence, unrefined, from one encode: two float32 tensors (N, D) on the CPU."""
        before = modules_before(self)
        if not before or not isinstance(before[0], PartialMaskTransformer):
            raise ValueError("the model has no PartialMaskTransformer: build it with RepALPostProcessor.attach")
        joined = JoinedParts()
        first = same_encoder(before[0], PartialMaskTransformer)
        first.make_copies_for(joined)
        both = view(owner(self), [first, *before[1:], joined]).encode(
            list(sentences),
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            convert_to_tensor=True,
        )
        embeddings, redundant = both.float().cpu().chunk(2, dim=1)
        return embeddings, redundant

    def tune(
        self,
        pairs: Sequence[tuple[str, str]],
        scores: Sequence[float],
        *,
        lambda_1_grid: Sequence[float] = LAMBDA_1_GRID,
        lambda_2_grid: Sequence[float] = LAMBDA_2_GRID,
        batch_size: int = 32,
        show_progress_bar: bool = False,
    ) -> TuningResult:
        """Set both weights to the best of a grid (2,511 settings by default) by Spearman correlation of cosines.

        f(x) and f(x*) are encoded once, whatever the grid. 0 / 0 is always compared. A module that has not been fitted
        takes its mean over the sentences of ``pairs`` (said in the log).

        Args:
            pairs: labelled sentence pairs: a development set, never the one that is reported.
            scores: their gold scores.
            lambda_1_grid: weights of the sentence term to try.
            lambda_2_grid: weights of the corpus term to try.
            batch_size: of the encode.
            show_progress_bar: of the encode.

        Raises:
            ValueError: for fewer than two pairs, scores that do not match them, or scores that are all equal.
        """
        if len(pairs) != len(scores) or len(pairs) < 2 or len(set(scores)) < 2:
            raise ValueError(
                f"tune needs at least two pairs and one score for each, not all equal; got {len(pairs)} pairs, "
                f"{len(scores)} scores, {len(set(scores))} distinct"
            )
        one = [check_weight("lambda_1_grid", value) for value in lambda_1_grid]
        two = [check_weight("lambda_2_grid", value) for value in lambda_2_grid]
        texts = [pair[0] for pair in pairs] + [pair[1] for pair in pairs]
        embeddings, redundant = self.parts(texts, batch_size=batch_size, show_progress_bar=show_progress_bar)
        if not self.corpus_size:
            logger.info("RepAL is not fitted: the corpus mean is taken over the sentences that tune was given")
            self._set_mean(embeddings.double().mean(dim=0), len(texts))
        v, v_redundant, n = embeddings.double().numpy(), redundant.double().numpy(), len(pairs)
        mean = self.corpus_mean.double().cpu().numpy()
        result = search_lambdas((v[:n], v_redundant[:n]), (v[n:], v_redundant[n:]), mean, list(scores), one, two)
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
        weight = self.lambda_2 if lambda_2 is None else check_weight("lambda_2", lambda_2)
        self._check_fitted(weight)
        return as_dense(torch.eye(self.embedding_dimension), -weight * self.corpus_mean.float().cpu())

    def _check_fitted(self, lambda_2: float) -> None:
        if lambda_2 != 0 and not self.corpus_size:
            raise ValueError(
                f"lambda_2={lambda_2!r} needs the corpus mean, and this RepALPostProcessor is not fitted: call "
                "fit(sentences), pass corpus= to attach, or set lambda_2 to 0"
            )

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Refine ``sentence_embedding`` (2B, D), the masked copies last, to (B, D); halve what else is batch-first."""
        refuse_training(self)
        self._check_fitted(self.lambda_2)
        features, redundant = split_copies(features)
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
        remember_owner(self, model)

    save = save_module

    @classmethod
    def load(cls, *args: Any, **kwargs: Any) -> RepALPostProcessor:
        """Load from a folder or the Hub."""
        return load_module(cls, *args, **kwargs)
