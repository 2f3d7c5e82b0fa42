"""A linear layer after an encoder, and the functions that compute one: equations in float64, files, cards, refusals."""

import functools
import inspect
import logging
import re
import sys

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from st_extras.encoders import load_encoder
from st_extras.modules import (
    CorpusStatistics,
    RepALPostProcessor,
    SIFPooling,
    all_but_the_top,
    embed_filter,
    linear,
    locality_preserving,
    whitening,
)
from st_extras.modules.linear import Affine, add_linear, add_linear_routes, whitening_transform
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.text.corpus import distinct_sample
from st_extras.text.term_weights import character_tfidf
from tests.encoders.decoders import build_decoder
from tests.modules.cases import TEXTS, corpus_of_words
from tests.modules.test_routers import routed

CORPUS = list(dict.fromkeys(corpus_of_words(160)))[:120]
MEMBERS = {
    "Whitening": functools.partial(whitening, dimensions=6),
    "All-but-the-top": functools.partial(all_but_the_top, components=3),
    "Locality Preserving Projections": locality_preserving,
}
CITED = {"Whitening": "su2021", "All-but-the-top": "mu2018", "Locality Preserving Projections": "he2003"}
BEYOND = {
    "components": [-1, 16, 2.5],
    "dimensions": [0, 17],
    "epsilon": [-0.1],
    "recolor": [1.5],
    "batch_size": [0, True, 10**11],
    "lambda_1": [-0.1, float("nan")],
    "a": [0, 2],
    "corpus": ["one text"],
    "sentences": ["one text"],
}
"""Numbers beyond the ends of a range; every option refuses an object of no kind."""


# --- the layer ---


def test_a_layer_comes_before_a_final_normalize(still_encoder):
    vectors = still_encoder.encode(TEXTS, convert_to_tensor=True)
    still_encoder.append(Normalize())
    transform = Affine(torch.randn(16, 5), torch.randn(5))
    state = torch.random.get_rng_state()
    model = add_linear(still_encoder, transform, method="mine", line="* mine", citation="@article{mine}")
    assert torch.equal(torch.random.get_rng_state(), state), "no random number is drawn"
    expected = torch.nn.functional.normalize(vectors @ transform.matrix + transform.offset)
    assert (model.encode(TEXTS, convert_to_tensor=True) - expected).abs().max() < 1e-5


def test_a_layer_comes_after_the_routes_of_a_router(still_encoder):
    router = routed(still_encoder)
    matrix, offset = torch.randn(16, 5), torch.randn(5)
    model = add_linear(router, Affine(matrix, offset), method="mine", line="* mine", citation="@article{mine}")
    expected = still_encoder.encode(TEXTS, convert_to_tensor=True) @ matrix + offset
    expected /= expected.norm(dim=1, keepdim=True)
    assert [type(part).__name__ for part in model] == ["Router", "Dense", "Normalize"]
    for found in (model.encode_query(TEXTS), model.encode_document(TEXTS)):
        assert np.abs(found - expected.cpu().numpy()).max() < 1e-5


def test_a_layer_for_each_route(still_encoder):
    unit = torch.nn.functional.normalize(still_encoder.encode(TEXTS, convert_to_tensor=True))
    transform = Affine(torch.randn(16, 16), torch.randn(16))
    model = add_linear_routes(
        still_encoder, {"query": transform, "document": None}, "document", method="m", line="* l", citation="c"
    )
    expected = torch.nn.functional.normalize(transform.apply(unit))
    assert (model.encode_query(TEXTS, convert_to_tensor=True) - expected).abs().max() < 1e-5
    for found in (model.encode_document(TEXTS, convert_to_tensor=True), model.encode(TEXTS, convert_to_tensor=True)):
        assert (found - unit).abs().max() < 1e-5


# --- what all methods promise ---


