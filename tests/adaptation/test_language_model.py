"""``adapt_language_model``: what is tried, what is saved, what counts as a language model."""

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from st_extras.adaptation import adapt_language_model, extraction, language_model
from st_extras.adaptation.corpus import Sample, apart_from, sample_texts, split_corpus
from st_extras.adaptation.extraction import embed_filter, encode_grid, extractions, is_language_model, whitenings
from st_extras.adaptation.language_model import ExtractionScores
from st_extras.adaptation.run import AdaptationRun
from st_extras.encoders import load_encoder
from st_extras.encoders.prompt_template import PLAIN, PROMPT_EOL
from st_extras.evaluation import STSDataset
from st_extras.evaluation.geometry import unrelated_cosines
from st_extras.evaluation.label_free import LabelFreeComparison
from st_extras.modules import pipeline
from st_extras.modules.linear import Affine, add_linear, whitening_transform
from st_extras.samples import graded_spearman
from tests.adaptation.test_domain import saved
from tests.adaptation.texts import DEV, TEXTS
from tests.encoders.decoders import build_decoder
from tests.helpers import differing, draw, snapshot, some_fast

pytestmark = pytest.mark.usefixtures("without_picture")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_decoder(tmp_path_factory.mktemp("language model"), num_hidden_layers=3, tie_word_embeddings=True)


@pytest.fixture
def decoder(folder):
    return load_encoder(folder, device="cpu")


def encode(model: SentenceTransformer, texts: list[str]) -> torch.Tensor:
    with pipeline.part_of_model(model, list(model)) as part:
        return part.encode(texts, batch_size=16, convert_to_tensor=True, show_progress_bar=False).double()


def run(model: SentenceTransformer, folder: Any, **options: Any) -> Any:
    return adapt_language_model(model, TEXTS, folder, **{"show_progress_bar": False, "minutes": 100, **options})


@pytest.mark.parametrize("kind", some_fast(["llama", "gpt2", "gemma3_text", "opt"], ["llama"]))
def test_one_pass_gives_what_each_cut_model_would(kind, tmp_path):
    heads = {"num_key_value_heads": 1, "head_dim": 8} if kind == "gemma3_text" else {}
    folder = build_decoder(tmp_path / "decoder", kind, num_hidden_layers=3, **heads)
    lines = [*TEXTS[:7], "a", " ".join(TEXTS[7:10])]
    model = load_encoder(folder, device="cpu")
    grid = encode_grid(model, lines, encode)
    assert (grid.layers, grid.embeddings.shape[:4]) == ([1, 2, 3], (2, 9, 3, 3))
    assert sorted(grid.poolings) == ["lasttoken", "mean", "weightedmean"]
    assert grid.poolings[0] == model[1].pooling_mode
    assert not model.transformers_model.config.output_hidden_states
    places = itertools.product(enumerate((PLAIN, PROMPT_EOL)), enumerate(grid.layers), enumerate(grid.poolings))
    for (t, template), (k, layer), (p, pooling) in places:
        cut = load_encoder(folder, device="cpu", layers=layer, pooling=pooling, prompt_template=template)
        np.testing.assert_allclose(grid.embeddings[t, :, k, p], cut.encode(lines), rtol=1e-4, atol=1e-5)


def test_whitenings_are_those_of_the_modules():
    found = draw(300, 8) @ draw(8, 8, seed=1) + 3
    (soft, soft_transform), (full, full_transform) = whitenings(found)
    assert (soft, full) == ("soft whitening", "whitening to 8")
    statistics = extraction.CorpusStatistics(8).update(found)
    for (matrix, offset), epsilon in ((soft_transform, 0.1), (full_transform, 0.0)):
        after = found @ matrix + offset
        expected = whitening_transform(statistics, epsilon).apply(found)
        torch.testing.assert_close(after @ after.T, expected @ expected.T)
    assert not list(whitenings(torch.ones(20, 4)))


