"""What whitening and all-but-the-top share: attaching, fitting in two ways, files, exports without this package."""

import functools
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from st_extras.modules import (
    AllButTheTopPostProcessor,
    CorpusStatistics,
    RepALPostProcessor,
    WhiteningPostProcessor,
)
from tests.modules.cases import TEXTS, corpus_of_words

CORPUS = corpus_of_words(60)
MEMBERS = {
    "whitening": functools.partial(WhiteningPostProcessor.attach, dimensions=6),
    "soft whitening": functools.partial(WhiteningPostProcessor.attach, epsilon=0.1),
    "centring": functools.partial(AllButTheTopPostProcessor.attach, components=0),
    "all-but-the-top": functools.partial(AllButTheTopPostProcessor.attach, components=3),
}
members = pytest.mark.parametrize("attach", MEMBERS.values(), ids=MEMBERS)

WITHOUT_THE_PACKAGE = """
import json, sys, numpy
sys.modules["st_extras"] = None  # any import of it fails
from sentence_transformers import SentenceTransformer
try:
    import st_extras
except ImportError:
    numpy.save(sys.argv[2], SentenceTransformer(sys.argv[1], device="cpu").encode(json.loads(sys.argv[3])))
"""


@members
def test_fitting_on_sentences_and_on_statistics_is_one(still_encoder, attach):
    still_encoder.append(Normalize())
    statistics = CorpusStatistics.compute(still_encoder, CORPUS)
    one, other = attach(still_encoder, corpus=CORPUS), attach(still_encoder, statistics=statistics)
    assert torch.equal(one[2].kernel, other[2].kernel)
    assert torch.equal(one[2].corpus_mean, other[2].corpus_mean)
    assert one[2].corpus_size == other[2].corpus_size == 60
    later = attach(still_encoder)
    assert later[2].fit(statistics=statistics) is later[2]
    assert np.array_equal(later.encode(TEXTS), one.encode(TEXTS))


@members
def test_saved_and_loaded_to_the_bit(still_encoder, tmp_path, attach):
    model = attach(still_encoder, corpus=CORPUS)
    model.save(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True, device="cpu")
    assert np.array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert again[2].get_config_dict() == model[2].get_config_dict()
    again[2].fit(CORPUS)
    assert torch.equal(again[2].kernel, model[2].kernel)


@pytest.mark.slow
@members
def test_the_export_loads_where_this_package_does_not(still_encoder, tmp_path, attach):
    model = attach(still_encoder, corpus=CORPUS)
    stock = SentenceTransformer(modules=[*still_encoder, model[2].to_dense()], device="cpu")
    stock.save(str(tmp_path / "stock"))
    command = [sys.executable, "-c", WITHOUT_THE_PACKAGE, str(tmp_path / "stock"), str(tmp_path / "out.npy")]
    subprocess.run([*command, json.dumps(TEXTS)], check=True, capture_output=True, cwd=tmp_path, env=os.environ.copy())
    out = np.load(tmp_path / "out.npy")
    assert np.array_equal(out, stock.encode(TEXTS))
    assert np.abs(out - model.encode(TEXTS)).max() < 1e-3


@members
@pytest.mark.parametrize("redundancy", ["encoder", "pooled"])
def test_repal_on_top_is_equation_3(still_encoder, attach, redundancy):
    pytest.importorskip("jieba")
    below = attach(still_encoder, corpus=CORPUS)
    model = RepALPostProcessor.attach(below, lambda_1=0.4, lambda_2=0.7, redundancy=redundancy, corpus=CORPUS[:20])
    repal = next(part for part in model if isinstance(part, RepALPostProcessor))
    v, redundant = (part.numpy() for part in repal.parts(TEXTS))
    assert np.abs(v - below.encode(TEXTS)).max() < 1e-5
    expected = v - 0.4 * redundant - 0.7 * below.encode(CORPUS[:20]).mean(axis=0)
    assert np.abs(model.encode(TEXTS) - expected).max() < 1e-4


