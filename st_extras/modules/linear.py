"""A linear layer after an encoder, as a stock ``Dense``: whitening, all-but-the-top, LPP and EmbedFilter.

Each function returns a new model of Sentence Transformers' own modules: it loads without this package, and its card
names the method. The given model stays as it is; weights are shared, not copied. The layer comes before a final
``Normalize``, and after the routes of a ``Router``. RepAL can be attached afterwards.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router
from torch import Tensor

from st_extras.checks import check_count, check_instance, check_interval, check_seed, check_weight
from st_extras.citations import CITATIONS
from st_extras.encoders.structure import embedding_dimension
from st_extras.modules import pipeline
from st_extras.modules.corpus_statistics import MIN_RELATIVE_VARIANCE, CorpusStatistics
from st_extras.modules.model_card import add_card_line
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.text.corpus import distinct_sample, iterate_sentences
from st_extras.text.term_weights import character_tfidf

logger = logging.getLogger(__name__)
_FEW = 1000  # texts: with fewer, locality preservation made a good encoder worse on some domains
_MOST = 20_000  # texts that locality preservation is fitted on; the time grows with their square
_EDGE = 1 / 16  # share of an unembedding matrix's singular vectors that EmbedFilter leaves out at either end
_ROWS = 16_384  # of such a matrix, multiplied at a time


class Affine(NamedTuple):
    """v' = v X + b.

    Attributes:
        matrix: X, (D, k).
        offset: b, (k,).
    """

    matrix: Tensor
    offset: Tensor

    @classmethod
    def centred(cls, mean: Tensor, matrix: Tensor) -> Affine:
        """Return v' = (v - mean) X, for a mean (D,) and X (D, k)."""
        return cls(matrix, -mean @ matrix)

    def apply(self, embeddings: Tensor) -> Tensor:
        """Return the (N, k) transforms of (N, D) embeddings."""
        return embeddings @ self.matrix + self.offset


# --- the layer ---


def add_linear(
    model: SentenceTransformer, transform: Affine, *, method: str, line: str, citation: str
) -> SentenceTransformer:
    """Return a new model: ``model`` with a linear layer before a final ``Normalize``, as a stock ``Dense``.

    Args:
        model: it is not changed; weights are shared.
        transform: what the layer does, from the model's D dimensions to k.
        method: its name in the model card.
        line: of the model card.
        citation: of the method, BibTeX.

    Raises:
        ValueError: if ``model`` is not a SentenceTransformer, or its routes normalize or have encoders of their own.
    """
    modules, normalize = pipeline.split_before_normalize(model)
    refined = pipeline.rebuild_model(model, [*modules, _as_dense(transform), *normalize])
    add_card_line(refined, method, line, citation)
    return refined


def add_linear_routes(
    model: SentenceTransformer,
    routes: Mapping[str, Affine | None],
    default_route: str,
    *,
    method: str,
    line: str,
    citation: str,
) -> SentenceTransformer:
    """Return a new model: ``model`` with a linear layer for each route, between two ``Normalize``, after the encoder.

    Sentence Transformers gives modules after the first one the encoder's dtype, and none within it; so the routes are
    after the encoder, also where that has routes of its own.

    Args:
        model: it is not changed; weights are shared.
        routes: what the layer of each route does, by the names of tasks, "query" and "document"; None: nothing.
        default_route: which of them plain ``encode`` takes.
        method: its name in the model card.
        line: of the model card.
        citation: of the method, BibTeX.
    """
    modules: list[Any] = list(model)
    if isinstance(modules[0], Router):
        modules[0] = pipeline.shared_module(modules[0], Router)
        modules[0].default_route = default_route
    while isinstance(modules[-1], Normalize):
        modules.pop()
    layers: dict[str, list[Any]] = {name: [Normalize()] for name in routes}
    for name, transform in routes.items():
        if transform is not None:
            layers[name].append(_as_dense(transform))
    refined = pipeline.rebuild_model(model, [*modules, Router(layers, default_route=default_route), Normalize()])
    add_card_line(refined, method, line, citation)
    return refined