def test_the_filter_leaves_out_both_ends_of_the_spectrum_of_words(decoder):
    words = decoder.transformers_model.get_input_embeddings().weight.detach().double()
    _, _, vectors = torch.linalg.svd(words)  # rows, by falling singular value
    matrix, offset = embed_filter(decoder)
    kept = vectors[1:-1]  # of 16 dimensions
    torch.testing.assert_close(matrix @ matrix.T, kept.T @ kept)
    assert offset.tolist() == [0.0] * 14
    decoder.transformers_model.config.tie_word_embeddings = False
    assert embed_filter(decoder) is None
    with pytest.raises(ValueError, match=r"^edge must"):
        embed_filter(decoder, 0.5)
    with pytest.raises(ValueError, match=r"^model must"):
        embed_filter(SentenceTransformer(modules=[StaticEmbedding(decoder.tokenizer, embedding_dim=4)]))


def test_texts_that_have_all_their_prompts_are_used(decoder):
    """Encoding may stop after any even number of prompted texts."""
    prompted: list[str] = []

    def half(model: SentenceTransformer, texts: list[str]) -> torch.Tensor:
        prompted.extend(texts)
        return encode(model, texts[:10])

    grid = encode_grid(decoder, TEXTS[:8], half)
    assert prompted == [template.replace("{}", text) for text in TEXTS[:8] for template in (PLAIN, PROMPT_EOL)]
    torch.testing.assert_close(grid.embeddings, encode_grid(decoder, TEXTS[:5], encode).embeddings, atol=1e-5, rtol=0)
    torch.testing.assert_close(grid.base, encode(decoder, TEXTS[:5]), atol=1e-5, rtol=0)
    assert len(encode_grid(decoder, TEXTS[:8], lambda *_: torch.zeros(0, 0)).base) == 0


@pytest.mark.slow
def test_what_is_saved_is_what_was_scored(decoder, tmp_path):
    before = snapshot(decoder)
    found = run(decoder, tmp_path / "out", dev=DEV)
    assert not differing(before, snapshot(decoder))
    best = max(found.candidates, key=lambda one: one.gain)
    assert (len(found.candidates), found.chosen) == (6, best.name)
    loaded = saved(tmp_path / "out")
    np.testing.assert_allclose(loaded.encode(TEXTS[:9]), found.model.encode(TEXTS[:9]), atol=1e-6)
    measure = language_model.development(DEV)
    assert found.details.dev == pytest.approx(measure.score(encode(decoder, DEV.texts)), abs=0.1)
    assert best.gain == pytest.approx(measure.score(encode(loaded, DEV.texts)) - found.details.dev, abs=0.2)
    held_out = apart_from(sample_texts(TEXTS, 12_000, 42), DEV).texts[: found.texts.held_out]
    for marks, model in ((found.details.unrelated_before, decoder), (found.details.unrelated_after, loaded)):
        assert marks[100] == pytest.approx(unrelated_cosines(encode(model, held_out))[100], abs=1e-3)
    card = (tmp_path / "out" / "README.md").read_text()
    assert ("Whitening" in card, "wu2026unembedding" in card) == ("whitening" in best.name, "Filter" in best.name)


@pytest.mark.slow
def test_scores_are_those_of_the_cut_model(decoder):
    """Word overlap on held-out texts and graded pairs, by what would be saved."""
    corpus = split_corpus(Sample(TEXTS, 600), encode(decoder, TEXTS))
    grid = encode_grid(decoder, TEXTS, encode)
    job: Any = SimpleNamespace(encode=encode, seed=3)
    scores = ExtractionScores(decoder, corpus, grid, job, None)
    assert scores.base_general == pytest.approx(graded_spearman(decoder), abs=0.1)
    compared = LabelFreeComparison(corpus.held_out, encode(decoder, corpus.held_out))
    tried = list(extractions(grid, 1, 1, slice(120, None), embed_filter(decoder)))[4:8]
    assert [one.pooling for one in tried] == 4 * [grid.poolings[1]]
    assert [one.name.partition(" + ")[2] for one in tried] == ["", "EmbedFilter", "soft whitening", "whitening to 16"]
    assert torch.equal(tried[2].transform.matrix, next(whitenings(tried[0].embeddings(grid)[120:]))[1].matrix)
    for one in tried:
        model = one.encoder(decoder)
        if one.transform is not None:
            model = add_linear(model, Affine(*one.transform), method="a", line="b", citation="c")
        gain, general = scores.gain_and_general(one)
        assert general == pytest.approx(graded_spearman(model), abs=0.1)
        words = compared.compare(encode(model, corpus.held_out)).word_overlap
        assert gain == pytest.approx(100 * words + general - scores.base_general, abs=0.2)