@members
def test_only_one_of_them(still_encoder, attach):
    pytest.importorskip("jieba")
    model = attach(still_encoder, corpus=CORPUS)
    refined = RepALPostProcessor.attach(still_encoder, lambda_1=0.4, lambda_2=0.0)
    for other in MEMBERS.values():
        for taken in (model, refined):
            with pytest.raises(
                ValueError, match="already: attach one of the first three to the plain model, then RepAL"
            ):
                other(taken)


@members
def test_the_encode_options_reach_encode(still_encoder, attach):
    prompted = attach(still_encoder, corpus=CORPUS, encode_options={"prompt": "the old man "})
    expected = still_encoder.encode(CORPUS, prompt="the old man ").astype(np.float64).mean(axis=0)
    assert np.abs(prompted[2].corpus_mean.numpy() - expected).max() < 1e-5


@members
def test_large_means_lose_no_digits(attach, still_encoder):
    """Fitted on embeddings whose mean is a thousand times their spread."""
    rows = 1e3 + np.random.default_rng(0).normal(size=(500, 16))
    module = attach(still_encoder)[2]
    kernel = module.kernel_of(CorpusStatistics(16).update(rows)).numpy()
    centred = module.kernel_of(CorpusStatistics(16).update(rows - 1e3)).numpy()
    signs = np.sign((kernel * centred).sum(axis=0)) if kernel.shape[1] < 16 else 1
    assert np.abs(kernel * signs - centred).max() < 1e-9


@members
def test_what_is_told_to_the_model_card(still_encoder, attach):
    module = attach(still_encoder, corpus=CORPUS)[2]
    assert module.citation.strip().startswith("@")
    assert module.card_settings["corpus_size"] == 60
    json.dumps(module.card_settings)
    module.check_statistics()
    module.kernel.zero_()
    with pytest.raises(ValueError, match="kernel must not be all zero, got zeros only"):
        module.check_statistics()


def test_gradients_pass_through(still_encoder):
    model = AllButTheTopPostProcessor.attach(still_encoder, components=2, corpus=CORPUS)
    model(model.preprocess(CORPUS[:3]))["sentence_embedding"].square().sum().backward()
    assert still_encoder.transformers_model.embeddings.word_embeddings.weight.grad.abs().sum() > 0
    assert not list(model[2].parameters())


@pytest.mark.parametrize("module", [WhiteningPostProcessor(4), AllButTheTopPostProcessor(4)])
def test_what_differs_by_rounding_alone_is_equal(module):
    noise = torch.randn(20, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    row = torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64)
    with pytest.raises(ValueError, match=r"^sentences must have at least two different embeddings to fit on, got 20 "):
        module.fit(statistics=CorpusStatistics(4).update(row + 1e-8 * noise))
    module.fit(statistics=CorpusStatistics(4).update(row + 1e-4 * noise))


@members
def test_a_setting_that_a_file_leaves_empty_is_refused(still_encoder, tmp_path, attach):
    attach(still_encoder, corpus=CORPUS).save(str(tmp_path))
    (file,) = tmp_path.glob("*PostProcessor/config.json")
    settings = json.loads(file.read_text())
    for name in settings.keys() - {"version"}:
        file.write_text(json.dumps(settings | {name: None}))
        with pytest.raises(ValueError, match=rf"config\.json: .*{name}"):
            SentenceTransformer(str(tmp_path), device="cpu", trust_remote_code=True)


@members
def test_a_loaded_model_that_is_fitted_again_says_so(still_encoder, tmp_path, attach):
    attach(still_encoder, corpus=CORPUS).save(str(tmp_path / "first"))
    loaded = SentenceTransformer(str(tmp_path / "first"), device="cpu", trust_remote_code=True)
    (module,) = (part for part in loaded if hasattr(part, "corpus_mean"))
    module.fit(CORPUS[:31])
    loaded.save(str(tmp_path / "second"))
    assert "fitted on 31 sentences" in (tmp_path / "second" / "README.md").read_text(encoding="utf8")