def _as_dense(transform: Affine) -> Dense:
    weight, bias = transform.matrix.T.float().cpu().contiguous(), transform.offset.float().cpu()
    size_out, size_in = weight.shape
    with torch.random.fork_rng(devices=[]):  # Dense draws weights before it takes these
        return Dense(size_in, size_out, activation_function=None, init_weight=weight, init_bias=bias)


def _fitted_line(method: str, texts: int, **settings: Any) -> str:
    return f"* **{method}**, fitted on {texts:,} sentences: `{json.dumps(settings)}`"


# --- whitening ---


def whitening(
    model: SentenceTransformer,
    sentences: Iterable[str],
    *,
    epsilon: float = 0.0,
    dimensions: int | None = None,
    **encode_options: Any,
) -> SentenceTransformer:
    """Make every direction of the embedding space equally important: zero mean and identity covariance over a corpus.

    It undoes the anisotropy of a raw encoder, and can keep only the directions of largest variance, for shorter
    embeddings. Use it on an encoder that was never trained for similarity, fitted on text similar to what you
    will compare. Do not use it on an encoder trained for similarity, whose high-variance directions carry meaning, or
    with little text.

    Paper: BERT-whitening (Su et al., 2021), https://arxiv.org/abs/2103.15316.
    Code: https://github.com/bojone/BERT-whitening.

    Equation: v' = (v - mu) W, with mu and C = U Lambda U^T the mean and covariance of the embeddings of a corpus, and W
    the first k columns of U Lambda^{-1/2}, largest eigenvalues first.

    Args:
        model: any model (see "Works with"). It is not changed.
        sentences: any iterable or data set with one text column, of any size, read once in flat memory.
        epsilon: how much of the mean variance is added to that of every direction, >= 0; 0 whitens fully, and the
            larger, the more of the embedding space stays as it was (try 0.1).
        dimensions: size of the embeddings that go out (k), 1 to D; None: D.
        **encode_options: arguments of ``encode``, as for :meth:`CorpusStatistics.compute`.

    Returns:
        A new model of stock modules, with a ``Dense`` before a final ``Normalize``.

    Raises:
        ValueError: if a setting is not allowed, there are no two different embeddings, or one is not finite (the error
            names the sentence).

    Works with:
        Any SentenceTransformer whose last module before a final ``Normalize`` knows its embedding dimension: every
        encoder and pooling, static embeddings too. RepAL can be attached afterwards. It is linear, so the model can be
        trained further.

    Differs from the paper:
        The Soft-ZCA paper adds epsilon itself to the eigenvalues; here it is relative to their mean, so that one value
        means the same for every encoder. With ``epsilon=0`` and all dimensions, the result is not rotated back: a
        rotation changes no cosine.

    Differs from the authors' code:
        The covariance is accumulated in float64 in one pass over a stream of any size. Directions in which the corpus
        does not vary come out as 0 instead of as rounding errors scaled up. The result is not normalized to length one,
        which makes no difference to cosines: put a ``Normalize`` at the end if you want it.

    Example:
        >>> from st_extras.modules import whitening
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> encoder, corpus = raw_encoder(), sample_sentences()[:500]
        >>> model = whitening(encoder, corpus, dimensions=64)
        >>> embeddings = model.encode(corpus, convert_to_tensor=True)
        >>> embeddings.shape, round(embeddings.var(dim=0).mean().item(), 2)
        (torch.Size([500, 64]), 1.0)
    """
    epsilon, size = check_weight("epsilon", epsilon), embedding_dimension(model)
    dimensions = size if dimensions is None else check_count("dimensions", dimensions, 1, size)
    statistics = CorpusStatistics.compute(model, sentences, **encode_options)
    transform = whitening_transform(statistics, epsilon, dimensions)
    line = _fitted_line("Whitening", statistics.count, epsilon=epsilon, dimensions=dimensions)
    return add_linear(model, transform, method="Whitening", line=line, citation=CITATIONS["su2021whitening"])