@pytest.mark.slow
def test_texts_without_an_embedding_leave_the_grid_too_and_seed_and_limit_arrive(decoder, tmp_path, monkeypatch):
    """The grid was once sliced by the numbers of all texts: held-out rows were those of other texts."""
    encoded: list[Any] = []
    scored: list[Any] = []
    fitting: list[slice] = []

    def grid_with_gaps(*given: Any) -> Any:
        grid = encode_grid(*given)
        if not encoded:
            grid.embeddings[:, [3, 10]] = 0
        encoded.append((given[1], grid))
        return grid

    monkeypatch.setattr(language_model, "MOST_TEXTS", 510)
    monkeypatch.setattr(language_model, "encode_grid", grid_with_gaps)
    monkeypatch.setattr(language_model, "extractions", lambda *given: fitting.append(given[3]) or extractions(*given))
    scores = language_model.ExtractionScores
    monkeypatch.setattr(language_model, "ExtractionScores", lambda *given: scored.append(given) or scores(*given))
    found = run(decoder, tmp_path / "out", dev=DEV, seed=7)
    ((_, corpus, grid, job, _),) = scored
    texts, whole = encoded[0]
    kept = [row for row in range(510) if row not in (3, 10)]
    assert (found.texts.sampled, len(texts), found.texts.used, job.seed) == (600, 510, 508, 7)
    assert corpus.texts == [texts[row] for row in kept]
    assert torch.equal(grid.embeddings, whole.embeddings[:, kept])
    assert {(one.start, one.stop) for one in fitting} == {(len(corpus.held_out), None)}


@pytest.mark.slow
def test_an_interrupted_run_ends_the_same(decoder, folder, tmp_path, monkeypatch):
    whole = run(decoder, tmp_path / "whole")

    def interrupted(*given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(extraction, "whitenings", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(decoder, tmp_path / "cut")
    again = run(load_encoder(folder, device="cpu"), tmp_path / "cut", resume=True)
    assert [(one.name, one.gain) for one in again.candidates] == [(one.name, one.gain) for one in whole.candidates]


@pytest.mark.slow
def test_what_is_left_unchanged(decoder, tmp_path, monkeypatch):
    assert "more minutes" in run(decoder, tmp_path / "few", minutes=1e-6).reason
    left, right = TEXTS[:40], TEXTS[40:80]
    cosines = torch.cosine_similarity(encode(decoder, left), encode(decoder, right))
    best = run(decoder, tmp_path / "best", dev=STSDataset("own", left, right, cosines.tolist()))
    assert (best.chosen, any(one.accepted for one in best.candidates)) == (None, False)
    monkeypatch.setattr(AdaptationRun, "deadline", property(lambda self: 0.0, lambda self, value: None), raising=False)
    late = run(decoder, tmp_path / "late", dev=DEV)
    assert (late.candidates, late.details.not_tried) == ([], ("further layers, as the time was up",))
    assert "give more minutes" in late.reason


def test_what_counts_as_a_language_model(decoder, folder, tmp_path, still_encoder):
    decoder.save(str(tmp_path))  # without its output layer
    assert is_language_model(load_encoder(tmp_path, device="cpu"))
    assert is_language_model(load_encoder(folder, device="cpu", pooling="mean", layers=2))
    assert is_language_model(load_encoder(folder, device="cpu", prompts={"a": "b "}))
    assert not is_language_model(load_encoder(folder, device="cpu", prompts={"a": "b "}, default_prompt_name="a"))
    assert not is_language_model(load_encoder(folder, device="cpu", prompt_template=PROMPT_EOL))
    decoder.append(Normalize())
    assert not is_language_model(decoder)
    with pytest.raises(ValueError, match=r"^model must be a causal language model"):
        adapt_language_model(still_encoder, TEXTS, tmp_path / "out")
