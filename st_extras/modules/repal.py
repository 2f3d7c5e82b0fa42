"""RepAL: refine sentence embeddings by subtracting what is redundant in them, without training."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module
from torch import Tensor

from st_extras.checks import check_count, check_pairs, check_weight
from st_extras.citations import CITATIONS
from st_extras.encoders.structure import embedding_dimension
from st_extras.modules import lambda_search, partial_mask, pipeline
from st_extras.modules.corpus_statistics import CorpusStatistics
from st_extras.modules.lambda_search import LAMBDA_1_GRID, LAMBDA_2_GRID, TuningResult
from st_extras.modules.model_card import renew_card
from st_extras.text.corpus import different_texts, iterate_sentences
from st_extras.text.keywords import build_extractor

logger = logging.getLogger(__name__)


class RepALPostProcessor(Module):
    """Subtract from each sentence embedding what is redundant in it, without training or labels.

    It subtracts the embedding of the sentence with its keywords masked, which holds only trivial words, and the mean
    embedding of a corpus. Use it on a raw or anisotropic encoder that you cannot train, with weights that ``tune``
    finds. On an encoder already trained for similarity, leave it out unless labelled pairs show a gain.

    Paper: RepAL (Shen et al., 2023), https://arxiv.org/abs/2305.07824. No code is published.

    Equation 3: v' = f(x) - lambda_1 f(x*) - lambda_2 mean_corpus(f), where x* is x with its keywords masked.

    ``attach`` builds the model: its encoder is a ``PartialMaskTransformer``, which makes the masked copies; the given
    one stays as it is.

    Args:
        embedding_dimension: D, size of the embeddings.
        lambda_1: weight of the sentence term, >= 0 (lambda_1). At 0, no masked copy is made or encoded.
        lambda_2: weight of the corpus term, >= 0 (lambda_2). Above 0 it needs a corpus mean: call ``fit``.
        corpus_size: number of sentences that the mean was computed from; 0 if not fitted.

    Attributes:
        corpus_mean: (D,), the mean embedding of the sentences that it was fitted on.

    Works with:
        Any model that starts with a ``Transformer``, with any pooling and Dense or whitening after it; prompts and chat
        templates (never masked), multi-process encoding, every evaluator. A tokenizer without a mask token needs
        ``on_missing_mask="delete"``. Refused: a Router of encoders, static embeddings, a subclass of ``Transformer``,
        inputs that are not strings, training, saving with a callable as ``keywords``, and ``redundancy="pooled"`` with
        a prompt template or a chat template.

    Differs from the paper:
        ``redundancy="pooled"`` is ours: f(x*) is approximated by pooling the tokens of the first pass that belong to no
        keyword, which costs about one pass instead of two. The paper averages the data set that it evaluates on;
        ``fit`` takes any sentences. The embedding is refined before a final ``Normalize``.

    Example:
        >>> from st_extras.modules import RepALPostProcessor
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> encoder, corpus = raw_encoder(), sample_sentences()[:200]
        >>> model = RepALPostProcessor.attach(encoder, lambda_1=0.3, lambda_2=0.5, corpus=corpus)
        >>> texts = ["a cat sat on the mat", "the market is closed on sunday"]  # unrelated
        >>> encoder.similarity(*encoder.encode(texts)).item() > model.similarity(*model.encode(texts)).item()
        True
    """

    citation = CITATIONS["shen2023repal"]
    config_keys: list[str] = ["embedding_dimension", "lambda_1", "lambda_2", "corpus_size"]  # noqa: RUF012
    corpus_mean: Tensor
    lambda_1: float
    lambda_2: float

    def __init__(
        self,
        embedding_dimension: int,
        lambda_1: float = 0.0,
        lambda_2: float = 0.0,
        corpus_size: int = 0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.embedding_dimension = pipeline.check_size(embedding_dimension)
        self.lambda_1 = lambda_1
        self.lambda_2 = lambda_2
        self.corpus_size = check_count("corpus_size", corpus_size)
        self.register_buffer("corpus_mean", torch.zeros(self.embedding_dimension))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("lambda_1", "lambda_2"):
            value = check_weight(name, value)
        super().__setattr__(name, value)

    @property
    def wants_masked_copies(self) -> bool:
        """Whether the next pass needs f(x*); ``PartialMaskTransformer`` reads it."""
        return self.lambda_1 != 0

    @property
    def card_settings(self) -> dict[str, Any]:
        """The settings that the model card names: this module's, and how the copies are masked."""
        masking = partial_mask.masking_encoder(list(self.__dict__.get("_model") or []))
        return self.get_config_dict() | ({} if masking is None else masking.masking)

    @staticmethod
    def attach(
        model: SentenceTransformer,
        *,
        lambda_1: float | None = None,
        lambda_2: float | None = None,
        keywords: Any = "jieba",
        redundancy: str = "encoder",
        corpus: Iterable[str] | None = None,
        on_missing_mask: str = "error",
        **encode_options: Any,
    ) -> SentenceTransformer:
        """Return a new model: ``model`` with RepAL before a final ``Normalize``. Weights are shared.

        Args:
            model: starts with a ``Transformer`` and pools; may have whitening attached. It is not changed.
            lambda_1: weight of the sentence term (``tune`` finds both).
            lambda_2: weight of the corpus term.
            keywords: "jieba" (the paper), "tfidf" (fitted on ``corpus``), "rake", or what ``build_extractor`` accepts.
            redundancy: how f(x*) is found: "encoder" (the paper) or "pooled".
            corpus: sentences for the mean, or a data set with one text column; None: call ``fit`` later.
            on_missing_mask: for a tokenizer without a mask token, "error" or "delete" (the keywords instead).
            **encode_options: arguments of ``encode`` for ``corpus``, as for :meth:`CorpusStatistics.compute`.

        Raises:
            ValueError: if a setting is not allowed, or the model has RepAL already or cannot take it.
        """
        if lambda_1 is None or lambda_2 is None:
            raise ValueError(
                f"lambda_1 and lambda_2 must be given, got {lambda_1} and {lambda_2}: try lambda_1=0.5, lambda_2=0, "
                "and let tune(pairs, scores) find better ones on labelled pairs."
            )
        if isinstance(keywords, str) and keywords == "tfidf" and corpus is not None:
            corpus = list(iterate_sentences(corpus))  # read twice
        modules, normalize = pipeline.split_before_normalize(model)
        pipeline.check_encode_options(model, encode_options)
        if any(isinstance(module, RepALPostProcessor) for module in modules):
            raise ValueError("model must not have RepAL attached already: RepALPostProcessor.detach removes it.")
        module = RepALPostProcessor(embedding_dimension(model), lambda_1, lambda_2)
        masking = partial_mask.masking_modules(modules, build_extractor(keywords, corpus), redundancy, on_missing_mask)
        attached = pipeline.rebuild_model(model, [*masking, module, *normalize])
        if corpus is not None:
            module.fit(corpus, **encode_options)
        return attached

    @staticmethod
    def detach(model: SentenceTransformer) -> SentenceTransformer:
        """Return the plain model again (weights are shared), for instance to train it."""
        modules = [module for module in model if not isinstance(module, RepALPostProcessor)]
        return pipeline.rebuild_model(model, partial_mask.plain_modules(modules))

    def on_model_ready(self, model: Any) -> None:
        """Learn which model is around this module: ``fit`` and ``tune`` encode with it."""
        pipeline.remember_model(self, model)

    def fit(
        self,
        sentences: Iterable[str],
        **encode_options: Any,
    ) -> RepALPostProcessor:
        """Take the corpus mean (equation 2) over ``sentences``.

        Unless the sentence term is off, it warns of texts without keywords: see
        ``PartialMaskTransformer.watch_keywords``.

        Args:
            sentences: any iterable or data set with one text column, of any size, read once in flat memory.
            **encode_options: arguments of ``encode``, as for :meth:`CorpusStatistics.compute`.

        Raises:
            ValueError: if there are no sentences, or an embedding is not finite (the error names the sentence).
        """
        texts, before = iterate_sentences(sentences), pipeline.modules_before(self)
        masking = partial_mask.masking_encoder(before)
        if self.wants_masked_copies and masking is not None:
            texts = masking.watch_keywords(texts)
        plain = partial_mask.plain_modules(before)
        encoder = pipeline.part_of_model(pipeline.model_of(self), plain)
        statistics = CorpusStatistics.gather(encoder, texts, encode_options)
        if not statistics.varies:
            count = statistics.count
            logger.warning("The %d sentences have one embedding: the corpus mean is that of one sentence.", count)
        self._set_mean(statistics.mean, statistics.count)
        return self

    def _set_mean(self, mean: Tensor, count: int) -> None:
        self.corpus_mean.copy_(mean)
        self.corpus_size = count
        renew_card(pipeline.model_of(self))

    def parts(self, sentences: Iterable[str], **encode_options: Any) -> tuple[Tensor, Tensor]:
        """Return f(x) and f(x*) of N sentences, not refined: two float32 tensors (N, D) on the CPU.

        Args:
            sentences: any iterable or data set with one text column.
            **encode_options: arguments of ``encode``, as for :meth:`CorpusStatistics.compute`.
        """
        modules: list[Any] = partial_mask.joined_modules(pipeline.modules_before(self))
        sentences = modules[0].watch_keywords(iterate_sentences(sentences))
        joined = pipeline.part_of_model(pipeline.model_of(self), modules)
        (both,) = pipeline.stream_embeddings(joined, sentences, encode_options, at_once=True)
        embeddings, redundant = both.float().chunk(2, dim=1)
        return embeddings, redundant

    def tune(
        self,
        pairs: Sequence[tuple[str, str]],
        scores: Sequence[float],
        *,
        lambda_1_grid: Sequence[float] = LAMBDA_1_GRID,
        lambda_2_grid: Sequence[float] = LAMBDA_2_GRID,
        **encode_options: Any,
    ) -> TuningResult:
        """Set both weights to the best of a grid, by the Spearman correlation of cosine and gold score.

        Each text is encoded once. A module that is not fitted takes its corpus mean over the sentences of ``pairs``.

        Args:
            pairs: N labelled sentence pairs of a development set, never of the set that you report.
            scores: N gold scores.
            lambda_1_grid: weights of the sentence term to try; 0 and 0 are always tried.
            lambda_2_grid: weights of the corpus term to try.
            **encode_options: arguments of ``encode``, as for :meth:`CorpusStatistics.compute`.

        Raises:
            ValueError: if there are fewer than two pairs, the scores do not match them or are all equal, or a weight is
                not between 0 and 1e6.
        """
        pairs, scores = check_pairs(pairs, scores)
        lambda_1_grid = [check_weight("lambda_1_grid", weight) for weight in lambda_1_grid]
        lambda_2_grid = [check_weight("lambda_2_grid", weight) for weight in lambda_2_grid]
        texts = [pair[0] for pair in pairs] + [pair[1] for pair in pairs]
        different, places = different_texts(texts)
        embeddings, redundant = (rows[places] for rows in self.parts(different, **encode_options))
        if not self.corpus_size:
            logger.info("RepAL is not fitted: the corpus mean is computed from the sentences of the pairs.")
            self._set_mean(embeddings.double().mean(dim=0), len(texts))
        sides, mean = lambda_search.pair_sides(embeddings, redundant), self.corpus_mean.double().cpu().numpy()
        result = lambda_search.search_lambdas(*sides, mean, scores, lambda_1_grid, lambda_2_grid)
        self.lambda_1, self.lambda_2 = result.lambda_1, result.lambda_2
        renew_card(pipeline.model_of(self))
        return result

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Refine ``sentence_embedding``: (2B, D), the masked copies last, -> (B, D). Other batch tensors are halved."""
        if self.training and torch.is_grad_enabled():
            raise ValueError(
                "a model with RepAL attached cannot be trained, because RepAL post-processes a finished encoder: train "
                "RepALPostProcessor.detach(model) and attach RepAL again, or call model.eval() before a forward pass."
            )
        features, redundant = partial_mask.split_copies(features)
        embedding = features["sentence_embedding"]  # (B, D)
        if self.wants_masked_copies:
            if redundant is None:
                raise ValueError(
                    f"lambda_1={self.lambda_1!r} needs masked copies, and none arrived: build the model with attach."
                )
            embedding = embedding - self.lambda_1 * redundant
        if self.lambda_2 != 0:
            pipeline.check_fitted(self, f"lambda_2={self.lambda_2!r}")
            embedding = embedding - self.lambda_2 * self.corpus_mean.to(embedding)
        features["sentence_embedding"] = embedding
        return features

    def get_embedding_dimension(self) -> int:
        """Return the size of the embeddings."""
        return self.embedding_dimension

    save = pipeline.save_module

    @classmethod
    def load(cls, *args: Any, **kwargs: Any) -> RepALPostProcessor:
        """Load from a folder or the Hub."""
        return pipeline.load_module(cls, *args, **kwargs)