def whitening_transform(statistics: CorpusStatistics, epsilon: float = 0.0, dimensions: int | None = None) -> Affine:
    """Return the transform of :func:`whitening`, (D, k) and (k,) in float64.

    Args:
        statistics: of the corpus.
        epsilon: how much of the mean variance is added to that of every direction, >= 0.
        dimensions: k; None: D.

    Raises:
        ValueError: if there are no two different embeddings.
    """
    variances, directions = statistics.principal_directions()
    dimensions = len(variances) if dimensions is None else dimensions
    varies = variances > MIN_RELATIVE_VARIANCE * variances[0]
    if not varies[:dimensions].all():
        kept = "have the variance that epsilon gives them" if epsilon else "are 0"
        message = "%d sentences vary in %d directions only: the other %d of %d whitened dimensions %s."
        rank = int(varies.sum())
        logger.warning(message, statistics.count, rank, dimensions - rank, dimensions, kept)
    if epsilon:
        scale = (variances.clamp(min=0) + epsilon * variances.clamp(min=0).mean()).rsqrt()
    else:
        scale = torch.where(varies, variances.clamp(min=1e-300).rsqrt(), 0.0)
    kernel = (directions * scale)[:, :dimensions]
    rotated_back = epsilon and dimensions == len(variances)
    return Affine.centred(statistics.mean, kernel @ directions.T if rotated_back else kernel)


# --- all-but-the-top ---


def all_but_the_top(
    model: SentenceTransformer,
    sentences: Iterable[str],
    *,
    components: int | None = None,
    **encode_options: Any,
) -> SentenceTransformer:
    """Subtract the corpus mean, and remove the few directions in which all embeddings differ most.

    In a raw encoder these directions hold frequency and length rather than meaning, and they dominate every cosine.
    It changes less than whitening: the other directions stay as they are. Use it on a raw or anisotropic encoder, or
    after ``SIFPooling``. Do not use it on an encoder trained for similarity, whose strongest directions carry
    meaning; there, ``components=0`` (centring alone) is the most to try.

    Paper: All-but-the-Top (Mu and Viswanath, 2018), https://arxiv.org/abs/1702.01417.

    Equation: v' = (v - mu) - sum_{i <= k} u_i u_i^T (v - mu), with mu the mean and u_i the first principal directions
    of the embeddings of a corpus.

    Args:
        model: any model (see "Works with"). It is not changed.
        sentences: any iterable or data set with one text column, of any size, read once in flat memory.
        components: number of directions to remove (k), 0 to D - 1; 0 is centring. None: D / 100, as in the paper, and
            at least 1.
        **encode_options: arguments of ``encode``, as for :meth:`CorpusStatistics.compute`.

    Returns:
        A new model of stock modules, with a ``Dense`` before a final ``Normalize``.

    Raises:
        ValueError: if a setting is not allowed, or nothing would be left of what differs in the embeddings.

    Works with:
        What :func:`whitening` works with.

    Differs from the paper:
        The paper works on the word vectors of a vocabulary; here the embeddings are those of sentences.

    Example:
        >>> from st_extras.modules import all_but_the_top
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> encoder, corpus = raw_encoder(), sample_sentences()[:500]
        >>> model = all_but_the_top(encoder, corpus, components=3)
        >>> model.encode(corpus, convert_to_tensor=True).mean(dim=0).abs().max().item() < 1e-4
        True
    """
    size = embedding_dimension(model)
    components = min(size - 1, max(1, round(size / 100))) if components is None else components
    components = check_count("components", components, 0, size - 1)
    statistics = CorpusStatistics.compute(model, sentences, **encode_options)
    transform = all_but_the_top_transform(statistics, components)
    line = _fitted_line("All-but-the-top", statistics.count, components=components)
    return add_linear(model, transform, method="All-but-the-top", line=line, citation=CITATIONS["mu2018allbutthetop"])