@pytest.mark.parametrize("name", MEMBERS)
def test_a_plain_model_is_returned(still_encoder, tmp_path, monkeypatch, name):
    still_encoder.append(Normalize())
    before = still_encoder.encode(TEXTS)
    model = MEMBERS[name](still_encoder, CORPUS)
    assert [type(part).__name__ for part in model] == ["Transformer", "Pooling", "Dense", "Normalize"]
    assert model[0] is still_encoder[0]
    assert np.array_equal(still_encoder.encode(TEXTS), before), "the given model stays as it is"
    model.save(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text(encoding="utf8")
    assert f"* **{name}**, fitted on 120 sentences: " in card
    assert f"{{{CITED[name]}" in card
    assert not re.search("trust_remote_code|st-extras", card)
    expected = model.encode(TEXTS)
    for module in [module for module in sys.modules if module.startswith("st_extras")]:
        monkeypatch.setitem(sys.modules, module, None)  # any import of it fails
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert np.array_equal(again.encode(TEXTS), expected)


@pytest.mark.parametrize("method", MEMBERS.values(), ids=MEMBERS)
def test_every_option_of_encoding_arrives(still_encoder, monkeypatch, method):
    """In chunks of the batch size, with the prompt, before the final Normalize, and with the bar."""
    still_encoder.append(Normalize())
    still_encoder.prompts, seen = {"query": "the dog "}, []
    encode = SentenceTransformer.encode

    def recorded(self, sentences, **options):
        if len(sentences) == len(CORPUS):
            seen.append(options)
            assert not isinstance(self[-1], Normalize)
        return encode(self, sentences, **options)

    monkeypatch.setattr(SentenceTransformer, "encode", recorded)
    options = {"prompt_name": "query", "chunk_size": 7}
    method(still_encoder, CORPUS, batch_size=5, show_progress_bar=True, **options)
    wanted = {"prompt_name": "query", "chunk_size": 7, "batch_size": 5, "show_progress_bar": True}
    assert [wanted.items() <= options.items() for options in seen] == [True]


@pytest.mark.parametrize("method", MEMBERS.values(), ids=MEMBERS)
def test_texts_that_cannot_be_fitted_on(still_encoder, method):
    for texts, message in (
        ([], "at least one text, got none"),
        ([*CORPUS, 5], "sentences, row 120"),
        (["a cat"] * 80, "different embeddings"),
    ):
        with pytest.raises(ValueError, match=message):
            method(still_encoder, texts)
    for options, message in (
        ({"normalize_embeddings": True}, "'normalize_embeddings'"),
        ({"pool": {}}, "'pool'"),
        ({"edge": 0.1}, "'edge'"),  # which would be lost without a word
    ):
        with pytest.raises(ValueError, match=rf"^further arguments must be those of encode .*got {message}"):
            method(still_encoder, CORPUS, **options)


@pytest.mark.parametrize(
    "function",
    [whitening, all_but_the_top, locality_preserving, embed_filter, RepALPostProcessor.attach, SIFPooling.attach],
    ids=lambda function: function.__qualname__,
)
def test_an_option_refuses_other_values_by_its_name(still_encoder, function):
    parameters = inspect.signature(function).parameters
    encodes = {"batch_size", "show_progress_bar"} if "encode_options" in parameters else set()
    needed = {"lambda_1": 0.5, "lambda_2": 0.5, "sentences": CORPUS, "corpus": TEXTS}
    if function is SIFPooling.attach:
        needed = {}
    for option in {*parameters} - {"encode_options"} | encodes:
        for value in (object(), *BEYOND.get(option, [])):
            given = {name: value for name, value in needed.items() if name in parameters}
            name = "sentences" if option == "corpus" else option
            with pytest.raises(ValueError, match=rf"^{name} must "):
                function(**given | {"model": still_encoder, option: value})


def test_repal_on_top_is_equation_3(still_encoder):
    whitened = whitening(still_encoder, CORPUS, dimensions=6)
    model = RepALPostProcessor.attach(whitened, lambda_1=0.4, lambda_2=0.7, keywords="rake")
    v, redundant = (part.numpy() for part in model[3].fit(CORPUS[:20]).parts(TEXTS))
    assert np.abs(v - whitened.encode(TEXTS)).max() < 1e-5
    expected = v - 0.4 * redundant - 0.7 * whitened.encode(CORPUS[:20]).mean(axis=0)
    assert np.abs(model.encode(TEXTS) - expected).max() < 1e-4


# --- whitening ---


@pytest.mark.parametrize(("epsilon", "dimensions"), [(0.0, 5), (0.03, None), (1.0, 5)])
def test_whitening_by_its_formula_in_float64(still_encoder, epsilon, dimensions):
    corpus = corpus_of_words(60)
    vectors = still_encoder.encode(corpus).astype(np.float64)
    values, axes = np.linalg.eigh(np.cov(vectors.T))
    values, axes = np.clip(values[::-1], 0, None)[:dimensions], axes[:, ::-1][:, :dimensions]
    variance = np.trace(np.cov(vectors.T)) / 16
    expected = (vectors - vectors.mean(axis=0)) @ axes / np.sqrt(values + epsilon * variance)
    out = whitening(still_encoder, corpus, dimensions=dimensions, epsilon=epsilon).encode(corpus)
    if dimensions is None:
        expected = expected @ axes.T  # rotated back
    else:
        expected *= np.sign((out * expected).sum(axis=0))  # an eigenvector has no sign
    assert np.abs(out - expected).max() < 1e-4


def test_directions_without_variance_come_out_as_zero(still_encoder, caplog):
    corpus = corpus_of_words(60)
    with caplog.at_level(logging.WARNING):
        whitened = whitening(still_encoder, corpus[:4])
    assert "vary in 3 directions only" in caplog.text
    out = whitened.encode(corpus)
    assert np.isfinite(out).all()
    assert np.abs(out[:, 3:]).max() == 0
    assert np.abs(out[:, :3]).max() < 1e4


@pytest.mark.parametrize("corpus", [["a cat"], ["the old man read a red book", "THE old man read a red book"] * 9])
def test_rounding_is_no_variance(still_encoder, corpus):
    """Equal sentences in batches of other sizes differ in the last digit: whitening would scale that up."""
    with pytest.raises(ValueError, match=f"two different embeddings.*got {len(corpus)} sentence"):
        whitening(still_encoder, corpus)
    noise = 1e-7 * torch.randn(50, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=r"two different embeddings.*got 50 sentences"):
        whitening_transform(CorpusStatistics(16).update(3.0 + noise))


# --- all-but-the-top ---


def by_power_iteration(vectors, components):
    """The paper's formula written again: each direction by power iteration on what is left, in float64."""
    rest = vectors - sum(vectors) / len(vectors)
    for _ in range(components):
        direction = 1.0 + np.arange(vectors.shape[1])
        for _ in range(3000):
            direction = rest.T @ (rest @ direction)
            direction /= np.sqrt(direction @ direction)
        rest = np.array([v - (v @ direction) * direction for v in rest])
    return rest


@pytest.mark.parametrize(("components", "removed"), [(0, 0), (1, 1), (3, 3), (None, 1)])
def test_all_but_the_top_by_power_iteration_in_float64(still_encoder, components, removed):
    """The paper's default is D / 100, here 16 / 100, and at least 1."""
    corpus = corpus_of_words(60)
    vectors = still_encoder.encode(corpus).astype(np.float64)
    model = all_but_the_top(still_encoder, iter(corpus), components=components)
    assert np.abs(model.encode(corpus) - by_power_iteration(vectors, removed)).max() < 1e-5


def test_a_corpus_that_leaves_nothing_is_refused(still_encoder):
    with pytest.raises(ValueError, match=r"^components must be below .*\(3\), got 3"):
        all_but_the_top(still_encoder, CORPUS[:4], components=3)
    all_but_the_top(still_encoder, CORPUS[:5], components=3)


# --- locality preserving projections ---


def test_it_is_the_kernel_of_the_encoder_s_embeddings(still_encoder):
    plain = SentenceTransformer(modules=list(still_encoder), device="cpu")
    still_encoder.append(Normalize())
    model = locality_preserving(still_encoder, iter(CORPUS), recolor=0.25, seed=3)
    vectors = plain.encode(CORPUS, convert_to_tensor=True).double()
    found = neighbor_directions(vectors, tfidf=character_tfidf(CORPUS), seed=3)
    expected = (vectors - found.mean) @ found.kernel(0.25)
    expected /= expected.norm(dim=1, keepdim=True)
    assert np.abs(model.encode(CORPUS) - expected.numpy()).max() < 1e-4


def test_a_sample_of_a_long_text(still_encoder, monkeypatch):
    monkeypatch.setattr(linear, "_MOST", 60)

    def kernel(texts, **options):
        return locality_preserving(still_encoder, texts, **options)[2].linear.weight

    sampled = kernel((text for text in CORPUS), seed=5)
    assert torch.equal(sampled, kernel(distinct_sample(CORPUS, 60, 5), seed=5))
    assert not torch.equal(sampled, kernel(CORPUS, seed=6))


# --- EmbedFilter ---


def test_embed_filter_removes_the_ends_of_the_spectrum(tmp_path, monkeypatch):
    build_decoder(tmp_path / "llama", tie_word_embeddings=True)
    model = load_encoder(tmp_path / "llama", pooling="lasttoken", device="cpu", prompt_template='"{}" in one word: "')
    vectors = model.encode(TEXTS, convert_to_tensor=True).double()
    words = model.transformers_model.get_input_embeddings().weight.detach().double()
    size = words.size(1)
    left = torch.linalg.svd(words).Vh[[*range(2), *range(size - 2, size)]]  # (4, D): the first two and the last two
    monkeypatch.setattr(linear, "_EDGE", 2 / size)
    filtered = embed_filter(model)
    found = filtered.encode(TEXTS, convert_to_tensor=True).double()
    assert found.shape == (len(TEXTS), size - 4) == (len(TEXTS), filtered.get_embedding_dimension())
    rest = vectors - vectors @ left.T @ left
    assert (found @ found.T - rest @ rest.T).abs().max() < 1e-5, "what is left, but for a rotation"
    assert (vectors @ vectors.T - rest @ rest.T).abs().max() > 1e-2
    filtered.save(str(tmp_path / "filtered"))
    assert "* **EmbedFilter**, without text" in (tmp_path / "filtered" / "README.md").read_text(encoding="utf8")
    again = load_encoder(tmp_path / "filtered", device="cpu")
    assert torch.equal(again.encode(TEXTS, convert_to_tensor=True), found.float())


def test_what_embed_filter_refuses(still_encoder, tmp_path):
    build_decoder(tmp_path / "llama", tie_word_embeddings=False)
    with pytest.raises(ValueError, match="tied to its input embeddings, got a LlamaModel"):
        embed_filter(load_encoder(tmp_path / "llama", device="cpu"))
