"""What the linear steps share: attaching, fitting in two ways, files, exports."""

import functools

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from st_extras.modules import (
    AllButTheTopPostProcessor,
    CorpusStatistics,
    LocalityPreservingPostProcessor,
    RepALPostProcessor,
    WhiteningPostProcessor,
    load,
    pipeline,
    to_stock,
)
from tests.modules.cases import TEXTS, corpus_of_words

CORPUS = list(dict.fromkeys(corpus_of_words(90)))[:60]
MEMBERS = {
    "whitening": functools.partial(WhiteningPostProcessor.attach, dimensions=6),
    "soft whitening": functools.partial(WhiteningPostProcessor.attach, epsilon=0.1),
    "centring": functools.partial(AllButTheTopPostProcessor.attach, components=0),
    "all-but-the-top": functools.partial(AllButTheTopPostProcessor.attach, components=3),
}
ALL = MEMBERS | {"locality": LocalityPreservingPostProcessor.attach}
all_members = pytest.mark.parametrize("attach", ALL.values(), ids=ALL)
members = pytest.mark.parametrize("attach", MEMBERS.values(), ids=MEMBERS)


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


@all_members
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
    assert np.array_equal(RepALPostProcessor.detach(model).encode(TEXTS), below.encode(TEXTS))


@all_members
def test_saved_loaded_fitted_again_and_exported(still_encoder, tmp_path, attach):
    still_encoder.append(Normalize())
    model = attach(still_encoder, corpus=CORPUS)
    assert [type(part).__name__ for part in model][3:] == ["Normalize"]
    assert np.abs(to_stock(model).encode(TEXTS) - model.encode(TEXTS)).max() < 1e-5
    model.save(str(tmp_path / "saved"))
    again = load(str(tmp_path / "saved"), device="cpu")
    assert np.array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert again[2].get_config_dict() == model[2].get_config_dict()
    again[2].fit(CORPUS)
    assert torch.equal(again[2].kernel, model[2].kernel)
    size = again[2].fit(CORPUS[:55]).corpus_size
    again.save(str(tmp_path / "again"))
    card = (tmp_path / "again" / "README.md").read_text(encoding="utf8")
    assert f"fitted on {size} sentences" in card
    assert model[2].citation.splitlines()[0] in card


@all_members
def test_an_unfitted_step(still_encoder, attach):
    model = attach(still_encoder)
    with pytest.raises(ValueError, match=r"not fitted.*fit\(sentences\)"):
        model.encode("a cat")
    with pytest.raises(ValueError, match="not fitted"):
        model[2].to_dense()
    with pytest.raises(ValueError, match="different embeddings"):
        model[2].fit(["a cat"] * 80)
    assert model[2].corpus_size == 0
    assert not model[2].kernel.any()


@all_members
def test_only_one_of_them(still_encoder, attach):
    refined = RepALPostProcessor.attach(still_encoder, lambda_1=0.4, lambda_2=0.0, keywords="rake")
    for other in ALL.values():
        for taken, name in ((attach(still_encoder), "Processor"), (refined, "RepALPostProcessor")):
            with pytest.raises(
                ValueError, match=rf"^model must not have \w*{name} attached already: attach one linear"
            ):
                other(taken)


@members
def test_large_means_lose_no_digits(attach, still_encoder):
    """Fitted on embeddings whose mean is a thousand times their spread."""
    rows = 1e3 + np.random.default_rng(0).normal(size=(500, 16))
    module = attach(still_encoder)[2]
    kernel = module.kernel_of(CorpusStatistics(16).update(rows)).numpy()
    centred = module.kernel_of(CorpusStatistics(16).update(rows - 1e3)).numpy()
    signs = np.sign((kernel * centred).sum(axis=0)) if kernel.shape[1] < 16 else 1
    assert np.abs(kernel * signs - centred).max() < 1e-9


def test_a_fitted_matrix_is_put_before_a_final_normalize(still_encoder):
    still_encoder.append(Normalize())
    matrix, offset = torch.randn(16, 5), torch.randn(5)
    state = torch.random.get_rng_state()
    model = pipeline.with_dense(still_encoder, matrix, offset)
    assert torch.equal(torch.random.get_rng_state(), state), "no random number is drawn"
    assert [type(part).__name__ for part in model][2:] == ["Dense", "Normalize"]
    plain = SentenceTransformer(modules=list(still_encoder)[:2], device="cpu")
    expected = torch.nn.functional.normalize(plain.encode(TEXTS, convert_to_tensor=True) @ matrix + offset)
    assert (model.encode(TEXTS, convert_to_tensor=True) - expected).abs().max() < 1e-5


@all_members
def test_refitted_beneath_repal_it_reads_plain_embeddings(still_encoder, attach):
    stacked = RepALPostProcessor.attach(attach(still_encoder), lambda_1=0.4, lambda_2=0.0, keywords="rake")
    assert torch.equal(stacked[2].fit(iter(CORPUS)).kernel, attach(still_encoder, corpus=CORPUS)[2].kernel)