def all_but_the_top_transform(statistics: CorpusStatistics, components: int) -> Affine:
    """Return the transform of :func:`all_but_the_top`, (D, D) and (D,) in float64.

    Args:
        statistics: of the corpus.
        components: number of directions to remove.

    Raises:
        ValueError: if there are no two different embeddings, or none would be left of what differs in them.
    """
    variances, directions = statistics.principal_directions()
    rank = int((variances > MIN_RELATIVE_VARIANCE * variances[0]).sum())
    if components >= rank:
        raise ValueError(
            f"components must be below the number of directions in which the {statistics.count} sentences vary "
            f"({rank}), got {components}: remove fewer, or fit on more text."
        )
    top = directions[:, :components]  # (D, k)
    return Affine.centred(statistics.mean, torch.eye(len(top), dtype=torch.float64) - top @ top.T)


# --- locality preserving projections ---


def locality_preserving(
    model: SentenceTransformer,
    sentences: Iterable[str],
    *,
    recolor: float = 0.5,
    seed: int = 0,
    **encode_options: Any,
) -> SentenceTransformer:
    """Keep the directions on which a text and its nearest neighbours agree, and shrink those on which they do not.

    Neighbours mostly mean the same, so what differs between them is mostly noise: on text of one domain, this brings
    texts of one meaning together without labels. Use it for clustering, search and classification within a domain,
    fitted on several thousand texts of it: ``recolor=0.5`` or 1 for an encoder trained for similarity, 0 for a raw one.
    Do not use it on few texts (a good encoder comes out worse on a few hundred), nor for texts of other kinds than
    those that it was fitted on. ``st-extras adapt`` compares such transforms, each on texts that it was not fitted on,
    and may choose none.

    Paper: Locality Preserving Projections (He and Niyogi, 2003),
    https://papers.nips.cc/paper/2003/hash/d69116f8b0140cdeb1f99a4d5096ffe4-Abstract.html.

    Equation: v' = (v - mu) W, with W = U Lambda^{-1/2} Q diag(rho) Q^T Lambda^{recolor/2} U^T;
    z = (e - mu) / |e - mu| over the N embeddings e of a corpus, the rows of Z, and y the mean z of a text's 10 nearest
    neighbours, the rows of Y; C = Z^T Z / N + 0.1 (mean eigenvalue) I = U Lambda U^T; M = (Z^T Y + Y^T Z) / 2N;
    Lambda^{-1/2} U^T M U Lambda^{-1/2} = Q diag(rho) Q^T, with rho as texts show it that Q was not computed from.
    :func:`~st_extras.modules.neighbor_directions.neighbor_directions` returns all of these, for diagnosis.

    Args:
        model: any model (see "Works with"). It is not changed.
        sentences: any iterable or data set with one text column, of any size, read once; of more than 20,000 different
            ones, as many are sampled.
        recolor: how far directions get their variance back, 0 to 1; 1: all of it; 0: they stay whitened.
        seed: random seed of the sample.
        **encode_options: arguments of ``encode``, as for :meth:`CorpusStatistics.compute`.

    Returns:
        A new model of stock modules, with a ``Dense`` before a final ``Normalize``.

    Raises:
        ValueError: if a setting is not allowed, or there are fewer than 50 texts with different embeddings.

    Works with:
        What :func:`whitening` works with.

    Differs from the paper:
        All directions stay, with soft weights, in place of a cut to the first k; with ``recolor``, they get variance
        back. Embeddings are centred and of length one before anything is computed. A text's neighbours are the mean of
        its k nearest other texts, found within the corpus, in place of a symmetric graph. The agreement is
        cross-fitted, because the eigenvalues themselves come out too high where there are few texts per dimension.

    Example:
        >>> from st_extras.evaluation.geometry import mean_cosine
        >>> from st_extras.modules import locality_preserving
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> encoder, corpus = raw_encoder(), sample_sentences()[:1000]
        >>> model = locality_preserving(encoder, corpus, recolor=0.0)
        >>> [mean_cosine(one.encode(corpus, convert_to_tensor=True)) < 0.1 for one in (encoder, model)]
        [False, True]
    """
    check_interval("recolor", recolor, 0, 1)
    check_seed("seed", seed)
    modules, _ = pipeline.split_before_normalize(model)
    pipeline.check_encode_options(model, encode_options)
    encoder = pipeline.part_of_model(model, modules)
    texts = distinct_sample(iterate_sentences(sentences), _MOST, seed)
    (rows,) = pipeline.stream_embeddings(encoder, texts, encode_options, at_once=True)
    directions = neighbor_directions(rows, tfidf=character_tfidf(texts), seed=seed)
    if directions.count < _FEW:
        message = "Fitted on %d texts with different embeddings: below about %d, a good encoder can come out worse."
        logger.warning(message, directions.count, _FEW)
    method = "Locality Preserving Projections"
    return add_linear(
        model,
        Affine.centred(directions.mean, directions.kernel(recolor)),
        method=method,
        line=_fitted_line(method, directions.count, recolor=recolor),
        citation=CITATIONS["he2003locality"],
    )


