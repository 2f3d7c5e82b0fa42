"""``adapt`` of a causal language model: what is tried, what is saved, when it is taken for one."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from st_extras.adaptation import adapt, language_model
from st_extras.adaptation.encode import encode_texts
from st_extras.adaptation.language_model import embed_filter, encode_readings, is_language_model, whitenings
from st_extras.encoders import load_encoder
from st_extras.encoders.prompt_template import PLAIN, PROMPT_EOL
from st_extras.evaluation import STSDataset
from st_extras.evaluation.label_free import LabelFreeComparison
from st_extras.modules import pipeline
from st_extras.samples import graded_spearman
from tests.adaptation.test_adapt import DEV, TEXTS, adapting, saved
from tests.encoders.decoders import build_decoder
from tests.helpers import differing, snapshot, some_fast

pytestmark = pytest.mark.slow

POOLINGS = ["lasttoken", "mean", "weightedmean"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_decoder(tmp_path_factory.mktemp("language model"), num_hidden_layers=3, tie_word_embeddings=True)


@pytest.fixture
def decoder(folder):
    return load_encoder(folder, device="cpu")


def encoder(model: SentenceTransformer, texts: Any, **options: Any) -> torch.Tensor:
    return encode_texts(model, texts, batch_size=16, show_progress_bar=False, **options)


def run(model: SentenceTransformer, folder: Any, **options: Any) -> Any:
    return adapt(model, TEXTS, folder, **{"show_progress_bar": False, "minutes": 100, **options})


@pytest.mark.parametrize("kind", some_fast(["llama", "gpt2", "gemma3_text", "opt"], ["llama"]))
def test_one_pass_gives_what_each_cut_model_would(kind, tmp_path):
    heads = {"num_key_value_heads": 1, "head_dim": 8} if kind == "gemma3_text" else {}
    folder = build_decoder(tmp_path / "decoder", kind, num_hidden_layers=3, **heads)
    lines = [*TEXTS[:7], "a", " ".join(TEXTS[7:10])]
    model = load_encoder(folder, device="cpu")
    grid = encode_readings(model, lines, encoder, tmp_path)
    assert (grid.layers, sorted(grid.poolings), grid.embeddings.shape[:4]) == ([1, 2, 3], POOLINGS, (2, 9, 3, 3))
    assert grid.poolings[0] == model[1].pooling_mode
    assert not model.transformers_model.config.output_hidden_states
    for t, template in enumerate((PLAIN, PROMPT_EOL)):
        for k, layer in enumerate(grid.layers):
            for p, pooling in enumerate(grid.poolings):
                cut = load_encoder(folder, device="cpu", layers=layer, pooling=pooling, prompt_template=template)
                np.testing.assert_allclose(grid.embeddings[t, :, k, p], cut.encode(lines), rtol=1e-4, atol=1e-5)


def test_whitenings_are_those_of_the_modules():
    found = torch.randn(300, 8, generator=torch.Generator().manual_seed(0)).double() @ torch.randn(8, 8).double() + 3
    (soft, soft_step), (full, full_step) = whitenings(found)
    assert (soft, full) == (", soft whitening", ", whitening to 8")
    for step, epsilon in ((soft_step, 0.1), (full_step, 0.0)):
        after = found @ step[0] + step[1]
        statistics = language_model.CorpusStatistics(8).update(found)
        kernel = language_model.WhiteningPostProcessor(8, epsilon=epsilon).kernel_of(statistics)
        torch.testing.assert_close(
            after @ after.T, (found - found.mean(0)) @ kernel @ kernel.T @ (found - found.mean(0)).T
        )
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


def test_what_is_saved_is_what_was_judged(decoder, tmp_path):
    before = snapshot(decoder)
    found = run(decoder, tmp_path / "out", dev=DEV)
    assert not differing(before, snapshot(decoder))
    assert len(found.rows) == 6
    assert found.chosen == max(found.rows, key=lambda row: row.gain).name
    loaded = saved(tmp_path / "out")
    np.testing.assert_allclose(loaded.encode(TEXTS[:9]), found.model.encode(TEXTS[:9]), atol=1e-6)
    score = language_model.development(DEV).score
    gain = score(encoder(loaded, DEV.texts)) - found.facts["dev"]
    assert gain == pytest.approx(max(row.gain for row in found.rows), abs=0.2)
    card = (tmp_path / "out" / "README.md").read_text()
    assert ("Whitening" in card, "wu2026unembedding" in card) == ("whitening" in found.chosen, "Filter" in found.chosen)


def test_the_judge_adds_words_and_graded_pairs(decoder, tmp_path):
    encoded, judged = language_model.judge_readings(decoder, TEXTS, encoder, tmp_path, None, math.inf)
    compared = LabelFreeComparison(encoded.judged, encoder(decoder, encoded.judged))
    start, count = graded_spearman(decoder), len(encoded.judged)
    assert any(reading.step is not None for reading in judged.candidates)
    for row, reading in zip(judged.rows, judged.candidates, strict=True):
        model = reading.as_encoder().model
        if reading.step is not None:
            model = pipeline.with_dense(model, *reading.step)
            steps = [step for _, step in whitenings(reading.embeddings[count : len(TEXTS)])]
            assert any(torch.equal(step[0], reading.step[0]) for step in (embed_filter(decoder), *steps))
        lexical = compared.compare(encoder(model, encoded.judged)).word_overlap
        assert row.general == pytest.approx(graded_spearman(model), abs=0.1)
        assert row.gain == pytest.approx(100 * lexical + row.general - start, abs=0.2)
        assert row.accepted == (row.gain > 0)


def test_an_interrupted_run_goes_on(decoder, folder, tmp_path, monkeypatch):
    whole = run(decoder, tmp_path / "whole")

    def interrupted(*given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(language_model, "whitenings", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(decoder, tmp_path / "cut")
    assert sorted(path.suffix for path in (tmp_path / "cut" / "adapting").iterdir())[-1] == ".safetensors"
    again = run(load_encoder(folder, device="cpu"), tmp_path / "cut", resume=True)
    assert [(row.name, row.gain) for row in again.rows] == [(row.name, row.gain) for row in whole.rows]
    assert not (tmp_path / "cut" / "adapting").exists()


def test_a_start_that_is_best_stays(decoder, tmp_path):
    left, right = TEXTS[:40], TEXTS[40:80]
    cosines = torch.cosine_similarity(encoder(decoder, left), encoder(decoder, right))
    found = run(decoder, tmp_path / "out", dev=STSDataset("own", left, right, cosines.tolist()))
    assert (found.chosen, found.reason) == (None, "Left as it is: no candidate was better than the start.")
    assert not any(row.accepted for row in found.rows)


def test_the_time_is_for_all_passes_over_a_text(decoder, tmp_path, monkeypatch):
    monkeypatch.setattr(adapting, "seconds_per_text", lambda *given: 1.0)
    assert run(decoder, tmp_path / "out", minutes=56.7, dev=DEV).facts["texts"] == 510
    few = run(decoder, tmp_path / "few", minutes=55.5, dev=DEV)
    assert "are enough for 499 texts, and 500 are needed: give more minutes, about 56 (--minutes 56)" in few.reason
    _, judged = language_model.judge_readings(decoder, TEXTS, encoder, tmp_path, None, end=0.0)
    assert (judged.rows, judged.facts["not tried"]) == ([], "further layers, as the time was up")


def test_what_is_taken_for_a_language_model(decoder, folder, tmp_path, still_encoder):
    assert is_language_model(decoder)
    decoder.save(str(tmp_path))  # without its output layer
    assert is_language_model(load_encoder(tmp_path, device="cpu"))
    assert is_language_model(load_encoder(folder, device="cpu", pooling="mean", layers=2))
    assert not is_language_model(load_encoder(folder, device="cpu", prompt_template=PROMPT_EOL))
    decoder.append(Normalize())
    assert not is_language_model(decoder)
    assert not is_language_model(still_encoder)
