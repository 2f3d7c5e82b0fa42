"""SIF pooling: the mean of a text's tokens, in which frequent tokens weigh less."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from st_extras.checks import check_bool, check_count, check_instance, check_interval
from st_extras.citations import CITATIONS
from st_extras.encoders.rows import non_content_ids, reported_prompt_length
from st_extras.modules import pipeline
from st_extras.modules.model_card import renew_card
from st_extras.modules.repal import RepALPostProcessor
from st_extras.text.corpus import iterate_sentences
from st_extras.text.frequency import FrequencyTable, vocabulary

_LARGEST_VOCABULARY = 2**24


class SIFPooling(Pooling):
    """Pool tokens by a mean in which frequent ones weigh less: smooth inverse frequency.

    Words such as "the" hardly tell texts apart, and in a plain mean they count as much as the words that do. Use it
    in place of mean pooling on static embeddings of a transformer's tokens or on a raw encoder, with counts of a large
    corpus, and ``all_but_the_top(components=1)`` after it. Do not use it on an encoder trained with its own
    pooling.

    Paper: SIF (Arora et al., 2017), https://openreview.net/forum?id=SyK00v5xx.
    Code: https://github.com/PrincetonML/SIF.

    Equation: v = sum_t w_t e_t / sum_t w_t with w_t = a / (a + p(t)) and p(t) the share of token t in a corpus, 0 for
    special tokens; [UNK] and [MASK] are content. A text without content gets the plain mean of its tokens.

    Args:
        frequency_table: counts with the tokenizer of the model that this becomes part of; None: call ``fit``.
        a: tokens much rarer than this keep their weight of 1, 1e-9 to 1 (a).
        include_prompt: whether the tokens of a prompt are pooled too.
        embedding_dimension: D, size of the token embeddings; None: found when a model is made of this module.
        vocabulary_size: V, number of ids; None: that of the table.
        corpus_size: number of texts that were counted, 1 if that is not known, 0 if not fitted.

    Works with:
        Every model with a ``Transformer`` and a tokenizer; flattened (unpadded) features too; RepAL, whitening and
        all-but-the-top after it. ``attach`` puts it in place of a model's pooling. A saved model loads with
        :func:`st_extras.modules.load`. Refused: a model without a pooling of its own, or with RepAL; a table of another
        vocabulary.

    Differs from the paper:
        The sum is divided by the weights, not by the number of words, which changes the length of an embedding and no
        cosine: it stays as long as that of the mean. Tokens are those of the tokenizer. The common component that the
        paper removes afterwards is the job of ``all_but_the_top``, which also centres.

    Example:
        >>> from st_extras.modules import SIFPooling, all_but_the_top
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> from st_extras.text.frequency import FrequencyTable
        >>> encoder, corpus = raw_encoder(), sample_sentences()[:500]
        >>> table = FrequencyTable.count(corpus, encoder.tokenizer)
        >>> model = SIFPooling.attach(encoder, table)
        >>> model = all_but_the_top(model, corpus, components=1)
        >>> model.encode("a cat sat on the mat").shape
        (384,)
    """

    citation = CITATIONS["arora2017simple"]
    config_keys: list[str] = ["embedding_dimension", "vocabulary_size", "a", "include_prompt", "corpus_size"]  # noqa: RUF012
    token_weights: Tensor

    def __init__(
        self,
        frequency_table: FrequencyTable | None = None,
        a: float = 1e-3,
        *,
        include_prompt: bool = True,
        embedding_dimension: int | None = None,
        vocabulary_size: int | None = None,
        corpus_size: int = 0,
    ) -> None:
        check_instance("frequency_table", frequency_table, FrequencyTable, or_none=True)
        size = 0 if embedding_dimension is None else pipeline.check_size(embedding_dimension)
        super().__init__(size, "mean", check_bool("include_prompt", include_prompt))
        self.a = check_interval("a", a, 1e-9, 1)
        self.corpus_size = check_count("corpus_size", corpus_size)
        if frequency_table is not None:
            vocabulary_size = len(frequency_table)
        elif vocabulary_size is not None:
            vocabulary_size = check_count("vocabulary_size", vocabulary_size, 1, _LARGEST_VOCABULARY)
        self.vocabulary_size = vocabulary_size or 0
        self.register_buffer("token_weights", torch.zeros(self.vocabulary_size))
        self._table = frequency_table

    @staticmethod
    def attach(
        model: SentenceTransformer,
        frequency_table: FrequencyTable | None = None,
        *,
        a: float = 1e-3,
        corpus: Iterable[str] | None = None,
    ) -> SentenceTransformer:
        """Return a new model: ``model`` with this pooling in place of its own. Weights are shared.

        Args:
            model: a model with one pooling (see "Works with"). It is not changed.
            frequency_table: counts with the model's tokenizer.
            a: tokens much rarer than this keep their weight.
            corpus: sentences to count, in place of ``frequency_table``; None for both: call ``fit`` before encoding.

        Raises:
            ValueError: if a setting is not allowed, the table is of another vocabulary, or the model has no pooling, or
                post-processing already.
        """
        modules = list(check_instance("model", model, SentenceTransformer))
        if any(isinstance(module, RepALPostProcessor) for module in modules):
            raise ValueError("model must not have RepAL attached already: attach SIF pooling before it.")
        places = [i for i, module in enumerate(modules) if isinstance(module, Pooling)]
        if len(places) != 1 or not isinstance(modules[places[0]].pooling_mode, str):
            raise ValueError(
                "model must have one Pooling of one kind, which SIF pooling replaces, got "
                f"{', '.join(type(module).__name__ for module in modules)}."
            )
        old = modules[places[0]]
        size = None if frequency_table is not None else len(vocabulary(model.tokenizer))
        pooling = SIFPooling(frequency_table, a, include_prompt=old.include_prompt, vocabulary_size=size)
        modules[places[0]] = pooling
        attached = pipeline.rebuild_model(model, modules)
        if corpus is not None:
            pooling.fit(corpus, statistics=frequency_table)
        return attached

    def fit(self, sentences: Iterable[str] | None = None, *, statistics: FrequencyTable | None = None) -> SIFPooling:
        """Set the weights of tokens from counts of ``sentences``, or from a table of counts.

        Args:
            sentences: any iterable or data set with one text column, of any size, read once in flat memory.
            statistics: counts with the model's tokenizer, in place of ``sentences``.

        Raises:
            ValueError: if both or neither are given, the table is of another vocabulary, or there are no tokens.
        """
        if (sentences is None) == (statistics is None):
            found = "neither" if statistics is None else "both"
            raise ValueError(f"sentences or statistics must be given, and only one of them, got {found}.")
        model = pipeline.model_of(self)
        if statistics is None:
            statistics = FrequencyTable.count(iterate_sentences(sentences), model.tokenizer)
        table: FrequencyTable = check_instance("statistics", statistics, FrequencyTable)
        table.check_tokenizer(model.tokenizer)
        share = table.counts.double() / table.total  # (V,)
        weights = self.a / (self.a + share)
        weights[non_content_ids(model)] = 0
        self.token_weights = weights.float().to(self.token_weights.device)
        self.vocabulary_size, self.corpus_size = len(table), max(1, table.num_texts)
        renew_card(model)
        return self

    def on_model_ready(self, model: Any) -> None:
        """Learn the size of the token embeddings, and which tokens are special, from the model around this module."""
        pipeline.remember_model(self, model)
        if not self.embedding_dimension:
            self.embedding_dimension = int(cast(Any, pipeline.modules_before(self)[-1]).get_embedding_dimension())
            self.pooling_output_dimension = self.embedding_dimension
        if self._table is not None:
            table, self._table = self._table, None
            self.fit(statistics=table)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Pool ``token_embeddings``, (B, L, D) or flattened (1, N, D), to ``sentence_embedding``, (B, D)."""
        pipeline.check_fitted(self, "SIF pooling")
        tokens, ids, mask = _pad_rows(features)
        if not self.include_prompt:
            mask = mask & (mask.cumsum(dim=1) > reported_prompt_length(features))
        weights = self.token_weights.to(tokens.device)[ids] * mask  # (B, L)
        plain = weights.sum(dim=1, keepdim=True) == 0  # (B, 1), no content
        weights = torch.where(plain, mask.to(weights), weights)
        weights = weights / weights.sum(dim=1, keepdim=True).clamp(min=1e-9)
        dtype = torch.promote_types(tokens.dtype, torch.float32)
        pooled = (weights.to(dtype).unsqueeze(1) @ tokens.to(dtype)).squeeze(1)  # (B, D)
        features["sentence_embedding"] = pooled.to(tokens.dtype)
        return features

    save = pipeline.save_module

    @classmethod
    def load(cls, *args: Any, **kwargs: Any) -> SIFPooling:
        """Load from a folder or the Hub."""
        return pipeline.load_module(cls, *args, **kwargs)


def _pad_rows(features: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Return token embeddings (B, L, D), ids and a bool mask (B, L) of padded features, or of flattened ones."""
    tokens, ids = features["token_embeddings"], features["input_ids"]
    ends = features.get("cu_seq_lens_q")
    if ends is None:
        mask = features.get("attention_mask")
        return tokens, ids, torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    lengths = (ends[1:] - ends[:-1]).tolist()
    rows, row_ids, ones = (
        pad_sequence(list(torch.split(flat[0], lengths)), batch_first=True)
        for flat in (tokens, ids, torch.ones_like(ids, dtype=torch.bool))
    )
    return rows, row_ids, ones