# --- EmbedFilter ---


def embed_filter(model: SentenceTransformer) -> SentenceTransformer:
    """Remove from a language model's embeddings the directions that its output layer keeps for frequent tokens.

    It needs no text. Use it on a causal language model that was never trained for similarity, with its last token and
    the prompt PromptEOL: ``embed_filter(load_encoder(NAME, pooling="lasttoken", prompt_template=PROMPT_EOL))``.

    Paper: Your UnEmbedding Matrix is Secretly a Feature Lens for Text Embeddings (Wu et al., 2026),
    https://arxiv.org/abs/2606.07502.

    Equation: v' = v V, with the columns of V (D, k) the right singular vectors of the unembedding matrix, ordered by
    their singular values, without the first and the last D / 16 of them.

    Args:
        model: starts with a language model whose output layer is tied to its input embeddings. It is not changed.

    Returns:
        A new model of stock modules, with a ``Dense`` before a final ``Normalize``, from D to D - D / 8 dimensions.

    Raises:
        ValueError: if the model does not start with a transformer, or its output layer has a matrix of its own, which
            Sentence Transformers does not load.

    Works with:
        Encoders without further layers after the pooling: the directions are those of the last layer's states.
    """
    body: Any = check_instance("model", model, SentenceTransformer).transformers_model
    if body is None:
        raise ValueError(f"model must start with a transformer, got {type(model[0]).__name__}.")
    if not body.config.tie_word_embeddings:
        raise ValueError(
            f"model must have an output layer that is tied to its input embeddings, got a {type(body).__name__} whose "
            "output layer has a matrix of its own, which Sentence Transformers does not load."
        )
    unembedding = body.get_input_embeddings().weight.detach().cpu()  # (V, D)
    gram = torch.zeros(unembedding.size(1), unembedding.size(1), dtype=torch.float64)
    for rows in torch.split(unembedding, _ROWS):
        gram += rows.double().T @ rows.double()
    vectors = torch.linalg.eigh(gram).eigenvectors
    left_out = round(_EDGE * len(vectors))
    matrix = vectors[:, left_out : len(vectors) - left_out]  # V, (D, k)
    line = f"* **EmbedFilter**, without text: {matrix.size(1)} of {matrix.size(0)} directions are kept"
    transform = Affine(matrix, torch.zeros(matrix.size(1)))
    return add_linear(model, transform, method="EmbedFilter", line=line, citation=CITATIONS["wu2026unembedding"])
