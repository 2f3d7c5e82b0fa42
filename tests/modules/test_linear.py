"""What the linear transforms share: attaching, fitting in two ways, files, exports."""

import functools
import inspect

import numpy as np
import pytest
import torch
from sentence_transformers.base.modules import Normalize

from st_extras.modules import (
    AllButTheTopPostProcessor,
    CorpusStatistics,
    LocalityPreservingPostProcessor,
    RepALPostProcessor,
    SIFPooling,
    WhiteningPostProcessor,
    load,
    pipeline,
    to_stock,
)
from tests.modules.cases import TEXTS, corpus_of_words

CORPUS = list(dict.fromkeys(corpus_of_words(90)))[:60]
MEMBERS = {
    "whitening": functools.partial(WhiteningPostProcessor.attach, dimensions=6),
    "all-but-the-top": functools.partial(AllButTheTopPostProcessor.attach, components=3),
    "locality": LocalityPreservingPostProcessor.attach,
}
BEYOND = {
    "components": [-1, 16, 2.5],
    "dimensions": [0, 17],
    "epsilon": [-0.1],
    "recolor": [1.5],
    "max_sentences": [49],
    "batch_size": [0, True, 10**11],
    "lambda_1": [-0.1, float("nan")],
    "a": [0, 2],
    "corpus": ["one text"],
}
"""Numbers beyond the ends of a range; every option refuses an object of no kind."""
members = pytest.mark.parametrize("attach", MEMBERS.values(), ids=MEMBERS)


@members
def test_fitted_on_sentences_or_statistics_saved_loaded_and_exported(still_encoder, tmp_path, attach):
    still_encoder.append(Normalize())
    model = attach(still_encoder, corpus=CORPUS)
    assert [type(part).__name__ for part in model][3:] == ["Normalize"]
    assert np.abs(to_stock(model).encode(TEXTS) - model.encode(TEXTS)).max() < 1e-5
    if type(model[2]) is not LocalityPreservingPostProcessor:
        other = attach(still_encoder)
        assert other[2].fit(statistics=CorpusStatistics.compute(still_encoder, CORPUS)) is other[2]
        assert np.array_equal(other.encode(TEXTS), model.encode(TEXTS))
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


def test_repal_on_top_is_equation_3(still_encoder):
    attach = MEMBERS["whitening"]
    model = RepALPostProcessor.attach(attach(still_encoder), lambda_1=0.4, lambda_2=0.7, keywords="rake")
    assert torch.equal(model[2].fit(CORPUS).kernel, attach(still_encoder, corpus=CORPUS)[2].kernel)
    v, redundant = (part.numpy() for part in model[3].fit(CORPUS[:20]).parts(TEXTS))
    plain = RepALPostProcessor.detach(model)
    assert np.abs(v - plain.encode(TEXTS)).max() < 1e-5
    expected = v - 0.4 * redundant - 0.7 * plain.encode(CORPUS[:20]).mean(axis=0)
    assert np.abs(model.encode(TEXTS) - expected).max() < 1e-4


@members
def test_an_unfitted_module(still_encoder, attach):
    model = attach(still_encoder)
    with pytest.raises(ValueError, match=r"not fitted.*fit\(sentences\)"):
        model.encode("a cat")
    with pytest.raises(ValueError, match="not fitted"):
        model[2].to_dense()
    with pytest.raises(ValueError, match="different embeddings"):
        model[2].fit(["a cat"] * 80)
    assert model[2].corpus_size == 0
    assert not model[2].kernel.any()


def test_only_one_of_them(still_encoder):
    repal = functools.partial(RepALPostProcessor.attach, lambda_1=0.4, lambda_2=0.0, keywords="rake")
    for attach, model in (
        (AllButTheTopPostProcessor.attach, MEMBERS["whitening"](still_encoder)),
        (AllButTheTopPostProcessor.attach, repal(still_encoder)),
        (repal, repal(still_encoder)),
    ):
        with pytest.raises(ValueError, match=r"^model must not have \w* attached already"):
            attach(model)


def test_a_fitted_matrix_is_put_before_a_final_normalize(still_encoder):
    vectors = still_encoder.encode(TEXTS, convert_to_tensor=True)
    still_encoder.append(Normalize())
    matrix, offset = torch.randn(16, 5), torch.randn(5)
    state = torch.random.get_rng_state()
    model = pipeline.with_dense(still_encoder, matrix, offset)
    assert torch.equal(torch.random.get_rng_state(), state), "no random number is drawn"
    expected = torch.nn.functional.normalize(vectors @ matrix + offset)
    assert (model.encode(TEXTS, convert_to_tensor=True) - expected).abs().max() < 1e-5


@pytest.mark.parametrize(
    "kind",
    [
        AllButTheTopPostProcessor,
        LocalityPreservingPostProcessor,
        RepALPostProcessor,
        SIFPooling,
        WhiteningPostProcessor,
    ],
)
def test_an_option_refuses_other_values_by_its_name(still_encoder, kind):
    plain = {"lambda_1": 0.5, "lambda_2": 0.5} if kind is RepALPostProcessor else {}
    fitting = {"corpus": TEXTS} if kind is not SIFPooling else {}
    for option in inspect.signature(kind.attach).parameters.keys() - {"encode_options"}:
        for value in (object(), *BEYOND.get(option, [])):
            given = plain | (fitting if option == "batch_size" else {}) | {"model": still_encoder, option: value}
            name = "sentences" if option == "corpus" else option
            with pytest.raises(ValueError, match=rf"^{name} must "):
                kind.attach(**given)
